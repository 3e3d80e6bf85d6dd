"""What every model does, however its rows come: fit, certify, save, load, clone, refuse.

One suite over all estimators of the registry; what is a model's own stands in its own file.
"""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import eigenveil
from eigenveil import DataError, OutputError, PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.models import rounds
from eigenveil.models.task import TASKS, task_of_plan
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


def test_a_fit_spends_what_was_asked_and_is_certified(fitted, task):
    guarantee = fitted.guarantee_
    assert 0.99 * 8.0 < guarantee.epsilon <= 8.0
    assert guarantee.certified
    assert check(fitted.certificate_).word == "VALID"
    assert task_of_plan(fitted.plan_) is task
    assert fitted.n_features_in_ == 6
    assert not np.isnan(fitted.n_samples_ if hasattr(fitted, "n_samples_") else 0.0)


def test_what_is_released_is_what_the_plan_says(fitted):
    certificate, plan = fitted.certificate_, fitted.plan_
    planned = plan.schedule[: len(certificate.releases)]
    assert [record.name for record in certificate.releases] == [each.name for each in planned]
    assert bool(certificate.stopped) == (len(planned) < len(plan.schedule))
    for record, each in zip(certificate.releases, planned, strict=True):
        assert record.noise.kind == plan.noises[each.step].name
        assert record.adjacency == plan.adjacency


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


def test_a_clone_has_the_parameters_and_nothing_else(fitted):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        other.save("nowhere.npz")
    assert not shown_by(other)


def test_the_parameters_are_documented(fitted):
    text = type(fitted).__doc__
    for name in fitted.get_params():
        assert f"    {name} : " in text
    assert "{options}" not in text


@pytest.mark.parametrize("name", KINDS)
def test_a_seeded_fit_is_repeatable_and_not_certified(name):
    rows = rows_of(*KINDS[name])
    one, other = (new(name, random_state=3).fit(rows) for _ in range(2))
    for release, values in one.released_.items():
        assert np.array_equal(values, other.released_[release])
    assert not one.guarantee_.certified


@pytest.mark.parametrize("name", [each for each, (_, path) in KINDS.items() if path == "table"])
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


def test_a_result_states_its_releases_as_json(fitted):
    found = json.loads(fitted.certificate_.model_dump_json())
    assert [each["name"] for each in found["releases"]] == list(fitted.released_)
