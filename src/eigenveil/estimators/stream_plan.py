"""What a private fit of a stream is asked to do: one pass, one round, decided before any row."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.checks import check_whole
from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.plans import Step, check_choice
from eigenveil.estimators.settings import Plan, make_plan
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.streams import StreamFactor, best_factor

Publish = Literal["end", "continual"]

# Of mu squared, or of epsilon. The scale gives the number of rows and the data's units; the moment
# is what the components are made of.
_SHARES: dict[Step, float] = {"scale": 0.02, "moment": 0.98}
# Up to so many values the second moment itself is summed up (8 MiB); beyond, a sketch.
_MOST_VALUES = 1 << 20


class StreamPlan(Plan):
    """A plan with a single round, so that rows are read once and forgotten.

    ``publish`` is "end", or "continual" with the ``horizon``, the most blocks there can be, and
    the ``factor`` that spreads the noise over them.
    """

    one_pass: ClassVar[bool] = True

    publish: Publish
    horizon: int | None = None
    factor: StreamFactor | None = None

    def released_values(self) -> int:
        """Number of coordinates of all releases together, rounded up."""
        return super().released_values() * (self.horizon or 1)

    def sharing(self, *, shares: int = 1) -> dict[Step, Sharing]:
        """How the noise of every step is shared by parties and spread over blocks."""
        return {step: Sharing(shares=shares, stream=self.factor) for step in self.shares}


def make_stream_plan(
    *,
    features: int,
    n_components: int,
    epsilon: float,
    delta: float,
    adjacency: str = "add-remove",
    row_norm: str | float = "unit",
    center: bool | NDArray[np.float64] = False,
    sketch_size: int | None = None,
    publish: str = "end",
    horizon: int | None = None,
    noise_draws: int = 1,
    invalid: str = "zero",
) -> StreamPlan:
    """Check every parameter and settle every choice.

    Parameters
    ----------
    row_norm : "unit" or float
        Rows are divided by their norm, or shortened to a public number.
    center : False or array of shape (D,)
        A public centre: one pass cannot subtract a mean that is not known yet.
    sketch_size : int, optional
        Columns of the sketch. ``None``: the whole second moment while its triangle has at most
        2**20 values (D <= 1447), else ``4 n_components`` columns.
    publish : {"end", "continual"}
    horizon : int, optional
        The most blocks of a continual stream.
    noise_draws : int
        Parties that draw the noise together.
    invalid : {"zero", "error"}
        What becomes of a row that is not valid.

    Raises
    ------
    PrivacyError, DataError
        Naming the parameter and what it may be.
    """
    check_choice("publish", publish, ("end", "continual"))
    if not isinstance(center, np.ndarray) and center:
        raise DataError(
            "center=True needs a second pass over the rows, and a stream has one.",
            hint="Give a public centre as an array, or center=False.",
            code="stream-centre",
        )
    if isinstance(row_norm, str):
        check_choice("row_norm", row_norm, ("unit",))
    factor = _factor(publish, horizon, delta)
    whole = features * (features + 1) // 2
    sketched = whole > _MOST_VALUES if sketch_size is None else True
    plan = make_plan(
        features=features,
        rows=None,
        n_components=n_components,
        epsilon=epsilon,
        delta=delta,
        mechanism="sketch" if sketched else "auto",
        adjacency=adjacency,
        row_norm=row_norm,
        row_bound=None,
        center=center,
        budget_split={"moment": 1.0},
        sketch_size=sketch_size,
        noise_draws=noise_draws,
        invalid=invalid,
    )
    settled = plan.model_dump() | {"shares": dict(_SHARES)}
    return StreamPlan(**settled, publish=publish, horizon=horizon, factor=factor)


def _factor(publish: str, horizon: int | None, delta: float) -> StreamFactor | None:
    if publish == "end":
        if horizon is not None:
            raise DataError(
                f"horizon = {horizon!r} is of a continual stream.",
                hint="Say publish='continual', or leave horizon out.",
                code="horizon-without-continual",
            )
        return None
    if horizon is None:
        raise DataError(
            "publish='continual' needs a horizon.",
            hint="Give the most blocks that there can be, 1 or more.",
            code="bad-horizon",
        )
    check_whole("horizon", horizon, code="bad-horizon")
    if delta == 0:
        raise PrivacyError(
            "publish='continual' cannot give delta = 0.",
            hint="Give a delta above 0, or publish='end'.",
            code="pure-needs-pure-mechanism",
        )
    return best_factor(int(horizon))
