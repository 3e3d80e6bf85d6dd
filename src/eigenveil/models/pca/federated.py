"""FederatedPCA: private PCA of several sites that keep their rows, run in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.federated.base import FederatedFit
from eigenveil.models.pca.estimator import FittedPCA


class FederatedPCA(FederatedFit, FittedPCA):
    """Differentially private PCA of several sites that keep their rows.

    The sites' software, the aggregator's and the messages between them are those of a real study;
    here they run in one process. Nothing about the data has to be known: scale, centre, second
    moment and explained variance are sums over all sites that only ever appear masked and noisy.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_, mean_, explained_variance_, explained_variance_ratio_, noise_floor_, usable_, \
n_samples_, scale_, unscaled_, covariate_effects_, guarantee_, certificate_
        As of :class:`eigenveil.PrivatePCA`; ``guarantee_`` is the one that was requested.
    score_density_
        As of :class:`eigenveil.PrivatePCA`.
    views_ : dict of str to Guarantee
        What each adversary is held to: "outsider", "site", "aggregator", and with colluding sites.
    site_means_ : dict of str to ndarray of shape (n_features,), or None
        With ``within_sites`` what the rows of each site were centred by; :meth:`without_site` takes
        off what a site's has beyond the common mean.
    site_guarantees_ : dict of str to Guarantee
        What a row of each site is held to, against the adversary of ``guarantee_``: less than the
        others where it counts less.
    traffic_ : dict of str to Traffic
        Messages and bytes of each site.
    study_ : Study
        What was run, with the protocol that "auto" chose.
    choice_ : str
        Why that protocol.
    missing_ : dict of str to str
        Sites that were lost on the way, and why.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import FederatedPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = FederatedPCA(n_components=5, epsilon=2.0, delta=1e-5)
    >>> pca.fit({"north": X[:600], "south": X[600:1000], "west": X[1000:]}).transform(X).shape
    (1797, 5)
    >>> list(pca.views_)
    ['outsider', 'site', 'aggregator']
    """

    _TASK = "pca"
    _FOR_ONE = "PrivatePCA"

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        protocol: str = "auto",
        collusion: int = 0,
        dropouts: int = 0,
        masks: str = "modular",
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        sites_per_unit: int = 1,
        row_norm: str | float = "unit",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        within_sites: bool = False,
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        winsorize: float | None = None,
        covariates: Sequence[int | str] | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        sketch_size: int | None = None,
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        whiten: bool = False,
        scores: bool = False,
        scores_by: str | Sequence[int | str] | None = None,
        missing: str = "leave-out",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self._take(locals())
