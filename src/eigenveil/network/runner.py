"""A study from its first call to its result files, at the aggregator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from eigenveil.errors import EigenveilError, ProtocolError, same_spent
from eigenveil.federated.running import finished_study
from eigenveil.federation.identity import Identity
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.requests import Call, Replies
from eigenveil.federation.protocol.terms import settle
from eigenveil.network.channel import ABORTED
from eigenveil.network.journal import Calls, Journal, Journaled
from eigenveil.network.orders import Order, parties_of
from eigenveil.network.questions import PATIENCE, Closed, PartyCalls, QuestionDesk
from eigenveil.network.results import write_result_files
from eigenveil.network.status import STATUS, Progress, error_fields

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyRunner:
    """Conducts one run, from its journal's first call that is not done.

    ``begin`` is called when all have joined, and may wait.
    """

    order: Order
    desk: QuestionDesk
    identity: Identity
    aborted: Callable[[], str]
    folder: Path
    journal: Journal
    begin: Callable[[], None] = lambda: None
    patience: float = PATIENCE

    def run(self) -> EigenveilError | None:
        """Write the result, or return why there is none; inform all parties of the end."""
        study, session = self.order.study, self.order.session
        progress = Progress(self.folder / STATUS, study.name, study.hash, session, self.order.lead)
        progress.restarts = self.journal.starts - 1
        progress.write()

        def note(missing: Mapping[str, str]) -> None:
            progress.missing = dict(missing)
            progress.answered = len(parties_of(study)) - len(missing)
            progress.write()

        def begin() -> None:
            self.begin()
            progress.state, progress.missing = "running", {}
            progress.write()

        asked = PartyCalls(
            self.desk, self.order, self.identity, self.aborted, begin, note, patience=self.patience
        )
        problem: EigenveilError | None = None
        try:
            self._run(asked, progress)
        except EigenveilError as error:
            problem = error
        except Closed:
            self.journal.close()
            raise
        except Exception as error:
            _log.exception("the study failed")
            problem = ProtocolError(
                "The aggregator failed.",
                hint="Its reason is in the aggregator's log.",
                code="aggregator-failed",
            )
            same_spent(error, problem)
        progress.state = "finished"
        if problem is not None:
            progress.state = "aborted" if problem.code == ABORTED else "failed"
            progress.error = error_fields(problem)
        progress.write()
        self.journal.remove()
        asked.over()
        return problem

    def _run(self, asked: PartyCalls, progress: Progress) -> None:
        study, session, begun = self.order.study, self.order.session, time.monotonic()
        calls: Calls = Journaled(asked, self.journal, asked.count_replayed)
        aggregator = Aggregator(
            settle(study),
            session=session,
            timeout=self.order.timeout,
            progress=progress.notify,
            identity=self.identity,
        )
        try:
            outcome = carry_to_the_end(aggregator.run(), calls)
            progress.missing = dict(outcome.missing)
            run = finished_study(study, outcome, traffic=asked.traffic)
            write_result_files(
                run,
                self.folder,
                session=session,
                seconds=time.monotonic() - begun - asked.waited + asked.replayed_seconds,
                seconds_by_step=asked.seconds,
            )
        except BaseException as error:
            aggregator.attach_spent(error)
            raise


def carry_to_the_end(run: Generator[Call, Replies, Result], transport: Calls) -> Result:
    """Carry a role's calls until it has its result; stopped, it may still tell everybody so."""
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
