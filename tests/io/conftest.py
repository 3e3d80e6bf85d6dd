from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def matrix() -> NDArray[np.float64]:
    rng = np.random.default_rng(7)
    matrix = rng.normal(size=(40, 3)) * 10.0 ** rng.integers(-12, 12, size=(40, 3))
    matrix[rng.random(matrix.shape) < 0.3] = 0.0
    return matrix


@pytest.fixture
def text(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a text file and tells where."""

    def write(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Makes blocks of 16 rows, and parts of tables that are read at a time."""
    monkeypatch.setattr("eigenveil.io.open.block_rows", lambda features: 16)
    for module in ("open", "formats.tabular"):
        monkeypatch.setattr(f"eigenveil.io.{module}.part_rows", lambda features: 16)
    return 16
