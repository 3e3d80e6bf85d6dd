"""Private PCA up a tree: what the root may publish of what arrived, and what is promised of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.estimators.pipeline import Factors
from eigenveil.estimators.result import certificate_of, frozen
from eigenveil.estimators.stream_rounds import stream_factors
from eigenveil.federation.tree_contents import Totals
from eigenveil.federation.tree_messages import Leaves
from eigenveil.federation.tree_nodes import Merged
from eigenveil.federation.tree_private import TreeStudy
from eigenveil.moments.release import Release, from_coordinates, release_of
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.tree_views import TreeRun, check_arrived
from eigenveil.privacy.views import with_shares


@dataclass(frozen=True, eq=False)
class TreeOutcome:
    """What the root may publish.

    Attributes
    ----------
    factors : Factors
        Components, variances, what is usable; the certificate is theirs, and arrays cannot be
        written.
    certificate : Certificate
        Of the result, for those who see nothing else.
    guarantees_ : dict of str to Guarantee
        One per adversary, by its view.
    arrived : array of bool, shape (leaves,)
        Leaves whose rows are in the result.
    least : tuple of int
        For each level from 1 on, the fewest leaves in any message that its parties took.
    """

    factors: Factors
    certificate: Certificate
    guarantees_: dict[str, Guarantee]
    arrived: Leaves
    least: tuple[int, ...]

    @property
    def guarantee_(self) -> Guarantee:
        """Against those who see the result."""
        return self.guarantees_["outsider"]


def release_sums(study: TreeStudy, totals: Totals, leaves: int) -> dict[str, Release]:
    """Sums of so many leaves' messages as releases, with the noise that they really carry."""
    answers = {}
    for ask, total in zip(study.asks, totals, strict=True):
        whole = from_coordinates(
            ask.accumulator.layout, ask.accumulator.shape, total.view(np.int64)
        )
        answers[ask.name] = release_of(with_shares(ask.record, leaves), whole)
    return answers


def publish(
    study: TreeStudy,
    merged: Merged[Totals],
    *,
    secure: bool,
    dependent: bool = False,
) -> TreeOutcome:
    """The result of what arrived at the root, and what is promised of it.

    Parameters
    ----------
    secure : bool
        Whether every leaf's noise came from a secure source.
    dependent : bool
        Whether a row's rounding depended on its neighbours on the processor that ran it.

    Raises
    ------
    PrivacyError
        ``too-many-lost`` where the noise that arrived is less than was promised; nothing is to be
        released.
    """
    arrived = int(np.count_nonzero(merged.arrived))
    records = [ask.record for ask in study.asks]
    plan = study.plan
    for record in records:
        check_arrived(record, arrived)
    run = TreeRun(leaves=study.tree.leaf_count, arrived=arrived, least=merged.least)
    factors = frozen(
        stream_factors(plan, release_sums(study, merged.value, arrived), public_centre=study.centre)
    )
    certificate = certificate_of(
        plan,
        factors,
        [with_shares(record, arrived) for record in records],
        features=plan.features,
        names=None,
        secure=secure,
        dependent=dependent,
        view="outsider" if study.protect == "outsider" else "aggregator at level 1",
        tree=run,
    )
    return TreeOutcome(
        factors=factors,
        certificate=certificate,
        guarantees_=certificate.guarantees(),
        arrived=merged.arrived,
        least=merged.least,
    )
