"""What each adversary sees: closed forms against the joint law of everything it sees.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math
from collections import Counter
from fractions import Fraction
from itertools import chain, combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from releases_tools import release
from scipy.optimize import brentq

from eigenveil.audit import mu_lower_bound
from eigenveil.errors import PrivacyError
from eigenveil.federation.secagg.consistency import neighbours as neighbours_of
from eigenveil.privacy import epsilon_of_mu, mask_views, views
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.mask_views import MASK_RATIO, MASK_VIEWS
from eigenveil.privacy.views import (
    Federation,
    cape_mu,
    guarantees,
    mu_of_view,
    pairwise_covariance,
    published_cape_mu,
    worst,
    zero_sum_covariance,
)
from eigenveil_papers.published.cape_pca import cape_messages, equal_plan
from statistics_tools import FALSE_ALARM

DELTA = 1e-6


def exposure(kind, **stated):
    return MASK_VIEWS[kind].exposure(**stated)


def mask_draws(kind, **stated):
    return MASK_VIEWS[kind].draws(**stated)


# Brute force: the joint covariance of all an adversary sees, from independent sources


def joint_mu(to_masks, variance, *, noise_variance, known, colluding, missing=()):
    """Exact mu of site 0: one row a thing seen, one column an independent source of chance.

    ``to_masks`` (S, sources) makes the sites' masks. Beside the messages the adversary knows the
    combinations ``known`` (n, sources) of the same sources, and the noise of colluding sites.
    """
    masks = np.array(to_masks, dtype=object)
    sites, sources = masks.shape
    own = np.eye(sites, dtype=int).astype(object)
    sent = [s for s in range(sites) if s not in missing]
    seen = np.zeros((len(sent) + len(colluding) + len(known), sources + sites), dtype=object)
    messages, noises, rest = np.split(seen, np.cumsum([len(sent), len(colluding)]))
    messages[:, :sources], messages[:, sources:] = masks[sent], own[sent]
    noises[:, sources:] = own[list(colluding)]
    if len(known):
        rest[:, :sources] = known
    variances = [Fraction(variance)] * sources + [Fraction(noise_variance)] * sites
    shift = [1] + [0] * (len(seen) - 1)  # the first thing seen is the message of site 0
    return mu_of_view((seen * np.array(variances)) @ seen.T, shift)


def ring(sites, reach):
    """Adjacency of the circulant graph."""
    apart = np.abs(np.subtract.outer(np.arange(sites), np.arange(sites)))
    return (np.minimum(apart, sites - apart) <= reach) & (apart > 0)


def edge_sources(adjacency):
    """One column a pair of neighbours: plus one at one end, minus one at the other."""
    pairs = [(i, j) for i, j in zip(*np.nonzero(adjacency), strict=True) if i < j]
    to_masks = np.zeros((len(adjacency), len(pairs)), dtype=int)
    for column, (i, j) in enumerate(pairs):
        to_masks[i, column], to_masks[j, column] = 1, -1
    return to_masks, pairs


def helper_sources(sites):
    return [
        [Fraction(int(i == j)) - Fraction(1, sites) for j in range(sites)] for i in range(sites)
    ]


def sets_of_others(sites):
    """Every set of sites without site 0."""
    others = range(1, sites)
    return chain.from_iterable(combinations(others, size) for size in range(sites))


def pairwise_mu(adjacency, variance, *, noise_variance, colluding, missing=()):
    """Of site 0, by brute force; missing sites are those whose keys become known."""
    to_masks, pairs = edge_sources(adjacency)
    open_to = {*colluding, *missing}
    known = np.eye(len(pairs), dtype=int)[[bool(open_to & set(pair)) for pair in pairs]]
    return joint_mu(
        to_masks,
        variance,
        noise_variance=noise_variance,
        known=known,
        colluding=colluding,
        missing=missing,
    )


def helper_mu(sites, variance, *, noise_variance, colluding, missing=()):
    to_masks = helper_sources(sites)
    return joint_mu(
        to_masks,
        variance,
        noise_variance=noise_variance,
        known=[to_masks[s] for s in (*colluding, *missing)],
        colluding=colluding,
        missing=missing,
    )


@pytest.mark.parametrize("sites", [1, 2, 3, 5])
@pytest.mark.parametrize("variance", [0.25, 3.0, 1e12])
def test_the_helpers_masks_leave_the_closed_form_whoever_colludes(sites, variance):
    for others in sets_of_others(sites):
        exact = cape_mu(sites - len(others), noise_variance=2.0, mask_variance=variance)
        for colluding in range(len(others) + 1):  # the rest is missing
            found = helper_mu(
                sites,
                variance,
                noise_variance=2.0,
                colluding=others[:colluding],
                missing=others[colluding:],
            )
            assert found == pytest.approx(exact, rel=1e-12)


def without(adjacency, others):
    stay = [i for i in range(len(adjacency)) if i not in others]
    return adjacency[np.ix_(stay, stay)]


@pytest.mark.parametrize(("sites", "reach"), [(2, 1), (4, 2), (5, 2), (6, 1), (6, 2)])
@pytest.mark.parametrize("variance", [0.5, 1e12])
def test_pairwise_masks_leave_the_graph_of_the_honest_sites(sites, reach, variance):
    """Conditioning on all that colluders know is taking their nodes out of the graph."""
    for others in sets_of_others(sites):
        honest = without(ring(sites, reach), others)
        exact = mu_of_view(
            pairwise_covariance(honest, variance), np.eye(len(honest))[0], own_variance=2.0
        )
        half = len(others) // 2
        found = pairwise_mu(
            ring(sites, reach),
            variance,
            noise_variance=2.0,
            colluding=others[:half],
            missing=others[half:],
        )
        assert found == pytest.approx(exact, rel=1e-12)


@pytest.fixture(params=[0.5, 3.0, MASK_RATIO])
def ratio(request, monkeypatch):
    """Also small masks, against which bounds that are loose would show."""
    monkeypatch.setattr(mask_views, "MASK_RATIO", request.param)
    return request.param


def relative(mu, honest):
    """Exposure of a view with own noise of variance one."""
    return mu * math.sqrt(honest)


@pytest.mark.parametrize("sites", range(1, 8))
def test_exposure_is_exact_for_the_helper_and_for_all_pairs(ratio, sites):
    complete = ~np.eye(sites, dtype=bool)
    for honest in range(1, sites + 1):
        stated = {"honest": honest, "taking_part": sites, "neighbours": None}
        others = tuple(range(honest, sites))
        helper = helper_mu(sites, ratio**2, noise_variance=1, colluding=others)
        assert exposure("helper", **stated) == pytest.approx(relative(helper, honest), rel=1e-12)
        pairs = mu_of_view(
            pairwise_covariance(without(complete, others), ratio**2),
            np.eye(honest)[0],
            own_variance=1,
        )
        assert exposure("pairwise", **stated) == pytest.approx(relative(pairs, honest), rel=1e-12)


@pytest.mark.parametrize(("sites", "neighbours"), [(5, 2), (6, 2), (6, 3), (7, 2), (7, 4), (7, 6)])
def test_exposure_is_a_bound_whichever_sites_collude(ratio, sites, neighbours):
    """Every set of colluders on every ring that could have been made; site 0 is any site."""
    for nodes in range(1, sites + 1):
        adjacency = ring(nodes, (neighbours + 1) // 2)
        for others in sets_of_others(nodes):
            honest = without(adjacency, others)
            mu = mu_of_view(
                pairwise_covariance(honest, ratio**2), np.eye(len(honest))[0], own_variance=1
            )
            stated = {"taking_part": sites, "neighbours": neighbours}
            bound = exposure("pairwise", honest=len(honest), **stated)
            assert relative(mu, len(honest)) <= bound * (1 + 1e-12)


@given(st.integers(2, 40), st.integers(1, 12), st.data())
def test_connectivity_falls_no_further_than_stated(nodes, reach, data):
    """Fiedler's bounds, for sets of nodes far larger than can be tried one by one."""
    removed = data.draw(st.sets(st.integers(0, nodes - 1), max_size=nodes - 2))
    honest = without(ring(nodes, reach), removed).astype(float)
    eigenvalues = np.linalg.eigvalsh(np.diag(honest.sum(axis=1)) - honest)
    assert mask_views._connectivity_left(nodes, len(removed), reach) <= eigenvalues[1] + 1e-9


@pytest.mark.parametrize("reach", [1, 2, 3, 7])
def test_connectivity_of_the_whole_ring_is_its_second_eigenvalue(reach):
    for nodes in range(3, 30):
        whole = ring(nodes, reach).astype(float)
        second = np.linalg.eigvalsh(np.diag(whole.sum(axis=1)) - whole)[1]
        assert mask_views._connectivity_left(nodes, 0, reach) == pytest.approx(second, abs=1e-8), (
            nodes
        )


@pytest.mark.parametrize("degree", range(1, 9))
def test_the_graph_that_sites_use_is_the_ring_of_the_proof(degree):
    for count in range(2, 14):
        members = [f"site {i:02d}" for i in range(count)]
        used = [[b in neighbours_of(a, members, degree) for b in members] for a in members]
        np.testing.assert_array_equal(used, ring(count, (degree + 1) // 2), f"{count} sites")


def test_a_site_whose_neighbours_collude_stands_alone():
    for kind in ("modular", "pairwise"):
        assert exposure(kind, honest=5, taking_part=9, neighbours=4) == pytest.approx(math.sqrt(5))
        assert exposure(kind, honest=6, taking_part=9, neighbours=4) < 1.00001
    assert exposure("modular", honest=6, taking_part=9, neighbours=4) == 1.0


def test_modular_masks_show_the_sum_of_each_connected_part_and_nothing_else():
    """Exhaustively modulo 5: four sites, the last of which has no neighbour left."""
    to_masks, _ = edge_sources(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0] * 4]))

    def law(statistics):
        masks = product(range(5), repeat=to_masks.shape[1])
        return Counter(tuple((statistics + to_masks @ np.array(u)) % 5) for u in masks)

    assert law([1, 2, 3, 4]) == law([4, 1, 1, 4])
    assert law([1, 2, 3, 4]) != law([2, 2, 3, 4])
    assert not set(law([1, 2, 3, 4])) & set(law([1, 2, 2, 0]))


@given(st.integers(1, 60), st.sampled_from(["none", "modular"]))
def test_uniform_masks_among_all_sites_cost_nothing(honest, kind):
    assert exposure(kind, honest=honest, taking_part=honest + 3) == 1.0


kinds = st.sampled_from(["modular", "pairwise", "helper"])
degrees = st.none() | st.integers(1, 30)


@given(kinds, st.integers(2, 40), degrees)
def test_more_honest_sites_never_cost(kind, sites, neighbours):
    lengths = [
        exposure(kind, honest=h, taking_part=sites, neighbours=neighbours) / math.sqrt(h)
        for h in range(1, sites + 1)
    ]
    assert all(few >= more * (1 - 1e-15) for few, more in pairwise(lengths))
    assert lengths[0] == 1.0


@given(kinds, st.integers(1, 30), st.integers(0, 10), degrees)
def test_exposure_is_at_least_one_and_at_most_that_of_a_message_alone(
    kind, honest, others, neighbours
):
    found = exposure(kind, honest=honest, taking_part=honest + others, neighbours=neighbours)
    assert 1.0 <= found <= math.sqrt(honest) * (1 + 1e-15)
    fewer = exposure(kind, honest=honest, taking_part=honest, neighbours=neighbours)
    assert fewer <= found  # sites that are missing only take masks away


# Mahalanobis lengths


variances = st.floats(1e-3, 1e3)


@given(st.integers(1, 10), variances, variances | st.sampled_from([1e12, 1e15, 1e30]))
def test_cape_is_a_mahalanobis_length(honest, noise, mask):
    """Also with enormous masks, which cost no digit."""
    exact = mu_of_view(zero_sum_covariance(honest, mask), np.eye(honest)[0], own_variance=noise)
    closed = cape_mu(honest, noise_variance=noise, mask_variance=mask)
    assert closed == pytest.approx(exact, rel=1e-14)


def test_scales_that_differ_cost_no_digit():
    shift = np.array([3e-8, 4e8])
    assert mu_of_view(np.diag([1e-16, 1e16]), shift) == pytest.approx(5.0, rel=1e-15)


def test_neighbours_that_noise_cannot_hide_are_told_apart():
    assert mu_of_view(zero_sum_covariance(3, 7.1), [1, 0, 0]) == math.inf
    assert mu_of_view(np.zeros((2, 2)), [0, 1]) == math.inf
    assert mu_of_view(np.zeros((2, 2)), [0, 0]) == 0.0
    # within the range of a singular covariance the length is finite
    assert mu_of_view(zero_sum_covariance(3, 2.0), [1, -1, 0]) == pytest.approx(1.0)
    path = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert mu_of_view(pairwise_covariance(path, 1.0), [0, 0, 0, 1]) == math.inf


matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=n, max_size=n
    ).map(np.array)
)


@given(matrices, st.data())
def test_a_shift_in_the_range_has_the_length_of_its_shortest_source(factor, data):
    sources = data.draw(st.lists(st.integers(-9, 9), min_size=len(factor), max_size=len(factor)))
    shift = factor @ np.array(sources)
    shortest = np.linalg.pinv(factor.astype(float)) @ shift
    found = mu_of_view(factor @ factor.T, shift)
    assert found == pytest.approx(float(np.linalg.norm(shortest)), rel=1e-6, abs=1e-9)


@given(matrices, st.randoms(), variances)
def test_the_order_of_the_sites_does_not_matter(factor, random, own):
    places = list(range(len(factor)))
    random.shuffle(places)
    covariance, shift = factor @ factor.T, factor[:, 0] + 1
    one = mu_of_view(covariance, shift, own_variance=own)
    assert one == mu_of_view(covariance[np.ix_(places, places)], shift[places], own_variance=own)


@given(matrices, variances, st.floats(1.0, 10.0))
def test_more_noise_or_larger_masks_never_cost(factor, own, more):
    covariance, shift = factor @ factor.T, factor[:, 0] + 1
    mu = mu_of_view(covariance, shift, own_variance=own)
    assert mu_of_view(covariance, shift, own_variance=own * more) <= mu
    assert mu_of_view(100 * covariance, shift, own_variance=own) <= mu
    assert mu_of_view(covariance + np.ones_like(covariance), shift, own_variance=own) <= mu


@given(st.integers(1, 20), variances, variances, st.floats(1.0, 1e6))
def test_larger_masks_and_more_honest_sites_never_cost_in_cape(honest, noise, mask, more):
    mu = cape_mu(honest, noise_variance=noise, mask_variance=mask) * (1 + 1e-15)
    assert cape_mu(honest, noise_variance=noise, mask_variance=mask * more) <= mu
    assert cape_mu(honest + 1, noise_variance=noise, mask_variance=mask) <= mu


@pytest.mark.parametrize(
    ("covariance", "shift", "why"),
    [
        ([[1.0, 0.0]], [1.0], "shape"),
        ([[1.0, 0.0], [0.5, 1.0]], [1.0, 0.0], "not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], [1.0, 0.0], "semi-definite"),
        ([[0.0, 1.0], [1.0, 0.0]], [0.0, 0.0], "semi-definite"),
        ([[math.nan]], [1.0], "NaN"),
    ],
)
def test_what_is_no_covariance_is_refused(covariance, shift, why):
    with pytest.raises(ValueError, match=why):
        mu_of_view(covariance, shift)


# CAPE as published and calibrated soundly


def test_published_cape_is_short_by_the_stated_factor():
    for sites in (2, 3, 10, 1000):
        factor = math.sqrt(2 * sites / (sites + 1))
        assert published_cape_mu(sites, claimed_mu=0.3) == pytest.approx(0.3 * factor, rel=1e-14)
    assert published_cape_mu(10, colluding=8, claimed_mu=1) == pytest.approx(2.3, abs=0.05)
    with pytest.raises(ValueError, match="none is left"):
        published_cape_mu(10, colluding=10, claimed_mu=1)


@given(st.integers(2, 7), st.data())
def test_published_cape_is_what_its_messages_show(sites, data):
    colluding = data.draw(st.integers(0, sites - 1))
    seen = helper_mu(
        sites, 1, noise_variance=Fraction(1, sites), colluding=range(sites - colluding, sites)
    )
    found = published_cape_mu(sites, colluding=colluding, claimed_mu=1.0)
    assert found == pytest.approx(seen, rel=1e-12)


RUNS = 100_000


def attack(make, covariance):
    """Lower bound on mu by the likelihood ratio of what the aggregator sees of site 0."""
    sites = len(covariance)
    direction = np.linalg.solve(covariance, np.eye(sites)[0])
    without_row, with_row = np.zeros((sites, RUNS)), np.zeros((sites, RUNS))
    with_row[0] = 1.0
    outputs = [direction @ make(rows) for rows in (without_row, with_row)]
    return mu_lower_bound(*outputs, false_alarm=FALSE_ALARM)


def published(sites, tau):
    def make(rows):
        made = cape_messages(rows, equal_plan(sites, tau), np.random.default_rng())
        return made.sent - made.known

    return make, tau**2 / sites


def sound(sites, tau):
    def excess(own):
        return cape_mu(sites, noise_variance=own**2, mask_variance=tau**2) - 1.0 / tau

    gamma = brentq(excess, 1e-3, 10.0)

    def make(rows):
        rng = np.random.default_rng()
        masks = rng.normal(scale=tau, size=rows.shape)
        return rows + masks - masks.mean(axis=0) + rng.normal(scale=gamma, size=rows.shape)

    return make, gamma**2


@pytest.mark.parametrize(("cape", "keeps"), [(published, False), (sound, True)])
def test_messages_give_more_away_than_claimed_unless_they_are_calibrated_soundly(cape, keeps):
    """The bound is wrong with chance 1e-8; it misses the claim by ten of its deviations."""
    sites, tau = 10, 1.0
    make, noise = cape(sites, tau)
    covariance = zero_sum_covariance(sites, tau**2).astype(float) + noise * np.eye(sites)
    low, high = (0.8, 1.0) if keeps else (1.0, published_cape_mu(sites, claimed_mu=1.0 / tau))
    assert low < attack(make, covariance) <= high


# Guarantees of a study


def study(**changes):
    stated = {"protocol": "cape", "masks": "modular", "sites": 6, "collusion": 2, "dropouts": 1}
    stated |= changes
    return Federation(**{"taking_part": stated["sites"]} | stated)


def shared(federation, mu=0.5, *, weight=1.0, name="moment", **changes):
    """A masked Gaussian release with which the weakest honest sites meet ``mu``."""
    sharing = federation.sharing()
    record = release("gaussian", mu / sharing.exposure, name=name)
    noise = record.noise.model_copy(
        update={"noise_parts": sharing.noise_parts, "masks": sharing.masks}
    )
    fields = {"noise": noise, "exposure": sharing.exposure, "weight": weight}
    return record.model_copy(update=fields | changes)


def moment(mu=0.5):
    """A second moment that one site releases by itself."""
    return release("gaussian", mu).model_copy(update={"statistic": "second-moment"})


def found_mus(records, federation):
    found = guarantees(records, federation, delta=DELTA, adjacency="add-remove")
    return {name: guarantee.mu for name, guarantee in found.items()}


WORDS = {
    "outsider": "anyone who sees the released result",
    "site": "another site of the study, which sees the result and knows its own noise",
    "aggregator": "the aggregator, who sees every message and follows the protocol",
    "aggregator with 2 sites": "the aggregator together with 2 sites, ",
    "aggregator with 1 sites": "the aggregator together with 1 site, ",
    "helper": "the noise helper, who knows every mask and sees the result",
    "helper with 2 sites": "the noise helper together with 2 sites, ",
}
ONE_SITE = {"sites": 1, "collusion": 0, "dropouts": 0, "masks": "none", "protocol": "local"}


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        (
            {"masks": "helper"},
            ["outsider", "site", "aggregator", "aggregator with 2 sites", "helper with 2 sites"],
        ),
        ({"masks": "helper", "collusion": 0}, ["outsider", "site", "aggregator", "helper"]),
        ({"collusion": 1}, ["outsider", "site", "aggregator", "aggregator with 1 sites"]),
        (ONE_SITE, ["outsider", "aggregator"]),
    ],
)
def test_every_adversary_has_its_guarantee_and_its_sentence(changes, seen):
    federation = study(**changes)
    found = guarantees([shared(federation)], federation, delta=DELTA, adjacency="add-remove")
    assert list(found) == seen
    for name, guarantee in found.items():
        assert guarantee.view == name
        assert f"against {WORDS[name]}" in str(guarantee)


def test_views_of_modular_masks_hold_the_shares_that_were_drawn():
    federation = study(taking_part=5)  # of six, two of which may collude: three shares are sure
    weight = 0.25
    gamma = shared(federation).noise.scale / math.sqrt(3)
    delta_2 = shared(federation).sensitivity()
    mus = found_mus([shared(federation, weight=weight)], federation)
    noise_parts = {"outsider": 5, "site": 4, "aggregator": 5, "aggregator with 2 sites": 3}
    for name, count in noise_parts.items():
        assert mus[name] == pytest.approx(weight * delta_2 / (gamma * math.sqrt(count)), rel=1e-12)


def test_without_colluders_modular_masks_give_pooled_noise_exactly():
    federation = study(collusion=0, dropouts=0)
    pooled = release("gaussian", 0.5)
    found = guarantees([shared(federation)], federation, delta=DELTA, adjacency="add-remove")
    assert shared(federation).noise.scale == pooled.noise.scale
    assert found["aggregator"].mu == pooled.mu()
    assert found["outsider"].mu == pooled.mu()
    # a curious site knows one of the six shares
    assert found["site"].mu == pytest.approx(pooled.mu() * math.sqrt(6 / 5), rel=1e-12)


@pytest.mark.parametrize("kind", ["pairwise", "helper"])
def test_gaussian_masks_show_messages_to_the_aggregator_alone(kind, ratio):
    federation = study(masks=kind, taking_part=5)
    record = shared(federation, mu=0.5)
    mus = found_mus([record], federation)
    gamma, moved = record.noise.scale / math.sqrt(3), record.sensitivity()
    for name, honest in (("aggregator", 5), ("aggregator with 2 sites", 3)):
        stated = exposure(kind, honest=honest, taking_part=6)
        assert stated > 1
        exact = stated * moved / (gamma * math.sqrt(honest))
        assert mus[name] == pytest.approx(exact, rel=1e-12)
    assert mus["aggregator with 2 sites"] == pytest.approx(0.5, rel=1e-12)
    assert mus["outsider"] == pytest.approx(moved / (gamma * math.sqrt(5)), rel=1e-12)
    assert mus["site"] == pytest.approx(moved / (gamma * math.sqrt(4)), rel=1e-12)
    if kind == "helper":
        assert mus["helper with 2 sites"] == pytest.approx(moved / (gamma * math.sqrt(3)), rel=1e-9)


@st.composite
def federations(draw):
    sites = draw(st.integers(1, 12))
    collusion = draw(st.integers(0, sites - 1))
    dropouts = draw(st.integers(0, sites - 1 - collusion))
    return Federation(
        protocol=draw(st.sampled_from(["cape", "sketch"])),
        masks=draw(kinds),
        sites=sites,
        taking_part=draw(st.integers(sites - dropouts, sites)),
        collusion=collusion,
        dropouts=dropouts,
        neighbours=draw(st.none() | st.integers(1, 12)),
    )


@given(federations(), st.floats(0.05, 2.0), st.sampled_from([1.0, 0.5, 0.125]))
def test_no_view_costs_more_than_the_one_that_noise_was_made_for(federation, mu, weight):
    """But for a curious site where no collusion is tolerated: it knows a share that was counted."""
    records = [shared(federation, mu, weight=weight), shared(federation, mu)]
    mus = found_mus(records, federation)
    requested = math.hypot(*(record.mu() for record in records))
    sure = federation.taking_part > federation.honest or federation.honest == 1
    for name, found in mus.items():
        if name != "site" or sure:
            assert found <= requested * (1 + 1e-12)
    assert mus["outsider"] <= mus["site" if federation.sites > 1 else "outsider"] * (1 + 1e-12)
    assert mus["outsider"] <= mus["aggregator"] * (1 + 1e-12)
    if federation.collusion:
        colluding = f"aggregator with {federation.collusion} sites"
        assert mus["aggregator"] <= mus[colluding] * (1 + 1e-12)
        if federation.taking_part == federation.sites - federation.dropouts:
            assert mus[colluding] == pytest.approx(requested, rel=1e-12)


def test_epsilon_follows_from_mu_and_the_worst_is_found():
    federation = study()
    found = guarantees(
        [shared(federation)],
        federation,
        delta=DELTA,
        adjacency="add-remove",
        caveats=["said"],
        reasons_not_certified=["seeded"],
    )
    for guarantee in found.values():
        assert guarantee.epsilon == pytest.approx(epsilon_of_mu(guarantee.mu, DELTA), rel=1e-6)
        assert (guarantee.delta, guarantee.adjacency) == (DELTA, "add-remove")
        assert guarantee.caveats == ("seeded", "said")
        assert not guarantee.certified
    assert worst(found) is max(found.values(), key=lambda guarantee: guarantee.mu)
    assert worst(found).view == "aggregator with 2 sites"


@pytest.mark.parametrize(("protocol", "outsider"), [("full", 1 / math.sqrt(5)), ("dpdispca", 1.0)])
def test_open_moments_stand_alone(protocol, outsider):
    """Beside them a masked sum; only the summed moments of "full" hide a row among the sites."""
    federation = study(protocol=protocol, taking_part=5)
    sums = found_mus([shared(federation)], federation)
    mus = found_mus([moment(), shared(federation)], federation)
    for name, mu in mus.items():
        open_mu = moment().mu() * (outsider if name == "outsider" else 1.0)
        assert mu == pytest.approx(math.hypot(open_mu, sums[name]), rel=1e-12)


def test_moments_of_other_protocols_are_masked():
    federation = study(protocol="cape")
    with pytest.raises(PrivacyError, match="drawn in 3"):
        found_mus([moment()], federation)
    masked = shared(federation, statistic="second-moment")
    with pytest.raises(PrivacyError, match="drawn in 1"):
        found_mus([masked], study(protocol="full"))


def test_without_masks_every_message_stands_alone():
    federation, alone = study(masks="none"), release("gaussian", 0.5)
    assert federation.sharing().noise_parts == 1
    assert set(found_mus([alone], federation).values()) == {alone.mu()}
    with pytest.raises(PrivacyError, match="drawn in 1"):
        found_mus([shared(study())], federation)


def in_shares(record, noise_parts):
    return record.model_copy(
        update={"noise": record.noise.model_copy(update={"noise_parts": noise_parts})}
    )


def found_epsilons(records, federation, delta=0.0):
    found = guarantees(records, federation, delta=delta, adjacency="add-remove")
    return {guarantee.epsilon for guarantee in found.values()}


@pytest.mark.parametrize("masks", ["modular", "pairwise", "helper", "none"])
@pytest.mark.parametrize("kind", ["laplace", "vector", "wishart"])
def test_pure_noise_that_each_site_draws_whole_costs_the_same_in_every_view(kind, masks):
    record = release(kind, 0.3)
    alone = compose([record], delta=0.0, adjacency="add-remove").epsilon
    assert found_epsilons([record], study(masks=masks)) == {alone}
    mixed = guarantees([record, shared(study())], study(), delta=DELTA, adjacency="add-remove")[
        "aggregator with 2 sites"
    ]
    assert mixed.mu is None
    assert mixed.epsilon > 0.3


@pytest.mark.parametrize("kind", ["laplace", "vector", "wishart"])
def test_shared_pure_noise_costs_the_same_in_every_view_that_holds_enough_of_it(kind):
    record = in_shares(release(kind, 0.3), study().honest)
    alone = compose([record], delta=0.0, adjacency="add-remove").epsilon
    for taking_part in (5, 6):
        federation = study(taking_part=taking_part)
        found = guarantees([record], federation, delta=0.0, adjacency="add-remove")
        assert list(found) == ["outsider", "site", "aggregator", "aggregator with 2 sites"]
        assert {guarantee.epsilon for guarantee in found.values()} == {alone}
        assert not any(guarantee.caveats for guarantee in found.values())


@pytest.mark.parametrize("others", [[], [0.4]])
def test_nothing_is_claimed_against_a_site_whose_share_of_pure_noise_was_counted_on(others):
    federation = study(collusion=0, dropouts=0)
    records = [in_shares(release("laplace", 0.3), 6), *(shared(federation, mu) for mu in others)]
    delta = DELTA if others else 0.0
    found = guarantees(records, federation, delta=delta, adjacency="add-remove", caveats=["before"])
    assert list(found) == ["outsider", "aggregator"]
    assert all(guarantee.caveats == ("before", views.CURIOUS_SITE) for guarantee in found.values())
    # once one share is not counted on, the claim is there again, and so it is with every share
    for again in (study(collusion=1, dropouts=0), study(collusion=1, dropouts=1)):
        record = in_shares(release("laplace", 0.3), again.honest)
        found = guarantees([record], again, delta=0.0, adjacency="add-remove")
        assert "site" in found
        assert found["site"].caveats == ()


@pytest.mark.parametrize(
    ("kind", "changes", "noise_parts", "code"),
    [
        ("bingham", {}, 3, "pure-noise-not-shared"),
        ("laplace", {"masks": "none"}, 3, "pure-noise-not-shared"),
        ("wishart", {"masks": "helper"}, 3, "pure-noise-not-shared"),
        ("vector", {"masks": "pairwise"}, 3, "pure-noise-not-shared"),
        ("wishart", {}, 5, "too-few-noise-parts"),  # more than are sure to be there
        ("laplace", {"neighbours": 2}, 3, "too-few-noise-parts"),  # a site may stand alone
    ],
)
def test_shared_pure_noise_is_not_claimed_beyond_its_proof(kind, changes, noise_parts, code):
    with pytest.raises(PrivacyError) as caught:
        found_epsilons([in_shares(release(kind, 0.3), noise_parts)], study(**changes))
    assert caught.value.code == code


SENSELESS = {
    "collusion": [5, -1],
    "dropouts": [4, -1],
    "sites": [0],
    "taking_part": [4, 7],
    "neighbours": [0],
    "protocol": ["other"],
    "masks": ["other"],
    "surprise": [1],
}


def test_senseless_studies_are_refused():
    for name, values in SENSELESS.items():
        for value in values:
            with pytest.raises(ValidationError):
                study(**{name: value})
    for honest in (0, 4):
        with pytest.raises(ValueError, match="honest sites"):
            exposure("helper", honest=honest, taking_part=3)


def test_every_draw_that_a_view_is_made_of_is_counted():
    """What the sampler's error is computed from: shares and masks by the adversary's eyes."""
    federation = study(masks="pairwise", taking_part=5)
    counted = {
        view.name: views._seen(shared(federation), view, federation).noise
        for view in views._views(federation)
    }
    assert {name: (noise.noise_parts, noise.masks) for name, noise in counted.items()} == {
        "outsider": (5, 0),
        "site": (4, 0),
        "aggregator": (5, 10),
        "aggregator with 2 sites": (3, 3),
    }


@given(federations())
def test_the_sharing_of_a_study_is_that_of_its_weakest_view(federation):
    sharing = federation.sharing(weight_bits=3)
    stated = {"honest": federation.honest, "taking_part": federation.sites}
    stated["neighbours"] = federation.neighbours
    assert sharing.noise_parts == federation.honest
    assert sharing.exposure == exposure(federation.masks, **stated)
    assert sharing.masks == mask_draws(federation.masks, **stated)
    assert sharing.weight_bits == 3


@pytest.mark.parametrize(("sites", "neighbours"), [(5, None), (7, 2), (7, 3), (4, 30)])
def test_masks_that_are_seen_are_counted(sites, neighbours):
    stated = {"honest": sites, "taking_part": sites, "neighbours": neighbours}
    links = ring(sites, sites if neighbours is None else (neighbours + 1) // 2)
    assert mask_draws("pairwise", **stated) == np.count_nonzero(links) // 2
    assert mask_draws("helper", **stated) == sites
    assert mask_draws("modular", **stated) == 0
