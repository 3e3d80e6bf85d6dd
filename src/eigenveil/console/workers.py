"""Processes beside the console, which read parties' folders, ledgers, studies and results.

The console's own process loads neither NumPy nor scikit-learn: what it asks is answered by a desk
in another process, in plain values.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pkgutil
import signal
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

from eigenveil.console.settings import Rows
from eigenveil.errors import EigenveilError, OutputError, of_system

_DESKS = {
    "site": "eigenveil.console.desk.site:SiteDesk",
    "lead": "eigenveil.console.desk.lead:LeadDesk",
    "table": "eigenveil.console.desk.table:TableDesk",
}
_IDLE = 900.0
_PATIENCE = 300.0


class DeskProcess:
    """A process that answers what pages ask of parties, ledgers and results.

    One question after the other; it ends when nobody asks.
    """

    def __init__(self, section: str, rows: Rows) -> None:
        self._section, self._rows = section, rows
        self._pool: ProcessPoolExecutor | None = None
        self._process: asyncio.Future[int] | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def ask(self, method: str, *, of: Rows | None = None, **arguments: Any) -> Any:
        """What a desk's method returns, of its rows or of others.

        A question that is given up keeps nobody from the next.
        """
        loop = asyncio.get_running_loop()
        if self._ending is not None:
            self._ending.cancel()
        pool = self._running()
        try:
            text = await asyncio.wait_for(
                loop.run_in_executor(
                    pool, answer, self._section, of or self._rows, method, arguments
                ),
                _PATIENCE,
            )
        except (TimeoutError, BrokenProcessPool):
            if pool is self._pool:
                await self.close()
            raise OutputError("desk-lost") from None
        self._ending = loop.call_later(_IDLE, lambda: loop.create_task(self.close()))
        return json.loads(text)

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=get_context("spawn"),
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is the console's
            )
            loop = asyncio.get_running_loop()
            self._process = loop.run_in_executor(self._pool, os.getpid)
        return self._pool

    async def close(self) -> None:
        """End the process, whatever it does."""
        pool, process = self._pool, self._process
        self._pool = self._process = None
        if self._ending is not None:
            self._ending.cancel()
        if pool is None or process is None:
            return
        if process.done() and not process.cancelled() and process.exception() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.result(), signal.SIGKILL)
        pool.shutdown(wait=False, cancel_futures=True)


@lru_cache(64)
def _desk(section: str, rows: Rows) -> Any:
    return pkgutil.resolve_name(_DESKS[section])(rows)


def answer(section: str, rows: Rows, method: str, arguments: dict[str, Any]) -> str:
    """What a desk answers, as JSON; its errors are of the package's own families."""
    try:
        found = getattr(_desk(section, rows), method)(**arguments)
        return json.dumps(found, allow_nan=False)
    except EigenveilError as error:
        # of a family, so that nothing else is loaded where it goes
        own = EigenveilError.__module__
        kind: Any = next(each for each in type(error).__mro__ if each.__module__ == own)
        raise kind.relayed(error.message, hint=error.hint, code=error.code) from None
    except OSError as error:
        what = f"{error.filename or 'A file'}: {of_system(error)}."
        raise OutputError.relayed(what, code="cannot-read") from None
    except Exception:
        traceback.print_exc(file=sys.stderr)
        raise EigenveilError("unexpected") from None
