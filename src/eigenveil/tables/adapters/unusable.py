"""Why rows that were given in Python cannot be used: the column, the row, and never an entry.

NumPy and scikit-learn say it too, but they quote rows, and name neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, first_line
from eigenveil.origins import Origin

if TYPE_CHECKING:
    from eigenveil.tables.adapters.base import Adapter

_HERE = Origin()
NUMBERS_ONLY = (
    "Leave the column out, or make numbers of it; a schema reads categories and dates "
    "(eigenveil.io.read_frame)."
)


class NotNumbersError(DataError, TypeError):
    """Entries are no numbers; a TypeError too, as scikit-learn has it."""


def refusal(table: Adapter, error: Exception) -> DataError:
    """The error that takes the place of one of NumPy's or scikit-learn's."""
    return _no_matrix(table) or _no_numbers(table) or _of_names(table) or _as_said(table, error)


def dates_refused(table: Adapter) -> None:
    """Refuse dates, and what else a column of them is."""
    if (error := _no_numbers(table)) is not None:
        raise error


def _no_matrix(table: Adapter) -> DataError | None:
    """Not two dimensions."""
    shape, given = table.shape, table.given
    if len(shape) == 2:
        return None
    hint = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row."
    what = f"an array of shape {shape}"
    if not shape:
        what = f"{type(given).__name__!r}"
        hint = "Give an array, a frame or a sparse matrix of rows."
    elif len(shape) == 1 and isinstance(given, list | tuple):
        lengths = [np.size(row) for row in given]
        other = next((at for at, length in enumerate(lengths) if length != lengths[0]), None)
        if other is not None:
            what = f"rows of several lengths: {_HERE.row(other)} has {lengths[other]} entries, "
            what += f"and the first {lengths[0]}"
            hint = "Give every row the same number of entries."
    return DataError("not-two-dimensional", what=what, way_out=hint)


def _no_numbers(table: Adapter) -> DataError | None:
    """The first column that no floats can be made of."""
    names = table.column_names()
    for index, values in table.columns():
        column = _HERE.column(index, names)
        if values.dtype.kind == "c":
            return DataError("complex-numbers", what=f"{column} holds {values.dtype}")
        row = _first_of_another_kind(values)
        if row is None:
            continue
        entry = values[row]
        if isinstance(entry, int):
            return DataError("beyond-float", place=_HERE.cell(row, index, names))
        return NotNumbersError(
            "entry-no-number",
            column=f"{column[:1].upper()}{column[1:]}",
            row=_HERE.row(row),
            kind=type(entry).__name__.rstrip("_"),
        )
    return None


def _first_of_another_kind(values: NDArray[Any]) -> int | None:
    """The first entry that is no number, or none that a float holds."""
    if values.dtype.kind in "mMV":
        return 0 if values.size else None
    try:
        values.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return next((row for row, entry in enumerate(values) if not _is_number(entry)), None)
    return None


def _is_number(entry: Any) -> bool:
    if entry is None:
        return True  # a missing one
    try:
        float(entry)
    except (TypeError, ValueError, OverflowError):
        return False
    return np.ndim(entry) == 0


def _of_names(table: Adapter) -> DataError | None:
    """Names of which only some are texts."""
    names = table.labels
    if len({isinstance(name, str) for name in names}) < 2:
        return None
    other = next(index for index, name in enumerate(names) if not isinstance(name, str))
    return DataError("column-names", column=_HERE.column(other), kind=type(names[other]).__name__)


def _as_said(table: Adapter, error: Exception) -> DataError:
    """What is neither the entries' kind nor the shape: few rows, other columns, infinity."""
    text = str(error)
    if "infinity" in text or "NaN" in text:
        missing = text.startswith("Input X contains NaN")
        what, is_wrong = ("NaN", np.isnan) if missing else ("infinite", np.isinf)
        if (where := table.first(is_wrong)) is not None:
            return DataError("not-finite", place=where, value=what)
    for part, (hint, code) in _SAID.items():
        if part in text:
            return DataError.relayed(text.strip(), hint=hint, code=code)
    return DataError("rows-unusable", reason=first_line(text, empty=type(error).__name__))


# What scikit-learn says without quoting an entry, with the way out.
_SAID = {
    "sample(s)": ("Give more rows.", "no-rows"),
    "feature(s)": ("Give at least one column of numbers.", "rows-matrix"),
    "at least one array or dtype": ("Give at least one column of numbers.", "rows-matrix"),
    "features as input": ("Give the columns that the model was fitted to.", "other-features"),
    "feature names": (
        "Give the columns that the model was fitted to, in the same order: "
        "X[model.feature_names_in_].",
        "other-columns",
    ),
    "Sparse data": ("Give dense rows, X.toarray(), a few at a time.", "sparse-rows"),
}
