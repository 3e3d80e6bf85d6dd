"""Whatever stops a fit, at any round of any task and mechanism, says exactly what was spent."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import count

import numpy as np
import pytest

from eigenveil import (
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    InvalidRowsWarning,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.errors import DataError, spent_of
from eigenveil.models import driver
from eigenveil.models.pca.plan import MECHANISMS
from eigenveil.models.stored import StoredModel
from eigenveil.models.tensors.plan import TENSOR_MECHANISMS
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import SEEDED
from soak_tools import SOAK

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(900, 4)) + 5.0 * np.eye(2, 4)[RNG.integers(2, size=900)]
WORDS = RNG.multinomial(12, np.full(4, 0.25), size=900).astype(float)
STOPS = (ValueError, KeyboardInterrupt, MemoryError, StopIteration)
COMMON = {"n_components": 2, "epsilon": 9.0, "random_state": 3}


def fits():
    """Every task, mechanism and kind of budget, over one table and over sites."""
    for delta in (0.0, 1e-6):
        for mechanism in MECHANISMS:
            if delta > 0 or mechanism not in ("gaussian", "adaptive"):
                yield f"pca {mechanism} {delta}", PrivatePCA, ROWS, delta, mechanism
        yield f"sites pca {delta}", FederatedPCA, ROWS, delta, None
        for mechanism in TENSOR_MECHANISMS:
            if (mechanism, delta) != ("gaussian", 0.0):
                yield f"mixture {mechanism} {delta}", PrivateGaussianMixture, ROWS, delta, mechanism
                yield f"topics {mechanism} {delta}", PrivateTopicModel, WORDS, delta, mechanism
        yield f"sites mixture {delta}", FederatedGaussianMixture, ROWS, delta, None
        yield f"sites topics {delta}", FederatedTopicModel, WORDS, delta, None


FITS = {name: fit for name, *fit in fits()}
ONE_TABLE = [name for name in FITS if not name.startswith("sites")]


def fitted(name):
    made, rows, delta, mechanism = FITS[name]
    if name.startswith("sites"):
        return made(delta=delta, **COMMON, protocol="cape").fit(np.array_split(rows, 2))
    return made(delta=delta, mechanism=mechanism, **COMMON).fit(rows)


@cache
def whole(name):
    """All releases of a fit, by rounds."""
    model = fitted(name)
    by_name = {record.name: record for record in model.certificate_.releases}
    plan = model._result.plan
    rounds = [[by_name[one.name] for one in round_] for round_ in plan.rounds]
    assert sum(map(len, rounds)) == len(by_name)
    return rounds, plan


def stopped_at(n, kind):
    """A function's stand-in that raises the n-th time, counted from 0."""

    def instead(original):
        times = count()

        def stop(*args, **options):
            if next(times) == n:
                raise kind("injected")
            return original(*args, **options)

        return stop

    return instead


def reported(error, wanted, plan):
    if not wanted:
        assert spent_of(error) is None
        assert not getattr(error, "released", ())
        return
    released = [r.model_copy(update={"noise_source": "operating system"}) for r in error.released]
    wanted = [r.model_copy(update={"noise_source": "operating system"}) for r in wanted]
    assert released == wanted
    exact = compose(
        wanted, delta=plan.delta, adjacency=plan.adjacency, reasons_not_certified=[SEEDED]
    )
    assert spent_of(error) == exact


def stopped(name, monkeypatch, where, attribute, n, kind):
    with monkeypatch.context() as patch:
        patch.setattr(where, attribute, stopped_at(n, kind)(getattr(where, attribute)))
        with pytest.raises(BaseException) as caught:  # a StopIteration comes as a RuntimeError
            fitted(name)
    root = caught.value if isinstance(caught.value, kind) else caught.value.__cause__
    assert isinstance(root, kind)
    return caught.value


def some(steps, name):
    """Every third of so many steps, of each fit others; in make nightly all."""
    every = 3 if SOAK < 1 else 1
    return range(sum(map(ord, name)) % every, steps, every)


@pytest.mark.parametrize("name", FITS)
def test_whatever_stops_between_rounds_says_what_was_spent(name, monkeypatch):
    rounds, plan = whole(name)
    for n in some(len(rounds) + 1, name):  # before the first round, and after each
        kind = STOPS[(n + n // 3) % 3]
        error = stopped(name, monkeypatch, driver, "next_round", n, kind)
        reported(error, [record for done in rounds[:n] for record in done], plan)
    # and after the last one
    error = stopped(name, monkeypatch, StoredModel, "_take_over", 0, STOPS[len(rounds) % 3])
    reported(error, [record for done in rounds for record in done], plan)


@pytest.mark.parametrize("name", ONE_TABLE)
def test_whatever_stops_while_noise_is_drawn_says_what_was_spent(name, monkeypatch):
    """The release whose noise is being drawn counts."""
    rounds, plan = whole(name)
    records = [record for done in rounds for record in done]
    for n in some(len(records), name):
        kind = STOPS[(n + n // 3) % len(STOPS)]
        error = stopped(name, monkeypatch, Accumulator, "release", n, kind)
        reported(error, records[: n + 1], plan)


@pytest.mark.parametrize("made", [PrivatePCA, FederatedPCA])
def test_a_warning_that_is_an_error_says_what_was_spent(made):
    rows = ROWS.copy()
    rows[3, 1] = np.nan
    source = ArrayRows(rows)
    X = source if made is PrivatePCA else {"a": source, "b": ArrayRows(ROWS)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidRowsWarning)
        with pytest.raises(InvalidRowsWarning) as caught:
            made(2, epsilon=9.0).fit_rows(X)
    assert 0 < spent_of(caught.value).epsilon <= 9.0


def test_a_source_of_rows_cannot_end_the_rounds():
    class Ends(ArrayRows):
        def blocks(self):
            if self.passes == 2:
                raise StopIteration
            self.passes += 1
            return super().blocks()

    rows = Ends(ROWS)
    rows.passes = 0
    with pytest.raises(RuntimeError) as caught:
        PrivatePCA(2, epsilon=9.0).fit_rows(rows)
    assert len(caught.value.released) == 2


@pytest.mark.parametrize("rounds", [-1, 0, 1.5, True])
def test_impossible_rounds_of_power_iteration_are_refused_before_anything_is_released(rounds):
    with pytest.raises((DataError, ValueError, TypeError)) as caught:
        PrivatePCA(2, mechanism="power", power_rounds=rounds).fit(ROWS)
    assert spent_of(caught.value) is None
