"""Models take tables as their fit did: the result carries the schema that encodes them."""

import datetime
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression

from eigenveil import (
    FederatedCovariance,
    PrivateCovariance,
    PrivatePCA,
    load_derived,
)
from eigenveil.errors import PrivacyError
from eigenveil.io import read_frame
from eigenveil.tables.schema import FORMAT, parse_schema, write_schema
from refusal_tools import refuses

RNG = np.random.default_rng(5)
COUNT = 3000


def table(count=COUNT, rng=RNG):
    kind = rng.integers(3, size=count)
    smokes = rng.random(count) < 0.4
    days = rng.integers(0, 60, count)
    size = rng.standard_normal(count) + np.array([0.0, 3.0, -3.0])[kind] + smokes + days / 30.0
    return pd.DataFrame(
        {
            "who": [f"p{at}" for at in range(count)],
            "size": size,
            "kind": np.array(["a", "b", "c"])[kind],
            "smokes": np.where(smokes, "yes", "no"),
            "seen": [datetime.date(2020, 1, 1) + datetime.timedelta(int(day)) for day in days],
            "note": "?",
        }
    )


SCHEMA = parse_schema(
    {
        "format": FORMAT,
        "columns": [
            {"name": "who", "role": "identifier"},
            {"name": "size", "kind": "number", "range": [-8, 12]},
            {"name": "kind", "kind": "category", "levels": ["a", "b", "c"]},
            {"name": "smokes", "kind": "boolean"},
            {
                "name": "seen",
                "kind": "date",
                "origin": "2020-01-01",
                "range": ["2020-01-01", "2020-03-01"],
            },
            {"name": "note", "role": "ignore"},
        ],
    }
)
TABLE = table()
ENCODED = read_frame(TABLE, SCHEMA).encoded()


def fitted(schema=SCHEMA, frame=TABLE, **options):
    given = {"epsilon": 1e4, "delta": 1e-5, "scale": "private", "random_state": 1} | options
    return PrivateCovariance(**given).fit_rows(read_frame(frame, schema))


MODEL = fitted()
OLS = MODEL.regression("size", ["seen", "smokes", "kind=b", "kind=c"])
GROUPS = MODEL.discriminant("kind")
FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("left_out", [[], ["size", "who", "note"]])
def test_a_table_is_encoded_as_the_rows_of_the_fit_were(made, left_out):
    wanted = OLS.predict(ENCODED[list(OLS.labels_)])
    frame = made(TABLE.drop(columns=left_out))
    np.testing.assert_allclose(OLS.predict(frame), wanted, rtol=1e-12)
    exact = LinearRegression().fit(ENCODED[list(OLS.labels_)], ENCODED["size"])
    np.testing.assert_allclose(wanted, exact.predict(ENCODED[list(OLS.labels_)]), atol=0.3)


def test_encoded_frames_and_arrays_are_taken_as_they_are():
    wanted = OLS.predict(TABLE)
    for given in (ENCODED, ENCODED[list(OLS.labels_)], ENCODED.to_numpy()):
        np.testing.assert_array_equal(OLS.predict(given), wanted)
    mixed = TABLE.drop(columns="kind").join(ENCODED[["kind=b", "kind=c"]])
    np.testing.assert_array_equal(OLS.predict(mixed), wanted)


def test_the_covariance_and_other_models_take_a_table_too():
    np.testing.assert_array_equal(MODEL.mahalanobis(TABLE), MODEL.mahalanobis(ENCODED))
    pca = PrivatePCA(2, epsilon=50.0, scale="private").fit_rows(read_frame(TABLE, SCHEMA))
    np.testing.assert_array_equal(pca.transform(TABLE), pca.transform(ENCODED))


def test_groups_are_told_by_their_levels():
    found = GROUPS.predict(TABLE.drop(columns="kind"))
    assert set(found) == {"a", "b", "c"}
    assert GROUPS.score(TABLE, TABLE["kind"]) == np.mean(found == TABLE["kind"].to_numpy())
    assert GROUPS.score(TABLE, TABLE["kind"]) > 0.8


def test_a_categorys_name_stands_for_its_levels():
    named = MODEL.regression("size", ["kind", "smokes"])
    levels = MODEL.regression("size", ["kind=a", "kind=b", "kind=c", "smokes"])
    np.testing.assert_array_equal(named.coef_, levels.coef_)
    assert MODEL.cca("kind", ["size", "seen"]).labels_[:3] == ("kind=a", "kind=b", "kind=c")
    with refuses("derive-no-column"):
        MODEL.regression("kind", ["size"])
    with refuses("derive-column-twice"):
        MODEL.discriminant("kind", on=["kind", "size"])


def test_missing_entries_give_no_number_and_no_group():
    odd = TABLE[:4].copy()
    odd["smokes"] = ["NA", "maybe", None, "no"]
    found = OLS.predict(odd)
    assert list(np.isnan(found)) == [True, True, True, False]
    assert np.isnan(GROUPS.predict_proba(odd)).any(axis=1).tolist() == [True, True, True, False]
    with refuses("not-finite", "smokes"):
        GROUPS.predict(odd)
    odd = TABLE[:2].copy()
    odd["kind"] = ["z", "a"]  # a level that nobody knows: zeros, as in the fit
    np.testing.assert_allclose(*(OLS.predict(f)[:2] for f in (odd, odd.assign(kind=["a", "a"]))))


def test_a_table_without_a_column_is_refused_by_the_name_it_has_there():
    for frame in (TABLE.drop(columns="kind"), pl.from_pandas(TABLE.drop(columns="kind"))):
        with refuses("frame-without-column", "'kind'"):
            OLS.predict(frame)
    with refuses("frame-without-column"):
        OLS.predict(
            TABLE.assign(seen=5.0 * np.arange(COUNT)).assign(smokes=[b""] * COUNT).iloc[:, :2]
        )


def test_saved_models_keep_the_schema_and_no_other_one_passes_for_it(tmp_path):
    OLS.save(tmp_path / "ols")
    again = load_derived(tmp_path / "ols")
    assert again.schema_ == SCHEMA
    np.testing.assert_array_equal(again.predict(TABLE), OLS.predict(TABLE))
    place = tmp_path / "ols" / "model.npz"
    with np.load(place) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays.pop("header")[()]))
    header["schema"]["columns"][4]["origin"] = "2021-01-01"
    np.savez(place.open("wb"), header=np.array(json.dumps(header)), **arrays)
    with refuses("model-changed", kind=PrivacyError):
        load_derived(tmp_path / "ols")


def test_sites_hand_on_the_schema_of_their_study():
    sites = {"a": TABLE[:1500], "b": TABLE[1500:]}
    rows = {name: read_frame(frame, SCHEMA) for name, frame in sites.items()}
    model = FederatedCovariance(epsilon=30.0, delta=1e-5, scale="private").fit_rows(rows)
    assert model.schema_ == SCHEMA
    assert model.discriminant("kind").score(TABLE, TABLE["kind"]) > 0.8


def test_the_command_reads_the_tables_own_columns(tmp_path, run):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    TABLE.drop(columns=["kind", "note"]).to_csv(tmp_path / "new.csv", index=False)
    write_schema(SCHEMA, tmp_path / "schema.toml")
    fit = ("fit", tmp_path / "t.csv", "--schema", tmp_path / "schema.toml", "--task", "covariance")
    more = ("--epsilon", "500", "--scale", "private", "--no-ledger", "--one-row-per-person")
    assert run(*fit, *more, "--out", tmp_path / "fit", "--no-plots", "--quiet")[0] == 0
    words = ("discriminant", "--group", "kind", "--out", tmp_path / "lda")
    assert run("derive", tmp_path / "fit", *words)[0] == 0
    for out in ("p.csv", "p.parquet", "p.npy"):
        run.done("transform", tmp_path / "lda", tmp_path / "new.csv", "--out", tmp_path / out)
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["who", "P(a)", "P(b)", "P(c)", "likeliest"]
    assert np.mean(found["likeliest"] == TABLE["kind"]) > 0.8
    assert (
        pd.read_parquet(tmp_path / "p.parquet")["likeliest"].tolist() == found["likeliest"].tolist()
    )
    numbers = np.load(tmp_path / "p.npy")[:, -1].astype(int) - 1
    assert (np.array(list("abc"))[numbers] == found["likeliest"]).all()
    odd = TABLE[:3].assign(size=["1.5", "n/a", "1.5"]).drop(columns="kind")
    odd.to_csv(tmp_path / "odd.csv", index=False)
    for out, none in (("o.csv", ""), ("o.parquet", ""), ("o.npy", 0)):
        words = ("transform", tmp_path / "lda", tmp_path / "odd.csv", "--out", tmp_path / out)
        assert run(*words)[0] == 0
        kind = out.rpartition(".")[2]
        read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "npy": np.load}[kind]
        table = pd.DataFrame(
            read(tmp_path / out, **({"keep_default_na": False} if kind == "csv" else {}))
        )
        assert [value == none for value in table.iloc[:, -1]] == [False, True, False]
    words = ("regression", "--target", "size", "--on", "kind=c,smokes", "--out", tmp_path / "ols")
    assert run("derive", tmp_path / "fit", *words)[0] == 0
    err = run.fails(
        "transform", tmp_path / "ols", tmp_path / "new.csv", "--out", tmp_path / "q.csv"
    )
    assert "'kind'" in err
    assert not (tmp_path / "q.csv").exists()
    run.done("transform", tmp_path / "ols", tmp_path / "t.csv", "--out", tmp_path / "q.csv")
    model = load_derived(tmp_path / "ols")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "q.csv").iloc[:, -1], model.predict(TABLE))
    turned = parse_schema({**SCHEMA.as_dict(), "columns": SCHEMA.as_dict()["columns"][::-1]})
    write_schema(turned, tmp_path / "turned.toml")
    found = {}
    for schema in ("schema.toml", "turned.toml"):
        words = (tmp_path / "fit", tmp_path / "t.csv", "--schema", tmp_path / schema)
        said = run.done("compare", *words, "--json")
        found[schema] = said
    assert found["turned.toml"] == found["schema.toml"]
