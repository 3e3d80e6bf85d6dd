"""What is wrong with a column is said by its name, and no entry is quoted."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eigenveil
from eigenveil import DataError, FederatedPCA
from eigenveil.errors import InvalidRowsWarning
from eigenveil.moments.source import ArrayRows

ROWS = np.random.default_rng(0).poisson(5.0, size=(60, 2)).astype(float)
FRAME = pd.DataFrame(ROWS, columns=["age", "weight"])
ESTIMATORS = [
    each
    for each in (getattr(eigenveil, name) for name in eigenveil.__all__)
    if hasattr(each, "fit")
]


def holding(entry, row=41):
    """The rows as an array of objects, one of which is this."""
    array = ROWS.astype(object)
    array[row, 1] = entry
    return array


def last(entry):
    return FRAME.assign(weight=[*FRAME["weight"][:-1], entry])


NAMED, FIRST = "Column 'weight' has entries that are no numbers", r"index 0 \(from 0\)"
COUNTED = r"Column index 1 \(from 0\) .* row index 41 \(from 0\)"
TEXTS = FRAME.assign(weight="secret")
BAD = {
    "texts": (TEXTS, f"{NAMED}.*{FIRST}, of type str"),
    "one text": (last("secret"), rf"{NAMED}.*row index 59 \(from 0\)"),
    "dates": (FRAME.assign(weight=pd.Timestamp("2020-01-01")), NAMED),
    "categories": (
        FRAME.assign(weight=pd.Categorical(["secret"] * 60)),
        "Column 'weight' is of type Categorical",
    ),
    "objects": (FRAME.assign(weight=[{"secret": 1}] * 60), f"{NAMED}.*of type dict"),
    "lists": (FRAME.assign(weight=[["secret"]] * 60), f"{NAMED}.*of type list"),
    "dates of polars": (pl.from_pandas(FRAME.assign(weight=pd.Timestamp("2020-01-01"))), NAMED),
    "texts of polars": (pl.from_pandas(TEXTS), "Column 'weight' is of type String"),
    "texts of Arrow": (pa.Table.from_pandas(TEXTS), "Column 'weight' is of type String"),
    "categories of polars": (
        pl.from_pandas(TEXTS).with_columns(pl.col("weight").cast(pl.Categorical)),
        "Column 'weight' is of type Categorical",
    ),
    "complex": (FRAME.assign(weight=1j), "Complex data not supported: column 'weight'"),
    "twice": (pd.DataFrame(ROWS, columns=["weight"] * 2), "more than one column 'weight'"),
    "other names": (FRAME.rename(columns={"age": 7}), "The name of column index 0 .* type int"),
    "infinite": (last(np.inf), r"row index 59 \(from 0\), column 'weight' is (counted )?inf"),
    "a text in an array": (holding("secret"), COUNTED),
    "a list in an array": (holding(["secret"]), COUNTED),
    "a huge number": (holding(10**400), r"row index 41, column index 1 \(from 0\) is a number bey"),
    "dates in an array": (np.full((60, 2), np.datetime64("2020-01-01")), r"Column index 0 \(from"),
    "under a mask": (np.ma.masked_greater(ROWS, 4.0), "masked entries"),
    "one dimension": (ROWS[:, 0], r"Expected 2D array, got an array of shape \(60,\)"),
    "a column": (FRAME["age"], r"Expected 2D array, got an array of shape \(60,\)"),
    "several lengths": ([[1, 2], [1]], r"row index 1 \(from 0\) has 1 entries, and the first 2"),
    "nothing": (None, "Expected 2D array, got 'NoneType'"),
    "no columns": (ROWS[:, :0], r"0 feature\(s\)"),
}
# What single entries are: a private fit takes such rows for zero rows, and tells their owner.
OF_ENTRIES = (
    *("texts", "one text", "objects", "lists", "infinite", "under a mask"),
    *("a text in an array", "a list in an array", "a huge number", "several lengths"),
)


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda each: each.__name__)
def methods(request):
    """What takes rows: fit, partial_fit and that of a fitted model."""
    estimator = request.param
    options = {"epsilon": 30.0, "n_components": 2}
    known = inspect.signature(estimator).parameters
    make = lambda: estimator(**{name: value for name, value in options.items() if name in known})  # noqa: E731
    if not estimator.__name__.startswith("Federated"):
        both = [getattr(make(), name, None) for name in ("fit", "partial_fit")]
        fit, fitted = [method for method in both if method], make().fit(ROWS)
    else:
        other = lambda X: FRAME + 1.0 if hasattr(X, "columns") else ROWS + 1.0  # noqa: E731
        fit = [lambda X: make().fit({"a": X, "b": other(X)})]
        fitted = make().fit({"a": ROWS, "b": ROWS + 1.0})
    names = ("transform", "predict", "mahalanobis")
    private = "epsilon" in known
    return private, fit, next(getattr(fitted, name) for name in names if hasattr(fitted, name))


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
@pytest.mark.parametrize("what", BAD)
def test_no_estimator_leaves_the_words_to_numpy_or_scikit_learn(methods, what):
    X, said = BAD[what]
    private, fits, use = methods
    for method in (*fits, use):
        if private and method is not use and what in OF_ENTRIES:
            with pytest.warns(InvalidRowsWarning, match="left out") as told:
                method(X)
            words = "\n".join(str(each.message) for each in told)
            assert "secret" not in words
            assert ("Column 'weight': 60 of 60 entries are texts" in words) == (what == "texts")
            continue
        with pytest.raises(DataError, match=said) as caught:
            method(X)
        assert caught.value.code != "DataError"
        assert caught.value.hint
        assert "secret" not in str(caught.value)


def test_a_site_that_the_study_has_not_is_named():
    study = FederatedPCA(1).study_of({"north": ArrayRows(ROWS), "south": ArrayRows(ROWS + 1)})
    with pytest.raises(DataError, match="no site 'sauth'") as caught:
        FederatedPCA(1).fit_study(
            study, {"north": ArrayRows(ROWS), "sauth": ArrayRows(ROWS.copy())}
        )
    assert "'south'" in caught.value.hint
