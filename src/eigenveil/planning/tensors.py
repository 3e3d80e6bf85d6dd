"""The prediction of a fit of mixtures or topics: its releases, and what stands above the noise.

The plan's own rounds run, answered with the moments that data of a certain kind would
have, without noise: so a prediction comes from the code that a fit runs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.driver import drive, rounds_of
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.rounds import Answers, Round, SumQuery
from eigenveil.models.schedule import Step
from eigenveil.models.shapes import COUNT_WEIGHT
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.moments.accumulators import RowSum, SecondMoment, Sketch
from eigenveil.moments.documents.documents import DocumentBlock
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.em import SQUARE_WEIGHT, EMSums
from eigenveil.moments.histograms import BINS, LOWEST_OCTAVE, OCTAVE_PARTS, NormHistogram
from eigenveil.moments.release import Release
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.privacy.releases import ReleaseRecord, Sharing

# A row's energy in that of the longest that is not shortened: these are distinguished by bins, and
# rows are taken from beside their centre.
_FILLED = 0.7
# Documents that are drawn to see how much each contributes.
_SOME_DOCUMENTS = 1000
# Times that the kind of data is moved to where its weakest component just stands above the noise.
_SETTLING = 4
_LEAST_SHARE, _LARGEST_SHARE = 1e-6, 0.999


@dataclass(frozen=True)
class Expected:
    """What a fit would release."""

    plan: TensorPlan
    rounds: tuple[tuple[ReleaseRecord, ...], ...]  # The releases of each pass over the data
    # Of a mixture: the part of a row's energy that a component of weight 1 must make up, to stand
    # above the noise. Of topics: how many documents there must be for each word over which a topic
    # is spread evenly.
    needed: float
    document_words: int | None = None  # Length of the documents that this is about

    @property
    def records(self) -> tuple[ReleaseRecord, ...]:
        return tuple(record for together in self.rounds for record in together)

    def distance(self, weight: float) -> float | None:
        """How far the mean of a component of this weight must be from that of all rows.

        In standard deviations of a feature within a component; ``None`` if no distance suffices.
        """
        share = self.needed / weight
        if share >= 1.0:
            return None
        return math.sqrt(self.plan.features * share / (1.0 - share))

    def words(self, weight: float, documents: float) -> float:
        """Over how many words a topic of this weight may be spread, at most."""
        return documents * weight / self.needed


@dataclass(frozen=True)
class Parties:
    """How the noise of a study's sites is shared, and by how much all of it is more than enough."""

    sharing: Mapping[Step, Sharing] = field(default_factory=dict)
    louder: Mapping[Step, float] = field(default_factory=dict)


ONE_PARTY = Parties()


def expect(
    plan: TensorPlan, rows: int, parties: Parties = ONE_PARTY, *, document_words: int = 20
) -> Expected:
    """What a plan releases of so many rows with as many equal components as it has.

    ``document_words`` is the length of documents.
    """
    fixed = plan.model_copy(update={"auto_components": False})
    if isinstance(fixed, MixturePlan):
        return _expect_mixture(plan, fixed, rows, parties)
    words = most = max(1, fixed.features // fixed.n_components)
    for _ in range(_SETTLING):
        data = _Topics(fixed, rows, words, document_words)
        released, found = _drive(fixed, data, parties)
        # what documents of several topics have in common is the first one's
        common = int(_alpha0(fixed) > 0 and fixed.n_components > 1)
        strength = float(np.mean(found.strengths[common : fixed.n_components]))
        unit = strength * fixed.n_components * words / rows  # of a document in a topic of one word
        needed = float(found.noise_floor) / unit
        wanted = min(most, max(1, int(rows / (fixed.n_components * needed))))
        if wanted == words:
            break
        words = wanted
    return Expected(plan, released, needed, document_words)


def _expect_mixture(plan: TensorPlan, fixed: MixturePlan, rows: int, parties: Parties) -> Expected:
    share = 0.5
    for _ in range(_SETTLING):
        released, found = _drive(fixed, _Components(fixed, rows, share), parties)
        strength = float(np.min(found.strengths[: fixed.rank]))
        needed = share * float(found.noise_floor) / (strength * fixed.rank)
        share = min(_LARGEST_SHARE, max(_LEAST_SHARE, needed * fixed.rank))
    return Expected(plan, released, needed)


class _Data(ABC):
    """Data of one kind, as their sums."""

    def __init__(self, plan: TensorPlan, rows: int) -> None:
        self.plan, self.rows = plan, rows

    def values(self, query: SumQuery) -> NDArray[np.float64]:
        sums = query.accumulator
        values = np.zeros(sums.shape)
        match sums:
            case NormHistogram():
                top = math.ceil(OCTAVE_PARTS * (math.log2(self.norm(sums)) - LOWEST_OCTAVE))
                top = min(max(1, top), BINS - 1)
                values[top - 1 : top + 1] = self.rows / 2.0
                values[BINS:] = self.rows
            case RowSum():
                values[self.plan.features :] = COUNT_WEIGHT * self.rows
            case SecondMoment():
                return self.pairs(np.eye(self.plan.features), sums.rule.bound)
            case DocumentPairs():
                return self.pairs(np.eye(self.plan.features), 1.0) / sums.clip
            case Sketch():
                return self.pairs(sums.basis, sums.rule.bound) / sums.clip
            case EMSums():
                return self.sums(sums)
            case DocumentNorms():
                values[:] = self.norms_of_documents(sums)
            case WordShares():
                ones = np.ones((self.plan.features, 1))
                return self.pairs(ones, 1.0)[:, 0] / sums.clip
            case DocumentSketch():
                return self.pairs(sums.signs, 1.0) / sums.clip
            case ScoreHistogram():  # no query follows from it where all is kept
                values[:] = self.rows / values.size
            case _:  # the triple moment: any will do, for no query follows it
                places = np.arange(sums.shape[0])
                values[places, places, places] = self.rows / sums.shape[0]
        return values

    def norm(self, sums: NormHistogram) -> float:
        del sums
        return 1.0

    def sums(self, sums: EMSums) -> NDArray[np.float64]:
        raise AssertionError(
            f"sums of components were requested {sums.squares}, and there are none: a defect"
        )

    def norms_of_documents(self, sums: DocumentNorms) -> NDArray[np.float64]:
        raise AssertionError(
            f"documents were requested {sums.merge_key()}, and there are rows: a defect"
        )

    @abstractmethod
    def pairs(self, test: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        """The pair moment, of rows in units of the bound, times a matrix."""


class _Components(_Data):
    """Rows of a mixture of equal components whose means have ``share`` of the rows' energy.

    They are as long as a public variance within components makes them, else of norm 1.
    """

    def __init__(self, plan: MixturePlan, rows: int, share: float) -> None:
        super().__init__(plan, rows)
        self.share, self.bulk = share, (1.0 - share) / plan.features
        self.variance = plan.noise_variance
        self.length = math.sqrt((self.variance or 0.0) / (_FILLED * self.bulk)) or 1.0

    def norm(self, sums: NormHistogram) -> float:
        if sums.basis is None:
            return self.length
        return self.length * math.sqrt(min(1.0, self.share + sums.basis.shape[1] * self.bulk))

    def sums(self, sums: EMSums) -> NDArray[np.float64]:
        count, features = sums.mixture.means.shape
        each = self.rows / count
        means, counts = np.zeros(count * features), np.full(count, COUNT_WEIGHT * each)
        diagonal = np.eye(features)[np.tri(features, dtype=bool)] / features
        squares = {
            "none": np.empty(0),
            "trace": np.full(count, 1.0),
            "diag": np.full(count * features, 1.0 / features),
            "full": np.tile(diagonal, count),
            "tied": count * diagonal,
        }[sums.squares]
        return np.concatenate([means, counts, SQUARE_WEIGHT * _FILLED * each * squares])

    def pairs(self, test: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        count = self.plan.rank
        bulk = 0.0 if self.variance == 0 else self.bulk
        # what is known of the rows' variance is exact, where the bound is rounded to a bin
        energy = self.variance / bound**2 / bulk if self.variance else _FILLED
        moment = bulk * test
        moment[:count] += self.share / count * test[:count]
        return np.asarray(energy * self.rows * moment)


class _Topics(_Data):
    """Documents of equal topics, each spread evenly over ``words`` words of its own."""

    def __init__(self, plan: TensorPlan, rows: int, words: int, length: int) -> None:
        super().__init__(plan, rows)
        self.words, self.length = words, length

    def norms_of_documents(self, sums: DocumentNorms) -> NDArray[np.float64]:
        size = (_SOME_DOCUMENTS, self.length)
        topics = np.arange(_SOME_DOCUMENTS) % self.plan.n_components
        places = np.random.default_rng(self.length).integers(self.words, size=size)
        places += topics[:, None] * self.words
        ends = np.arange(0, places.size + 1, self.length)
        counts = scipy.sparse.csr_array(
            (np.ones(places.size), places.ravel(), ends), shape=(size[0], self.plan.features)
        )
        some = sums.empty()
        some.update(DocumentBlock(counts))
        return np.asarray(some.integers() * (self.rows / _SOME_DOCUMENTS))

    def pairs(self, test: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        del bound
        count, words = self.plan.n_components, self.words
        seen = test[: count * words].reshape(count, words, -1).mean(axis=1)
        moment, alpha0 = np.zeros_like(test), _alpha0(self.plan)
        # of the words of a pair: chances that they are of one topic, and that they are of any two
        of_one = np.repeat(seen, words, axis=0) / words
        moment[: count * words] = (of_one + alpha0 * seen.mean(axis=0) / words) / (alpha0 + 1.0)
        return moment * (self.rows / count)


def _alpha0(plan: TensorPlan) -> float:
    return plan.alpha0 if isinstance(plan, TopicPlan) else 0.0


def _drive(
    plan: TensorPlan, data: _Data, parties: Parties
) -> tuple[tuple[tuple[ReleaseRecord, ...], ...], Any]:
    """The releases of a fit to data, round by round, and its result."""
    center = np.zeros(plan.features) if plan.centered == "public" else None
    rounds = rounds_of(plan, public_center=center, sharing=parties.sharing, keep_all=True)
    released: list[tuple[ReleaseRecord, ...]] = []

    def answer(queries: Round) -> Answers:
        released.append(tuple(query.record for query in queries))
        return {
            query.name: Release(_as_drawn(query.record, plan, parties), data.values(query))
            for query in queries
        }

    with small_matrix_threads(plan.features):
        found = drive(rounds, answer)
    if found.stopped is not None:
        raise PrivacyError("too-few-rows-for-guarantee", reason=found.stopped, advice=found.advice)
    return tuple(released), found


def _as_drawn(record: ReleaseRecord, plan: TensorPlan, parties: Parties) -> ReleaseRecord:
    """The record with the noise that a sum carries if all parties take part."""
    factor = parties.louder.get(plan.planned(record.name).step, 1.0)
    noise = record.noise.model_copy(update={"scale": record.noise.scale * factor})
    return record.model_copy(update={"noise": noise})
