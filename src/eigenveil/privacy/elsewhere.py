"""What work done elsewhere cost, as a loss that is no smaller (docs/proofs/elsewhere.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

from eigenveil.checks import is_number
from eigenveil.errors import DataError, PrivacyError
from eigenveil.privacy.accountant import Loss, delta_of_mu
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.guarantee import ADJACENCIES, Adjacency

_LARGEST, _LARGEST_RHO = 1e6, 8.0


@dataclass(frozen=True)
class Statement:
    """What releases made elsewhere promise together; what is chosen one after the other adds up."""

    mu_squared: float = 0.0  # Sums of squared mu, of pure epsilons and of rho
    pure: float = 0.0
    rho: float = 0.0
    approximate: tuple[tuple[float, float], ...] = ()  # One for each approximate promise

    def __add__(self, other: Statement) -> Statement:
        return Statement(
            self.mu_squared + other.mu_squared,
            self.pure + other.pure,
            self.rho + other.rho,
            self.approximate + other.approximate,
        )

    def times(self, count: int) -> Statement:
        return Statement(
            count * self.mu_squared, count * self.pure, count * self.rho, self.approximate * count
        )

    def loss(self, *, rows: int = 1) -> Loss:
        """The loss, for neighbours that are so many of the statement's apart: 1 or 2."""
        near = [
            (rows * epsilon, delta * (1.0 if rows == 1 else 1.0 + math.exp(epsilon)))
            for epsilon, delta in self.approximate
        ]
        mu = mu_of_rho(self.rho * rows**2)
        return Loss(
            mu_squared=self.mu_squared * rows**2 + mu * mu,
            pure=self.pure * rows + math.fsum(epsilon for epsilon, _ in near),
            distance=math.fsum(delta / (1.0 + math.exp(epsilon)) for epsilon, delta in near),
        )


@dataclass(frozen=True)
class Elsewhere:
    """Work done elsewhere, as it is charged to an account."""

    statement: Statement
    adjacency: Adjacency = "add-remove"  # Of the statement's neighbours
    # Under "add-remove": the most rows of one unit that the statement is for, OpenDP's symmetric
    # distance. Of 2 or more, it is for one changed row too.
    contributions: int = 1
    what: str = ""  # What was done, for the ledger's owner

    def __post_init__(self) -> None:
        if self.adjacency not in ADJACENCIES:
            raise PrivacyError(
                "bad-adjacency", adjacency=self.adjacency, known=" or ".join(ADJACENCIES)
            )
        rows = self.contributions
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise _bad("contributions", rows, "a whole number from 1")

    @classmethod
    def stated(
        cls,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        rho: float | None = None,
        mu: float | None = None,
        adjacency: Adjacency = "add-remove",
        contributions: int = 1,
        what: str = "",
    ) -> Self:
        """Of one measure: epsilon, epsilon with delta, rho or mu."""
        given = {
            name: value
            for name, value in (("epsilon", epsilon), ("rho", rho), ("mu", mu))
            if value is not None
        }
        if len(given) != 1:
            raise DataError("not-one-statement", given_count=len(given))
        for name, value in given.items():
            if not is_number(value) or not 0 < value <= _LARGEST:
                raise _bad(name, value, f"a number above 0, up to {_LARGEST:g}")
        if not is_number(delta) or not 0 <= delta < 1 or (delta > 0 and epsilon is None):
            raise _bad("delta", delta, "a number in [0, 1), beside epsilon only")
        if mu is not None:
            found = Statement(mu_squared=mu * mu)
        elif rho is not None:
            found = Statement(rho=rho)
        else:
            assert epsilon is not None
            found = Statement(approximate=((epsilon, delta),)) if delta else Statement(pure=epsilon)
        return cls(found, adjacency, contributions, what)

    def under(self, adjacency: Adjacency) -> Loss:
        """The loss as an account under an adjacency counts it."""
        changed = adjacency == "replace-one" and self.adjacency == "add-remove"
        return self.statement.loss(rows=2 if changed and self.contributions < 2 else 1)


def _bad(name: str, value: object, wanted: str) -> DataError:
    return DataError("bad-statement", name=name, value=value, wanted=wanted)


# -- zero-concentrated: the Gaussian that is at least as easy to tell apart.

_STEP = 1.0 + 2.0**-7
_FINEST = 2.0**-7


def mu_of_rho(rho: float) -> float:
    """A mu for which what is rho-zCDP is mu-GDP, rounded up; 0 for 0 (elsewhere.md, claim 2)."""
    if rho == 0:
        return 0.0
    if rho > _LARGEST_RHO:
        raise PrivacyError("rho-not-countable", rho=rho, largest=_LARGEST_RHO)
    gaussian = math.sqrt(2.0 * rho)
    low, high = 1.0, 4.0
    while high - low > _FINEST:
        middle = (low + high) / 2
        low, high = (low, middle) if _dominates(middle * gaussian, rho) else (middle, high)
    return high * gaussian


def _dominates(mu: float, rho: float) -> bool:
    """Whether delta of mu-GDP is at least that of rho-zCDP at every epsilon."""
    step = math.sqrt(2.0 * rho) * 2.0**-7
    epsilon = 0.0
    while not _tail_holds(mu, rho, epsilon):
        beyond = max(epsilon + step, epsilon * _STEP)
        if delta_of_rho(rho, epsilon) > delta_of_mu(mu, beyond):
            return False
        epsilon = beyond
    return True


def delta_of_rho(rho: float, epsilon: float) -> float:
    """A delta for which what is rho-zCDP is (epsilon, delta)-DP: the least of four bounds."""
    # Pinsker; Bretagnolle and Huber; Scarf of the second moment; Canonne, Kamath and Steinke (2020,
    # 13)
    over, spread = math.expm1(epsilon), math.expm1(2.0 * rho)
    found = [
        math.sqrt(rho / 2.0),
        1.0 - math.exp(-rho) / 2.0,
        0.5 * spread / (math.sqrt(spread + over * over) + over),
    ]
    if epsilon > rho:
        order = (epsilon + rho) / (2.0 * rho)
        ratio = order * math.log1p(-1.0 / order)
        found.append(math.exp(-((epsilon - rho) ** 2) / (4.0 * rho) + ratio) / (order - 1.0))
    return min(found)


def _tail_holds(mu: float, rho: float, epsilon: float) -> bool:
    """Whether the last bound stays below the Gaussian's delta from this epsilon on (claim 2)."""
    if epsilon <= rho:
        return False
    c2 = mu * mu / (2.0 * rho)
    grows = (c2 - 1.0) * epsilon * (epsilon + c2 * rho) >= 4.0 * c2 * rho
    apart = (c2 - 1.0) * (epsilon**2 - c2 * rho**2) / (4.0 * c2 * rho)
    far = (epsilon / mu + mu / 2.0) ** 2 + 3.0
    factor = math.sqrt(8.0 * math.pi) * rho * far / (math.e * (epsilon - rho) * mu)
    return grows and apart >= math.log(factor)


def dp_event(certificate: Certificate) -> Any:
    """What a fit of one data set released, as a ``ComposedDpEvent`` of Gaussian ones."""
    # the samplers' error is not in it: the certificate's guarantee counts it, and is the one to
    # state
    reasons = certificate.reasons_not_certified
    if reasons:
        raise _no_event(f"the result is not certified ({'; '.join(reasons)})")
    if certificate.federation is not None or certificate.tree is not None:
        raise _no_event("the adversaries of several sites see different things")
    if any(record.stream is not None or record.disjoint for record in certificate.releases):
        raise _no_event("the blocks of a stream are composed otherwise")
    if any(record.pure for record in certificate.releases):
        raise _no_event("dp_accounting has no event for a release of pure epsilon")
    try:
        accounting: Any = import_module("dp_accounting")
    except ImportError:
        raise PrivacyError("no-dp-accounting") from None
    return accounting.ComposedDpEvent(
        [accounting.GaussianDpEvent(1.0 / record.mu()) for record in certificate.releases]
    )


def _no_event(why: str) -> PrivacyError:
    return PrivacyError("no-event", why=why)


def from_event(event: Any, *, adjacency: Adjacency, what: str = "") -> Elsewhere:
    """An event of dp_accounting, for :meth:`~eigenveil.Ledger.charge_elsewhere`.

    Counted are the events of Gaussian and Laplace noise, of randomised response, zCDP with ``xi =
    0``, what composes them, and under "add-remove" Poisson samples of pure events. ``adjacency`` is
    that which its noise multipliers are for.
    """
    found = _statement(event, adjacency)
    return Elsewhere(found, adjacency, what=what or str(event))


def _statement(event: Any, adjacency: Adjacency) -> Statement:
    kind = type(event).__name__
    match kind:
        case "NoOpDpEvent":
            return Statement()
        case "GaussianDpEvent":
            return Statement(mu_squared=_number(1.0, event.noise_multiplier, kind) ** 2)
        case "LaplaceDpEvent":
            return Statement(pure=_number(1.0, event.noise_multiplier, kind))
        case "RandomizedResponseDpEvent":
            buckets, truth = event.num_buckets, 1.0 - event.noise_parameter
            if buckets < 2 or not 0 <= truth <= 1:
                raise _not_counted(kind, "its numbers are no probabilities")
            return Statement(pure=math.log1p(_number(buckets * truth, event.noise_parameter, kind)))
        case "ZCDpEvent" if event.xi == 0:
            return Statement(rho=_number(event.rho, 1.0, kind))
        case "ComposedDpEvent":
            parts = (_statement(each, adjacency) for each in event.events)
            return sum(parts, Statement())
        case "SelfComposedDpEvent":
            return _statement(event.event, adjacency).times(event.count)
        case "PoissonSampledDpEvent" if adjacency == "add-remove":
            inner, part = _statement(event.event, adjacency), event.sampling_probability
            if inner == Statement(pure=inner.pure) and 0 <= part <= 1 and inner.pure < _MOST_PURE:
                return Statement(pure=math.log1p(part * math.expm1(inner.pure)))
    raise _not_counted(kind, _WHY.get(kind, "it is not known"))


_MOST_PURE = 700.0
_WHY = {
    "NonPrivateDpEvent": "it promises nothing",
    "UnsupportedDpEvent": "dp_accounting itself cannot count it",
    "ZCDpEvent": "of approximate zCDP (xi above 0) no bound is known here",
    "PoissonSampledDpEvent": "sampling is counted of pure events only, under add-remove",
    "SingleEpochTreeAggregationDpEvent": "its neighbours have a record set to zero, not removed",
}
_WHY |= dict.fromkeys(
    (
        "SampledWithReplacementDpEvent",
        "SampledWithoutReplacementDpEvent",
        "TruncatedSubsampledGaussianDpEvent",
    ),
    "a sample's loss is neither a mu nor a pure epsilon",
)


def _number(above: float, below: float, kind: str) -> float:
    if not (0 < below < math.inf and 0 <= above < math.inf):
        raise _not_counted(kind, "without noise it promises nothing")
    return above / below


def _not_counted(kind: str, why: str) -> PrivacyError:
    return PrivacyError("not-countable", kind=kind, why=why)
