"""Files of bare arrays: NumPy's two formats and scipy's sparse one."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.io.reading import RowFile, reading
from eigenveil.moments.sparse import SparseRows


@dataclass(frozen=True)
class _Header:
    """What the first bytes of a stored array tell."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and self.dtype.kind in "biuf"

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


class ArrayFile(RowFile):
    """Rows of an array without names."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path):
            header = self._header()
        if not header.is_matrix or header.shape[1] == 0:
            raise DataError(
                f"{path} holds {header}, not rows of numbers.",
                hint="Save a two-dimensional numeric array.",
                code="not-numeric",
            )
        self.features = header.shape[1]
        self._stored = header

    def single(self, columns: Sequence[str] | None) -> bool:  # noqa: ARG002
        """Whether single precision holds every entry exactly."""
        return np.can_cast(self._stored.dtype, np.float32, "safe")
