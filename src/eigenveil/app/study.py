"""A study between organisations, as its lead runs it: events while it goes on, then its result."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenveil.app.parts import Part, TablePart
from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.study.study import Study
from eigenveil.io.stopping import Stop
from eigenveil.planning.protocol import choose_protocol

if TYPE_CHECKING:
    from eigenveil.federation.protocol.certificates import CheckedSignatures
    from eigenveil.network.lead import LeadSession, StudyStatus

_EVERY = 0.2
# Seconds without any answer of the aggregator, which may be stopped, or away for a moment.
_SILENT = 120.0
# Seconds beyond all tries of a step without a new answer: factors of the largest sums take minutes.
_STALLED = 600.0


@dataclass(frozen=True)
class Started:
    """The aggregator has the study; ``run`` names the run."""

    run: str
    study: Study


@dataclass(frozen=True)
class Moved:
    """How far it is: in words, and the step, how many answered it, and who is missing, and why."""

    text: str
    step: str = ""
    answered: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """It was ended as the lead asked, before there was a result."""

    run: str


@dataclass(frozen=True)
class Finished:
    """The model as a fit in one process leaves it, and who has signed its certificate."""

    run: str
    model: Any
    signed: CheckedSignatures


Event = Started | Moved | Ended | Finished


def settled(study: Study) -> tuple[Study, str]:
    """The study with its protocol, and why that one where the study did not name it."""
    if study.protocol != "auto":
        return study, ""
    choice = choose_protocol(study, study.width)
    return study.with_protocol(choice.protocol), choice.reason


def open_lead(party: Path) -> LeadSession:
    """A session of a lead, whose party's folder this is."""
    from eigenveil.network.folder import open_party
    from eigenveil.network.lead import LeadSession

    return LeadSession(open_party(party, role="lead"))


def run_study(
    session: LeadSession,
    study: Study,
    *,
    timeout: float,
    patience: float,
    signatures: int | None,
    stop: Stop,
) -> Iterator[Event]:
    """Run a study and bring its result; it is ended where ``stop`` is requested."""
    agreed, choice = settled(study)
    run = session.submit(agreed, timeout=timeout)
    yield Started(run, agreed)
    if (yield from _followed(session, run, timeout, patience, stop)):
        yield Ended(run)
        return
    try:
        model, signed = session.result(run, study=agreed, choice=choice, signatures=signatures)
    except ProtocolError as error:
        error.hint = f"{error.hint} To fetch it: eigenveil study fetch {run} --out FOLDER.".strip()
        raise
    yield Finished(run, model, signed)


def _followed(
    session: LeadSession, run: str, timeout: float, patience: float, stop: Stop
) -> Generator[Event, None, bool]:
    """Yield what changes until the result is there; returns whether the lead ended the study."""
    begun = heard = moved = time.monotonic()
    last: object = None
    told: Moved | None = None
    while True:
        if stop.requested:
            session.end(run)
            return True
        try:
            found = session.status(run)
        except ProtocolError as error:
            if error.code not in ("no-aggregator", "no-mailbox"):
                raise
            if time.monotonic() - heard > _SILENT:
                raise ProtocolError(
                    "aggregator-silent", run=run, seconds=_SILENT, reason=error.message
                ) from None
            now = Moved(f"no answer: {error.message}")
        else:
            heard = time.monotonic()
            now = Moved(sentence_of(found), found.step, found.answered, dict(found.missing))
            if found.is_over and found.state != "finished":
                aborted = found.state == "aborted"
                raise found.error or ProtocolError("study-aborted" if aborted else "study-failed")
            if found.state == "running" and (found.step, found.answered) != last:
                last, moved = (found.step, found.answered), heard
            if found.state == "running" and heard - moved > TRIES * timeout + _STALLED:
                seconds = TRIES * timeout + _STALLED
                raise ProtocolError("stalled", run=run, seconds=seconds)
            if found.state == "waiting" and heard - begun > patience:
                session.end(run)
                raise ProtocolError(
                    "sites-not-ready",
                    patience=patience,
                    missing_of=missing_of(found) or "the aggregator did not say which",
                )
        if now != told:
            told = now
            yield now
        if heard > begun and now.text == "finished":
            return False
        stop.wait(lambda: time.sleep(_EVERY))


def sentence_of(found: StudyStatus) -> str:
    missing = missing_of(found)
    match found.state:
        case "waiting":
            return f"waiting; {missing}" if missing else "waiting until it is begun"
        case "running":
            done = f"{found.step}: {found.answered} answered" if found.step else "running"
            return f"{done} (without {missing})" if missing else done
        case state:
            return state


def missing_of(found: StudyStatus) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(found.missing.items()))


@dataclass(frozen=True)
class LeadRuns:
    """How far a lead's studies are, by their runs."""

    found: Mapping[str, StudyStatus]

    def as_json(self) -> dict[str, Any]:
        return {run: _status_json(each) for run, each in self.found.items()}

    def parts(self) -> Iterator[Part]:
        if not self.found:
            yield "The aggregator knows of no study of this lead."
            return
        rows = [
            (run, each.name, each.state, f"{each.step}: {each.answered} answered" * bool(each.step))
            for run, each in self.found.items()
        ]
        yield TablePart("studies", ("run", "study", "state", "step"), rows, overflow="fold")
        for run, each in self.found.items():
            if each.missing:
                yield f"{run[:8]}: {missing_of(each)}"
            if each.error is not None:
                yield f"{run[:8]}: {each.error}"


def _status_json(found: StudyStatus) -> dict[str, Any]:
    of_error = None
    if (error := found.error) is not None:
        spent = None if error.spent is None else error.spent.as_dict()
        said = {"code": error.code, "message": error.message, "hint": error.hint}
        of_error = said | {"spent": spent}
    return {
        "study": found.name,
        "study_hash": found.study_hash,
        "state": found.state,
        "step": found.step,
        "answered": found.answered,
        "missing": dict(found.missing),
        "error": of_error,
    }
