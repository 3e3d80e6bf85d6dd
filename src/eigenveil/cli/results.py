"""The result folder: written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eigenveil import plots
from eigenveil.cli.tasks import family_of
from eigenveil.errors import OutputError
from eigenveil.estimators.stored import StoredModel

MODEL, CERTIFICATE = "model.npz", "certificate.json"
# A scratch folder, and the file in it that says whose it is, locked while its process lives.
_SCRATCH, _OWNER = ".eigenveil-", "being-written.json"


def check_place(path: Path, *, overwrite: bool) -> bool:
    """Refuse a place where nothing can be written, before anything is read or spent.

    Returns
    -------
    bool
        Whether something is there already, which may be replaced.

    Raises
    ------
    OutputError
        When it exists and may not be replaced, its folder is missing, or its name cannot be one.
    """
    try:
        there, folder = path.exists(), path.absolute().parent
        housed = folder.is_dir()
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.",
            hint="Choose another name.",
            code="cannot-write",
        ) from None
    if there and not overwrite:
        raise OutputError(
            f"{path} exists.",
            hint="Choose another --out, or say --overwrite.",
            code="output-exists",
        )
    if not housed:
        raise OutputError(
            f"{folder} is not a folder.",
            hint="Make it first, or choose another.",
            code="no-such-folder",
        )
    return there


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that exists, before anything is read or spent; a result may be replaced."""
    if check_place(folder, overwrite=overwrite) and not (folder / CERTIFICATE).exists():
        raise OutputError(
            f"{folder} exists and is not a result of eigenveil; it is not overwritten.",
            hint="Choose another --out.",
            code="output-exists",
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder beside ``folder`` that becomes it when all went well.

    Those that killed processes have left there are removed first.
    """
    target = folder.absolute()
    try:
        sweep(target.parent)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
        mark = _mark(scratch)
    except OSError as error:
        raise OutputError(
            f"{target.parent} cannot be written: {error.strerror}.", hint="Choose another --out."
        ) from None
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        (scratch / _OWNER).unlink()
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        mark.close()


def _mark(scratch: Path) -> IO[str]:
    """Say in a scratch folder whose it is, and hold the lock that ends with the process."""
    mark = (scratch / _OWNER).open("w", encoding="utf-8")
    fcntl.flock(mark, fcntl.LOCK_EX)
    json.dump({"host": platform.node(), "process": os.getpid()}, mark)
    mark.flush()
    return mark


def sweep(folder: Path) -> None:
    """Remove the scratch folders in ``folder`` whose processes were killed.

    Only those with this package's mark, of this host, whose lock nobody holds.  They hold what was
    released at most, never rows.
    """
    for scratch in folder.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if scratch.is_symlink():
                continue
            with (scratch / _OWNER).open("r+", encoding="utf-8") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if json.load(mark)["host"] == platform.node():
                    shutil.rmtree(scratch)


def write_result(model: StoredModel, folder: Path, *, figures: bool) -> list[tuple[str, str]]:
    """Write everything that is released; returns (file, what it is). Nothing of it shows a row."""
    family = family_of(model)
    model.save(folder / MODEL)
    model.certificate_.write(folder / CERTIFICATE)
    files = [
        (MODEL, f"the model, for 'eigenveil transform' and {type(model).__name__}.load"),
        (CERTIFICATE, "the recorded noise, for 'eigenveil certify'"),
        *family.write(model, folder),
    ]
    for drawing in family.drawings(model) if figures else ():
        for name in drawing.files:
            plots.save_figure(drawing.axes, folder / name)
        files.append((", ".join(drawing.files), drawing.what))
    return files
