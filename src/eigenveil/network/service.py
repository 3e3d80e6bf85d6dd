"""The aggregator: it takes leads' orders and conducts several studies at a time.

What a lead asks comes as a sealed envelope and is answered by one. An order, how far it is and its
result are files in ``results/SESSION``; a run that goes on has a journal besides.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eigenveil.errors import DataError, EigenveilError, ProtocolError, same_spent
from eigenveil.federated.running import StudyRun
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.requests import Call, Replies
from eigenveil.federation.protocol.terms import settle
from eigenveil.files import replacing
from eigenveil.network import channel
from eigenveil.network.channel import NONCE, OVER, PIECE, Reply
from eigenveil.network.endpoint import Endpoint
from eigenveil.network.envelopes import Envelope
from eigenveil.network.folder import PartyFolder, identity_of
from eigenveil.network.journal import MOST_IDLE_STARTS, Calls, Journal, Journaled
from eigenveil.network.mailbox import Mailbox
from eigenveil.network.orders import (
    Order,
    check_end,
    is_session,
    kept_order,
    parties_of,
    read_order,
    sign_end,
)
from eigenveil.network.questions import PATIENCE, Closed, PartyCalls, QuestionDesk
from eigenveil.network.results import (
    FILES,
    GOING_ON,
    STATUS,
    Progress,
    error_fields,
    read_progress,
    write_result_files,
)

# Studies that compute at once, in all and of one lead; and that a lead may have waiting or running.
AT_ONCE, OF_A_LEAD = 4, 2
MOST_OF_A_LEAD, MOST_IN_ALL = 8, 64
STARTED = threading.Event()
"""Of this process, if it is an aggregator's: it takes mail."""
_LOOK, _CLOSING = 0.3, 5.0
_A_DAY = 86400.0
_ORDER, _END = "order", "end"
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class AggregatorService:
    """Serves one federation from the aggregator's folder."""

    def __init__(
        self,
        party: PartyFolder,
        mailbox: Mailbox,
        *,
        say: Callable[[str], None] = print,
        patience: float = PATIENCE,
    ) -> None:
        self._party, self._say, self._patience = party, say, patience
        self._at = Endpoint(party, mailbox, say)
        self.identity, self.post = self._at.identity, self._at.post
        self.desk = QuestionDesk(self._at, self._receive)
        self._answers = ThreadPoolExecutor(1, thread_name_prefix="eigenveil leads")
        self._guard = threading.Condition()
        self._alive: dict[str, str] = {}
        self._computing: Counter[str] = Counter()

    def start(self) -> None:
        """Go on with what was cut off, and take mail."""
        if told := self._party.known.warning():
            self._say(told)
        self.desk.start()
        for order in self._going_on():
            self._begin(order)

    def close(self) -> None:
        """Take no more mail; runs go on when the service is started again."""
        self.desk.close()
        self._answers.shutdown(cancel_futures=True)
        with self._guard:
            self._guard.wait_for(lambda: not self._alive, _CLOSING)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._alive)

    # -- runs

    def _going_on(self) -> Iterator[Order]:
        for folder in sorted(self._party.results.glob("*")):
            found = read_progress(folder)
            journal = self._party.journals / folder.name
            with suppress(OSError, EigenveilError):
                if found is None or found["state"] in GOING_ON:
                    yield kept_order((folder / _ORDER).read_bytes())
                    continue
                journal.unlink(missing_ok=True)
                if folder.name in self.post.sessions:  # its end was cut off
                    self.post.end(folder.name)
                if time.time() < float(found["time"]) + _A_DAY:  # all may not know yet
                    order = kept_order((folder / _ORDER).read_bytes())
                    self.desk.notify(parties_of(order.study), OVER, order.session.encode())

    def _begin(self, order: Order) -> None:
        with self._guard:
            if order.session in self._alive:
                return
            self._alive[order.session] = order.lead
        name = f"eigenveil {order.session}"
        threading.Thread(target=self._conduct, args=(order,), daemon=True, name=name).start()

    def _conduct(self, order: Order) -> None:
        session, folder = order.session, self._party.results / order.session
        slot: list[str] = []
        try:
            place, members = self._party.journals / session, self.identity.members.digest
            journal = Journal.begin(place, order, members)
            if journal.idle_starts > MOST_IDLE_STARTS:
                journal.remove()
                raise ProtocolError("killed")

            def begin() -> None:
                self._wait_for_slot(order)
                slot.append(order.lead)

            StudyRunner(
                order,
                self.desk,
                identity_of(self._party, journal.members),
                lambda: self._ended(order),
                folder,
                journal,
                begin,
                self._patience,
            ).run()
        except Closed:
            return
        except EigenveilError as error:
            self._failed(order, error)
        except Exception:
            _log.exception("a study cannot be conducted")
            self._failed(order, ProtocolError("aggregator-failed"))
        finally:
            with self._guard:
                self._alive.pop(session, None)
                self._computing.subtract(slot)
                self._guard.notify_all()
        self.post.end(session)

    def _failed(self, order: Order, error: EigenveilError) -> None:
        file = self._party.results / order.session / STATUS
        progress = Progress(file, order.study.name, order.study.hash, order.session, order.lead)
        progress.state, progress.error = "failed", error_fields(error)
        with suppress(EigenveilError):
            progress.write()
        self._say(f"Study {order.study.name!r} failed: {error}")

    def _wait_for_slot(self, order: Order) -> None:
        """Until one more of this lead may compute: one lead cannot hold the federation."""
        with self._guard:
            while not (self.desk.is_closed or self._ended(order)) and (
                self._computing.total() >= AT_ONCE or self._computing[order.lead] >= OF_A_LEAD
            ):
                self._guard.wait(_LOOK)
            self._computing[order.lead] += 1

    def _ended(self, order: Order) -> str:
        """Who has signed that a run is to end, and why; empty where nobody has."""
        try:
            word = (self._party.results / order.session / _END).read_bytes()
            said = check_end(word, self.identity, session=order.session, lead=order.lead)
        except OSError:
            return ""
        except ProtocolError as error:
            _log.warning("an end that nobody signed: %s", error.message)
            return ""
        return f"by {said.by}" + (f": {said.reason.rstrip('.')}" if said.reason else "")

    # -- leads

    def _receive(self, query: Envelope) -> None:
        if self.identity.members.role(query.sender) != "lead":
            raise ProtocolError("only-of-another-role", sender=query.sender, role="a lead")
        if query.session:  # keys would be made for it, and stay
            raise ProtocolError("asked-in-a-run", sender=query.sender)
        with suppress(RuntimeError):  # closed meanwhile: the lead asks again
            self._answers.submit(self._answer, query)

    def _answer(self, query: Envelope) -> None:
        asked = {
            channel.SUBMIT: self._submit,
            channel.STATUS: self._status,
            channel.STUDIES: self._studies,
            channel.END: self._end,
            channel.RESULT: self._result,
        }
        try:
            does = asked.get(query.step)
            if does is None:
                raise ProtocolError("bad-request", what="There is no such request")
            found = Reply("", does(query.sender, query.payload[NONCE:]))
        except EigenveilError as error:
            found = Reply(error.code or channel.TROUBLE, json.dumps(error_fields(error)).encode())
        except Exception:
            _log.exception("a lead's request could not be answered")
            found = Reply(channel.TROUBLE)
        try:
            self._at.reply(query, found, PIECE if query.step == channel.RESULT else 0)
        except EigenveilError as error:
            _log.warning("%s was not answered: %s", query.sender, error.message)

    def _submit(self, lead: str, payload: bytes) -> bytes:
        order = read_order(payload, self.identity)
        if order.lead != lead:
            raise ProtocolError("of-another-lead")
        folder = self._party.results / order.session
        if (folder / _ORDER).exists():
            if (folder / _ORDER).read_bytes() != payload:
                raise ProtocolError("other-session")
            return b""
        with self._guard:
            mine = sum(each == lead for each in self._alive.values())
            if mine >= MOST_OF_A_LEAD or len(self._alive) >= MOST_IN_ALL:
                raise DataError("too-many-studies", mine=mine, lead=lead, alive=len(self._alive))
        study = order.study
        Progress(folder / STATUS, study.name, study.hash, order.session, lead).write()
        with replacing(folder / _ORDER) as scratch:
            scratch.write_bytes(payload)
        self._say(f"Study {study.name!r} (hash {study.hash[:12]}) was submitted by {lead}.")
        self._begin(order)
        return b""

    def _status(self, lead: str, payload: bytes) -> bytes:
        return json.dumps(self._found(lead, payload)).encode()

    def _studies(self, lead: str, payload: bytes) -> bytes:
        del payload
        found = (read_progress(folder) for folder in self._party.results.glob("*"))
        mine = [each for each in found if each is not None and each.get("lead") == lead]
        mine.sort(key=lambda each: -float(each.get("time", 0)))
        return json.dumps(mine[:100]).encode()

    def _end(self, lead: str, payload: bytes) -> bytes:
        session = str(self._found(lead, payload[:24])["session"])
        word = payload[24:]
        check_end(word, self.identity, session=session, lead=lead)
        _keep_end(self._party, session, word)
        return b""

    def _result(self, lead: str, payload: bytes) -> bytes:
        """A piece of one of a result's files: its size, its digest, and the bytes."""
        session, file, at = payload[:24], payload[24], int.from_bytes(payload[25:33], "little")
        found = self._found(lead, session)
        if found["state"] != "finished" or file >= len(FILES):
            raise ProtocolError("study-without-result")
        path = self._party.results / session.decode() / FILES[file]
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").digest()
            size = opened.tell()
            opened.seek(at)
            piece = opened.read(PIECE - 40)
        return size.to_bytes(8, "little") + digest + piece

    def _found(self, lead: str, payload: bytes) -> dict[str, Any]:
        """How far a run of this lead is; another lead's is unknown to it."""
        name = payload.decode("ascii", "replace")
        found = read_progress(self._party.results / name) if is_session(name) else None
        if found is None or found.get("lead") != lead:
            raise _unknown_run()
        return found


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
            problem = ProtocolError("aggregator-failed")
            same_spent(error, problem)
        progress.state = "finished"
        if problem is not None:
            progress.state = "aborted" if problem.code == channel.ABORTED else "failed"
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
            run = StudyRun(study, "", outcome, outcome.certificate, asked.traffic)
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


def serve_aggregator(
    party: PartyFolder,
    mailbox: Mailbox,
    *,
    say: Callable[[str], None] = print,
    stop: threading.Event | None = None,
) -> None:
    service, stop = AggregatorService(party, mailbox, say=say), stop or threading.Event()
    service.start()
    STARTED.set()
    try:
        stop.wait()
    finally:
        STARTED.clear()
        service.close()


def end_run(party: PartyFolder, session: str, reason: str = "") -> None:
    """The operator's word, from the aggregator's folder, that a run is to end, and why."""
    found = read_progress(party.results / session) if is_session(session) else None
    if found is None:
        raise _unknown_run()
    if found["state"] not in GOING_ON:
        raise ProtocolError("study-over", found=found["state"])
    _keep_end(party, session, sign_end(identity_of(party), session, reason))


def _keep_end(party: PartyFolder, session: str, word: bytes) -> None:
    with replacing(party.results / session / _END) as scratch:
        scratch.write_bytes(word)


def _unknown_run() -> ProtocolError:
    return ProtocolError("no-such-run")
