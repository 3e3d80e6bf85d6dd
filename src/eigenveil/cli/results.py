"""The result folder: written whole or not at all."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from eigenveil import plots
from eigenveil.errors import OutputError
from eigenveil.estimators.fitted import FittedPCA
from eigenveil.moments.source import RowSource

MODEL, CERTIFICATE = "model.npz", "certificate.json"
_MOST_POINTS = 5000


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
    model: FittedPCA, rows: RowSource | None, folder: Path, *, figures: bool
) -> list[tuple[str, str]]:
    """Write everything; returns (file, what it is). Rows are drawn only where they are given."""
    model.save(folder / MODEL)
    model.certificate_.write(folder / CERTIFICATE)
    _write_components(model, folder / "components.csv")
    files = [
        (MODEL, "the model, for 'eigenveil transform' and FittedPCA.load"),
        (CERTIFICATE, "the recorded noise, for 'eigenveil certify'"),
        ("components.csv", "loadings by feature"),
    ]
    if figures:
        axes = plots.scree(model)
        plots.save_figure(axes, folder / "scree.png")
        plots.save_figure(axes, folder / "scree.svg")
        files.append(("scree.png, scree.svg", "explained variance against the noise"))
    if figures and rows is not None:
        plots.save_figure(
            plots.projection(model, _some_scores(model, rows)), folder / "projection.png"
        )
        files.append(("projection.png", "ROWS along two components: not private, keep it inside"))
    return files


def _write_components(model: FittedPCA, path: Path) -> None:
    names = getattr(model, "feature_names_in_", None)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        count = model.components_.shape[0]
        writer.writerow(["feature", "mean", *(f"PC{i + 1}" for i in range(count))])
        for index in range(model.components_.shape[1]):
            name = str(index) if names is None else str(names[index])
            values = [model.mean_[index], *model.components_[:, index]]
            writer.writerow([name, *(repr(float(value)) for value in values)])


def _some_scores(
    model: FittedPCA, rows: RowSource
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Scores of at most a few thousand rows from the first blocks."""
    parts, count = [], 0
    for block in rows.blocks():
        parts.append((block.values - model.mean_) @ model.components_[:2].T)
        count += block.values.shape[0]
        if count >= _MOST_POINTS:
            break
    return np.concatenate(parts)[:_MOST_POINTS]
