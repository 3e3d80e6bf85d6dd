"""Missing entries in streams and trees: the same statistics and meaning as at one table."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import PrivatePCA, PrivateStreamingPCA, StreamingPCA
from eigenveil.errors import DataError, EigenveilError
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.linalg.subspace import subspace_distance
from eigenveil.models.certify import plan_of
from eigenveil.models.streaming.state import make_stream_plan
from eigenveil.models.task import TASKS
from eigenveil.moments import stream_sums
from eigenveil.moments.histograms import ObservedCounts, ObservedPairs
from eigenveil.moments.rows import Block
from eigenveil.privacy.streams import PARTS
from refusal_tools import refuses

D = 4
SEEDS = st.integers(0, 2**32 - 1)
KEEPS = ("zero", "independent", "pairs")
CORRECTS = {"independent": ObservedCounts, "pairs": ObservedPairs}
PUBLISH = {
    "end": {},
    "continual": {"publish": "continual", "horizon": 5},
    "blocks": {"publish": "blocks", "forgetting": 0.5},
}
every_publish = pytest.mark.parametrize("publish", PUBLISH)
every_adjacency = pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
pytestmark = pytest.mark.filterwarnings(
    "ignore::eigenveil.NoisyResultWarning", "ignore::eigenveil.InvalidRowsWarning"
)


def holed(seed, rows=500, share=0.3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, D)) * [8.0, 5.0, 1.0, 1.0]
    X[rng.random(X.shape) < share] = np.nan
    return X


def stream_of(publish="end", **given):
    options = {"epsilon": 4.0, "delta": 1e-6, "random_state": 3, **PUBLISH[publish], **given}
    return PrivateStreamingPCA(2, **options)


def results(stream, blocks):
    """Components and all released numbers after every block."""
    found = []
    for block in blocks:
        stream.partial_fit(block)
        found.append(stream._result)
    if stream.publish == "end":
        found = [stream.release()._result]
    return [
        np.concatenate([each.factors.components.ravel(), [each.factors.rows]]) for each in found
    ]


# -- laws


@pytest.mark.parametrize("missing", KEEPS)
@settings(max_examples=20)
@given(seed=SEEDS, data=st.data())
def test_cuts_and_order_of_rows_change_no_bit_at_the_end(missing, seed, data):
    rows = holed(seed, 60)
    cuts = sorted(data.draw(st.lists(st.integers(0, 60), max_size=4)))
    order = np.random.default_rng(seed).permutation(60)
    one = results(stream_of(missing=missing), [rows])
    other = results(stream_of(missing=missing), np.split(rows[order], cuts))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("missing", KEEPS)
def test_streams_of_devices_merge(missing):
    rows = holed(1)
    one, other = stream_of(missing=missing), stream_of(missing=missing)
    merged = one.partial_fit(rows[:200]).merge(other.partial_fit(rows[200:])).release()
    alone = stream_of(missing=missing).partial_fit(rows).release()
    assert np.array_equal(merged.components_, alone.components_)
    other = stream_of(missing="leave-out").partial_fit(rows)
    with pytest.raises(DataError, match=r"missing is .* here and 'leave-out' there"):
        stream_of(missing=missing).partial_fit(rows).merge(other)


@every_publish
def test_where_nothing_is_missing_what_is_kept_changes_no_bit(publish):
    blocks = np.split(holed(2, share=0.0), 5)
    found = [results(stream_of(publish, missing=each), blocks) for each in ("leave-out", "zero")]
    assert np.array_equal(*found)


def test_leaving_out_is_what_it_was_without_the_option():
    table = TASKS["pca"].options("stream")
    assert table.missing == "leave-out"
    assert make_stream_plan(table, features=D).fractions == {"scale": 0.02, "moment": 0.98}


# -- what a row moves, and what is recorded of it


def factor_matrix(factor):
    """C of docs/proofs/streams.md."""
    weights = np.array(factor.weights, dtype=float) / PARTS
    decays = 1.0 - np.array(factor.losses, dtype=float) / PARTS
    powers = [1.0, *(np.sum(weights * decays ** (k - 1)) for k in range(1, factor.blocks))]
    return sum(np.diag(np.full(factor.blocks - k, p), -k) for k, p in enumerate(powers))


def isometric(values):
    if values.ndim == 1:
        return values
    lower = np.tril_indices(values.shape[0])
    return values[lower] * np.where(lower[0] == lower[1], 1.0, math.sqrt(2.0))


@pytest.mark.parametrize("missing", CORRECTS)
@every_adjacency
def test_a_row_moves_all_counts_of_a_continual_stream_by_no_more_than_recorded(
    missing, adjacency, monkeypatch
):
    """With the same noise; the worst row, of the first block, nearly reaches it."""
    seen = []
    real = stream_sums.PrefixSum.release

    def kept(self, total):
        found = real(self, total)
        seen.append((self._record, found.values.copy()))
        return found

    monkeypatch.setattr(stream_sums.PrefixSum, "release", kept)
    blocks = np.split(holed(3), 5)
    whole, none = np.ones((1, D)), np.full((1, D), np.nan)
    first = [np.concatenate([blocks[0], whole]), *blocks[1:]]
    other = [np.concatenate([blocks[0], none]) if adjacency == "replace-one" else blocks[0]]
    found = []
    for given_blocks in (first, [*other, *blocks[1:]]):
        seen.clear()
        results(
            stream_of("continual", missing=missing, adjacency=adjacency, epsilon=1.0), given_blocks
        )
        counts = [(r, v) for r, v in seen if r.statistic in ("column-counts", "pair-counts")]
        found.append(np.array([isometric(values) for _, values in counts]))
    record = counts[0][0]
    blocks_moved = np.diff(found[0] - found[1], axis=0, prepend=0.0)
    moved = np.linalg.norm(factor_matrix(record.stream) @ blocks_moved)
    assert moved <= record.sensitivity() * (1 + 1e-9)
    assert moved >= 0.99 * record.sensitivity()


@every_adjacency
@pytest.mark.parametrize("missing", KEEPS)
@every_publish
def test_every_release_is_certified_and_changed_certificates_do_not_hold(
    publish, missing, adjacency
):
    stream = stream_of(publish, missing=missing, adjacency=adjacency, random_state=None)
    results(stream, np.split(holed(4), 5))
    certificate = stream.certificate_
    assert check(certificate).holds
    assert plan_of(certificate).missing == missing
    names = [each.name for each in certificate.releases]
    assert ("observed entries" in names) == (missing in CORRECTS)
    assert 3.9 < stream.guarantee_.epsilon <= 4.0
    assert "rows with an infinite entry are left out" in " ".join(stream.guarantee_.caveats)
    if missing in CORRECTS:  # without the counts, the rest would cost less than the target
        forged = certificate.model_copy(update={"releases": certificate.releases[1:]})
        assert not check(forged).holds


def test_units_count_as_much_in_the_counts_as_in_the_rest():
    rows = holed(5, 300)
    ids = np.arange(300) // 10  # of ten rows three count, with a third each
    stream = stream_of(unit="person", max_rows_per_unit=3, missing="independent")
    stream.partial_fit(rows[:155], groups=ids[:155]).partial_fit(rows[155:], groups=ids[155:])
    counts = stream._stream._sums[0]
    taken = np.concatenate([np.flatnonzero(ids == unit)[:3] for unit in range(30)])
    expected = np.count_nonzero(~np.isnan(rows[taken]), axis=0) / 3.0
    assert np.ldexp(counts.integers().astype(float), counts.grid) == pytest.approx(
        expected, abs=1e-4
    )
    assert check(
        stream_of(unit="p", missing="pairs", random_state=None)
        .partial_fit(rows, groups=ids)
        .release()
        .certificate_
    ).holds


# -- what comes out


@every_publish
@pytest.mark.parametrize("missing", CORRECTS)
def test_variances_are_those_of_whole_rows(publish, missing):
    """Rows far below a public norm, with next to no noise: what is left is the correction."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60_000, 3)) * [6.0, 3.0, 2.0]
    X[rng.random(X.shape) < [0.5, 0.2, 0.3]] = np.nan
    options = (
        {"row_norm": 60.0, "epsilon": 40.0, "forgetting": 1.0}
        if publish == "blocks"
        else {"row_norm": 60.0, "epsilon": 40.0}
    )
    stream = stream_of(publish, missing=missing, **options)
    results(stream, np.split(X, 5))
    assert stream.explained_variance_ == pytest.approx([36, 9], rel=0.1)
    zero = stream_of(publish, missing="zero", **options)
    results(zero, np.split(X, 5))
    assert zero.explained_variance_[0] == pytest.approx(18, rel=0.1)
    assert np.isfinite(stream.transform(X[:9])).all()


def test_a_stream_at_its_end_is_a_table_released_once():
    """The same counts, and what is made of them."""
    X = holed(9, 4000, share=0.4)
    given_options = {"missing": "independent", "epsilon": 50.0, "row_norm": 60.0}
    table = PrivatePCA(
        2, mechanism="gaussian", center=False, delta=1e-6, random_state=1, **given_options
    ).fit(X)
    stream = stream_of(**given_options).partial_fit(X).release()
    assert abs(table.components_ @ stream.components_.T).diagonal() == pytest.approx(1, abs=0.01)
    assert stream.explained_variance_ == pytest.approx(table.explained_variance_, rel=0.1)


# -- rows and options of every wrong kind


@every_publish
@pytest.mark.parametrize("missing", KEEPS)
def test_rows_without_an_entry_and_columns_never_seen_stop_nothing(publish, missing):
    X = holed(10)
    X[::7] = np.nan
    X[:, 3] = np.nan
    stream = stream_of(publish, missing=missing)
    results(stream, np.split(X, 5))
    assert np.isfinite(stream.components_).all()
    assert np.isfinite(stream.transform(X)).all()
    empty = stream_of(publish, missing=missing)
    results(empty, [np.full((3, D), np.nan)] * 2 + [np.empty((0, D))] * 3)
    assert np.isfinite(empty.components_).all()


def test_options_that_cannot_be_beside_each_other_are_refused():
    for missing in CORRECTS:
        with refuses("cannot-correct", kind=EigenveilError) as error:
            stream_of(missing=missing, sketch_size=3).partial_fit(holed(1))
        assert "sketch_size" in error.value.hint
    with pytest.raises(EigenveilError, match="missing"):
        stream_of(missing="drop").partial_fit(holed(1))
    assert stream_of(missing="zero", sketch_size=3).partial_fit(holed(1)).release().usable_.size


def test_wide_streams_that_correct_release_the_whole_moment():
    wide = TASKS["pca"].options("stream", missing="independent")
    assert make_stream_plan(wide, features=2000).mechanism == "gaussian"
    assert make_stream_plan(wide.changed(missing="zero"), features=2000).mechanism == "sketch"


def test_a_private_stream_of_pure_epsilon_pays_for_its_counts():
    stream = stream_of(missing="pairs", delta=0.0, epsilon=20.0, random_state=None)
    guarantee = stream.partial_fit(holed(11)).release().guarantee_
    assert guarantee.certified
    assert guarantee.delta == 0.0
    assert 19.9 < guarantee.epsilon <= 20.0


def test_leaves_of_a_tree_count_what_they_observe():
    study = make_tree_study(
        MergeTree(2, 1), features=D, n_components=2, epsilon=1.0, delta=1e-6, missing="pairs"
    )
    counts = study.queries[0].accumulator
    assert isinstance(counts, ObservedPairs)
    assert study.queries[0].record.noise.noise_parts == 2
    counts.update(Block(holed(1)))
    other = make_tree_study(
        MergeTree(2, 1), features=D, n_components=2, epsilon=1.0, delta=1e-6, missing="zero"
    )
    assert other.hash != study.hash


# -- tracking without noise


def low_rank(seed, *, share, rows=3000, features=50, rank=5):
    """Directions, and rows along them with a little noise; a share of the entries is missing."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((features, rank)))[0]
    X = (rng.standard_normal((rows, rank)) * np.linspace(5, 2.5, rank)) @ basis.T
    X += 0.3 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < share] = np.nan
    return basis, X


def tracked(rows, **given):
    return StreamingPCA(5, **given).partial_fit(rows)


def test_filled_rows_show_the_subspace_and_its_variances():
    """Nearer than twice the angle without missing entries; zeros and complete rows are not."""
    for seed in range(3):
        basis, whole = low_rank(seed, share=0.0)
        _, rows = low_rank(seed, share=0.3)
        best = subspace_distance(tracked(whole).components_.T, basis)
        model = tracked(rows, missing="fill")
        found = subspace_distance(model.components_.T, basis)
        assert found < 2.0 * best
        assert model.explained_variance_[[0, -1]] == pytest.approx([25.1, 6.34], rel=0.15)
        assert subspace_distance(tracked(np.nan_to_num(rows)).components_.T, basis) > 2.5 * best
        _, few = low_rank(seed, share=0.05)  # of thirteen rows one is complete
        left = tracked(few, missing="leave-out")
        assert left.n_samples_seen_ == np.count_nonzero(~np.isnan(few).any(axis=1)) < 300
        filled = tracked(few, missing="fill")
        assert subspace_distance(filled.components_.T, basis) < subspace_distance(
            left.components_.T, basis
        )


def test_rows_of_low_rank_are_completed():
    """What follows from what is observed is found: rows without noise, a third missing."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((30, 3)))[0]
    X = rng.standard_normal((4000, 3)) @ (basis * [3.0, 2.0, 1.0]).T
    rows = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    model = StreamingPCA(3, missing="fill", forgetting=0.9).partial_fit(rows)
    assert subspace_distance(model.components_.T, basis) < 1e-3
    back = model.inverse_transform(model.transform(rows[-100:]))
    assert np.abs(back - X[-100:]).max() < 0.05


@pytest.mark.parametrize("options", [{}, {"center": True}, {"adaptive_rank": (1, 10)}])
def test_how_rows_are_cut_changes_nothing_of_what_is_filled(options):
    _, rows = low_rank(4, share=0.4, rows=310)
    rows += 3.0
    one = tracked(rows, missing="fill", **options)
    other = StreamingPCA(5, missing="fill", **options)
    for part in np.split(rows, [1, 26, 27, 90, 300]):
        other.partial_fit(part)
        _ = other.components_
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.mean_, other.mean_)


@pytest.mark.parametrize("missing", ["leave-out", "fill"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_where_nothing_is_missing_tracking_is_as_before(missing, kind):
    _, rows = low_rank(5, share=0.0, rows=200)
    one, other = (tracked(rows.astype(kind), missing=each) for each in ("refuse", missing))
    for name in ("components_", "singular_values_", "explained_variance_ratio_"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(one.transform(rows), other.transform(rows))


def test_a_mean_is_tracked_through_missing_entries():
    rng = np.random.default_rng(6)
    rows = low_rank(6, share=0.0)[1] + 40.0
    rows[rng.random(rows.shape) < 0.3] = np.nan
    model = tracked(rows, missing="fill", center=True)
    assert np.abs(model.mean_ - np.nanmean(rows, axis=0)).max() < 0.5
    assert model.explained_variance_[0] < 40.0
    assert np.abs(tracked(rows[:25], missing="fill", center=True).mean_ - 40.0).max() < 6.0


def test_rows_without_any_entry_are_left_out_and_columns_never_seen_are_not_tracked():
    _, rows = low_rank(7, share=0.3, rows=300)
    rows[::3] = np.nan
    rows[:, 9] = np.nan
    model = tracked(rows, missing="fill")
    assert model.n_samples_seen_ == 200
    assert np.abs(model.components_[:, 9]).max() < 1e-12
    assert np.isfinite(model.transform(rows)).all()
    nothing = StreamingPCA(2, missing="fill").partial_fit(np.full((3, 6), np.nan))
    assert nothing.n_samples_seen_ == 0
    assert nothing.components_.shape == (0, 6)
    nothing.partial_fit(np.eye(6))
    assert nothing.components_.shape == (2, 6)


def test_a_missing_entry_is_refused_with_what_to_set_and_an_infinite_one_always():
    _, rows = low_rank(8, share=0.3, rows=60)
    with refuses("missing-value", "is NaN, a missing value") as error:
        tracked(rows)
    assert "missing='fill'" in error.value.hint
    model = tracked(np.nan_to_num(rows))
    before = model.components_
    with pytest.raises(DataError, match="missing value"):
        model.partial_fit(rows)
    assert np.array_equal(before, model.components_)
    rows[5, 5] = np.inf
    for missing in ("refuse", "leave-out", "fill"):
        with pytest.raises(DataError) as error:
            tracked(rows[5:], missing=missing)
        assert error.value.code in ("not-finite", "missing-value")
        assert missing == "refuse" or error.value.code == "not-finite"
    with pytest.raises(DataError, match="missing"):
        tracked(low_rank(8, share=0.0)[1], missing="fill").merge(model)


def test_fills_merge():
    basis, rows = low_rank(9, share=0.3)
    one, other = (tracked(each, missing="fill") for each in (rows[:1500], rows[1500:]))
    assert subspace_distance(one.merge(other).components_.T, basis) < 0.05
    assert one.n_samples_seen_ == 3000
