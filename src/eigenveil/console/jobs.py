"""Runs of the ``eigenveil`` command that the console starts: each a process with a folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from eigenveil.cli.app import own_call
from eigenveil.errors import DataError, OutputError, printable
from eigenveil.files import replacing

State = Literal["running", "finished", "failed", "lost"]
RESULT = "result"
MOST_RUNNING = 4
# Kind of a run that asks sites before a study: it has answers, and no result.
ASKING = "ask"
_FILE, _SAID, _ERRORS = "job.json", "said.txt", "errors.txt"
_NAME = re.compile(r"[0-9]{14}-[0-9a-f]{8}")
_SHOWN = 40


@dataclass(frozen=True)
class Job:
    """One run."""

    name: str  # Names its folder
    kind: str  # What it does
    title: str
    words: tuple[str, ...]  # Of the command
    who: str  # The account that started it
    begun: float  # Seconds since 1970; `ended` is 0 while it runs
    ended: float = 0.0
    status: int | None = None  # Its exit status
    about: str = ""  # A study's hash, or empty
    process: int = 0  # Its number while it runs

    @property
    def state(self) -> State:
        """How it stands."""
        if self.status is not None:
            return "finished" if self.status == 0 else "failed"
        return "running" if self.process and _lives(self.process) else "lost"


class Jobs:
    """The runs in a folder, the newest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, asyncio.Task[None]] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def start(
        self, kind: str, title: str, words: Sequence[str], *, who: str, about: str = ""
    ) -> Job:
        """Start the command with these words; ``{result}`` in one is the folder of its result."""
        if len(self._running) >= MOST_RUNNING:
            raise OutputError(
                f"{MOST_RUNNING} runs go on already.",
                hint="Wait until one has ended.",
                code="too-many-runs",
            )
        name = f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        place = self.folder / name
        place.mkdir(mode=0o700)
        said = tuple(word.replace("{result}", str(place / RESULT)) for word in words)
        job = Job(name, kind, title, said, who, time.time(), about=about)
        with (place / _SAID).open("wb") as out, (place / _ERRORS).open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *own_call(*said),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                cwd=place,
                env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        job = replace(job, process=process.pid)
        self._write(job)
        self._running[name] = asyncio.create_task(self._wait(job, process))
        return job

    async def _wait(self, job: Job, process: asyncio.subprocess.Process) -> None:
        try:
            status = await process.wait()
            self._write(replace(job, status=status, ended=time.time(), process=0))
        finally:
            self._running.pop(job.name, None)

    def _write(self, job: Job) -> None:
        with replacing(self.folder / job.name / _FILE) as scratch:
            scratch.write_text(json.dumps(asdict(job)), encoding="utf-8")

    def stop(self, job: Job) -> None:
        """Interrupt a run, as Ctrl-C does."""
        if job.state == "running":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(job.process, signal.SIGINT)

    def all(self) -> list[Job]:
        """Every run, the newest first."""
        names = sorted(f.name for f in self.folder.iterdir() if _NAME.fullmatch(f.name))
        found = (self._read(name) for name in reversed(names))
        return [job for job in found if job is not None]

    def named(self, name: str) -> Job:
        """A run."""
        job = self._read(name) if _NAME.fullmatch(name) else None
        if job is None:
            raise DataError(
                f"There is no run {printable(name, most=40)}.",
                hint="The list of runs shows them all.",
                code="unknown-run",
            )
        return job

    def _read(self, name: str) -> Job | None:
        try:
            fields = json.loads((self.folder / name / _FILE).read_text(encoding="utf-8"))
            job = Job(**(fields | {"words": tuple(fields["words"])}))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if job.state == "lost" and (self.folder / name / RESULT).is_dir():
            return replace(job, status=0)  # it ended well while no console was there
        return job

    def result(self, job: Job) -> Path | None:
        """The folder of its result, once it is there."""
        place = self.folder / job.name / RESULT
        return place if place.is_dir() else None

    def lines(self, job: Job) -> list[str]:
        """What it reported last, a line an event."""
        try:
            data = (self.folder / job.name / _ERRORS).read_bytes()[-20_000:]
        except OSError:
            return []
        text = data.decode("utf-8", errors="replace").replace("\r", "\n")
        return [printable(line, most=300) for line in text.splitlines() if line.strip()][-_SHOWN:]

    def said(self, job: Job) -> str:
        """What it printed, of 16 MB at most."""
        try:
            with (self.folder / job.name / _SAID).open("rb") as file:
                return file.read(16_000_000).decode("utf-8", errors="replace")
        except OSError:
            return ""

    async def close(self) -> None:
        """Leave what runs: a fit ends by itself, and its folder says so at the next start."""
        for task in list(self._running.values()):
            task.cancel()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(process)


def _is_zombie(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] == ["Z"]
