"""Frames read with a schema are the rows of a file with the same columns."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_schema_rows import ROWS, SCHEMA, UNITS, table

from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.errors import DataError
from eigenveil.io import read_frame
from eigenveil.tables.adapters import adapter
from eigenveil.tables.schema import FORMAT, parse_schema


def values(rows):
    return np.concatenate([block.values for block in rows.blocks()])


def as_pandas():
    frame = table().to_pandas()
    frame["stage"] = pd.Categorical(frame["stage"])
    frame.index = [10, 20, 30, 40]
    return frame


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "no column 'age'"),
        (
            lambda f: f.assign(age=pd.array(["a", "b", "c", "d"], "string")),
            "'age' is .*string, and the schema says",
        ),
        (lambda f: pd.concat([f, f[["age"]]], axis=1), "more than one column 'age'"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        read_frame(change(as_pandas()), SCHEMA)


PEOPLE = parse_schema(
    {
        "format": FORMAT,
        "columns": [
            {"name": "who", "role": "unit"},
            {"name": "x", "kind": "number"},
            {"name": "c", "kind": "category", "levels": ["a", "b"]},
        ],
    }
)


def people(seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": np.repeat(np.arange(100), 3),
            "x": rng.normal(size=300),
            "c": rng.choice(["a", "b", "z"], 300),
        }
    )


def test_a_fit_of_a_frame_by_its_schema_protects_units_and_transforms():
    frame = people()
    model = PrivatePCA(1, epsilon=20.0).fit_rows(read_frame(frame, PEOPLE))
    assert list(model.feature_names_in_) == ["x", "c=a", "c=b"]
    assert model.certificate_.target.unit == "who"
    assert model.transform(read_frame(frame, PEOPLE).encoded()).shape == (300, 1)
    with pytest.raises(DataError, match="opened with unit 'who'"):
        PrivatePCA(1, unit="x").fit_rows(read_frame(frame, PEOPLE))


def test_sites_of_frames_take_the_schema_into_their_study():
    rows = {name: read_frame(people(n), PEOPLE) for n, name in enumerate("ab")}
    model = FederatedPCA(1, epsilon=4.0).fit_rows(rows)
    assert model.study_.table_schema == PEOPLE
    assert model.study_.unit == "who"
    assert model.certificate_.target.unit == "who"


def test_a_site_with_another_schema_is_refused_with_the_column(monkeypatch):
    category = {"name": "c", "kind": "category", "levels": ["a", "b", "z"]}
    columns = [*PEOPLE.as_dict()["columns"][:2], category]
    other = parse_schema({"format": FORMAT, "columns": columns})
    rows = {"a": read_frame(people(), PEOPLE), "b": read_frame(people(1), other)}
    monkeypatch.setattr("eigenveil.federation.ledger.ledger.Ledger.commit", None)
    with pytest.raises(DataError, match=r"site b: its schema .* column 'c': levels is") as caught:
        FederatedPCA(1, epsilon=4.0).fit_rows(rows)
    assert caught.value.code == "other-schema"
    assert getattr(caught.value, "spent", None) is None


# -- Frames of other libraries: lazy ones, Arrow tables, relations of DuckDB.


def relation(frame):
    import duckdb

    return duckdb.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "duckdb": relation,
}


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_a_frame_is_read_as_a_file_is(made):
    frame = made(as_pandas())
    rows = read_frame(frame, SCHEMA)
    np.testing.assert_array_equal(values(rows), ROWS)
    assert [unit for block in rows.blocks() for unit in block.units] == UNITS
    assert rows.names == SCHEMA.names
    encoded = rows.encoded()
    np.testing.assert_array_equal(np.asarray(encoded), ROWS)
    if isinstance(frame, pd.DataFrame | pl.DataFrame):
        assert type(encoded) is type(frame)
        assert list(encoded.columns) == list(SCHEMA.names)
    if isinstance(frame, pd.DataFrame):
        assert list(encoded.index) == [10, 20, 30, 40]
        assert read_frame(frame[:0], SCHEMA).encoded().shape == (0, 8)


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_frames_of_any_library_are_fitted_to_alike(made):
    frame = people()[["who", "x"]].assign(y=np.arange(300.0))
    options = {"n_components": 2, "epsilon": 5.0, "unit": "who", "random_state": 1}
    wanted = PrivatePCA(**options).fit(frame)
    model = PrivatePCA(**options).fit(made(frame))
    assert model.plan_ == wanted.plan_
    np.testing.assert_array_equal(model.components_, wanted.components_)
    assert list(model.feature_names_in_) == ["x", "y"]
    scores = wanted.transform(frame)
    np.testing.assert_array_equal(model.transform(made(frame)), scores)
    sites = {"a": made(frame), "b": made(frame[["who", "y", "x"]])}
    with pytest.raises(DataError, match="no column 'nobody'"):
        PrivatePCA(**{**options, "unit": "nobody"}).fit(made(frame))
    both = FederatedPCA(2, epsilon=5.0, unit="who", random_state=1).fit(sites)
    assert list(both.feature_names_in_) == ["x", "y"]


@pytest.mark.parametrize("made", [FRAMES["arrow"], FRAMES["polars"]], ids=["arrow", "polars"])
def test_long_identifiers_beside_missing_ones_stay_different(made):
    """As floats these two are one, and a third of the rows would count half."""
    frame = pd.DataFrame({"who": pd.array([2**60, 2**60 + 1, None], "Int64"), "x": [1.0, 2.0, 3.0]})
    _, ids = adapter(made(frame)).split("who")
    assert list(ids) == [2**60, 2**60 + 1, None]


@pytest.mark.parametrize("what", [np.zeros((3, 2)), [[1, 2]], "rows.csv", None])
def test_what_is_no_frame_is_refused(what):
    with pytest.raises(DataError, match="is no frame with named columns"):
        read_frame(what, SCHEMA)
