"""What a fit of topics does: decided before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from eigenveil.models.options import Options
from eigenveil.models.plan import fractions_of
from eigenveil.models.schedule import Planned, Step
from eigenveil.models.tensors.plan import TensorPlan, fields_of_tensors, usual_fractions
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.statistics import StatisticName

# The same of both histograms of documents' norms.
_DOCUMENT_SCALE_SHARE = 0.04
# What forecasts take for alpha0 where it is to be found.
_USUAL_ALPHA0 = 1.0
# Of documents of several topics, whose error is nearly all that of the pairs: both histograms, how
# frequent words are, and the triple moment: with half of that, topics of 20,000 documents are found
# as well, but no longer told apart.
_OF_SEVERAL: Mapping[Step, float] = {"scale": 0.02, "center": 0.03, "tensor": 0.16}
NO_TOPICS = "no topic stands above the noise of the released pair moment"


class TopicPlan(TensorPlan):
    """Documents of topics; ``features`` is the size of the vocabulary.

    ``alpha0`` is the sum of the concentrations of a document's topics, 0 where it has one, and what
    forecasts take it to be where ``auto_alpha0`` is set: then it is found from the releases;
    ``clip_documents``: contributions are clipped at a released quantile of their norms.
    """

    # topics of a sketch are up to twice as far off; beyond, a fit takes minutes
    full_up_to: ClassVar[int] = 4000
    of_documents: ClassVar[bool] = True

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


def make_plan(options: Options, *, features: int, noise_draws: int = 1) -> TopicPlan:
    common = fields_of_tensors(TopicPlan, options, features=features, noise_draws=noise_draws)
    clipped, auto = bool(options.clip_documents), options.alpha0 == "auto"
    if auto and common["pair"] == "sketch":
        raise options.refused("alpha0", "sketched-pairs", words=TopicPlan.full_up_to)
    alpha0 = _USUAL_ALPHA0 if auto else float(options.alpha0)
    shares = usual_fractions(common, {"scale": _DOCUMENT_SCALE_SHARE} if clipped else {})
    if alpha0 > 0:
        shares = {step: part for step, part in _OF_SEVERAL.items() if clipped or step != "scale"}
        if MECHANISMS[common["mechanism"]].pure:
            del shares["tensor"]
            shares = usual_fractions(common, shares)
        else:
            shares["moment"] = 1.0 - math.fsum(shares.values())
    return TopicPlan(
        **common,
        alpha0=alpha0,
        auto_alpha0=auto,
        clip_documents=clipped,
        fractions=fractions_of(options, shares),
    )
