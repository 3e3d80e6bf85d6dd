"""An identifier among the columns: what a fit would have published, and no name may let through.

An integer ``patient_id`` is by far the widest column of a table, so that PC1 was the identifier
("PC1, 98.4 %"): the components, the mean and the scree plot were of it alone. Every way into a fit
refuses such columns by their names, before anything is released, and none looks at their values.
"""

import numpy as np
import pandas as pd
import pytest

from eigenveil import (
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
    StreamingPCA,
)
from eigenveil.errors import DataError
from eigenveil.io import open_rows

ROWS = 60
TABLES = [PrivatePCA, PrivateGaussianMixture, PrivateCovariance, PrivateStreamingPCA]
SITES = [FederatedPCA, FederatedGaussianMixture, FederatedCovariance]


def frame(name="patient_id"):
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: np.arange(ROWS) * 1000, "age": rng.normal(size=ROWS), "bmi": 1.0})


def refused(action):
    with pytest.raises(DataError, match="'patient_id' looks like an identifier") as caught:
        action()
    assert caught.value.code == "identifier-column"
    assert getattr(caught.value, "spent", None) is None
    assert "--unit" in caught.value.hint
    return caught.value


@pytest.fixture(autouse=True)
def _nothing_is_drawn(monkeypatch):
    monkeypatch.setattr("eigenveil.noise.source.SecureSource.words", None)


@pytest.mark.parametrize("estimator", TABLES)
def test_a_frame_of_one_table(estimator):
    refused(lambda: estimator().fit(frame()))
    if hasattr(estimator, "partial_fit"):
        refused(lambda: estimator().partial_fit(frame()))


def test_a_stream_without_noise():
    refused(lambda: StreamingPCA(1).partial_fit(frame()))


@pytest.mark.parametrize("estimator", SITES)
def test_frames_of_sites(estimator):
    refused(lambda: estimator().fit({"north": frame(), "south": frame()}))


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_files(ending, tmp_path):
    path = tmp_path / f"rows.{ending}"
    getattr(frame(), "to_csv" if ending == "csv" else f"to_{ending}")(path)
    assert str(path) in refused(lambda: open_rows([path])).message
    refused(lambda: open_rows([path], columns=["age", "patient_id"]))


def test_a_source_of_rows_of_ones_own():
    from eigenveil.moments.source import ArrayRows

    rows = ArrayRows(frame().to_numpy(), names=["patient_id", "age", "bmi"])
    refused(lambda: PrivatePCA().fit_rows(rows))
    refused(lambda: FederatedPCA().fit_rows({"a": rows}))


def test_words_of_documents_are_no_identifiers():
    counts = pd.DataFrame(np.full((ROWS, 3), 2.0), columns=["id", "patient_id", "index"])
    with pytest.raises(TypeError):  # it goes on to its noise, of which there is none here
        PrivateTopicModel(2).fit(counts)


def test_values_decide_nothing(tmp_path):
    """The same values under another name: a refusal would be a release without noise."""
    found = frame("dose")
    found.to_csv(tmp_path / "rows.csv", index=False)
    assert open_rows([tmp_path / "rows.csv"]).names == ("dose", "age", "bmi")
    with pytest.raises(TypeError):
        PrivatePCA().fit(found)
