"""The result folder: written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eigenveil import plots
from eigenveil.cli.tasks import family_of
from eigenveil.errors import OutputError
from eigenveil.estimators.stored import StoredModel
from eigenveil.moments.source import RowSource

MODEL, CERTIFICATE = "model.npz", "certificate.json"


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that exists, before anything is read or spent."""
    if folder.exists() and not overwrite:
        raise OutputError(
            f"{folder} exists.",
            hint="Choose another --out, or say --overwrite.",
            code="output-exists",
        )
    if folder.exists() and not (folder / CERTIFICATE).exists():
        raise OutputError(
            f"{folder} exists and is not a result of eigenveil; it is not overwritten.",
            hint="Choose another --out.",
            code="output-exists",
        )
    if not folder.absolute().parent.is_dir():
        raise OutputError(
            f"{folder.absolute().parent} is not a folder.", hint="Make it first, or choose another."
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder beside ``folder`` that becomes it when all went well."""
    target = folder.absolute()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise OutputError(
            f"{target.parent} cannot be written: {error.strerror}.", hint="Choose another --out."
        ) from None
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_result(
    model: StoredModel, rows: RowSource | None, folder: Path, *, figures: bool
) -> list[tuple[str, str]]:
    """Write everything; returns (file, what it is). Rows are drawn only where they are given."""
    family = family_of(model)
    model.save(folder / MODEL)
    model.certificate_.write(folder / CERTIFICATE)
    files = [
        (MODEL, f"the model, for 'eigenveil transform' and {type(model).__name__}.load"),
        (CERTIFICATE, "the recorded noise, for 'eigenveil certify'"),
        *family.write(model, folder),
    ]
    for drawing in family.drawings(model, rows) if figures else ():
        for name in drawing.files:
            plots.save_figure(drawing.axes, folder / name)
        files.append((", ".join(drawing.files), drawing.what))
    return files
