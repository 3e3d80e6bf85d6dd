"""What is wrong with a column is said by its name, and no entry is quoted."""

import numpy as np
import pandas as pd
import pytest

from eigenveil import DataError, FederatedPCA, PrivatePCA
from eigenveil.moments.source import ArrayRows

ROWS = np.random.default_rng(0).normal(size=(60, 2))
FRAME = pd.DataFrame(ROWS, columns=["age", "weight"])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.assign(diagnosis="secret"),
        FRAME.assign(diagnosis=pd.Timestamp("2020-01-01")),
        FRAME.assign(diagnosis=pd.Categorical(["secret"] * 60)),
        FRAME.assign(diagnosis=[{"secret": 1}] * 60),
    ],
)
def test_a_column_without_numbers_is_named(frame):
    with pytest.raises(DataError, match="Column 'diagnosis' has entries that are no") as caught:
        PrivatePCA(1).fit(frame)
    assert caught.value.code == "not-numeric"
    assert "secret" not in str(caught.value)


def test_columns_of_an_array_are_counted_from_1():
    with pytest.raises(DataError, match="Column 2 has entries"):
        PrivatePCA(1).fit(np.array([["1", "a"], ["2", "b"]]))


def test_new_rows_are_checked_alike():
    model = PrivatePCA(1, epsilon=30.0).fit(FRAME)
    with pytest.raises(DataError, match="Column 'weight'"):
        model.transform(FRAME.assign(weight="secret"))


def test_a_site_that_the_study_has_not_is_named():
    study = FederatedPCA(1).study_of({"north": ArrayRows(ROWS), "south": ArrayRows(ROWS + 1)})
    with pytest.raises(DataError, match="'sauth' is not in the study") as caught:
        FederatedPCA(1).fit_study(
            study, {"north": ArrayRows(ROWS), "sauth": ArrayRows(ROWS.copy())}
        )
    assert "north, south" in caught.value.hint
