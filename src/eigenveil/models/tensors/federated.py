"""Private mixtures and topics of several sites that keep their rows, run in one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.federated.base import FederatedFit
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.topics.estimator import FittedTopics


class FederatedGaussianMixture(FederatedFit, FittedMixture):
    """Differentially private mixture of Gaussians of several sites that keep their rows.

    What one curator would release, the sites release together: scale, centre, moments and
    sums of expectation maximisation are sums over all sites that only ever appear masked and noisy.
    The sites' software, the aggregator's and the messages are those of a real study, run in one
    process.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Components, at most the number of features; "auto": as many as stand above the noise, at
        most 32.
    epsilon, delta : float
        Privacy target against the aggregator together with ``collusion`` sites; 0 < epsilon,
        0 <= delta < 1. ``delta=0`` means pure epsilon (protocols "cape" and "local").
    protocol : {"auto", "cape", "sketch", "local"}, default="auto"
        How the second moment is released. "cape": masked sums of D x D. "sketch": of D x
        ``sketch_size``. "local": the first site alone. "auto": "cape" up to 1000 features, else
        "sketch"; ``choice_`` gives the reason. The third moment takes K (K + 1) (K + 2) / 6 numbers
        a site.
    covariance_type, noise_variance, mechanism, row_bound, center
        As of :class:`eigenveil.PrivateGaussianMixture`. Vector noise, and so ``delta=0``, needs
        ``masks="modular"``.
    collusion, dropouts, masks, neighbours, site_epsilon
        As of :class:`eigenveil.FederatedPCA`.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
    unit, max_rows_per_unit
        As for :class:`eigenveil.PrivateGaussianMixture`.
    sites_per_unit : int, default=1
        Sites at which one unit may have rows: the noise is so many times larger. With 1, a unit
        whose rows are at several sites is protected less.
    budget_split : dict, default=None
        Shares of the steps "scale", "center", "moment", "tensor" (of spherical components) and
        "sums".
    precision : {"double", "single"}, default="double"
        The arithmetic in which rows are prepared, however they are stored. "single" is faster,
        and used where its rounding does not show above the noise.
    sketch_size : int, default=None
        Columns of the sketch; by default 4 times ``n_components``. "auto" is "sketch" where it is
        given, and "cape" has none.
    expected_rows : int, default=None
        A public guess of all sites' rows.
    random_state : int, Generator or RandomState, default=None
        For tests: reproducible noise, and a result that is not certified.

    Attributes
    ----------
    means_, weights_, noise_variance_, covariances_, n_components_, n_samples_, strengths_, \
noise_floor_, converged_, guarantee_, certificate_
        As of :class:`eigenveil.PrivateGaussianMixture`; ``guarantee_`` is the one that was
        requested. Weights count the rows of a site with a smaller target less.
    views_, traffic_, study_, choice_, missing_
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
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.protocol = protocol
        self.covariance_type = covariance_type
        self.noise_variance = noise_variance
        self.mechanism = mechanism
        self.collusion = collusion
        self.dropouts = dropouts
        self.masks = masks
        self.adjacency = adjacency
        self.unit = unit
        self.max_rows_per_unit = max_rows_per_unit
        self.sites_per_unit = sites_per_unit
        self.row_bound = row_bound
        self.center = center
        self.budget_split = budget_split
        self.precision = precision
        self.sketch_size = sketch_size
        self.neighbours = neighbours
        self.site_epsilon = site_epsilon
        self.expected_rows = expected_rows
        self.random_state = random_state


class FederatedTopicModel(FederatedFit, FittedTopics):
    """Differentially private topic model of several sites that keep their documents.

    How often pairs and triples of words occur together, in the mean of a document, are sums over
    all sites' documents that only ever appear masked and noisy. The sites' software, the
    aggregator's and the messages are those of a real study, run in one process. The guarantee
    protects whole documents.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Topics, at most the number of words; "auto": as many as stand above the noise, at most 32.
    epsilon, delta : float
        Privacy target against the aggregator together with ``collusion`` sites; 0 < epsilon,
        0 <= delta < 1. ``delta=0`` means pure epsilon (protocols "cape" and "local").
    protocol : {"auto", "cape", "sketch", "local"}, default="auto"
        How the pairs are released. "cape": masked sums of D x D. "sketch": of D x ``sketch_size``.
        "local": the first site alone. "auto": "cape" up to 4000 words, else "sketch"; ``choice_``
        gives the reason. The triples take K (K + 1) (K + 2) / 6 numbers a site.
    mechanism, alpha0, clip_documents
        As of :class:`eigenveil.PrivateTopicModel`. Vector noise, and so ``delta=0``, needs
        ``masks="modular"``.
    collusion, dropouts, masks, neighbours, site_epsilon
        As of :class:`eigenveil.FederatedPCA`.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
    unit, max_rows_per_unit
        As for :class:`eigenveil.PrivateTopicModel`.
    sites_per_unit : int, default=1
        Sites at which one unit may have documents: the noise is so many times larger. With 1, a
        unit whose documents are at several sites is protected less.
    budget_split : dict, default=None
        Shares of the steps "scale" (norms, if documents are clipped), "center" (words' frequencies,
        if ``alpha0`` is above 0), "moment" (pairs) and "tensor" (triples).
    sketch_size : int, default=None
        Columns of the sketch; by default 4 times ``n_components``. "auto" is "sketch" where it is
        given, and "cape" has none.
    expected_rows : int, default=None
        A public guess of all sites' documents.
    random_state : int, Generator or RandomState, default=None
        For tests: reproducible noise, and a result that is not certified.

    Attributes
    ----------
    topics_, components_, weights_, concentration_, n_components_, strengths_, noise_floor_, \
converged_, guarantee_, certificate_
        As of :class:`eigenveil.PrivateTopicModel`; ``guarantee_`` is the one that was requested.
        Weights count the documents of a site with a smaller target less.
    views_, traffic_, study_, choice_, missing_
        As of :class:`eigenveil.FederatedPCA`.

    Notes
    -----
    All sites need one vocabulary, its words in one order. Frames say their words, which are then
    compared; arrays and sparse matrices have columns only.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import FederatedTopicModel
    >>> rng = np.random.default_rng(0)
    >>> topics = np.repeat(np.eye(3), 4, axis=1) / 4
    >>> X = rng.multinomial(20, topics[rng.integers(3, size=6000)])
    >>> model = FederatedTopicModel(n_components=3, epsilon=1.0, delta=1e-6)
    >>> model.fit({"north": X[:2500], "south": X[2500:4500], "west": X[4500:]}).topics_.shape
    (3, 12)
    >>> model.study_.protocol
    'cape'
    """

    _TASK = "topic-model"
    _FOR_ONE = "PrivateTopicModel"

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        protocol: str = "auto",
        mechanism: str = "auto",
        collusion: int = 0,
        dropouts: int = 0,
        masks: str = "modular",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        sites_per_unit: int = 1,
        alpha0: float = 0.0,
        clip_documents: bool = True,
        budget_split: dict[str, float] | None = None,
        sketch_size: int | None = None,
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.protocol = protocol
        self.mechanism = mechanism
        self.collusion = collusion
        self.dropouts = dropouts
        self.masks = masks
        self.adjacency = adjacency
        self.unit = unit
        self.max_rows_per_unit = max_rows_per_unit
        self.sites_per_unit = sites_per_unit
        self.alpha0 = alpha0
        self.clip_documents = clip_documents
        self.budget_split = budget_split
        self.sketch_size = sketch_size
        self.neighbours = neighbours
        self.site_epsilon = site_epsilon
        self.expected_rows = expected_rows
        self.random_state = random_state
