"""What a private fit of a stream does: one pass, one round, decided before any row."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.models.driver import drive
from eigenveil.models.options import Options
from eigenveil.models.pca.plan import Plan, make_plan
from eigenveil.models.pca.rounds import private_pca
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.schedule import Step
from eigenveil.moments.rows import AS_IT_IS, Preparation
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.statistics import STATISTICS
from eigenveil.privacy.streams import StreamFactor, best_factor

Publish = Literal["end", "continual", "blocks"]

# Of mu squared, or of epsilon. The scale gives the number of rows and the data's units; the moment
# is what the components are made of.
_FRACTIONS: dict[Step, float] = {"scale": 0.02, "moment": 0.98}
# Up to so many values the second moment itself is summed up (8 MiB); beyond, a sketch.
_MOST_VALUES = 1 << 20


class StreamPlan(Plan):
    """A plan with a single round, so that rows are read once and forgotten.

    ``publish`` is "end"; or "continual" with the ``horizon``, the most blocks there can be, and
    the ``factor`` that spreads the noise over them; or "blocks", each of which has noise of its
    own, where released sums are multiplied by ``forgetting`` at every further block.
    """

    one_pass: ClassVar[bool] = True

    publish: Publish
    horizon: int | None = None
    factor: StreamFactor | None = None
    forgetting: float = 1.0

    def context(self) -> dict[str, Any]:
        return {"features": self.features, "noise_draws": self.noise_draws}

    def released_values(self) -> int:
        return super().released_values() * (self.horizon or 1)

    def sharing(self, *, noise_parts: int = 1) -> dict[Step, Sharing]:
        """How the noise of every step is shared by parties and spread over blocks."""
        return {
            step: Sharing(
                noise_parts=noise_parts, stream=self.factor, disjoint=self.publish == "blocks"
            )
            for step in self.fractions
        }


def make_stream_plan(options: Options, *, features: int, noise_draws: int = 1) -> StreamPlan:
    """Settle every choice that the options of a private stream leave open.

    Where the columns of a sketch are not given, the whole second moment is summed up while its
    triangle has at most 2**20 values (D <= 1447), and a sketch of 4 columns a component beyond.
    """
    factor = _factor(options)
    if factor is not None and options.unit is not None and options.adjacency == "replace-one":
        raise PrivacyError("units-replaced-in-blocks")
    if options.publish == "blocks" and options.unit is not None:
        raise PrivacyError("units-in-blocks")
    whole = features * (features + 1) // 2
    sketched = whole > _MOST_VALUES or options.given_columns is not None
    noise = STATISTICS["second-moment"].usual(pure=options.delta == 0).name
    table = options.on("table", mechanism="sketch" if sketched else noise)
    plan = make_plan(table, features=features, noise_draws=noise_draws)
    settled = plan.model_dump() | {"fractions": dict(_FRACTIONS)}
    horizon = None if options.horizon is None else int(options.horizon)
    return StreamPlan(
        **settled,
        publish=options.publish,
        horizon=horizon,
        factor=factor,
        forgetting=_forgetting(options),
    )


def _factor(options: Options) -> StreamFactor | None:
    if options.publish != "end" and options.delta == 0:
        raise PrivacyError(
            "pure-needs-other-mechanism",
            name="publish",
            value=options.publish,
            instead="publish='end'",
        )
    if options.publish != "continual":
        if options.horizon is not None:
            raise options.refused(
                "horizon",
                "unused-parameter",
                of="publish='continual'",
                found=options.publish,
                given=options.horizon,
                usual=None,
            )
        return None
    if options.horizon is None:
        raise options.refused("horizon", "no-horizon")
    return best_factor(int(options.horizon))


def _forgetting(options: Options) -> float:
    if options.publish != "blocks" and options.forgetting != 1.0:
        raise options.refused(
            "forgetting",
            "unused-parameter",
            of="publish='blocks'",
            found=options.publish,
            given=options.forgetting,
            usual=1.0,
        )
    return float(options.forgetting)


# -- The single round of a stream: what is summed up, and what its release gives.


def stream_queries(
    plan: StreamPlan,
    *,
    public_center: NDArray[np.float64] | None = None,
    preparation: Preparation = AS_IT_IS,
    noise_parts: int = 1,
) -> Round:
    """The sums of a stream and their records; ``noise_parts`` parties draw the noise together."""
    rounds = private_pca(
        plan,
        public_center=public_center,
        preparation=preparation,
        sharing=plan.sharing(noise_parts=noise_parts),
    )
    return next(rounds)


def stream_factors(
    plan: StreamPlan,
    answers: Answers,
    *,
    public_center: NDArray[np.float64] | None = None,
    preparation: Preparation = AS_IT_IS,
) -> PCAFactors:
    """Components and variances from releases of :func:`stream_queries`, by their names."""
    rounds = private_pca(plan, public_center=public_center, preparation=preparation)
    once = [answers]  # a stream has one round
    return drive(rounds, lambda _: once.pop())
