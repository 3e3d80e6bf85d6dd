"""Models of many sites: one curator's result, whoever holds the rows; errors name the site."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_digits

from eigenveil import (
    BudgetExceeded,
    DataError,
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    NoisyResultWarning,
    PrivacyError,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.federated.running import DATA_SET
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.certificates import check
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import mu_of_epsilon
from noise_tools import silence
from soak_tools import some
from statistics_tools import ended_early

RNG = np.random.default_rng(0)
K, SITES = 3, ("north", "south", "west")
WEIGHTS = [0.5, 0.3, 0.2]
WHICH = RNG.choice(K, size=12_000, p=WEIGHTS)
WORDS = [f"word{i}" for i in range(12)]
DIGITS = load_digits().data
MOMENT = np.cov(DIGITS.T)


def parts(rows):
    return dict(zip(SITES, np.split(rows, [5 * len(rows) // 12, 3 * len(rows) // 4]), strict=True))


class Pca:
    many, one, rows = FederatedPCA, PrivatePCA, DIGITS

    @staticmethod
    def found(model):
        return model.components_

    @staticmethod
    def error(model):
        """Of the energy that as many components can capture, the part that is not."""
        return 1.0 - captured_energy(MOMENT, model.components_)


class Tensors:
    @classmethod
    def error(cls, model):
        """Largest distance of a true component from what was found, as a part of its length."""
        apart = np.linalg.norm(cls.found(model)[:, None] - cls.true, axis=2)
        return float(np.max(apart.min(axis=0) / np.linalg.norm(cls.true, axis=1)))


class Mixture(Tensors):
    many, one, last = FederatedGaussianMixture, PrivateGaussianMixture, "round 6"
    true = 5.0 * np.eye(K, 6) + 1.0
    rows = true[WHICH] + RNG.standard_normal((WHICH.size, 6))

    @staticmethod
    def found(model):
        return model.means_


class Topics(Tensors):
    many, one, last = FederatedTopicModel, PrivateTopicModel, "round 4"
    true = np.repeat(np.eye(K), 4, axis=1) / 4
    rows = RNG.multinomial(15, true[WHICH])

    @staticmethod
    def found(model):
        return model.topics_


every = pytest.mark.parametrize("task", [Pca, Mixture, Topics])
both = pytest.mark.parametrize("task", [Mixture, Topics])


def ledgers_of(folder, *, epsilon=5.0, delta=1e-6):
    found = {name: Ledger(folder / f"{name}.ledger") for name in SITES}
    for ledger in found.values():
        ledger.set_budget(Budget(DATA_SET, "add-remove", epsilon, delta))
    return found


def sources(task):
    return {name: ArrayRows(np.asarray(part, float)) for name, part in parts(task.rows).items()}


def spent(ledgers):
    return {name: ledger.standings()[0].spent_epsilon for name, ledger in ledgers.items()}


# -- the result is that of one curator


@pytest.mark.parametrize(
    ("options", "most"),
    some(
        [
            ({"masks": "modular"}, 0.03),
            ({"masks": "helper", "adjacency": "replace-one"}, 0.03),
            ({"masks": "pairwise"}, 0.03),
            ({"delta": 0.0}, 0.04),
            ({"adjacency": "replace-one"}, 0.03),
        ],
        step=3,
    ),
    ids=str,
)
def test_components_are_as_good_as_one_curators(options, most):
    """Means of 5 runs; a run's deviation is about 0.008, so 0.03 is far beyond chance."""
    asked = {"epsilon": 2.0, "delta": 1e-5} | options
    alone = {name: value for name, value in asked.items() if name != "masks"}
    many = [Pca.error(FederatedPCA(10, **asked).fit(parts(DIGITS))) for _ in range(5)]
    one = [Pca.error(PrivatePCA(10, **alone).fit(DIGITS)) for _ in range(5)]
    assert abs(np.mean(many) - np.mean(one)) < most


@both
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_with_hardly_any_noise_the_result_is_that_of_one_curator(task, adjacency):
    """At epsilon = 40 the noise of the pair moment is a small part of one row's contribution.

    Distances are 0.04 of a component's length, with a deviation below 0.005; weights half of that.
    """
    asked = {"epsilon": 40.0, "delta": 1e-2, "adjacency": adjacency}
    many = task.many(K, **asked).fit(parts(task.rows))
    one = task.one(K, **asked).fit(task.rows)
    assert task.error(many) < 0.1
    assert abs(task.error(many) - task.error(one)) < 0.06
    assert np.allclose(many.weights_, one.weights_, atol=0.03)
    assert np.allclose(many.weights_, WEIGHTS, atol=0.05)


@every
def test_where_rows_are_changes_nothing(task):
    """With one seed and so the same noise; sums are exact."""
    whole = task.many(K, epsilon=8.0, random_state=0).fit([task.rows])
    again = task.many(K, epsilon=8.0, random_state=0).fit([task.rows[::-1]])
    assert np.array_equal(task.found(whole), task.found(again))
    assert whole.certificate_.federation.masks == "none"


@both
def test_without_noise_sites_release_what_one_curator_would(task):
    """Every sum of integers is the same; so is what follows from them, but for the last digits."""
    with silence():
        many = task.many(K, epsilon=8.0).fit(parts(task.rows))
        one = task.one(K, epsilon=8.0).fit(task.rows)
    assert np.allclose(task.found(many), task.found(one), rtol=1e-4, atol=1e-4)
    assert np.allclose(many.weights_, one.weights_, atol=1e-4)


# -- every way

MASKS = ("modular", "pairwise")
PROTOCOLS = ["cape", "sketch", "dpdispca", "full", "local"]
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
    {"weights": {"north": 4, "south": 2, "west": 3}, "dropouts": 1},
]


@pytest.mark.parametrize(
    ("task", "way"),
    some(
        [
            *((Pca, {"protocol": p, "masks": m}) for p in PROTOCOLS for m in MASKS),
            *((Pca, {"protocol": p, "masks": "helper"}) for p in ("cape", "sketch")),
            *((task, way) for task in (Mixture, Topics) for way in WAYS),
        ]
    ),
    ids=str,
)
def test_every_way_gives_a_certified_result(task, way):
    """Errors are 0.03 of a component's length, with deviations below 0.02."""
    model = task.many(**{"n_components": K, "epsilon": 8.0} | way).fit(parts(task.rows))
    verdict = check(model.certificate_)
    assert verdict.word == "VALID", verdict.explanation
    assert model.guarantee_.epsilon <= 8.0
    assert model.guarantee_.certified
    assert model.views_ == verdict.views
    local = way.get("protocol") == "local"
    assert set(model.traffic_) >= ({"north"} if local else set(SITES))
    assert task is Pca or model.study_.task == model.plan_.task
    assert (model.choice_ == "") == ("protocol" in way)
    if task is Pca:
        assert np.allclose(model.components_ @ model.components_.T, np.eye(K))
        assert local or 0.3 * len(DIGITS) < model.n_samples_ < 1.5 * len(DIGITS)
    else:
        assert task.error(model) < 0.3
        assert model.weights_.sum() == pytest.approx(1.0)


def test_a_sketch_of_many_words(monkeypatch):
    """2000 columns: more than are kept whole."""
    monkeypatch.setattr(TopicPlan, "full_up_to", 1000)
    wide = np.zeros((3000, 2000))
    wide[:, :12] = Topics.rows[:3000]
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
    assert model.certificate_.releases[-1].noise.kind == "vector"
    assert all(math.isfinite(r.sampling_error().log_ratio) for r in model.certificate_.releases)
    plain = task.many(K, epsilon=20.0, delta=0.0).fit(parts(task.rows))
    assert list(plain.views_) == ["outsider", "aggregator"]  # nothing is proved of a site's view


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"epsilon": 20.0, "clip_documents": False}, ["gaussian"] * 2),
        ({"epsilon": 1.0, "mechanism": "vector"}, [*["gaussian"] * 3, "vector"]),
    ],
    ids=str,
)
def test_documents_in_full_and_vector_noise_beside_gaussian(options, kinds):
    model = FederatedTopicModel(K, **options).fit(parts(Topics.rows))
    assert [r.noise.kind for r in model.certificate_.releases] == kinds
    verdict = check(model.certificate_)
    assert verdict.holds, verdict.explanation


@every
def test_views_are_those_of_the_noise_that_each_sees(task):
    """Three shares, one of a colluder: mu of the outsider, a site, the aggregator, both."""
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


# -- sites that target for less


@pytest.mark.parametrize(
    ("task", "epsilon", "own", "delta"),
    [
        (Pca, 1.0, 0.25, 1e-6),
        (Mixture, 8.0, 2.0, 1e-6),
        (Topics, 8.0, 2.0, 1e-6),
        (Topics, 20.0, 6.0, 0.0),
    ],
)
def test_a_site_with_a_smaller_wish_counts_less_and_is_charged_less(
    task, epsilon, own, delta, tmp_path
):
    ledgers = ledgers_of(tmp_path, epsilon=20.0, delta=delta)
    model = task.many(K, epsilon=epsilon, delta=delta, site_epsilon={"south": own})
    model.fit_rows(sources(task), ledgers=ledgers)
    found = spent(ledgers)
    assert found["north"] == pytest.approx(epsilon, rel=1e-4 if delta == 0 else 1e-6)
    assert 0.85 * own < found["south"] <= own
    for ledger in ledgers.values():
        (standing,) = ledger.standings()
        assert standing.reserved.mu_squared == 0 == standing.reserved.pure
    if task is Pca:
        count = {name: len(part) for name, part in parts(DIGITS).items()}
        weight = mu_of_epsilon(own, 1e-6) / mu_of_epsilon(epsilon, 1e-6)
        counted = count["north"] + count["west"] + weight * count["south"]
        assert abs(model.n_samples_ - counted) < 6 * 45  # the count's noise, twice over


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_mean_is_that_of_the_rows_as_they_count(adjacency):
    """Far from the origin, where rows that count less must not be divided by as if they did not.

    The mean's noise has a deviation below 0.02 a feature.
    """
    rows = 5.0 + np.random.default_rng(0).standard_normal((9000, 4))
    model = FederatedPCA(1, epsilon=8.0, adjacency=adjacency, site_epsilon={"site2": 2.0})
    model.fit([rows[::3], rows[1::3], rows[2::3]])
    assert np.allclose(model.mean_, 5.0, atol=0.3)
    assert abs(model.n_samples_ - (2 + model.study_.row_weights()["site2"]) * 3000) < 200


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_site_of_less_weight_has_a_stronger_guarantee_and_is_charged_less(delta, tmp_path):
    ledgers, given = ledgers_of(tmp_path, delta=delta), {"north": 3.0, "south": 12, "west": 6}
    model = FederatedPCA(2, epsilon=4.0, delta=delta, weights=given)
    model.fit_rows(sources(Pca), ledgers=ledgers)
    held, whole = model.site_guarantees_, model.guarantee_
    assert held["south"].epsilon == whole.epsilon
    for name, each in held.items():
        part = given[name] / 12
        if delta:
            assert each.mu == pytest.approx(part * whole.mu, rel=1e-12)
        else:
            assert each.epsilon == pytest.approx(part * whole.epsilon, rel=1e-3)
        room = 0.0 if delta else 4.0 / 1024  # of the sampler's error
        assert each.epsilon <= spent(ledgers)[name] * (1 + 1e-9) <= each.epsilon * 1.001 + room
    verdict = check(model.certificate_)
    assert (verdict.word, verdict.sites) == ("VALID", held)
    text = model.certificate_.model_dump(mode="json")
    text["study"]["sites"][0]["weight"] = 12.0  # of another study
    assert check(type(model.certificate_).model_validate(text)).word == "NOT VALID"


def test_equal_weights_are_none():
    rows = parts(DIGITS)
    plain = FederatedPCA(2, random_state=0).fit(rows)
    alike = FederatedPCA(2, random_state=0, weights=dict.fromkeys(rows, 0.3)).fit(rows)
    assert np.array_equal(plain.components_, alike.components_)
    assert plain.n_samples_ == alike.n_samples_
    assert {e.epsilon for e in alike.site_guarantees_.values()} == {plain.guarantee_.epsilon}


# -- centring within sites


def shifted(shift, *, rows=1000, seed=0):
    """Three sites whose rows differ by so many standard deviations; the law within them."""
    rng = np.random.default_rng(seed)
    scale = np.array([2.0, 1.5, 1.0, *[0.4] * 9])
    found = {
        name: rng.standard_normal((rows, 12)) * scale + shift * scale * rng.choice([-1, 1], 12)
        for name in SITES
    }
    return found, np.diag(scale**2)


@pytest.mark.parametrize("options", [{}, {"row_norm": "auto"}, {"row_bound": 12.0}], ids=str)
def test_without_noise_rows_are_those_about_each_site_s_own_mean(options):
    far, law = shifted(3.0)
    whole = {"epsilon": 8.0, "delta": 1e-5, "within_sites": True} | options
    with silence():
        model = FederatedPCA(3, **whole).fit(far)
        near = FederatedPCA(3, **whole).fit({n: r - r.mean(axis=0) for n, r in far.items()})
    for name, rows in far.items():
        # of rows that are shortened at a quantile
        assert np.linalg.norm(model.site_means_[name] - rows.mean(axis=0)) < 1.0
    assert captured_energy(law, model.components_) > 0.995
    assert captured_energy(near.get_covariance(), model.components_) > 0.99


def test_site_effects_are_taken_off_and_the_result_is_certified(tmp_path):
    """Energies are .9997 and .908 (deviations .00003, .0005); variances are off by .13 (.02)."""
    far, law = shifted(2.0)
    within = FederatedPCA(3, epsilon=4.0, within_sites=True).fit(far)
    plain = FederatedPCA(3, epsilon=4.0).fit(far)
    assert captured_energy(law, within.components_) > 0.95 > captured_energy(law, plain.components_)
    assert check(within.certificate_).word == "VALID"
    within.save(tmp_path / "m.npz")
    again = FederatedPCA.load(tmp_path / "m.npz")
    for model in (within, again):
        near = model.without_site(far["south"], "south")
        assert np.allclose(near - far["south"], model.mean_ - model.site_means_["south"])
    covariance = FederatedCovariance(epsilon=4.0, within_sites=True).fit(far)
    assert np.allclose(np.diag(covariance.covariance_), np.diag(law), atol=0.5)
    with pytest.raises(DataError, match="no site 'nowhere'"):
        within.without_site(far["south"], "nowhere")
    with pytest.raises(DataError, match="within_sites"):
        plain.without_site(far["south"], "south")
    with pytest.raises(ValueError, match="features"):
        within.without_site(far["south"][:, :3], "south")


def test_a_site_of_no_rows_keeps_the_common_centre_and_nothing_fails():
    far, _ = shifted(1.0, rows=300)
    model = FederatedPCA(2, epsilon=4.0, within_sites=True).fit(far | {"empty": np.empty((0, 12))})
    assert np.array_equal(model.site_means_["empty"], model.mean_)


def test_where_one_site_takes_part_within_is_what_there_is_else():
    rows = {"north": parts(DIGITS)["north"]}
    one = FederatedPCA(2, random_state=0).fit(rows)
    within = FederatedPCA(2, random_state=0, within_sites=True).fit(rows)
    assert np.array_equal(one.components_, within.components_)
    assert within.site_means_ is None


# -- what sites give


def test_columns_are_matched_by_name_and_rows_may_be_sparse():
    frames = {n: pd.DataFrame(part, columns=WORDS) for n, part in parts(Topics.rows).items()}
    frames["south"] = frames["south"][WORDS[::-1]]
    model = FederatedTopicModel(K, epsilon=8.0, random_state=0).fit(frames)
    assert list(model.feature_names_in_) == WORDS
    sparse = {n: scipy.sparse.csr_matrix(part) for n, part in parts(Topics.rows).items()}
    plain = FederatedTopicModel(K, epsilon=8.0, random_state=0).fit(sparse)
    assert np.array_equal(plain.topics_, model.topics_)
    assert {w for topic in model.top_words(n_words=4) for w in topic} <= set(WORDS)


def test_a_study_of_another_task_is_refused():
    rows = sources(Mixture)
    study = FederatedGaussianMixture(K).study_of(rows)
    for other in (FederatedTopicModel, FederatedPCA):
        with pytest.raises(DataError, match="gaussian-mixture") as caught:
            other(2).fit_study(study, rows)
        assert caught.value.code == "other-task"
    assert FederatedGaussianMixture().fit_study(study.changed(epsilon=9.0), rows).n_components_ == K


@both
def test_a_site_without_rows_takes_part(task, tmp_path):
    ledgers, rows = ledgers_of(tmp_path), sources(task)
    rows["west"] = ArrayRows(np.empty((0, task.true.shape[1])))
    model = task.many(K).fit_rows(rows, ledgers=ledgers)
    assert model.missing_ == {}
    assert len(set(spent(ledgers).values())) == 1


OTHER_WORDS = [*WORDS[:11], "other"]
COUNTS = Topics.rows
BAD = [
    ([], "no site"),
    (COUNTS, "one array"),
    (scipy.sparse.csr_array(COUNTS), "PrivateTopicModel"),
    ({"a": COUNTS, "b": COUNTS[:, :10]}, "site b.*10"),
    ({"a": COUNTS, "bad name!": COUNTS}, "bad name!"),
    (
        {n: pd.DataFrame(COUNTS, columns=c) for n, c in (("a", WORDS), ("b", OTHER_WORDS))},
        "site b has other columns: column 12 .from 1. has another name",
    ),
]


@pytest.mark.parametrize(("rows", "said"), BAD, ids=[said for _, said in BAD])
def test_rows_that_cannot_be_used_are_refused_naming_the_site(rows, said):
    with pytest.raises(DataError, match=said):
        FederatedTopicModel(2).fit(rows)


NO_WEIGHTS = (0, -1.0, math.nan, math.inf, True, "1", None)
WISHES = [  # of the estimator alone: what a study cannot be is tried in federation/test_study.py
    (Pca, {"site_epsilon": {"east": 1.0}}, PrivacyError, "east"),
    (Pca, {"site_epsilon": {"west": 9.0}}, PrivacyError, "west"),
    (Pca, {"weights": {"east": 1.0}}, DataError, "'weights' .* names 'east'"),
    (Pca, {"weights": {"west": 1.0}}, DataError, "'north' has no weight"),
    *((Pca, {"weights": dict.fromkeys(SITES, w)}, DataError, "weights") for w in NO_WEIGHTS),
    (Pca, {"center": np.zeros(3)}, DataError, "center"),
    (Pca, {"epsilon": 1e-4}, PrivacyError, ""),
    (Pca, {"collusion": 2, "dropouts": 1}, PrivacyError, "honest"),
    (Mixture, {"mechanism": "vector", "masks": "helper"}, PrivacyError, "modular"),
    (Topics, {"n_components": 13}, DataError, "components"),
]


@pytest.mark.parametrize(("task", "options", "kind", "said"), WISHES, ids=str)
def test_wishes_that_cannot_be_met_are_refused(task, options, kind, said):
    with pytest.raises(kind, match=f"(?i){said}"):
        task.many(**options).fit(parts(task.rows))


@every
def test_a_ledger_without_enough_left_refuses_before_anything_is_sent(task, tmp_path):
    ledgers = ledgers_of(tmp_path)
    ledgers["west"].set_budget(Budget(DATA_SET, "add-remove", 0.9, 1e-6))
    with pytest.raises(BudgetExceeded, match="site west"):
        task.many(2).fit_rows(sources(task), ledgers=ledgers)
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


@pytest.mark.parametrize("task", [Pca, Mixture])
def test_too_few_rows_end_the_fit_early_and_say_so(task):
    def fit():
        with pytest.warns(NoisyResultWarning) as caught:
            model = task.many(2, epsilon=0.1).fit([task.rows[:20], task.rows[20:40]])
        return model, str(caught[0].message)

    for model, said in ended_early(fit, lambda each: len(each[0].certificate_.releases) == 1):
        assert said.startswith("Too few rows")
        assert not model.usable_.any()
        assert [r.name for r in model.certificate_.releases] == ["scale"]
        verdict = check(model.certificate_)
        assert verdict.holds, verdict.explanation
        assert "ended after 1 of" in verdict.explanation
        assert model.guarantee_.epsilon < 0.1
