"""Decisions at a site: which study is meant, what it costs, where it stands, who decides it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from eigenveil.app.ledger import ledger_of
from eigenveil.app.study import settled
from eigenveil.errors import DataError, OutputError, nearest, number_text
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.keys import open_key
from eigenveil.federation.approvals.record import Record, StudyStanding
from eigenveil.federation.approvals.roster import FIRST_OWNER, Decider, SiteFolder, key_file
from eigenveil.federation.approvals.studies import decided_studies, waiting_studies
from eigenveil.federation.ledger.books import epsilon_or_infinity
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.placing import Wanted, budget_left_text
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.file import read_study
from eigenveil.federation.study.study import Study
from eigenveil.files import Place
from eigenveil.network.folder import PartyFolder, read_signer, write_json

_SHORTEST = 6
_OWN_FILE = "owner.json"


def can_be_shown(study: Study) -> bool:
    """Whether its text can be printed as it is: names, levels and labels come from others.

    One that moves the cursor could hide from the owner what it is that is approved.
    """
    texts = [study.requested_by, study.purpose, *(study.columns or ())]
    for column in () if study.table_schema is None else study.table_schema.columns:
        texts += [column.name, column.unit_of_measure, column.label, *column.levels]
        texts += [column.other, column.since, column.until]
    return all(text.isprintable() for text in texts)


def pick(studies: Sequence[Study], prefix: str, *, what: str) -> Study:
    """The one study whose hash begins so."""
    if len(prefix) < _SHORTEST:
        raise DataError("short-hash", prefix=prefix, fewest=_SHORTEST)
    found = [study for study in studies if study.hash.startswith(prefix)]
    if not found:
        raise DataError("unknown-study", prefix=prefix, what=what)
    if len(found) > 1:
        raise DataError("several-studies", count=len(found), prefix=prefix)
    return found[0]


def sentence_of(found: StudyStanding) -> str:
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


def _good_for(found: StudyStanding, date: str) -> str:
    if found.left is None:
        return f"for any number of runs{date}"
    if found.left == 1 and found.used == 0:
        return f"for ONE run{date}; then it waits again"
    return f"for {found.left} more run{'' if found.left == 1 else 's'}{date}"


@dataclass(frozen=True)
class Cost:
    """The most that a study can cost a site, beside its budget."""

    epsilon: float  # Of the study alone, at its delta
    delta: float
    budget: Budget | None = None  # Of the site's data set, where there is one
    covered: bool | None = None  # Whether its account covers the study; `None` where there is none
    left: str = ""  # What is left of the account before it, in words
    # What the site's session of it will want of the account, where there is one
    wanted: Wanted | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "budget": None if self.budget is None else self.budget.epsilon,
            "budget_delta": None if self.budget is None else self.budget.delta,
            "covered": self.covered,
            "left": self.left,
        }


def cost_of(study: Study, site: str, ledger: Ledger | None, data_set: str) -> Cost | None:
    """What a study can cost a site at most; ``None`` where it does not take part."""
    terms = settle(study)
    if site not in terms.names:
        return None

    most = terms.reservation(site)
    own = epsilon_or_infinity(most, study.delta)
    if ledger is None:
        return Cost(own, study.delta)
    for standing in ledger.standings():
        if standing.budget.data_set == data_set:
            wanted = terms.wanted(site, data_set)
            covered, left = ledger.covers(wanted), budget_left_text(standing)
            return Cost(own, study.delta, standing.budget, covered, left, wanted)
    return Cost(own, study.delta)


# -- what the owner gave at 'site start', for the commands that come later


class _Asked:
    """What a database answers, as a digest knows it: by the database and the query."""

    def __init__(self, text: str) -> None:
        self.name = self.suffix = ""
        self._text = text

    def __fspath__(self) -> str:
        raise TypeError

    def open(self, mode: Literal["rb"] = "rb", /) -> IO[bytes]:
        del mode
        return io.BytesIO(self._text.encode())

    def resolve(self) -> Any:
        return self


@dataclass(frozen=True)
class Owner:
    """Where a site's ledger is, its rows' name in it, and which rows it was started with."""

    ledger: str | None = None
    data_set: str = "default"
    rows: tuple[str, ...] = ()  # Files, and queries with their databases (never a password)

    @classmethod
    def of(cls, ledger: str, data_set: str, rows: Sequence[Place] = ()) -> Owner:
        return cls(ledger, data_set, tuple(_written(each) for each in rows))

    def keep(self, party: PartyFolder) -> None:
        """Remember it; a place with a password is not written down."""
        place = self.ledger
        if place is not None and "://" in place and "@" in place:
            place = None
        content = {"ledger": place, "data_set": self.data_set, "rows": list(self.rows)}
        write_json(party.state / _OWN_FILE, content)

    @property
    def places(self) -> list[Place]:
        return [
            _Asked(text.removeprefix(_QUERY)) if text.startswith(_QUERY) else Path(text)
            for text in self.rows
        ]


_QUERY = "query:"


def _written(place: Place) -> str:
    if isinstance(place, Path):
        return str(place.absolute())
    with place.open("rb") as stream:
        return _QUERY + stream.read().decode()


def owner_of(party: PartyFolder) -> Owner:
    try:
        fields = json.loads((party.state / _OWN_FILE).read_text(encoding="utf-8"))
        rows = tuple(str(each) for each in fields["rows"])
        return Owner(fields["ledger"], str(fields["data_set"]), rows)
    except (OSError, ValueError, KeyError, TypeError):
        return Owner()


# -- the desk


def desk_of(party: PartyFolder, ledger: str | None, data_set: str | None = None) -> Decisions:
    """The decisions of a site, in the ledger that was given, or is known from 'site start'."""
    owner = owner_of(party)
    place = ledger if ledger is not None else owner.ledger
    if place is None:
        raise OutputError("ledger-not-known", party=party.name)
    named = owner.data_set if data_set is None else data_set
    rows = owner.places if named == owner.data_set else []
    return Decisions(party, ledger_of(place, party), named, rows)


def decider_of(
    desk: Decisions, by: str, key: Path | None, password: Callable[[str], str]
) -> Decider:
    """An approver with the key that signs for them: the party's own, or one of a file."""
    if key is None:
        known, own = desk.approvers().called(by), desk.party.signer_now
        if known is not None and known.public_key == own.public_key.text:
            return Decider(by, own)
        if by == FIRST_OWNER and not key_file(desk.party, by).exists():
            return Decider(by, desk.owner())  # says that the party has another key
    place = key if key is not None else key_file(desk.party, by)
    if not place.exists():
        raise OutputError("no-key-of", name=by, place=place)
    if place.resolve().is_relative_to(desk.party.keys.resolve()):
        return Decider(
            by, read_signer(place)
        )  # a former key of the party's own, which has no password
    return Decider(by, open_key(place, password(f"Password of {by}'s key")))


# -- what waits, what was decided, and what it would cost


@dataclass(frozen=True)
class StudyAtSite:
    """A study at a site: what it costs, as numbers and in a sentence, and where it stands."""

    study: Study
    cost: Cost | None
    sentence: str
    standing: StudyStanding


@dataclass(frozen=True)
class Studies:
    """The studies at a site; those that cannot be shown are only counted."""

    party: SiteFolder
    desk: Decisions | None  # Without a ledger nothing is known of budgets and decisions
    data_set: str

    @classmethod
    def of(cls, party: PartyFolder, ledger: str | None, data_set: str | None = None) -> Studies:
        owner = owner_of(party)
        known = ledger is not None or owner.ledger is not None
        desk = desk_of(party, ledger, data_set) if known and party.role == "site" else None
        return cls(party, desk, owner.data_set if data_set is None else data_set)

    @cached_property
    def _record(self) -> Record:

        return Record("") if self.desk is None else self.desk.record()

    @cached_property
    def hidden(self) -> int:
        """How many wait that cannot be shown, and so not be approved."""
        return len(waiting_studies(self.party)) - len(self.waiting)

    @cached_property
    def waiting(self) -> list[Study]:
        return [each for each in waiting_studies(self.party) if can_be_shown(each)]

    def decided(self) -> list[tuple[Study, StudyStanding]]:
        """Those that were decided about, and where each stands."""
        if self.desk is None:
            return []
        return [(each, self._record.standing(each.hash)) for each in decided_studies(self.party)]

    def shown(self, study: Study) -> StudyAtSite:
        ledger = None if self.desk is None else self.desk.ledger
        cost = cost_of(study, self.party.name, ledger, self.data_set)
        return StudyAtSite(study, cost, self._sentence(cost), self._record.standing(study.hash))

    def find(self, text: str) -> Study:
        """One that waits, or was decided about before, by the beginning of its hash."""
        known = {each.hash: each for each in decided_studies(self.party) if can_be_shown(each)}
        known |= {each.hash: each for each in self.waiting}
        return self.own(pick(list(known.values()), text, what="waits"))

    def named(self, text: str) -> Study:
        """A study by its hash, or one in a file."""
        if Path(text).suffix != ".toml":
            return self.find(text)
        return self.own(settled(read_study(Path(text)))[0])

    def own(self, study: Study) -> Study:
        """The study, if the site is in it."""
        if self.party.name not in study.names:
            raise DataError(
                "unknown-site", site=self.party.name, near=nearest(self.party.name, study.names)
            )
        return study

    def _sentence(self, cost: Cost | None) -> str:
        if cost is None:
            return "It sends no query to this site: with protocol local only the first site counts."
        most = (
            f"It can cost at most epsilon = {cost.epsilon:.4g} at delta = {number_text(cost.delta)}"
        )
        if self.desk is None:
            return f"{most}; with --ledger, what is left is shown beside it."
        place = f"{self.desk.ledger.name}, data set {self.data_set}"
        if cost.budget is None:
            return f"{most}, and there is NO BUDGET for it in {place}."
        verdict = "covers it" if cost.covered else "does NOT cover it: the site would refuse"
        return (
            f"{most}. The budget, {cost.budget.bound} ({cost.budget.adjacency}, one "
            f"{cost.budget.unit}), {verdict}; {cost.left} ({place})."
        )
