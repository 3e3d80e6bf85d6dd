"""What every model does, however its rows come: fit, certify, save, load, clone, refuse.

One suite over all estimators of the registry; what is a model's own stands in its own file.
"""

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

import eigenveil
from eigenveil import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    OutputError,
    PrivacyError,
    WeakPrivacyWarning,
    share_budget,
)
from eigenveil.federation.protocol.certificates import check
from eigenveil.models import rounds
from eigenveil.models.shapes import rehearse
from eigenveil.models.task import TASKS, task_of_plan
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import mu_of_epsilon
from eigenveil.privacy.statistics import STATISTICS
from results_tools import shown_by

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((900, 6)) * [6, 4, 1, 1, 1, 1]
WORDS = RNG.multinomial(20, np.repeat(np.eye(3), 2, axis=1)[RNG.integers(3, size=900)] / 2)
KINDS = {
    task.estimator(path).__name__: (task, path)
    for task in TASKS.values()
    for path in task.estimators
    if path != "tracking"  # which is not private
}


TABLES = [name for name, (_, path) in KINDS.items() if path == "table"]


def rows_of(task, path):
    rows = WORDS if task.takes_documents else ROWS
    sites = {"north": rows[:400], "south": rows[400:600], "west": rows[600:]}
    return sites if path == "sites" else rows


def new(name, **options):
    kind = getattr(eigenveil, name)
    return kind(**{"epsilon": 8.0, "delta": 1e-6} | options)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return new(request.param).fit(rows_of(*KINDS[request.param]))


@pytest.fixture
def task(fitted):
    return KINDS[type(fitted).__name__][0]


# What each estimator is fitted with beside its defaults; every model's, and a few of its own.
ASKED = [{}, {"epsilon": 0.5, "delta": 1e-9}, {"adjacency": "replace-one"}, {"delta": 0.0}]
OWN = {
    "PrivatePCA": [{"mechanism": each, "delta": 0.0} for each in ("vector", "bingham", "power")]
    + [{"mechanism": each} for each in ("gaussian", "sketch", "power")]
    + [{"n_components": 0.8}, {"n_components": "auto", "whiten": True}, {"row_norm": "auto"}]
    + [{"center": False, "row_bound": 30.0}, {"scale": "private"}],
    "PrivateGaussianMixture": [
        {"center": False},
        {"row_bound": 30.0},
        {"mechanism": "vector"},
        {"pair": "sketch"},
        *({"n_components": 2, "covariance_type": each} for each in ("diag", "full", "tied")),
        {"noise_variance": 1.0, "center": np.full(6, 0.25), "n_components": 3},
        {"n_components": 2, "pair": "sketch", "delta": 0.0},
    ],
    "PrivateTopicModel": [
        {"clip_documents": False},
        {"alpha0": 1.0},
        {"mechanism": "vector"},
        {"pair": "sketch", "delta": 0.0},
        {"n_components": 3, "clip_documents": False, "budget_split": {"moment": 1, "tensor": 3}},
    ],
    "PrivateCovariance": [{"row_bound": 30.0}, {"center": False}, {"scale": "private"}],
    "FederatedPCA": [{"protocol": each} for each in ("sketch", "dpdispca", "full", "local")],
    "PrivateStreamingPCA": [{"publish": "continual", "horizon": 4}, {"publish": "blocks"}],
}
FITS = [(name, options) for name in KINDS for options in ASKED + OWN.get(name, [])]


@pytest.mark.parametrize(("name", "options"), FITS, ids=str)
def test_a_fit_spends_what_was_asked_and_its_certificate_holds(name, options, tmp_path):
    task, path = KINDS[name]
    model = new(name, **options).fit(rows_of(task, path))
    asked = {"epsilon": 8.0, "delta": 1e-6} | options
    guarantee, certificate = model.guarantee_, model.certificate_
    verdict = check(certificate)
    assert verdict.word == "VALID", verdict.explanation
    assert verdict.guarantee == guarantee
    assert guarantee.certified
    assert guarantee.adjacency == asked.get("adjacency", "add-remove")
    assert guarantee.epsilon <= asked["epsilon"]
    assert guarantee.delta <= asked["delta"]
    if certificate.stopped is None:
        assert guarantee.epsilon > 0.999 * asked["epsilon"]
    plan = model.plan_
    assert plan.hash == certificate.plan_hash
    assert task_of_plan(plan) is task
    if path != "sites":  # settled before any row is read
        made = task.make_plan(
            model._options(), features=6, **({"variables": 6} if plan.finds_scales else {})
        )
        assert made == plan
    names = [each.name for each in plan.schedule]
    assert len(set(names)) == len(names)
    for step in plan.fractions:  # nothing is paid for that is not released
        assert sum(e.fraction for e in plan.schedule if e.step == step) == pytest.approx(1.0)
    planned = plan.schedule[: len(certificate.releases)]
    assert bool(certificate.stopped) == (len(planned) < len(plan.schedule))
    for record, each in zip(certificate.releases, planned, strict=True):
        assert (record.name, record.noise.kind) == (each.name, plan.noises[each.step].name)
        assert record.adjacency == plan.adjacency
    if path == "table" and certificate.stopped is None:
        for record, planned in zip(
            certificate.releases, rehearse(plan, plan.budgets, {}), strict=True
        ):
            assert planned.name == record.name
            assert planned.noise.size >= record.noise.size  # of a tensor the most that it can be
            if planned.noise.size == record.noise.size:
                worst = planned.noise.scale * (1 + 1e-9)
                assert 0.9 * worst < record.noise.scale <= worst
    model.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    np.testing.assert_equal(again.get_params(), model.get_params())
    for attribute, value in shown_by(again).items():
        np.testing.assert_equal(value, getattr(model, attribute))
    if asked["delta"] == 0:
        assert guarantee.delta == 0.0
        assert guarantee.mu is None
        assert all(record.mechanism.pure for record in certificate.releases)
    elif path == "table" and certificate.stopped is None and not plan.mixed:
        spent = math.hypot(*(record.mu() for record in certificate.releases))
        assert 0.999 < spent / mu_of_epsilon(asked["epsilon"], asked["delta"]) <= 1.0
        assert guarantee.mu == pytest.approx(spent)


def test_a_saved_fit_comes_back_whole(fitted, tmp_path):
    file = tmp_path / "model.npz"
    fitted.save(file)
    again = type(fitted).load(file)
    assert again.certificate_ == fitted.certificate_
    assert again.plan_ == fitted.plan_
    assert again.plan_.schedule == fitted.plan_.schedule
    before, after = shown_by(fitted), shown_by(again)
    for name in after:
        np.testing.assert_equal(after[name], before[name])
    own = {"traffic_", "study_", "choice_", "missing_", "blocks_"}  # of the run, not of the result
    assert after.keys() == before.keys() - own
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()
    for other in (again, pickle.loads(pickle.dumps(fitted)), clone(fitted)):
        np.testing.assert_equal(other.get_params(), fitted.get_params())
    with pytest.raises(OutputError):
        fitted.save(file / "model.npz")
    assert not shown_by(clone(fitted))
    with pytest.raises(NotFittedError):
        clone(fitted).save("nowhere.npz")


def test_the_released_sums_are_kept_on_their_grids(fitted):
    records = {record.name: record for record in fitted.certificate_.releases}
    released = fitted.released_
    assert list(released) == list(records)
    for name, values in released.items():
        record = records[name]
        assert values.dtype == np.float64
        assert not values.flags.writeable
        steps = np.ldexp(values, -record.noise.grid)
        assert np.array_equal(steps, np.rint(steps)), name
        if record.mechanism.added:
            assert values.size == record.noise.size
            flat = STATISTICS[record.statistic].layout != "matrix"
            assert not flat or values.ndim == 1


@pytest.mark.parametrize("change", ["another value", "one less", "one more", "none"])
def test_a_file_with_other_sums_is_refused(fitted, change, tmp_path):
    fitted.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as stored:
        arrays = dict(stored)
    name = next(each for each in arrays if each.startswith("released: "))
    if change == "another value":
        arrays[name] = arrays[name] + 1.0
    elif change == "one less":
        arrays[name] = arrays[name][:-1]
    elif change == "one more":
        arrays["released: another"] = arrays[name]
    else:
        del arrays[name]
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises((PrivacyError, DataError)) as caught:
        type(fitted).load(tmp_path / "other.npz")
    assert caught.value.code in ("model-changed", "not-a-model", "DataError")


def test_of_what_is_larger_the_spectrum_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "MOST_KEPT", 12)
    monkeypatch.setattr("eigenveil.models.certify.MOST_KEPT", 12)
    model = new("PrivatePCA", mechanism="gaussian", row_bound=20.0).fit(ROWS)
    values = model.released_["second moment"]
    assert values.shape == (6,)
    assert np.all(np.diff(values) <= 0)
    sketched = new("PrivatePCA", mechanism="sketch", row_bound=20.0, sketch_size=4).fit(ROWS)
    assert sketched.released_["sketch"].shape == (4,)
    assert "scale" not in new("PrivatePCA").fit(ROWS).released_  # a long vector has no spectrum
    model.save(tmp_path / "model.npz")
    again = eigenveil.PrivatePCA.load(tmp_path / "model.npz")
    assert np.array_equal(again.released_["second moment"], values)


def test_the_parameters_are_documented(fitted):
    text = type(fitted).__doc__
    for name in fitted.get_params():
        assert f"    {name} : " in text
    assert "{options}" not in text


@pytest.mark.parametrize("name", [each for each in KINDS if each not in TABLES])
def test_a_seeded_fit_is_repeatable_and_not_certified(name):
    rows = rows_of(*KINDS[name])
    one, other = (new(name, random_state=3).fit(rows) for _ in range(2))
    for release, values in one.released_.items():
        assert np.array_equal(values, other.released_[release])
    assert not one.guarantee_.certified


@pytest.mark.parametrize("name", TABLES)
def test_a_result_of_another_kind_is_no_model_of_this(name, tmp_path):
    task, path = KINDS[name]
    file = tmp_path / "model.npz"
    new(name).fit(rows_of(task, path)).save(file)
    for other in KINDS:
        if other != name:
            with pytest.raises(DataError):
                getattr(eigenveil, other).load(file)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError):
        getattr(eigenveil, name).load(file)
    with pytest.raises(OutputError):
        getattr(eigenveil, name).load(tmp_path / "absent.npz")


# -- rows, however they are given


@pytest.mark.parametrize("name", TABLES)
def test_the_same_rows_in_another_form_are_the_same_fit(name):
    task, _ = KINDS[name]
    rows = np.rint(rows_of(task, "table")).astype(np.int64)
    fit = lambda given: new(name, random_state=3).fit(given).released_  # noqa: E731
    first = fit(rows)
    assert not new(name, random_state=3).fit(rows).guarantee_.certified
    forms = {
        "order": rows[np.random.default_rng().permutation(len(rows))],
        "floats": rows.astype(float),
        "small integers": rows.astype(np.int8),
        "objects": rows.astype(object),
        "lists": rows.tolist(),
        "sparse": scipy.sparse.csr_array(rows),
        "columns": scipy.sparse.csc_matrix(rows),
        "coordinates": scipy.sparse.coo_array(rows),
        "pandas": pd.DataFrame(rows),
        "polars": pl.DataFrame(rows, schema=list("abcdef")),
    }
    for what, form in forms.items():
        again = fit(form)
        for release, values in first.items():
            assert np.array_equal(again[release], values), (what, release)


@pytest.mark.parametrize("name", TABLES)
def test_rows_read_in_blocks_are_the_same_fit(name):
    task, path = KINDS[name]
    rows, told = rows_of(task, path).astype(float), []
    model = new(name, random_state=3)
    source = ArrayRows(rows, names=list("abcdef"))
    model.fit_rows(source, progress=lambda release, count: told.append((release, count)))
    whole = new(name, random_state=3).fit(pd.DataFrame(rows, columns=list("abcdef")))
    for each in (model, whole):
        assert list(each.feature_names_in_) == list("abcdef")
    for release, values in whole.released_.items():
        assert np.array_equal(model.released_[release], values)
    last = told[-1][0]
    assert last.split(", ")[-1] == whole.certificate_.releases[-1].name
    assert sum(count for release, count in told if release == last) == len(rows)


@pytest.mark.parametrize("name", [each for each in TABLES if hasattr(new(each), "set_output")])
def test_frames_in_frames_out(name):
    task, path = KINDS[name]
    frame = pd.DataFrame(rows_of(task, path), columns=list("abcdef"))
    model = new(name).set_output(transform="pandas").fit(frame)
    scores = model.transform(frame)
    assert list(scores.columns) == list(model.get_feature_names_out())
    assert scores.columns[0] == f"{name.lower()}0"
    model.set_output(transform="polars")
    assert isinstance(model.transform(pl.from_pandas(frame)), pl.DataFrame)


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_changes_neither_parameters_nor_rows(name):
    task, path = KINDS[name]
    rows = rows_of(task, path)
    before = pickle.dumps(rows)
    options = {"center": np.zeros(6)} if task.has("center", path) else {}
    if task.has("budget_split", path):
        options["budget_split"] = dict.fromkeys(new(name, **options).fit(rows).plan_.fractions, 1)
    model = new(name, **options)
    asked = model.get_params()
    model.fit(rows)
    assert all(model.get_params()[each] is value for each, value in asked.items())
    assert pickle.dumps(rows) == before
    with pytest.raises(ValueError, match="Invalid parameter 'nothing'"):
        model.set_params(nothing=1)


@pytest.mark.parametrize("name", TABLES)
def test_one_table_is_a_study_with_one_site(name):
    task, path = KINDS[name]
    rows, options = rows_of(task, path), {"random_state": 3}
    one = new(name, **options).fit(rows)
    kind = task.estimator("sites")
    study = kind(epsilon=8.0, delta=1e-6, protocol="local", **options).fit({"only": rows})
    assert [each.noise for each in one.certificate_.releases] == [
        each.noise for each in study.certificate_.releases
    ]
    for release, values in one.released_.items():
        assert np.array_equal(study.released_[release], values)


REFUSED = [
    ("PrivatePCA", {"n_components": 7}, "too-many-components"),
    ("PrivatePCA", {"row_bound": 1.0, "row_norm": "auto"}, "row-norm-without-norms"),
    *(
        ("PrivatePCA", {"n_components": wanted, "mechanism": mechanism}, "components-not-whole")
        for wanted in (0.9, "auto")
        for mechanism in ("bingham", "power")
    ),
    ("PrivateGaussianMixture", {"n_components": 33}, "too-many-clusters"),
    ("PrivateGaussianMixture", {"n_components": 6, "center": False}, "noise-variance-needs-room"),
    ("PrivateGaussianMixture", {"n_components": 6, "pair": "sketch"}, "noise-variance-needs-room"),
    ("PrivateTopicModel", {"n_components": 7}, "too-many-components"),
    ("PrivatePCA", {"mechanism": "sketch", "n_components": 2, "sketch_size": 1}, "small-sketch"),
    ("PrivateGaussianMixture", {"n_components": 3, "sketch_size": 2}, "small-sketch"),
    ("PrivateTopicModel", {"n_components": 3, "sketch_size": 2}, "small-sketch"),
    *(
        (name, options, code)
        for name in TABLES
        for options, code in (
            ({"delta": 0.0, "mechanism": "gaussian"}, "pure-needs-other-mechanism"),
            ({"delta": 1e-300}, "delta-below-resolution"),
            ({"epsilon": 1e-9}, "hopeless-noise"),
            ({"epsilon": 1e-9, "delta": 0.0}, "hopeless-noise"),
        )
    ),
    *(
        (name, {"center": center}, "bad-center")
        for name in TABLES
        if KINDS[name][0].has("center", "table")
        for center in (np.zeros(3), np.full(6, np.nan))
    ),
]


@pytest.mark.parametrize(("name", "options", "code"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_before_anything_is_released(name, options, code):
    with pytest.raises(EigenveilError) as caught:
        new(name, **options).fit(rows_of(*KINDS[name]))
    assert caught.value.code == code
    assert caught.value.hint
    assert caught.value.spent is None
    assert caught.value.released == ()


@pytest.mark.parametrize("name", KINDS)
def test_fits_share_the_budget_of_one(name):
    task, path = KINDS[name]
    rows, model = rows_of(task, path), new(name)
    if path == "sites":  # each has a ledger of its own
        with pytest.raises(DataError) as caught:
            share_budget(model, fits=2)
        assert caught.value.code == "no-budget-to-share"
        return
    model = share_budget(model, fits=2)
    first, second = clone(model).fit(rows), clone(model).fit(rows)
    assert first.certificate_.together is None
    together = second.certificate_.together
    assert (together.others, together.delta) == (1, 1e-6)
    assert together.epsilon <= 8.0
    assert check(second.certificate_).word == "VALID"
    if first.certificate_.stopped is second.certificate_.stopped is None:
        assert together.epsilon > 0.999 * 8.0
        with pytest.raises(BudgetExceeded):
            clone(model).fit(rows)


@pytest.mark.parametrize("name", [name for name, (_, path) in KINDS.items() if path != "sites"])
def test_a_step_that_learned_before_a_fit_is_named(name, recwarn):
    rows = rows_of(*KINDS[name])
    for step in (FunctionTransformer(), MinMaxScaler()):
        make_pipeline(step, new(name)).fit(rows)
    (said,) = (str(each.message) for each in recwarn if each.category is WeakPrivacyWarning)
    assert "MinMaxScaler (step 'minmaxscaler') learned from all rows" in said
