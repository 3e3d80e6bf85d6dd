"""Components that noise hides: their variances are NaN, their scores carry a warning."""

import csv
import json
import warnings

import numpy as np
import pytest

from eigenveil import FederatedPCA, NoisyResultWarning, PrivatePCA, PrivateStreamingPCA
from eigenveil.cli.app import main

# One direction far above the noise, and nothing else: at this budget only that one is usable.
RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((3000, 12)) * np.append(100.0, np.full(11, 0.1))
ASKED = {"epsilon": 1.0, "random_state": 0}
MADE = {
    "table": lambda **more: PrivatePCA(3, **ASKED, **more).fit(ROWS),
    "sites": lambda: FederatedPCA(3, **ASKED).fit({"a": ROWS[:999], "b": ROWS[999:]}),
    "stream": lambda: PrivateStreamingPCA(3, **ASKED).fit(ROWS),
}
SAID = "Scores along components that do not stand above the noise .*: PC2 and PC3."
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


@pytest.mark.parametrize("kind", MADE)
def test_what_noise_hides_is_not_a_number_and_everything_else_is(kind, tmp_path):
    model = MADE[kind]()
    assert model.usable_.tolist() == [True, False, False]
    for found in (model.explained_variance_, model.explained_variance_ratio_):
        assert np.array_equal(np.isnan(found), ~model.usable_)
    assert model.explained_variance_[0] > model.noise_floor_
    assert np.isfinite(model.total_variance_)
    assert np.isfinite(model.transform(ROWS)).all()
    assert np.isfinite(model.inverse_transform(model.transform(ROWS))).all()
    assert np.isfinite(model.get_covariance()).all()
    assert np.isfinite(model.get_precision()).all()
    assert np.isfinite(model.loadings_).all()
    assert np.isfinite(model.score(ROWS))
    # in what noise hides there is as much variance as anywhere else
    rest = (model.total_variance_ - model.explained_variance_[0]) / 11
    assert model.noise_variance_ == pytest.approx(rest)
    model.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    assert np.array_equal(again.explained_variance_, model.explained_variance_, equal_nan=True)
    assert again.certificate_ == model.certificate_


def test_whitened_scores_are_finite_and_turned_back():
    model = MADE["table"](whiten=True)
    scores = model.transform(ROWS)
    assert np.isfinite(scores).all()
    plain = MADE["table"]()
    turned = plain.inverse_transform(plain.transform(ROWS))
    assert model.inverse_transform(scores) == pytest.approx(turned)
    assert model.to_sklearn().transform(ROWS) == pytest.approx(scores)
    assert PrivatePCA(0.9, **ASKED).fit(ROWS).n_components_ == 1


@pytest.mark.parametrize("kind", MADE)
def test_scores_along_noise_warn_once_a_call(kind):
    model = MADE[kind]()
    with pytest.warns(NoisyResultWarning, match=SAID) as said:
        model.transform(ROWS)
    assert len(said) == 1
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivatePCA(1, **ASKED).fit(ROWS).transform(ROWS)


def test_also_where_the_fit_comes_first():
    with pytest.warns(NoisyResultWarning, match=SAID):
        PrivatePCA(3, **ASKED).fit_transform(ROWS)


def test_on_the_command_line(tmp_path, capsys):
    file, out = tmp_path / "rows.csv", tmp_path / "out"
    many = np.tile(ROWS, (9, 1))  # several blocks
    np.savetxt(file, many, delimiter=",", header=",".join("abcdefghijkl"), comments="")
    made = MADE["table"](scale=np.arange(1.0, 13.0))
    out.mkdir()
    made.save(out / "model.npz")
    made.certificate_.write(out / "certificate.json")

    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        assert end.value.code == 0
        return capsys.readouterr()

    said = run("transform", out, file, "--out", tmp_path / "scores.csv")
    assert said.err.count("warning: Scores along components that do not stand above") == 1
    shown = run("show", out).out
    assert shown.count("hidden by noise") == 2
    assert "nan" not in shown
    found = json.loads(run("show", out, "--json").out)
    assert found["explained_variance"][1:] == [None, None]
    assert found["explained_variance_ratio"][1:] == [None, None]
    run("fit", file, "--components", 3, "--no-ledger", "--no-plots", "--out", tmp_path / "b")
    with (tmp_path / "b" / "components.csv").open() as lines:
        table = list(csv.DictReader(lines))
    model = PrivatePCA.load(tmp_path / "b" / "model.npz")
    usable = [f"PC{i + 1}" for i in np.flatnonzero(model.usable_)]
    assert all(line["usable"].split() == usable for line in table)


@pytest.mark.parametrize("seed", [23, 57, 62])
def test_of_a_sketch_s_even_background_no_variance_is_believed_that_came_out_large(seed):
    """Fits of which one component's released variance exceeds four times the true one."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 30)) * np.sqrt(np.append([31.0, 21.0, 11.0], np.ones(27)))
    options = {"mechanism": "sketch", "epsilon": 1.0, "delta": 1e-5, "random_state": seed}
    model = PrivatePCA(10, **options).fit(rows)
    true = np.var(rows @ model.components_.T, axis=0)
    assert not (model.usable_ & (model.explained_variance_ > 4.0 * true)).any()
    assert model.usable_[:3].all()  # the three that are there
