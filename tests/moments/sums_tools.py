"""Rows of every nasty kind, and the sums over them."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
from hypothesis import strategies as st

from eigenveil.moments.accumulators import (
    Accumulator,
    ComponentEnergy,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.documents.documents import MOST_WORDS, DocumentBlock, DocumentRows
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import (
    ColumnHistogram,
    NormHistogram,
    ObservedCounts,
    ObservedPairs,
    range_of,
)
from eigenveil.moments.preparation import Effects, Preparation
from eigenveil.moments.rows import DTYPE, Block, RowRule, RowWeights
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.source import ArrayRows
from eigenveil.moments.third import ThirdMoment
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.tables.units import LabelledRows, UnitRows

COUNT_WEIGHT = 0.25
VARIANCE = 0.1


def nasty_rows(count, features, seed, precision="double"):
    """Rows of very different lengths and shapes, as finite entries of the arithmetic."""
    rng = np.random.default_rng(seed)
    dtype = DTYPE[precision]
    large, tiny = (1e300, 1e-310) if precision == "double" else (3e38, 1e-44)
    rows = rng.standard_normal((count, features)) * 10.0 ** rng.integers(-6, 7, (count, 1))
    for row, kind in zip(rows, rng.integers(0, 12, count), strict=True):
        match kind:
            case 0:
                row[:] = 0.0
            case 1:
                row[:] = large * rng.choice([-1, 1], features)
            case 2:
                row[:] = tiny
            case 3:
                row[:] = 0.0
                row[rng.integers(features)] = rng.choice([1.0, -7.5, large, tiny])
            case 4:
                row[:] = -3.25
            case 5:
                row[:] = rng.choice([0.0, 1.0], features)
            case 6:
                row[0] = large
            case 7:
                row[:] = float(np.finfo(np.float32).max) * rng.choice([-1, 1], features)
    return rows.astype(dtype)


def holed_rows(count, features, seed, precision="double"):
    """The same with missing entries, in some rows all of them."""
    rows = nasty_rows(count, features, seed, precision)
    rng = np.random.default_rng([seed, 1])
    rows[rng.random(rows.shape) < rng.choice([0.0, 0.2, 0.7, 1.0], (count, 1))] = np.nan
    return rows


def random_basis(features, columns):
    """The same for every call: merged sums must have one basis."""
    rng = np.random.default_rng(features)
    return np.linalg.qr(rng.standard_normal((features, columns)))[0]


def by_unit(rows, ids, most=1, step=3, *, documents=False):
    """Blocks of a few rows, or documents, with the weights of their units."""
    if documents:
        table = DocumentRows(rows, documents_a_block=step)
    else:
        table = ArrayRows(rows, rows_a_block=step)
    return UnitRows(LabelledRows(table, np.asarray(ids)), most).blocks()


def forgotten(rows, ids, most=1, step=3, **kind):
    """A mutant: every row counts 1."""
    for block in by_unit(rows, ids, most, step, **kind):
        block.weights = RowWeights(np.ones_like(block.weights.divisors), block.weights.ranks * 0)
        yield block


def by_block(rows, ids, most=1, step=3, **kind):
    """A mutant: each block counts a unit's rows anew."""
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield from by_unit(rows[part], ids[part], most, step, **kind)


def record_of(accumulator, noise="gaussian", adjacency="add-remove", loss=1.0, **known):
    """A record of a sum that spends so much."""
    budget = StepBudget(mu=loss) if noise == "gaussian" else StepBudget(epsilon=loss)
    return calibrated_record(
        accumulator, name="a", adjacency=adjacency, kind=noise, budget=budget, **known
    )


def seen_rule(rule, features):
    """Rows seen through columns of very different lengths, two of them the same."""
    basis = random_basis(features, features) * np.geomspace(1.0, 1e-4, features)
    basis[:, -1] = basis[:, 0]
    return dataclasses.replace(rule, basis=basis, clip=2.0**-12)


def make(kind, features, precision="double", center=None, bound=0.0, extra_bits=0):
    """An empty sum of each kind."""
    rule = RowRule(center=center, bound=bound, precision=precision, extra_bits=extra_bits)
    few = min(features, 3)
    match kind:
        case "histogram":
            return NormHistogram(center, precision=precision)
        case "seen histogram":
            basis = random_basis(features, few)
            return NormHistogram(center, precision=precision, basis=basis, bound=bound)
        case "column histogram":
            return ColumnHistogram(features, precision=precision)
        case "column ranges":
            middle, half = np.linspace(-2, 3, features), np.linspace(9.0, 0.0, features)
            variables = np.minimum(np.arange(features), 2.0)  # the last ones are levels
            return ColumnHistogram(
                features,
                precision=precision,
                preparation=range_of(middle, half, holes=False),
                variables=variables,
            )
        case "row sum":
            finer = RowRule(center=center, bound=bound, precision=precision, extra_bits=2)
            return RowSum(finer, features=features, count_weight=COUNT_WEIGHT)
        case "second moment":
            return SecondMoment(rule, features=features)
        case "observed entries":
            return ObservedCounts(features)
        case "observed pairs":
            return ObservedPairs(features)
        case "histogram of what is observed":
            return NormHistogram(center, precision=precision, preparation=Preparation(holes=True))
        case "moment of what is observed":
            observed = dataclasses.replace(rule, preparation=Preparation(holes=True))
            return SecondMoment(observed, features=features)
        case "residual moment":
            covariates = tuple({0, features - 1})  # of one column, that one
            effects = Effects(covariates, 3.0 * random_basis(features, len(covariates)))
            residual = dataclasses.replace(rule, preparation=Preparation(effects=effects))
            return SecondMoment(residual, features=features)
        case "seen moment":
            return SecondMoment(seen_rule(rule, features), features=features)
        case "seen sum":
            return RowSum(seen_rule(rule, features), features=features, count_weight=COUNT_WEIGHT)
        case "products":
            seen = dataclasses.replace(rule, basis=random_basis(features, few), clip=0.5)
            return SecondMoment(dataclasses.replace(seen, products=True), features=features)
        case "scores" | "scores of one":
            columns = min(features, 1 if kind.endswith("one") else 2)
            seen = dataclasses.replace(rule, basis=random_basis(features, columns), clip=0.5)
            return ScoreHistogram(seen, cells=7)
        case "sketch":
            return Sketch(rule, random_basis(features, few), clip=0.5)
        case "energy":
            components = random_basis(features, few).T
            return ComponentEnergy(rule, components, count_weight=COUNT_WEIGHT)
        case "third moment":
            return ThirdMoment(rule, random_basis(features, few), clip=0.5, variance=VARIANCE)
        case "em sums" | "em sums, diag" | "em sums, full" | "em sums, tied" | "em means":
            squares = {"em sums": "trace", "em means": "none"}.get(kind, kind[-4:])
            return EMSums(rule, mixture_of(features, squares), squares=squares)


def mixture_of(features, squares):
    """Three components with variances or covariances of their own, near the rows."""
    rng = np.random.default_rng(features)
    means = 0.4 * rng.standard_normal((3, features)) / np.sqrt(features)
    factors = 2.0 + rng.random((3, features))
    if squares in ("full", "tied"):
        factors = factors[:, None, :] * random_basis(features, features)
    elif squares == "trace":
        factors = factors[:, :1]
    reaches = np.full(3, 0.75) if squares == "tied" else np.array([0.5, 0.75, 1.0])
    return Mixture(means, np.log([0.5, 0.3, 0.2]), factors, reaches)


KINDS = (
    "histogram",
    "seen histogram",
    "column histogram",
    "column ranges",
    "row sum",
    "second moment",
    "residual moment",
    "seen moment",
    "seen sum",
    "products",
    "scores",
    "scores of one",
    "sketch",
    "energy",
    "third moment",
    "em sums",
    "em sums, diag",
    "em sums, full",
    "em sums, tied",
    "em means",
)
# Of rows with missing entries.
HOLED = (
    "observed entries",
    "observed pairs",
    "histogram of what is observed",
    "moment of what is observed",
)
PRECISIONS = ("single", "double")
SEEDS = st.integers(0, 2**32 - 1)


def total(accumulator, rows):
    """The sum over rows given as one block, as Python integers."""
    accumulator.update(Block(rows))
    return python(accumulator)


def python(accumulator):
    return accumulator.integers().astype(object)


def same(one, other):
    """Whether two sums are the same integers."""
    return np.array_equal(one.integers(), other.integers())


# Sums over documents, with names of their own where they differ in what they are made with.
DOCUMENT_SUMS = {
    "pairs": lambda d: DocumentPairs(d),
    "coarse pairs": lambda d: DocumentPairs(d, extra_bits=-6),
    "word shares": lambda d: WordShares(d),
    "clipped word shares": lambda d: WordShares(d, clip=0.05),
    "norms of word shares": lambda d: DocumentNorms(WordShares(d)),
    "sketch": lambda d: DocumentSketch(d, 3),
    "triples": lambda d: DocumentTriples(random_basis(d, 2)),
    "triples of one column": lambda d: DocumentTriples(random_basis(d, 1)),
    "triples of all columns": lambda d: DocumentTriples(random_basis(d, d)),
    "clipped pairs": lambda d: DocumentPairs(d, clip=0.05),
    "nuclear pairs": lambda d: DocumentPairs(d, clip=0.05, nuclear=True),
    "clipped sketch": lambda d: DocumentSketch(d, 3, clip=0.05),
    "clipped triples": lambda d: DocumentTriples(random_basis(d, 2), clip=0.05),
    "norms of pairs": lambda d: DocumentNorms(DocumentPairs(d)),
    "norms of a sketch": lambda d: DocumentNorms(DocumentSketch(d, 3)),
    "norms of triples": lambda d: DocumentNorms(DocumentTriples(random_basis(d, 2))),
}


SHORT = [
    [3, 0, 0, 0, 0],
    [0, 2, 0, 1, 0],
    [1, 1, 1, 0, 0],
    [1, 1, 1, 1, 1],
    [0, 4, 0, 2, 1],
    [0, 0, 9, 0, 0],
    [1, 0, 0, 0, 7],
]
# 2**14 is the longest for which pairs have a weight, 128 for which single words have
LONG = [
    [40, 30, 0, 1, 30],
    [100, 27, 1, 0, 0],
    [129, 0, 0, 0, 0],
    [500, 3, 0, 2, 800],
    [2**14, 0, 0, 0, 0],
    [2**14, 1, 0, 0, 0],
    [9999, 3, 1, 70_000, 12],
    [2**19, 2**19, 5, 1, 1],
    [MOST_WORDS - 2, 1, 1, 0, 0],
]


def corpus(count, features, seed, most=12):
    """Random documents of 3 words and more, some of one word only, a few very long."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, most, count)
    lengths[rng.random(count) < 0.05] = 10 ** rng.integers(2, 7)
    found = np.empty((count, features), dtype=np.int64)
    for row, length in zip(found, lengths, strict=True):
        row[:] = rng.multinomial(length, rng.dirichlet(np.full(features, 0.3)))
    return found


@dataclasses.dataclass(frozen=True)
class Summed:
    """A kind of sum, and rows for it."""

    make: Callable[[int], Accumulator]  # for so many features
    rows: Callable[[int, int, int], np.ndarray]  # how many, of how many features, a seed
    block: Callable[[np.ndarray], Block] = Block

    def over(self, *blocks):
        """The sum over some blocks of rows."""
        found = self.make(blocks[0].shape[1])
        for rows in blocks:
            found.update(self.block(rows))
        return found


EVERY_SUM = {
    **{
        f"{kind}, {precision}": Summed(
            partial(make, kind, precision=precision), partial(nasty_rows, precision=precision)
        )
        for kind in KINDS
        for precision in PRECISIONS
    },
    **{
        f"{kind}, {precision}": Summed(
            partial(make, kind, precision=precision), partial(holed_rows, precision=precision)
        )
        for kind in HOLED
        for precision in PRECISIONS
        if precision == "double" or not kind.startswith("observed")  # which has none
    },
    **{kind: Summed(made, corpus, DocumentBlock) for kind, made in DOCUMENT_SUMS.items()},
}
"""Every kind of sum over rows, in both precisions, and over documents."""
