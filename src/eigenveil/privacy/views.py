"""The adversaries of a study: what each sees, and its guarantee (docs/proofs/views.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import BELOW_RESOLUTION, compose
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.mask_views import MASK_VIEWS, MaskKind, MaskView
from eigenveil.privacy.releases import ReleaseRecord, Settled, Sharing

ProtocolName = Literal["cape", "sketch", "dpdispca", "full", "local"]

_MOMENTS = ("second-moment", "sketch", "bingham-vectors")
CURIOUS_SITE = (
    "no claim is made against a site that sees the result and knows its own share of the pure "
    "noise: with collusion = 1 its share would not be counted on"
)


# The exact loss of a Gaussian view


def mu_of_view(covariance: ArrayLike, shift: ArrayLike, *, own_variance: float = 0.0) -> float:
    """Mahalanobis length of the shift, ``sqrt(shift' C^-1 shift)``; proofs/views.md, claim 1.

    In rational arithmetic, so that neither masks a million times larger than the noise nor a
    singular covariance cost a digit; infinite where the shift leaves the range of one.
    """
    moved = [Fraction(value) for value in np.asarray(shift).tolist()]
    rest = _exact_covariance(covariance, len(moved), own_variance)
    left = list(range(len(moved)))
    squared = Fraction(0)
    while left:
        pivot = max(left, key=lambda i: rest[i][i])
        variance = rest[pivot][pivot]
        if variance <= 0:
            break
        left.remove(pivot)
        squared += moved[pivot] ** 2 / variance
        for i in left:  # what remains is unexplained by the coordinates taken so far
            slope = rest[i][pivot] / variance
            moved[i] -= slope * moved[pivot]
            for j in left:
                rest[i][j] -= slope * rest[pivot][j]
    if any(rest[i][j] for i in left for j in left):
        raise ValueError("the covariance is not positive semi-definite")
    return math.inf if any(moved[i] for i in left) else math.sqrt(squared)


def _exact_covariance(covariance: ArrayLike, size: int, own: float) -> list[list[Fraction]]:
    given = np.asarray(covariance)
    if given.shape != (size, size):
        raise ValueError(f"a covariance of shape {given.shape} for a shift of length {size}")
    exact = [[Fraction(value) for value in row] for row in given.tolist()]
    if any(exact[i][j] != exact[j][i] for i in range(size) for j in range(i)):
        raise ValueError("the covariance is not symmetric")
    for i in range(size):
        exact[i][i] += Fraction(own)
    return exact


def zero_sum_covariance(sites: int, variance: float) -> NDArray[np.object_]:
    """Of the helper's masks ``x_s - mean(x)``: ``variance * (I - 11'/S)``, exact fractions."""
    return _scaled_laplacian(np.ones((sites, sites), dtype=int), Fraction(variance) / sites)


def pairwise_covariance(adjacency: ArrayLike, variance: float) -> NDArray[np.object_]:
    """Of pairwise masks: the graph's Laplacian times ``variance``, exact fractions (S, S)."""
    return _scaled_laplacian(np.asarray(adjacency).astype(bool).astype(int), Fraction(variance))


def _scaled_laplacian(weights: NDArray[Any], variance: Fraction) -> NDArray[np.object_]:
    links = weights - np.diag(np.diag(weights))
    laplacian = np.diag(links.sum(axis=1)) - links
    exact = np.empty(laplacian.shape, dtype=object)
    exact[...] = [[variance * entry for entry in row] for row in laplacian.tolist()]
    return exact


# CAPE: helper's masks of any size


def cape_mu(
    honest: int, *, noise_variance: float, mask_variance: float, sensitivity: float = 1.0
) -> float:
    """Exact mu of the aggregator's view of CAPE messages (privacy.md 5; claim 3)."""
    own = 1.0 / honest / noise_variance
    hidden = (1.0 - 1.0 / honest) / (mask_variance + noise_variance)
    return sensitivity * math.sqrt(own + hidden)


def published_cape_mu(sites: int, *, colluding: int = 0, claimed_mu: float) -> float:
    """Mu of the aggregator's view of CAPE as published, which claims ``claimed_mu = Delta/tau``."""
    # who takes the f_s off that it drew; left are masks of tau^2 (before centring) and noise of
    # tau^2/S
    honest = sites - colluding
    if honest < 1:
        raise ValueError(f"{colluding} of {sites} sites collude: none is left to protect")
    return cape_mu(honest, noise_variance=1 / sites, mask_variance=1.0, sensitivity=claimed_mu)


# The guarantees of a study


class MomentView(NamedTuple):
    """How a protocol's second moments can be seen."""

    released_by_each: bool = False  # Each site releases its own, with all of the noise
    summed: bool = False  # Their sum alone is in the result


MOMENT_VIEWS: Mapping[str, MomentView] = MappingProxyType(
    {
        "cape": MomentView(),
        "sketch": MomentView(),
        "dpdispca": MomentView(released_by_each=True),
        "full": MomentView(released_by_each=True, summed=True),
        "local": MomentView(),
    }
)


class Federation(Settled):
    """What the guarantees of a study with several sites depend on, beside its records."""

    protocol: ProtocolName
    masks: MaskKind
    sites: int = Field(ge=1)  # In the study
    # Fewest sites whose message entered any release; at least `sites - dropouts`. The aggregator
    # alone knows it, so no guarantee rests on it.
    taking_part: int = Field(ge=1)
    # Sites that may collude with the aggregator, and that may be missing
    collusion: int = Field(default=0, ge=0)
    dropouts: int = Field(default=0, ge=0)
    # Sites that each site shares masks with; `None`: all others
    neighbours: int | None = Field(default=None, ge=1)
    sites_per_unit: int = Field(default=1, ge=1)  # At so many sites one unit may have rows

    @model_validator(mode="after")
    def _somebody_is_protected(self) -> Federation:
        if self.honest < 1:
            raise ValueError(
                f"of {self.sites} sites {self.collusion} may collude and {self.dropouts} may be "
                "missing: none is left to draw the noise"
            )
        if not self.fewest <= self.taking_part <= self.sites:
            raise ValueError(
                f"{self.taking_part} sites took part, which is not between {self.fewest} and "
                f"{self.sites}"
            )
        return self

    @property
    def fewest(self) -> int:
        """Sites that are certain to take part."""
        return self.sites - self.dropouts

    @property
    def honest(self) -> int:
        """Sites that are certain to take part and not to collude: so many share the noise."""
        return self.fewest - self.collusion

    @property
    def moments(self) -> MomentView:
        return MOMENT_VIEWS[self.protocol]

    @property
    def hidden(self) -> MaskView:
        return MASK_VIEWS[self.masks]

    @property
    def requested_view(self) -> str:
        """The adversary that the study's target is about: the aggregator and its accomplices."""
        return f"aggregator with {self.collusion} sites" if self.collusion else "aggregator"

    def sharing(self, *, weight_bits: int = 0) -> Sharing:
        """How the sites share the noise of a masked sum of Gaussian noise."""
        if not self.hidden.hides:
            return self.alone(weight_bits=weight_bits)
        return Sharing(
            noise_parts=self.honest,
            masks=self.mask_draws(self.honest),
            exposure=self.exposure(self.honest),
            weight_bits=weight_bits,
            sites=self.sites_per_unit,
        )

    def alone(self, *, weight_bits: int = 0) -> Sharing:
        """The same where each site releases a sum by itself."""
        return Sharing(weight_bits=weight_bits, sites=self.sites_per_unit)

    def exposure(self, honest: int) -> float:
        """That of so many sites' messages to the aggregator."""
        return self.hidden.exposure(
            honest=honest, taking_part=self.sites, neighbours=self.neighbours
        )

    def mask_draws(self, honest: int) -> int:
        """Gaussian masks in so many sites' messages."""
        return self.hidden.draws(honest=honest, taking_part=self.sites, neighbours=self.neighbours)


class _View(NamedTuple):
    """An adversary: its name, the honest sites' shares in what it sees, and whether it sees all."""

    name: str
    noise_parts: int
    messages: bool


def guarantees(
    records: Sequence[ReleaseRecord],
    federation: Federation,
    *,
    delta: float,
    adjacency: Adjacency,
    caveats: Sequence[str] = (),
    reasons_not_certified: Sequence[str] = (),
) -> dict[str, Guarantee]:
    """One guarantee per adversary, by the name of its view (claims 5 and 6)."""
    # where pure noise is shared among all sites nothing is proved against "site": it is left out,
    # and a caveat states it
    views = list(_views(federation))
    claimed = [view for view in views if view.name != "site" or _holds_pure_noise(records, view)]
    found: dict[str, Guarantee] = {}
    for view in claimed:
        try:
            found[view.name] = compose(
                [_seen(record, view, federation) for record in records],
                delta=delta,
                adjacency=adjacency,
                view=view.name,
                caveats=caveats if claimed == views else (*caveats, CURIOUS_SITE),
                reasons_not_certified=reasons_not_certified,
            )
        except PrivacyError as error:
            if error.code not in BELOW_RESOLUTION or view.name == "outsider":
                raise
            raise PrivacyError(
                "no-claim-against-view",
                view=view.name,
                delta=delta,
                parts=view.noise_parts,
                sites=federation.fewest,
            ) from None
    return found


def worst(found: dict[str, Guarantee]) -> Guarantee:
    """The guarantee with the largest epsilon; of equal ones the first."""
    return max(found.values(), key=lambda guarantee: guarantee.epsilon)


def _views(federation: Federation) -> Iterable[_View]:
    present, colluding = federation.fewest, federation.collusion
    yield _View("outsider", present, messages=False)
    if federation.sites >= 2:  # a single message cannot be the curious site's own
        yield _View("site", max(1, present - 1), messages=False)
    yield _View("aggregator", present, messages=True)
    if colluding:
        yield _View(f"aggregator with {colluding} sites", present - colluding, messages=True)
    if federation.hidden.has_helper:
        name = f"helper with {colluding} sites" if colluding else "helper"
        yield _View(name, present - colluding, messages=False)


def _holds_pure_noise(records: Sequence[ReleaseRecord], view: _View) -> bool:
    pure = (record.noise for record in records if record.pure)
    return all(noise.noise_parts <= view.noise_parts for noise in pure)


def _seen(record: ReleaseRecord, view: _View, federation: Federation) -> ReleaseRecord:
    """The record of a single release that costs what this view of it costs."""
    if federation.moments.released_by_each and record.statistic in _MOMENTS:
        _check_noise_parts(record, 1)
        summed = federation.moments.summed and view.name == "outsider"
        return with_noise_parts(record, view.noise_parts) if summed else record
    if record.pure:
        _check_pure(record, view, federation)
        return record  # shares beyond those that are proved only add noise
    if not federation.hidden.hides:
        _check_noise_parts(record, 1)
        return record
    _check_noise_parts(record, federation.honest)
    if not view.messages:
        return with_noise_parts(record, view.noise_parts)
    return with_noise_parts(
        record,
        view.noise_parts,
        masks=federation.mask_draws(view.noise_parts),
        exposed=federation.exposure(view.noise_parts),
    )


def with_noise_parts(
    record: ReleaseRecord, noise_parts: int, *, masks: int = 0, exposed: float = 1.0
) -> ReleaseRecord:
    """The record of a sum with so many parts of the recorded noise, if that is Gaussian."""
    noise = record.noise
    if record.pure:
        return record
    parts = {
        "scale": noise.scale * math.sqrt(noise_parts / noise.noise_parts),
        "noise_parts": noise_parts,
    }
    return record.model_copy(
        update={"noise": noise.model_copy(update={**parts, "masks": masks}), "exposure": exposed}
    )


def _check_noise_parts(record: ReleaseRecord, noise_parts: int) -> None:
    if record.noise.noise_parts != noise_parts:
        raise PrivacyError(
            "noise-parts-do-not-fit",
            release=record.name,
            recorded=record.noise.noise_parts,
            wanted=noise_parts,
        )


def _check_pure(record: ReleaseRecord, view: _View, federation: Federation) -> None:
    """Shared pure noise protects whoever sees the sum of enough shares, and nobody else."""
    noise_parts = record.noise.noise_parts
    if noise_parts == 1:  # every site draws all of it: each message is protected by itself
        return
    if not federation.hidden.any_noise or not record.mechanism.adds_up:
        raise PrivacyError(
            "pure-noise-not-shared",
            release=record.name,
            noise=record.noise.kind,
            masks=federation.masks,
        )
    whole = federation.exposure(view.noise_parts) == 1.0 or not view.messages
    if view.noise_parts < noise_parts or not whole:
        raise PrivacyError(
            "too-few-noise-parts",
            release=record.name,
            noise=record.noise.kind,
            parts=noise_parts,
            wanted=view.noise_parts if whole else 1,
            view=view.name,
        )
