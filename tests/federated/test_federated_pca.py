"""FederatedPCA: one curator's result, whoever holds the rows; errors name the site."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits

from eigenveil import (
    BudgetExceeded,
    DataError,
    FederatedPCA,
    NoisyResultWarning,
    PrivacyError,
    PrivatePCA,
    ProtocolError,
)
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.certificates import check
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.pca.federated import DATA_SET
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import mu_of_epsilon
from statistics_tools import ended_early

ROWS = load_digits().data
PARTS = {"north": ROWS[:900], "south": ROWS[900:1300], "west": ROWS[1300:]}
MOMENT = np.cov(ROWS.T)
MASKS = ["modular", "pairwise", "helper"]


def energy(model):
    return captured_energy(MOMENT, model.components_)


@pytest.mark.parametrize(
    ("masks", "adjacency"),
    [
        ("modular", "add-remove"),
        ("helper", "replace-one"),
        pytest.param("pairwise", "add-remove", marks=pytest.mark.thorough),
        pytest.param("modular", "replace-one", marks=pytest.mark.thorough),
    ],
)
def test_the_result_is_that_of_one_curator(masks, adjacency):
    """Means of 5 runs; a run's deviation is about 0.008, so 0.03 is far beyond chance."""
    asked = {"epsilon": 2.0, "delta": 1e-5, "adjacency": adjacency}
    many = [energy(FederatedPCA(10, masks=masks, **asked).fit(PARTS)) for _ in range(5)]
    one = [energy(PrivatePCA(10, **asked).fit(ROWS)) for _ in range(5)]
    assert abs(np.mean(many) - np.mean(one)) < 0.03


def test_pure_epsilon_too():
    many = [energy(FederatedPCA(10, epsilon=2.0, delta=0.0).fit(PARTS)) for _ in range(5)]
    one = [energy(PrivatePCA(10, epsilon=2.0, delta=0.0).fit(ROWS)) for _ in range(5)]
    assert abs(np.mean(many) - np.mean(one)) < 0.04
    assert FederatedPCA(2, epsilon=2.0, delta=0.0).fit(PARTS).guarantee_.delta == 0.0


@pytest.mark.parametrize("protocol", ["cape", "sketch", "dpdispca", "full", "local"])
@pytest.mark.parametrize("masks", MASKS)
def test_every_protocol_gives_a_certified_result(protocol, masks):
    model = FederatedPCA(5, epsilon=2.0, protocol=protocol, masks=masks).fit(PARTS)
    verdict = check(model.certificate_)
    assert verdict.holds, verdict.explanation
    assert model.guarantee_.certified
    assert model.guarantee_.epsilon <= 2.0
    assert np.allclose(model.components_ @ model.components_.T, np.eye(5))
    assert model.transform(ROWS).shape == (ROWS.shape[0], 5)
    assert set(model.traffic_) >= ({"north"} if protocol == "local" else set(PARTS))
    assert 0.3 * len(ROWS) < model.n_samples_ < 1.5 * len(ROWS) or protocol == "local"


def test_views_are_those_of_the_noise_that_each_sees():
    """Three shares, one of a colluder: mu of the outsider, a site, the aggregator, both."""
    model = FederatedPCA(3, epsilon=1.0, delta=1e-6, collusion=1).fit(PARTS)
    requested = mu_of_epsilon(1.0, 1e-6)
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


def test_a_site_with_a_smaller_wish_counts_less_and_is_charged_less(tmp_path):
    ledgers = {name: Ledger(tmp_path / f"{name}.ledger") for name in PARTS}
    for ledger in ledgers.values():
        ledger.set_budget(Budget(DATA_SET, "add-remove", 5.0, 1e-6))
    model = FederatedPCA(3, epsilon=1.0, delta=1e-6, site_epsilon={"south": 0.25})
    rows = {name: ArrayRows(part) for name, part in PARTS.items()}
    model.fit_rows(rows, ledgers=ledgers)
    spent = {name: ledger.standings()[0].spent_epsilon for name, ledger in ledgers.items()}
    assert spent["north"] == pytest.approx(1.0, rel=1e-6)
    assert 0.24 < spent["south"] <= 0.25
    weight = mu_of_epsilon(0.25, 1e-6) / mu_of_epsilon(1.0, 1e-6)
    counted = len(PARTS["north"]) + len(PARTS["west"]) + weight * len(PARTS["south"])
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


def test_a_seeded_run_is_reproducible_and_not_certified():
    first = FederatedPCA(3, random_state=0).fit(PARTS)
    second = FederatedPCA(3, random_state=0).fit(PARTS)
    assert np.array_equal(first.components_, second.components_)
    assert not first.guarantee_.certified
    assert not check(first.certificate_).holds


def test_where_rows_are_does_not_matter():
    """With the noise of one seed and one site, chunks of rows give the same sums."""
    whole = FederatedPCA(3, random_state=0).fit([ROWS])
    again = FederatedPCA(3, random_state=0).fit([ROWS[::-1]])
    assert np.array_equal(whole.components_, again.components_)
    assert whole.certificate_.federation.masks == "none"


def test_frames_are_matched_by_name_and_sparse_rows_are_taken():
    names = [f"p{i}" for i in range(64)]
    frames = {name: pd.DataFrame(part, columns=names) for name, part in PARTS.items()}
    frames["south"] = frames["south"][names[::-1]]
    model = FederatedPCA(3, random_state=0).fit(frames)
    assert list(model.feature_names_in_) == names
    plain = FederatedPCA(3, random_state=0).fit(PARTS)
    assert np.allclose(np.abs(model.components_), np.abs(plain.components_), atol=1e-6)
    sparse = {name: scipy.sparse.csr_array(part) for name, part in PARTS.items()}
    assert FederatedPCA(3).fit(sparse).components_.shape == (3, 64)


EDITS = [
    {"collusion": 0},
    {"dropouts": 1, "taking_part": 2},
    {"masks": "none"},
    {"sites": 4, "taking_part": 4},
    {"protocol": "sketch"},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_an_edited_certificate_does_not_hold(edit):
    model = FederatedPCA(3, collusion=1, random_state=None).fit(PARTS)
    certificate = model.certificate_
    assert check(certificate).holds
    federation = certificate.federation.model_copy(update=edit)
    verdict = check(certificate.model_copy(update={"federation": federation}))
    assert verdict.word == "NOT VALID"
    assert not check(certificate.model_copy(update={"study": None})).holds


def test_it_is_an_estimator(tmp_path):
    model = FederatedPCA(4, epsilon=2.0, protocol="sketch", collusion=1)
    assert clone(model).get_params() == model.get_params()
    model.fit(list(PARTS.values()))
    assert list(model.traffic_) == ["site1", "site2", "site3"]
    model.save(tmp_path / "model.npz")
    for loaded in (
        FederatedPCA.load(tmp_path / "model.npz"),
        FittedPCA.load(tmp_path / "model.npz"),
    ):
        assert np.array_equal(loaded.components_, model.components_)
        assert loaded.guarantee_ == model.guarantee_
    with pytest.raises(DataError, match="FederatedPCA"):
        PrivatePCA.load(tmp_path / "model.npz")


def test_auto_says_why():
    model = FederatedPCA(3).fit(PARTS)
    assert model.study_.protocol == "cape"
    assert "cape" in model.choice_
    assert FederatedPCA(3, protocol="cape").fit(PARTS).choice_ == ""


BAD = [
    ([], "no site"),
    (ROWS, "one array"),
    ({"a": ROWS, "b": ROWS[:, :60]}, "site b.*60"),
    ({"a": ROWS, "bad name!": ROWS}, "bad name!"),
]


@pytest.mark.parametrize(("rows", "said"), BAD, ids=[said for _, said in BAD])
def test_rows_that_cannot_be_used_are_refused_naming_the_site(rows, said):
    with pytest.raises(DataError, match=said):
        FederatedPCA(2).fit(rows)


def test_a_ledger_without_enough_left_refuses_before_anything_is_sent(tmp_path):
    ledgers = {name: Ledger(tmp_path / f"{name}.ledger") for name in PARTS}
    for name, ledger in ledgers.items():
        epsilon = 0.9 if name == "west" else 5.0
        ledger.set_budget(Budget(DATA_SET, "add-remove", epsilon, 1e-6))
    rows = {name: ArrayRows(part) for name, part in PARTS.items()}
    with pytest.raises(BudgetExceeded, match="site west"):
        FederatedPCA(2).fit_rows(rows, ledgers=ledgers)
    assert all(ledger.standings()[0].spent_epsilon == 0.0 for ledger in ledgers.values())


WISHES = [
    ({"epsilon": 0.0}, PrivacyError, "epsilon"),
    ({"delta": 1.0}, PrivacyError, "delta"),
    ({"collusion": 3}, PrivacyError, "honest"),
    ({"collusion": 2, "dropouts": 1}, PrivacyError, "honest"),
    ({"dropouts": 1, "masks": "helper"}, PrivacyError, "modular"),
    ({"protocol": "gossip"}, DataError, "protocol"),
    ({"masks": "paper"}, DataError, "masks"),
    ({"n_components": 65}, DataError, "components"),
    ({"delta": 0.0, "protocol": "sketch"}, PrivacyError, "cape"),
    ({"delta": 0.0, "masks": "pairwise"}, PrivacyError, "modular"),
    ({"site_epsilon": {"east": 1.0}}, PrivacyError, "east"),
    ({"site_epsilon": {"west": 9.0}}, (DataError, PrivacyError), "west"),
    ({"center": np.zeros(3)}, DataError, "center"),
    ({"epsilon": 1e-4}, PrivacyError, ""),
]


@pytest.mark.parametrize(("options", "kind", "said"), WISHES, ids=[str(o) for o, _, _ in WISHES])
def test_wishes_that_cannot_be_met_are_refused(options, kind, said):
    with pytest.raises(kind, match=f"(?i){said}"):
        FederatedPCA(**options).fit(PARTS)


def test_too_few_rows_say_so_and_spend_no_more():
    def fit():
        with pytest.warns(NoisyResultWarning) as caught:
            pca = FederatedPCA(2, epsilon=0.1).fit([ROWS[:20], ROWS[20:40]])
        return pca, str(caught[0].message)

    for pca, said in ended_early(fit, lambda each: each[0].certificate_.stopped):
        assert said.startswith("Too few rows")
        assert not pca.usable_.any()
        assert [record.name for record in pca.certificate_.releases] == ["scale"]
        assert pca.guarantee_.epsilon < 0.1


def test_protocol_errors_are_a_family_of_their_own():
    assert not issubclass(ProtocolError, PrivacyError)
