"""Mixtures and topics of many sites: one curator's result, and errors that name the site."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

from eigenveil import (
    BudgetExceeded,
    DataError,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivacyError,
    PrivateGaussianMixture,
    PrivateTopicModel,
)
from eigenveil.federated.running import DATA_SET
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.topics.estimator import FittedTopics
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import mu_of_epsilon
from noise_tools import silence
from statistics_tools import ended_early

RNG = np.random.default_rng(0)
K, SITES = 3, ("north", "south", "west")
MEANS = 5.0 * np.eye(K, 6) + 1.0
WEIGHTS = [0.5, 0.3, 0.2]
WHICH = RNG.choice(K, size=12_000, p=WEIGHTS)
ROWS = MEANS[WHICH] + RNG.standard_normal((WHICH.size, 6))
TOPICS = np.repeat(np.eye(K), 4, axis=1) / 4
COUNTS = RNG.multinomial(15, TOPICS[WHICH])
WORDS = [f"word{i}" for i in range(12)]


def parts(rows):
    return {
        name: rows[start:end]
        for name, start, end in zip(SITES, (0, 5000, 9000), (5000, 9000, 12_000), strict=True)
    }


class Mixture:
    many, one, fitted, rows = FederatedGaussianMixture, PrivateGaussianMixture, FittedMixture, ROWS
    last = "round 6"

    @staticmethod
    def found(model):
        return model.means_

    true = MEANS


class Topics:
    many, one, fitted, rows = FederatedTopicModel, PrivateTopicModel, FittedTopics, COUNTS
    last = "round 4"

    @staticmethod
    def found(model):
        return model.topics_

    true = TOPICS


TASKS = [Mixture, Topics]
both = pytest.mark.parametrize("task", TASKS, ids=["mixture", "topics"])


def error(task, model):
    """Largest distance of a true component from what was found, as a part of its length."""
    apart = np.linalg.norm(task.found(model)[:, None] - task.true, axis=2)
    return float(np.max(apart.min(axis=0) / np.linalg.norm(task.true, axis=1)))


def ledgers_of(folder, *, epsilon=5.0, adjacency="add-remove", delta=1e-6):
    found = {name: Ledger(folder / f"{name}.ledger") for name in SITES}
    for ledger in found.values():
        ledger.set_budget(Budget(DATA_SET, adjacency, epsilon, delta))
    return found


def spent(ledgers):
    return {name: ledger.standings()[0].spent_epsilon for name, ledger in ledgers.items()}


def nothing_reserved(ledgers):
    return all(
        standing.reserved.mu_squared == 0 and standing.reserved.pure == 0
        for ledger in ledgers.values()
        for standing in ledger.standings()
    )


# -- the result is that of one curator


@both
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_with_hardly_any_noise_the_result_is_that_of_one_curator(task, adjacency):
    """At epsilon = 40 the noise of the pair moment is a small part of one row's contribution.

    Distances are 0.04 of a component's length, with a deviation below 0.005; weights half of that.
    """
    asked = {"epsilon": 40.0, "delta": 1e-2, "adjacency": adjacency}
    many = task.many(K, **asked).fit(parts(task.rows))
    one = task.one(K, **asked).fit(task.rows)
    assert error(task, many) < 0.1
    assert abs(error(task, many) - error(task, one)) < 0.06
    assert np.allclose(many.weights_, one.weights_, atol=0.03)
    assert np.allclose(many.weights_, WEIGHTS, atol=0.05)


@both
def test_where_rows_are_changes_nothing(task):
    """With one seed and so the same noise; sums are exact."""
    whole = task.many(K, epsilon=8.0, random_state=0).fit([task.rows])
    again = task.many(K, epsilon=8.0, random_state=0).fit([task.rows[::-1]])
    assert np.array_equal(task.found(whole), task.found(again))
    assert whole.certificate_.federation.masks == "none"
    assert not whole.guarantee_.certified
    assert not check(whole.certificate_).holds


@both
def test_without_noise_sites_release_what_one_curator_would(task):
    """Every sum of integers is the same; so is what follows from them, but for the last digits."""
    with silence():
        many = task.many(K, epsilon=8.0).fit(parts(task.rows))
        one = task.one(K, epsilon=8.0).fit(task.rows)
    assert np.allclose(task.found(many), task.found(one), rtol=1e-4, atol=1e-4)
    assert np.allclose(many.weights_, one.weights_, atol=1e-4)


# -- every way

WAYS = [
    {},
    {"masks": "pairwise"},
    {"masks": "helper", "collusion": 1},
    {"n_components": "auto", "masks": "helper"},
    {"adjacency": "replace-one"},
    {"dropouts": 1},
    {"delta": 0.0},
    {"protocol": "local"},
    {"site_epsilon": {"south": 3.0}},
]


@both
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_gives_a_certified_result(task, way):
    """Errors are 0.03 of a component's length, with deviations below 0.02."""
    asked = {"n_components": K, "epsilon": 8.0} | way
    model = task.many(**asked).fit(parts(task.rows))
    verdict = check(model.certificate_)
    assert verdict.word == "VALID", verdict.explanation
    assert model.guarantee_.epsilon <= 8.0
    assert model.guarantee_.certified
    assert model.views_ == verdict.views
    assert error(task, model) < 0.3
    assert model.weights_.sum() == pytest.approx(1.0)
    assert model.predict(task.rows).shape == (12_000,)
    assert set(model.traffic_) >= ({"north"} if "protocol" in way else set(SITES))
    assert model.study_.task == model.plan_.task


def test_a_sketch_of_many_words(monkeypatch):
    """2000 columns: more than are kept whole."""
    monkeypatch.setattr(TopicPlan, "full_up_to", 1000)
    wide = np.zeros((3000, 2000))
    wide[:, :12] = COUNTS[:3000]
    rows = scipy.sparse.csr_array(wide)
    model = FederatedTopicModel(K, epsilon=20.0).fit([rows[:1000], rows[1000:2000], rows[2000:]])
    assert model.study_.protocol == "sketch"
    assert "1,000 columns" in model.choice_
    assert check(model.certificate_).holds
    assert model.topics_.shape == (K, 2000)
    sent = model.traffic_["site1"].sent_by_step["round 2"]
    assert 8 * 2000 * 4 * K <= sent < 8 * 2000 * 4 * K + 400


@both
def test_a_pure_guarantee_has_vector_noise_and_no_delta(task):
    model = task.many(K, epsilon=20.0, delta=0.0, collusion=1).fit(parts(task.rows))
    assert model.guarantee_.delta == 0.0
    assert "aggregator with 1 sites" in model.views_
    kinds = {r.statistic: r.noise.kind for r in model.certificate_.releases}
    assert kinds[model.certificate_.releases[-1].statistic] == "vector"
    assert all(math.isfinite(r.sampling_error().log_ratio) for r in model.certificate_.releases)
    plain = task.many(K, epsilon=20.0, delta=0.0).fit(parts(task.rows))
    assert list(plain.views_) == ["outsider", "aggregator"]  # nothing is proved of a site's view


def test_documents_may_count_in_full():
    model = FederatedTopicModel(K, epsilon=20.0, clip_documents=False).fit(parts(COUNTS))
    assert [r.statistic for r in model.certificate_.releases] == [
        "document-pairs",
        "document-triples",
    ]
    assert check(model.certificate_).holds


def test_vector_noise_beside_gaussian():
    model = FederatedTopicModel(K, epsilon=1.0, mechanism="vector").fit(parts(COUNTS))
    kinds = [r.noise.kind for r in model.certificate_.releases]
    assert kinds == ["gaussian", "gaussian", "gaussian", "vector"]
    verdict = check(model.certificate_)
    assert verdict.holds, verdict.explanation


@both
def test_views_are_those_of_the_noise_that_each_sees(task):
    model = task.many(K, epsilon=4.0, delta=1e-6, collusion=1).fit(parts(task.rows))
    requested = mu_of_epsilon(4.0, 1e-6)
    mus = {name: view.mu / requested for name, view in model.views_.items()}
    assert mus == pytest.approx(
        {
            "outsider": math.sqrt(2 / 3),
            "site": 1.0,
            "aggregator": math.sqrt(2 / 3),
            "aggregator with 1 sites": 1.0,
        },
        rel=1e-6,
    )
    assert model.guarantee_ == model.views_["aggregator with 1 sites"]


@both
def test_the_last_round_takes_no_more_than_the_tensor(task):
    for asked in (2, 5):
        model = task.many(asked, epsilon=8.0).fit(parts(task.rows))
        components = task.found(model).shape[0]  # of five asked for, those above the noise
        assert 2 <= components <= asked
        size = 8 * components * (components + 1) * (components + 2) // 6
        for name in SITES:
            assert size <= model.traffic_[name].sent_by_step[task.last] < size + 400


@both
def test_a_certificate_without_a_release_does_not_hold(task):
    certificate = task.many(K, epsilon=8.0).fit(parts(task.rows)).certificate_
    assert check(certificate).holds
    assert set(certificate.proofs) >= {"views.md", "shares.md", "release-grid.md"}
    for releases in (certificate.releases[:-1], certificate.releases[-1:]):
        assert not check(certificate.model_copy(update={"releases": releases})).holds
    other = certificate.federation.model_copy(update={"collusion": 1})
    assert not check(certificate.model_copy(update={"federation": other})).holds


# -- sites that target for less


@both
def test_a_site_with_a_smaller_wish_counts_less_and_is_charged_less(task, tmp_path):
    ledgers = ledgers_of(tmp_path, epsilon=10.0)
    rows = {name: ArrayRows(np.asarray(part, float)) for name, part in parts(task.rows).items()}
    model = task.many(K, epsilon=8.0, site_epsilon={"south": 2.0})
    model.fit_rows(rows, ledgers=ledgers)
    found = spent(ledgers)
    assert found["north"] == pytest.approx(8.0, rel=1e-6)
    assert 1.7 < found["south"] <= 2.0
    assert nothing_reserved(ledgers)


def test_a_pure_wish_is_met_too(tmp_path):
    ledgers = ledgers_of(tmp_path, epsilon=20.0, delta=0.0)
    rows = {name: ArrayRows(part.astype(float)) for name, part in parts(COUNTS).items()}
    model = FederatedTopicModel(K, epsilon=20.0, delta=0.0, site_epsilon={"west": 6.0})
    model.fit_rows(rows, ledgers=ledgers)
    assert 5.5 < spent(ledgers)["west"] <= 6.0
    assert spent(ledgers)["south"] == pytest.approx(20.0, rel=1e-4)


# -- an estimator


@both
def test_it_is_an_estimator(task, tmp_path):
    model = task.many(K, epsilon=8.0, protocol="cape", collusion=1)
    assert clone(model).get_params() == model.get_params()
    mine, one = (set(inspect.signature(c).parameters) for c in (task.many, task.one))
    assert one - mine == {"pair", "noise", "ledger", "data_set"}
    assert {"protocol", "collusion", "dropouts", "masks", "neighbours", "site_epsilon"} <= mine
    model.fit(list(parts(task.rows).values()))
    assert list(model.traffic_) == ["site1", "site2", "site3"]
    assert model.n_features_in_ == task.true.shape[1]
    model.save(tmp_path / "model.npz")
    for loaded in (
        task.many.load(tmp_path / "model.npz"),
        task.fitted.load(tmp_path / "model.npz"),
    ):
        assert np.array_equal(task.found(loaded), task.found(model))
        assert loaded.guarantee_ == model.guarantee_
    with pytest.raises(DataError, match=task.many.__name__):
        task.one.load(tmp_path / "model.npz")


def test_documents_may_be_sparse_or_frames_and_words_are_matched_by_name():
    frames = {n: pd.DataFrame(part, columns=WORDS) for n, part in parts(COUNTS).items()}
    frames["south"] = frames["south"][WORDS[::-1]]
    model = FederatedTopicModel(K, epsilon=8.0, random_state=0).fit(frames)
    assert list(model.feature_names_in_) == WORDS
    sparse = {n: scipy.sparse.csr_matrix(part) for n, part in parts(COUNTS).items()}
    plain = FederatedTopicModel(K, epsilon=8.0, random_state=0).fit(sparse)
    assert np.array_equal(plain.topics_, model.topics_)
    assert {w for topic in model.top_words(n_words=4) for w in topic} <= set(WORDS)


def test_a_study_of_another_task_is_refused():
    rows = {name: ArrayRows(part) for name, part in parts(ROWS).items()}
    study = FederatedGaussianMixture(K).study_of(rows)
    for other in (FederatedTopicModel, FederatedPCA):
        with pytest.raises(DataError, match="gaussian-mixture") as caught:
            other(2).fit_study(study, rows)
        assert caught.value.code == "other-task"
    assert FederatedGaussianMixture().fit_study(study.changed(epsilon=9.0), rows).n_components_ == K


# -- errors


@both
def test_a_site_without_rows_takes_part(task, tmp_path):
    width = task.true.shape[1]
    ledgers = ledgers_of(tmp_path)
    rows = {n: ArrayRows(np.asarray(part, float)) for n, part in parts(task.rows).items()}
    rows["west"] = ArrayRows(np.empty((0, width)))
    model = task.many(K).fit_rows(rows, ledgers=ledgers)
    assert model.missing_ == {}
    assert len(set(spent(ledgers).values())) == 1


BAD = [
    ([], "no site"),
    (COUNTS, "one array"),
    (scipy.sparse.csr_array(COUNTS), "PrivateTopicModel"),
    ({"a": COUNTS, "b": COUNTS[:, :10]}, "site b.*10"),
    ({"a": COUNTS, "bad name!": COUNTS}, "bad name!"),
    (
        {
            "a": pd.DataFrame(COUNTS, columns=WORDS),
            "b": pd.DataFrame(COUNTS, columns=[*WORDS[:11], "other"]),
        },
        "site b has other columns: column 12 .from 1. has another name",
    ),
]


@pytest.mark.parametrize(("rows", "said"), BAD, ids=[said for _, said in BAD])
def test_rows_that_cannot_be_used_are_refused_naming_the_site(rows, said):
    with pytest.raises(DataError, match=said):
        FederatedTopicModel(2).fit(rows)


WISHES = [
    ({"protocol": "dpdispca"}, DataError, "dpdispca"),
    ({"protocol": "gossip"}, DataError, "protocol"),
    ({"mechanism": "wishart"}, DataError, "mechanism"),
    ({"mechanism": "vector", "masks": "helper"}, PrivacyError, "modular"),
    ({"n_components": 13}, DataError, "components"),
    ({"n_components": "many"}, DataError, "components"),
    ({"delta": 0.0, "protocol": "sketch"}, PrivacyError, "cape"),
    ({"delta": 0.0, "masks": "pairwise"}, PrivacyError, "modular"),
    ({"collusion": 3}, PrivacyError, "honest"),
    ({"dropouts": 1, "masks": "helper"}, PrivacyError, "modular"),
    ({"budget_split": {"moment": 1.0}}, PrivacyError, "tensor"),
    ({"site_epsilon": {"east": 1.0}}, PrivacyError, "east"),
]


@both
@pytest.mark.parametrize(("options", "kind", "said"), WISHES, ids=[str(o) for o, _, _ in WISHES])
def test_wishes_that_cannot_be_met_are_refused(task, options, kind, said):
    with pytest.raises(kind, match=f"(?i){said}"):
        task.many(**options).fit(parts(task.rows))


@both
def test_a_ledger_without_enough_left_refuses_before_anything_is_sent(task, tmp_path):
    ledgers = ledgers_of(tmp_path)
    ledgers["west"].set_budget(Budget(DATA_SET, "add-remove", 0.9, 1e-6))
    rows = {n: ArrayRows(np.asarray(part, float)) for n, part in parts(task.rows).items()}
    with pytest.raises(BudgetExceeded, match="site west"):
        task.many(K).fit_rows(rows, ledgers=ledgers)
    assert set(spent(ledgers).values()) == {0.0}


@both
def test_too_few_components_end_the_fit_and_leave_the_rest_unspent(task):
    """Without noise, so that what there is not is not seen: for certain."""
    with silence():
        model = task.many(5, epsilon=1.0).fit({n: p[:400] for n, p in parts(task.rows).items()})
    assert 1 <= model.n_components_ < 5
    assert model.usable_.shape == (model.n_components_,)
    verdict = check(model.certificate_)
    assert verdict.holds, verdict.explanation


def test_too_few_rows_end_the_fit_early_and_say_so():
    def fit():
        with silence():
            return FederatedGaussianMixture(2, epsilon=0.1).fit([ROWS[:20], ROWS[20:40]])

    for model in ended_early(fit, lambda model: model.certificate_.stopped):
        assert not model.usable_.any()
        assert [r.name for r in model.certificate_.releases] == ["scale"]
        verdict = check(model.certificate_)
        assert verdict.holds, verdict.explanation
    assert "ended after 1 of" in verdict.explanation
    assert model.guarantee_.epsilon < 0.1
