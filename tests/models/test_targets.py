"""Columns with the role of targets: what a covariance reads, and what follows by default."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from eigenveil import (
    FederatedCovariance,
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
)
from eigenveil.io import open_rows, read_frame
from eigenveil.models.derived.kinds import derive
from eigenveil.tables.schema import FORMAT, parse_schema, write_schema
from refusal_tools import refuses

RNG = np.random.default_rng(8)
COUNT = 2000


def schema_of(*columns):
    return parse_schema({"format": FORMAT, "columns": list(columns)})


GROUP = {"name": "kind", "kind": "category", "levels": ["a", "b", "c"], "role": "target"}
NUMBER = {"name": "cost", "kind": "number", "range": [-8, 8], "role": "target"}
FEATURES = [{"name": name, "kind": "number", "range": [-6, 6]} for name in "xyz"]
SCHEMA = schema_of(FEATURES[0], GROUP, *FEATURES[1:], NUMBER)


def table(count=COUNT, rng=RNG):
    kind = rng.integers(3, size=count)
    features = rng.standard_normal((count, 3)) + 2.0 * np.eye(3)[kind]
    cost = features @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(count)
    made = pd.DataFrame(features, columns=list("xyz")).assign(cost=cost)
    return made.assign(kind=np.array(["a", "b", "c"])[kind])


TABLE = table()


def fitted(schema=SCHEMA, frame=TABLE, **options):
    given = {"epsilon": 1e4, "delta": 1e-5, "scale": "private", "random_state": 1} | options
    with warnings.catch_warnings(action="ignore"):
        return PrivateCovariance(**given).fit_rows(read_frame(frame, schema))


MODEL = fitted(epsilon=1e3)


def test_targets_are_explained_by_default_and_explain_nothing():
    assert MODEL.feature_names_in_.tolist() == list(SCHEMA.names)
    ols, groups = MODEL.regression(), MODEL.discriminant()
    assert ols.labels_ == groups.labels_ == ("x", "y", "z")
    assert ols.new_names() == ["cost predicted"]
    assert groups.classes_.tolist() == ["a", "b", "c"]
    exact = LinearRegression().fit(TABLE[list("xyz")], TABLE["cost"])
    np.testing.assert_allclose(ols.coef_, exact.coef_, atol=0.1)
    assert groups.score(TABLE, TABLE["kind"]) > 0.7
    new = TABLE.drop(columns=["cost", "kind"])
    assert ols.predict(new).shape == (COUNT,)
    assert set(groups.predict(new)) <= {"a", "b", "c"}
    for kind, options in (("pca", {"n_components": 2}), ("factors", {"n_components": 1})):
        assert derive(MODEL, kind, **options).labels_ == ("x", "y", "z")
    assert MODEL.partial_correlation().labels_ == ("x", "y", "z")
    assert MODEL.pca(1, on=["x", "cost"]).labels_ == ("x", "cost")  # where they are named
    assert MODEL.regression("x", ["kind=a", "cost"]).labels_ == ("kind=a", "cost")


def test_several_numbers_are_explained_together():
    more = schema_of(*(column | {"role": "target"} for column in FEATURES[1:]), FEATURES[0], NUMBER)
    found = fitted(more, epsilon=1e3).regression()
    assert found.new_names() == ["y predicted", "z predicted", "cost predicted"]
    assert found.labels_ == ("x",)


def test_what_has_no_target_says_so():
    plain = [column | {"role": "feature"} for column in (GROUP, NUMBER)]
    two = GROUP | {"name": "other"}
    frame = TABLE.assign(other=TABLE["kind"])
    several = fitted(schema_of(*FEATURES, GROUP, two), frame)
    for model, kind, code in (
        (fitted(schema_of(*FEATURES, *plain)), "regression", "derive-no-target"),
        (fitted(schema_of(*FEATURES, *plain)), "discriminant", "derive-which-groups"),
        (fitted(schema_of(*FEATURES, NUMBER)), "discriminant", "derive-which-groups"),
        (several, "regression", "derive-no-target"),
        (several, "discriminant", "derive-which-groups"),
    ):
        with refuses(code):
            derive(model, kind)
    assert several.discriminant("other").score(frame, frame["other"]) > 0.7


@pytest.mark.parametrize("made", [PrivatePCA, PrivateGaussianMixture])
def test_other_models_refuse_targets_and_charge_nothing(made, monkeypatch):
    monkeypatch.setattr("eigenveil.models.driver.run_rounds", None)
    with refuses("no-target", "by a covariance only"):
        made(2).fit_rows(read_frame(TABLE, SCHEMA))


def test_studies_of_covariances_have_targets_and_others_refuse_them():
    rows = {name: read_frame(TABLE[at::2], SCHEMA) for at, name in enumerate("ab")}
    model = FederatedCovariance(epsilon=30.0, delta=1e-5, scale="private").fit_rows(rows)
    assert model.study_.table_schema == SCHEMA
    assert any("level of 'kind'" in note for note in model.study_.notes)
    counts = model.location_[list(SCHEMA.groups[0])]
    shares = TABLE["kind"].value_counts(normalize=True).sort_index()
    error = model._result.factors.mean_error[list(SCHEMA.groups[0])]
    assert np.all(np.abs(counts - shares) < 6.0 * error)  # by chance once in 1e8
    assert model.regression().new_names() == ["cost predicted"]
    with refuses("no-target"):
        FederatedPCA(2, epsilon=1.0).fit_rows(rows)


def test_the_commands_take_targets_by_the_schema(tmp_path, run):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    write_schema(SCHEMA, tmp_path / "s.toml")
    schema = ("--schema", tmp_path / "s.toml")
    assert run("schema", "check", tmp_path / "t.csv", *schema)[0] == 0
    common = (*schema, "--epsilon", "30", "--scale", "private", "--one-row-per-person")
    fit = ("fit", tmp_path / "t.csv", *common, "--no-ledger", "--no-plots", "--quiet")
    status, _, err = run(*fit, "--components", "1", "--out", tmp_path / "pca")
    assert (status, "'kind', 'cost'" in err) == (3, True)
    assert not (tmp_path / "pca").exists()
    assert run(*fit, "--task", "covariance", "--out", tmp_path / "fit")[0] == 0
    assert "targets" in run("show", tmp_path / "fit")[1]
    for kind in ("regression", "discriminant"):
        run.done("derive", tmp_path / "fit", kind, "--out", tmp_path / kind)
    for task, wanted in (("covariance", 0), ("pca", 3)):
        words = ("study", "new", tmp_path / f"{task}.toml", "--task", task, *common)
        more = ("--components", "1") if task == "pca" else ()
        status, _, err = run(*words, *more, "--site", "north", "--site", "south")
        assert status == wanted, err
        assert (tmp_path / f"{task}.toml").exists() == (wanted == 0)
    words = ("fit", "--study", tmp_path / "covariance.toml", "--out", tmp_path / "both", "--quiet")
    sites = [f"--site={name}={tmp_path / 't.csv'}" for name in ("north",)]
    TABLE.to_csv(tmp_path / "u.csv", index=False)
    run.done(*words, *sites, f"--site=south={tmp_path / 'u.csv'}")
    run.done("derive", tmp_path / "both", "regression", "--out", tmp_path / "again")
    assert open_rows([tmp_path / "t.csv"], schema=SCHEMA).names == SCHEMA.names


# -- Categories apart from the features.


def test_counts_and_means_of_groups_are_exact_however_long_rows_are():
    """Rows shortened to a fifth of their length: counts keep theirs, jointly shortened ones not."""
    frame = TABLE.assign(**{name: 5.0 * TABLE[name] for name in "xyz"})
    plain = [{**column, "range": None} for column in FEATURES]
    plain = [{name: value for name, value in each.items() if value} for each in plain]
    found = {}
    for role in ("feature", "target"):
        schema = schema_of(*plain, GROUP | {"role": role})
        found[role] = fitted(schema, frame, scale=None, row_bound=2.0, center=False)
    exact = frame["kind"].value_counts(normalize=True).sort_index().to_numpy()
    np.testing.assert_allclose(found["target"].location_[3:], exact, atol=1e-3)
    assert found["target"].plan_.apart is not None
    assert found["target"].row_bound_ == pytest.approx(2.0)
    assert found["feature"].plan_.apart is None
    rows = frame[list("xyz")].to_numpy()
    short = rows * np.minimum(1.0, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
    means = [short[frame["kind"] == level].mean(axis=0) for level in "abc"]
    np.testing.assert_allclose(found["target"].discriminant().means_, means, atol=0.02)
    diagonal = np.diag(found["target"].covariance_)[3:]
    np.testing.assert_allclose(diagonal, exact, atol=0.01)  # about 0: center=False
    assert np.diag(found["feature"].covariance_)[3:].max() < 0.9 * exact.min()


def exact_of(frame, schema):
    return np.cov(read_frame(frame, schema).encoded().to_numpy().T, ddof=0)


@pytest.mark.parametrize("options", [{}, {"scale": None}, {"unit": True}, {"precision": "single"}])
def test_the_covariance_of_levels_is_in_the_data_units(options):
    options, schema, frame = dict(options), SCHEMA, TABLE
    if options.pop("unit", False):
        who = {"name": "who", "role": "unit"}
        schema = schema_of(*(column.as_dict() for column in SCHEMA.columns), who)
        frame = TABLE.assign(who=np.arange(COUNT) // 2)
        options["max_rows_per_unit"] = 2
    model = fitted(schema, frame, **options)
    np.testing.assert_allclose(model.covariance_, exact_of(frame, schema), atol=0.06)
    assert not model.unscaled_.any()
    assert "groups.md" in model.certificate_.proofs
    assert any("levels" in each for each in model.guarantee_.assumptions)
    bars = model.intervals(1 - 1e-9)
    places = list(schema.groups[0])
    means, shares = bars["mean"], frame["kind"].value_counts(normalize=True).sort_index()
    assert np.all(means.lower[places] <= shares)
    assert np.all(shares <= means.upper[places])
    held, shown = model.compare(frame).held.get("covariance", (1, 1))  # of units there are none
    assert held >= 0.8 * shown


def test_levels_that_nobody_knows_are_in_no_group_and_missing_ones_leave_the_row_out():
    odd = TABLE.copy()
    odd.loc[:199, "kind"] = "unknown"
    odd.loc[200:399, "kind"] = None
    for missing, rows in (("leave-out", COUNT - 200), ("zero", COUNT)):
        model = fitted(frame=odd, missing=missing)
        assert model.n_samples_ == pytest.approx(rows, abs=6)
        counts = model.location_[list(SCHEMA.groups[0])] * model.n_samples_
        known = odd["kind"].value_counts().loc[list("abc")]
        np.testing.assert_allclose(counts, known, atol=6.0)


def test_what_cannot_be_beside_groups_is_refused_before_a_fit(monkeypatch):
    monkeypatch.setattr("eigenveil.models.driver.run_rounds", None)
    for missing in ("independent", "pairs"):
        with refuses("holes-of-groups"):
            PrivateCovariance(missing=missing).fit_rows(read_frame(TABLE, SCHEMA))
    many = [GROUP | {"name": f"g{number}"} for number in range(17)]
    frame = TABLE.assign(**{each["name"]: TABLE["kind"] for each in many})
    with refuses("too-many-groups"):
        PrivateCovariance().fit_rows(read_frame(frame, schema_of(*FEATURES, *many)))


def test_saved_and_loaded_covariances_have_their_groups_apart(tmp_path):
    MODEL.save(tmp_path / "m.npz")
    again = PrivateCovariance.load(tmp_path / "m.npz")
    assert again.plan_ == MODEL.plan_
    np.testing.assert_array_equal(again.discriminant().coef_, MODEL.discriminant().coef_)
    assert again.certificate_.plan["groups"] == [[1, 2, 3]]


def test_targets_that_are_not_public_or_there_twice_are_refused_before_a_fit(monkeypatch):
    monkeypatch.setattr("eigenveil.models.driver.run_rounds", None)
    seen = schema_of(*FEATURES, GROUP | {"confirmed": False})
    for change, code in (
        (lambda: read_frame(TABLE, seen), "unconfirmed-schema"),
        (lambda: schema_of(*FEATURES, NUMBER, NUMBER | {"role": "feature"}), "bad-schema"),
        (lambda: schema_of(*FEATURES, {**GROUP, "levels": []}), "category-without-levels"),
        (
            lambda: read_frame(TABLE, schema_of(*FEATURES, GROUP | {"levels": ["a"]})),
            "target-one-level",
        ),
    ):
        with refuses(code):
            change()
    with refuses("derive-column-twice"):
        MODEL.regression("cost", on=["x", "cost"])
    with refuses("derive-no-groups", "two words"):
        MODEL.discriminant("cost")
