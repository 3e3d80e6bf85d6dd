"""Rows that belong to nobody are dropped without a word, or the world is told how many."""

import json
import warnings

import numpy as np
import pytest

from eigenveil import FederatedPCA, InvalidRowsWarning, PrivatePCA, PrivateStreamingPCA

SAID = "3 rows have no identifier of a unit and did not count"


@pytest.fixture
def table():
    rows = np.random.default_rng(0).standard_normal((400, 4))
    patients = np.array([f"p{i // 2}" for i in range(400)], dtype=object)
    patients[[3, 50, 51]] = None
    return rows, patients


def texts(caught):
    return [str(each.message) for each in caught if each.category is InvalidRowsWarning]


def test_the_owner_of_a_table_is_informed_and_nobody_else(table, tmp_path):
    rows, patients = table
    model = PrivatePCA(2, epsilon=4.0)
    with pytest.warns(InvalidRowsWarning) as caught:
        model.fit(rows, groups=patients)
    assert texts(caught) == [f"{SAID}."]
    model.save(tmp_path / "model.npz")
    assert b"identifier of a unit" not in (tmp_path / "model.npz").read_bytes()
    assert "did not count" not in json.dumps(model.certificate_.model_dump(mode="json"))
    kept = {name: value for name, value in vars(model).items() if value == 3}
    assert kept == {}


def test_each_row_that_is_wrong_is_told_of(table):
    rows, patients = table
    rows[7, 2] = np.nan
    with pytest.warns(InvalidRowsWarning) as caught:
        PrivatePCA(2, epsilon=4.0).fit(rows, groups=patients)
    (text,) = texts(caught)
    assert text.startswith("1 row is not valid and was left out: row index 7, column index 2 (from")
    assert f"{SAID}. By rule, missing='leave-out'" in text


def test_a_table_of_which_every_row_has_a_unit_is_silent(table):
    rows, _ = table
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidRowsWarning)
        PrivatePCA(2, epsilon=4.0).fit(rows, groups=np.arange(400) // 2)


def test_a_site_s_owner_is_informed_by_the_site_s_name(table):
    rows, patients = table
    other = np.random.default_rng(1).standard_normal((300, 4))
    with pytest.warns(InvalidRowsWarning) as caught:
        FederatedPCA(2, epsilon=4.0).fit(
            {"north": rows, "south": other}, groups={"north": patients, "south": np.arange(300)}
        )
    assert texts(caught) == [f"site north: {SAID}."]


def test_a_stream_informs_of_each_block(table):
    rows, patients = table
    stream = PrivateStreamingPCA(2, epsilon=4.0, unit="patient", max_rows_per_unit=2)
    with pytest.warns(InvalidRowsWarning) as caught:
        stream.partial_fit(rows, groups=patients)
    assert texts(caught) == [f"{SAID}."]
