"""MLflow is told what was released, and nothing else."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from eigenveil import DataError, PrivatePCA
from eigenveil.tracking import log_result

FILES = {"model.npz", "certificate.json", "report.html"}
ROWS = np.random.default_rng(0).normal(size=(500, 4)) * [9.0, 5.0, 1.0, 1.0]


@pytest.fixture(scope="module")
def model():
    return PrivatePCA(2, epsilon=4.0).fit(ROWS)


def test_parameters_guarantee_and_files_are_logged(model, monkeypatch):
    logged = {}
    fake = types.ModuleType("mlflow")
    fake.log_params = lambda found: logged.update(params=found)
    fake.log_metrics = lambda found: logged.update(metrics=found)
    fake.set_tags = lambda found: logged.update(tags=found)
    fake.log_artifacts = lambda name: logged.update(
        files={path.name: path.read_bytes() for path in Path(name).iterdir()}
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    log_result(model)
    assert logged["params"]["epsilon"] == "4.0"
    assert not {"ledger", "data_set"} & set(logged["params"])
    assert logged["metrics"]["epsilon"] == model.guarantee_.epsilon
    assert logged["metrics"]["usable"] == model.usable_.sum()
    assert logged["tags"]["eigenveil.certified"] == "true"
    assert set(logged["files"]) == FILES
    del logged["files"]
    log_result(model, files=False)
    assert "files" not in logged


def test_mlflow_itself_takes_it(model, tmp_path, monkeypatch):
    """A store in a file on this machine: the same numbers, and files that open again."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is to leave this machine
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (the extra 'mlflow')")
    pytest.importorskip("alembic", reason="mlflow's stores in databases need alembic")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    experiment = mlflow.create_experiment("fits", artifact_location=(tmp_path / "files").as_uri())
    with mlflow.start_run(experiment_id=experiment) as run:
        log_result(model)
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.params["epsilon"] == "4.0"
    assert logged.metrics["epsilon"] == model.guarantee_.epsilon
    assert logged.tags["eigenveil.guarantee"] == str(model.guarantee_)
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
    assert {path.name for path in folder.iterdir()} == FILES
    again = PrivatePCA.load(folder / "model.npz")
    np.testing.assert_array_equal(again.components_, model.components_)


def test_what_is_missing_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(DataError, match="mlflow") as caught:
        log_result(model)
    assert caught.value.code == "extra-missing"
    with pytest.raises(NotFittedError):
        log_result(PrivatePCA())
