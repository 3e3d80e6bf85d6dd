"""A study from its first call to its result files, at the aggregator; FLARE is not known here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from eigenveil.errors import EigenveilError, ProtocolError, same_spent
from eigenveil.federated.running import finished_study
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.requests import Call, Replies
from eigenveil.federation.protocol.terms import active_sites, settle
from eigenveil.federation.x509_identity import Current
from eigenveil.network.channel import (
    ABORTED,
    NO_ANSWER,
    PASSING,
    UNREACHABLE,
    Wire,
    sentence,
)
from eigenveil.network.flare.job import SignedJob, fewest_parties, parties_of
from eigenveil.network.journal import Calls, Journal, Journaled
from eigenveil.network.results import write_result_files
from eigenveil.network.signed import list_of, settle_keys
from eigenveil.network.status import STATUS, Progress, error_fields
from eigenveil.network.transport import FlareTransport

Result = TypeVar("Result")
_log = logging.getLogger(__name__)
_BETWEEN_HELLOS = 0.2


@dataclass(frozen=True)
class StudyRunner:
    """Runs one order.

    Attributes
    ----------
    signed_job : Order
    wire : Wire
    present : sequence of str
        Parties to which FLARE has brought the job.
    aborted : callable
        Whether the study is to stop.
    folder : Path
        Of the result; it exists.
    identity : Current
        Signs the certificate.
    journal : Journal, optional
        Of the run; with one that has calls, the run goes on after them. It is removed at the end.
    patience : float
        Seconds until all must be ready.
    """

    signed_job: SignedJob
    wire: Wire
    present: Sequence[str]
    aborted: Callable[[], bool]
    folder: Path
    identity: Current
    journal: Journal | None = None
    patience: float = 60.0

    def run(self) -> EigenveilError | None:
        """Write the result, or return why there is none; inform all parties of the end."""
        study = self.signed_job.study
        progress = Progress(self.folder / STATUS, study.name, study.hash, self.signed_job.session)
        if self.journal is not None:
            progress.restarts = self.journal.starts - 1
        progress.write()
        transport = FlareTransport(
            self.wire, parties_of(study), self.aborted, members=lambda: list_of(self.identity.now())
        )
        problem: EigenveilError | None = None
        try:
            self._run(transport, progress)
        except EigenveilError as error:
            problem = error
        except Exception as error:
            _log.exception("the study failed")
            problem = ProtocolError(
                "The aggregator failed.",
                hint="Its reason is in the aggregator's log.",
                code="aggregator-failed",
            )
            same_spent(error, problem)
        try:
            transport.bye()
        finally:
            progress.state = "finished"
            if problem is not None:
                progress.state = "aborted" if problem.code == ABORTED else "failed"
                progress.error = error_fields(problem)
            progress.write()
            if self.journal is not None:
                self.journal.remove()
        return problem

    def _run(self, transport: FlareTransport, progress: Progress) -> None:
        study, begun = self.signed_job.study, time.monotonic()
        calls: Calls = transport
        if self.journal is not None:
            calls = Journaled(transport, self.journal, transport.count_replayed)
        if self.journal is not None and self.journal.has_calls:
            self._reach_again(transport)
        else:
            self._gather(transport, progress)
        settle_keys(self.identity.now())
        progress.state = "running"
        progress.write()
        aggregator = Aggregator(
            settle(study),
            session=self.signed_job.session,
            timeout=self.signed_job.timeout,
            progress=progress.notify,
            identity=self.identity.now(),  # type: ignore[arg-type]
        )
        try:
            outcome = carry_to_the_end(aggregator.run(), calls)
            progress.missing = dict(outcome.missing)
            run = finished_study(study, outcome, traffic=transport.traffic)
            seconds = time.monotonic() - begun + transport.replayed_seconds
            write_result_files(
                run,
                self.folder,
                session=self.signed_job.session,
                seconds=seconds,
                seconds_by_step=transport.seconds,
            )
        except BaseException as error:
            aggregator.attach_spent(error)
            raise

    def _reach_again(self, transport: FlareTransport) -> None:
        """Wait for parties that have to connect again; who cannot be reached is not waited for."""
        waiting = [name for name in parties_of(self.signed_job.study) if name in self.present]
        until = time.monotonic() + self.patience
        while waiting and time.monotonic() < until and not self.aborted():
            answers = transport.hello(waiting, 2.0)
            waiting = [name for name in waiting if answers[name] in (NO_ANSWER, UNREACHABLE)]
            if waiting:
                time.sleep(_BETWEEN_HELLOS)

    def _gather(self, transport: FlareTransport, progress: Progress) -> None:
        """Wait until everybody who has the job is ready, or as many as are needed.

        A party to which FLARE did not bring the job is not waited for. A newer list of members
        that one of them has is brought to all.
        """
        names = parties_of(self.signed_job.study)
        codes = {name: UNREACHABLE for name in names if name not in self.present}
        waiting = [name for name in names if name in self.present]
        until = time.monotonic() + self.patience
        while waiting and time.monotonic() < until:
            brought = transport.members()
            answers = transport.hello(waiting, 2.0)
            codes |= answers
            waiting = [name for name in waiting if answers[name] in PASSING]
            if transport.members() != brought:
                waiting = [name for name in names if name in self.present]
            progress.missing = {name: sentence(code) for name, code in codes.items() if code}
            progress.answered = len(names) - len(progress.missing)
            progress.write()
            if waiting:
                time.sleep(_BETWEEN_HELLOS)
        ready = len(names) - len(progress.missing)
        if ready < fewest_parties(self.signed_job.study):
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(progress.missing.items()))
            raise ProtocolError(
                f"{ready} of the {fewest_parties(self.signed_job.study)} parties are ready that "
                "the "
                f"study needs ({len(active_sites(self.signed_job.study))} sites). {reasons}.",
                hint="Start these parties, have their owners approve, and run the study again.",
                code="too-few-sites",
            )


def carry_to_the_end(run: Generator[Call, Replies, Result], transport: Calls) -> Result:
    """Carry a role's calls until it has its result; stopped, it may still tell everybody so.

    Raises
    ------
    EigenveilError
        What the role raises; of code ``aborted`` when the study was stopped.
    """
    answers: Replies | ProtocolError | None = None
    while True:
        try:  # of the role alone: whatever the transport raises is no result
            if answers is None:
                call = next(run)
            elif isinstance(answers, ProtocolError):
                call = run.throw(answers)
            else:
                call = run.send(answers)
        except StopIteration as end:
            result: Result = end.value
            return result
        try:
            answers = transport.call(call.method, call.payloads, call.timeout)
        except ProtocolError as stopped:
            transport.hurry()
            answers = stopped
