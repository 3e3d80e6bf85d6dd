"""Runs: fits, studies and questions to sites, each a process of its own with a folder.

A run outlives the console: what happens is a line each in a file that the process holds locked
while it lives, and that says how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, OutputError, short_name
from eigenveil.files import hold, replacing

State = Literal["running", "finished", "failed", "stopped", "lost"]
Kind = Literal["fit", "study", "ask", "derive"]
RESULT, ABOUT, EVENTS, ERRORS = "result", "run.json", "events.jsonl", "errors.txt"
MOST_RUNNING = 4
_NAME = re.compile(r"[0-9]{14}-[0-9a-f]{8}")
_MOST_BYTES = 16_000_000
_ENDS: tuple[State, ...] = ("finished", "failed", "stopped")


@dataclass(frozen=True)
class ConsoleRun:
    name: str  # Names its folder
    kind: Kind
    title: str
    who: str  # Who started it
    begun: float  # Seconds since 1970
    rows: Rows
    asked: Mapping[str, Any]  # Of the use case that it calls
    about: str = ""  # A study's hash, the run whose result it follows from, or empty
    # What it told, as of :mod:`eigenveil.console.running`, and whether its process lives
    events: list[dict[str, Any]] = field(default_factory=list)
    lives: bool = False

    @property
    def state(self) -> State:
        last = self.events[-1]["event"] if self.events else ""
        if last in _ENDS:
            return last
        return "running" if self.lives else "lost"

    @property
    def ended(self) -> float | None:
        """When it ended, where that is known."""
        return float(self.events[-1]["time"]) if self.state in _ENDS else None

    def told(self, event: str) -> list[dict[str, Any]]:
        """What it told of one kind, in order."""
        return [each for each in self.events if each["event"] == event]

    def last(self, event: str) -> dict[str, Any] | None:
        """What it told last of one kind."""
        return next(iter(reversed(self.told(event))), None)


class Runs:
    """The runs in a folder, the newest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._children: list[subprocess.Popen[bytes]] = []

    def start(
        self, kind: Kind, title: str, *, rows: Rows, asked: Mapping[str, Any], who: str,
        about: str = "",
    ) -> ConsoleRun:  # fmt: skip
        self._children = [each for each in self._children if each.poll() is None]
        if sum(run.state == "running" for run in self.all()) >= MOST_RUNNING:
            raise OutputError("too-many-runs", most=MOST_RUNNING)
        name = f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        run = ConsoleRun(name, kind, title, who, time.time(), rows, asked, about)
        place = self.folder / name
        place.mkdir(mode=0o700)
        fields = {key: each for key, each in asdict(run).items() if key not in ("events", "lives")}
        with replacing(place / ABOUT) as scratch:
            scratch.write_text(json.dumps(fields), encoding="utf-8")
        with (place / EVENTS).open("ab") as events, (place / ERRORS).open("wb") as errors:
            hold(events, wait=True)  # and the child, to whom the file goes, as long as it lives
            child = subprocess.Popen(
                [sys.executable, "-m", "eigenveil.console.running", str(place)],
                stdin=subprocess.DEVNULL,
                stdout=events,
                stderr=errors,
                cwd=place,
                start_new_session=True,
            )
        self._children.append(child)
        return self.named(name)

    def stop(self, run: ConsoleRun) -> None:
        """Interrupt a run, as Ctrl-C does."""
        for began in run.told("began") if run.state == "running" else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(began["process"], signal.SIGINT)

    def all(self) -> list[ConsoleRun]:
        names = sorted(f.name for f in self.folder.iterdir() if _NAME.fullmatch(f.name))
        found = (self._read(name) for name in reversed(names))
        return [run for run in found if run is not None]

    def named(self, name: str) -> ConsoleRun:
        run = self._read(name) if _NAME.fullmatch(name) else None
        if run is None:
            raise DataError("unknown-run", name=short_name(name))
        return run

    def _read(self, name: str) -> ConsoleRun | None:
        place = self.folder / name
        try:
            fields = read_about(place)
            with (place / EVENTS).open("rb") as told:
                lives = not hold(told)  # before its lines: it may end in between
            with (place / EVENTS).open("rb") as told:
                text = told.read(_MOST_BYTES).decode("utf-8", errors="replace")
            whole = text[: text.rfind("\n") + 1].splitlines()
            events = [json.loads(line) for line in whole if line.startswith("{")]
            return ConsoleRun(**fields, events=events, lives=lives)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def result(self, run: ConsoleRun) -> Path | None:
        """The folder of its result, once it is there."""
        place = self.folder / run.name / RESULT
        return place if place.is_dir() else None

    def forget(self, run: ConsoleRun) -> None:
        shutil.rmtree(self.folder / run.name, ignore_errors=True)


def read_about(place: Path) -> dict[str, Any]:
    """What a run's folder says that it is: the first fields of a :class:`ConsoleRun`."""
    fields = json.loads((place / ABOUT).read_text(encoding="utf-8"))
    rows = fields["rows"]
    return {**fields, "rows": Rows(**rows | {"data": tuple(rows["data"])})}
