"""``PrivateTopicModel``, and what every fitted topic model can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import LatentDirichletAllocation

from eigenveil.errors import DataError
from eigenveil.models.beside import BesideExact, count_notes, matched
from eigenveil.models.driver import LedgerPlace
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Array, Kind, Quantity
from eigenveil.models.result import Result, View, of_factors
from eigenveil.models.stored import StoredModel
from eigenveil.models.table_fit import TableFit
from eigenveil.models.topics.dirichlet import proportions
from eigenveil.models.topics.fitted import TopicFactors
from eigenveil.models.topics.intervals import of_topics
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.tables.adapters.texts import counted

# A topic's smallest probability, as a part of an even one: a word that noise left out of a topic
# must not rule the topic out.
_FLOOR = 1e-3


class FittedTopics(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released topics and weights of a topic model.

    ``FittedTopics.load`` reads a model that any of the estimators saved.
    """

    _FAMILY = ("PrivateTopicModel", "FederatedTopicModel")
    _PLAN = TopicPlan
    _FACTORS = TopicFactors

    topics_: View[NDArray[np.float64]] = of_factors("topics")
    weights_: View[NDArray[np.float64]] = of_factors("weights")
    concentration_: View[NDArray[np.float64]] = of_factors("concentration")
    strengths_ = of_factors("strengths")
    noise_floor_ = of_factors("noise_floor")
    converged_ = of_factors("converged")
    usable_ = of_factors("usable")
    n_components_ = View(lambda result: int(result.factors.topics.shape[0]))

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterable[Quantity]:
        return of_topics(result, level, of)

    @property
    def components_(self) -> NDArray[np.float64]:
        """The topics, under the name that scikit-learn's decompositions use."""
        return self.topics_

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Topic proportions of the documents of ``X``: counts of words, or texts.

        The words of texts are those of ``feature_names_in_``.

        Where a document has one topic (``alpha0=0``), the posterior probability of each topic;
        else the expected share of each topic in the document, by variational inference from the
        released topics.
        """
        return self._inferred(X)[0]

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The likeliest (largest) topic of each document, shape (n_documents,); -1: not valid."""
        shares = self._inferred(X)[0]
        return np.where(np.isnan(shares[:, 0]), -1, np.argmax(shares, axis=1))

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-probability of each document's words, in their order, shape (n_documents,).

        Where documents are of several topics, a lower bound of it: that of the proportions.
        """
        return self._inferred(X)[1]

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Average log-probability of a document."""
        del y
        return float(np.mean(self.score_samples(X)))

    def _new_rows(self, X: ArrayLike, **checks: Any) -> Any:
        names = self._check_fitted().names
        return super()._new_rows(X if names is None else counted(X, names), **checks)

    def _beside(self, rows: Any) -> BesideExact:
        return beside_topics(self, rows)

    def top_words(
        self, vocabulary: Sequence[str] | None = None, n_words: int = 10
    ) -> list[list[str]]:
        """The likeliest words of each topic.

        Parameters
        ----------
        vocabulary : sequence of n_words strings, optional
            Such as ``CountVectorizer.get_feature_names_out()``; by default the names of the columns
            that the model was fitted with, or their numbers.
        n_words : int, default=10
            Words a topic, at the most; words of probability 0 are left out.

        Raises
        ------
        DataError
            When the vocabulary has not one word a column.
        """
        self._check_fitted()
        size = self.topics_.shape[1]
        if vocabulary is None:
            names = getattr(self, "feature_names_in_", None)
            vocabulary = [str(n) for n in (range(size) if names is None else names)]
        if len(vocabulary) != size:
            raise DataError("vocabulary-differs", words=len(vocabulary), size=size)
        if n_words < 1:
            raise DataError("out-of-range", name="n_words", value=n_words, wanted="1 or more")
        found = []
        for topic in self.topics_:
            order = np.argsort(-topic, kind="stable")[:n_words]
            found.append([str(vocabulary[index]) for index in order if topic[index] > 0])
        return found

    def _inferred(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Topic proportions, and log-probabilities, of each document."""
        counts = self._new_rows(X)
        smoothed = (self.topics_ + _FLOOR / self.topics_.shape[1]) / (1.0 + _FLOOR)
        # as in a fit, what is wrong with one document is no error of the others
        least = counts.min(axis=1)
        wrong = ~((least.toarray().ravel() if issparse(counts) else least) >= 0)
        if self.concentration_.sum() > 0:
            valid = np.flatnonzero(~wrong)
            found = np.full((counts.shape[0], self.n_components_), np.nan)
            logs = np.full(counts.shape[0], np.nan)
            floor = _FLOOR * float(self.concentration_.sum()) / self.n_components_
            concentration = np.maximum(self.concentration_, floor)
            found[valid], logs[valid] = proportions(counts[valid], smoothed, concentration)
            return found, logs
        joint = np.asarray(counts @ np.log(smoothed).T + np.log(self.weights_))
        joint[wrong] = np.nan
        return scipy.special.softmax(joint, axis=1), scipy.special.logsumexp(joint, axis=1)

    @property
    def _n_features_out(self) -> int:
        return int(self.topics_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # a document with a negative count is not valid, which need be no error
        tags.input_tags.positive_only = not hasattr(self, "epsilon")
        return tags


# -- A result beside the rows themselves.

_ABOUTS = {
    "weight": "released weight",
    "exact_weight": "that of the exact topic that is likest, each taken once",
    "in_common": "probability that the two topics have in common, from 0 to 1",
    "top_words": "of the ten likeliest words, those that are among the exact topic's",
}
_OF_ONE = "The exact topics are those that expectation maximisation reaches from the released ones."
_OF_SEVERAL = "The exact topics are scikit-learn's, by variational inference from a fixed seed."
_WORDS, _ROUNDS = 10, 100
# A word's probability in a topic, at least: as a part of an even one.
_LEAST = 1e-6


def beside_topics(model: Any, given: Any) -> BesideExact:
    """Topics beside those that likelihood finds in the documents."""
    result = model._check_fitted()
    counts = scipy.sparse.csr_array(given)
    valid = np.isfinite(counts.sum(axis=1)) & (counts.min(axis=1).toarray().ravel() >= 0)
    valid &= counts.sum(axis=1) > 0
    left = int(valid.size - np.count_nonzero(valid))
    counts = counts[valid].astype(np.float64)
    if counts.shape[0] < max(2, model.n_components_):
        raise DataError("compare-without-rows", rows=counts.shape[0])
    several = model.concentration_.sum() > 0
    topics, weights = _of_several(model, counts) if several else _of_one(model, counts)
    common = np.array([np.minimum(topic, topics).sum(axis=1) for topic in model.topics_])
    pairs = matched(common)
    lines = [
        {
            "topic": str(own + 1),
            "usable": bool(model.usable_[own]),
            "weight": float(model.weights_[own]),
            "exact_weight": float(weights[other]),
            "in_common": float(common[own, other]),
            "top_words": _both(model.topics_[own], topics[other]),
        }
        for own, other in pairs
    ]
    apart = np.mean([2.0 * (1.0 - common[pair]) for pair in pairs])
    measures = {"mean L1 distance of the topics": float(apart)}
    notes = (
        *count_notes(intervals_of(model), counts.shape[0], result.plan.unit),
        _OF_SEVERAL if several else _OF_ONE,
    )
    name = result.spec.estimator
    return BesideExact(name, counts.shape[0], left, tuple(lines), _ABOUTS, measures, {}, notes)


def _both(one: Array, other: Array) -> str:
    first, second = (set(np.argsort(-topic, kind="stable")[:_WORDS]) for topic in (one, other))
    return f"{len(first & second)} of {len(first)}"


def _of_several(model: Any, counts: Any) -> tuple[Array, Array]:
    """Topics of documents of several: latent Dirichlet allocation."""
    count = model.n_components_
    prior = float(model.concentration_.sum()) / count
    made = LatentDirichletAllocation(
        count, doc_topic_prior=prior, learning_method="batch", max_iter=30, random_state=0
    ).fit(counts)
    words = made.components_.sum(axis=1)
    return made.components_ / words[:, None], words / words.sum()


def _of_one(model: Any, counts: Any) -> tuple[Array, Array]:
    """Topics of documents of one each: a mixture of multinomials, from the released topics."""
    even = _LEAST / model.topics_.shape[1]
    topics, weights = np.array(model.topics_), np.array(model.weights_)
    for _ in range(_ROUNDS):
        safe = (topics + even) / (topics + even).sum(axis=1, keepdims=True)
        joint = counts @ np.log(safe).T + np.log(np.maximum(weights, _LEAST))
        shares = scipy.special.softmax(joint, axis=1)
        words, before = (counts.T @ shares).T, topics
        topics = words / np.maximum(words.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        weights = shares.mean(axis=0)
        if np.abs(topics - before).sum() < _LEAST:
            break
    return topics, weights


# -- PrivateTopicModel: the scikit-learn estimator of one collection of documents.


class PrivateTopicModel(TableFit, FittedTopics):
    """Differentially private topic model, by orthogonal tensor decomposition.

    Each document has one topic, from which its words are drawn independently; or, with ``alpha0``
    above 0, several topics in proportions of its own (latent Dirichlet allocation). All words of a
    document are used, whatever its length, and a document counts as much as any other; how often
    pairs and triples of words occur together is released with noise. The guarantee protects whole
    documents.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    topics_ : ndarray of shape (n_components, n_features)
        Probabilities of the words; rows add up to 1.
    components_ : ndarray
        The same.
    weights_ : ndarray of shape (n_components,)
        Shares of the documents (of their words, where ``alpha0`` is above 0), the largest first;
        they add up to 1.
    concentration_ : ndarray of shape (n_components,)
        Of the Dirichlet law of a document's topics: they add up to ``alpha0``, as it was given or
        found.
    n_components_ : int
    strengths_ : ndarray
        Leading eigenvalues of the pair moment; singular values of a sketch.
    noise_floor_ : float
        What of the last component noise alone would show, about once in a hundred times.
    usable_ : ndarray of bool, shape (n_components,)
        Which topics can be distinguished from the others in spite of the noise. Where none stood
        above it, one stands in, the fit ended early, and ``certificate_.stopped`` gives the reason.
    converged_ : bool
        Whether every power iteration converged.
    guarantee_ : Guarantee
        What was promised, to whom, and how it is computed.
    certificate_ : Certificate
        The recorded releases, from which the guarantee can be recomputed.
    released_ : dict of str to ndarray
        The released sums by the certificate's names: of symmetric ones the independent entries, of
        matrices beyond 32 MiB the spectrum.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky (2014), JMLR 15. Anandkumar, Foster, Hsu, Kakade, Liu
    (2012), A spectral algorithm for latent Dirichlet allocation. Paper 001, algorithms 4 and 5; the
    design's privacy.md, sections 2 to 4.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateTopicModel
    >>> rng = np.random.default_rng(0)
    >>> topics = np.repeat(np.eye(3), 4, axis=1) / 4
    >>> X = rng.multinomial(20, topics[rng.integers(3, size=5000)])
    >>> model = PrivateTopicModel(n_components=3, epsilon=1.0, delta=1e-6).fit(X)
    >>> model.topics_.shape
    (3, 12)
    >>> bool(abs(model.topics_.sum(axis=1) - 1.0).max() < 1e-9)
    True

    Texts are counted by a public list of words:

    >>> texts = ["fever and cough", "a broken leg", "the leg hurts", "cough, no fever"] * 5000
    >>> model = PrivateTopicModel(2, vocabulary=["broken", "cough", "fever", "leg"], epsilon=4.0)
    >>> len(model.fit(texts).transform(["a cough"]))
    1
    """

    _TASK = "topic-model"

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        vocabulary: Sequence[str] | None = None,
        pair: str = "auto",
        alpha0: float = 0.0,
        clip_documents: bool = True,
        budget_split: dict[str, float] | None = None,
        sketch_size: int | None = None,
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())
