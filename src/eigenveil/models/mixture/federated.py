"""FederatedGaussianMixture: mixtures of several sites that keep their rows, in one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.federated.base import FederatedFit
from eigenveil.models.mixture.estimator import FittedMixture


class FederatedGaussianMixture(FederatedFit, FittedMixture):
    """Differentially private mixture of Gaussians of several sites that keep their rows.

    What one curator would release, the sites release together: scale, centre, moments and
    sums of expectation maximisation are sums over all sites that only ever appear masked and noisy.
    The sites' software, the aggregator's and the messages are those of a real study, run in one
    process.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    means_, weights_, noise_variance_, covariances_, n_components_, n_samples_, strengths_, \
noise_floor_, converged_, guarantee_, certificate_
        As of :class:`eigenveil.PrivateGaussianMixture`; ``guarantee_`` is the one that was
        requested. Weights count the rows of a site as the study does.
    views_, site_guarantees_, traffic_, study_, choice_, missing_
        As of :class:`eigenveil.FederatedPCA`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import FederatedGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> means = 4.0 * np.eye(3, 6)
    >>> X = means[rng.integers(3, size=20000)] + rng.standard_normal((20000, 6))
    >>> mixture = FederatedGaussianMixture(n_components=3, epsilon=1.0, delta=1e-6)
    >>> mixture.fit({"north": X[:9000], "south": X[9000:14000], "west": X[14000:]}).means_.shape
    (3, 6)
    >>> mixture.guarantee_.view
    'aggregator'
    """

    _TASK = "gaussian-mixture"
    _FOR_ONE = "PrivateGaussianMixture"

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        protocol: str = "auto",
        covariance_type: str = "spherical",
        noise_variance: float | None = None,
        mechanism: str = "auto",
        collusion: int = 0,
        dropouts: int = 0,
        masks: str = "modular",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        sites_per_unit: int = 1,
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        sketch_size: int | None = None,
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self._take(locals())
