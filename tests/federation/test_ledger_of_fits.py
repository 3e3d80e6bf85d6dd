"""Fits of one table charged to a ledger, as a site's sessions are, before noise is drawn."""

import json
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import eigenveil
from eigenveil.errors import (
    BudgetExceeded,
    LedgerWarning,
)
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.budget import counted
from eigenveil.privacy.certificate import NOT_COUNTED
from ledger_tools import refused

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.errors.NoisyResultWarning")

X = np.random.default_rng(0).normal(size=(600, 5)) * [9, 6, 1, 1, 1]
WORDS = np.random.default_rng(1).poisson(2.0, size=(400, 6)) + 1.0
EPSILON = 8.0  # enough for nearly every fit to come to its end


def fit_of(name, **given):
    rows = WORDS if name == "PrivateTopicModel" else X
    return getattr(eigenveil, name)(**{"epsilon": EPSILON} | given).fit(rows)


FITS = [
    *[
        ("PrivatePCA", {"mechanism": mechanism, "delta": delta})
        for mechanism, delta in [
            ("gaussian", 1e-6), ("power", 1e-6), ("sketch", 1e-6),
            ("wishart", 0.0), ("vector", 0.0), ("bingham", 0.0), ("wishart", 1e-6),
        ]
    ],
    ("PrivatePCA", {"row_norm": "auto", "center": False}),
    ("PrivatePCA", {"missing": "independent"}),
    ("PrivatePCA", {"missing": "pairs"}),
    ("PrivateCovariance", {}),
    ("PrivateCovariance", {"delta": 0.0}),
    ("PrivateCovariance", {"row_bound": 20.0, "center": False}),
    ("PrivateGaussianMixture", {"n_components": 2}),
    ("PrivateGaussianMixture", {"n_components": 2, "delta": 0.0}),
    ("PrivateGaussianMixture", {"n_components": 2, "mechanism": "vector"}),
    ("PrivateTopicModel", {"n_components": 2}),
    ("PrivateTopicModel", {"n_components": 2, "delta": 0.0}),
    ("PrivateStreamingPCA", {}),
    ("PrivateStreamingPCA", {"delta": 0.0}),
    ("PrivateStreamingPCA", {"publish": "continual", "horizon": 1}),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(map(str, given.values()))}" for name, given in FITS]


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "tables.ledger")


@pytest.fixture(autouse=True)
def _accounts_are_opened_silently():
    with warnings.catch_warnings(action="ignore", category=LedgerWarning):
        yield


def budget_of(epsilon, data_set="x", **more):
    return Budget(
        **{"data_set": data_set, "adjacency": "add-remove", "delta": 1e-6} | more, epsilon=epsilon
    )


def cost(model, adjacency=None):
    """What an account counts of a fit's releases."""
    losses = [
        (Loss.of(each if adjacency is None else counted(each, adjacency)), each.pure)
        for each in model.certificate_.releases
    ]
    return Loss.total(loss.as_pure() if pure else loss for loss, pure in losses)


class Unread(ArrayRows):
    """Rows that must not be read."""

    def blocks(self):
        raise AssertionError("rows were read")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("name", "given"), FITS, ids=IDS)
def test_a_fit_is_charged_what_it_releases_and_a_second_is_refused(
    place, name, given, adjacency, monkeypatch
):
    """Durably before any noise is drawn: at every draw another reader finds the round's charge."""
    given = {"ledger": place, "data_set": "x", "adjacency": adjacency} | given
    ledger, drawn, found = Ledger(place), SecureSource.words, []

    def words(self, *sizes):
        found.append(sum(len(each.charges) for each in ledger.sessions()))
        return drawn(self, *sizes)

    monkeypatch.setattr(SecureSource, "words", words)
    model = fit_of(name, **given)
    (standing,), (session,) = ledger.standings(), ledger.sessions()
    assert found[0] == 1
    assert sorted(set(found)) == list(range(1, len(session.charges) + 1))
    assert session.outcome == "finished"
    assert session.releases()
    assert [r.name for r in session.releases()] == [r.name for r in model.certificate_.releases]
    assert session.charged() == cost(model)
    assert (standing.budget.epsilon, standing.budget.adjacency) == (EPSILON, adjacency)
    assert standing.spent_epsilon == pytest.approx(model.guarantee_.epsilon, rel=1e-3)
    assert standing.reserved == Loss()
    assert model.certificate_.counted
    assert NOT_COUNTED not in model.guarantee_.caveats
    error = refused("over-budget", fit_of, name, **given)
    assert "is used up: this asks for " in error.message
    assert "left: nothing (of epsilon = " in error.message
    assert "eigenveil ledger budget" in error.hint
    assert error.spent is None
    assert len(ledger.sessions()) == 1
    assert ledger.verify().holds


@pytest.mark.parametrize(("name", "given"), FITS, ids=IDS)
def test_a_replace_one_account_counts_add_remove_fits_for_a_changed_row(place, name, given):
    """What is reserved for that covers what is charged."""
    delta = given.get("delta", 1e-6)
    pure = 2.1 * EPSILON if delta else 0.0  # of which a fit with noise of both kinds has a part
    budget = budget_of(40.0, adjacency="replace-one", delta=delta, pure_epsilon=pure)
    ledger = Ledger(place, budget=budget)
    model = fit_of(name, ledger=ledger, **given)
    (session,) = ledger.sessions()
    assert (session.terms.adjacency, session.terms.counted) == ("add-remove", "replace-one")
    loss = cost(model, "replace-one")
    assert session.spent() == loss
    assert ledger.standings()[0].spent == loss
    assert cost(model) != loss


def test_a_replace_one_fit_is_refused_by_an_add_remove_account(place):
    ledger = Ledger(place, budget=budget_of(3.0))
    given = {"ledger": ledger, "adjacency": "replace-one"}
    refused("account-of-other-adjacency", fit_of, "PrivatePCA", **given)


def test_a_unit_is_its_account_s(place):
    """An account that counts what a person loses counts no rows, and the other way round."""
    groups = np.repeat(np.arange(100), 6)
    eigenveil.PrivatePCA(ledger=place, data_set="x").fit(X, groups=groups)
    assert Ledger(place).budget("x").unit == "groups"
    Ledger(place).set_budget(budget_of(9.0, unit="groups"))
    eigenveil.PrivatePCA(ledger=place, data_set="x").fit(X, groups=groups)
    refused("other-unit", eigenveil.PrivatePCA(ledger=place, data_set="x").fit, X)


def test_what_the_budget_does_not_cover_is_refused_before_any_row_is_read(place):
    for adjacency in ("add-remove", "replace-one"):
        Ledger(place).set_budget(budget_of(0.5, adjacency=adjacency))
        model = eigenveil.PrivatePCA(2, ledger=place, data_set="x", adjacency=adjacency)
        refused("over-budget", model.fit_rows, Unread(X))
    assert Ledger(place).sessions() == []


def fit_of_rows(rows, **given):
    return eigenveil.PrivatePCA(2, **given).fit_rows(rows)


class Stops(ArrayRows):
    """Rows that cannot be read a second time."""

    passes = 0

    def blocks(self):
        self.passes += 1
        if self.passes > 1:
            raise KeyboardInterrupt
        return super().blocks()


def test_an_interrupted_fit_keeps_what_it_charged_and_frees_the_rest(place):
    ledger = Ledger(place, budget=budget_of(1.001))
    with pytest.raises(KeyboardInterrupt) as caught:
        fit_of_rows(Stops(np.tile(X, (50, 1))), ledger=ledger)
    (session,), (standing,) = ledger.sessions(), ledger.standings()
    assert session.outcome == "stopped"
    assert [r.name for r in session.releases()] == [r.name for r in caught.value.released]
    assert standing.spent == Loss.total(Loss.of(record) for record in caught.value.released)
    assert standing.reserved == Loss()
    with pytest.raises(BudgetExceeded):
        fit_of_rows(Stops(X), ledger=ledger)
    eigenveil.PrivatePCA(2, epsilon=0.9, ledger=ledger).fit(X)  # what is left is of use


def test_several_fits_share_a_budget(place):
    budget = budget_of(2.0)
    with Ledger(place, budget=budget) as ledger:
        eigenveil.PrivatePCA(ledger=ledger).fit(X)
        eigenveil.PrivateCovariance(ledger=ledger).fit(X)
        left = ledger.standings()[0].left_epsilon
        assert 1.0 < left < 2.0  # they add up by their mu, not by their epsilon
        with pytest.raises(BudgetExceeded):
            eigenveil.PrivatePCA(epsilon=left * 1.01, ledger=ledger).fit(X)
        eigenveil.PrivatePCA(epsilon=left * 0.99, ledger=ledger).fit(X)
    assert ledger.budget("x") == budget


def test_an_account_keeps_its_budget_and_says_so(place):
    with Ledger(place, budget=budget_of(2.0)):
        pass
    with (
        pytest.warns(LedgerWarning, match="keeps the budget that it has, epsilon = 2"),
        Ledger(place, budget=budget_of(5.0)),
    ):
        pass
    assert Ledger(place).budget("x").epsilon == 2.0


def test_a_new_account_says_what_it_got_and_how_to_set_it(place):
    with pytest.warns(LedgerWarning, match="epsilon = 0.7 at delta = 1e-6") as caught:
        eigenveil.PrivatePCA(epsilon=0.7, ledger=place, data_set="a b").fit(X)
    assert f"ledger budget {place} --data-set 'a b' --adjacency add-remove --epsilon" in str(
        next(each.message for each in caught if each.category is LedgerWarning)
    )


# -- without a ledger, and wrong ones


def test_a_fit_without_a_ledger_says_that_it_is_not_counted(tmp_path):
    model = eigenveil.PrivatePCA().fit(X)
    assert not model.certificate_.counted
    assert model.guarantee_.certified
    assert NOT_COUNTED in model.guarantee_.caveats
    model.save(tmp_path / "model.npz")
    assert NOT_COUNTED in eigenveil.PrivatePCA.load(tmp_path / "model.npz").guarantee_.caveats
    alone = eigenveil.FederatedPCA().fit([X, X + 1])  # of ledgers that are thrown away
    assert NOT_COUNTED in alone.guarantee_.caveats


def test_ledgers_of_sites_count(tmp_path):
    rows = {"a": ArrayRows(X), "b": ArrayRows(X + 1)}
    ledgers = {name: Ledger(tmp_path / name) for name in rows}
    for ledger in ledgers.values():
        ledger.set_budget(budget_of(2.0, "default"))
    model = eigenveil.FederatedPCA().fit_rows(rows, ledgers=ledgers)
    assert not any(NOT_COUNTED in each.caveats for each in model.views_.values())


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"data_set": "x"}, "data-set-without-ledger"),
        ({"ledger": "PLACE"}, "no-data-set"),
        ({"ledger": "PLACE", "data_set": "x", "row_norm": "max"}, "norm-not-private"),
        ({"ledger": "PLACE", "data_set": "x\n"}, "bad-parameter"),
        ({"ledger": "no://such", "data_set": "x"}, "no-driver"),
        ({"ledger": "PLACE/none/there", "data_set": "x"}, "cannot-write"),
        ({"ledger": "FILE", "data_set": "x"}, "not-a-ledger"),
    ],
)
def test_what_cannot_be_charged_is_one_sentence(place, tmp_path, given, code):
    (tmp_path / "text").write_text("x" * 5000)
    if "ledger" in given:
        named = given["ledger"].replace("PLACE", place).replace("FILE", str(tmp_path / "text"))
        given = given | {"ledger": named}
    assert refused(code, lambda: eigenveil.PrivatePCA(**given).fit_rows(Unread(X))).hint


# -- what belongs to scikit-learn, and what leaves


def test_a_ledger_is_a_parameter_like_others(place):
    ledger = Ledger(place, budget=budget_of(3.0))
    model = eigenveil.PrivatePCA(ledger=ledger)
    assert clone(model).ledger is ledger
    assert clone(model).get_params()["ledger"] is ledger
    clone(model).fit(X)
    pickle.loads(pickle.dumps(model)).fit(X)
    assert len(ledger.sessions()) == 2
    assert place in repr(model)


def test_neither_ledger_nor_data_set_leave_with_a_result(place, tmp_path):
    model = eigenveil.PrivatePCA(ledger=place, data_set="of ward 7").fit(X)
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as stored:
        header = str(stored["header"])
    for text in (header, json.dumps(model.certificate_.model_dump(mode="json")), str(model.plan_)):
        assert "tables.ledger" not in text
        assert "ward 7" not in text
    again = eigenveil.PrivatePCA.load(tmp_path / "model.npz")
    assert (again.ledger, again.data_set) == (None, None)
    assert again.certificate_.counted


# -- streams


def stream(place, **given):
    return eigenveil.PrivateStreamingPCA(2, **{"ledger": place, "data_set": "x"} | given)


def reserved(place):
    return Ledger(place).standings()[0].reserved


def test_a_stream_reserves_its_target_at_its_first_block(place):
    Ledger(place).set_budget(budget_of(1.0))
    first = stream(place).partial_fit(X[:100])
    assert reserved(place).mu_squared > 0
    with pytest.raises(BudgetExceeded) as caught:
        stream(place).partial_fit(X[:100])
    assert "1 session is open" in caught.value.hint
    first.partial_fit(X[100:])
    assert Ledger(place).standings()[0].spent == Loss()
    first.release()
    assert reserved(place) == Loss()
    assert Ledger(place).standings()[0].spent_epsilon == pytest.approx(1.0, rel=1e-3)
    assert first.certificate_.counted


def test_a_continual_stream_is_charged_once_for_all_of_its_blocks(place):
    many = stream(place, publish="continual", horizon=3)
    for number in range(3):
        many.partial_fit(X[100 * number : 100 * (number + 1)])
        (session,) = Ledger(place).sessions()
        assert len(session.charges) == 1
    assert session.outcome == "finished"


def test_a_new_fit_ends_the_stream_before_it(place):
    Ledger(place).set_budget(budget_of(2.5))
    model = stream(place).partial_fit(X)
    model.fit(X)
    assert reserved(place) == Loss()
    assert [each.outcome for each in Ledger(place).sessions()] == ["stopped", "finished"]


def test_what_a_block_leaves_open_ends_with_it(place):
    with Ledger(place, budget=budget_of(1.0)) as ledger:
        stream(ledger).partial_fit(X)
        assert ledger.standings()[0].reserved.mu_squared > 0
    assert ledger.standings()[0].reserved == Loss()
    assert ledger.standings()[0].spent == Loss()


def test_streams_are_merged_within_one_account_only(place):
    Ledger(place).set_budget(budget_of(3.0))
    one, other = stream(place).partial_fit(X[:300]), stream(place).partial_fit(X[300:])
    foreign = [stream(place, data_set="y"), stream(None, data_set=None)]
    for each in foreign:
        refused("merge-accounts", one.merge, each.partial_fit(X))
    one.merge(other).release()
    assert [each.outcome for each in Ledger(place).sessions()] == ["finished", "merged", None]
