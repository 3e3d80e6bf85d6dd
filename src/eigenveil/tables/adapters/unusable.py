"""Why rows that were given in Python cannot be used: the column, the row, and never an entry.

NumPy and scikit-learn say it too, but they quote rows, and name neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError, first_line
from eigenveil.origins import Origin

_HERE = Origin()
NUMBERS_ONLY = (
    "Leave the column out, or make numbers of it; a schema reads categories and dates "
    "(eigenveil.io.read_frame)."
)
TEXTS = (nw.String, nw.Categorical, nw.Enum)
"""Types of columns of texts."""


class NotNumbersError(DataError, TypeError):
    """Entries are no numbers; a TypeError too, as scikit-learn has it."""


def refusal(X: Any, frame: nw.DataFrame[Any] | None, error: Exception) -> DataError:
    """The error that takes the place of one of NumPy's or scikit-learn's."""
    rows = _Rows(X, frame)
    return _no_matrix(rows) or _no_numbers(rows) or _of_names(rows) or _as_said(rows, error)


def check_kind(X: Any, frame: nw.DataFrame[Any] | None) -> None:
    """Refuse what would be taken for other numbers in silence: dates, texts, masked entries."""
    if frame is not None:
        refuse_texts(frame)
        dates = any(kind.is_temporal() for kind in frame.schema.values())
    else:
        dates = getattr(getattr(X, "dtype", None), "kind", "") in ("m", "M")
    if dates and (error := _no_numbers(_Rows(X, frame))) is not None:
        raise error
    if np.ma.is_masked(X):
        raise DataError(
            "The array has masked entries, which would count with what is under the mask.",
            hint="Say what they are: X.filled(numpy.nan) makes missing ones of them.",
            code="not-numeric",
        )


def refuse_texts(frame: nw.DataFrame[Any]) -> None:
    """Refuse columns that Arrow or Polars declares to be of texts; pandas infers that."""
    if frame.implementation.is_pandas_like():
        return
    for name, kind in frame.schema.items():
        if kind in TEXTS:
            raise NotNumbersError(
                f"Column {name!r} is of type {kind}, not of numbers.",
                hint=NUMBERS_ONLY,
                code="not-numeric",
            )


@dataclass(frozen=True)
class _Rows:
    """What was given, column by column."""

    given: Any
    frame: nw.DataFrame[Any] | None

    @property
    def is_sparse(self) -> bool:
        return bool(scipy.sparse.issparse(self.given))

    @property
    def names(self) -> list[str] | None:
        return None if self.frame is None else [str(name) for name in self.frame.columns]

    def columns(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """The index of each, and its entries."""
        if self.frame is not None:
            for index, name in enumerate(self.frame.columns):
                yield index, np.asarray(self.frame[name].to_numpy())
        elif not self.is_sparse:
            array = _array_of(self.given)
            for index in range(array.shape[1]):
                yield index, array[:, index]

    def first(self, is_wrong: Callable[[NDArray[Any]], Any]) -> str | None:
        """Where the first entry is, column by column, of which this is true."""
        if self.is_sparse:
            found = scipy.sparse.coo_array(self.given)
            at = next(iter(np.flatnonzero(is_wrong(found.data))), None)
            return None if at is None else _HERE.cell(int(found.row[at]), int(found.col[at]))
        for index, values in self.columns():
            wrong = np.flatnonzero(is_wrong(values.astype(np.float64)))
            if wrong.size:
                return _HERE.cell(int(wrong[0]), index, self.names)
        return None


def _array_of(given: Any) -> NDArray[Any]:
    """An array of anything; what is none has no dimension, and rows of several lengths have one."""
    if isinstance(given, np.ndarray):
        return given
    try:
        return np.array(given, dtype=object)
    except ValueError:  # rows of several lengths, deeper down
        return np.array([None, *given], dtype=object)[1:]


def _no_matrix(rows: _Rows) -> DataError | None:
    """Not two dimensions."""
    if rows.frame is not None:
        return None
    shape = np.shape(rows.given) if rows.is_sparse else _array_of(rows.given).shape
    if len(shape) == 2:
        return None
    hint = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row."
    what = f"an array of shape {shape}"
    if not shape:
        kind = type(rows.given).__name__
        what, hint = f"{kind!r}", "Give an array, a frame or a sparse matrix of rows."
    elif len(shape) == 1 and isinstance(rows.given, list | tuple):
        lengths = [np.size(row) for row in rows.given]
        other = next((at for at, length in enumerate(lengths) if length != lengths[0]), None)
        if other is not None:
            what = f"rows of several lengths: {_HERE.row(other)} has {lengths[other]} entries, "
            what += f"and the first {lengths[0]}"
            hint = "Give every row the same number of entries."
    return DataError(f"Expected 2D array, got {what}.", hint=hint, code="rows-matrix")


def _no_numbers(rows: _Rows) -> DataError | None:
    """The first column that no floats can be made of."""
    if rows.is_sparse:
        return _complex(f"{rows.given.dtype}") if rows.given.dtype.kind == "c" else None
    for index, values in rows.columns():
        column = _HERE.column(index, rows.names)
        if values.dtype.kind == "c":
            return _complex(f"{column} holds {values.dtype}")
        row = _first_of_another_kind(values)
        if row is None:
            continue
        entry = values[row]
        if isinstance(entry, int):
            return DataError(
                f"{_HERE.cell(row, index, rows.names)} is a number beyond what a float can hold.",
                hint="Give numbers up to 1e308; divide the column by a public number where it is "
                "more.",
                code="overflow",
            )
        return NotNumbersError(
            f"{column[:1].upper()}{column[1:]} has entries that are no numbers, the first at "
            f"{_HERE.row(row)}, of type {type(entry).__name__.rstrip('_')}.",
            hint="An entry of the argument must be a number, or a string that reads as a number. "
            + NUMBERS_ONLY,
            code="not-numeric",
        )
    return None


def _complex(what: str) -> DataError:
    return DataError(
        f"Complex data not supported: {what}.",
        hint="Give the real and imaginary parts as two columns.",
        code="not-numeric",
    )


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


def _of_names(rows: _Rows) -> DataError | None:
    """Names of which only some are texts."""
    names = getattr(rows.given, "columns", None)
    if rows.frame is None or names is None or len({isinstance(n, str) for n in names}) < 2:
        return None
    other = next(index for index, name in enumerate(names) if not isinstance(name, str))
    return DataError(
        f"The name of {_HERE.column(other)} is of type {type(names[other]).__name__}, and other "
        "columns have texts for names.",
        hint="Name all of them by texts: X.columns = X.columns.astype(str).",
        code="column-names",
    )


def _as_said(rows: _Rows, error: Exception) -> DataError:
    """What is neither the entries' kind nor the shape: few rows, other columns, infinity."""
    text = str(error)
    if "infinity" in text or "NaN" in text:
        missing = text.startswith("Input X contains NaN")
        what, is_wrong = ("NaN", np.isnan) if missing else ("infinite", np.isinf)
        if (where := rows.first(is_wrong)) is not None:
            return DataError(
                f"{where} is {what}.",
                hint="Fill in NaN and infinity, or leave such rows out.",
                code="not-finite",
            )
    for part, (hint, code) in _SAID.items():
        if part in text:
            return DataError(text.strip(), hint=hint, code=code)
    return DataError(
        f"The rows cannot be used: {first_line(text, empty=type(error).__name__)}.",
        hint="Give an array, a frame or a sparse matrix of numbers.",
        code="rows-matrix",
    )


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
