"""Searches, cross-validation and pipelines of scikit-learn: what all fits cost, and for whom."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from eigenveil import (
    Budget,
    BudgetExceeded,
    DataError,
    Ledger,
    PrivatePCA,
    WeakPrivacyWarning,
    share_budget,
)
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.constraints import InvalidParameter
from eigenveil.privacy.accountant import epsilon_of_mu
from eigenveil.privacy.certificate import NOT_COUNTED, read_certificate

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((900, 3)) * [5.0, 2.0, 1.0]
Y = np.arange(900) % 2
MANY = np.tile(ROWS, (20, 1))  # of which no fit stops early: it spends its part
PERSONS = np.arange(900) // 3
FRAME = pd.DataFrame(ROWS, columns=["a", "b", "c"])
SEARCH = {"param_grid": {"n_components": [1, 2, 3]}, "cv": 3, "error_score": "raise"}
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def weak(recwarn):
    """The texts of the warnings that a guarantee promises less than it seems to."""
    return [str(each.message) for each in recwarn if each.category is WeakPrivacyWarning]


@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
@pytest.mark.filterwarnings("ignore::eigenveil.LedgerWarning")
def test_all_fits_of_a_search_share_one_epsilon_and_the_best_one_says_so(kept, tmp_path):
    place = {"ledger": str(tmp_path / "ward.ledger"), "data_set": "ward"} if kept else {}
    model = share_budget(PrivatePCA(epsilon=4.0, **place), fits=3 * 3 + 1)
    search = GridSearchCV(model, **SEARCH).fit(MANY)
    (standing,) = model.ledger.standings()
    assert standing.budget.epsilon == 4.0
    assert 0.999 * 4.0 < standing.spent_epsilon <= 4.0
    best = search.best_estimator_
    assert best.guarantee_.epsilon == pytest.approx(model.epsilon)
    assert model.epsilon > 2 * 4.0 / 10  # which a division of epsilon would leave
    (said,) = (each for each in best.guarantee_.caveats if "this fit alone" in each)
    assert "the others charged to its account until it ended (9)" in said
    # a ledger in memory is thrown away, and knows of no fit of these rows but the search's
    assert (best.certificate_.counted, NOT_COUNTED in best.guarantee_.caveats) == (kept, not kept)
    assert f"epsilon = {standing.spent_epsilon:.6g} at delta = 1e-6" in said
    best.certificate_.write(tmp_path / "certificate.json")
    verdict = check(read_certificate(tmp_path / "certificate.json"))
    assert (verdict.word, verdict.guarantee) == ("VALID", best.guarantee_)
    with pytest.raises(BudgetExceeded) as caught:  # the eleventh
        best.fit(MANY)
    assert caught.value.code == ("over-budget" if kept else "one-fit-too-many")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (4.0, 1e-6), (20.0, 1e-9), (2.0, 0)])
@pytest.mark.parametrize("fits", [1, 2, 200])
def test_the_parts_are_as_large_as_the_account_has_room_for(fits, epsilon, delta):
    model = share_budget(PrivatePCA(epsilon=epsilon, delta=delta), fits=fits)
    loss = model.fit(ROWS).plan_.reservation()
    (standing,) = model.ledger.standings()
    whole = "pure" if delta == 0 else "mu_squared"
    assert getattr(loss, whole) * fits == pytest.approx(getattr(standing.caps, whole), rel=1e-6)
    assert getattr(loss, whole) * fits <= getattr(standing.caps, whole)
    if delta > 0:
        assert epsilon_of_mu(np.sqrt(fits * loss.mu_squared), delta) <= epsilon


@pytest.mark.filterwarnings("ignore::eigenveil.LedgerWarning")
def test_an_account_that_is_there_is_asked_before_the_first_fit(tmp_path):
    place = str(tmp_path / "ward.ledger")
    Ledger(place).set_budget(Budget("ward", "add-remove", epsilon=4.0, delta=1e-6))
    model = PrivatePCA(epsilon=4.0, ledger=Ledger(place), data_set="ward")
    shared = share_budget(model, fits=2).fit(MANY)
    given = Ledger(tmp_path / "other", budget=Budget("ward", "add-remove", epsilon=9.0, delta=1e-6))
    (other,) = share_budget(PrivatePCA(ledger=given), fits=2).fit(MANY).ledger.standings()
    assert other.budget == given.given_budget
    with pytest.raises(BudgetExceeded) as caught:
        share_budget(model, fits=2)
    assert caught.value.code == "over-budget"
    shared.fit(MANY)
    with pytest.raises(BudgetExceeded):  # however small its parts
        share_budget(model.set_params(epsilon=0.1), fits=100)
    assert len(Ledger(place).sessions()) == 2


def test_a_budget_in_memory_does_not_go_to_another_process():
    model = share_budget(PrivatePCA(epsilon=4.0), fits=2)
    with pytest.raises(DataError) as caught:
        pickle.loads(pickle.dumps(model)).fit(ROWS)
    assert caught.value.code == "ledger-of-another-process"
    fitted = pickle.loads(pickle.dumps(model.fit(ROWS)))
    assert fitted.guarantee_ == model.guarantee_


@pytest.mark.parametrize("fits", [0, -1, 2.0, True, "10", None, 10**400])
def test_what_is_no_number_of_fits_is_refused(fits):
    with pytest.raises(DataError) as caught:
        share_budget(PrivatePCA(), fits=fits)
    assert caught.value.code == "bad-fits"


def test_what_has_no_budget_to_share_is_refused():
    for model in (PCA(), make_pipeline(PrivatePCA()), GridSearchCV(PrivatePCA(), {}), 3, None):
        with pytest.raises(DataError) as caught:
            share_budget(model, fits=2)
        assert caught.value.code == "no-budget-to-share"
    with pytest.raises(InvalidParameter):
        share_budget(PrivatePCA(n_components=-1), fits=2)


@pytest.mark.filterwarnings("ignore::eigenveil.WeakPrivacyWarning")
def test_noise_of_two_kinds_is_refused_and_not_overspent():
    model = share_budget(PrivatePCA(epsilon=4.0, mechanism="vector"), fits=5)
    with pytest.raises(BudgetExceeded):
        cross_validate(model, ROWS, error_score="raise")
    assert all(each.spent_epsilon <= 4.0 for each in model.ledger.standings())


GROUPED = {
    "search": lambda: GridSearchCV(PrivatePCA(2), {}, cv=GroupKFold(3)).fit(ROWS, groups=PERSONS),
    "cross_val_score": lambda: cross_val_score(PrivatePCA(2), ROWS, groups=PERSONS),
    "pipeline": lambda: cross_validate(make_pipeline(PrivatePCA(2)), ROWS, groups=PERSONS),
}


@pytest.mark.parametrize("call", GROUPED)
def test_groups_for_the_splitter_alone_warn(call, recwarn):
    GROUPED[call]()
    assert set(weak(recwarn)) == {next(iter(weak(recwarn)))}
    assert "protect each row by itself" in weak(recwarn)[0]


def test_groups_that_reach_the_fits_protect_them(recwarn):
    named, folds = FRAME.assign(person=PERSONS), {"cv": GroupKFold(3), "error_score": "raise"}
    frame = GridSearchCV(PrivatePCA(2, unit="person"), {}, **folds).fit(named, groups=PERSONS)
    assert frame.best_estimator_.guarantee_.unit == "person"
    step = GridSearchCV(make_pipeline(PrivatePCA(2)), {}, **folds)
    step.fit(ROWS, groups=PERSONS, privatepca__groups=PERSONS)
    assert step.best_estimator_[0].guarantee_.unit == "groups"
    with config_context(enable_metadata_routing=True):
        model = PrivatePCA(2)
        with pytest.raises(UnsetMetadataPassedError):
            GridSearchCV(model, {}, **folds).fit(ROWS, groups=PERSONS)
        routed = GridSearchCV(model.set_fit_request(groups=True), {}, **folds)
        routed.fit(ROWS, groups=PERSONS)
        assert routed.best_estimator_.guarantee_.unit == "groups"
        cross_validate(model, ROWS, params={"groups": PERSONS}, **folds)
    assert weak(recwarn) == []


class Own(FunctionTransformer):
    """Somebody's own step, which says nothing of itself."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        return tags


class Careless(TransformerMixin, BaseEstimator):
    """A step that does not keep its parameters, as scikit-learn's conventions want."""

    def __init__(self, power=2):
        pass

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


LEVELS, TRUTHS = [np.array([0, 1])], np.where(ROWS > 0, 1, 0)
LEARNED = [
    *(StandardScaler(), MinMaxScaler(), SimpleImputer(), PCA(2), Own(), SelectKBest(k=2)),
    Careless(),
    *(OneHotEncoder(sparse_output=False), FeatureUnion([("x", StandardScaler())])),
    OneHotEncoder(categories=LEVELS * 3, min_frequency=5, handle_unknown="ignore"),
    ColumnTransformer([("x", StandardScaler(), [0])], remainder="passthrough"),
    make_pipeline(Normalizer(), StandardScaler()),
]
TOLD = [
    *(FunctionTransformer(np.tanh), Normalizer(), PolynomialFeatures(), "passthrough"),
    FrozenEstimator(StandardScaler().fit(ROWS[:9])),
    OneHotEncoder(categories=LEVELS * 3, handle_unknown="ignore", sparse_output=False),
    ColumnTransformer([("x", Normalizer(), [0])], remainder="passthrough"),
]


@pytest.mark.parametrize("step", LEARNED + TOLD, ids=lambda step: type(step).__name__)
def test_a_step_before_the_fit_that_learned_from_all_rows_is_named(step, recwarn):
    model = PrivatePCA(1, unit=None)
    make_pipeline(step, model).fit(TRUTHS, Y)
    make_pipeline(step, make_pipeline(model, LogisticRegression())).fit(TRUTHS, Y)
    found = weak(recwarn)
    name = type(step).__name__
    assert len(found) == (2 if step in LEARNED else 0)
    assert all(f"{name} (step '{name.lower()}" in each for each in found)


def test_only_steps_before_the_fit_are_named_and_at_the_caller(recwarn):
    make_pipeline(PrivatePCA(2), StandardScaler(), LogisticRegression()).fit(ROWS, Y)
    assert weak(recwarn) == []
    pipeline = make_pipeline(MinMaxScaler(), StandardScaler(), PrivatePCA(2), LogisticRegression())
    fits = (partial(cross_val_score, pipeline, ROWS, Y), partial(pipeline.fit, ROWS, Y))
    for fit in fits:
        recwarn.clear()
        fit()
        (said,) = set(weak(recwarn))
        assert "MinMaxScaler (step 'minmaxscaler') and StandardScaler (step" in said
        assert {each.filename for each in recwarn} == {__file__}


def test_a_search_scores_models_of_unscaled_columns():
    rows = ROWS * [1e4, 1.0, 1e-4]
    search = GridSearchCV(PrivatePCA(epsilon=4.0), **SEARCH).fit(rows)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("error", [ValueError, KeyError, NotImplementedError])
def test_a_step_that_cannot_be_looked_at_stops_no_fit(error):
    class Odd(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

        def __sklearn_tags__(self):
            raise error("x")

    make_pipeline(Odd(), PrivatePCA()).fit(ROWS)
