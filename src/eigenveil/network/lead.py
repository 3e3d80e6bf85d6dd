"""A lead's session with the aggregator: submit studies, follow and end them, fetch results."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.members import Evidence
from eigenveil.federation.protocol.certificates import CheckedSignatures, check_count, who_signed
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.study.study import Study
from eigenveil.files import replacing
from eigenveil.network import channel
from eigenveil.network.channel import NONCE, PIECE, Reply, room
from eigenveil.network.endpoint import Endpoint, Question
from eigenveil.network.envelopes import Envelope
from eigenveil.network.folder import PartyFolder
from eigenveil.network.mailbox import CarrierError, Mailbox, open_mailbox
from eigenveil.network.orders import new_session, sign_end, sign_order
from eigenveil.network.questions import QuestionDesk
from eigenveil.network.results import FILES, MOST_BYTES, State, error_from, read_result_files
from eigenveil.network.survey import REVOKED, PartyReport, problem_of, question_about, report_of

# Seconds: to wait for an answer, and for a mailbox; and of one look into the mailbox.
ANSWER, CONNECT = 30.0, 10.0
_GLANCE = 1.0
# Seconds after which mail that answers nothing of this process is dropped.
_OLD = 600.0


@dataclass(frozen=True)
class StudyStatus:
    """How far a study is; ``missing`` says who is awaited or gone, and why."""

    run: str
    name: str
    study_hash: str
    state: State
    step: str = ""
    answered: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    error: EigenveilError | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


class LeadSession:
    """A lead's session; use it in a ``with`` block. Studies go on when it is closed."""

    def __init__(
        self, party: PartyFolder, mailbox: Mailbox | None = None, *, timeout: float = ANSWER
    ) -> None:
        mailbox = open_mailbox(party) if mailbox is None else mailbox
        self._at = Endpoint(party, mailbox, lambda _: None)
        self.desk = _LeadDesk(self._at)
        self._identity, self._members = self._at.identity, self._at.members
        self._timeout = timeout
        self._one = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._at.mailbox.close()

    # -- what a lead can do

    def submit(self, study: Study, *, timeout: float = 600.0) -> str:
        """Give a study to the aggregator; the run's name. A site has ``timeout`` s an answer."""
        order = sign_order(self._identity, study, session=new_session(), timeout=timeout)
        self._ask(channel.SUBMIT, order.line)
        return order.session

    def status(self, run: str) -> StudyStatus:
        return _status(_plain(self._ask(channel.STATUS, run.encode())))

    def studies(self) -> dict[str, StudyStatus]:
        """The lead's studies by run, the newest first."""
        found = _plain(self._ask(channel.STUDIES, b""))
        return {each.run: each for each in map(_status, found)}

    def end(self, run: str) -> None:
        """Stop a study, with a signature; what its sites have answered stays charged."""
        self._ask(channel.END, run.encode() + sign_end(self._identity, run))

    def ask(
        self, names: Sequence[str], study: Study | None = None, *, timeout: float | None = None
    ) -> list[PartyReport]:
        """Ask parties what was decided about a study, and for their schemas, before it runs.

        A study that no owner has seen waits for each one from then on.
        """
        payload = question_about(study)
        problems = {name: problem_of(self._members, name) for name in names}
        digest = "" if study is None else study.hash
        found = self._exchange(
            [
                Envelope(digest, "", channel.SURVEY, self._identity.name, name, payload)
                for name, problem in problems.items()
                if not problem
            ],
            room(payload),
            self._timeout if timeout is None else timeout,
        )
        return [
            PartyReport(name, problem=problem)
            if problem
            else report_of(name, found.get(name, Reply(channel.NOT_CONNECTED)))
            for name, problem in problems.items()
        ]

    def fetch(self, run: str, folder: Path) -> tuple[Path, ...]:
        """Bring the result's files (model, certificate, summary) into a folder that exists."""
        for number, name in enumerate(FILES):
            content = self._file(run, number)
            with replacing(folder / name) as scratch:
                scratch.write_bytes(content)
        return tuple(folder / name for name in FILES)

    def result(
        self,
        run: str,
        study: Study | None = None,
        *,
        choice: str = "",
        signatures: int | None = None,
    ) -> tuple[Any, CheckedSignatures]:
        """The fitted model of a finished run, and who signed its certificate.

        It must be of this run, and of ``study`` where one is given, and be signed by all sites, or
        by as many as ``signatures`` says.
        """
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
            self.fetch(run, Path(place))
            model = read_result_files(Path(place), choice=choice)
        if study is not None and model.study_.hash != study.hash:
            raise _another(f"of another study, {model.study_.hash[:12]}")
        signed = who_signed(model.certificate_, self._members.federation)
        if signed is None or signed.session != run:
            raise _another("of another run")
        check_count(signed, signatures)
        evidence = Evidence.model_validate(model.certificate_.signatures.members)
        self._members.vouch(evidence)
        return model, signed

    # -- letters

    def _file(self, run: str, number: int) -> bytes:
        content, most = bytearray(), MOST_BYTES[FILES[number]]
        while True:
            at = len(content).to_bytes(8, "little")
            found = self._ask(channel.RESULT, run.encode() + bytes([number]) + at, PIECE)
            size, digest, piece = int.from_bytes(found[:8], "little"), found[8:40], found[40:]
            content += piece
            if max(size, len(content)) > most:
                raise _strange(f"{FILES[number]} with more than {most >> 20} MiB")
            if len(content) >= size:
                break
            if not piece:
                raise _strange("a piece of the result")
        if hashlib.sha256(content).digest() != digest:
            raise _strange("the result")
        return bytes(content)

    def _ask(self, step: str, payload: bytes, size: int = 0) -> bytes:
        """The aggregator's answer; its refusal as the error that it is."""
        name, payload = self._identity.name, os.urandom(NONCE) + payload
        query = Envelope("", "", step, name, AGGREGATOR, payload)
        found = self._exchange([query], room(payload), self._timeout, most=size)
        answer = found.get(AGGREGATOR)
        if answer is None:
            raise ProtocolError("no-aggregator", timeout=self._timeout)
        if answer.code:
            try:
                error = error_from(json.loads(answer.payload))
            except (ValueError, AttributeError, RecursionError):
                what = f"The aggregator refused: {channel.sentence(answer.code)}."
                error = ProtocolError.relayed(what, code="refused")
            raise error
        return answer.payload

    def _exchange(
        self, queries: Sequence[Envelope], size: int, timeout: float, *, most: int = 0
    ) -> dict[str, Reply]:
        """What each party answers until time is over."""
        with self._one:
            self._at.limit = max(channel.MOST_SURVEYED, most)
            batch = self.desk.open(Question(each, size) for each in queries)
            begun = reached = time.monotonic()
            try:
                while batch.open and (now := time.monotonic()) < begun + timeout:
                    try:
                        self.desk.again(batch)
                        self.desk.look(min(_GLANCE, begun + timeout - now))
                        reached = now
                    except CarrierError:
                        if now > reached + CONNECT:
                            raise
                        time.sleep(_GLANCE / 4)
            finally:
                self.desk.drop(batch)
            return batch.answers


class _LeadDesk(QuestionDesk):
    """A lead's mail; that of another process of this lead stays where it is."""

    def _not_put(self, question: Question, error: ProtocolError) -> None:
        question.again = 0.0
        # of a list that is newer than this one
        told = isinstance(error, CarrierError) and error.code == REVOKED
        if question.name == AGGREGATOR or not told:
            raise error
        self._at.mailbox.take(0.0)  # raises where it is this lead itself
        self._take(question, Reply(REVOKED))

    def _asked(self, found: Envelope, *, same_members: bool) -> bool:
        del same_members
        return self._answers_nothing(found)

    def _answers_nothing(self, found: Envelope) -> bool:
        return time.time() - found.sent >= _OLD


def _status(fields: Any) -> StudyStatus:
    try:
        error = fields["error"]
        return StudyStatus(
            run=str(fields["session"]),
            name=str(fields["study"]),
            study_hash=str(fields["study_hash"]),
            state=fields["state"],
            step=str(fields["step"]),
            answered=int(fields["answered"]),
            missing={str(name): str(why) for name, why in fields["missing"].items()},
            error=None if error is None else error_from(error),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange("how far a study is") from None


def _plain(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _strange("an answer") from None


def _another(what: str) -> ProtocolError:
    return ProtocolError("other-run", what=what)


def _strange(what: str) -> ProtocolError:
    return ProtocolError("malformed", sender="The aggregator", what=what)
