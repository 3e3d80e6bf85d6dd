"""Private independent components: what is found, of tables and of sites, and what cannot be."""

import json
import warnings

import numpy as np
import pytest

from eigenveil import FederatedICA, NoisyResultWarning, PrivateICA
from eigenveil.app.presenters.study import summary_parts, what_is_sent
from eigenveil.federation.study.study import FORMAT, Study
from eigenveil.models.ica.jade import separation_error
from eigenveil.models.ica.plan import CUMULANTS
from eigenveil.planning.forecast import forecast

COUNT, SOURCES, FEATURES = 20_000, 4, 10


def mixed(seed=0, count=COUNT, sources=SOURCES, features=FEATURES):
    """Laplace and uniform sources of variance 1, mixed, with a little noise; and their maps."""
    rng = np.random.default_rng(seed)
    found = rng.laplace(scale=np.sqrt(0.5), size=(count, sources))
    found[:, 1::2] = rng.uniform(-np.sqrt(3), np.sqrt(3), found[:, 1::2].shape)
    maps = np.linalg.qr(rng.standard_normal((features, sources)))[0] * 3.0
    rows = found @ maps.T + 0.05 * rng.standard_normal((count, features)) + 2.0
    return rows, found, maps


ROWS, TRUE, MAPS = mixed()


def fitted(kind=PrivateICA, rows=ROWS, sources=SOURCES, **options):
    options = {"epsilon": 2.0, "delta": 1e-5, "random_state": 4} | options
    with warnings.catch_warnings(action="ignore", category=NoisyResultWarning):
        return kind(sources, **options).fit(rows)


MODEL = fitted()


def test_sources_and_maps_are_found():
    assert separation_error(MODEL.components_ @ MAPS) < 0.03
    assert MODEL.usable_.all()
    np.testing.assert_allclose(MODEL.components_ @ MODEL.mixing_, np.eye(SOURCES), atol=1e-10)
    found = MODEL.transform(ROWS)
    likeness = np.abs(np.corrcoef(found.T, TRUE.T)[:SOURCES, SOURCES:])
    assert likeness.max(axis=1).min() > 0.98
    assert sorted(likeness.argmax(axis=1)) == list(range(SOURCES))
    np.testing.assert_allclose(found.var(axis=0), 1.0, atol=0.3)
    assert np.all(np.take_along_axis(MODEL.mixing_, np.abs(MODEL.mixing_).argmax(0)[None], 0) > 0)
    back = MODEL.inverse_transform(found)
    assert np.mean((back - ROWS) ** 2) < 0.05 * ROWS.var(axis=0).mean()


def test_signs_of_kurtosis_tell_laplace_from_uniform():
    likeness = np.abs(np.corrcoef(MODEL.transform(ROWS).T, TRUE.T)[:SOURCES, SOURCES:])
    for place, source in enumerate(likeness.argmax(axis=1)):
        assert (MODEL.kurtosis_[place] > 0) == (source % 2 == 0)


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0.0, "epsilon": 6.0},
        {"mechanism": "vector", "delta": 0.0, "epsilon": 12.0},
        {"adjacency": "replace-one"},
        {"precision": "single"},
        {"scale": "private", "epsilon": 4.0},
        {"row_bound": 30.0},
        {"center": np.full(FEATURES, 2.0)},
    ],
    ids=str,
)
def test_other_options_find_them_too(options):
    model = fitted(**options)
    assert model.n_components_ == SOURCES
    assert separation_error(model.components_ @ MAPS) < 0.12
    assert model.guarantee_.epsilon == pytest.approx(options.get("epsilon", 2.0))


def test_ten_sites_find_what_a_table_does():
    model = fitted(FederatedICA, np.array_split(ROWS, 10))
    assert separation_error(model.components_ @ MAPS) < 0.04
    assert model.guarantee_.epsilon == pytest.approx(2.0)


def test_persons_are_protected_together():
    who = np.arange(COUNT) // 2
    options = {"epsilon": 4.0, "delta": 1e-5, "unit": "person"}
    model = PrivateICA(SOURCES, **options).fit(ROWS, groups=who)
    assert separation_error(model.components_ @ MAPS) < 0.1
    assert "units.md" in model.certificate_.proofs


def test_the_certificate_cites_the_proof_and_holds_the_release():
    assert "ica.md" in MODEL.certificate_.proofs
    record = next(each for each in MODEL.certificate_.releases if each.name == CUMULANTS)
    pairs = SOURCES * (SOURCES + 1) // 2
    assert record.noise.size == pairs * (pairs + 1) // 2
    assert record.sensitivity() == 1.0


def test_gaussian_sources_are_named():
    rows = np.random.default_rng(1).standard_normal((COUNT, 6)) * [4.0, 3.0, 2.0, 1.0, 1.0, 1.0]
    with pytest.warns(NoisyResultWarning, match="cannot be told apart"):
        model = PrivateICA(3, epsilon=2.0, random_state=0).fit(rows)
    assert np.count_nonzero(~model.usable_) >= 2
    with pytest.warns(NoisyResultWarning, match="cannot be told"):
        model.transform(rows[:3])
    # one Gaussian source among others is what these leave
    rng = np.random.default_rng(2)
    maps = np.linalg.qr(rng.standard_normal((FEATURES, 3)))[0] * 3.0
    parts = rng.laplace(scale=np.sqrt(0.5), size=(COUNT, 3))
    parts[:, 2] = rng.standard_normal(COUNT)
    model = fitted(rows=parts @ maps.T + 0.05 * rng.standard_normal((COUNT, FEATURES)), sources=3)
    assert model.usable_.all()
    assert separation_error(model.components_ @ maps) < 0.06


def test_fewer_directions_than_sources_are_said():
    rows, _, maps = mixed(sources=2)
    with pytest.warns(NoisyResultWarning, match="2 of 4 directions"):
        model = PrivateICA(4, epsilon=2.0, random_state=0).fit(rows)
    assert model.n_components_ == 2
    assert separation_error(model.components_ @ maps) < 0.05


@pytest.mark.parametrize("rows", [np.full((500, 5), 2.0), np.zeros((300, 4)), ROWS[:40]], ids=len)
def test_nothing_to_see_ends_the_fit(rows):
    with pytest.warns(NoisyResultWarning):
        model = PrivateICA(2, epsilon=0.5).fit(rows)
    assert model.certificate_.stopped
    assert not model.usable_.any()


@pytest.mark.parametrize(
    ("sources", "code"), [(21, "bad-parameter"), (1, "bad-parameter"), (12, "too-many-components")]
)
def test_too_many_sources_are_refused_before_anything_is_read(sources, code):
    with pytest.raises(Exception, match=str(sources)) as caught:
        PrivateICA(sources).fit(ROWS if sources < 20 else np.ones((50, 30)))  # no row is read
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--components", "1"), "[2, 20]"),
        (("--components", "21"), "[2, 20]"),
        (("--components", "11"), "number of features, 10"),
        (("--mechanism", "bingham"), "bingham"),
        (("--winsorize", "2"), "winsorize"),
    ],
)
def test_commands_refuse_before_anything_is_charged_or_written(tmp_path, run, words, said):
    np.save(tmp_path / "rows.npy", ROWS[:100])
    start = ("fit", tmp_path / "rows.npy", "--task", "ica", "--one-row-per-person", *words)
    ledger = tmp_path / "ledger.db"
    error = run.fails(*start, "--ledger", ledger, "--out", tmp_path / "out")
    assert said in error.replace("\n", " ")
    assert not ledger.exists()
    assert not (tmp_path / "out").exists()


def test_a_study_says_how_much_the_fourth_moment_is():
    sites = [{"name": "north"}, {"name": "south"}]
    wanted = {"task": "ica", "components": 20, "epsilon": 1.0, "delta": 1e-5, "features": 60}
    study = Study(format=FORMAT, name="s", protocol="cape", sites=sites, **wanted)
    assert forecast(study, 60, None).message_bytes == 8 * 22_155
    assert "second moments and fourth moments under masks" in what_is_sent(study)
    assert any("noise of the fourth moment" in str(part) for part in summary_parts(study, None, {}))


def test_it_is_kept_with_its_certificate(tmp_path):
    MODEL.save(tmp_path / "model.npz")
    again = PrivateICA.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.components_, MODEL.components_)
    np.testing.assert_array_equal(again.transform(ROWS[:9]), MODEL.transform(ROWS[:9]))
    assert again.guarantee_ == MODEL.guarantee_


def test_the_plan_simulates_how_well_sources_are_found(run):
    words = ("--rows", "20000", "--features", "10", "--components", "3", "--epsilon", "2")
    assert json.loads(run.done("plan", "--task", "ica", *words, "--json"))
    assert "Moreau-Amari" in run("plan", "--task", "ica", *words)[1]


def test_the_command_writes_maps_and_sources(tmp_path, run):
    np.save(tmp_path / "rows.npy", ROWS)
    out = tmp_path / "result"
    words = ("fit", tmp_path / "rows.npy", "--task", "ica", "--components", "4", "--epsilon", "2")
    said = run.done(*words, "--one-row-per-person", "--no-ledger", "--out", out)
    assert "excess kurtosis" in said
    assert {"mixing.csv", "components.csv", "sources.csv", "maps.png"} <= {
        f.name for f in out.iterdir()
    }
    assert run("certify", out)[0] == 0
    assert run("show", out)[0] == 0
    assert run("report", out)[0] == 0
    assert run("transform", out, tmp_path / "rows.npy", "--out", tmp_path / "s.csv")[0] == 0
    assert "not compared" in run.fails("compare", out, tmp_path / "rows.npy")
