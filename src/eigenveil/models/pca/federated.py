"""FederatedPCA: private PCA of several sites that keep their rows, run in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.federated.base import FederatedFit
from eigenveil.federated.running import DATA_SET, requested_budget
from eigenveil.models.pca.estimator import FittedPCA

__all__ = ["DATA_SET", "FederatedPCA", "requested_budget"]


class FederatedPCA(FederatedFit, FittedPCA):
    """Differentially private PCA of several sites that keep their rows.

    The sites' software, the aggregator's and the messages between them are those of a real study;
    here they run in one process. Nothing about the data has to be known: scale, centre, second
    moment and explained variance are sums over all sites that only ever appear masked and noisy.

    Parameters
    ----------
    n_components : int, float or "auto", default=2
        As of :class:`eigenveil.PrivatePCA`.
    epsilon, delta : float
        Privacy target against the aggregator together with ``collusion`` sites; 0 < epsilon,
        0 <= delta < 1. ``delta=0`` means pure epsilon (protocols "cape" and "local").
    protocol : {"auto", "cape", "sketch", "dpdispca", "full", "local"}, default="auto"
        "cape": masked sums of D x D, noise of one curator in all. "sketch": the same with D x R
        messages. "dpdispca": each site releases its own second moment and sends the D x R factor of
        its leading part (paper 000). "full": each sends its own noisy D x D. "local": the first
        site alone. "auto" chooses, and ``choice_`` gives the reason.
    collusion : int, default=0
        Sites that may tell the aggregator everything they know, and the others stay protected.
    dropouts : int, default=0
        Sites that may be missing from a round; needs ``masks="modular"``.
    masks : {"modular", "pairwise", "helper"}, default="modular"
        "modular": uniform masks from keys of pairs of sites; the aggregator learns sums exactly and
        nothing else. "pairwise": the same with Gaussian masks. "helper": zero-sum Gaussian masks of
        a trusted helper (paper 001).
    mechanism : {"auto", "adaptive", "gaussian"}, default="auto"
        As of :class:`eigenveil.PrivatePCA`, with protocols "cape" and "local"; "gaussian" takes a
        round less.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
    unit, max_rows_per_unit
        As for :class:`eigenveil.PrivatePCA`.
    sites_per_unit : int, default=1
        Sites at which one unit may have rows: the noise is so many times larger. With 1, a unit
        whose rows are at several sites is protected less.
    row_norm : {"unit", "auto"} or float, default="unit"
    row_bound : float, default=None
    center : bool or array of shape (n_features,), default=True
    scale : {"private"} or array of shape (n_features,), default=None
    ranges : array of shape (2, n_features), default=None
    covariates : list of int or str, default=None
    budget_split : dict, default=None
        As for :class:`eigenveil.PrivatePCA`.
    precision : {"double", "single"}, default="double"
        The arithmetic in which rows are prepared, however they are stored. "single" is faster,
        and used where its rounding does not show above the noise.
    whiten : bool, default=False
        As of :class:`eigenveil.PrivatePCA`.
    sketch_size : int, default=None
        R of "sketch" (4 K by default) and "dpdispca" (2 K), and of no other protocol; "auto" is
        "sketch" where it is given.
    neighbours : int, default=None
        Other sites with which each site shares masks; all of up to 16 sites, else 16 or more.
    site_epsilon : mapping of site to float, default=None
        Smaller targets of single sites; their rows then count with a smaller weight.
    expected_rows : int, default=None
        A public guess of all sites' rows, with which "auto" predicts the protocols' results.
    missing : {"leave-out", "zero", "independent", "pairs"}, default="leave-out"
        As of :class:`eigenveil.PrivatePCA`.
    random_state : int, Generator or RandomState, default=None
        For tests: reproducible noise, and a result that is not certified.

    Attributes
    ----------
    components_, mean_, explained_variance_, explained_variance_ratio_, noise_floor_, usable_, \
n_samples_, scale_, unscaled_, covariate_effects_, guarantee_, certificate_
        As of :class:`eigenveil.PrivatePCA`; ``guarantee_`` is the one that was requested.
    views_ : dict of str to Guarantee
        What each adversary is held to: "outsider", "site", "aggregator", and with colluding sites.
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
        n_components: int | float | str = 2,
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
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        covariates: Sequence[int | str] | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        sketch_size: int | None = None,
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        whiten: bool = False,
        missing: str = "leave-out",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.protocol = protocol
        self.collusion = collusion
        self.dropouts = dropouts
        self.masks = masks
        self.mechanism = mechanism
        self.adjacency = adjacency
        self.unit = unit
        self.max_rows_per_unit = max_rows_per_unit
        self.sites_per_unit = sites_per_unit
        self.row_norm = row_norm
        self.row_bound = row_bound
        self.center = center
        self.scale = scale
        self.ranges = ranges
        self.covariates = covariates
        self.budget_split = budget_split
        self.precision = precision
        self.sketch_size = sketch_size
        self.neighbours = neighbours
        self.site_epsilon = site_epsilon
        self.expected_rows = expected_rows
        self.whiten = whiten
        self.missing = missing
        self.random_state = random_state
