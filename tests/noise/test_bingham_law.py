"""Exact Bingham vectors: their law by quadrature, and how many tries they need."""

import math

import numpy as np
import pytest

from eigenveil.errors import PrivacyError
from eigenveil.noise.bingham import (
    bingham_vector,
    check_feasible,
    envelope_scale,
    expected_tries_bound,
    sequential_bingham,
)
from eigenveil.noise.source import SecureSource
from soak_tools import times
from statistics_tools import FALSE_ALARM, REJECTED, chi_square, kolmogorov, mutant

# as in two widely used libraries: the envelope's density multiplied in place of divided out
divides = mutant(bingham_vector, "+ (q / 2) * np.log(squares", "- (q / 2) * np.log(squares")
no_rejection = mutant(bingham_vector, "< log_keep", "< 1.0")


def circle(energies, count, draw=bingham_vector):
    """p-value of the angle on the circle against the integrated density."""
    source = SecureSource()
    u = np.array([draw(np.array(energies), source) for _ in range(count)])
    assert np.allclose(np.linalg.norm(u, axis=1), 1.0, atol=1e-12)
    bins, fine = 12, 5000
    angle = np.arctan2(u[:, 1], u[:, 0]) % (2 * math.pi)
    middles = (np.arange(bins * fine) + 0.5) * (2 * math.pi / (bins * fine))
    density = np.exp((energies[1] - energies[0]) * np.sin(middles) ** 2)
    counts = np.histogram(angle, bins, (0, 2 * math.pi))[0]
    return chi_square(counts, density.reshape(bins, fine).sum(axis=1))


def sphere(energies, count, draw=bingham_vector):
    """p-value of height and longitude on the sphere against the integrated density."""
    source = SecureSource()
    u = np.array([draw(np.array(energies), source) for _ in range(count)])
    bins, fine = 5, 100
    turn = np.arctan2(u[:, 1], u[:, 0]) % (2 * math.pi)
    height, longitude = (
        (np.arange(bins * fine) + 0.5) / (bins * fine) * span for span in (2, 2 * math.pi)
    )
    z2 = ((height - 1) ** 2)[:, None]
    across = energies[0] * np.cos(longitude) ** 2 + energies[1] * np.sin(longitude) ** 2
    density = np.exp(energies[2] * z2 + (1 - z2) * across)  # areas are equal in height x longitude
    counts = np.histogram2d(u[:, 2], turn, bins, ((-1, 1), (0, 2 * math.pi)))[0]
    expected = density.reshape(bins, fine, bins, fine).sum(axis=(1, 3))
    return chi_square(counts.ravel(), expected.ravel())


@pytest.mark.parametrize("energies", [(0.0, 0.0), (0.0, 2.0), (1003.0, 1001.5)])
def test_angles_on_the_circle(energies):
    assert circle(energies, max(4500, times(6000))) > FALSE_ALARM


def test_directions_on_the_sphere():
    assert sphere((0.0, 1.0, 2.0), 10_000) > FALSE_ALARM


@pytest.mark.thorough
def test_mutants_are_rejected():
    assert circle((0.0, 2.0), 6000, divides) < REJECTED
    assert sphere((0.0, 1.0, 2.0), 10_000, divides) < REJECTED
    assert circle((0.0, 2.0), 12_000, no_rejection) < REJECTED


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_another_exponent_is_rejected(factor):
    def draw(energies, source):
        return bingham_vector(factor * energies, source)

    assert circle((0.0, 2.0), 12_000, draw) < REJECTED


def test_one_dimension_is_a_fair_sign():
    source = SecureSource()
    signs = [float(bingham_vector(np.array([3.0]), source)[0]) for _ in range(4000)]
    assert chi_square([signs.count(1.0), signs.count(-1.0)], [0.5, 0.5]) > FALSE_ALARM


def test_vectors_one_after_the_other_are_orthonormal_and_follow_the_conditional_law():
    """In the plane that the first vector leaves, the second has a Bingham law of its own."""
    exponent = np.diag([0.0, 1.0, 4.0])
    source, angles = SecureSource(), []
    for _ in range(max(1200, times(3000))):
        vectors = sequential_bingham(exponent, 3, source)
        assert np.allclose(vectors @ vectors.T, np.eye(3), atol=1e-12)
        # axes of the exponent within the plane orthogonal to the first vector
        plane = np.linalg.svd(vectors[:1])[2][1:]
        values, axes = np.linalg.eigh(plane @ exponent @ plane.T)
        second = (axes.T @ plane) @ vectors[1]
        angles.append(conditional_rank(second, values[1] - values[0]))
    assert kolmogorov(angles, lambda x: x) > FALSE_ALARM
    assert kolmogorov(np.sqrt(angles), lambda x: x) < REJECTED


def conditional_rank(u, gap):
    """Chance that the angle to the strong axis is smaller than that of u: uniform."""
    grid = (np.arange(2000) + 0.5) * (math.pi / 2 / 2000)
    density = np.exp(gap * np.cos(grid) ** 2)
    angle = math.atan2(abs(u[0]), abs(u[1]))
    return float(np.interp(angle, grid, np.cumsum(density) / density.sum()))


def spectra(q):
    """Energies below the largest, of many shapes and strengths."""
    rng = np.random.default_rng()
    steps = np.arange(q) / (q - 1)
    for strength in (1e-3, 1.0, 30.0, 1e3, 1e5, 1e9):
        yield strength * steps
        yield strength * steps**6
        yield strength * (np.arange(q) > 0)
        yield strength * (np.arange(q) > q // 2)
        yield strength * (np.arange(q) == q - 1)
        yield strength * (1 - 0.9 ** np.arange(q))
        heavy = rng.pareto(0.5, q)
        yield strength * (heavy - heavy.min())


def log_keep(share, a):
    """Log chance that a proposal with ``u' A u = share`` is kept."""
    b, q = envelope_scale(a), a.size
    log_m = -(q - b) / 2 + (q / 2) * math.log(q / b)
    return -share + (q / 2) * np.log1p(2 * share / b) - log_m


@pytest.mark.parametrize("q", [2, 3, 10, 100, 300])
def test_no_chance_of_acceptance_is_above_one_and_the_bound_is_reached(q):
    for a in spectra(q):
        b = envelope_scale(a)
        assert b == q or abs(np.sum(1 / (b + 2 * a)) - 1) < 1e-9
        share = np.append(np.linspace(0, a.max(), 10_001), min((q - b) / 2, a.max()))
        assert np.max(log_keep(share, a)) < 1e-10
        assert (q - b) / 2 > a.max() or abs(log_keep((q - b) / 2, a)) < 1e-9


def expected_tries(a):
    """One over the chance of acceptance, by inverting a Laplace transform.

    Over the uniform sphere ``E (u' Om u)^(-q/2) = det(Om)^(-1/2)``, and ``E exp(-u' A u)`` is
    Gamma(q/2) / (2 pi i) times the integral of ``exp(t) prod (t + a_i)^(-1/2)``, here along the
    parabola ``c (1 + i v)^2`` through the saddle ``c = b / 2``.
    """
    q, b = a.size, envelope_scale(a)
    c = b / 2
    v = np.linspace(0, 10, 2001)
    t = c * (1 + 1j * v) ** 2
    log_integrand = t - c - 0.5 * np.sum(np.log((t[:, None] + a) / (c + a)), axis=1)
    integral = np.trapezoid((np.exp(log_integrand) * 2 * c * (1 + 1j * v)).real, v) / (2 * math.pi)
    log_target = math.lgamma(q / 2) + c - 0.5 * np.sum(np.log(c + a)) + math.log(2 * integral)
    log_envelope = -0.5 * np.sum(np.log1p(2 * a / b))
    log_m = -(q - b) / 2 + (q / 2) * math.log(q / b)
    return math.exp(log_m + log_envelope - log_target)


@pytest.mark.parametrize("q", [2, 3, 4, 10, 30, 100, pytest.param(300, marks=pytest.mark.thorough)])
def test_expected_tries_stay_below_their_bound_for_every_spectrum(q):
    tries = [expected_tries(a) for a in spectra(q)]
    assert expected_tries(np.zeros(q)) == pytest.approx(1.0)
    assert min(tries) > 1 - 1e-9
    assert max(tries) < expected_tries_bound(q)
    # the worst: every direction but one concentrated
    all_but_one = expected_tries(1e9 * (np.arange(q) > 0))
    assert all_but_one == pytest.approx(math.sqrt(math.e * q / 2), rel=0.3 / q)
    assert max(tries) < 1.01 * all_but_one


def test_tries_are_those_computed():
    """Candidates that the sampler itself keeps, counted through its source of chances."""
    a = np.array([0.0, 3.0, 9.0, 30.0])
    source, n = SecureSource(), 200_000
    om = 1 + 2 * a / envelope_scale(a)
    y = np.random.default_rng().standard_normal((n, 4)) / np.sqrt(om)
    share = (y * y) @ a / np.sum(y * y, axis=1)
    log_u = np.log((source.words(n) >> np.uint64(12)) * 2.0**-52 + 2.0**-53)
    kept = int(np.count_nonzero(log_u < log_keep(share, a)))
    chance = 1 / expected_tries(a)
    assert chi_square([kept, n - kept], [chance, 1 - chance]) > FALSE_ALARM


def test_hopeless_sizes_are_refused_before_starting():
    check_feasible(200, 10)
    with pytest.raises(PrivacyError, match="mechanism='auto'"):
        check_feasible(5000, 50)
