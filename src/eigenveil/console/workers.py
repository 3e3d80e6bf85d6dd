"""The console's side of the process beside it: started when it is needed, ended when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, Protocol

import eigenveil.errors as errors
from eigenveil.console.settings import Rows
from eigenveil.errors import EigenveilError, OutputError

_LONGEST_LINE = 1 << 24
_IDLE = 900.0
_PATIENCE = 300.0


class Desk(Protocol):
    """Answers what pages ask of parties, ledgers and results."""

    async def ask(self, method: str, **arguments: Any) -> Any:
        """What a function returns."""

    async def close(self) -> None:
        """End what runs."""


class DeskProcess:
    """A process that answers; one request at a time, in their order."""

    def __init__(self, section: str, rows: Rows) -> None:
        self._section, self._rows = section, rows
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._number = 0
        self._ending: asyncio.TimerHandle | None = None

    async def ask(self, method: str, **arguments: Any) -> Any:
        """As of :class:`Desk`."""
        async with self._turn:
            process = await self._running()
            self._number += 1
            line = json.dumps({"number": self._number, "method": method, "arguments": arguments})
            try:
                found = await asyncio.wait_for(self._exchange(process, line), _PATIENCE)
            except BaseException as error:  # a lost place in the conversation ends it
                await self._end()
                if isinstance(error, (TimeoutError, OSError, ValueError, KeyError)):
                    raise OutputError(
                        "The process beside the console ended or did not answer.",
                        hint="Try again; the console's own output may say why.",
                        code="desk-lost",
                    ) from None
                raise
            self._rest()
        if (raised := found.get("error")) is not None:
            raise made_error(raised)
        return found["found"]

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _exchange(self, process: asyncio.subprocess.Process, line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
        found: dict[str, Any] = json.loads(await process.stdout.readline())
        if found["number"] != self._number:
            raise ValueError("an answer to something else")
        return found

    async def _running(self) -> asyncio.subprocess.Process:
        from eigenveil.console.desk.serve import first_line

        if self._ending is not None:
            self._ending.cancel()
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "eigenveil.console.desk.serve",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C is the console's
        )
        assert process.stdin is not None
        process.stdin.write(first_line(self._section, self._rows).encode() + b"\n")
        return process

    def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(_IDLE, lambda: loop.create_task(self.close()))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if self._ending is not None:
            self._ending.cancel()
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def made_error(fields: dict[str, str]) -> EigenveilError:
    """An error as it was raised in the other process."""
    kind = getattr(errors, fields["kind"], EigenveilError)
    if not (isinstance(kind, type) and issubclass(kind, EigenveilError)):
        kind = EigenveilError
    return kind(fields["message"], hint=fields["hint"], code=fields["code"])
