"""A released model in other programs: the same scores, by scikit-learn and ONNX alone."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline

from eigenveil import (
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.export import FORMATS
from refusal_tools import refuses

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(800, 5)) * [9.0, 6.0, 4.0, 1.0, 1.0] + 3.0
FRAME = pd.DataFrame(ROWS, columns=list("abcde"))
PCAS = {
    "plain": {},
    "whitened": {"whiten": True},
    "scaled": {"scale": np.array([9.0, 6.0, 4.0, 1.0, 0.0])},
    "covariates": {"covariates": ["e"]},
    "sketch": {"mechanism": "sketch", "sketch_size": 3},
}


def fitted(name):
    return PrivatePCA(2, epsilon=8.0, **PCAS[name]).fit(FRAME)


def graph_values(model, path, rows):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    sessions = []
    for name in ("onnx", "onnx-float32"):
        FORMATS[name].write(model, path)
        sessions.append(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
        facts = sessions[-1].get_modelmeta().custom_metadata_map
        assert facts["guarantee"] == str(model.guarantee_)
    single = np.asarray(rows, dtype=np.float32)  # computed in double precision, too
    double, small = (
        session.run(None, {"X": single.astype(kind)})[0]
        for session, kind in zip(sessions, (np.float64, np.float32), strict=True)
    )
    assert small.dtype == np.float32
    assert np.array_equal(small, double.astype(np.float32))
    return sessions[0].run(None, {"X": np.asarray(rows, dtype=np.float64)})[0]


@pytest.mark.parametrize("name", PCAS)
def test_a_pca_transforms_alike_everywhere(name, tmp_path):
    model = fitted(name)
    scores = model.transform(FRAME)
    assert np.allclose(graph_values(model, tmp_path / "m.onnx", ROWS), scores, atol=1e-9)
    if name == "covariates":
        with refuses("not-exportable", "covariates"):
            model.to_sklearn()
        return
    made = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert isinstance(made, Pipeline if name == "scaled" else PCA)
    assert np.allclose(made.transform(FRAME), scores, atol=1e-9)
    assert np.allclose(made.inverse_transform(scores), model.inverse_transform(scores), atol=1e-9)
    assert list(made.feature_names_in_) == list("abcde")
    if name == "plain":
        assert np.allclose(made.get_covariance(), model.get_covariance())
        assert np.allclose(made.score_samples(FRAME), model.score_samples(FRAME))


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "tied"])
def test_a_mixture_assigns_rows_alike_everywhere(kind, tmp_path):
    means = 8.0 * np.eye(2, 4)
    rows = means[RNG.integers(2, size=4000)] + RNG.standard_normal((4000, 4))
    model = PrivateGaussianMixture(2, epsilon=8.0, covariance_type=kind).fit(rows)
    near = rows[:200] * 0.4  # where components overlap
    made = model.to_sklearn()
    assert isinstance(made, GaussianMixture)
    expected = model.predict_proba(near)
    assert np.allclose(made.predict_proba(near), expected, atol=1e-6)
    assert np.allclose(made.score_samples(near), model.score_samples(near), atol=1e-6)
    assert made.sample(5)[0].shape == (5, 4)
    assert np.allclose(graph_values(model, tmp_path / "m.onnx", near), expected, atol=1e-6)


def test_a_covariance_is_one_of_scikit_learn():
    model = PrivateCovariance(epsilon=8.0).fit(FRAME)
    made = model.to_sklearn()
    assert isinstance(made, EmpiricalCovariance)
    assert np.allclose(made.mahalanobis(ROWS), model.mahalanobis(FRAME))


def test_topics_have_no_counterpart(tmp_path):
    parts = np.repeat(np.eye(2), 3, axis=1) / 3
    model = PrivateTopicModel(2, epsilon=4.0).fit(RNG.multinomial(15, parts[np.arange(3000) % 2]))
    for refused in (model.to_sklearn, lambda: FORMATS["onnx"].write(model, tmp_path / "m.onnx")):
        with refuses("not-exportable"):
            refused()
    assert not list(tmp_path.iterdir())


def test_safetensors_hold_every_released_array_and_the_certificate(tmp_path):
    safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
    model = fitted("plain")
    FORMATS["safetensors"].write(model, tmp_path / "m.safetensors")
    with safetensors.safe_open(tmp_path / "m.safetensors", "numpy") as stored:
        assert np.array_equal(stored.get_tensor("components"), model.components_)
        assert np.array_equal(stored.get_tensor("usable"), model.usable_)
        facts = stored.metadata()
    assert json.loads(facts["feature_names"]) == list("abcde")
    assert json.loads(facts["certificate"])["model"] == model.certificate_.model
    assert json.loads(facts["numbers"])["noise_floor"] == model.noise_floor_


def test_the_command_writes_the_format_that_is_named(run, tmp_path):
    joblib = pytest.importorskip("joblib")
    result = tmp_path / "result"
    result.mkdir()
    model = fitted("plain")
    model.save(result / "model.npz")
    status, out, err = run("export", result, "--to", "sklearn")
    assert (status, err) == (0, "")
    assert "model.joblib" in out
    assert np.allclose(
        joblib.load(result / "model.joblib").transform(FRAME), model.transform(FRAME)
    )
    assert run("export", result, "--to", "sklearn")[0] == 7
    assert "sklearn, safetensors, onnx" in run.fails("export", result, "--to", "pmml", status=2)


def test_a_missing_library_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with refuses("extra-missing", "onnx") as caught:
        FORMATS["onnx"].write(fitted("plain"), tmp_path / "m.onnx")
    assert "eigenveil[onnx]" in caught.value.hint
