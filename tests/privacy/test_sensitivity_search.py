"""Every sensitivity against a search for the worst neighbours: rows of norm 1, or documents."""

import math
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from scipy.optimize import minimize

from eigenveil.moments.documents.documents import FEWEST_WORDS
from eigenveil.moments.preparation import Effects, Preparation
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.privacy import statistics
from eigenveil.privacy.guarantee import ADJACENCIES
from eigenveil.privacy.releases import Noise, ReleaseRecord
from eigenveil.privacy.statistics import tensor_size
from statistics_tools import mutant

D = 3
BASIS, _ = np.linalg.qr(np.random.default_rng().standard_normal((D, D)))


def l1(v):
    return np.sum(np.abs(v))


def nuclear(v):
    return np.sum(np.linalg.svd(v.reshape(D, D))[1])


l2 = np.linalg.norm


def moment(x):
    return np.outer(x, x).ravel()  # the Frobenius norm is the isometric one


def sketch(clip):
    def one(x):
        seen = BASIS[:, :2].T @ x
        return np.outer(x, seen * min(1.0, clip / max(np.linalg.norm(seen), 1e-300))).ravel()

    return one


def energies(gain):
    def one(x):
        along = gain * (BASIS[:, :2].T @ x) ** 2
        return np.append(along, max(0.0, gain * (x @ x) - along.sum()))

    return one


# statistic, noise, parameters, norm, contribution of a row without the count
CASES = {
    "row sum": ("row-sum", "gaussian", {}, l2, lambda x: x),
    "row sum, count": ("row-sum", "gaussian", {"count_weight": 0.25}, l2, lambda x: x),
    "row sum, heavy count": ("row-sum", "vector", {"count_weight": 2.0}, l2, lambda x: x),
    "second moment": ("second-moment", "gaussian", {}, l2, moment),
    "second moment, trace": ("second-moment", "wishart", {}, nuclear, moment),
    "sketch": ("sketch", "gaussian", {"clip": 0.03}, l2, sketch(0.03)),
    "energies": ("component-energy", "gaussian", {}, l2, energies(1.0)),
    "energies, L1": ("component-energy", "laplace", {}, l1, energies(1.0)),
    "energies, count": (
        "component-energy",
        "gaussian",
        {"gain": 1.1, "count_weight": 0.25},
        l2,
        energies(1.1),
    ),
    "energies, count, L1": (
        "component-energy",
        "laplace",
        {"gain": 1.1, "count_weight": 0.25},
        l1,
        energies(1.1),
    ),
}


def record(statistic, kind, adjacency, parameters=None, size=9):
    noise = Noise(kind=kind, scale=1.0, size=size, grid=-26)
    return ReleaseRecord(
        name="test", statistic=statistic, adjacency=adjacency, noise=noise, **(parameters or {})
    )


def in_ball(z):
    return z / max(1.0, np.linalg.norm(z))


def worst(contribution, norm, count_weight, adjacency):
    """The largest change found, from random starts and from the axes of the basis."""

    def change(z):
        if adjacency == "add-remove":
            return norm(np.append(contribution(in_ball(z)), count_weight)[: 9 + bool(count_weight)])
        return norm(contribution(in_ball(z[:D])) - contribution(in_ball(z[D:])))

    rows = 1 if adjacency == "add-remove" else 2
    first, _, outside = BASIS.T
    axes = [
        s * v for v in (*BASIS.T, 0.03 * first + outside, 0.03 * first - outside) for s in (1, -1)
    ]
    starts = [np.concatenate(pair) for pair in product(axes, repeat=rows)]
    starts += list(np.random.default_rng().standard_normal((8, rows * D)))
    best = max(starts, key=change)
    found = [change(best)]
    for start in [best, *starts[-8:]]:
        found.append(-minimize(lambda z: -change(z), start, method="Nelder-Mead").fun)
    return max(found)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("case", CASES)
def test_claim_is_the_worst_case_found(case, adjacency):
    statistic, kind, parameters, norm, contribution = CASES[case]
    claimed = record(statistic, kind, adjacency, parameters).sensitivity()
    count_weight = parameters.get("count_weight", 0.0)
    found = worst(contribution, norm, count_weight, adjacency)
    if adjacency == "replace-one":  # one of the two rows is left out
        found = max(found, worst(contribution, norm, count_weight, "add-remove"))
    assert 0.999 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("clip", [0.3, 0.8, 1.0])
def test_sketch_with_a_wide_clip_moves_less_than_claimed(clip, adjacency):
    claimed = record("sketch", "gaussian", adjacency, {"clip": clip}).sensitivity()
    found = worst(sketch(clip), l2, 0.0, adjacency)
    assert 0.7 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_histogram(adjacency):
    rows = np.column_stack([np.eye(4), np.ones(4)])  # the count is released too
    if adjacency == "add-remove":
        changes = list(rows)
    else:  # of two rows, of which one may be left out
        changes = [a - b for a, b in product([*rows, np.zeros(5)], repeat=2)]
    for kind, norm in (("gaussian", l2), ("laplace", l1)):
        claimed = record("norm-histogram", kind, adjacency).sensitivity()
        assert max(map(norm, changes)) == pytest.approx(claimed, rel=1e-15)


def columns_search(categories, adjacency, norm):
    """Every row of two numbers with three bins each and categories of so many levels, or none."""
    bins = [None, 0, 1, 2]
    contributions = []
    for first, second, *levels in product(bins, bins, *[[None, *range(n)] for n in categories]):
        parts = [one_hot(3, first), one_hot(3, second)]
        parts += [one_hot(n, level) for n, level in zip(categories, levels, strict=True)]
        contributions.append(np.concatenate(parts))
    found = np.array(contributions)
    if adjacency == "add-remove":
        return max(map(norm, found))
    return max(norm(one - other) for one in found for other in found)


def one_hot(size, place):
    return np.zeros(size) if place is None else np.eye(size)[place]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("categories", [(), (2,), (4,), (2, 3)])
def test_histograms_of_columns_move_as_far_as_claimed(categories, adjacency):
    variables = {"variables": 2 + len(categories)}
    for kind, norm in (("gaussian", l2), ("laplace", l1)):
        claimed = record("column-histogram", kind, adjacency, variables).sensitivity()
        found = columns_search(categories, adjacency, norm)
        assert found == pytest.approx(claimed, rel=1e-15)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (statistics.column_histogram, "2 * variables", "variables"),
        (statistics.column_histogram, "math.sqrt(variables", "math.sqrt(1"),
        (statistics.column_histogram_l1, "2 * variables", "variables"),
        (statistics.column_histogram_l1, "float(variables", "math.sqrt(variables"),
    ],
)
def test_other_histograms_of_columns_are_rejected(function, old, new):
    """A bound without the root of 2, or of a single column, is seen to be too small."""
    norm = l1 if function is statistics.column_histogram_l1 else l2
    wrong = mutant(function, old, new)
    found = [columns_search((2,), adjacency, norm) for adjacency in ADJACENCIES]
    assert any(
        wrong(adjacency, variables=3) < far * 0.999
        for adjacency, far in zip(ADJACENCIES, found, strict=True)
    )


def scores_search(adjacency, norm, cells=4, groups=0):
    """Rows of a disc, of which each counts in the cell of a grid, or is left out.

    With groups each row may be of one, of none, or claim to be of several.
    """
    places = np.linspace(-1.0, 1.0, 9)
    rows = np.array([row for row in product(places, places) if math.hypot(*row) <= 1.0])
    one = [np.zeros(cells**2 * max(1, groups))]
    claims = list(product([0.0, 1.0, 7.0], repeat=groups))
    basis, none = np.eye(2 + groups, 2), np.zeros((2 + groups, groups))
    columns = tuple(range(2, 2 + groups))
    first = Preparation(effects=Effects(columns, none) if groups else None)
    for row in (np.array([*row, *claim]) for row in rows for claim in claims):
        rule = RowRule(bound=1.0, basis=basis, preparation=first)
        total = ScoreHistogram(rule, cells=cells, groups=columns)
        total.update(Block(row[None].copy()))
        one.append(total.integers().astype(float))
    if adjacency == "add-remove":
        return max(map(norm, one))
    return max(norm(a - b) for a in one for b in one)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_histograms_of_scores_move_as_far_as_claimed(adjacency):
    for kind, norm in (("gaussian", l2), ("laplace", l1)):
        claimed = record("score-histogram", kind, adjacency).sensitivity()
        assert scores_search(adjacency, norm) == pytest.approx(claimed, rel=1e-15)
        found = scores_search(adjacency, norm, cells=2, groups=2)
        assert found == pytest.approx(claimed, rel=1e-15)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (statistics.score_histogram, "else SQRT2", "else 1.0"),
        (statistics.score_histogram_l1, "else 2.0", "else SQRT2"),
        (statistics.score_histogram, "1.0 if", "0.9 if"),
    ],
)
def test_other_histograms_of_scores_are_rejected(function, old, new):
    norm = l1 if function is statistics.score_histogram_l1 else l2
    wrong = mutant(function, old, new)
    assert any(wrong(each) < 0.999 * scores_search(each, norm) for each in ADJACENCIES)


def bingham_loss(moment_, one, two):
    """Largest log ratio of the densities exp(u' A u) on the circle, by quadrature."""
    angle = (np.arange(4_000) + 0.5) * (math.pi / 4_000)
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    logs = []
    for extra in (one, two):
        score = np.einsum("ni,ij,nj->n", u, moment_ + extra, u)
        logs.append(score - score.max() - math.log(np.mean(np.exp(score - score.max()))))
    return np.max(np.abs(logs[0] - logs[1]))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_exponential_mechanism_loses_what_is_claimed(adjacency):
    """The exact privacy loss over data sets and neighbours; scale 1, one draw."""
    claimed = record("bingham-vectors", "bingham", adjacency).epsilon()
    rng, losses = np.random.default_rng(), []
    data = [np.diag([0.0, 1e4])]  # next to such data a row along the weak axis is seen best
    data += [np.diag([0.0, s]) for s in rng.exponential(20, 6)]
    for base in data:
        rows = [in_ball(z) for z in rng.standard_normal((4, 2)) * 3] + [np.eye(2)[0], np.eye(2)[1]]
        for x, y in product(rows, repeat=2):
            other = 0.0 if adjacency == "add-remove" else np.outer(y, y)
            losses.append(bingham_loss(base, np.outer(x, x), other))
    assert 0.999 * claimed <= max(losses) <= claimed * (1 + 1e-9)


# Third moments


def third_moment(variance):
    def one(y):
        lines = np.einsum("i,jk->ijk", y, np.eye(y.size))
        known = lines + lines.transpose(1, 0, 2) + lines.transpose(1, 2, 0)
        return np.einsum("i,j,k->ijk", y, y, y) - variance * known

    return one


def climb(change, starts):
    """The largest change, uphill from the best starts, and from others: the best lie together."""
    best = [*sorted(starts, key=change)[-4:], *starts[:8]]
    options = {"maxiter": 1000, "xatol": 1e-2, "fatol": 1e-3}
    return max(
        -minimize(lambda z: -change(z), start, method="Nelder-Mead", options=options).fun
        for start in best
    )


def third_moment_search(rows, variance, adjacency):
    """What is claimed, and the worst found."""
    contribution = third_moment(variance)

    def change(z):
        if adjacency == "add-remove":
            return l2(contribution(in_ball(z)))
        return l2(contribution(in_ball(z[:rows])) - contribution(in_ball(z[rows:])))

    length = rows if adjacency == "add-remove" else 2 * rows
    found = climb(change, np.random.default_rng().standard_normal((200, length)))
    parameters = {"variance": variance}
    made = record("third-moment", "gaussian", adjacency, parameters, tensor_size(rows))
    return made.sensitivity(), found


def is_tight(claimed, found):
    return 0.98 * claimed <= found <= claimed * (1 + 1e-9)


# around the places where the farthest row changes, for one component
VARIANCES = [0.0, 0.05, 0.2, 0.3, 1 / 3, 0.6, 0.95, 1.2, 4.0]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("rows", [1, 2, pytest.param(5, marks=pytest.mark.thorough)])
def test_third_moments_move_as_far_as_claimed(rows, variance, adjacency):
    assert is_tight(*third_moment_search(rows, variance, adjacency))


@pytest.mark.parametrize(
    ("old", "new", "rows", "variance"),
    [
        ("3.0 * rows + 6.0", "3.0 * rows", 2, 1.2),
        ("0.25 < variance < 1.0", "False", 1, 0.3),
        ("rows == 1 and 0.25 < variance < 1.0", "0.25 < variance < 1.0", 2, 0.6),
        ("variance < 1.0", "variance", 1, 4.0),
        ("2.0 * farthest", "math.sqrt(2.0) * farthest", 5, 0.05),
    ],
    ids=["crossed terms", "a row inside", "always inside", "beyond the ball", "root of two"],
)
def test_other_third_moments_are_rejected(old, new, rows, variance, monkeypatch):
    changed = mutant(statistics.third_moment, old, new)
    monkeypatch.setattr(statistics, "third_moment", changed)
    assert not is_tight(*third_moment_search(rows, variance, "replace-one"))


def test_the_farthest_row_is_that_of_the_closed_form():
    """The largest root of x^3 - 6 s x^2 + (3 K + 6) s^2 x over a fine grid of x."""
    x = np.linspace(0, 1, 20_001)
    for rows, variance in product([1, 2, 3, 10, 100], np.geomspace(1e-3, 30, 60)):
        squared = x**3 - 6 * variance * x**2 + (3 * rows + 6) * variance**2 * x
        claimed = statistics.third_moment("add-remove", rows=rows, variance=variance)
        assert math.sqrt(squared.max()) == pytest.approx(claimed, rel=1e-6)


# Sums of expectation maximisation


def em_contribution(components, features, weights):
    """What a row adds, of any shares of components and any place about each mean."""
    count_weight, square_weight = weights

    def one(z):
        shares = np.abs(z[:components]) / max(1.0, np.abs(z[:components]).sum())
        places = z[components:].reshape(components, features)
        parts = []
        for share, place in zip(shares, places, strict=True):
            y = in_ball(place)
            parts += [share * y, [share * count_weight]]
            parts.append(share * square_weight * np.outer(y, y).ravel())
        return np.concatenate(parts)

    return one


def em_search(adjacency, weights, components=2, features=2):
    """What is claimed, and the worst found."""
    one = em_contribution(components, features, weights)
    length = components * (features + 1)

    def change(z):
        if adjacency == "add-remove":
            return l2(one(z))
        return l2(one(z[:length]) - one(z[length:]))

    size = length if adjacency == "add-remove" else 2 * length
    starts = 3.0 * np.random.default_rng().standard_normal((600, size))
    parameters = {"count_weight": weights[0], "square_weight": weights[1]}
    made = record("em-sums", "gaussian", adjacency, parameters, 12)
    return made.sensitivity(), climb(change, starts)


# of counts and squares: in one component opposite, at an angle; in two components
EM_WEIGHTS = [(0.25, 0.0), (0.25, 0.625), (0.1, 1.2), (1.2, 0.5), (0.0, 2.5)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("weights", EM_WEIGHTS)
def test_em_sums_move_as_far_as_claimed(weights, adjacency):
    claimed, found = em_search(adjacency, weights)
    assert 0.97 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize(
    ("old", "new", "weights", "adjacency"),
    [
        ("1.0 + b2 + c2)\n", "1.0 + c2)\n", (0.25, 0.625), "add-remove"),
        ("max(same, 2.0 * (1.0 + b2 + c2))", "2.0 * (1.0 + b2 + c2)", (0.25, 0.0), "replace-one"),
        ("max(same, 2.0 * (1.0 + b2 + c2))", "same", (1.2, 0.5), "replace-one"),
    ],
    ids=["squares", "opposite rows", "two components"],
)
def test_other_em_sums_are_rejected(old, new, weights, adjacency, monkeypatch):
    wrong = statistics._of(mutant(statistics.em_sums, old, new))
    monkeypatch.setitem(statistics.STATISTICS["em-sums"].bounds, "l2", wrong)
    claimed, found = em_search(adjacency, weights)
    assert not 0.97 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("square_weight", [0.5, 0.70, 0.71, 0.8, 1.0, 1.5, 3.0])
def test_the_farthest_rows_of_one_component_are_those_of_the_closed_form(square_weight):
    """Over a fine grid of two lengths and the angle between them."""
    r = np.linspace(0, 1, 41)[:, None, None]
    other = np.linspace(0, 1, 41)[None, :, None]
    t = r * other * np.linspace(-1, 1, 801)
    squared = r**2 + other**2 - 2 * t + square_weight**2 * (r**4 + other**4 - 2 * t**2)
    same = squared.max()
    claimed = statistics.em_sums("replace-one", count_weight=0.0, square_weight=square_weight)
    assert claimed**2 == pytest.approx(max(same, 2 + 2 * square_weight**2), rel=1e-3)


# Documents

WORDS = 3
DOCUMENTS = [
    document
    for length in range(2, 7)
    for document in combinations_with_replacement(range(WORDS), length)
]
DOCUMENTS += [np.random.default_rng().integers(WORDS, size=n).tolist() for n in (9, 15, 24)]
ROUNDING = 2.0**8  # weights are multiples of one over this


def mean_of_words(order, *, shortest):
    """Of every document, the mean over ordered places; then the same with a rounded weight."""
    means, shorter = [], []
    for document in DOCUMENTS:
        if len(document) < shortest:
            continue
        counts = np.zeros((WORDS,) * order)
        for words in permutations(document, order):
            counts[words] += 1
        means.append(counts / counts.sum())
        shorter.append(counts * (np.floor(ROUNDING / counts.sum()) / ROUNDING))
    return np.array(means + shorter)


# pairs hold for two words too; of a sketch there are none so short
PAIRS, PAIRS_SEEN = mean_of_words(2, shortest=2), mean_of_words(2, shortest=3)
TRIPLES = mean_of_words(3, shortest=3)


def farthest(contributions, adjacency):
    """The longest, or the two that are farthest apart."""
    flat = contributions.reshape(len(contributions), -1)
    products = flat @ flat.T
    squares = np.diagonal(products)
    if adjacency == "add-remove":
        return math.sqrt(squares.max())
    return math.sqrt((squares[:, None] + squares - 2 * products).max())


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_pairs_of_documents_move_as_far_as_claimed(adjacency):
    for kind in ("gaussian", "vector"):
        claimed = record("document-pairs", kind, adjacency).sensitivity()
        assert farthest(PAIRS, adjacency) == pytest.approx(claimed, rel=1e-12)
    changes = PAIRS if adjacency == "add-remove" else PAIRS[:, None] - PAIRS
    claimed = record("document-pairs", "wishart", adjacency).sensitivity()
    norms = np.sum(np.abs(np.linalg.eigvalsh(changes)), axis=-1)
    assert norms.max() == pytest.approx(claimed, rel=1e-12)
    assert np.linalg.eigvalsh(PAIRS).min() < -0.4, "they are not positive semi-definite"


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("clip", [1.0, 0.9, 0.3, 0.01])
def test_word_shares_of_documents_move_as_far_as_claimed(clip, adjacency):
    """Clipped or not: no entry is negative, so that two are never opposite."""
    shares = mean_of_words(1, shortest=3)
    shares = shares / np.maximum(np.linalg.norm(shares, axis=1), clip)[:, None]
    claimed = record("word-shares", "gaussian", adjacency, {"clip": clip}).sensitivity()
    assert farthest(shares, adjacency) == pytest.approx(claimed, rel=1e-12)


def seen(statistic, matrix, pairs=PAIRS_SEEN):
    """Contributions seen through a matrix, and the length of the longest pair or triple."""
    longest = np.linalg.norm(matrix, axis=1).max()
    if statistic == "document-sketch":
        return pairs @ matrix, longest
    through = np.einsum("nabc,ai,bj,ck->nijk", TRIPLES, *[matrix] * 3, optimize=True)
    return through, longest**3


def document_search(statistic, adjacency, columns):
    """What is claimed, and the worst found, among matrices of the same gain."""

    def change(z):
        contributions, gain = seen(statistic, z.reshape(WORDS, columns))
        return farthest(contributions, adjacency) / gain

    found = climb(change, np.random.default_rng().standard_normal((200, WORDS * columns)))
    gain = 1.7
    made = record(statistic, "vector", adjacency, {"gain": gain}, size=10)
    return made.sensitivity(), gain * found


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("statistic", ["document-sketch", "document-triples"])
@pytest.mark.parametrize("columns", [1, 2])
def test_documents_seen_through_a_matrix_move_as_far_as_claimed(statistic, columns, adjacency):
    assert is_tight(*document_search(statistic, adjacency, columns))


@pytest.mark.parametrize(
    ("statistic", "old", "new"),
    [
        ("document-sketch", "SQRT2 + 2.0**-22 if", "1.0 if"),
        ("document-sketch", "SQRT2 +", "2.0 +"),
        ("document-triples", "2.0 *", "SQRT2 *"),
    ],
)
def test_other_claims_about_documents_are_rejected(statistic, old, new, monkeypatch):
    wrong = statistics._of(mutant(getattr(statistics, statistic.replace("-", "_")), old, new))
    monkeypatch.setitem(statistics.STATISTICS[statistic].bounds, "l2", wrong)
    assert not is_tight(*document_search(statistic, "replace-one", 2))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_clipped_contributions_to_a_sketch_can_be_opposite(adjacency):
    """One word 300 times among 600 others, once with signs like its own, once with opposite ones.

    Its row is nearly all of both, 300 times 899 and 300 times -301 before they are clipped.
    """
    often = 300.0
    alone = np.ones(2 * int(often))
    contributions = []
    for sign in (1.0, -1.0):
        seen_ = often + sign * 2 * often
        own = np.concatenate([[often * (seen_ - 1)], seen_ - sign * alone, 0 * alone])
        if sign < 0:  # other words
            own[1:] = own[:0:-1]
        pairs = 3 * often * (3 * often - 1)
        assert np.linalg.norm(own) / pairs > 0.1
        contributions.append(own / np.linalg.norm(own))
    parameters = {"gain": 1.7, "clip": 0.1}
    claimed = record("document-sketch", "vector", adjacency, parameters).sensitivity()
    found = 1.7 * farthest(np.array(contributions), adjacency)
    assert is_tight(claimed, found)
    if adjacency == "replace-one":
        unclipped = record("document-sketch", "vector", adjacency, {"gain": 1.7}).sensitivity()
        assert found > 1.4 * unclipped


def test_clipped_pairs_of_documents_move_as_far_as_claimed():
    """Shortened to one length, but never apart by more than documents without a common word."""
    for clip in (0.9, 0.3, 0.01):
        norms = np.linalg.norm(PAIRS, axis=(1, 2))
        clipped = PAIRS / np.maximum(norms, clip)[:, None, None]
        for adjacency in ADJACENCIES:
            claimed = record("document-pairs", "gaussian", adjacency, {"clip": clip}).sensitivity()
            assert farthest(clipped, adjacency) == pytest.approx(claimed, rel=1e-12)


def test_documents_of_two_words_would_move_a_sketch_further():
    """Which is why no document has fewer than three."""
    assert FEWEST_WORDS >= 3
    opposite = np.array([[1.0], [-1.0], [0.0]])
    found = {
        shortest: farthest(
            seen("document-sketch", opposite, mean_of_words(2, shortest=shortest))[0], "replace-one"
        )
        for shortest in (2, 3)
    }
    assert found[2] == pytest.approx(math.sqrt(5 / 2), rel=1e-12)
    assert found[3] <= statistics.document_sketch("replace-one", gain=1.0)


def test_three_words_are_the_extreme_documents_of_a_sketch():
    """Entries of the squared difference add up to 2 at most (docs/proofs/documents.md, claim 3)."""
    every = list(combinations_with_replacement(range(6), 3))
    pairs = np.zeros((len(every), 6, 6))
    for one, document in zip(pairs, every, strict=True):
        for words in permutations(document, 2):
            one[words] += 1 / 6
    largest = 0.0
    for one in pairs:
        differences = pairs - one
        largest = max(largest, np.abs(differences @ differences).sum(axis=(1, 2)).max())
    assert largest == pytest.approx(2.0, rel=1e-12)


def wishart_log_density(moved):
    """Of the difference at scale 1/2, at a 2 x 2 matrix, by quadrature; up to a constant.

    Matrices are (t + x, y; y, t - x), positive semi-definite where t is at least |(x, y)|: the
    integral over t is done by hand (docs/proofs/wishart-difference.md, the density of E).
    """
    t, x, y = np.trace(moved) / 2, (moved[0, 0] - moved[1, 1]) / 2, moved[0, 1]
    axis = np.linspace(-9, 9, 601)
    u, v = np.meshgrid(axis, axis)
    least = np.maximum(np.hypot(u, v), t + np.hypot(u - x, v - y))
    return 2 * t + math.log(np.exp(-4 * least).sum())


@pytest.mark.parametrize(
    "change",
    [np.diag([1.0, 0.0]), np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([[1, 1], [1, 0]]) / 3],
    ids=["a a", "a b", "a a b"],
)
def test_a_wishart_difference_loses_the_nuclear_norm(change):
    """And not the Frobenius norm, 0.71 of it for the document "a b"."""
    nuclear_norm = np.sum(np.abs(np.linalg.eigvalsh(change)))
    lost = []
    for at in (*np.random.default_rng().standard_normal((6, 2, 2)), 8 * change, -8 * change):
        at = (at + at.T) / 2
        lost.append(abs(wishart_log_density(at + change) - wishart_log_density(at)))
    assert 0.9 * nuclear_norm < max(lost) <= nuclear_norm * (1 + 1e-3)
