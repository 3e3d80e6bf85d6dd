"""What PCA's ``mechanism="auto"`` takes of a table: the whole second moment, or a sketch of it.

Columns, components and the other options decide, all of which are public; no row does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

from eigenveil.models.model_options import MOST_COMPONENTS
from eigenveil.models.options import Options
from eigenveil.models.plan import scale_kind
from eigenveil.models.schedule import COUNTS_OF_HOLES
from eigenveil.privacy.statistics import STATISTICS

# The whole moment is taken up to here, whatever it costs: 4,095 columns, as at sites.
LARGEST_WHOLE = 64 << 20
# Beyond, where it costs so many times as much as a sketch, or more.
_TIMES = 10.0
# A sketch that was not asked for is of no fewer columns than this part of a row's: its noise is
# then that of the whole moment but for an eighth, and few components have enough beside them.
_PART = 64
# Multiplications in whose time a number is passed by every pass that all ways make over the rows,
# and in whose time a number of the release gets its noise; measured.
_PASSES, _NOISE = 200.0, 1000.0


@dataclass(frozen=True)
class Work:
    """Multiplications that a way takes."""

    a_row: float
    alone: float  # Whatever the number of rows

    def times(self, other: Work) -> float:
        """How often the other's, at the least, whatever the number of rows."""
        # a ratio of two affine functions of it lies between its values at none and at infinity
        return min(self.a_row / other.a_row, self.alone / other.alone)


def work_of_whole(features: int) -> Work:
    """Of the moment twice: half of each and what is between; their noise and decompositions."""
    d = float(features)
    return Work(d * (2.0 * d + _PASSES), d * d * (8.0 * d + _NOISE))


def work_of_sketch(features: int, columns: int, components: int) -> Work:
    """Of rows times the basis, back, and inside it; the noise and decompositions of D x R."""
    d, r = float(features), float(columns)
    return Work(d * (3.0 * r + components + _PASSES), d * r * (10.0 * r + _NOISE))


@dataclass(frozen=True)
class AutoChoice:
    """What "auto" takes, and one sentence that gives the reason."""

    mechanism: str
    columns: int | None  # Of the sketch, where the options do not give them
    reason: str


def choose(options: Options, features: int, *, whole: bool) -> AutoChoice:
    """What "auto" stands for, of so many columns; a sketch only where ``whole`` is not wanted."""
    count = options.n_components
    most = int(count) if isinstance(count, Integral) else min(features, MOST_COMPONENTS)
    columns = min(features, max(4 * most, -(-features // _PART)))
    exact, size = _whole(options, features), 4 * features * (features + 1)
    for why in _needs(options, whole=whole):
        return AutoChoice(exact, None, f"{why}.")
    if options.given_columns is not None:
        return AutoChoice("sketch", None, f"sketch_size={options.given_columns} asks for a sketch.")
    moment = f"the whole second moment of {features:,} columns ({size / 2**20:,.3g} MiB)"
    if size <= LARGEST_WHOLE:
        return AutoChoice(exact, None, f"{moment[0].upper()}{moment[1:]} is small enough.")
    times = work_of_whole(features).times(work_of_sketch(features, columns, most))
    takes = f"{moment} takes {times:.3g} times as long as a sketch of {columns:,}"
    if times < _TIMES:
        return AutoChoice(exact, None, f"It shows more, and {takes}, or longer.")
    return AutoChoice("sketch", columns, f"Released twice, {takes}, or longer.")


def _whole(options: Options, features: int) -> str:
    """The mechanism that releases the whole moment."""
    once = options.missing in COUNTS_OF_HOLES or options.covariates is not None
    once = once or options.get("scores_by") is not None
    once = once or options.delta == 0 or options.n_components == features
    noise = STATISTICS["second-moment"].usual(pure=options.delta == 0).name
    return noise if once else "adaptive"


def _needs(options: Options, *, whole: bool) -> Iterator[str]:
    """Why the moment has to be whole, or is worth it at any width."""
    split = options.budget_split
    if whole:
        yield "The protocol sends the whole second moment"
    if options.delta == 0:
        yield "With delta = 0 a sketch has far more noise than the whole second moment"
    if options.covariates is not None:
        yield "Effects of covariates are those of the whole second moment"
    if options.get("scores_by") is not None:
        yield "Groups of scores are left out of the whole second moment"
    if options.missing in COUNTS_OF_HOLES:
        yield "Missing entries are corrected for in the whole second moment"
    if scale_kind(options) == "private":
        yield "Scales are read once more off the whole second moment"
    if options.row_norm in ("auto", "max"):
        yield f"row_norm={options.row_norm!r} is of the whole second moment"
    if split is not None and not split.get("variance", 0.0) > 0.0:
        yield "Without a release of the variances the whole second moment shows them"
