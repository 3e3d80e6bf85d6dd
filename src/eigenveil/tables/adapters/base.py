"""What is asked of a table that a caller gave in Python, whatever holds it.

NumPy and scikit-learn say why rows cannot be used, too, but they quote rows, and name neither the
column nor the row: what they raise becomes an error that names both, and never an entry.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _get_feature_names, check_array, validate_data

from eigenveil.errors import DataError, first_line
from eigenveil.moments.source import ArrayRows, RowSource, SparseRows
from eigenveil.origins import Origin
from eigenveil.tables.names import check_names
from eigenveil.tables.schema import Schema
from eigenveil.tables.units import LabelledRows, unit_ids

_HERE = Origin()
NUMBERS_ONLY = (
    "Leave the column out, or make numbers of it; a schema reads categories and dates "
    "(eigenveil.io.read_frame)."
)


class NotNumbersError(DataError, TypeError):
    """Entries are no numbers; a TypeError too, as scikit-learn has it."""


def refusal(table: Adapter, error: Exception) -> DataError:
    return _no_matrix(table) or _no_numbers(table) or _of_names(table) or _as_said(table, error)


def dates_refused(table: Adapter) -> None:
    """Refuse dates, and what else a column of them is."""
    if (error := _no_numbers(table)) is not None:
        raise error


def _no_matrix(table: Adapter) -> DataError | None:
    shape, given = table.shape, table.given
    if len(shape) == 2:
        return None
    hint = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row."
    what = f"an array of shape {shape}"
    if not shape:
        what = f"{type(given).__name__!r}"
        hint = "Give an array, a frame or a sparse matrix of rows."
        if isinstance(given, str | os.PathLike):
            hint = "Only fit reads files; or read them first: pandas.read_csv(path)."
    elif len(shape) == 1 and isinstance(next(iter(given), None), str):
        hint = (
            "Texts are counted by a public list of words: PrivateTopicModel(vocabulary=words); or "
            "first, CountVectorizer(vocabulary=words).transform(texts) of scikit-learn."
        )
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


# -- What an adapter can do.


FLOATS = (np.float64, np.float32)


@dataclass(frozen=True)
class Asked:
    """How the rows of a table are wanted."""

    unit: str | None = None  # A column of units
    groups: Any = None  # Or units beside the table
    like: Sequence[str] | None = None  # The columns in this order
    estimator: Any = None  # For whom, in messages
    origin: str = ""
    fewest: int = 1


class Adapter(ABC):
    """Rows and columns in one kind of object."""

    is_one_table: ClassVar[bool] = True
    """Whether it cannot be several tables, one for each site."""
    labels: Sequence[str] = ()
    """Names of the columns that may say whose each row is."""

    def __init__(self, given: Any) -> None:
        self.given = given

    @classmethod
    @abstractmethod
    def of(cls, X: Any) -> Self | None:
        """The adapter of an object of this kind; ``None`` where it is of another."""

    # -- Whose each row is.

    def split(self, unit: str | None, groups: Any = None) -> tuple[Adapter, Any]:
        """The table less its column of units, and that column; or ``groups``, given beside it."""
        if groups is not None and unit in self.labels:
            raise DataError("units-given-twice", column=unit)
        if unit is None or groups is not None:
            return self, groups
        return self.without(unit), self.ids(unit)

    def ids(self, unit: str) -> Any:
        raise DataError(
            "no-unit-column", whose="The rows", column=unit, known="only a frame has some"
        )

    def without(self, unit: str | None) -> Adapter:
        """The table less a column, where it has it."""
        return self

    # -- Its entries.

    def numbers(self) -> Adapter:
        """The table with entries of no one type made into numbers, each by itself; else NaN.

        So are those of lists, of arrays and columns of objects and texts, and under a mask: one odd
        entry makes a row that is not valid, and no other one and no refusal. A column that Arrow or
        Polars declares to be of texts is refused: that is public.
        """
        return self

    def in_order(self, names: Sequence[str] | None) -> Adapter:
        """The same columns in another order, where they go by names; others stay as they are."""
        return self

    def by_schema(self, schema: Schema, names: Sequence[str]) -> Adapter:
        """The encoded columns of these names, where the table has columns of its own."""
        return self

    def chosen(self, names: Sequence[str] | None, places: Sequence[int], of: int) -> Adapter:
        """The columns of these names; without names those at ``places`` of all ``of``."""
        return self

    def matrix(self, estimator: Any, *, genes: Sequence[str] | None = None, **checks: Any) -> Any:
        with self.usable():
            return validate_data(estimator, self.given, **checks)

    def checked(
        self, estimator: Any = None, *, origin: str = "", fewest: int = 1
    ) -> tuple[Any, list[str] | None]:
        """An array or CSR matrix, and names: only types and names of columns are refused."""
        table = self.numbers()
        with table.usable():
            found = _get_feature_names(table.given)
            array = check_array(
                table.given,
                accept_sparse="csr",
                dtype=list(FLOATS),
                ensure_all_finite=False,
                ensure_min_samples=fewest,
                estimator=estimator,
            )
        names = None if found is None else [str(name) for name in found]
        check_names(origin or "The frame", names)
        return array, names

    def rows(self, asked: Asked) -> RowSource:
        """The rows and their units."""
        table, ids = self.split(asked.unit, asked.groups)
        array, names = (
            table.numbers()
            .in_order(asked.like)
            .checked(asked.estimator, origin=asked.origin, fewest=asked.fewest)
        )
        return array_rows(array, names, ids, origin=asked.origin)

    # -- What is wrong with it.

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Complaints about rows become the package's own, which quote no entry."""
        self.check_kind()
        try:
            yield
        except DataError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise refusal(self, error) from None

    def check_kind(self) -> None:  # noqa: B027 - most kinds have nothing to refuse
        """Refuse what would be taken for other numbers in silence: dates, texts, masked entries."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.given))

    def column_names(self) -> list[str] | None:
        return None

    def columns(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """The index of each column, and its entries, whatever they are."""
        yield from ()

    def first(self, is_wrong: Callable[[NDArray[Any]], Any]) -> str | None:
        """Where the first entry is, column by column, of which this is true."""
        for index, values in self.columns():
            wrong = np.flatnonzero(is_wrong(values.astype(np.float64)))
            if wrong.size:
                return _HERE.cell(int(wrong[0]), index, self.column_names())
        return None


def array_rows(
    array: Any,
    names: Sequence[str] | None,
    ids: ArrayLike | None = None,
    *,
    origin: Origin | str = "",
) -> RowSource:
    """Rows of a checked array or sparse matrix, with their units, if there are any."""
    made = SparseRows if scipy.sparse.issparse(array) else ArrayRows
    rows: RowSource = made(array, names=names, origin=origin)
    return rows if ids is None else LabelledRows(rows, unit_ids(ids, int(array.shape[0])))
