"""A site or noise helper: what it admits and answers.

A party answers about studies that its owner approved, from its own copy of them, in runs that a
lead signed, and only questions that the aggregator signed for it and that run.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from eigenveil.errors import DataError, DecisionRefused, EigenveilError, ProtocolError
from eigenveil.federated.running import Role
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.record import StudyStanding
from eigenveil.federation.approvals.studies import MOST_WAITING, ask_owner, keep
from eigenveil.federation.ledger.ledger import Ledger, SessionKey
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.models.driver import told_owner
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import RowSource
from eigenveil.network import channel
from eigenveil.network.channel import Reply, opened
from eigenveil.network.endpoint import Say
from eigenveil.network.envelopes import Envelope
from eigenveil.network.folder import PartyFolder, identity_of, write_json
from eigenveil.network.health import Activity
from eigenveil.network.orders import Order, is_session, kept_order, parties_of, read_order
from eigenveil.network.questions import JOIN
from eigenveil.network.sizes import Sizes
from eigenveil.network.survey import Telling
from eigenveil.noise.source import RandomSource

Approve = Literal["manual", "all"]
SILENT = 30 * 86400.0
"""Seconds, beside those of an answer, after which a run of which nothing comes is over."""
_MOST_OPEN = 4
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class AdmittedRun:
    """A run that a party answers, under the list of members of its beginning."""

    order: Order
    members: str
    role: Role | None = None

    @cached_property
    def sizes(self) -> Sizes:
        return Sizes(self.order.study)

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.order.study.hash, self.order.session)


class AdmittedRuns:
    """Those of one party; what was admitted is known after a restart."""

    def __init__(self, folder: PartyFolder) -> None:
        self._folder, self._guard = folder, threading.RLock()
        self._known: OrderedDict[str, AdmittedRun] = OrderedDict()
        self.largest = 0  # bytes of a question of these runs
        try:
            self.over = set(folder.ended_file.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            self.over = set()
        for file in folder.runs.glob("*.json"):
            self.find(file.stem)

    def find(self, session: str) -> AdmittedRun | None:
        """A run that was admitted, by this process or one before."""
        found = self._known.get(session)
        if found is not None or not is_session(session) or session in self.over:
            return found
        try:
            fields = json.loads(self._file(session).read_text(encoding="utf-8"))
            run = AdmittedRun(kept_order(fields["order"].encode()), str(fields["members"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EigenveilError):
            return None
        return self._know(run)

    def admit(self, order: Order, members: str) -> AdmittedRun:
        write_json(self._file(order.session), {"order": order.line.decode(), "members": members})
        return self._know(AdmittedRun(order, members))

    def role(self, run: AdmittedRun, opened: Callable[[AdmittedRun], Role]) -> Role:
        """What answers in a run; few are held open at a time."""
        role = run.role = run.role or opened(run)
        with self._guard:
            self._known.move_to_end(run.order.session)
            held = [each for each in self._known.values() if each.role is not None]
            for each in held[:-_MOST_OPEN]:
                each.role = None
        with suppress(OSError):  # when it was asked about last
            os.utime(self._file(run.order.session))
        return role

    def about(self) -> dict[str, str]:
        """Study and name of the run that was asked about last, for a log."""
        for session, run in reversed(self._known.items()):
            return {"study": run.key.study, "run": session}
        return {}

    def silent(self) -> Iterator[str]:
        """Runs of which nothing has come for so long that nothing will."""
        now = time.time()
        for session, run in list(self._known.items()):
            with suppress(OSError):
                heard = self._file(session).stat().st_mtime
                if heard + run.order.timeout + SILENT < now:
                    yield session

    def end(self, session: str) -> None:
        """Nothing of a run is answered any more."""
        with self._folder.ended_file.open("a", encoding="ascii") as file:
            file.write(f"{session}\n")
        self._file(session).unlink(missing_ok=True)

    def forget(self, session: str) -> None:
        with self._guard:
            self._known.pop(session, None)

    def _know(self, run: AdmittedRun) -> AdmittedRun:
        with self._guard:
            self._known[run.order.session] = run
            self.largest = max(self.largest, run.sizes.largest())
        return run

    def _file(self, session: str) -> Path:
        return self._folder.runs / f"{session}.json"


class StudyParty(ABC):
    """A party of studies, whatever carries its messages.

    With ``approve="all"`` a study is approved as it comes: of a site, a decision of its owner that
    is recorded in the ledger. ``say`` is called with sentences for the owner.
    """

    def __init__(
        self,
        folder: PartyFolder,
        *,
        approve: Approve = "manual",
        say: Say = print,
        telling: Telling | None = None,
    ) -> None:
        self.folder, self.approve, self.say = folder, approve, say
        self.telling = telling or Telling()
        self.name = folder.name
        self.identity, self.members = identity_of(folder), folder.known
        self.activity, self.runs = Activity(), AdmittedRuns(folder)

    def propose(self, study: Study, *, most: int = MOST_WAITING) -> str:
        """Why a study cannot be run here yet, a code; the owner is asked if need be."""
        standing = self.standing(study.hash)
        if standing.approved:
            return ""
        if standing.state == "refused":
            return channel.OWNER_REFUSED
        if standing.waits and ask_owner(self.folder, study, most=most):
            self.say(
                f"Study {study.name!r} (hash {study.hash[:12]}) waits for approval: "
                f"eigenveil site approve --party {self.folder.folder} --list"
            )
        return channel.NOT_APPROVED

    def answer(self, query: Envelope) -> Reply:
        try:
            return self._answered(query)
        except _Coded as refused:
            return refused.answer
        except DecisionRefused as error:  # these are not the rows that were approved
            self.say(str(error))
            return Reply(channel.REFUSED)
        except EigenveilError as error:
            self.say(str(error))
            return Reply(channel.DATA if isinstance(error, DataError) else channel.TROUBLE)
        except Exception:
            _log.exception("a message could not be answered")
            self.say(f"A message could not be answered: see {self.folder.folder / 'log.txt'}.")
            return Reply(channel.TROUBLE)

    def _answered(self, query: Envelope) -> Reply:
        payload, run = query.payload, self.runs.find(query.session)
        if query.step == JOIN:
            run, payload = self._admitted(query)
        if run is None or run.key.study != query.study:
            raise _Coded(channel.NOT_ADMITTED)
        if not self._may_run(run):
            raise _Coded(channel.NOT_APPROVED if query.step == JOIN else channel.REFUSED)
        try:
            inside = decode(payload, sender=AGGREGATOR, limit=len(payload))
        except ProtocolError:
            pass  # the role states what is wrong with it
        else:
            if inside.session != query.session:
                raise _Coded(channel.OTHER_SESSION)
            if inside.step != query.step:
                raise _Coded(channel.BAD_REQUEST)
        role = self.runs.role(run, self._open)
        answer = role.handle(payload)
        self._after(role)
        return Reply("", answer)

    def _admitted(self, query: Envelope) -> tuple[AdmittedRun, bytes]:
        """The run of a first question, if a lead signed it and the owner agrees; its message."""
        line, members, message = opened(query.payload)
        known = self.runs.find(query.session)
        if known is not None and known.order.line == line and known.members == members:
            return known, message
        if known is not None or query.session in self.runs.over:
            self.say("A run that is over, or another one of its name, was brought: it is refused.")
            raise _Coded(channel.REFUSED)
        try:
            self.members.at(members)  # the newest, or one before that this party has seen
        except EigenveilError:
            raise _Coded(channel.OTHER_MEMBERS) from None
        try:
            order = read_order(line, self.identity)
        except ProtocolError as error:
            self.say(str(error))
            raise _Coded(channel.REFUSED) from None
        study = order.study
        if (study.hash, order.session) != (query.study, query.session):
            raise _Coded(channel.OTHER_SESSION)
        if self.name not in parties_of(study):
            self.say(f"Study {study.name!r} was brought, of which {self.name} is no part.")
            raise _Coded(channel.REFUSED)
        try:
            self.members.check_begins(members, (*parties_of(study), AGGREGATOR))
        except ProtocolError as error:
            self.say(f"Study {study.name!r} was refused: {error}")
            raise _Coded(channel.REFUSED) from None
        if code := self.propose(study):
            raise _Coded(code)
        keep(self.folder, study)  # of a study that is approved as it comes, there is no copy yet
        run = self.runs.admit(order, members)
        self.activity.runs += 1
        self.say(f"A run of study {study.name!r} (hash {study.hash[:12]}) begins.")
        return run, message

    def end(self, session: str) -> None:
        """A run is over: nothing of it is answered any more."""
        run = self.runs.find(session)
        self.runs.over.add(session)
        if run is None:
            return
        try:
            self._ended(run)
            self.runs.end(session)
        except EigenveilError as error:
            self.say(str(error))
        except OSError as error:  # no room, for example: a site's ledger has it all the same
            self.say(f"{self.folder.ended_file} cannot be written: {error.strerror or error}.")
        self.runs.forget(session)
        self.say(f"The run of study {run.order.study.name!r} is over for {self.name}.")

    @abstractmethod
    def standing(self, study: str) -> StudyStanding:
        """Where a study stands, by its hash."""

    @abstractmethod
    def _may_run(self, run: AdmittedRun) -> bool: ...

    @abstractmethod
    def _open(self, run: AdmittedRun) -> Role: ...

    @abstractmethod
    def _ended(self, run: AdmittedRun) -> None: ...

    def _after(self, role: Any) -> None:
        """What is to be done after an answer: of a helper, nothing."""
        del role


class _Coded(Exception):
    def __init__(self, code: str) -> None:
        self.answer = Reply(code)


class SiteParty(StudyParty):
    """A site: its rows, ledger and approvals; ``open_rows`` gives the columns of a study."""

    def __init__(
        self,
        folder: PartyFolder,
        open_rows: Callable[[Study], RowSource],
        ledger: Ledger,
        *,
        data_set: str = "default",
        source: RandomSource | None = None,
        approve: Approve = "manual",
        say: Say = print,
        telling: Telling | None = None,
    ) -> None:
        super().__init__(folder, approve=approve, say=say, telling=telling)
        self._open_rows, self._ledger, self._data_set = open_rows, ledger, data_set
        self._source = source
        self._decisions = Decisions(folder, ledger, data_set)
        self._decisions.begin()
        if approve == "all":
            self._decisions.allow_every_study()
        else:
            self._decisions.end_every_study()
        self._reported: tuple[EigenveilError | None, InvalidRows | None] = None, None

    def standing(self, study: str) -> StudyStanding:
        return self._decisions.standing(study)

    def _may_run(self, run: AdmittedRun) -> bool:
        """Asked of the ledger before every answer, so a revocation counts from the next one on."""
        return self._decisions.may_run(run.key)

    def _open(self, run: AdmittedRun) -> Site:
        study = run.order.study
        rows = self._open_rows(study)
        self._decisions.check_rows(study.hash, rows.paths)
        self._ledger.note_members(*self.members.mark(), self.members.not_before)
        return Site(
            name=self.name,
            terms=settle(study),
            rows=rows,
            ledger=self._ledger,
            data_set=self._data_set,
            source=self._source,
            identity=identity_of(self.folder, run.members),
        )

    def _after(self, role: Site) -> None:
        error, invalid = self._reported
        if role.last_error is not None and role.last_error is not error:
            self.say(f"A message was refused: {role.last_error}")
        if role.invalid is not None and role.invalid != invalid:
            said = told_owner(role.invalid, role.terms.plan)
            self.say(f"Study {role.study.name!r}: {said} Only you see this.")
        self._reported = role.last_error, role.invalid

    def _ended(self, run: AdmittedRun) -> None:
        """Free what the session still reserves: nobody can go on with it."""
        try:
            if any(each.key == run.key and each.is_open for each in self._ledger.sessions()):
                self._ledger.end(run.key, "left by the aggregator")
        except ProtocolError as error:
            if error.code != "unknown-session":  # it never began here
                raise


class HelperParty(StudyParty):
    """The trusted noise helper: it has neither rows nor a ledger, and draws masks for any study."""

    def __init__(self, folder: PartyFolder, *, approve: Approve = "all", say: Say = print) -> None:
        super().__init__(folder, approve=approve, say=say)

    def standing(self, study: str) -> StudyStanding:
        """As the helper was started."""
        del study
        return StudyStanding("approved" if self.approve == "all" else "waiting")

    def _may_run(self, run: AdmittedRun) -> bool:
        return self.standing(run.key.study).approved

    def _open(self, run: AdmittedRun) -> Helper:
        identity = identity_of(self.folder, run.members)
        return Helper(settle(run.order.study), identity=identity, memory=self._memory(run))

    def _ended(self, run: AdmittedRun) -> None:
        self._memory(run).unlink(missing_ok=True)

    def _memory(self, run: AdmittedRun) -> Path:
        return self.folder.state / f"masks-{run.order.session}.json"
