"""The process of one run: ``python -m eigenveil.console.running FOLDER``.

What happens is written as a line of JSON each, of an event of the use case that is called; the last
line says how it ended. What libraries print goes elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from eigenveil.app.derive import derive as derive_model
from eigenveil.app.events import Advanced, FitEvent
from eigenveil.app.fit import Account, TableRequest, fit_table
from eigenveil.app.report import write_report
from eigenveil.app.results import CERTIFICATE, new_folder, write_result
from eigenveil.app.study import Ended, Finished, Moved, open_lead, run_study
from eigenveil.app.study_draft import ask_sites
from eigenveil.app.watch import TrackedSubspace, Unpublished, Watch, WatchEvent, watch
from eigenveil.console.desk.forms import read_values
from eigenveil.console.desk.table import columns_of
from eigenveil.console.desk.ways import Kind
from eigenveil.console.runs import RESULT, read_about
from eigenveil.console.runs import Kind as RunKind
from eigenveil.console.settings import Rows
from eigenveil.errors import EigenveilError, spent_of
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.io.stopping import Stop
from eigenveil.models.derived.options import options_of_kind

_EVERY = 0.5
_TIMEOUT, _WAIT_FOR_SITES = 600.0, 3600.0


class Events:
    """The lines that a run tells."""

    def __init__(self, handle: int) -> None:
        self._file = os.fdopen(handle, "w", encoding="utf-8", buffering=1)
        self._steps: dict[str, Advanced] = {}
        self._written: dict[str, float] = {}

    def tell(self, event: str, **fields: Any) -> None:
        line = {"event": event, "time": time.time(), **fields}
        self._file.write(json.dumps(line, default=str) + "\n")

    def of_fit(self, event: FitEvent) -> None:
        """Write an event of a fit; of a step that goes on, some a second, with all until then."""
        if not isinstance(event, Advanced):
            self.tell("told", **asdict(event))
            return
        before = self._steps.get(event.what)
        event = event if before is None else replace(event, count=before.count + event.count)
        self._steps[event.what] = event
        now = time.monotonic()
        if now - self._written.get(event.what, 0.0) > _EVERY:
            self._written[event.what] = now
            self.tell("advanced", **asdict(event))

    def rest(self) -> None:
        """Write where all steps of a fit ended."""
        for event in self._steps.values():
            self.tell("advanced", **asdict(event))


def fit(rows: Rows, asked: dict[str, Any], out: Path, events: Events) -> None:
    """A fit of a table or a stream, with what was typed in its form."""
    kind = Kind(asked["kind"])
    if kind.way.path == "stream":
        _stream(kind, rows, asked["given"], out, events)
        return
    values = kind.values(asked["given"])
    asked_for = TableRequest(
        rows.data,
        kind.task.name,
        Account(rows.ledger),
        out=out,
        values=values,
        columns=columns_of(rows),
    )
    fit_table(asked_for, events.of_fit)


def _stream(kind: Kind, rows: Rows, given: dict[str, str], out: Path, events: Events) -> None:
    """Rows block by block, each read once; a stop ends it in good order, with its result."""
    stop, read = Stop(), 0

    def tell(event: WatchEvent) -> None:
        nonlocal read
        if isinstance(event, TrackedSubspace | Unpublished):
            now = event.moment.rows if isinstance(event, Unpublished) else event.rows
            events.of_fit(Advanced("rows", now - read))
            read = now
        else:
            events.of_fit(event)

    asked = Watch(
        Path(rows.data[0]),
        {"epsilon": kind.epsilon, **kind.values(given)},
        account=Account(rows.ledger),
        columns=columns_of(rows),
        block=kind.own(given)["block_size"],
        out=out,
    )
    with stop.listening():
        problem = watch(asked, tell, stop).problem
    if problem is not None:
        raise problem


def study(rows: Rows, asked: dict[str, Any], out: Path, events: Events) -> None:
    """A study over its sites, until its result is there or the lead ends it."""
    stop = Stop()
    with new_folder(out) as folder, open_lead(Path(str(rows.party))) as session, stop.listening():
        for event in run_study(
            session,
            read_study(Path(asked["file"])),
            timeout=_TIMEOUT,
            patience=_WAIT_FOR_SITES,
            signatures=None,
            stop=stop,
        ):
            match event:
                case Moved():
                    events.tell("moved", **asdict(event))
                case Ended():
                    raise KeyboardInterrupt
                case Finished(model=model):
                    write_result(model, folder, figures=True)
                    write_toml(model.study_, folder / "study.toml")


def ask(rows: Rows, asked: dict[str, Any], out: Path, events: Events) -> None:
    """A question to the sites of a study: who has agreed, and what their schemas share."""
    del out
    found = ask_sites(Path(asked["file"]), Path(str(rows.party)))
    events.tell("answered", **found.as_json())


def derive(rows: Rows, asked: dict[str, Any], out: Path, events: Events) -> None:
    """What follows from a covariance's folder: no row is read."""
    del rows, events
    options = read_values(options_of_kind(asked["kind"]), asked["given"])
    derive_model(Path(asked["folder"]), asked["kind"], out, options)


USE_CASES: dict[RunKind, Callable[[Rows, dict[str, Any], Path, Events], None]] = {
    "fit": fit,
    "study": study,
    "ask": ask,
    "derive": derive,
}


def main(folder: Path, events: Events) -> None:
    """Do what the folder says, and how it ended."""
    events.tell("began", process=os.getpid())
    try:
        about = read_about(folder)
        result = folder / RESULT
        USE_CASES[about["kind"]](about["rows"], about["asked"], result, events)
        if (result / CERTIFICATE).exists():
            write_report(result)
        end, said = "finished", {}
    except BaseException as error:
        end, said = "failed", {"spent": str(spent_of(error) or "")}  # what was released before
        if isinstance(error, KeyboardInterrupt):
            end = "stopped"
        else:
            if not isinstance(error, EigenveilError):
                traceback.print_exc()
                error = EigenveilError("unexpected")
            said |= {"code": error.code, "message": error.message, "hint": error.hint}
    events.rest()
    events.tell(end, **said)


if __name__ == "__main__":
    pa.enable_signal_handlers(False)  # its own lose a stop that comes while a file is read
    # a console that a shell started in the background ignores the key, and so would its runs
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handle = os.dup(1)
    os.dup2(2, 1)
    main(Path(sys.argv[1]), Events(handle))
