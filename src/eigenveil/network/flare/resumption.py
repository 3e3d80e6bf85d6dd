"""Studies that were cut off go on: in the aggregator's own process, from their journals.

FLARE starts a job's process once. Where that was killed, or the whole aggregator was stopped, its
study has a journal that nobody holds. The aggregator's own process takes it, with the same session,
so to the sites it is the same run.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.network.flare.job import is_job
from eigenveil.network.flare.job_process import SPARE
from eigenveil.network.journal import MOST_IDLE_STARTS, Journal
from eigenveil.network.kit import Kit, open_kit, write_json
from eigenveil.network.signed import KitIdentity
from eigenveil.network.status import (
    AGGREGATOR_STARTED,
    STATUS,
    error_fields,
    goes_on,
    read_progress,
)

# Seconds between two looks.
_LOOK = 1.0
_log = logging.getLogger(__name__)


class Resumption(FLComponent):  # type: ignore[misc]
    """Looks for journals that nobody holds, one after the other."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the start of the system."""
        if event_type != EventType.SYSTEM_START:
            return
        engine = fl_ctx.get_engine()
        kit = open_kit(engine.args.workspace, role="aggregator")
        AGGREGATOR_STARTED.set()
        threading.Thread(
            target=_look_after, args=(kit, engine), daemon=True, name="eigenveil resumption"
        ).start()


def _look_after(kit: Kit, engine: Any) -> None:
    while True:
        if not engine.run_processes:  # a process is loaded while nothing else is to be done
            SPARE.prepare()
        for path in sorted(kit.journals.glob("*")):
            try:
                if is_job(path.name):
                    _resume(kit, engine, path)
            except Exception:
                _log.exception("a study cannot go on")
                _give_up(kit, path.name)
                path.unlink(missing_ok=True)
        time.sleep(_LOOK)


def _resume(kit: Kit, engine: Any, path: Path) -> None:
    """Conduct the run of a journal to its end, unless another process does."""
    try:
        journal = Journal.resume(path)
    except EigenveilError as error:
        if error.code == "journal-in-use" or not path.exists():
            return
        raise
    if not goes_on(kit, path.name):  # it was killed between the end and the journal's removal
        journal.remove()
        return
    if journal.idle_starts > MOST_IDLE_STARTS:
        _give_up(kit, path.name)
        journal.remove()
        return
    from eigenveil.network.flare.controller import runner_of  # numerics: only where it is needed

    _log.info("job %s goes on", path.name)
    folder = kit.results / path.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys = KitIdentity(kit, lambda: True)
    runner_of(journal, engine.get_cell(), keys, folder).run()


def _give_up(kit: Kit, job: str) -> None:
    """Note that a study is lost: its sites, who ask, are told that it is over."""
    error = ProtocolError(
        "The study's process was killed, or crashed, again and again, and the study cannot go on.",
        hint="Run it again: sites charge only for what they answer. The aggregator's log may say "
        "more.",
        code="killed",
    )
    folder = kit.results / job
    found = read_progress(folder) or {}
    write_json(folder / STATUS, found | {"state": "lost", "error": error_fields(error)})
