"""A certificate as an event of dp_accounting, so that other programs can compose it with theirs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eigenveil.errors import PrivacyError
from eigenveil.privacy.certificate import Certificate


def dp_event(certificate: Certificate) -> Any:
    """What a fit of one data set released, as a ``ComposedDpEvent``.

    A Gaussian release of Gaussian-DP parameter mu is a ``GaussianDpEvent(1 / mu)``. The adjacency
    is the certificate's. The error of the samplers of noise is not in it: the guarantee of the
    certificate counts it, and is the one to state of this fit alone.

    Raises
    ------
    PrivacyError
        ``no-event`` where one event does not say it: of several sites, whose adversaries see
        different things; of streams, whose blocks are composed otherwise; of pure releases, for
        which dp_accounting has no event; of what is not certified.
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
    return PrivacyError(
        f"One event does not say what this certificate does: {why}.",
        hint="State the certificate's own guarantee.",
        code="no-event",
    )
