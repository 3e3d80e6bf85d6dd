"""What a newcomer tries by habit works, or the refusal names the way that does."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.utils.validation import has_fit_parameter

import eigenveil
from eigenveil import (
    DataError,
    FederatedPCA,
    PrivacyError,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.errors import NoisyResultWarning, WeakPrivacyWarning, WrongOption
from eigenveil.federation.study.study import make_study
from eigenveil.io import open_rows
from eigenveil.privacy import elsewhere

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((400, 3)) * [5.0, 2.0, 1.0]
COUNTS = RNG.poisson(5.0, (400, 3)).astype(float)
PERSONS = np.arange(400) // 2
USES = ("transform", "predict", "predict_proba", "score_samples", "score", "mahalanobis")
FITS = [name for name in eigenveil.__all__ if hasattr(getattr(eigenveil, name), "fit")]


def pca(**options):
    return PrivatePCA(2, epsilon=8.0, **options)


def test_the_package_runs_as_a_module():
    words = [sys.executable, "-m", "eigenveil", "--version"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "eigenveil"), done.stderr


@pytest.mark.parametrize(
    ("word", "meant"), [("fitt", "'fit'"), ("ledgr", "'ledger'"), ("help", "'--help'")]
)
def test_a_command_that_is_none_suggests_one(word, meant, run):
    status, out, err = run(word, "x")
    assert (status, out) == (WrongOption.exit_status, "")
    assert f"There is no command '{word}'." in err
    assert f"Did you mean {meant}?" in err


@pytest.mark.parametrize(
    ("ending", "way"),
    [("xls", "as .xlsx"), ("por", "as .sav"), ("RData", "saveRDS"), ("xpt", "pandas.read_sas")],
)
def test_a_file_of_another_program_names_the_way_to_one_that_is_read(ending, way, tmp_path):
    path = tmp_path / f"Rows.{ending.upper()}"
    path.touch()
    with pytest.raises(DataError) as caught:
        open_rows([path])
    assert caught.value.code == "unknown-format"
    assert way in caught.value.hint


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
def test_a_path_in_place_of_rows_is_read(tmp_path):
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(patient_id=PERSONS).to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "other.csv").write_text((tmp_path / "rows.csv").read_text())
    whole = PrivatePCA(2, epsilon=8.0, random_state=0).fit(frame)
    for path in (tmp_path / "rows.csv", str(tmp_path / "rows.csv")):
        model = PrivatePCA(2, epsilon=8.0, random_state=0).fit(path)
        np.testing.assert_array_equal(model.components_, whole.components_)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
    visits = tmp_path / "visits.csv"
    assert pca().fit(visits, groups="patient_id").guarantee_.unit == "patient_id"
    sites = {"north": tmp_path / "rows.csv", "south": str(tmp_path / "other.csv")}
    assert FederatedPCA(2, epsilon=8.0).fit(sites).n_features_in_ == 3
    for code, fit in {
        "identifier-column": lambda: pca().fit(visits),
        "groups-beside-files": lambda: pca().fit(visits, groups=PERSONS),
        "no-such-file": lambda: pca().fit("none.csv"),
        "one-array-for-sites": lambda: FederatedPCA(2).fit(str(visits)),
        "rows-twice": lambda: FederatedPCA(2).fit([visits, str(visits)]),
        "not-two-dimensional": lambda: whole.transform(str(visits)),
    }.items():
        with pytest.raises(DataError) as caught:
            fit()
        assert caught.value.code == code, fit


@pytest.mark.parametrize("name", FITS)
def test_weights_of_rows_are_refused_in_words_and_not_announced(name):
    model = getattr(eigenveil, name)()
    assert not has_fit_parameter(model, "sample_weight")
    for method in ("fit", "partial_fit", "fit_predict", "fit_transform"):
        if hasattr(model, method):
            with pytest.raises(TypeError, match="takes no sample_weight") as caught:
                getattr(model, method)(ROWS, sample_weight=np.ones(400))
            assert isinstance(caught.value, DataError)
            assert "weights=" in caught.value.hint
    with pytest.raises(DataError, match="takes no weight"):
        model.fit(ROWS, weight=1)


@pytest.mark.parametrize("texts", [["a cat sat"] * 9, pd.Series(["a dog ran"] * 9)], ids=type)
def test_texts_in_place_of_counts_name_what_counts_them(texts):
    with pytest.raises(DataError) as caught:
        PrivateTopicModel(2).fit(texts)
    assert "PrivateTopicModel(vocabulary=" in caught.value.hint
    assert "cat" not in str(caught.value)


WORDS = ["broken", "cough", "fever", "high fever", "leg"]
TEXTS = ["High fever and cough", "a broken leg", "the leg hurts: broken", "cough, no fever"] * 500


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
def test_texts_are_counted_by_a_public_vocabulary(tmp_path):
    options = {"vocabulary": WORDS, "epsilon": 8.0, "random_state": 0}
    counts = np.array([[0, 1, 1, 1, 0], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1], [0, 1, 1, 0, 0]] * 500)
    model = PrivateTopicModel(2, **options).fit(counts)  # whose columns it names
    for texts in (TEXTS, np.array(TEXTS, dtype=object), pd.Series(TEXTS)):
        found = PrivateTopicModel(2, **options).fit(texts)
        np.testing.assert_array_equal(found.topics_, model.topics_)
        assert list(found.feature_names_in_) == WORDS
    assert {word for words in model.top_words(n_words=2) for word in words} <= set(WORDS)
    assert PrivateTopicModel(2, **options).fit(TEXTS, groups=np.arange(2000) // 2).guarantee_.unit
    model.save(tmp_path / "model.npz")
    with warnings.catch_warnings(action="error"):
        scores = PrivateTopicModel.load(tmp_path / "model.npz").transform(TEXTS)
    np.testing.assert_array_equal(scores, model.transform(pd.DataFrame(counts, columns=WORDS)))
    PrivateTopicModel(2, **options).fit([*TEXTS, None, 7])  # which have no words
    for odd, rows in (
        (np.nan, TEXTS),
        ([1], TEXTS),
        ("x", counts.tolist()),
        (None, counts.tolist()),
    ):
        PrivateTopicModel(2, **options).fit([odd, *rows])  # one person does not decide what all are


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *(((["Fever"], "word-never-found")), (["e-mail"], "word-never-found")),
        *(((["fever"] * 2, "bad-parameter")), ("fever", "bad-parameter"), ([], "bad-parameter")),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(words, code):
    with pytest.raises(DataError) as caught:
        PrivateTopicModel(2, vocabulary=words).fit(TEXTS)
    assert caught.value.code == code
    for counts in (np.ones((9, 3)), pd.DataFrame(np.ones((9, 5)), columns=WORDS[::-1])):
        with pytest.raises(DataError) as caught:
            PrivateTopicModel(2, vocabulary=WORDS).fit(counts)
        assert caught.value.code == "other-vocabulary"


def test_partial_fit_is_not_there_and_names_what_is():
    assert not hasattr(pca(), "partial_fit")
    with pytest.raises(AttributeError, match="PrivateStreamingPCA"):
        pca().partial_fit(ROWS)


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
def test_the_name_of_a_column_or_index_says_whose_each_row_is():
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    named = frame.set_index(pd.Index(PERSONS, name="patient_id"))
    beside = frame.assign(patient_id=PERSONS)
    for model in (
        pca().fit(beside, groups="patient_id"),
        pca(unit="patient_id").fit(named),
        pca().fit(named, groups="patient_id"),
    ):
        assert model.guarantee_.unit == "patient_id"
        assert model.n_features_in_ == 3
        assert model.n_samples_ < 300  # of 200 persons, but for noise
        assert model.transform(frame).shape == (400, 2)
    with pytest.raises(DataError) as caught:  # nobody said that the index is nobody's
        pca().fit(named)
    assert caught.value.code == "identifier-column"
    pca().fit(named.rename_axis("visit"))
    with pytest.raises(DataError) as caught:  # an array's columns have no names
        pca().fit(ROWS, groups="patient_id")
    assert caught.value.code == "no-unit-column"
    with pytest.raises(DataError) as caught:  # said twice, of two columns
        pca(unit="person").fit(beside, groups="patient_id")
    assert caught.value.code == "bad-groups"


def test_singular_values_are_there_as_of_scikit_learn():
    rows = np.tile(ROWS, (20, 1))
    model = PrivatePCA(2, epsilon=8.0, row_norm="auto", random_state=0).fit(rows)
    exact = PCA(2).fit(rows).singular_values_
    np.testing.assert_allclose(model.singular_values_, exact, rtol=0.05)


def test_without_dp_accounting_its_package_is_named(monkeypatch):
    certificate = pca().fit(ROWS).certificate_
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(PrivacyError, match="pip install dp-accounting"):
        elsewhere.dp_event(certificate)


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        *(({"epsilon": 100.0}, "epsilon = 40 promises"), ({"delta": 0.1}, "delta = 0.1 is above")),
        *(({}, None), ({"epsilon": 20.0}, None), ({"epsilon": 2.0, "delta": 0.0}, None)),
    ],
)
def test_a_guarantee_that_promises_little_warns(target, said, recwarn):
    PrivatePCA(1, **{"epsilon": 2.0} | target).fit(ROWS)
    found = [str(each.message) for each in recwarn if each.category is WeakPrivacyWarning]
    assert len(found) == (said is not None)
    assert not found or found[0].startswith(said)


def test_none_takes_all_components(tmp_path):
    for kind in (PrivatePCA, PrivateStreamingPCA):
        assert kind(None, epsilon=8.0).fit(ROWS).components_.shape == (3, 3)
    assert pca_of_all(covariates=[2]).n_components_ == 2
    sites = FederatedPCA(None, epsilon=8.0, covariates=[0]).fit([ROWS, -ROWS])
    assert sites.n_components_ == sites.study_.components == 2
    sites.save(tmp_path / "model.npz")
    assert FederatedPCA.load(tmp_path / "model.npz").n_components is None
    with pytest.raises(DataError, match="components"):
        make_study(**sites.study_.model_dump() | {"components": None})


def pca_of_all(**options):
    return PrivatePCA(None, epsilon=8.0, **options).fit(ROWS)


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
@pytest.mark.parametrize("name", FITS)
def test_missing_entries_of_new_rows_are_refused_as_by_scikit_learn(name):
    kind = getattr(eigenveil, name)
    options = {"epsilon": 30.0} if "epsilon" in kind().get_params() else {}
    model = kind(**options).fit({"a": COUNTS, "b": COUNTS + 1} if "Fed" in name else COUNTS)
    holed = COUNTS.copy()
    holed[[3, 5], 1] = np.nan
    used = [each for each in USES if hasattr(model, each)]
    assert used
    for method in used:
        with pytest.raises(ValueError, match="NaN") as caught:
            getattr(model, method)(holed)
        assert isinstance(caught.value, DataError)
        assert caught.value.message.startswith("2 of 400 rows have" if options else "row index 3")


def test_a_variance_that_noise_hides_is_no_less_than_noise_in_a_density():
    rows = np.random.default_rng(0).standard_normal((4000, 3)) * [1e4, 1e4, 1e-3]
    options = {"epsilon": 8.0, "random_state": 1}  # whose noise takes all of the third variance
    model = PrivatePCA(2, **options).fit(rows)
    assert model.noise_variance_ == 0.0
    with pytest.warns(NoisyResultWarning, match="scale='private'"):
        found = model.score_samples(rows)
    along = model.components_.T * (model.explained_variance_ - model.noise_floor_)
    raised = along @ model.components_ + model.noise_floor_ * np.eye(3)
    exact = multivariate_normal(model.mean_, raised).logpdf(rows)
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    scaled = PrivatePCA(2, scale="private", **options).fit(rows)
    assert scaled.score(rows) > model.score(rows)
