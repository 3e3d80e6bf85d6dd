"""Inputs of estimators: rows, and names of columns that must not be values.

Names are public: they stand in results, studies and messages.  A table without a line of names
would publish its first row in their place, so that names that read as values are refused wherever
names enter.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from eigenveil.errors import DataError, InvalidRowsWarning
from eigenveil.moments.engine import CountRows, InvalidRows
from eigenveil.moments.source import ArrayRows, RowSource, SparseRows, read_rows
from eigenveil.tables.identifiers import check_identifiers
from eigenveil.tables.units import LabelledRows, UnitRows, unit_ids

MOST_COLUMNS = 1 << 16
"""Most columns of a table whose entries are all stored."""
MOST_SPARSE_COLUMNS = 1 << 24
"""Most columns where only entries that are not 0 are stored."""

# pandas names the columns of an array by counting; fewer could be a row
_FEWEST_COUNTED = 8
# what readers of tables take for a value that is missing, or a truth value
_WORDS = frozenset(["#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaT", "n/a", "null"])
_TRUTHS = frozenset(["true", "false"])
_DIGITS = re.compile(r"\d")
# thousands apart by a point, comma, apostrophe or space; a decimal point or comma; an exponent
_NUMBER = re.compile(
    r"(?=[+-]?[.,]?\d)[+-]?"
    "(?:\\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\\d{3})+|\\d*)"
    r"(?:[.,]\d*)?(?:[eEdD][+-]?\d+)?\s?%?"
    r"|[+-]?0[xX][0-9a-fA-F]+"
    r"|[+-]?1\.#(?:IND|QNAN|INF)"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_GAP = r"[-/., ]{1,2}"
_DAY = (
    r"(?:\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?"
    r"|\d{4}-?W\d{2}(?:-?\d)?"
    rf"|(?:\d{{1,4}}{_GAP})?{_MONTH}{_GAP}\d{{1,4}}(?:{_GAP}\d{{2,4}})?"
    rf"|\d{{1,4}}{_GAP}{_MONTH})"
)
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s?(?:[ap]\.?m\.?)?\s?(?:z|utc|[+-]\d{2}:?\d{2})?"
_TIME = re.compile(rf"{_DAY}(?:[T ,]\s?{_CLOCK})?|{_CLOCK}", re.IGNORECASE)


def reads_as_value(name: str) -> bool:
    """Whether a name is what a cell of a table would be: a number, a date, a time, true, missing.

    Numbers are such with signs, exponents, decimal commas and thousands apart as well, and NaN and
    infinity; dates and times in ISO's form and the usual ones of numbers and English months.
    """
    text = name.strip().replace("\u2212", "-")
    if not text:
        return False
    if text in _WORDS or text.lower() in _TRUTHS:
        return True
    try:
        float(text)
    except ValueError:
        pass
    else:
        return True
    if _DIGITS.search(text) is None:
        return False
    return bool(_NUMBER.fullmatch(text) or _TIME.fullmatch(text))


def is_counted(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, ... or 1, 2, ... in order, at least 8: an unnamed array's."""
    count = len(names)
    if count < _FEWEST_COUNTED:
        return False
    return any(
        all(name == str(number) for number, name in enumerate(names, start=start))
        for start in (0, 1)
    )


def check_names(
    whose: str,
    names: Sequence[str] | None,
    *,
    places: Sequence[int] | None = None,
    of_words: bool = False,
) -> None:
    """Refuse names of columns that read as values; the error names the place, not the value.

    Parameters
    ----------
    whose : str
        File, site or argument that has the names.
    names : sequence of str or None
        ``None``: there are none, and nothing is wrong.
    places : sequence of int, optional
        The columns' numbers in the file, from 1; 1, 2, ... by default.
    of_words : bool
        The names are words of documents, some of which are numbers: refused only if all are.

    Raises
    ------
    DataError
        With code ``header-is-data``.
    """
    if names is None or is_counted(names):
        return
    wrong = [place for place, name in enumerate(names) if reads_as_value(name)]
    if not wrong or (of_words and len(wrong) < len(names)):
        return
    place = wrong[0] + 1 if places is None else places[wrong[0]]
    more = f" (and of {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    raise DataError(
        f"{whose}: the name of column {place}{more} reads as a number, a date or another value, as "
        "the first row of a table does that has no line of names.",
        hint="--no-header (header=False in Python) names the columns of text c1, c2, ...; or "
        "rename them.",
        code="header-is-data",
    )


def check_features(whose: str, rows: RowSource, *, of_words: bool = False) -> None:
    """Refuse columns whose names read as values, or as identifiers where no schema says otherwise.

    Raises
    ------
    DataError
        With code ``header-is-data`` or ``identifier-column``.
    """
    check_names(whose, rows.names, of_words=of_words)
    if not of_words and getattr(rows, "schema", None) is None:
        check_identifiers(whose, rows.names)


def first_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Where two lists of columns part, in words that quote neither: both may be a site's own."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if one != other:
            return f"column {number} has another name"
    return "their numbers differ"


def check_width(whose: str, columns: int, *, sparse: bool = False) -> None:
    """Refuse more columns than are read: ``MOST_COLUMNS``, or ``MOST_SPARSE_COLUMNS``.

    Raises
    ------
    DataError
        With code ``too-many-columns``.
    """
    most = MOST_SPARSE_COLUMNS if sparse else MOST_COLUMNS
    if columns > most:
        raise DataError(
            f"{whose} has {columns:,} columns, and at most {most:,} are read.",
            hint="Store fewer columns in a file."
            if sparse
            else "Store fewer columns in a file, or store them sparse (.npz of scipy, .mtx), of "
            f"which {MOST_SPARSE_COLUMNS:,} are read.",
            code="too-many-columns",
        )


def numbered_names(columns: int) -> list[str]:
    """c1, c2, ...: names where a file has none."""
    return [f"c{number}" for number in range(1, columns + 1)]


# -- Rows from what the caller of an estimator gives.


class _Columns:
    """Where scikit-learn notes the columns of new rows: a fitted result's own are not changed."""

    feature_names_in_: NDArray[np.object_]

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __sklearn_tags__(self) -> Any:
        return self._estimator.__sklearn_tags__()


@contextmanager
def fits_floats() -> Iterator[None]:
    """Turn numpy's complaint about a whole number that no float holds into the package's own."""
    try:
        yield
    except OverflowError:
        raise DataError(
            "An entry is a number beyond what a float can hold.",
            hint="Give numbers up to 1e308; divide the column by a public number where it is more.",
            code="overflow",
        ) from None


def validated(estimator: Any, X: ArrayLike, /, **checks: Any) -> Any:
    """scikit-learn's ``validate_data``; a number that no float holds is a DataError.

    Of a fitted model a table's column of units is left out.
    """
    fitted = getattr(estimator, "_result", None)
    if fitted is not None:
        X = less_units(X, fitted.plan.unit)
    with fits_floats():
        return validate_data(estimator, X, **checks)


def new_columns(
    estimator: Any, X: ArrayLike, **checks: Any
) -> tuple[NDArray[np.floating[Any]], list[str] | None]:
    """Checked entries of an array, frame or sparse matrix, and the columns' names if it has any.

    Raises
    ------
    DataError
        Where a name reads as a value: the frame's first row may have been taken for names.
    """
    columns = _Columns(estimator)
    array = validated(
        columns,
        X,
        estimator=estimator,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,  # ``invalid`` decides what becomes of such rows
        **checks,
    )
    names = getattr(columns, "feature_names_in_", None)
    if names is None:
        return array, None
    texts = [str(name) for name in names]
    check_names("The frame", texts)
    return array, texts


def rows_of(estimator: Any, X: ArrayLike, *, unit: str | None, groups: Any = None) -> RowSource:
    """Rows of an array, frame or sparse matrix, with their units where these are named.

    Parameters
    ----------
    unit : str or None
        A column of the frame with each row's unit, where ``groups`` does not give it.
    groups : array of shape (n,), optional

    Raises
    ------
    DataError
        When the units are not to be found.
    """
    if hasattr(X, "__dask_graph__"):
        from eigenveil.models.dask_tables import collection_rows  # which needs what is here

        return collection_rows(X, unit=unit, groups=groups, at_least=1)
    X, ids = without_units(X, unit, groups=groups)
    return array_rows(*new_columns(estimator, X), ids)


def array_rows(
    array: Any, names: Sequence[str] | None, ids: Any = None, *, origin: str = ""
) -> RowSource:
    """Rows of a checked array or sparse matrix, with identifiers of their units, if there are any.

    ``origin`` is named in messages about rows of an array.

    Raises
    ------
    DataError
        When the identifiers are not one a row.
    """
    rows: RowSource
    if scipy.sparse.issparse(array):
        rows = SparseRows(array, names=names)
    else:
        rows = ArrayRows(array, names=names, origin=origin)
    return rows if ids is None else LabelledRows(rows, unit_ids(ids, int(array.shape[0])))


def without_units(X: Any, unit: str | None, *, groups: Any = None) -> tuple[Any, Any]:
    """A table less its column of units, and that column; or ``groups``, given beside the table.

    Raises
    ------
    DataError
        When there is no such column, and no ``groups``.
    """
    if not has_units(X, unit, groups=groups):
        return X, groups
    return less_units(X, unit), X[unit]


def has_units(X: Any, unit: str | None, *, groups: Any) -> bool:
    """Whether a column of a table has its units; the same checks."""
    there = unit is not None and unit in list(getattr(X, "columns", ()))
    if groups is not None and there:
        raise DataError(
            f"Units are given twice: as groups, and as column {unit!r}.",
            hint="Leave groups out, or the column.",
            code="bad-groups",
        )
    if groups is None and unit is not None and not there:
        raise DataError(
            f"There is no column {unit!r} with each row's unit.",
            hint="Give a frame with this column, or fit(X, groups=ids) with an identifier a row.",
            code="no-units",
        )
    return there


def less_units(X: Any, unit: str | None) -> Any:
    """A table less its column of units, where it has one."""
    if unit is None or unit not in list(getattr(X, "columns", ())):
        return X
    try:
        return X.drop(columns=[unit])
    except TypeError:  # not pandas
        return X.drop(unit)


def unit_of(rows: RowSource, unit: str | None, *, taken: bool) -> str | None:
    """The column with the units of rows that are read with them, such as a file's.

    Rows whose units are read are never protected one by one.

    Parameters
    ----------
    unit : str or None
        What the caller says it is.
    taken : bool
        Whether the task protects units.

    Raises
    ------
    DataError
        When the rows were opened with another, or units are not for the task.
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


def public_count(rows: RowSource, *, public: bool) -> int | None:
    """The number of units, or of rows where each is one, where it is public: a pass of its own."""
    if not public:
        return None
    if isinstance(rows, UnitRows):
        return rows.count().units
    return read_rows(rows, CountRows()).rows


def warn_owner(invalid: InvalidRows | None, *, where: str = "") -> None:
    """Warn whoever called about rows that are not valid; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{invalid}.", InvalidRowsWarning, stacklevel=4)
