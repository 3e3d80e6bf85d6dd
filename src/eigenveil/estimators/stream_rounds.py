"""The single round of a stream: what is summed up, and what its release gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.estimators.driver import drive
from eigenveil.estimators.pipeline import Factors, private_pca
from eigenveil.estimators.rounds import Answers, Round
from eigenveil.estimators.stream_plan import StreamPlan


def stream_asks(
    plan: StreamPlan, *, public_centre: NDArray[np.float64] | None = None, shares: int = 1
) -> Round:
    """The sums of a stream and their records; ``shares`` parties draw the noise together."""
    rounds = private_pca(
        plan,
        stored_single=False,
        public_centre=public_centre,
        sharing=plan.sharing(shares=shares),
    )
    return next(rounds)


def stream_factors(
    plan: StreamPlan,
    answers: Answers,
    *,
    public_centre: NDArray[np.float64] | None = None,
    public_rows: int | None = None,
) -> Factors:
    """Components and variances from releases of :func:`stream_asks`, by the names of the asks.

    ``public_rows`` is the number of rows where it is public: under replace-one.
    """
    counted = plan.model_copy(update={"rows": public_rows})
    rounds = private_pca(counted, stored_single=False, public_centre=public_centre)
    once = [answers]  # a stream has one round
    return drive(rounds, lambda _: once.pop())
