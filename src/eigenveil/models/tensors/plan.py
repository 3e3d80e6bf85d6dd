"""What a fit of a mixture or of topics does: frozen before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from eigenveil.checks import one_of
from eigenveil.errors import DataError
from eigenveil.models.options import MOST_COMPONENTS, Options
from eigenveil.models.plan import (
    CENTERED_SCALE,
    NO_BOUND,
    BasePlan,
    Planned,
    Step,
    center_schedule,
    check_components,
    check_pure,
    columns_of_sketch,
    fields_of,
    fractions_of,
)
from eigenveil.moments.em import SQUARE_WEIGHT, coordinates_of
from eigenveil.moments.exact import Squares
from eigenveil.noise.cube import tensor_size
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism
from eigenveil.privacy.statistics import STATISTICS, StatisticName

TENSOR_MECHANISMS: tuple[str, ...] = tuple(
    mechanism.name for mechanism in STATISTICS["third-moment"].mechanisms
)
PairForm = Literal["full", "sketch"]

# Norm histograms hold 322 values each, of which a fit releases at most four.
_HISTOGRAMS = 4 * 330
# Shares of the budget: of all histograms of norms, and of the centre, which need not be good, since
# any point near the rows will do.
_SCALE_SHARE, _CENTER_SHARE = 0.08, 0.05
# Parts of the centre's share: of its two stages.
_CENTERS = (0.45, 0.55)
# The same of both histograms of documents' norms.
_DOCUMENT_SCALE_SHARE = 0.04
# What forecasts take for alpha0 where it is to be found.
_USUAL_ALPHA0 = 1.0
# Of how frequent words are, where documents are of several topics.
_FREQUENCY_SHARE = 0.05
# The pair moment's part of what is left. Its noise grows with the features, the tensor's with the
# components only; measured, 0.7 is best or within 2 % of it from D = 2 K on (``make bench``), and a
# half where the tensor's is vector noise.
_PAIR = 0.7
_VECTOR_PAIR = 0.5


# Of mixtures with a variance of their own: the sums' part of what is left, and their number.
_SUMS_PART, _SUMS = 0.5, 4
# Of other mixtures there is no third moment: the second moment's part of what is left; of the
# sums' share, what those about candidates have, how many there are, and how many sums follow.
_MOMENT_PART, _CANDIDATE_PART, _CANDIDATE_SUMS, _SUMS_AFTER = 0.2, 0.5, 2, 3
# Candidates for each component, at least and at most so many.
_CANDIDATES_EACH, _FEWEST_CANDIDATES, _MOST_CANDIDATES = 4, 16, 64
# Squares that sums may release: more would not fit into memory.
_MOST_SQUARES = 1 << 26

CovarianceType = Literal["spherical", "diag", "full", "tied"]
NO_COMPONENTS = "no component stands above the noise of the released pair moment"
NO_TOPICS = "no topic stands above the noise of the released pair moment"
CANDIDATES, SUMS = "candidates", "sums"
"""Names of the sums of expectation maximisation, which are numbered from 1."""


# Of a step, and of a form of the pair moment; documents' pairs have the noise that rows' have.
_STATISTICS: dict[str, StatisticName] = {
    "scale": "norm-histogram",
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
        """Whether the pair moment is released as a sketch."""
        return self.pair == "sketch"

    def options_otherwise(self) -> dict[str, Any]:
        """Options of another name or value; see :class:`BasePlan`."""
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
        d, tensor = self.features, tensor_size(self.n_components)
        pair = d * self.sketch_columns if self.pair == "sketch" else d * (d + 1) // 2
        tensor = 5 * (tensor + 64) if MECHANISMS[self.mechanism].pure else 2 * tensor
        return pair + tensor + d + _HISTOGRAMS


class MixturePlan(TensorPlan):
    """A mixture of spherical Gaussians.

    ``noise_variance`` is public, in the data's units squared, or ``None``: found from the release.
    """

    task: Literal["gaussian-mixture"] = "gaussian-mixture"
    noise_variance: float | None = None
    covariance_type: CovarianceType = "spherical"
    candidates: int = Field(default=0, ge=0)

    def released_values(self) -> int:
        """As of every plan with a tensor, and the sums."""
        sums = sum(one.sizes[-1] for one in self.schedule if one.sizes is not None)
        return super().released_values() + 2 * sums

    def requested_values(self) -> int:
        """Beside those of every plan, a mixture of the most components."""
        count = max(self.candidates, self.n_components)
        each = self.n_components * self.features
        factors = each * self.features if self.covariance_type in ("full", "tied") else each
        return super().requested_values() + count * (self.features + 3) + factors

    def count_of(self, name: str) -> int:
        """How many sums of this name there are."""
        return sum(each.name.startswith(f"{name} ") for each in self.schedule)

    def squares(self, name: str) -> Squares:
        """What the sums of this name release of products of two columns."""
        if name.startswith(CANDIDATES) or self.noise_variance is not None:
            return "none"
        return "trace" if self.covariance_type == "spherical" else self.covariance_type

    @property
    def needs_centered_scale(self) -> bool:
        """Whether the norms of centred rows are released before the pair moment, or their count."""
        return self.row_bound is None or self.centered != "private"

    def _schedule(self) -> tuple[Planned, ...]:
        """Norms and centre, norms about it, pair moment, projected norms, triple moment."""
        private, bounded = self.centered == "private", self.row_bound is not None
        spherical = self.covariance_type == "spherical"
        histograms = spherical + self.needs_centered_scale + 2 * (private and not bounded)
        part = 1.0 / max(1, histograms)
        pair: StatisticName = "sketch" if self.pair == "sketch" else "second-moment"
        found: list[Planned] = []
        if private:
            found += center_schedule(bounded=bounded, scale=(part, part), center=_CENTERS)
        if self.needs_centered_scale:
            ends = "" if private or bounded else NO_BOUND
            found.append(
                Planned(CENTERED_SCALE, "scale", "norm-histogram", fraction=part, ends=ends)
            )
        return (
            *found,
            Planned("pair moment", "moment", pair, ends=NO_COMPONENTS),
            *self._sums(part),
        )

    def _sums(self, part: float) -> list[Planned]:
        """What follows the pair moment."""
        if self.covariance_type == "spherical":
            return [
                Planned("scale of projected rows", "scale", "norm-histogram", fraction=part),
                Planned("triple moment", "tensor", "third-moment"),
                *self._numbered(SUMS, _SUMS, 1.0),
            ]
        return [
            *self._numbered(CANDIDATES, _CANDIDATE_SUMS, _CANDIDATE_PART),
            *self._numbered(SUMS, _SUMS_AFTER, 1.0 - _CANDIDATE_PART),
        ]

    def _numbered(self, name: str, count: int, fraction: float) -> list[Planned]:
        """Sums of one name, which share a fraction of the step's budget evenly."""
        squares = self.squares(name)
        most = self.candidates if name == CANDIDATES else self.n_components
        least, two, last = (coordinates_of(squares, each, self.features) for each in (1, 2, most))
        return [
            Planned(
                f"{name} {number}",
                "sums",
                "em-sums",
                fraction=fraction / count,
                sizes=range(least, last + 1, two - least),
                square_weight=0.0 if squares == "none" else SQUARE_WEIGHT,
                counts=True,
            )
            for number in range(1, count + 1)
        ]


class TopicPlan(TensorPlan):
    """Documents of topics; ``features`` is the size of the vocabulary.

    ``alpha0`` is the sum of the concentrations of a document's topics, 0 where it has one, and what
    forecasts take it to be where ``auto_alpha0`` is set: then it is found from the releases;
    ``clip_documents``: contributions are clipped at a released quantile of their norms.
    """

    # topics of a sketch are up to twice as far off; beyond, a fit takes minutes
    full_up_to: ClassVar[int] = 4000

    task: Literal["topic-model"] = "topic-model"
    alpha0: float = 0.0
    auto_alpha0: bool = False
    clip_documents: bool = True

    @model_validator(mode="after")
    def _has_its_steps(self) -> Self:
        if self.centered != "no" or ("scale" in self.fractions) != self.clip_documents:
            raise ValueError("documents have no centre, and a scale only to be clipped at")
        if ("center" in self.fractions) != (self.alpha0 > 0):
            raise ValueError("words' frequencies are released of documents of several topics only")
        return self

    def options_otherwise(self) -> dict[str, Any]:
        """Options of another name or value; see :class:`BasePlan`."""
        return super().options_otherwise() | ({"alpha0": "auto"} if self.auto_alpha0 else {})

    def _schedule(self) -> tuple[Planned, ...]:
        """Pair moment and triple moment, each after the norms that it is clipped at.

        Beside the pairs, how frequent words are, where documents are of several topics.
        """
        pair: StatisticName = "document-sketch" if self.pair == "sketch" else "document-pairs"
        parts = (
            Planned("norms of pairs", "scale", "norm-histogram", fraction=0.5),
            Planned("pair moment", "moment", pair, ends=NO_TOPICS),
            Planned("word frequencies", "center", "word-shares", beside=True, ends=NO_TOPICS),
            Planned("norms of triples", "scale", "norm-histogram", fraction=0.5),
            Planned("triple moment", "tensor", "document-triples"),
        )
        return tuple(part for part in parts if part.step in self.fractions)


def make_mixture_plan(options: Options, *, features: int, noise_draws: int = 1) -> MixturePlan:
    """Settle every choice that the options of one table leave open."""
    common = _common(MixturePlan, options, features=features, noise_draws=noise_draws)
    centered, variance = common["centered"], options.noise_variance
    seen = centered == "private" and common["pair"] == "full"
    if common["n_components"] == features and variance is None and not seen:
        raise DataError(
            f"With as many components as features ({features}) the noise variance can only be "
            "found about the rows' own centre, and not from a sketch.",
            hint="Give noise_variance, center=True with pair='full', or fewer components.",
            code="too-many-components",
        )
    kind: CovarianceType = options.covariance_type
    count = common["n_components"]
    if kind != "spherical" and variance is not None:
        raise options.refused(
            "noise_variance",
            f"is of spherical components, and covariance_type is {kind!r}.",
            hint="Leave it out, or use covariance_type='spherical'.",
            code="unused-parameter",
        )
    products = features * features * (count if kind == "full" else 1)
    if kind in ("full", "tied") and products > _MOST_SQUARES:
        raise options.refused(
            "covariance_type",
            f"= {kind!r} takes {products:,} numbers for {count} components of {features} columns.",
            hint="Use covariance_type='diag' or 'spherical', or fewer columns.",
            code="bad-parameter",
        )
    plan = MixturePlan(
        **common,
        noise_variance=None if variance is None else float(variance),
        covariance_type=kind,
        candidates=0 if kind == "spherical" else _candidates(count),
        fractions={},
    )
    scaled = {"scale"} & {release.step for release in plan.schedule}
    steps: dict[Step, float] = {"scale": _SCALE_SHARE} if scaled else {}
    if centered == "private":
        steps["center"] = _CENTER_SHARE
    fractions = fractions_of(options, _mixture_fractions(common, steps, kind))
    return plan.model_copy(update={"fractions": fractions})


def _candidates(components: int) -> int:
    return min(max(_CANDIDATES_EACH * components, _FEWEST_CANDIDATES), _MOST_CANDIDATES)


def _mixture_fractions(
    common: Mapping[str, Any], steps: Mapping[Step, float], kind: CovarianceType
) -> dict[Step, float]:
    """Shares of mu squared, of epsilon where all is pure; they add up to 1."""
    if kind == "spherical":
        usual = _usual_fractions(common, steps)
        moments: dict[Step, float] = {
            step: usual[step] * (1.0 - _SUMS_PART) for step in ("moment", "tensor")
        }
        return {**steps, **moments, "sums": math.fsum(moments.values()) / (1 / _SUMS_PART - 1)}
    rest = 1.0 - math.fsum(steps.values())
    return {**steps, "moment": _MOMENT_PART * rest, "sums": (1.0 - _MOMENT_PART) * rest}


def make_topic_plan(options: Options, *, features: int, noise_draws: int = 1) -> TopicPlan:
    """Settle every choice that the options of one collection leave open."""
    common = _common(TopicPlan, options, features=features, noise_draws=noise_draws)
    clipped, auto = bool(options.clip_documents), options.alpha0 == "auto"
    if auto and common["pair"] == "sketch":
        raise options.refused(
            "alpha0",
            "= 'auto' compares whole pair moments, and these are sketched.",
            hint=f"Give a number (1: a few topics a document), or at most {TopicPlan.full_up_to} "
            "words and no sketch.",
        )
    alpha0 = _USUAL_ALPHA0 if auto else float(options.alpha0)
    steps: dict[Step, float] = {"scale": _DOCUMENT_SCALE_SHARE} if clipped else {}
    if alpha0 > 0:
        steps["center"] = _FREQUENCY_SHARE
    return TopicPlan(
        **common,
        alpha0=alpha0,
        auto_alpha0=auto,
        clip_documents=clipped,
        fractions=fractions_of(options, _usual_fractions(common, steps)),
    )


def _common(
    kind: type[TensorPlan], options: Options, *, features: int, noise_draws: int
) -> dict[str, Any]:
    """The settled fields that mixtures and topics share."""
    mechanism, pair, delta = options.mechanism, options.pair, options.delta
    if mechanism == "auto":
        mechanism = STATISTICS["third-moment"].usual(pure=delta == 0).name
    check_pure("third-moment", mechanism, delta)
    auto = options.n_components == "auto"
    if auto:
        count = min(max(1, features - 1), MOST_COMPONENTS)
    else:
        count = int(options.n_components)
        check_components(count, features)
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
        "n_components": min(count, columns),
        "auto_components": auto,
        "mechanism": mechanism,
        "pair": pair,
        "sketch_columns": columns,
    }


def _usual_fractions(common: Mapping[str, Any], steps: Mapping[Step, float]) -> dict[Step, float]:
    """Shares of mu squared, of epsilon where all is pure; they add up to 1."""
    pair = _VECTOR_PAIR if MECHANISMS[common["mechanism"]].pure else _PAIR
    rest = 1.0 - math.fsum(steps.values())
    return {**steps, "moment": pair * rest, "tensor": (1.0 - pair) * rest}
