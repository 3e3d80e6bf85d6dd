"""A site, as its owner looks at it: what waits, what was decided, and decisions about studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

from eigenveil.app.decisions import Owner, Studies, StudyAtSite, owner_of, pick, sentence_of
from eigenveil.app.parts import Part, TablePart, strongly, whole
from eigenveil.app.presenters.study import summary, summary_parts
from eigenveil.errors import OutputError, WrongOption
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.record import StudyStanding
from eigenveil.federation.approvals.roster import Decider
from eigenveil.federation.study.study import Study
from eigenveil.network.folder import PartyFolder, lock
from eigenveil.network.folder import open_party as open_party
from eigenveil.network.survey import Telling as Telling


@dataclass(frozen=True)
class SiteStatus:
    """Whether a site runs, and which studies are before its owner."""

    party: PartyFolder
    is_running: bool
    owner: Owner
    at: Studies

    def as_json(self) -> dict[str, Any]:
        stood = self.at.decided()
        return {
            "party": str(self.party.folder),
            "role": self.party.role,
            "name": self.party.name,
            "address": self.party.address,
            "running": self.is_running,
            "ledger": self.owner.ledger,
            "data_set": self.owner.data_set,
            "waiting": [{"hash": each.hash, "name": each.name} for each in self.at.waiting],
            "approved": [
                {"hash": each.hash, "name": each.name, "left": found.left}
                for each, found in stood
                if found.approved
            ],
            "decided": [
                {"hash": each.hash, "name": each.name, "state": found.state}
                for each, found in stood
            ],
        }

    def parts(self) -> Iterator[Part]:
        state = "runs" if self.is_running else "does not run"
        party = self.party
        yield f"{party.role} {party.name} {state}; its mailbox is {party.address}"
        yield f"ledger: {self.owner.ledger or 'not known here'}"
        yield from study_parts("waits for approval", self.at.waiting)
        yield from stood_parts("decided", self.at.decided())


def status(folder: Path) -> SiteStatus:
    party = open_party(folder)
    return SiteStatus(party, is_running(party), owner_of(party), Studies.of(party, None))


def is_running(party: PartyFolder) -> bool:
    try:
        with lock(party):
            return False
    except OutputError as error:
        if error.code != "party-in-use":
            raise
        return True


@dataclass(frozen=True)
class StudyList:
    at: Studies
    party: Path

    def as_json(self) -> dict[str, Any]:
        approved = [each for each, found in self.at.decided() if found.approved]
        return {
            name: [
                {**summary(each, None), "cost": None if cost is None else cost.as_json()}
                for each in studies
                for cost in [self.at.shown(each).cost]
            ]
            for name, studies in (("waiting", self.at.waiting), ("approved", approved))
        }

    def parts(self) -> Iterator[Part]:
        yield from _hidden(self.at)
        for each in map(self.at.shown, self.at.waiting):
            yield from summary_parts(each.study, None, {})
            yield strongly("cost:", each.sentence)
            if each.standing.state not in ("waiting", "approved"):
                yield strongly("decided:", sentence_of(each.standing))
            command = f"eigenveil site approve --party {quote(str(self.party))}"
            yield whole(f"to approve: {command} {each.study.hash[:12]}")
            yield ""
        if not self.at.waiting:
            yield _NONE_WAITS
        yield from stood_parts("decided", self.at.decided())


_NONE_WAITS = "No study waits for approval."


def _hidden(at: Studies) -> Iterator[Part]:
    if at.hidden:
        what = "cannot be shown on a terminal, and so not be approved."
        yield strongly(f"{at.hidden} more", what)


def stood_parts(title: str, stood: Sequence[tuple[Study, StudyStanding]]) -> Iterator[Part]:
    rows = [
        (each.name, each.hash[:16], sentence_of(found))
        for each, found in stood
        if found.state != "waiting"
    ]
    if rows:
        yield TablePart(title, ("study", "hash", "where it stands"), rows, overflow="fold")


def study_parts(title: str, studies: Sequence[Study]) -> Iterator[Part]:
    rows = [
        (each.name, each.task, f"{each.epsilon:g}", ", ".join(each.names), each.hash[:16])
        for each in studies
    ]
    if rows:
        headings = ("study", "task", "epsilon", "sites", "hash")
        yield TablePart(title, headings, rows, overflow="fold")


@dataclass(frozen=True)
class Approved:
    """Studies that were approved, with their costs before, and where each stands."""

    at: Studies
    stood: Sequence[tuple[StudyAtSite, StudyStanding]]
    all_asked: bool  # Whether all that wait were meant

    def as_json(self) -> dict[str, Any]:
        return {
            name: [each.study.hash for each, found in self.stood if found.approved == done]
            for name, done in (("approved", True), ("second", False))
        }

    def parts(self) -> Iterator[Part]:
        if self.all_asked:
            yield from _hidden(self.at)
        if not self.stood:
            yield _NONE_WAITS
        for each, found in self.stood:
            said = "approved" if found.approved else "agreed"
            text = f"{said}: study {each.study.name}, {each.study.hash}"
            yield whole(text)
            yield f"  {sentence_of(found)}"
            yield f"  {each.sentence}"


def approve(
    at: Studies,
    study: str | None,
    by: Callable[[], Decider],
    *,
    desk: Callable[[], Decisions],
    until: str | None,
    runs: int | None,
    **fields: Any,
) -> Approved:
    """Approve a study, or all that wait where none is named."""
    last = None if until is None else _end_of_day(until)
    # costs are those before anything is approved
    chosen = [at.shown(e) for e in (at.waiting if study is None else [at.named(study)])]
    stood = []
    if chosen:
        deciding, decider = at.desk or desk(), by()
        good = runs if runs is not None or last is not None else 1
        for each in chosen:
            found = deciding.approve(each.study, decider, runs=good, until=last, **fields)
            stood.append((each, found))
    return Approved(at, stood, study is None)


def _end_of_day(text: str) -> datetime:
    try:
        day = datetime.fromisoformat(text)
        if day.tzinfo is None:
            whole = len(text) <= len("2027-06-30")
            day = day.replace(tzinfo=UTC) + whole * timedelta(days=1, seconds=-1)
    except ValueError:
        raise WrongOption("until-no-date", until=text) from None
    return day


EVERY = "all"
"""In place of a study: every one that was approved as it came."""


def revoke(desk: Decisions, study: str, by: Decider, *, reason: str) -> tuple[str, str]:
    """Take an approval back; what it was for, in words and as decisions name it."""
    called, which = "every study", EVERY
    if study != EVERY:
        stood = Studies(desk.party, desk, desk.data_set).decided()
        chosen = pick(
            [each for each, found in stood if found.rule.revocable], study, what="was approved"
        )
        called, which = f"study {chosen.name}, {chosen.hash}", chosen.hash
    desk.revoke(which, by, reason=reason)
    return called, which
