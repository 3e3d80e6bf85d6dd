"""Scores and variances as plink2's ``--pca`` writes them: ``.eigenvec`` and ``.eigenval``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.files import replacing
from eigenveil.io.formats.genotypes import NO_FAMILY
from eigenveil.io.write import Columns

LABELS = ("FID", "IID")
"""What stands before the scores; the family only where samples have one."""
_ENDING = ".eigenvec"


def write_eigenvec(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    """A line a sample: ``#FID  IID  PC1  ...``, with tabs between and six digits."""
    begun = False
    for columns in blocks:
        held = dict(columns)
        if "IID" not in held:
            raise DataError("no-samples")
        labels = [name for name in LABELS if name in held]
        others = [name for name, _ in columns if name not in LABELS]
        if not begun:
            file.write(("#" + "\t".join([*labels, *others]) + "\n").encode())
            begun = True
        texts = [[_label(value) for value in held[name]] for name in labels]
        numbers = [[f"{value:.6g}" for value in held[name]] for name in others]
        for cells in zip(*texts, *numbers, strict=True):
            file.write(("\t".join(cells) + "\n").encode())


def _label(value: object) -> str:
    return NO_FAMILY if value is None else str(value)


@contextmanager
def eigenval_beside(path: Path, model: Any) -> Iterator[None]:
    """Beside a file ``NAME.eigenvec`` written in the block, ``NAME.eigenval``; of others nothing.

    A line for each released variance, times rows over columns: of rows that are standardised, the
    eigenvalues of the samples' relationship matrix, as plink2 has them. It appears if the block
    ends well.
    """
    if not writes_eigenval(path) or not hasattr(model, "explained_variance_"):
        yield
        return
    factor = max(float(model.n_samples_), 0.0) / model.n_features_in_
    with replacing(eigenval_of(path)) as scratch:
        yield
        scratch.write_text(_lines(np.asarray(model.explained_variance_) * factor), encoding="utf-8")


def writes_eigenval(path: Path) -> bool:
    """Whether variances are written beside a file of this name."""
    return path.suffix.lower() == _ENDING


def eigenval_of(path: Path) -> Path:
    """Where the variances are, beside the scores."""
    return path.with_suffix(".eigenval")


def _lines(values: ArrayLike) -> str:
    return "".join(f"{value:.6g}\n" for value in np.asarray(values))
