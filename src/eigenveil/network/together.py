"""Files of a kit that change together: all of them or none, wherever the process ends.

A key and its certificate are two files, and neither is of use with the other's predecessor. New
texts are written into a scratch folder, and are on the disk before that is renamed to ``next``:
from then on they hold. Whoever opens the kit next finishes what was begun.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eigenveil.errors import OutputError
from eigenveil.files import sync_folder

_NEXT, _SCRATCH = "next", ".next-"


def write_together(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Give files of a kit new contents, readable by its owner alone.

    Parameters
    ----------
    folder : Path
        The kit.
    files : mapping of Path to bytes
        Absolute places within the kit; their folders exist.

    Raises
    ------
    OutputError
        ``cannot-write``. All files are then as they were, or the kit's next opening finishes.
    """
    try:
        with turn(folder):
            _finish(folder)
            for left in folder.glob(f"{_SCRATCH}*"):  # of a process that was ended
                shutil.rmtree(left)
            scratch = Path(tempfile.mkdtemp(dir=folder, prefix=_SCRATCH))
            for place, content in files.items():
                target = scratch / place.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                sync_folder(target.parent)
            sync_folder(scratch)
            scratch.rename(folder / _NEXT)
            sync_folder(folder)
            _finish(folder)
    except OSError as problem:
        raise cannot_write(folder, problem) from None


def finish_writing(folder: Path) -> None:
    """Finish what :func:`write_together` began in a process that was ended.

    Raises
    ------
    OutputError
        ``cannot-write``.
    """
    if not (folder / _NEXT).is_dir():
        return
    try:
        with turn(folder):
            _finish(folder)
    except OSError as problem:
        raise cannot_write(folder, problem) from None


def _finish(folder: Path) -> None:
    """Put every file that is left in its place: each step can be the last, and is not repeated."""
    begun = folder / _NEXT
    if not begun.is_dir():
        return
    for file in sorted(each for each in begun.rglob("*") if each.is_file()):
        target = folder / file.relative_to(begun)
        file.replace(target)
        sync_folder(target.parent)
    shutil.rmtree(begun)


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold a folder's turn to write: one process at a time, and no longer than that lives."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def cannot_write(folder: Path, problem: OSError) -> OutputError:
    """What is raised where a kit cannot be written."""
    return OutputError(
        f"{folder} cannot be written: {problem.strerror or problem}.",
        hint="Check who may write the kit, and that the disk is not full; then do it again.",
        code="cannot-write",
    )
