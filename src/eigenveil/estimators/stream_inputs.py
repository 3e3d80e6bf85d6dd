"""Blocks that a tracker of streams can use, or one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.estimators.tracking import Rule

FLOATS = (np.float64, np.float32)
_CHUNK = 4096


def check_finite(rows: NDArray[Any]) -> None:
    """Raise for rows with NaN, infinite or overflowing values; one pass without a copy."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(
            float(np.vdot(rows[start : start + _CHUNK], rows[start : start + _CHUNK]))
            for start in range(0, rows.shape[0], _CHUNK)
        )
        if np.isfinite(total):
            return
        bad = np.argwhere(~np.isfinite(rows))
        if bad.size:
            row, column = (int(place) for place in bad[0])
            raise DataError(
                f"Row {row}, column {column} of the block is {rows[row, column]} "
                "(NaN and infinity cannot be tracked).",
                hint="Leave out or fill in such rows; none of the block was taken.",
                code="not-finite",
            )
        if rows.dtype != np.float64:  # only the check in single precision overflowed
            return
    raise DataError(
        "The rows are so large that their squares overflow.",
        hint="Divide all rows by one number.",
        code="overflow",
    )


def check_alike(mine: Rule, theirs: Rule) -> None:
    """Raise where two states were not folded by the same centre and forgetting."""
    for name in ("center", "forgetting"):
        own, other = getattr(mine, name), getattr(theirs, name)
        if own != other:
            raise DataError(
                f"States with {name}={own!r} and {name}={other!r} cannot be merged.",
                hint=f"Track both with the same {name}.",
                code="merge-settings",
            )


def check_features(mine: Any, theirs: Any) -> None:
    """Raise where two estimators saw other features."""
    if mine.n_features_in_ != theirs.n_features_in_:
        raise DataError(
            f"States of {mine.n_features_in_} and {theirs.n_features_in_} features cannot be "
            "merged.",
            hint="Track the same features on both sides.",
            code="merge-features",
        )
    own, other = (getattr(side, "feature_names_in_", None) for side in (mine, theirs))
    if own is not None and other is not None and not np.array_equal(own, other):
        raise DataError(
            "States of features with different names, or in another order, cannot be merged.",
            hint=f"One has {list(own[:5])}, the other {list(other[:5])} first.",
            code="merge-features",
        )
