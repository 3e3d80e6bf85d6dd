"""The studies at a site: which one is meant, where it stands, its cost, and the site's ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenveil.errors import DataError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.files import replacing

if TYPE_CHECKING:  # the database library takes long to load
    from eigenveil.federation.ledger.decisions import Standing
    from eigenveil.federation.ledger.ledger import Budget, Ledger
    from eigenveil.federation.ledger.placing import Wanted
    from eigenveil.federation.protocol.terms import Terms

_SHORTEST = 6
_OWN_FILE = "owner.json"


def can_be_shown(study: Study) -> bool:
    """Whether its text can be printed as it is: names, levels and labels come from others.

    One that moves the cursor could hide from the owner what it is that is approved.
    """
    texts = [study.requested_by, study.purpose, *(study.columns or ())]
    for column in () if study.table_schema is None else study.table_schema.columns:
        texts += [column.name, column.unit_of_measure, column.label, *column.levels]
    return all(text.isprintable() for text in texts)


def pick(studies: Sequence[Study], prefix: str, *, what: str) -> Study:
    """The one study whose hash begins so.

    Raises
    ------
    DataError
        When there is none, or more than one.
    """
    if len(prefix) < _SHORTEST:
        raise DataError(
            f"{prefix!r} is too short to name a study.",
            hint=f"Give at least {_SHORTEST} characters of its hash.",
            code="short-hash",
        )
    found = [study for study in studies if study.hash.startswith(prefix)]
    if not found:
        raise DataError(
            f"No study with a hash that begins with {prefix} {what}.",
            hint="'eigenveil site approve --list' shows them all.",
            code="unknown-study",
        )
    if len(found) > 1:
        raise DataError(
            f"{len(found)} studies have hashes that begin with {prefix}.",
            hint="Give more of the hash.",
            code="unknown-study",
        )
    return found[0]


def sentence_of(found: Standing) -> str:
    """Where a study stands, in words for the owner: in the command line and the console."""
    who, date = " and ".join(found.by), ""
    if found.until is not None:
        date = f" until {found.until:%Y-%m-%d %H:%M} UTC"
    match found.state:
        case "waiting":
            return "waits for a decision"
        case "second":
            earlier = {
                "used": "; all runs approved before have begun",
                "expired": "; the time of the approval before is over",
            }.get(found.before or "", "")
            return f"{who} agreed, and a second approver must as well{earlier}"
        case "approved":
            return f"approved by {who}, {_good_for(found, date)}"
        case "used":
            runs = "its one run has" if found.runs == 1 else f"all {found.runs} runs have"
            return f"approved by {who}; {runs} begun: it waits for another approval"
        case "expired":
            return f"approved by {who}{date}, which is over: it waits for another approval"
        case state:  # refused, revoked
            return f"{state} by {who}" + (f": {found.reason}" if found.reason else "")


def _good_for(found: Standing, date: str) -> str:
    if found.left is None:
        return f"for any number of runs{date}"
    if found.left == 1 and found.used == 0:
        return f"for ONE run{date}; then it waits again"
    return f"for {found.left} more run{'' if found.left == 1 else 's'}{date}"


@dataclass(frozen=True)
class Cost:
    """The most that a study can cost a site, beside its budget.

    Attributes
    ----------
    epsilon, delta : float
        Of the study alone, at its delta.
    budget : Budget or None
        Of the site's data set, where there is one.
    covered : bool or None
        Whether its account covers the study; ``None`` where there is none.
    left : str
        What is left of the account before it, in words.
    wanted : Wanted or None
        What the site's session of it will want of the account, where there is one.
    """

    epsilon: float
    delta: float
    budget: Budget | None = None
    covered: bool | None = None
    left: str = ""
    wanted: Wanted | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "budget": None if self.budget is None else self.budget.epsilon,
            "budget_delta": None if self.budget is None else self.budget.delta,
            "covered": self.covered,
            "left": self.left,
        }


def cost_of(study: Study, site: str, ledger: Ledger | None, data_set: str) -> Cost | None:
    """What a study can cost a site at most; ``None`` where it does not take part.

    Raises
    ------
    OutputError, DataError
        When the ledger cannot be read.
    """
    terms = settle(study)
    if site not in terms.names:
        return None
    # imported here: it comes with the ledger's database library
    from eigenveil.federation.ledger.books import epsilon_or_infinity
    from eigenveil.federation.ledger.placing import budget_left_text

    most = terms.reservation(site)
    own = epsilon_or_infinity(most, study.delta)
    if ledger is None:
        return Cost(own, study.delta)
    for standing in ledger.standings():
        if standing.budget.data_set == data_set:
            wanted = _wanted(terms, site, data_set)
            covered, left = ledger.covers(wanted), budget_left_text(standing)
            return Cost(own, study.delta, standing.budget, covered, left, wanted)
    return Cost(own, study.delta)


def _wanted(terms: Terms, site: str, data_set: str) -> Wanted:
    """What a site's session of a study wants of its account, as the site itself will ask for it."""
    from eigenveil.federation.ledger.entries import UNIT
    from eigenveil.federation.ledger.placing import Wanted

    return Wanted(
        data_set,
        terms.study.adjacency,
        terms.reservation(site),
        terms.reservation(site, replacing=True),
        terms.study.unit or UNIT,
    )


# -- what the owner gave at 'site start', for the commands that come later


@dataclass(frozen=True)
class Owner:
    """Where a site's ledger is, and its rows' name in it."""

    ledger: str | None = None
    data_set: str = "default"

    def keep(self, local: Path) -> None:
        """Remember it in the kit; a place with a password is not written down."""
        place = self.ledger
        if place is not None and "://" in place and "@" in place:
            place = None
        with replacing(local / _OWN_FILE) as scratch:
            scratch.write_text(
                json.dumps({"ledger": place, "data_set": self.data_set}), encoding="utf-8"
            )


def owner_of(local: Path) -> Owner:
    """What was remembered, or nothing."""
    try:
        fields = json.loads((local / _OWN_FILE).read_text(encoding="utf-8"))
        return Owner(fields["ledger"], str(fields["data_set"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Owner()
