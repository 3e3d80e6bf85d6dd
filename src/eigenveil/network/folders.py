"""Folders that are made whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from eigenveil.errors import OutputError
from eigenveil.network.kit import FILE, lock, read_kit_file


@contextmanager
def new_folder(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A scratch folder beside ``out`` that takes its place when the block ends well.

    Only its owner may enter it.

    Raises
    ------
    OutputError
        When ``out`` is there and is not to be replaced, holds other things than kits, or is in
        use, or when nothing can be written; ``out`` is then as it was.
    """
    # absolute, but not resolved: a link is refused below
    out = out.absolute()
    _check_free(out, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    except OSError as problem:
        raise _cannot_write(out, problem) from None
    try:
        yield scratch
        with ExitStack() as held:
            for kit in _kits(out):
                held.enter_context(lock(read_kit_file(kit)))
            _put(scratch, out)
    except OSError as problem:
        if isinstance(problem, OutputError):
            raise
        raise _cannot_write(out, problem) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _put(scratch: Path, out: Path) -> None:
    """Rename into place; what was there is thrown away last."""
    if not out.exists():
        scratch.rename(out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-old-"))
    out.rename(old / "kits")
    try:
        scratch.rename(out)
    except OSError:
        (old / "kits").rename(out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _check_free(out: Path, *, overwrite: bool) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise OutputError(
            f"{out} exists and is not a folder.", hint="Choose another name.", code="output-exists"
        )
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not overwrite:
        raise OutputError(
            f"{out} exists.",
            hint="Choose another folder, or use --overwrite: the keys in it are then lost.",
            code="output-exists",
        )
    if (out / FILE).is_file():
        return
    for inside in out.iterdir():
        if not (inside / FILE).is_file():
            raise OutputError(
                f"{out} holds more than kits: {inside.name}.",
                hint="Only kits are replaced; choose another folder.",
                code="not-kits",
            )


def _kits(out: Path) -> list[Path]:
    if (out / FILE).is_file():
        return [out]
    return sorted(file.parent for file in out.glob(f"*/{FILE}")) if out.is_dir() else []


def _cannot_write(out: Path, problem: OSError) -> OutputError:
    return OutputError(
        f"{out} cannot be written: {problem.strerror or problem}.",
        hint="Choose a folder that can be written, on a disk that is not full.",
        code="cannot-write",
    )
