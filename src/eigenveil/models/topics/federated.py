"""FederatedTopicModel: topics of several sites that keep their documents, in one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eigenveil.federated.base import FederatedFit
from eigenveil.models.topics.estimator import FittedTopics


class FederatedTopicModel(FederatedFit, FittedTopics):
    """Differentially private topic model of several sites that keep their documents.

    How often pairs and triples of words occur together, in the mean of a document, are sums over
    all sites' documents that only ever appear masked and noisy. The sites' software, the
    aggregator's and the messages are those of a real study, run in one process. The guarantee
    protects whole documents.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    topics_, components_, weights_, concentration_, n_components_, strengths_, noise_floor_, \
converged_, guarantee_, certificate_
        As of :class:`eigenveil.PrivateTopicModel`; ``guarantee_`` is the one that was requested.
        Weights count the documents of a site as the study does.
    views_, site_guarantees_, traffic_, study_, choice_, missing_
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
        weights: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self._take(locals())
