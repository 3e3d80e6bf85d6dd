"""Runs that a site or noise helper takes part in, each a file, and names of those that are over."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from eigenveil.errors import EigenveilError
from eigenveil.federation.ledger.ledger import SessionKey
from eigenveil.network.folder import PartyFolder, write_json
from eigenveil.network.orders import Order, is_session, kept_order
from eigenveil.network.sizes import Sizes

SILENT = 30 * 86400.0
"""Seconds, beside those of an answer, after which a run of which nothing comes is over."""
_MOST_OPEN = 4


class Role(Protocol):
    def handle(self, request: bytes) -> bytes: ...


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
