"""Work done elsewhere: what a ledger counts is never less than what an accountant finds."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from eigenveil import Budget, BudgetExceeded, Ledger, PrivacyError
from eigenveil.privacy.accountant import Loss, delta_of_mu
from eigenveil.privacy.elsewhere import Elsewhere, Statement, from_event, mu_of_rho
from refusal_tools import refuses
from soak_tools import times

DELTA = 1e-6


def random_event(accounting, rng, depth=0):
    """An event that is counted, with a composition of others inside."""
    kind = rng.integers(3 if depth == 2 else 5)
    if kind == 0:
        return accounting.GaussianDpEvent(rng.uniform(1.0, 8.0))
    if kind == 1:
        return accounting.LaplaceDpEvent(rng.uniform(4.0, 30.0))
    if kind == 2:
        return accounting.PoissonSampledDpEvent(
            rng.uniform(0.01, 0.5), accounting.LaplaceDpEvent(rng.uniform(1.0, 9.0))
        )
    inner = [random_event(accounting, rng, depth + 1) for _ in range(2)]
    if kind == 3:
        return accounting.ComposedDpEvent(inner)
    return accounting.SelfComposedDpEvent(inner[0], int(rng.integers(1, 4)))


@pytest.mark.parametrize("seed", range(8))
def test_an_accountant_finds_no_more(seed):
    accounting = pytest.importorskip("dp_accounting", reason="dp_accounting is not installed")
    rng = np.random.default_rng(seed)
    events = [random_event(accounting, rng) for _ in range(rng.integers(1, 4))]
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    for event in events:
        accountant.compose(event)
    losses = [from_event(each, adjacency="add-remove").under("add-remove") for each in events]
    counted = Loss.total(losses).epsilon(DELTA)
    assert counted >= accountant.get_epsilon(DELTA) - 2e-3 * len(events)


@pytest.mark.parametrize("beside", [0.0, 0.2])
def test_approximate_promises_are_no_less_than_their_exact_composition(beside):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    one = Elsewhere.stated(epsilon=0.2, delta=1e-8)
    exact = pld.from_privacy_parameters(DifferentialPrivacyParameters(0.2, 1e-8)).self_compose(4)
    losses = [one.under("add-remove")] * 4
    if beside:
        exact = exact.compose(pld.from_gaussian_mechanism(1.0 / beside))
        losses.append(Elsewhere.stated(mu=beside).under("add-remove"))
    counted = Loss.total(losses).epsilon(DELTA)
    assert exact.get_epsilon_for_delta(DELTA) - 2e-3 <= counted < 2.0


@pytest.mark.parametrize("size", [2, 3, 6])
def test_whatever_is_zcdp_is_dominated(size):
    """Of random laws, rho is the largest divergence over its order; delta is exact."""
    rng = np.random.default_rng(size)
    orders = np.concatenate([[1.0 + 1e-6], np.geomspace(1.01, 300.0, 60)])
    for _ in range(times(200)):
        p, q = rng.dirichlet(np.full(size, 0.7), 2) + 1e-9
        p, q = p / p.sum(), q / q.sum()
        rho = max(
            logsumexp(order * np.log(a) + (1.0 - order) * np.log(b)) / (order - 1.0) / order
            for a, b in ((p, q), (q, p))
            for order in orders
        )
        rho = max(rho, 1e-12) * (1.0 + 1e-3)  # between the orders
        if rho > 8.0:
            continue
        mu = mu_of_rho(rho)
        assert math.sqrt(2.0 * rho) < mu < 2.5 * math.sqrt(2.0 * rho)
        for epsilon in np.linspace(0.0, 4.0 * mu + mu * mu, 40):
            delta = np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0))
            assert delta <= delta_of_mu(mu, epsilon) * (1 + 1e-9) + 1e-15


def refused(accounting):
    inner = accounting.GaussianDpEvent(1.0)
    return {
        "promises nothing": accounting.NonPrivateDpEvent(),
        "pure events only": accounting.PoissonSampledDpEvent(0.1, inner),
        "neither a mu nor": accounting.SampledWithoutReplacementDpEvent(100, 10, inner),
        "set to zero": accounting.SingleEpochTreeAggregationDpEvent(1.0, 8),
        "xi above 0": accounting.ZCDpEvent(0.1, xi=0.1),
        "without noise": accounting.GaussianDpEvent(0.0),
    }


def test_events_without_a_bound_are_refused_with_the_reason():
    accounting = pytest.importorskip("dp_accounting", reason="dp_accounting is not installed")
    for why, event in refused(accounting).items():
        inside = accounting.ComposedDpEvent([accounting.NoOpDpEvent(), event])
        with refuses("not-countable", why, kind=PrivacyError):
            from_event(inside, adjacency="add-remove")


@pytest.mark.parametrize(
    "given",
    [{}, {"epsilon": 1.0, "mu": 1.0}, {"epsilon": -1.0}, {"rho": math.nan},
     {"mu": 1.0, "delta": 0.1}, {"epsilon": 1.0, "delta": 1.0},
     {"epsilon": 1.0, "contributions": 0}],
)  # fmt: skip
def test_a_statement_that_is_none_is_refused(given):
    with refuses(
        "bad-statement"
        if len(given) == 1 or "delta" in given or "contributions" in given
        else "not-one-statement"
    ):
        Elsewhere.stated(**given)


def test_a_changed_row_costs_twice_unless_the_statement_is_for_two():
    for given, twice in (
        ({"mu": 0.3}, Loss(mu_squared=0.36)),
        ({"epsilon": 0.3}, Loss(pure=0.6)),
        ({"rho": 0.02}, Statement(rho=0.08).loss()),
        # (eps, delta) twice is (2 eps, (1 + e^eps) delta), and a distance is delta / (1 + e^eps)
        (
            {"epsilon": 2.0, "delta": 1e-8},
            Loss(pure=4.0, distance=1e-8 * (1 + math.exp(2.0)) / (1 + math.exp(4.0))),
        ),
    ):
        one, two = (Elsewhere.stated(**given, contributions=count) for count in (1, 2))
        assert one.under("replace-one") == pytest.approx(twice)
        assert two.under("replace-one") == one.under("add-remove")


def test_randomized_response_has_the_ratio_of_its_law():
    """With a chance of .4 it says any of five answers: .68 to .08 are the chances of one."""
    accounting = pytest.importorskip("dp_accounting", reason="dp_accounting is not installed")
    event = accounting.RandomizedResponseDpEvent(0.4, 5)
    assert from_event(event, adjacency="replace-one").statement == Statement(
        pure=pytest.approx(math.log(0.68 / 0.08))
    )


def test_an_account_of_changed_rows_is_charged_for_one(tmp_path):
    ledger = Ledger(tmp_path / "one.ledger")
    ledger.set_budget(Budget("ward", "replace-one", 2.0, DELTA))
    standing = ledger.charge_elsewhere("ward", Elsewhere.stated(mu=0.2))
    assert standing.spent.mu_squared == pytest.approx(0.16)


def test_an_account_is_charged_and_goes_on_from_there(tmp_path):
    ledger = Ledger(tmp_path / "one.ledger")
    ledger.set_budget(Budget("ward", "add-remove", 2.0, DELTA))
    first = ledger.charge_elsewhere("ward", Elsewhere.stated(mu=0.2), by="ann", reason="counts")
    assert first.spent.mu_squared == pytest.approx(0.04)
    before = ledger.verify().entries
    near = Elsewhere.stated(epsilon=0.1, delta=1e-8)
    for wrong, unit in (
        (Elsewhere.stated(mu=5.0), "row"),
        (Elsewhere.stated(mu=0.1), "patient"),
        (Elsewhere.stated(mu=0.1, adjacency="replace-one"), "row"),
        (near, "row"),  # nothing of delta is set aside, and something was charged
    ):
        with pytest.raises(PrivacyError):
            ledger.charge_elsewhere("ward", wrong, unit=unit)
    assert ledger.verify().entries == before
    ledger.set_budget(Budget("ward", "add-remove", 2.0, DELTA, delta_elsewhere=1e-7))
    ledger.charge_elsewhere("ward", near)
    with pytest.raises(BudgetExceeded):
        ledger.charge_elsewhere("ward", Elsewhere.stated(epsilon=0.1, delta=1e-7))
    standing = ledger.standings()[0]
    assert first.spent_epsilon < standing.spent_epsilon < 2.0
    assert [body.reason for _, body in ledger.books().elsewhere] == ["counts", ""]
    assert ledger.verify().holds


def test_a_measurement_of_opendp(tmp_path):
    dp = pytest.importorskip("opendp.prelude", reason="opendp is not installed")
    dp.enable_features("contrib")
    space = (dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance())
    count = space >> dp.t.then_count() >> dp.m.then_laplace(scale=10.0)
    work = Elsewhere.stated(epsilon=count.map(d_in=3), contributions=3, what="a count by OpenDP")
    ledger = Ledger(tmp_path / "one.ledger")
    ledger.set_budget(Budget("ward", "replace-one", 2.0, DELTA, unit="patient"))
    standing = ledger.charge_elsewhere("ward", work, unit="patient")
    assert standing.spent_epsilon >= 0.3
