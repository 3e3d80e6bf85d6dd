"""The choice of a protocol where a study has ``protocol = "auto"``, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from eigenveil.models.model_options import COVARIANCE, MIXTURE, PCA, TOPICS
from eigenveil.models.schedule import COUNTS_OF_HOLES
from eigenveil.models.task import TASKS
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.planning.forecast import DEFAULT_SPECTRUM, fit_memory, forecast, moment_values
from eigenveil.planning.predict import size_text

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study

# Without a prediction the more exact protocol is chosen while it is easily sent and held.
_LARGE_MESSAGE = 64 << 20
_LARGE_MEMORY = 4 << 30
# With one it is chosen however large, up to what a site's machine can hold.
_TOO_MUCH_MEMORY = 64 << 30
# Predictions that differ by less are taken to be the same.
_SAME_ENERGY = 0.01


@dataclass(frozen=True)
class Chosen:
    """A protocol, and one sentence that gives the reason."""

    protocol: Literal["cape", "sketch"]
    reason: str


@dataclass(frozen=True)
class _Candidate:
    message_bytes: int
    memory_bytes: int


def choose_protocol(study: Study, features: int, spectrum: str = DEFAULT_SPECTRUM) -> Chosen:
    """The protocol for a study of this many columns.

    Of mixtures and topics the columns decide, as in a fit of one data set. Of PCA, with
    ``expected_rows`` the predicted captured energy decides (simulated from a fixed seed, which
    takes seconds), and the smaller message where predictions are as good as equal; without, the
    sizes. Arithmetic differs between machines in the last digits, so where two predictions lie just
    so, two machines may choose differently: one party chooses, and writes what it chose.
    """
    if study.delta == 0:
        return Chosen("cape", "delta = 0 is proved for cape only.")
    if study.given_columns is not None:
        return Chosen("sketch", "The study states how many columns a sketch has.")
    chosen: Chosen = TASKS[study.task].own(_CHOICES)(study, features, spectrum)
    return chosen


def by_prediction(study: Study, features: int, spectrum: str) -> Chosen:
    """By predicted captured energy, or by sizes: see :func:`choose_protocol`."""
    if len(study.sites) == 1:
        return Chosen("cape", "With one site there is nothing to save by sketching.")
    if study.is_given("mechanism"):
        return Chosen("cape", "The study states how the whole second moment is released.")
    if study.missing in COUNTS_OF_HOLES:
        return Chosen("cape", "Missing entries are corrected for in the whole second moment.")
    if study.covariates is not None:
        return Chosen("cape", "Effects of covariates are those of the whole second moment.")
    if study.scores_by is not None:
        return Chosen("cape", "Groups of scores are left out of the whole second moment.")
    cape, sketch = (_size(study, protocol, features) for protocol in ("cape", "sketch"))
    if study.expected_rows is not None and cape.memory_bytes <= _TOO_MUCH_MEMORY:
        found = _by_energy(study, features, study.expected_rows, spectrum, cape, sketch)
        if found is not None:
            return found
    return _by_size(cape, sketch)


def _size(study: Study, protocol: str, features: int) -> _Candidate:
    plan = study.with_protocol(protocol).plan(features)
    return _Candidate(8 * moment_values(plan), fit_memory(plan))


def whole_moment(study: Study, features: int, spectrum: str) -> Chosen:
    """Always the same: a model that needs the whole second moment has no use for a sketch."""
    del study, features, spectrum
    return Chosen("cape", "The model needs the whole second moment.")


def by_columns(study: Study, features: int, spectrum: str) -> Chosen:
    """By the number of columns, as in a fit of one data set."""
    del spectrum
    plan = study.plan(features)
    assert isinstance(plan, TensorPlan)
    most = plan.full_up_to
    whole, part = 8 * (features * (features + 1) // 2), 8 * features * plan.sketch_columns
    numbers = f"cape would send {size_text(whole)} and sketch {size_text(part)}"
    if features <= most:
        return Chosen("cape", f"Up to {most:,} columns the whole pair moment is kept: {numbers}.")
    return Chosen(
        "sketch", f"Of more than {most:,} columns the pair moment is sketched: {numbers}."
    )


def _by_energy(
    study: Study,
    features: int,
    rows: int,
    spectrum: str,
    cape: _Candidate,
    sketch: _Candidate,
) -> Chosen | None:
    """By predicted captured energy; ``None`` where neither can be predicted."""
    dense, narrow = (
        forecast(study.with_protocol(protocol), features, rows, spectrum).captured_energy
        for protocol in ("cape", "sketch")
    )
    if dense is None and narrow is None:
        return None
    smaller: Literal["cape", "sketch"] = (
        "sketch" if sketch.message_bytes < cape.message_bytes else "cape"
    )
    gain = (-1.0 if dense is None else dense) - (-1.0 if narrow is None else narrow)
    numbers = (
        f"cape would capture {_energy(dense)} and sketch {_energy(narrow)} of the energy at "
        f"{rows:,} rows ({spectrum}), for messages of {size_text(cape.message_bytes)} and "
        f"{size_text(sketch.message_bytes)}"
    )
    if abs(gain) < _SAME_ENERGY:
        return Chosen(
            smaller, f"As good as the same is predicted, and {smaller} sends less: {numbers}."
        )
    best: Literal["cape", "sketch"] = "cape" if gain > 0 else "sketch"
    return Chosen(best, f"More is predicted of {best}: {numbers}.")


def _by_size(cape: _Candidate, sketch: _Candidate) -> Chosen:
    large, small = (
        f"messages of {size_text(each.message_bytes)} and {size_text(each.memory_bytes)} of a "
        "site's memory"
        for each in (cape, sketch)
    )
    numbers = f"cape needs {large}, sketch {small}"
    fits = cape.message_bytes <= _LARGE_MESSAGE and cape.memory_bytes <= _LARGE_MEMORY
    smaller = sketch.message_bytes < cape.message_bytes
    if fits or not smaller:
        return Chosen("cape", f"It keeps all of the second moment and is small enough: {numbers}.")
    return Chosen("sketch", f"The second moment would be too large: {numbers}.")


def _energy(value: float | None) -> str:
    return "none that can be predicted" if value is None else f"{value:.3f}"


_CHOICES = {
    PCA: by_prediction,
    MIXTURE: by_columns,
    TOPICS: by_columns,
    COVARIANCE: whole_moment,
}
