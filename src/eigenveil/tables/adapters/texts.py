"""Texts, as counts of a public list of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_array

from eigenveil.errors import DataError
from eigenveil.moments.source import RowSource
from eigenveil.tables.adapters.array import SparseTable
from eigenveil.tables.entries import rows_of_numbers


class WordCounts(SparseTable):
    """Counts of words, whose columns are those of the model that they are counted for."""

    def matrix(self, estimator: Any, *, genes: Sequence[str] | None = None, **checks: Any) -> Any:
        del genes, checks["reset"]
        return check_array(self.given, estimator=estimator, **checks)


def counted(X: Any, words: Sequence[str]) -> Any:
    """Counts of words, where X is a list, array or series of texts; else X itself.

    Texts are split as scikit-learn's ``CountVectorizer`` does by default. What is no text has none
    of the words: entries decide nothing.
    """
    if isinstance(X, list | tuple):  # the first entry does not decide: it is one person's
        are_texts = rows_of_numbers(X) is None
    else:
        are_texts = not isinstance(X, str) and len(getattr(X, "shape", np.shape(X))) == 1
    if not are_texts:
        return X
    longest = max(word.count(" ") + 1 for word in words)
    counter = CountVectorizer(vocabulary=list(words), ngram_range=(1, longest), dtype=np.float64)
    split = counter.build_analyzer()
    if (never := next((word for word in words if word not in split(word)), None)) is not None:
        raise DataError("word-never-found", word=never)
    return WordCounts(counter.transform(text if isinstance(text, str) else "" for text in X))


def named(rows: RowSource, words: Sequence[str]) -> RowSource:
    """Rows with a column for each word, which these name where nothing else does."""
    if rows.names is None and rows.features == len(words):
        rows.names = tuple(words)
    if rows.names is None or list(rows.names) != list(words):
        raise DataError("other-vocabulary", words=len(words), columns=rows.features)
    return rows
