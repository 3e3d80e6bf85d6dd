"""What a fit of a mixture or of topics is asked to do: frozen before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from eigenveil.checks import check_flag, check_positive, check_whole, is_number, one_of
from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.plans import (
    CENTRED_SCALE,
    INVALID,
    LEAST_SHARE,
    BasePlan,
    Planned,
    Step,
    centre_schedule,
    check_choice,
    check_components,
    check_pure,
    check_row_bound,
    check_split,
    check_wish,
)
from eigenveil.noise.cube import tensor_size
from eigenveil.privacy.mechanisms import MECHANISMS, NoiseKind
from eigenveil.privacy.statistics import STATISTICS, StatisticName

TENSOR_MECHANISMS: tuple[str, ...] = tuple(
    mechanism.name for mechanism in STATISTICS["third-moment"].mechanisms
)
PairForm = Literal["full", "sketch"]
PAIR_FORMS: tuple[PairForm, ...] = get_args(PairForm)

# Up to so many features the pair moment is a matrix, beyond it is sketched.
FULL_UP_TO = 1000
# "auto" looks for at most so many components.
_MOST_COMPONENTS = 32
# Norm histograms hold 322 values each, of which a fit releases at most four.
_HISTOGRAMS = 4 * 330
# Shares of the budget: of all histograms of norms, and of the centre, which need not be good, since
# any point near the rows will do.
_SCALE_SHARE, _CENTRE_SHARE = 0.08, 0.05
# Parts of the centre's share: of its two stages.
_CENTRES = (0.45, 0.55)
# The same of both histograms of documents' norms.
_DOCUMENT_SCALE_SHARE = 0.04
# The pair moment's part of what is left. Its noise grows with the features, the tensor's with the
# components only; measured, 0.7 is best or within 2 % of it from D = 2 K on (``make bench``), and a
# half where the tensor's is vector noise.
_PAIR = 0.7
_VECTOR_PAIR = 0.5


# Of a step, and of a form of the pair moment; documents' pairs have the noise that rows' have.
_STATISTICS: dict[str, StatisticName] = {
    "scale": "norm-histogram",
    "centre": "row-sum",
    "full": "second-moment",
    "sketch": "sketch",
}


class TensorPlan(BasePlan):
    """What the plans of mixtures and topics have in common.

    ``n_components`` is the largest number there can be where ``auto_components`` is set. ``pair``
    says in which form the pair moment is released; ``mechanism`` is the noise of the tensor.
    """

    mechanism: Annotated[str, *one_of(TENSOR_MECHANISMS)]
    pair: PairForm
    auto_components: bool = False

    def kind(self, step: Step) -> NoiseKind:
        """The noise of a step."""
        if step == "tensor":
            return self.mechanism
        statistic = STATISTICS[_STATISTICS[self.pair if step == "moment" else step]]
        return statistic.usual(pure=self.pure).name

    def released_values(self) -> int:
        """Number of coordinates of all releases together, rounded up.

        Those of a tensor count for what their sampling costs (``sampling.lattice_error``): less
        than twice as much in Gaussian noise, and in shares of vector noise less than five times 64
        more.
        """
        d, tensor = self.features, tensor_size(self.n_components)
        pair = d * self.sketch_size if self.pair == "sketch" else d * (d + 1) // 2
        tensor = 5 * (tensor + 64) if MECHANISMS[self.mechanism].pure else 2 * tensor
        return pair + tensor + d + _HISTOGRAMS


class MixturePlan(TensorPlan):
    """A mixture of spherical Gaussians.

    ``noise_variance`` is public, in the data's units squared, or ``None``: found from the release.
    """

    task: Literal["gaussian-mixture"] = "gaussian-mixture"
    noise_variance: float | None = None

    @property
    def needs_centred_scale(self) -> bool:
        """Whether the norms of centred rows are released before the pair moment, or their count."""
        return self.row_bound is None or (self.centred != "private" and self.rows is None)

    @property
    def schedule(self) -> tuple[Planned, ...]:
        """Norms and centre, norms about it, pair moment, projected norms, triple moment."""
        private, bounded = self.centred == "private", self.row_bound is not None
        part = 1.0 / (1 + self.needs_centred_scale + 2 * (private and not bounded))
        pair: StatisticName = "sketch" if self.pair == "sketch" else "second-moment"
        found: list[Planned] = []
        if private:
            found += centre_schedule(bounded=bounded, scale=(part, part), centre=_CENTRES)
        if self.needs_centred_scale:
            found.append(Planned(CENTRED_SCALE, "scale", "norm-histogram", share=part))
        return (
            *found,
            Planned("pair moment", "moment", pair),
            Planned("scale of projected rows", "scale", "norm-histogram", share=part),
            Planned("triple moment", "tensor", "third-moment"),
        )


class TopicPlan(TensorPlan):
    """Single-topic documents; ``features`` is the size of the vocabulary.

    ``clip_documents``: contributions are clipped at a released quantile of their norms.
    """

    task: Literal["topic-model"] = "topic-model"
    clip_documents: bool = True

    @model_validator(mode="after")
    def _needs_no_centre(self) -> Self:
        if self.centred != "no" or ("scale" in self.shares) != self.clip_documents:
            raise ValueError("documents have no centre, and a scale only to be clipped at")
        return self

    @property
    def schedule(self) -> tuple[Planned, ...]:
        """Pair moment and triple moment, each after the norms that it is clipped at."""
        pair: StatisticName = "document-sketch" if self.pair == "sketch" else "document-pairs"
        parts = (
            Planned("norms of pairs", "scale", "norm-histogram", share=0.5),
            Planned("pair moment", "moment", pair),
            Planned("norms of triples", "scale", "norm-histogram", share=0.5),
            Planned("triple moment", "tensor", "document-triples"),
        )
        return tuple(part for part in parts if self.clip_documents or part.step != "scale")


def make_mixture_plan(
    *,
    features: int,
    rows: int | None,
    n_components: int | str,
    epsilon: float,
    delta: float,
    mechanism: str,
    adjacency: str,
    pair: str,
    noise_variance: float | None,
    row_bound: float | None,
    center: bool | NDArray[np.float64],
    budget_split: dict[str, float] | None,
    sketch_size: int | None,
    noise_draws: int = 1,
    invalid: str = "zero",
) -> MixturePlan:
    """Check every parameter and settle every choice.

    Raises
    ------
    PrivacyError, DataError
        Naming the parameter and what it may be.
    """
    check_row_bound(row_bound)
    centred = "public" if isinstance(center, np.ndarray) else "private" if center else "no"
    if noise_variance is not None:
        check_positive(
            "noise_variance",
            noise_variance,
            hint="Give the public variance of every feature within a component, or None.",
            zero=True,
        )
    common = _common(
        features=features,
        n_components=n_components,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        adjacency=adjacency,
        pair=pair,
        sketch_size=sketch_size,
        invalid=invalid,
    )
    seen = centred == "private" and common["pair"] == "full"
    if common["n_components"] == features and noise_variance is None and not seen:
        raise DataError(
            f"With as many components as features ({features}) the noise variance can only be "
            "found about the rows' own centre, and not from a sketch.",
            hint="Give noise_variance, center=True with pair='full', or fewer components.",
            code="too-many-components",
        )
    steps: dict[Step, float] = {"scale": _SCALE_SHARE}
    if centred == "private":
        steps["centre"] = _CENTRE_SHARE
    return MixturePlan(
        **common,
        row_bound=row_bound,
        centred=centred,
        noise_variance=noise_variance,
        rows=rows if adjacency == "replace-one" else None,
        noise_draws=noise_draws,
        shares=_shares(_usual_shares(common, steps), budget_split),
    )


def make_topic_plan(
    *,
    features: int,
    rows: int | None,
    n_components: int | str,
    epsilon: float,
    delta: float,
    mechanism: str,
    adjacency: str,
    pair: str,
    budget_split: dict[str, float] | None,
    sketch_size: int | None,
    clip_documents: bool = True,
    noise_draws: int = 1,
    invalid: str = "zero",
) -> TopicPlan:
    """Check every parameter and settle every choice.

    Raises
    ------
    PrivacyError, DataError
        Naming the parameter and what it may be.
    """
    check_flag("clip_documents", clip_documents)
    common = _common(
        features=features,
        n_components=n_components,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        adjacency=adjacency,
        pair=pair,
        sketch_size=sketch_size,
        invalid=invalid,
    )
    steps: dict[Step, float] = {"scale": _DOCUMENT_SCALE_SHARE} if clip_documents else {}
    return TopicPlan(
        **common,
        row_bound=None,
        centred="no",
        rows=rows if adjacency == "replace-one" else None,
        noise_draws=noise_draws,
        clip_documents=bool(clip_documents),
        shares=_shares(_usual_shares(common, steps), budget_split),
    )


def _common(
    *,
    features: int,
    n_components: int | str,
    epsilon: float,
    delta: float,
    mechanism: str,
    adjacency: str,
    pair: str,
    sketch_size: int | None,
    invalid: str,
) -> dict[str, Any]:
    """The settled fields that mixtures and topics share."""
    check_wish(epsilon, delta, adjacency)
    check_choice("mechanism", mechanism, ("auto", *TENSOR_MECHANISMS))
    check_choice("pair", pair, ("auto", *PAIR_FORMS))
    check_choice("invalid", invalid, INVALID)
    if mechanism == "auto":
        mechanism = STATISTICS["third-moment"].usual(pure=delta == 0).name
    check_pure("third-moment", mechanism, delta)
    auto = n_components == "auto"
    if isinstance(n_components, str):
        check_choice("n_components", n_components, ("auto",))
        count = min(max(1, features - 1), _MOST_COMPONENTS)
    else:
        check_components(n_components, features)
        count = n_components
    if pair == "auto":
        pair = "full" if features <= FULL_UP_TO else "sketch"
    sketch_size = 4 * count if sketch_size is None else sketch_size
    check_whole("sketch_size", sketch_size)
    if auto:
        count = min(count, sketch_size)
    elif sketch_size < count:
        raise DataError(
            f"sketch_size = {sketch_size} is less than n_components = {count}.",
            hint="Use at least n_components; 4 times as many is usual.",
        )
    return {
        "features": features,
        "n_components": count,
        "auto_components": auto,
        "epsilon": float(epsilon),
        "delta": float(delta),
        "mechanism": mechanism,
        "adjacency": adjacency,
        "pair": pair,
        "sketch_size": min(features, sketch_size),
        "invalid": invalid,
    }


def _usual_shares(common: Mapping[str, Any], steps: Mapping[Step, float]) -> dict[Step, float]:
    """Shares of mu squared, of epsilon where all is pure; they add up to 1."""
    pair = _VECTOR_PAIR if MECHANISMS[common["mechanism"]].pure else _PAIR
    rest = 1.0 - math.fsum(steps.values())
    return {**steps, "moment": pair * rest, "tensor": (1.0 - pair) * rest}


def _shares(usual: Mapping[Step, float], wished: Mapping[str, float] | None) -> dict[Step, float]:
    """Shares of the steps that this fit takes, adding up to 1."""
    given: dict[Step, float] = dict(usual)
    check_split(wished)
    for step, share in (wished or {}).items():
        check_choice("a step of budget_split", step, tuple(usual))
        if not (is_number(share) and LEAST_SHARE <= share <= 1 / LEAST_SHARE):
            raise PrivacyError(
                f"budget_split[{step!r}] = {share!r:.60} is not a number from {LEAST_SHARE:g} to "
                f"{1 / LEAST_SHARE:g}.",
                hint="Shares are relative: {'moment': 0.6, 'tensor': 0.4}, for example.",
            )
    if wished is not None:
        if missing := [step for step in usual if step not in wished]:
            raise PrivacyError(
                f"budget_split gives {missing[0]!r} nothing, and this fit releases it.",
                hint=f"Give every step a share: {', '.join(usual)}.",
            )
        given = {step: wished[step] for step in usual}
    total = math.fsum(given.values())
    return {step: share / total for step, share in given.items()}
