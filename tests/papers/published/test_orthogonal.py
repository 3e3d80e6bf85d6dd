"""AGN, AVN and capeAGN as published: their noise, their sensitivities, their figures, their gaps.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from eigenveil.errors import DataError, PrivacyError
from eigenveil.linalg.tensor import multilinear
from eigenveil.privacy.accountant import delta_of_mu
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers.published import data as tensor_data
from eigenveil_papers.published import orthogonal as otd
from eigenveil_papers.reproduction import paper001_tensor_panels
from eigenveil_papers.reproduction.paper001_tensor_panels import component_error
from matching_tools import matched
from statistics_tools import (
    FALSE_ALARM,
    REJECTED,
    gaussian_variance,
    kolmogorov,
    mutant,
    together,
    uncorrelated,
)

REFERENCE = Path(paper001_tensor_panels.__file__).with_name("authors.json")

SIZE, SITES, ROWS = 3, 4, 100
EPSILON, DELTA = 1.0, 0.01
RUNS = 1000
PAIR, TRIPLE = (
    np.triu_indices(SIZE),
    tuple(np.array([(i, j, k) for i in range(3) for j in range(i, 3) for k in range(j, 3)]).T),
)
SENSITIVITIES = otd.Sensitivities(1 / ROWS, 3 / ROWS)
# far above all noise, so that the noisy moment is positive and W tells it
EXACT = otd.Moments(5.0 * np.eye(SIZE), np.full((SIZE,) * 3, 0.25))


def tau(share, sensitivity, delta=DELTA):
    """The printed deviation for a share of epsilon and delta."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / (delta * share))) / (EPSILON * share)


# Noise


def noise_of(method, sites=SITES, runs=RUNS):
    """Noise of independent runs, entry by entry: of the pair (n, 6) and the triple (n, 10) moment.

    With as many components as features, W is invertible and the result tells both noisy moments.
    """
    rng = np.random.default_rng()
    given = [EXACT] * sites if sites else EXACT
    pairs, triples = [], []
    for _ in range(runs):
        result = method(given, SENSITIVITIES, SIZE, epsilon=EPSILON, delta=DELTA, rng=rng)
        back = np.linalg.inv(result.whitening)
        pair = back.T @ back - EXACT.pair
        triple = multilinear(result.cube, back) - EXACT.triple
        for noise in (pair, triple, triple.transpose(0, 2, 1)):
            np.testing.assert_allclose(noise, noise.swapaxes(0, 1), atol=1e-9)
        pairs.append(pair[PAIR])
        triples.append(triple[TRIPLE])
    return np.array(pairs), np.array(triples)


def law(made, variance_pair, variance_triple):
    """P-value of independent Gaussians of these variances on every unique entry."""
    pair, triple = made
    return together(
        gaussian_variance(pair, variance_pair),
        gaussian_variance(pair.ravel(), variance_pair),
        gaussian_variance(triple, variance_triple),
        gaussian_variance(triple.ravel(), variance_triple),
        uncorrelated(np.concatenate([pair, triple], axis=1)),
    )


POOLED = tau(0.5, 1 / ROWS) ** 2, tau(0.5, 3 / ROWS) ** 2
METHODS = {
    otd.agn: (0, 1),
    otd.local: (SITES, 1),
    otd.conv: (SITES, SITES),
    otd.capeagn: (SITES, SITES**2),
}


def law_of(method, original):
    sites, gain = METHODS[original]
    return law(noise_of(method, sites), *(variance / gain for variance in POOLED))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_every_unique_entry_has_the_published_noise(method):
    assert law_of(method, method) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        (otd.agn, "tau.pair", "1.3 * tau.pair"),
        (otd.agn, "tau.triple", "tau.pair"),
        (otd.conv, "tau.triple", "tau.pair"),
        (otd.conv, "tau.pair", "0.7 * tau.pair"),
        (otd.capeagn, "weighted_mean(pairs, of_pairs.weights)", "pairs.sent.mean(axis=0)"),
        (otd.capeagn, "[each.triple for each in own]", "[1.3 * each.triple for each in own]"),
    ],
)
def test_wrong_noise_is_rejected(method, old, new):
    assert law_of(mutant(method, old, new), method) < REJECTED


def vector_law(noise, sensitivity):
    """P-values of radius and coordinates of vectors, (runs, n), at half of epsilon."""
    n, radius = noise.shape[1], np.linalg.norm(noise, axis=1)
    share = np.square(noise) / np.square(radius)[:, None]
    return [
        kolmogorov(radius, stats.gamma(n, scale=sensitivity / (EPSILON / 2)).cdf),
        *(kolmogorov(one, stats.beta(0.5, (n - 1) / 2).cdf) for one in share.T),
    ]


def avn_law(method):
    """All of delta for the pair moment; radius and coordinates of the triple moment's vector."""
    pair, triple = noise_of(method, 0, 3 * RUNS)
    printed = SENSITIVITIES.pair * math.sqrt(2 * math.log(1.25 / DELTA)) / (EPSILON / 2)
    return together(
        gaussian_variance(pair.ravel(), printed**2),
        uncorrelated(pair),
        *vector_law(triple, SENSITIVITIES.triple),
    )


def pure_law(method):
    """Vector noise on both moments, none of it on the other."""
    pair, triple = noise_of(
        lambda *given, delta, **options: method(*given, delta=0.0, **options), 0, 3 * RUNS
    )
    laws = vector_law(pair, SENSITIVITIES.pair), vector_law(triple, SENSITIVITIES.triple)
    return together(*laws[0], *laws[1], uncorrelated(np.concatenate([pair, triple], axis=1)))


def test_avn_has_vector_noise_on_the_unique_entries():
    assert avn_law(otd.avn) > FALSE_ALARM
    assert pure_law(otd.avn) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon / 2, delta,", "epsilon / 2, delta / 2,"),
        ("unique_entries(size, 3), beta,", "unique_entries(size, 3), 1.3 * beta,"),
        ("vector_noise(unique_entries(size, 3), beta, rng)", "rng.normal(scale=10, size=10)"),
    ],
)
def test_wrong_vector_noise_is_rejected(old, new):
    assert avn_law(mutant(otd.avn, old, new)) < REJECTED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sensitivities.pair / (epsilon / 2)", "sensitivities.pair / epsilon"),
        ("vector_noise(entries, 1 / scale, rng)", "rng.laplace(scale=scale, size=entries)"),
    ],
)
def test_wrong_pure_noise_is_rejected(old, new):
    assert pure_law(mutant(otd.avn, old, new)) < REJECTED


@pytest.mark.parametrize(("size", "modes"), [(1, 3), (4, 2), (5, 3)])
def test_mirrored_entries_fill_a_symmetric_array(size, modes):
    count = otd.unique_entries(size, modes)
    full = otd.mirrored(np.arange(count), size, modes)
    assert full.shape == (size,) * modes
    assert np.array_equal(np.unique(full), np.arange(count))
    for axis in range(modes - 1):
        assert np.array_equal(full, full.swapaxes(axis, axis + 1))
    assert len({tuple(sorted(place)) for place in np.ndindex(full.shape)}) == count


# The messages of capeAGN


def test_messages_hide_and_their_mean_carries_the_pooled_noise():
    """A message without F carries tau^2; the mean of S of them tau^2/S^2: AGN on all rows."""
    rng = np.random.default_rng()
    views = {"pair": [], "triple": []}
    for _ in range(RUNS):
        result = otd.capeagn(
            [EXACT] * SITES, SENSITIVITIES, SIZE, epsilon=EPSILON, delta=DELTA, rng=rng
        )
        pairs, cubes, _, _ = result.transcript
        back = np.linalg.inv(result.whitening)
        seen = np.array([multilinear(cube, back) for cube in cubes.sent - cubes.known])
        views["pair"].append((pairs.sent - pairs.known - EXACT.pair)[(..., *PAIR)])
        views["triple"].append((seen - EXACT.triple)[(..., *TRIPLE)])
        np.testing.assert_allclose(result.cube, (cubes.sent - cubes.known).mean(axis=0))
    pooled = otd.published_deviations(
        otd.Sensitivities(SENSITIVITIES.pair / SITES, SENSITIVITIES.triple / SITES),
        epsilon=EPSILON,
        delta=DELTA,
    )
    for which, variance, of_all_rows in zip(views, POOLED, pooled, strict=True):
        noise = np.array(views[which])  # (runs, sites, entries)
        assert together(gaussian_variance(noise, variance)) > FALSE_ALARM
        assert together(gaussian_variance(noise.mean(axis=1), of_all_rows**2)) > FALSE_ALARM
        # messages share what cancels: without it they would be far from the pooled noise
        assert together(gaussian_variance(noise.mean(axis=1), variance / SITES)) < REJECTED


OF_SITE = [20, 30, 50]


def unequal_law(method):
    """Sites of 20, 30 and 50 rows: the noise of AGN on all, of each message what its site needs."""
    own = [otd.Sensitivities(1 / rows, 3 / rows) for rows in OF_SITE]
    sent = []

    def run(given, _, count, **options):
        result = method(given, own, count, **options)
        pairs, cubes = result.transcript[:2]
        np.testing.assert_allclose(np.tensordot(OF_SITE, pairs.helper, 1), 0, atol=1e-9)
        np.testing.assert_allclose(
            np.tensordot(np.divide(OF_SITE, ROWS), cubes.sent - cubes.known, 1), result.cube
        )
        sent.append((pairs.sent - pairs.known - EXACT.pair)[(..., *PAIR)])
        return result

    found = law(noise_of(run, len(OF_SITE)), *POOLED)
    needed = [tau(0.5, each.pair) ** 2 for each in own]
    return together(found, *map(gaussian_variance, np.moveaxis(sent, 1, 0), needed))


def test_capeagn_of_unequal_sites_has_the_noise_of_agn_on_all_rows():
    assert unequal_law(otd.capeagn) > FALSE_ALARM
    old, new = "[each.pair for each in own]", "[1.3 * each.pair for each in own]"
    assert unequal_law(mutant(otd.capeagn, old, new)) < REJECTED
    given = [otd.Sensitivities(1 / rows, 3 / rows) for rows in (*OF_SITE, 90)]
    options = {"epsilon": EPSILON, "delta": DELTA, "rng": np.random.default_rng()}
    with pytest.raises(PrivacyError) as caught:  # section 3.1 has no solution for four
        otd.capeagn([EXACT] * 4, given, 2, **options)
    assert caught.value.code == "cape-infeasible"


def test_the_local_baseline_sees_one_site():
    other = otd.Moments(-EXACT.pair, -EXACT.triple)
    result = otd.local(
        [other, EXACT],
        otd.Sensitivities(1e-9, 1e-9),
        SIZE,
        epsilon=EPSILON,
        delta=DELTA,
        rng=np.random.default_rng(),
    )
    np.testing.assert_allclose(result.cube, multilinear(EXACT.triple, result.whitening), atol=1e-6)


# Sensitivities and moments as printed


def test_the_sensitivities_are_those_printed():
    gaussian = otd.gaussian_sensitivities(1000, 50, 0.01)
    assert gaussian.pair == 1 / 1000
    assert gaussian.triple == pytest.approx((2 + 6 * 50 * 0.01) / 1000)
    topics = otd.topic_sensitivities(1000)
    assert topics.pair == topics.triple == pytest.approx(math.sqrt(2) / 1000)


def test_half_of_epsilon_and_delta_go_to_either_moment():
    found = otd.published_deviations(SENSITIVITIES, epsilon=3.0, delta=0.02)
    factor = math.sqrt(2 * math.log(1.25 / 0.01)) / 1.5
    assert found == pytest.approx((factor * SENSITIVITIES.pair, factor * SENSITIVITIES.triple))


@pytest.mark.parametrize("count", [1, 7, otd._BLOCK, otd._BLOCK + 3])
def test_moments_of_mixtures_are_the_printed_means(count):
    rng = np.random.default_rng()
    rows, _ = otd.scaled_by_largest(rng.normal(size=(count, 4)))
    variance = 0.03
    pair, triple = otd.gaussian_moments(rows, variance)
    np.testing.assert_allclose(pair, rows.T @ rows / count - variance * np.eye(4), atol=1e-12)
    expected = np.einsum("na,nb,nc->abc", rows, rows, rows) / count
    mean = rows.mean(axis=0)
    for unit in np.eye(4):
        for three in ([mean, unit, unit], [unit, mean, unit], [unit, unit, mean]):
            expected -= variance * np.einsum("a,b,c->abc", *three)
    np.testing.assert_allclose(triple, expected, atol=1e-12)


def test_moments_of_documents_count_words_in_their_order():
    words = np.array([[0, 1, 2], [0, 1, 2], [1, 0, 0], [2, 2, 2]])
    pair, triple = otd.topic_moments(words, 3)
    expected_pair, expected_triple = np.zeros((3, 3)), np.zeros((3, 3, 3))
    for first, second, third in np.eye(3)[words]:
        expected_pair += np.outer(first, second) / 4
        expected_triple += np.einsum("a,b,c->abc", first, second, third) / 4
    np.testing.assert_array_equal(pair, expected_pair)
    np.testing.assert_array_equal(triple, expected_triple)


def test_rows_are_divided_by_the_largest_norm_found():
    rows = np.random.default_rng().normal(size=(50, 3))
    scaled, largest = otd.scaled_by_largest(rows)
    assert np.linalg.norm(scaled, axis=1).max() == pytest.approx(1)
    np.testing.assert_allclose(scaled * largest, rows)
    # one row decides about all others: that is why it is not private
    other, _ = otd.scaled_by_largest(np.vstack([rows, [[1e3, 0, 0]]]))
    assert np.abs(other[:-1]).max() < 0.1


def test_the_authors_noise_variance_is_low():
    rows = np.random.default_rng().normal(size=(400, 50))
    assert 0 < otd.smallest_variance(rows) < 0.6
    assert otd.smallest_variance(np.ones((10, 3))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: otd.gaussian_moments([[2.0, 0.0]], 0.1), "norm is above 1"),
        (lambda: otd.scaled_by_largest([[0.0, 0.0]]), "divided by 0.0"),
        (lambda: otd.scaled_by_largest([[np.nan, 1.0]]), "of shape"),
        (lambda: otd.topic_moments([[0, 1]], 3), "not three words"),
        (lambda: otd.topic_moments([[0.5, 1.0, 2.0]], 3), "not three words"),
        (lambda: otd.topic_moments([[0, 1, 3]], 3), "from 0 to 2"),
        (lambda: otd.topic_moments([[0, -1, 2]], 3), "from 0 to 2"),
        (lambda: otd.whitening_of(np.diag([1.0, 0.0]), 2), "rank 1 has no 2 components"),
        (lambda: otd.whitening_of(np.eye(2), 0), "no 0 components"),
        (
            lambda: otd.components(np.eye(2), np.zeros((2, 2, 2)), 1, rng=np.random.default_rng()),
            "triple moment is zero",
        ),
    ],
)
def test_senseless_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()


# Recovery


def population(components, weights):
    return otd.Moments(
        np.einsum("k,ka,kb->ab", weights, components, components),
        np.einsum("k,ka,kb,kc->abc", weights, components, components, components),
    )


@pytest.mark.parametrize(("size", "count"), [(3, 1), (6, 3), (10, 5)])
def test_components_and_weights_come_back_without_noise(size, count):
    rng = np.random.default_rng()
    true = rng.normal(size=(count, size))  # not orthogonal: whitening makes them so
    weights = rng.dirichlet(np.full(count, 5.0))
    found = otd.components(*population(true, weights), count, rng=rng, restarts=20)
    order, _ = matched(found.vectors, true)
    np.testing.assert_allclose(found.vectors, true[order], atol=1e-4)
    np.testing.assert_allclose(found.weights, weights[order], rtol=1e-3)
    lengths = np.linalg.norm(true[order], axis=1)[:, None]
    np.testing.assert_allclose(found.directions, true[order] / lengths, atol=1e-4)
    assert found.converged


def test_topics_come_back_without_noise():
    topics = tensor_data.published_topics(12, 4, np.random.default_rng())
    moments = population(topics.distributions, topics.weights)
    found = otd.components(*moments, 4, rng=np.random.default_rng(), restarts=20)
    order, _ = matched(found.distributions, topics.distributions)
    np.testing.assert_allclose(found.distributions, topics.distributions[order], atol=1e-4)


def test_distributions_have_no_negative_entry_and_sum_to_one():
    vectors = np.array([[3.0, -1.0, 1.0], [-1.0, -2.0, -3.0]])
    made = otd.PublishedComponents(vectors, np.ones(2), True).distributions
    np.testing.assert_allclose(made, [[0.75, 0, 0.25], [1 / 3] * 3])


def test_a_negative_eigenvalue_counts_by_its_size_as_published():
    whitening = otd.whitening_of(np.diag([4.0, -9.0, 1.0]), 2)
    np.testing.assert_allclose(np.abs(whitening), [[0, 1 / 2], [1 / 3, 0], [0, 0]])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_small_noise_leaves_the_components(method):
    rng = np.random.default_rng()
    true = tensor_data.orthogonal_rows(3, 6, rng)
    moments = population(true, np.full(3, 1 / 3))
    given = [moments] * SITES if METHODS[method][0] else moments
    tiny = otd.Sensitivities(1e-9, 1e-9)
    result = method(given, tiny, 3, epsilon=1.0, delta=0.01, rng=rng)
    found = result.components(rng=rng, restarts=20)
    assert component_error(found.directions, true) < 1e-4


# What is claimed, and what is wrong with it


def test_the_result_says_that_it_is_as_published_and_not_certified():
    rng = np.random.default_rng()
    gaussian = otd.gaussian_sensitivities(ROWS, SIZE, 0.01)
    one = otd.agn(EXACT, gaussian, 2, epsilon=1.0, delta=0.01, rng=rng)
    many = otd.capeagn([EXACT] * 5, gaussian, 2, epsilon=5.0, delta=0.01, rng=rng)
    for result, epsilon in ((one, 1.0), (many, 5.0)):
        assert result.as_published
        assert not result.claim.certified
        assert (result.claim.epsilon, result.claim.delta) == (epsilon, 0.01)
        assert result.claim.adjacency == "replace-one"
        assert "NOT CERTIFIED" in str(result.claim)
        assert set(gaussian.caveats) < set(result.claim.caveats)
    assert otd.CLASSIC not in one.claim.caveats
    assert otd.CLASSIC in many.claim.caveats
    assert any("1.29 times" in caveat for caveat in many.claim.caveats)
    topics = otd.topic_sensitivities(ROWS)
    assert (
        otd.ANTISYMMETRIC in otd.avn(EXACT, topics, 2, epsilon=1, delta=0.1, rng=rng).claim.caveats
    )


def distance(one, other):
    """Of two moments, in the coordinates that get the noise: each unique entry once."""
    return np.linalg.norm((one.pair - other.pair)[PAIR])


def test_the_pair_moment_moves_further_than_its_published_sensitivity():
    """Neighbours sqrt(2)/N apart, and what that does to the claims of the paper's own figures."""
    rows = np.tile([[1.0, 0.0, 0.0]], (ROWS, 1))
    changed = rows.copy()
    changed[0] = [0.0, 1.0, 0.0]
    printed = otd.gaussian_sensitivities(ROWS, SIZE, 0.05)
    moved = distance(otd.gaussian_moments(rows, 0.05), otd.gaussian_moments(changed, 0.05))
    assert moved == pytest.approx(math.sqrt(2) * printed.pair)
    # epsilon = 5, delta = 0.01: half of it is claimed for the pair moment, 0.0105 is the truth
    mu = moved / otd.published_deviations(printed, epsilon=5.0, delta=0.01).pair
    assert delta_of_mu(mu, 2.5) > 2 * 0.005
    # against the aggregator of capeAGN with 5 sites it fails from epsilon = 1.1 on
    mu = moved / otd.published_deviations(printed, epsilon=1.1, delta=0.01).pair
    assert delta_of_mu(mu, 0.55) < 0.005
    assert delta_of_mu(published_cape_mu(5, claimed_mu=mu), 0.55) > 0.005


def test_the_classic_calibration_fails_for_large_epsilon():
    """Even where the sensitivity is right: a step's (10, 0.005) is really (10, 0.019)."""
    deviation = otd.published_deviations(SENSITIVITIES, epsilon=20.0, delta=0.01).pair
    assert delta_of_mu(SENSITIVITIES.pair / deviation, 10.0) > 3 * 0.005


def test_the_triple_moment_moves_less_than_published():
    """The bound 2/N + 6 D s2/N is too large: it holds, and is paid for with noise."""
    rng = np.random.default_rng()
    variance, found = 0.05, 0.0
    for _ in range(200):
        rows = np.zeros((2, 1, SIZE))
        rows[:] = rng.normal(size=(2, 1, SIZE))
        rows /= np.linalg.norm(rows, axis=2, keepdims=True) / rng.uniform(0.5, 1, size=(2, 1, 1))
        one, other = (otd.gaussian_moments(row, variance).triple for row in rows)
        found = max(found, float(np.linalg.norm(one - other)))
    assert found < 0.85 * otd.gaussian_sensitivities(1, SIZE, variance).triple


def test_the_noise_on_documents_leaves_their_antisymmetric_part_exact():
    """Whoever sees capeAGN's messages, or merely its result, knows who put which word first."""
    rng = np.random.default_rng()
    words = np.tile([[0, 1, 2]], (ROWS, 1))
    changed = words.copy()
    changed[0] = [1, 0, 2]
    moved = []
    for documents in (words, changed):
        moments = otd.topic_moments(documents, SIZE)
        result = otd.capeagn(
            [moments] * 2, otd.topic_sensitivities(ROWS), 2, epsilon=0.1, delta=0.01, rng=rng
        )
        pairs = result.transcript.pairs
        seen = (pairs.sent - pairs.known).mean(axis=0)
        np.testing.assert_allclose(seen - seen.T, moments.pair - moments.pair.T, atol=1e-12)
        moved.append((seen - seen.T)[0, 1])
        # and of the result: given W, the same of the cube
        exact = multilinear(moments.triple, result.whitening)
        np.testing.assert_allclose(
            result.cube - result.cube.swapaxes(0, 1), exact - exact.swapaxes(0, 1), atol=1e-9
        )
    assert moved[0] - moved[1] == pytest.approx(2 / ROWS)


# The experiments


def test_the_published_models():
    rng = np.random.default_rng()
    mixture = tensor_data.published_mixture(10, 5, rng)
    np.testing.assert_allclose(mixture.means @ mixture.means.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(mixture.weights, np.array([1, 13.25, 25.5, 37.75, 50]) / 127.5)
    assert mixture.noise_variance == 0.05
    topics = tensor_data.published_topics(10, 5, rng)
    assert topics.distributions.min() == 0
    np.testing.assert_allclose(topics.distributions.sum(axis=1), 1)


def test_rows_and_documents_follow_their_model():
    rng = np.random.default_rng()
    mixture = tensor_data.MixtureLaw(np.array([[3.0, 0, 0], [0, 0, -3.0]]), np.array([0.2, 0.8]))
    rows = mixture.rows(20_000, rng)
    first = rows[:, 0] > 1.5  # 6.7 deviations from either mean: one in 1e7 is misplaced
    assert stats.binomtest(int(first.sum()), 20_000, 0.2).pvalue > FALSE_ALARM
    around = rows - np.where(first[:, None], mixture.means[0], mixture.means[1])
    assert together(gaussian_variance(around, 0.05), uncorrelated(around)) > FALSE_ALARM
    topics = tensor_data.Topics(np.array([[0.5, 0.5, 0], [0, 0, 1.0]]), np.array([0.3, 0.7]))
    words = topics.documents(20_000, rng)
    second = words[:, 0] == 2
    assert np.all((words[second] == 2).all(axis=1))
    assert np.all(words[~second] < 2)
    assert stats.binomtest(int(second.sum()), 20_000, 0.7).pvalue > FALSE_ALARM
    ones = int((words[~second] == 1).sum())
    assert stats.binomtest(ones, 3 * int((~second).sum()), 0.5).pvalue > FALSE_ALARM


def test_the_authors_sites_repeat_their_rows():
    rng = np.random.default_rng()
    mixture = tensor_data.published_mixture(4, 2, rng)
    same, sensitivities = tensor_data.repeated_sites(mixture, 500, rng)
    assert len(same) == 5
    assert sensitivities.pair == 1 / 100
    np.testing.assert_array_equal(same[0].triple, same[4].triple)
    drawn = [site.pair for site in paper001_tensor_panels._mixture(rng, 4, 2, 500).sites]
    assert not np.array_equal(drawn[0], drawn[1])


def published(figure, curve, value):
    content = json.loads(REFERENCE.read_text())["component_error"][figure]
    return content[curve][content["values"].index(value)]


def median_errors(data, count, epsilons, runs, method=otd.capeagn):
    """Median error of independent runs, each with data, noise and starts of its own."""
    rng = np.random.default_rng()
    errors = []
    for _ in range(runs):
        sites, sensitivities, true, name = data(rng)
        results = [
            method(sites, sensitivities, count, epsilon=epsilon, delta=0.01, rng=rng)
            for epsilon in epsilons
        ]
        errors.append(
            [component_error(getattr(result.components(rng=rng), name), true) for result in results]
        )
    return np.median(errors, axis=0)


def mixture_data(rng):
    mixture = tensor_data.published_mixture(10, 5, rng)
    made = tensor_data.repeated_sites(mixture, 100_000, rng)
    return *made, mixture.means, "directions"


def topic_data(rng):
    topics = tensor_data.published_topics(50, 10, rng)
    sites = [otd.topic_moments(topics.documents(20_000, rng), 50) for _ in range(5)]
    return sites, otd.topic_sensitivities(20_000), topics.distributions, "distributions"


@pytest.mark.parametrize(
    ("figure", "data", "count", "epsilons", "runs"),
    [
        ("MOG_vs_epsilon_K_5_D_10_N_100k", mixture_data, 5, (0.5, 5.0, 10.0), 60),
        ("STM_vs_epsilon_K_10_D_50_N_100k", topic_data, 10, (1.0, 5.0, 10.0), 20),
    ],
    ids=["mixture", "topics"],
)
def test_capeagn_reproduces_the_published_curve_within_a_factor_of_two(
    figure, data, count, epsilons, runs
):
    """The median of our runs against the authors' mean of ten runs on a single data set.

    A factor of 2, because that one data set is not ours: over data sets, errors of the mixture at
    epsilon = 0.5 range from 0.55 to 2.4 times their median (5% and 95%). Of 1500 runs 9% were
    beyond the factor; a median beyond it takes half of them: a chance below 1e-10.
    """
    ours = median_errors(data, count, epsilons, runs)
    theirs = np.array([published(figure, "capeAGN", epsilon) for epsilon in epsilons])
    assert np.all(ours < 2 * theirs), (ours, theirs)
    assert np.all(ours > theirs / 2), (ours, theirs)


def test_the_published_mixtures_had_one_sites_rows_only():
    """Non-private errors of N rows are 2.4 times below the published ones; of N/5 rows they fit.

    So the authors' sites all held the same rows, as their generator makes them. Means over three N
    of the logarithm of published over ours, the median of five data sets: 0.88 and -0.11, each
    with a standard deviation of 0.065, so that each limit is more than six of them away.
    """
    content = json.loads(REFERENCE.read_text())["component_error"]["MOG_vs_samples_K_5_D_10_eps_2"]
    rng = np.random.default_rng()
    ratios = {False: [], True: []}
    for rows, theirs in zip(content["values"][:3], content["nonprivate"][:3], strict=True):
        for repeated, found in ratios.items():
            errors = []
            for _ in range(5):
                if repeated:
                    mixture = tensor_data.published_mixture(10, 5, rng)
                    sites, means = (
                        tensor_data.repeated_sites(mixture, int(rows), rng)[0],
                        mixture.means,
                    )
                else:
                    problem = paper001_tensor_panels._mixture(rng, 10, 5, int(rows))
                    sites, means = problem.sites, problem.true
                pair, triple = (np.mean(one, axis=0) for one in zip(*sites, strict=True))
                made = otd.components(pair, triple, 5, rng=rng, restarts=20)
                errors.append(component_error(made.directions, means))
            found.append(math.log(theirs / np.median(errors)))
    assert abs(np.mean(ratios[True])) < math.log(1.75)
    assert np.mean(ratios[False]) > math.log(1.6)
