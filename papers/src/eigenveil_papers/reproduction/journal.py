"""What was measured so far, one line a task, so that a run goes on where it was stopped."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import eigenveil
import eigenveil_papers
from eigenveil.errors import OutputError, of_system
from eigenveil.files import hold
from eigenveil_papers.reproduction.experiment import Experiment, Point, RunSettings, RunTask

ENDING = ".journal.jsonl"
_ASIDE = ".journal-aside.jsonl"
# what of the package has no say in the numbers: commands, drawing, and this frame
_NO_NUMBERS = frozenset({"cli", "audit", "plots", "audits", "command.py", "entry.py"})
_FRAME = frozenset(
    f"{name}.py"
    for name in (
        *("authors", "effects", "figure", "given", "headlines", "journal"),
        *("page", "results", "rule", "rule_words", "runner", "tables"),
    )
)


class RunJournal:
    """Finished tasks by key, in a file of the output folder; for one run at a time.

    The first line says which code measured: lines of other code are not used.
    """

    def __init__(self, path: Path, header: dict[str, str]) -> None:
        self.path = path
        self.found: dict[str, list[Point]] = {}
        self.note = ""
        self._file: IO[bytes] | None = None
        self._header = header

    def __enter__(self) -> RunJournal:
        try:
            self._file = self.path.open("a+b")
            self._lock()
            whole = self._read()
            if not whole and self.note:  # the earlier one was moved away
                self._file.close()
                self._file = self.path.open("a+b")
                self._lock()
            self._file.truncate(whole)
            if not whole:
                self._write(self._header)
        except OutputError:  # is an OSError too
            raise
        except OSError as error:
            raise self._unwritten(error) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, key: str, points: Sequence[Point], *, seconds: float) -> None:
        try:
            self._write({"key": key, "seconds": round(seconds, 3), "points": points})
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> OutputError:
        return OutputError("cannot-write", path=self.path, reason=of_system(error))

    def _lock(self) -> None:
        """For the time that the file is open, where the system has such locks."""
        if self._file is not None and not hold(self._file):
            self._file.close()
            raise OutputError("in-use", path=self.path)

    def _write(self, values: dict[str, Any]) -> None:
        if self._file is None:
            raise ValueError("the journal is not open")
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()

    def _read(self) -> int:
        """Take over an earlier journal; how many of its bytes are whole lines to be kept."""
        if not self.path.is_file():
            return 0
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1  # what follows was being written when the run was killed
        lines = content[:whole].splitlines()
        if _parsed(lines[0] if lines else b"") != self._header:
            if whole:
                aside = self.path.with_name(self.path.name.removesuffix(ENDING) + _ASIDE)
                self.path.replace(aside)
                self.note = (
                    f"{self.path.name} was measured by other code or at another scale: it is now "
                    f"{aside.name}, and everything is measured anew."
                )
            return 0
        for line in lines[1:]:
            entry = _parsed(line)
            try:
                self.found[entry["key"]] = [Point(*point) for point in entry["points"]]
            except (KeyError, TypeError):
                self.note = f"{self.path.name}: a line cannot be read and is left out."
        return whole


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def header(
    experiment: Experiment, settings: RunSettings, tasks: Sequence[RunTask]
) -> dict[str, str]:
    """What must be the same for numbers of two runs to be put together."""
    return {
        "experiment": experiment.name,
        "scale": settings.scale,
        "eigenveil": importlib.metadata.version("eigenveil"),
        "code": _code_digest(tasks),
    }


def _code_digest(tasks: Sequence[RunTask]) -> str:
    """Of the sources that have a say in the numbers."""
    packages = [Path(package.__path__[0]).resolve() for package in (eigenveil, eigenveil_papers)]
    own = {Path(inspect.getfile(task.work)).resolve() for task in tasks}
    papers = _mentioned(own)
    hasher = hashlib.sha256()
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package).parts
            if parts[0] in _NO_NUMBERS or (parts[0] == "reproduction" and parts[-1] in _FRAME):
                continue
            # a paper's experiments are not measured anew because another paper's have changed
            if parts[0] == "reproduction" and _PAPER.match(parts[-1]) and path not in papers:
                continue
            hasher.update("/".join((package.name, *parts)).encode() + b"\0")
            hasher.update(path.read_bytes() + b"\0")
    for path in sorted(papers):
        if not any(path.is_relative_to(package) for package in packages):
            hasher.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hasher.hexdigest()[:32]


_PAPER = re.compile(r"paper\d{3}\w*")


def _mentioned(own: set[Path]) -> set[Path]:
    """These modules and the papers' modules beside them that they, or those in turn, name."""
    found, new = set[Path](), set(own)
    while new:
        found |= new
        names = {name for path in new for name in _PAPER.findall(path.read_text("utf-8"))}
        beside = {path.with_name(f"{name}.py") for path in new for name in names}
        new = {path for path in beside if path.is_file()} - found
    return found
