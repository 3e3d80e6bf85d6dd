"""StreamingPCA: exact where the rank suffices, bounded, and the same however rows arrive."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from eigenveil import DataError, PrivatePCA, StreamingPCA
from eigenveil.linalg.subspace import adjust_rank, append, subspace_distance, subspace_of

EXACT = 1e-10
DIGITS = load_digits().data
RESULTS = (
    "components_",
    "singular_values_",
    "explained_variance_",
    "explained_variance_ratio_",
    "mean_",
    "n_components_",
    "n_samples_seen_",
    "subspace_",
)


def rows_of_rank(rank, *, count=200, features=20, seed=0, mean=0.0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, rank)) @ rng.standard_normal((rank, features))
    return rows + mean * rng.standard_normal(features)


def svd(rows, rank):
    _, strengths, directions = np.linalg.svd(rows, full_matrices=False)
    return strengths[:rank], directions[:rank].T


def assert_tracks(model, rows, rank):
    """The model has the exact singular values and directions of weighted rows of that rank."""
    strengths, basis = svd(rows, rank)
    scale = strengths[0]
    assert np.allclose(model.singular_values_[:rank], strengths, rtol=0, atol=EXACT * scale)
    assert np.all(model.singular_values_[rank:] < EXACT * scale)
    assert subspace_distance(model.components_[:rank].T, basis) < EXACT


def assert_equal(first, second):
    for name in RESULTS[:-1]:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


@given(
    seed=st.integers(0, 2**32 - 1),
    rank=st.integers(1, 5),
    block_size=st.integers(1, 40),
    center=st.booleans(),
    cuts=st.lists(st.integers(0, 150), max_size=6),
)
def test_exact_and_the_same_however_rows_are_cut(seed, rank, block_size, center, cuts):
    rows = rows_of_rank(rank, count=150, seed=seed, mean=3.0 if center else 0.0)
    options = {"block_size": block_size, "center": center}
    whole = StreamingPCA(rank + center, **options).fit(rows)
    parts = StreamingPCA(rank + center, **options)
    for part in np.split(rows, sorted(cuts)):
        if len(part):
            parts.partial_fit(part)
            assert np.isfinite(parts.components_).all()  # looking in between changes nothing
    assert_equal(whole, parts)
    assert_tracks(whole, rows - rows.mean(axis=0) if center else rows, rank)
    assert whole.explained_variance_ratio_.sum() == pytest.approx(1.0, abs=1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.integers(0, 70), min_size=2, max_size=5),
    center=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_any_tree_of_merges_gives_the_exact_result_of_all_rows(seed, counts, center, order):
    rows = rows_of_rank(4, count=sum(counts) + 30, seed=seed, mean=5.0 if center else 0.0)
    models = []
    for part in np.split(rows, np.cumsum(counts)):
        model = StreamingPCA(5, center=center, block_size=order.randint(1, 30))
        models.append(model.partial_fit(part) if len(part) else model)
    while len(models) > 1:
        order.shuffle(models)
        first, second = models.pop(), models.pop()
        before = pickle.dumps(second)
        models.append(first.merge(second))
        assert pickle.dumps(second) == before
    merged = models[0]
    assert merged.n_samples_seen_ == len(rows)
    assert_tracks(merged, rows - rows.mean(axis=0) if center else rows, 4)
    if center:
        assert np.allclose(merged.mean_, rows.mean(axis=0), atol=1e-10)
        assert np.allclose(
            merged.explained_variance_[:4], PCA(4).fit(rows).explained_variance_, rtol=1e-9
        )
    more = np.vstack([rows, rows[::-1][:17] - rows[:17]])
    merged.partial_fit(more[len(rows) :])
    assert_tracks(merged, more - more.mean(axis=0) if center else more, 4 + center)
    assert merged.explained_variance_ratio_.sum() == pytest.approx(1.0, abs=1e-9)


def test_merging_a_model_with_itself_counts_its_rows_twice():
    rows = rows_of_rank(3, count=40)
    model = StreamingPCA(3).fit(rows)
    model.merge(model)
    assert model.n_samples_seen_ == 80
    assert_tracks(model, np.vstack([rows, rows]), 3)


def test_every_block_is_the_papers_ssvd():
    model = StreamingPCA(6, n_oversamples=0).fit(DIGITS)
    state = subspace_of(DIGITS[:25], rank=6)
    for start in range(25, len(DIGITS), 25):
        state = append(state, DIGITS[start : start + 25], rank=6)
    assert np.array_equal(model.singular_values_, state.strengths)
    assert subspace_distance(model.components_.T, state.basis) < 1e-14


@pytest.mark.parametrize("forgetting", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("count", [75, 83])  # the last block full or not
def test_forgetting_is_a_weighted_decomposition(forgetting, center, count):
    rows = rows_of_rank(4, count=count, mean=2.0 if center else 0.0)
    model = StreamingPCA(5, block_size=25, forgetting=forgetting, center=center)
    model.partial_fit(rows[:40]).partial_fit(rows[40:])
    weights = forgetting ** (2.0 * ((count - 1) // 25 - np.arange(count) // 25))
    mean = weights @ rows / weights.sum() if center else np.zeros(20)
    weighted = np.sqrt(weights)[:, None] * (rows - mean)
    assert_tracks(model, weighted, 4)
    assert np.allclose(model.mean_, mean, atol=1e-12)
    share = model.singular_values_**2 / np.sum(weighted**2)
    assert np.allclose(model.explained_variance_ratio_, share, atol=1e-12)
    covariance = np.cov(rows.T, aweights=weights) if center else weighted.T @ weighted
    if not center:
        covariance /= weights.sum()
    values = np.linalg.eigvalsh(covariance)[::-1]
    assert np.allclose(model.explained_variance_, values[:5], atol=1e-9)
    if forgetting < 1:  # the test tells weights from none
        assert not np.allclose(model.singular_values_[:4], svd(rows - mean, 4)[0], rtol=1e-3)


def test_centered_is_scikit_learns_pca_where_the_rank_suffices():
    rows = DIGITS + 100.0
    model = StreamingPCA(64, center=True).fit(rows)
    plain = PCA(64).fit(rows)
    kept = plain.singular_values_ > 1e-5
    assert np.allclose(model.mean_, plain.mean_, atol=1e-10)
    assert np.allclose(model.singular_values_[kept], plain.singular_values_[kept], rtol=1e-10)
    assert np.allclose(model.explained_variance_, plain.explained_variance_, atol=1e-9)
    assert np.allclose(model.explained_variance_ratio_, plain.explained_variance_ratio_, atol=1e-12)
    scores, wanted = model.transform(rows), plain.transform(rows)
    assert np.allclose(np.abs(scores[:, :20]), np.abs(wanted[:, :20]), atol=1e-7)
    assert np.allclose(model.inverse_transform(scores), rows, atol=1e-9)


def test_more_directions_kept_are_nearer_to_the_exact_subspace():
    _, exact = svd(DIGITS, 6)
    errors = [
        subspace_distance(StreamingPCA(6, n_oversamples=more).fit(DIGITS).components_.T, exact)
        for more in (0, 10, 58)
    ]
    assert errors[0] > 2 * errors[1]
    assert errors[2] < EXACT
    assert StreamingPCA(6, n_oversamples=10).fit(DIGITS).components_.shape == (6, 64)


def test_single_precision_and_foreign_layouts_give_the_same():
    rows = DIGITS.astype(np.float32)  # whole numbers: exact in both
    wanted = StreamingPCA(5).fit(DIGITS)
    for other in (rows, np.asfortranarray(DIGITS), np.repeat(DIGITS, 2, axis=1)[:, ::2]):
        model = StreamingPCA(5)
        for start in range(0, len(DIGITS), 100):
            model.partial_fit(other[start : start + 100])
        assert_equal(model, wanted)
    assert wanted.transform(rows).dtype == np.float32
    large = StreamingPCA(2).fit(DIGITS).partial_fit(np.full((2, 64), 1e30, np.float32))
    assert np.isfinite(large.singular_values_).all()  # though its square is no float32


def test_rank_grows_with_the_rows_seen():
    model = StreamingPCA(5)
    for seen in range(1, 9):
        model.partial_fit(DIGITS[seen - 1 : seen])
        assert model.n_components_ == min(seen, 5)
        assert model.transform(DIGITS).shape == (len(DIGITS), min(seen, 5))
    assert_tracks(StreamingPCA(5).fit(DIGITS[:4]), DIGITS[:4], 4)


def test_zero_rows():
    model = StreamingPCA(2, center=True).fit(np.zeros((60, 4)))
    assert np.array_equal(model.explained_variance_ratio_, [0, 0])
    assert np.allclose(model.components_ @ model.components_.T, np.eye(2))
    assert np.array_equal(
        StreamingPCA(1, center=True).fit(np.ones((1, 3))).explained_variance_, [0]
    )


def flat_rows(count, strengths, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, len(strengths))) * strengths


@pytest.mark.parametrize("extra", [0, 4])
def test_adaptive_rank_moves_by_one_per_block(extra):
    model = StreamingPCA(2, block_size=20, adaptive_rank=(1, 15), n_oversamples=extra)
    ranks = []
    for block in range(30):
        # twelve directions alike, then two that drown the others: a third one comes and goes
        strengths = np.ones(12) if block < 15 else np.r_[1e4, 1e4, np.ones(10)]
        model.partial_fit(flat_rows(20, strengths, seed=block))
        ranks.append(model.n_components_)
    assert set(np.diff(ranks)) <= {-1, 0, 1}
    assert ranks[0] == 3
    assert ranks[14] in (6, 7)  # a share of 15 per cent lies between sixths and sevenths
    assert sorted(ranks[-2:]) == [2, 3]


def test_adaptive_rank_is_adjust_rank_once_a_block():
    model = StreamingPCA(3, adaptive_rank=(2, 12), n_oversamples=0).fit(DIGITS)
    state = subspace_of(DIGITS[:25], rank=3)
    for start in range(25, len(DIGITS), 25):
        state = adjust_rank(state, alpha=2, beta=12)
        state = append(state, DIGITS[start : start + 25], rank=state.rank)
    assert model.n_components_ == state.rank > 3
    assert np.allclose(model.singular_values_, state.strengths, rtol=1e-12)


def test_adaptive_rank_stays_between_1_and_the_features():
    grows = StreamingPCA(2, block_size=5, adaptive_rank=(0, 1)).fit(flat_rows(500, np.ones(6)))
    assert grows.n_components_ == 6
    falls = StreamingPCA(5, block_size=5, adaptive_rank=(99, 100)).fit(flat_rows(500, np.ones(6)))
    assert falls.n_components_ == 1
    both = falls.merge(grows)
    assert both.n_components_ == 6
    assert StreamingPCA(2, adaptive_rank=(1, 10)).merge(grows).n_components_ == 6
    assert StreamingPCA(2).merge(grows).n_components_ == 2


def test_state_does_not_grow_with_the_stream():
    model = StreamingPCA(4, block_size=25, n_oversamples=2, center=True)
    rng = np.random.default_rng(0)
    sizes = set()
    for turn in range(200):
        model.partial_fit(rng.standard_normal((33, 50)))
        if turn % 25 == 24:
            sizes.add(len(pickle.dumps(model)))  # after as many waiting rows: none
    assert len(sizes) == 1
    assert sizes.pop() < 8 * 50 * (25 + 6 + 4) + 4000


@pytest.mark.parametrize("features", [30, 2000])  # both ways of finding leading directions
def test_memory_of_the_work_is_bounded(features):
    rows = np.random.default_rng(0).standard_normal((600, features))
    StreamingPCA(4, n_oversamples=2).fit(rows[:100])  # what is imported once
    peaks = []
    for count in (100, 600):
        model = StreamingPCA(4, n_oversamples=2)
        tracemalloc.start()
        for start in range(0, count, 60):
            model.partial_fit(rows[start : min(start + 60, count)])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 10_000
    assert peaks[1] < 4 * 8 * (25 + 6) * features + 100_000


def test_fit_starts_anew_and_a_failed_one_leaves_nothing():
    model = StreamingPCA(2).fit(DIGITS)
    model.fit(DIGITS[:50, :10])
    assert (model.n_samples_seen_, model.n_features_in_) == (50, 10)
    assert_equal(model, StreamingPCA(2).fit(DIGITS[:50, :10]))
    with pytest.raises(DataError):
        model.fit(np.full((3, 4), np.nan))
    assert not hasattr(model, "components_")


def test_frames_keep_their_names():
    frame = pd.DataFrame(DIGITS[:, :6], columns=[f"p{i}" for i in range(6)])
    model = StreamingPCA(2).set_output(transform="pandas")
    model.partial_fit(frame[:40]).partial_fit(frame[40:])
    assert list(model.get_feature_names_out()) == ["streamingpca0", "streamingpca1"]
    assert list(model.transform(frame).columns) == list(model.get_feature_names_out())
    assert_equal(model, StreamingPCA(2).fit(DIGITS[:, :6]))
    with pytest.raises(DataError, match="feature names"):
        model.partial_fit(frame[frame.columns[::-1]])
    with pytest.raises(DataError, match="different names") as caught:
        model.merge(StreamingPCA(2).fit(frame.rename(columns={"p3": "q"})))
    assert "q" in caught.value.hint
    empty = StreamingPCA(2).merge(model)
    assert list(empty.feature_names_in_) == list(frame.columns)
    assert_equal(empty, model)


def test_results_before_the_first_row():
    model = StreamingPCA(2)
    for name in RESULTS:
        with pytest.raises(NotFittedError):
            getattr(model, name)
    for method in (model.transform, model.inverse_transform):
        with pytest.raises(NotFittedError):
            method(DIGITS)
    assert not hasattr(model.merge(StreamingPCA(2)), "components_")


def test_settings_changed_on_the_way_count_from_the_next_fit_on():
    model, same = StreamingPCA(2).fit(DIGITS[:30]), StreamingPCA(2).fit(DIGITS[:30])
    model.set_params(center=True, n_components=5, forgetting=0.5)
    for one in (model, same):
        one.partial_fit(DIGITS[30:]).merge(StreamingPCA(2).fit(DIGITS))
    assert_equal(model, same)
    assert model.fit(DIGITS).n_components_ == 5


def test_results_cannot_reach_into_the_state():
    model = StreamingPCA(2).fit(DIGITS[:50])
    before = model.components_
    for name in ("components_", "singular_values_", "mean_"):
        getattr(model, name)[:] = 7.0
    model.subspace_.basis[:] = 7.0
    model.subspace_.strengths[:] = 7.0
    assert np.array_equal(model.components_, before)
    assert model.singular_values_[0] != 7.0


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_bad_rows_are_not_taken(started, single):
    model, same = StreamingPCA(2, center=True), StreamingPCA(2, center=True)
    if started:
        model.partial_fit(DIGITS[:60, :4])
        same.partial_fit(DIGITS[:60, :4])
    bad = np.ones((50, 4), np.float32 if single else np.float64)
    bad[37, 2] = np.nan
    for rows in (bad, bad[:0], bad[0]):
        with pytest.raises(DataError):
            model.partial_fit(rows)
    for one in (model, same):
        one.partial_fit(DIGITS[60:, :4])
    assert_equal(model, same)


def test_rows_that_do_not_fit_the_state():
    model = StreamingPCA(2).fit(DIGITS)
    for rows, match in (
        (DIGITS[:, :5], "X has 5 features, but StreamingPCA is expecting 64"),
        (scipy.sparse.csr_array(DIGITS), "Sparse"),
        (np.full((2, 64), 1e200), "overflow"),
    ):
        with pytest.raises(DataError, match=match):
            model.partial_fit(rows)
    assert model.n_samples_seen_ == len(DIGITS)
    for scores in (np.ones((3, 5)), np.ones(2)):
        with pytest.raises(DataError, match="do not have 2 columns"):
            model.inverse_transform(scores)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    ("match", "other"),
    [
        ("PrivatePCA cannot be merged", PrivatePCA(2)),
        ("ndarray cannot be merged", DIGITS),
        ("center=False and center=True", StreamingPCA(2, center=True).fit(DIGITS)),
        ("forgetting=1.0 and forgetting=0.5", StreamingPCA(2, forgetting=0.5).fit(DIGITS)),
    ],
)
def test_states_of_different_kinds_do_not_merge(match, other, empty):
    model = StreamingPCA(2) if empty else StreamingPCA(2).fit(DIGITS)
    with pytest.raises(DataError, match=match) as caught:
        model.merge(other)
    assert caught.value.hint
    assert empty or model.n_samples_seen_ == len(DIGITS)


def test_states_of_other_features_do_not_merge():
    with pytest.raises(DataError, match="64 and 9 features"):
        StreamingPCA(2).fit(DIGITS).merge(StreamingPCA(2).fit(DIGITS[:, :9]))
    model = StreamingPCA(20)
    with pytest.raises(DataError, match="n_components = 20 is more than n_features = 9"):
        model.merge(StreamingPCA(2).fit(DIGITS[:, :9]))
    assert not hasattr(model, "components_")
