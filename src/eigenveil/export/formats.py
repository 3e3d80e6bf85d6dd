"""The formats that a model can be exported to, one object each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.checks import library
from eigenveil.export.onnx_graph import model_proto
from eigenveil.files import replacing
from eigenveil.models.result import parts_of
from eigenveil.models.stored import StoredModel

TENSORS = "eigenveil-tensors-1"


@dataclass(frozen=True)
class ExportFormat:
    ending: str  # Of its files
    what: str  # What a file has, for people
    write: Callable[[StoredModel, Path], None]  # Of a model and a path


def facts(model: StoredModel) -> dict[str, str]:
    """What every export says of its origin, as texts: guarantee, names and certificate."""
    result = model._check_fitted()
    factors = result.factors
    numbers = {n: v for n, v in parts_of(factors).items() if not isinstance(v, np.ndarray)}
    return {
        "format": TENSORS,
        "estimator": type(model).__name__,
        "guarantee": str(result.guarantee),
        "feature_names": json.dumps(result.names),
        "numbers": json.dumps(numbers),
        "certificate": result.certificate.model_dump_json(),
    }


def write_sklearn(model: StoredModel, path: Path) -> None:
    """The model of :meth:`StoredModel.to_sklearn`, as joblib stores it.

    Such a file is a pickle, which runs code when it is opened: open those of people you trust.
    """
    import joblib

    made = model.to_sklearn()
    with replacing(path) as scratch:
        joblib.dump(made, scratch)


def write_safetensors(model: StoredModel, path: Path) -> None:
    """Every released array under its name, and :func:`facts` as metadata."""
    safetensors = library("safetensors.numpy", extra="safetensors", what="A .safetensors file")
    factors = model._check_fitted().factors
    parts = parts_of(factors).items()
    kept = {n: np.array(v, order="C") for n, v in parts if isinstance(v, np.ndarray)}
    with replacing(path) as scratch:
        safetensors.save_file(kept, scratch, metadata=facts(model))


def write_onnx(model: StoredModel, path: Path) -> None:
    """What the model does with new rows, as a graph of ONNX.

    Input ``X`` of shape (n, n_features), float64; output ``scores`` (of mixtures
    ``probabilities``), float64.
    """
    onnx = library("onnx", extra="onnx", what="An .onnx file")
    made = model_proto(model, onnx)
    onnx.helper.set_model_props(made, facts(model))
    with replacing(path) as scratch:
        scratch.write_bytes(made.SerializeToString())


FORMATS: Mapping[str, ExportFormat] = {
    "sklearn": ExportFormat(".joblib", "an estimator of scikit-learn, as joblib", write_sklearn),
    "safetensors": ExportFormat(".safetensors", "the released arrays", write_safetensors),
    "onnx": ExportFormat(".onnx", "what it does with new rows", write_onnx),
}


def export(model: Any, to: str, path: Path) -> None:
    FORMATS[to].write(model, path)
