"""What the plans of mixtures and of topics have in common: a pair moment and a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from eigenveil.checks import one_of
from eigenveil.models.model_options import MOST_COMPONENTS
from eigenveil.models.options import Options
from eigenveil.models.plan import (
    BasePlan,
    check_components,
    check_pure,
    columns_of_sketch,
    fields_of,
)
from eigenveil.models.schedule import Step
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism
from eigenveil.privacy.statistics import STATISTICS, StatisticName, tensor_size

TENSOR_MECHANISMS: tuple[str, ...] = tuple(
    mechanism.name for mechanism in STATISTICS["third-moment"].mechanisms
)
PairForm = Literal["full", "sketch"]

# Norm histograms hold 322 values each, of which a fit releases at most four.
_HISTOGRAMS = 4 * 330
# The pair moment's part of what is left. Its noise grows with the features, the tensor's with the
# components only; measured, 0.7 is best or within 2 % of it from D = 2 K on (``make bench``), and a
# half where the tensor's is vector noise.
_PAIR = 0.7
_VECTOR_PAIR = 0.5

# Of a step, and of a form of the pair moment; documents' pairs have the noise that rows' have.
_STATISTICS: dict[str, StatisticName] = {
    "scale": "norm-histogram",
    "scores": "score-histogram",
    "center": "row-sum",
    "full": "second-moment",
    "sketch": "sketch",
    "sums": "em-sums",
}


class TensorPlan(BasePlan):
    """What the plans of mixtures and topics have in common.

    ``n_components`` is the largest number there can be where ``auto_components`` is set. ``pair``
    states in which form the pair moment is released; ``mechanism`` is the noise of the tensor.
    """

    full_up_to: ClassVar[int] = 1000
    """Up to so many features the pair moment is a matrix by default, beyond it is sketched."""

    mechanism: Annotated[str, *one_of(TENSOR_MECHANISMS)]
    pair: PairForm
    auto_components: bool = False

    @property
    def sketched(self) -> bool:
        return self.pair == "sketch"

    def options_otherwise(self) -> dict[str, Any]:
        auto = {"n_components": "auto"} if self.auto_components else {}
        return super().options_otherwise() | auto

    def _noise(self, step: Step) -> Mechanism:
        if step == "tensor":
            return MECHANISMS[self.mechanism]
        statistic = STATISTICS[_STATISTICS[self.pair if step == "moment" else step]]
        return statistic.usual(pure=self.pure)

    def released_values(self) -> int:
        """Number of coordinates of all releases together, rounded up.

        Those of a tensor count for what their sampling costs (``sampling.lattice_error``): less
        than twice as much in Gaussian noise, and in shares of vector noise less than five times 64
        more.
        """
        d, tensor = self.features, tensor_size(self.rank)
        pair = d * self.sketch_columns if self.pair == "sketch" else d * (d + 1) // 2
        tensor = 5 * (tensor + 64) if MECHANISMS[self.mechanism].pure else 2 * tensor
        return pair + tensor + d + _HISTOGRAMS


def fields_of_tensors(
    kind: type[TensorPlan],
    options: Options,
    *,
    features: int,
    noise_draws: int,
    least: int | None = None,
) -> dict[str, Any]:
    """The settled fields that mixtures and topics share.

    ``least`` is for what may have more components than features: so many are then looked for.
    """
    mechanism, pair, delta = options.mechanism, options.pair, options.delta
    if mechanism == "auto":
        mechanism = STATISTICS["third-moment"].usual(pure=delta == 0).name
    check_pure("third-moment", mechanism, delta)
    auto = options.n_components == "auto"
    if auto:
        count = min(max(least or 1, features - 1), MOST_COMPONENTS)
    else:
        count = int(options.n_components)
        if least and count > max(features, MOST_COMPONENTS):
            raise options.refused(
                "n_components", "too-many-clusters", components=count, most=MOST_COMPONENTS
            )
        check_components(count, max(features, count) if least else features)
    if pair == "auto":
        wide = features > kind.full_up_to or options.given_columns is not None
        pair = "sketch" if wide else "full"
    columns = columns_of_sketch(
        options, 1 if auto else count, sketched=pair == "sketch", features=features
    )
    if auto and options.given_columns is None:
        columns = min(features, 4 * count)
    return {
        **fields_of(options, features=features, noise_draws=noise_draws),
        "n_components": min(count, max(columns, least or 0)) if auto or not least else count,
        "auto_components": auto,
        "mechanism": mechanism,
        "pair": pair,
        "sketch_columns": columns,
    }


def usual_fractions(common: Mapping[str, Any], steps: Mapping[Step, float]) -> dict[Step, float]:
    """Shares of mu squared, of epsilon where all is pure; they add up to 1."""
    pair = _VECTOR_PAIR if MECHANISMS[common["mechanism"]].pure else _PAIR
    rest = 1.0 - math.fsum(steps.values())
    return {**steps, "moment": pair * rest, "tensor": (1.0 - pair) * rest}
