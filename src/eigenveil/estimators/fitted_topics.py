"""What every fitted topic model can do, whoever held the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eigenveil.errors import DataError
from eigenveil.estimators.inputs import validated
from eigenveil.estimators.result import View, of_factors
from eigenveil.estimators.stored import StoredModel
from eigenveil.estimators.tensor_settings import TopicPlan
from eigenveil.estimators.topic_pipeline import TopicFactors

# A topic's smallest probability, as a part of an even one: a word that noise left out of a topic
# must not rule the topic out.
_FLOOR = 1e-3


class FittedTopics(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released topics and weights of a single-topic model.

    ``FittedTopics.load`` reads a model that any of the estimators saved.
    """

    _FAMILY = ("PrivateTopicModel", "FederatedTopicModel")
    _PLAN = TopicPlan
    _FACTORS = TopicFactors

    topics_: View[NDArray[np.float64]] = of_factors("topics")
    weights_: View[NDArray[np.float64]] = of_factors("weights")
    strengths_ = of_factors("strengths")
    noise_floor_ = of_factors("noise_floor")
    converged_ = of_factors("converged")
    usable_ = of_factors("usable")
    n_components_ = View(lambda result: int(result.factors.topics.shape[0]))

    @property
    def components_(self) -> NDArray[np.float64]:
        """The topics, under the name that scikit-learn's decompositions use."""
        return self.topics_

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Posterior probability of each topic for the documents of ``X``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_documents, n_words)
            Word counts; documents of any length.

        Returns
        -------
        array of shape (n_documents, n_components)
            Rows add up to 1.
        """
        return np.asarray(scipy.special.softmax(self._log_joint(X), axis=1))

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The likeliest topic of each document, shape (n_documents,); -1 for one with NaN."""
        joint = self._log_joint(X)
        return np.where(np.isnan(joint[:, 0]), -1, np.argmax(joint, axis=1))

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-probability of each document's words, in their order, shape (n_documents,)."""
        return np.asarray(scipy.special.logsumexp(self._log_joint(X), axis=1))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Average log-probability of a document."""
        del y
        return float(np.mean(self.score_samples(X)))

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
            raise DataError(
                f"The vocabulary has {len(vocabulary)} words, the topics {size}.",
                hint="Give one word for each column of the document-term matrix, in its order.",
            )
        if n_words < 1:
            raise DataError(f"n_words = {n_words} is less than 1.", hint="Ask for one or more.")
        found = []
        for topic in self.topics_:
            order = np.argsort(-topic, kind="stable")[:n_words]
            found.append([str(vocabulary[index]) for index in order if topic[index] > 0])
        return found

    def _log_joint(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of a topic's weight times the probability of the document's words."""
        self._check_fitted()
        counts = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_non_negative=True,
            ensure_all_finite="allow-nan",
            reset=False,
        )
        size = self.topics_.shape[1]
        smoothed = (self.topics_ + _FLOOR / size) / (1.0 + _FLOOR)
        return np.asarray(counts @ np.log(smoothed).T + np.log(self.weights_))

    @property
    def _n_features_out(self) -> int:
        return int(self.topics_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # a document with a negative count is not valid, which need be no error
        tags.input_tags.positive_only = not tags.input_tags.allow_nan
        tags.non_deterministic = getattr(self, "random_state", None) is None
        return tags
