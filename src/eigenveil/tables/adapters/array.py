"""Inputs of estimators: rows, and names of columns that must not be values.

Names are public: they stand in results, studies and messages.  A table without a line of names
would publish its first row in their place, so that names that read as values are refused wherever
names enter.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse
from narwhals.exceptions import DuplicateError
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from eigenveil.errors import DataError, InvalidRowsWarning
from eigenveil.models.cells import CellRows, genes_of, is_cells, units_of
from eigenveil.models.names import are_damaged_genes, is_counted, reads_as_value
from eigenveil.models.plan import BasePlan
from eigenveil.models.unusable import NUMBERS_ONLY, TEXTS, check_kind, refusal, refuse_texts
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import ArrayRows, RowSource, SparseRows
from eigenveil.origins import Origin
from eigenveil.privacy.certificate import rule_of_rows
from eigenveil.tables.entries import numbers, rows_of_numbers
from eigenveil.tables.identifiers import check_identifiers
from eigenveil.tables.units import LabelledRows, exact, unit_ids

MOST_COLUMNS = 1 << 16
"""Most columns of a table whose entries are all stored."""
MOST_SPARSE_COLUMNS = 1 << 24
"""Most columns where only entries that are not 0 are stored."""
MOST_VARIANTS = 1 << 18
"""Most columns of genotypes, which take 2 bits each where they are stored."""


def check_names(
    whose: Origin | str,
    names: Sequence[str] | None,
    *,
    places: Sequence[int] | None = None,
    of_words: bool = False,
) -> None:
    """Refuse names of columns that read as values; the error names the place, not the value."""
    if names is None or is_counted(names):
        return
    wrong = [place for place, name in enumerate(names) if reads_as_value(name)]
    if not wrong or (of_words and len(wrong) < len(names)):
        return
    if are_damaged_genes(names, [names[place] for place in wrong]):
        return
    origin = Origin(whose) if isinstance(whose, str) else whose
    place = origin.column(wrong[0] if places is None else places[wrong[0]])
    more = f", as of {len(wrong) - 1} more," if len(wrong) > 1 else ""
    raise DataError(
        f"{origin.name}: the name of {place}{more} reads as a number, a date or another value, as "
        "the first row of a table does that has no line of names.",
        hint="--no-header (header=False in Python) names the columns of text c1, c2, ...; or "
        "rename them.",
        code="header-is-data",
    )


def check_features(whose: Origin | str, rows: RowSource, *, of_words: bool = False) -> None:
    """Refuse columns whose names read as values, or as identifiers without a schema."""
    check_names(whose, rows.names, of_words=of_words)
    if not of_words and getattr(rows, "schema", None) is None:
        check_identifiers(whose if isinstance(whose, str) else whose.name, rows.names)


def first_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Where two lists of columns part, in words that quote neither: both may be a site's own."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if one != other:
            return f"column {number} (from 1) has another name"
    return "their numbers differ"


_FEWER = {
    MOST_COLUMNS: "Store fewer columns in a file, or store them sparse (.npz of scipy, .mtx), of "
    f"which {MOST_SPARSE_COLUMNS:,} are read.",
    MOST_VARIANTS: "Choose variants that are nearly independent of each other in public data, "
    "which say as much of ancestry: --variants MANIFEST, or plink2 --extract.",
}


def check_width(whose: str, columns: int, *, most: int | None = None) -> None:
    """Refuse more columns than are read, ``MOST_COLUMNS`` or another limit."""
    most = MOST_COLUMNS if most is None else most
    if columns > most:
        raise DataError(
            f"{whose} has {columns:,} columns, and at most {most:,} are read.",
            hint=_FEWER.get(most, "Store fewer columns in a file."),
            code="too-many-columns",
        )


# -- Rows from what the caller of an estimator gives.


class _Columns:
    """Where scikit-learn notes the columns of new rows: a fitted result's own are not changed."""

    feature_names_in_: NDArray[np.object_]

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __sklearn_tags__(self) -> Any:
        return self._estimator.__sklearn_tags__()


@contextmanager
def usable(X: Any) -> Iterator[None]:
    """Turn NumPy's and scikit-learn's complaints about rows into the package's own.

    They name the column, and the row, and quote no entry; dates are refused, too.
    """
    check_kind(X, frame_of(X))
    try:
        yield
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise refusal(X, frame_of(X), error) from None


def named_frame(X: Any) -> nw.DataFrame[Any]:
    """A frame in memory, each of whose columns has a name of its own."""
    frame = frame_of(in_memory(X))
    if frame is None:
        raise DataError(
            f"A {type(X).__name__} is no frame with named columns.",
            hint="Give a frame of pandas or Polars, an Arrow table, or a relation of DuckDB.",
            code="not-a-table",
        )
    return frame


def _native(X: Any) -> Any:
    """As narwhals has it, if it knows it; what Dask has is read where its partitions are."""
    if is_collection(X):
        return X
    try:
        return nw.from_native(X, pass_through=True)
    except DuplicateError:
        names = Counter(str(name) for name in X.columns)
        twice = next(name for name, count in names.items() if count > 1)
        raise DataError(
            f"The frame has more than one column {twice!r}.",
            hint="Rename one of them.",
            code="duplicate-column",
        ) from None


def in_memory(X: Any) -> Any:
    """A frame of any library that narwhals knows, in memory: what is lazy is computed.

    Frames of pandas and Polars and Arrow tables stay, as does what is no frame; a Polars query
    becomes a frame, and a relation of DuckDB an Arrow table.
    """
    found = _native(X)
    if isinstance(found, nw.LazyFrame):
        return found.collect().to_native()
    return X


def frame_of(X: Any) -> nw.DataFrame[Any] | None:
    """A frame in memory as narwhals has it; ``None`` of an array."""
    found = _native(X)
    return found if isinstance(found, nw.DataFrame) else None


def in_order(X: Any, names: Sequence[str]) -> Any:
    """Columns of a frame in memory, by name."""
    frame = frame_of(X)
    return X if frame is None else frame.select(*names).to_native()


def validated(estimator: Any, X: ArrayLike, /, **checks: Any) -> Any:
    """scikit-learn's ``validate_data``; what it refuses is a DataError.

    Of a fitted model a table's column of units is left out, and of an ``AnnData`` its genes are
    taken.
    """
    X = in_memory(X)
    fitted = getattr(estimator, "_result", None)
    if fitted is not None:
        X = less_units(X, fitted.plan.unit)
    with warnings.catch_warnings():
        if is_cells(X):
            cells = CellRows(X, columns=None if fitted is None else fitted.names)
            X = cells.matrix(sparse=bool(checks.get("accept_sparse", False)))
            # they were matched by name
            warnings.filterwarnings("ignore", "X does not have valid feature names")
        with usable(X):
            return validate_data(estimator, X, **checks)


def new_columns(
    estimator: Any, X: ArrayLike, **checks: Any
) -> tuple[NDArray[np.floating[Any]], list[str] | None]:
    """Checked entries of an array, frame or sparse matrix, and the columns' names if it has any.

    Only types of columns are refused: see :func:`of_numbers`.
    """
    columns = _Columns(estimator)
    genes = genes_of(X) if is_cells(X) else None
    array = validated(
        columns,
        of_numbers(X),
        estimator=estimator,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,  # such rows are left out
        **checks,
    )
    names = getattr(columns, "feature_names_in_", None)
    if names is None and genes is None:
        return array, None
    texts = genes if names is None else [str(name) for name in names]
    check_names("The frame", texts)
    return array, texts


def of_numbers(X: Any) -> Any:
    """A table whose entries of no one type are numbers, each by itself; NaN where it is none.

    So are those of lists, of arrays and columns of objects and texts, and under a mask: one odd
    entry makes a row that is not valid, and no other one and no refusal. A column that Arrow or
    Polars declares to be of texts is refused: that is public.
    """
    if is_cells(X) or is_collection(X):
        return X
    X = in_memory(X)
    frame = frame_of(X)
    if frame is not None:
        odd = [name for name, kind in frame.schema.items() if kind in _OF_ENTRIES]
        refuse_texts(frame)
        made = [
            nw.new_series(
                name, _tried(repr(name), frame[name].to_list()), backend=frame.implementation
            )
            for name in odd
        ]
        return frame.with_columns(*made).to_native() if made else X
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
        return np.ma.filled(X if X.dtype.kind == "f" else X.astype(np.float64), np.nan)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS":
        columns = [_tried(f"index {at} (from 0)", list(column)) for at, column in enumerate(X.T)]
        return np.array(columns, dtype=np.float64).T.reshape(X.shape)
    if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype.kind == "O"):
        try:
            known = np.array(X)
        except (ValueError, OverflowError):
            known = np.array(None)
        if known.ndim != 2 or known.dtype.kind not in "biuf":
            found = rows_of_numbers(list(X)) if known.ndim < 3 else None
            return X if found is None else found
    return X


def _tried(column: str, entries: list[Any]) -> NDArray[np.float64]:
    """A column's entries as numbers; its owner is told where most are other texts."""
    found = numbers(entries)
    pairs = zip(entries, found, strict=True)
    texts = sum(isinstance(entry, str | bytes) and bool(np.isnan(value)) for entry, value in pairs)
    if 2 * texts > len(entries):
        warnings.warn(
            f"Column {column}: {texts:,} of {len(entries):,} entries are texts that are no "
            f"numbers, and count as missing. {NUMBERS_ONLY}",
            InvalidRowsWarning,
            stacklevel=6,
        )
    return found


# Types of columns that do not say what their entries are.
_OF_ENTRIES = (nw.Object, *TEXTS, nw.Decimal)


def is_collection(X: Any) -> bool:
    """Whether this is one of Dask's collections."""
    return hasattr(X, "__dask_graph__") and not isinstance(X, np.ndarray)


def rows_of(estimator: Any, X: ArrayLike, *, unit: str | None, groups: Any = None) -> RowSource:
    """Rows of an array, frame, sparse matrix or ``AnnData``, with their units where named."""
    if is_collection(X):
        from eigenveil.models.dask_tables import collection_rows  # which needs what is here

        return collection_rows(X, unit=unit, groups=groups, at_least=1)
    X, ids = without_units(X, unit, groups=groups)
    if is_cells(X):
        return cell_rows(X, groups=ids)
    return array_rows(*new_columns(estimator, X), ids)


def cell_rows(
    X: Any,
    *,
    groups: Any = None,
    columns: Sequence[str] | None = None,
    origin: str = "The cells",
    fewest: int = 1,
) -> CellRows:
    """Rows of an ``AnnData``, read a block at a time."""
    rows = CellRows(X, groups=groups, columns=columns, origin=origin)
    check_width(origin, rows.features, most=MOST_SPARSE_COLUMNS)
    check_names(origin, rows.names)
    if rows.rows < fewest:
        raise DataError(
            f"{origin} are {rows.rows}, and at least {fewest} is needed.",
            hint="Give an AnnData with cells.",
            code="rows-matrix",
        )
    return rows


def array_rows(
    array: Any, names: Sequence[str] | None, ids: Any = None, *, origin: Origin | str = ""
) -> RowSource:
    """Rows of a checked array or sparse matrix, with identifiers of their units, if there are any.

    ``origin`` says in messages where rows are.
    """
    rows: RowSource
    if scipy.sparse.issparse(array):
        rows = SparseRows(array, names=names, origin=origin)
    else:
        rows = ArrayRows(array, names=names, origin=origin)
    return rows if ids is None else LabelledRows(rows, unit_ids(ids, int(array.shape[0])))


def without_units(X: Any, unit: str | None, *, groups: Any = None) -> tuple[Any, Any]:
    """A table less its column of units, and that column; or ``groups``, given beside the table."""
    if is_cells(X):
        if groups is not None and unit is not None and unit in X.obs.columns:
            raise _units_twice(unit)
        return X, groups if groups is not None or unit is None else units_of(X, unit)
    X = in_memory(X)
    if not has_units(X, unit, groups=groups):
        return X, groups
    frame = frame_of(X)
    assert frame is not None
    assert unit is not None
    return less_units(X, unit), exact(frame[unit].to_native())


def has_units(X: Any, unit: str | None, *, groups: Any) -> bool:
    """Whether a column of a table has its units; the same checks."""
    frame = frame_of(X)
    columns = getattr(X, "columns", ()) if frame is None else frame.columns
    there = unit is not None and unit in list(columns)
    if groups is not None and there:
        raise _units_twice(unit)
    if groups is None and unit is not None and not there:
        raise DataError(
            f"There is no column {unit!r} with each row's unit.",
            hint="Give a frame with this column, or fit(X, groups=ids) with an identifier a row.",
            code="no-units",
        )
    return there


def _units_twice(unit: str | None) -> DataError:
    return DataError(
        f"Units are given twice: as groups, and as column {unit!r}.",
        hint="Leave groups out, or the column.",
        code="bad-groups",
    )


def less_units(X: Any, unit: str | None) -> Any:
    """A table less its column of units, where it has one."""
    frame = None if unit is None else frame_of(X)
    if frame is None or unit not in frame.columns:
        return X
    return frame.drop(unit).to_native()


def unit_of(rows: RowSource, unit: str | None, *, taken: bool) -> str | None:
    """The column with the units of rows that are read with them, such as a file's.

    Rows whose units are read are never protected one by one.
    """
    own: str | None = getattr(rows, "unit", None)
    if None not in (own, unit) and own != unit:
        raise DataError(
            f"unit = {unit!r}, and the rows were opened with unit {own!r}.",
            hint="Name one column in both places.",
            code="other-unit",
        )
    if own is not None and not taken:
        raise DataError(
            f"The rows were opened with unit {own!r}, and this task protects rows, not units.",
            hint="Merge the rows of each unit into one; or, where each unit has one row, give the "
            "column role = 'ignore'.",
            code="units-not-taken",
        )
    return own or unit


def warn_owner(invalid: InvalidRows | None, plan: BasePlan, *, where: str = "") -> None:
    """Warn whoever called about rows that are left out; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{told_owner(invalid, plan)}", InvalidRowsWarning, stacklevel=4)


def told_owner(invalid: InvalidRows, plan: BasePlan) -> str:
    """What the owner of rows is told of those that are left out, and the rule."""
    rule = f" By rule, {rule_of_rows(plan.model_dump())}." if invalid.count else ""
    return f"{invalid}.{rule}"
