"""What a fitted model does with new rows, as a graph of ONNX in double precision."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

import numpy as np

from eigenveil.models.as_sklearn import not_exportable, precision_factors
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.pca.estimator import FittedPCA
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

    def add(self, kind: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """A node with one output, by the output's name."""
        name = to or f"v{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def model_proto(model: StoredModel, onnx: Any) -> Any:
    """The graph of a PCA's or a mixture's new values."""
    graph = _Graph(onnx)
    if isinstance(model, FittedPCA):
        output, width = _pca(model, graph), model.n_components_
    elif isinstance(model, FittedMixture):
        output, width = _mixture(model, graph), len(model.weights_)
    else:
        raise not_exportable(
            f"{type(model).__name__} has no graph of ONNX.",
            "Export it as safetensors, or use its own file, model.npz.",
        )
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            type(model).__name__,
            [helper.make_tensor_value_info("X", double, ["n", model.n_features_in_])],
            [helper.make_tensor_value_info(output, double, ["n", width])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="eigenveil",
        producer_version=version("eigenveil"),
    )
    onnx.checker.check_model(made)
    return made


def _pca(model: FittedPCA, graph: _Graph) -> str:
    weights, offset = model.linear_map()
    product = graph.add("MatMul", "X", graph.constant(weights.T))
    return graph.add("Sub", product, graph.constant(offset), to="scores")


def _mixture(model: FittedMixture, graph: _Graph) -> str:
    covariances, factors = model._covariances, precision_factors(model)
    logs = []
    for number, (mean, weight) in enumerate(zip(model.means_, model.weights_, strict=True)):
        factor = factors if covariances.shared else factors[number]
        apart = graph.add("Sub", "X", graph.constant(mean))
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
    return graph.add("Softmax", joint, axis=1, to="probabilities")
