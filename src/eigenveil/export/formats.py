"""The formats that a model can be exported to, one object each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from eigenveil.checks import library
from eigenveil.files import replacing
from eigenveil.models.as_sklearn import not_exportable, precision_factors
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.result import parts_of
from eigenveil.models.stored import StoredModel

_OPSET, _IR = 17, 8


class _Graph:
    """Nodes and constants of a graph that is being built."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.array(value, order="C")
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output, by the output's name."""
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def model_proto(model: StoredModel, onnx: Any, kind: str = "DOUBLE") -> Any:
    """The graph of a PCA's or a mixture's new values, for rows of one of ONNX's types."""
    graph, numbers, double = _Graph(onnx), getattr(onnx.TensorProto, kind), onnx.TensorProto.DOUBLE
    rows = graph.add("Cast", "X", to=double)
    if isinstance(model, FittedPCA):
        found, output, width = _pca(model, graph, rows), "scores", model.n_components_
    elif isinstance(model, FittedMixture):
        found, output, width = _mixture(model, graph, rows), "probabilities", len(model.weights_)
    else:
        raise not_exportable(
            f"{type(model).__name__} has no graph of ONNX.",
            "Export it as safetensors, or use its own file, model.npz.",
        )
    graph.add("Cast", found, name=output, to=numbers)
    helper = onnx.helper
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            type(model).__name__,
            [helper.make_tensor_value_info("X", numbers, ["n", model.n_features_in_])],
            [helper.make_tensor_value_info(output, numbers, ["n", width])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="eigenveil",
        producer_version=version("eigenveil"),
    )
    onnx.checker.check_model(made)
    return made


def _pca(model: FittedPCA, graph: _Graph, rows: str) -> str:
    weights, offset = model.linear_map()
    product = graph.add("MatMul", rows, graph.constant(weights.T))
    return graph.add("Sub", product, graph.constant(offset))


def _mixture(model: FittedMixture, graph: _Graph, rows: str) -> str:
    covariances, factors = model._covariances, precision_factors(model)
    logs = []
    for number, (mean, weight) in enumerate(zip(model.means_, model.weights_, strict=True)):
        factor = factors if covariances.shared else factors[number]
        apart = graph.add("Sub", rows, graph.constant(mean))
        if covariances.matrices:
            apart = graph.add("MatMul", apart, graph.constant(factor))
        else:
            apart = graph.add("Mul", apart, graph.constant(factor))
        square = graph.add("Mul", apart, apart)
        distance = graph.add("ReduceSum", square, graph.constant(np.array([1])), keepdims=1)
        half = graph.add("Mul", distance, graph.constant(np.array(-0.5)))
        level = math.log(weight) + covariances.log_determinant(factor)
        logs.append(graph.add("Add", half, graph.constant(np.array(level))))
    joint = graph.add("Concat", *logs, axis=1)
    return graph.add("Softmax", joint, axis=1)


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


def write_onnx(model: StoredModel, path: Path, kind: str = "DOUBLE") -> None:
    """What the model does with new rows, as a graph of ONNX, which computes in float64.

    Input ``X`` of shape (n, n_features) and output ``scores`` (of mixtures ``probabilities``) are
    of one type: float64, or with ``kind="FLOAT"`` float32.
    """
    onnx = library("onnx", extra="onnx", what="An .onnx file")
    made = model_proto(model, onnx, kind)
    onnx.helper.set_model_props(made, facts(model))
    with replacing(path) as scratch:
        scratch.write_bytes(made.SerializeToString())


FORMATS: Mapping[str, ExportFormat] = {
    "sklearn": ExportFormat(".joblib", "an estimator of scikit-learn, as joblib", write_sklearn),
    "safetensors": ExportFormat(".safetensors", "the released arrays", write_safetensors),
    "onnx": ExportFormat(".onnx", "what it does with new rows, of float64", write_onnx),
    "onnx-float32": ExportFormat(
        ".onnx", "what it does with new rows, of float32", partial(write_onnx, kind="FLOAT")
    ),
}


def export(model: Any, to: str, path: Path) -> None:
    FORMATS[to].write(model, path)
