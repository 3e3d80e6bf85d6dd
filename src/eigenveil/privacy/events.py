"""Events of dp_accounting: a certificate as one, for other programs; theirs, for a ledger."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from eigenveil.errors import PrivacyError
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.elsewhere import Elsewhere, Statement
from eigenveil.privacy.guarantee import Adjacency


def dp_event(certificate: Certificate) -> Any:
    """What a fit of one data set released, as a ``ComposedDpEvent``.

    A Gaussian release of Gaussian-DP parameter mu is a ``GaussianDpEvent(1 / mu)``. The adjacency
    is the certificate's. The error of the samplers of noise is not in it: the guarantee of the
    certificate counts it, and is the one to state of this fit alone.
    """
    reasons = certificate.reasons_not_certified
    if reasons:
        raise _no_event(f"the result is not certified ({'; '.join(reasons)})")
    if certificate.federation is not None or certificate.tree is not None:
        raise _no_event("the adversaries of several sites see different things")
    if any(record.stream is not None or record.disjoint for record in certificate.releases):
        raise _no_event("the blocks of a stream are composed otherwise")
    if any(record.pure for record in certificate.releases):
        raise _no_event("dp_accounting has no event for a release of pure epsilon")
    accounting: Any = import_module("dp_accounting")
    return accounting.ComposedDpEvent(
        [accounting.GaussianDpEvent(1.0 / record.mu()) for record in certificate.releases]
    )


def _no_event(why: str) -> PrivacyError:
    return PrivacyError("no-event", why=why)


def from_event(event: Any, *, adjacency: Adjacency, what: str = "") -> Elsewhere:
    """An event of dp_accounting, for :meth:`~eigenveil.Ledger.charge_elsewhere`.

    Counted are ``GaussianDpEvent``, ``LaplaceDpEvent``, ``RandomizedResponseDpEvent``,
    ``ZCDpEvent`` with ``xi = 0``, ``NoOpDpEvent``, what ``ComposedDpEvent`` and
    ``SelfComposedDpEvent`` make of them, and under "add-remove" a ``PoissonSampledDpEvent`` of
    pure events.

    Parameters
    ----------
    event : dp_accounting.DpEvent
    adjacency : {"add-remove", "replace-one"}
        Which neighbours its noise multipliers are for: ``NeighboringRelation.ADD_OR_REMOVE_ONE``
        or ``REPLACE_ONE``.
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
