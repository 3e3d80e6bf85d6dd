"""The streaming baselines: each on a stream whose directions are known.

All streams here are seeded: these are laws and known answers, not tests of distributions.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import DataError
from eigenveil.linalg.subspace import subspace_distance
from eigenveil_papers.published.federated_pca import FPCA
from eigenveil_papers.published.frequent_directions import FrequentDirections
from eigenveil_papers.published.spirit import Spirit
from eigenveil_papers.published.trackers import BlockPower, Blocks, Grouse, Incremental

FEATURES, RANK = 20, 3

# makes a tracker of 3 components, and its distance allowed after 4000 rows of rank 3
TRACKERS = {
    "fpca": (lambda: FPCA(n_components=RANK, adapt=False), 1e-10),
    "spirit": (lambda: Spirit(n_components=RANK), 1e-10),
    "grouse": (lambda: Grouse(n_components=RANK, random_state=0), 1e-10),
    "frequent": (lambda: FrequentDirections(n_components=RANK), 1e-10),
    "robust": (lambda: FrequentDirections(n_components=RANK, robust=True), 1e-10),
    "power": (lambda: BlockPower(n_components=RANK, block=50, random_state=0), 1e-10),
    "incremental": (lambda: Incremental(n_components=RANK), 1e-10),
}
every_tracker = pytest.mark.parametrize("name", TRACKERS)


def low_rank(seed=0, *, rows=4000, noise=0.0):
    """Rows of rank 3 with strengths 4, 2, 1 and mean 0, and the directions (D, 3)."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((FEATURES, RANK)))[0]
    made = (rng.standard_normal((rows, RANK)) * [4.0, 2.0, 1.0]) @ directions.T
    return made + noise * rng.standard_normal(made.shape), directions


@every_tracker
def test_rows_of_low_rank_are_recovered(name):
    make, accuracy = TRACKERS[name]
    rows, directions = low_rank()
    tracker = make().partial_fit(rows)
    found = tracker.components
    assert found.shape == (RANK, FEATURES)
    np.testing.assert_allclose(found @ found.T, np.eye(RANK), atol=1e-12)
    assert subspace_distance(found.T, directions) < accuracy


@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "grouse"])
def test_components_come_strongest_first(name):
    rows, directions = low_rank()
    tracker = TRACKERS[name][0]().partial_fit(rows)
    assert np.all(np.diff(tracker.strengths) <= 0)
    alignment = np.abs(np.sum(tracker.components.T * directions, axis=0))
    assert np.all(alignment > 0.9)


@every_tracker
def test_how_many_rows_come_at_once_makes_no_difference(name):
    rows, _ = low_rank(1, rows=317, noise=0.1)
    whole = TRACKERS[name][0]().partial_fit(rows)
    pieces = TRACKERS[name][0]()
    for piece in np.split(rows, [1, 2, 10, 10, 11, 150, 300]):
        pieces.partial_fit(piece)
    np.testing.assert_allclose(pieces.components, whole.components, atol=1e-9)


@every_tracker
def test_given_rows_are_not_changed_nor_kept(name):
    rows, _ = low_rank(2, rows=30)
    kept, tracker = rows.copy(), TRACKERS[name][0]().partial_fit(rows)
    np.testing.assert_array_equal(rows, kept)
    rows[:] = 1e9  # the caller's buffer is used again
    tracker.partial_fit(kept)
    other = TRACKERS[name][0]().partial_fit(kept).partial_fit(kept)
    np.testing.assert_allclose(tracker.components, other.components, atol=1e-12)


@every_tracker
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 2, 2)), "no finite, non-empty matrix"),
        (np.full((2, FEATURES), np.inf), "no finite, non-empty matrix"),
        (np.zeros((2, 0)), "no finite, non-empty matrix"),
        (np.ones((5, RANK - 1)), "no 3 components"),
    ],
)
def test_bad_rows_are_refused(name, rows, message):
    with pytest.raises(DataError, match=message):
        TRACKERS[name][0]().partial_fit(rows)


@every_tracker
def test_another_number_of_features_is_refused_and_no_rows_tell_nothing(name):
    tracker = TRACKERS[name][0]()
    with pytest.raises(DataError, match="no components"):
        _ = tracker.components
    tracker.partial_fit(np.ones(FEATURES))
    with pytest.raises(DataError, match="features"):
        tracker.partial_fit(np.ones((2, FEATURES + 1)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FPCA(n_components=0),
        lambda: FPCA(n_components=2, block=0),
        lambda: Spirit(n_components=0),
        lambda: Spirit(forgetting=0.0),
        lambda: Spirit(low=0.9, high=0.8),
        lambda: Grouse(n_components=0),
        lambda: Grouse(n_components=1, step=0.0),
        lambda: Grouse(n_components=1, diminishing=True),
        lambda: FrequentDirections(n_components=0),
        lambda: FrequentDirections(n_components=5, sketch_rows=4),
        lambda: BlockPower(n_components=0),
        lambda: BlockPower(n_components=1, block=0),
        lambda: Incremental(n_components=0),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(DataError):
        make()


@every_tracker
def test_rows_of_zeros_are_survived(name):
    rows, directions = low_rank(3)
    tracker = TRACKERS[name][0]().partial_fit(np.zeros((60, FEATURES))).partial_fit(rows)
    assert subspace_distance(tracker.components.T, directions) < 1e-9


# Blocks


@given(
    size=st.integers(1, 7), pieces=st.lists(st.integers(0, 20), max_size=8), later=st.integers(1, 7)
)
def test_blocks_keep_every_row_in_order(size, pieces, later):
    blocks, given_rows, seen = Blocks(size), np.arange(sum(pieces), dtype=float)[:, None], []
    for piece in np.split(given_rows, np.cumsum(pieces)[:-1]) if pieces else []:
        for block in blocks.full(piece):
            assert len(block) == (later if seen else size)
            seen.append(block)
            blocks.size = later
        assert blocks.waiting < blocks.size
    if blocks.waiting:
        seen.append(blocks.rest())
    together = np.concatenate(seen) if seen else given_rows
    np.testing.assert_array_equal(together, given_rows)


# Frequent Directions

streams = {
    "seed": st.integers(0, 2**32 - 1),
    "rows": st.integers(1, 80),
    "features": st.integers(1, 12),
    "sketch_rows": st.integers(1, 8),
    "decay": st.floats(0, 2),
}


def sketched(seed, rows, features, sketch_rows, decay):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((rows, features)) * np.arange(1, features + 1) ** -decay
    tracker = FrequentDirections(n_components=1, sketch_rows=sketch_rows)
    return made, tracker.partial_fit(made)


def promised(made, sketch_rows):
    """The smallest |A - A_k|_F^2/(l - k) over k < l."""
    squares = np.zeros(max(made.shape) + sketch_rows)
    values = np.linalg.svd(made, compute_uv=False)
    squares[: values.size] = values**2
    return min(squares[k:].sum() / (sketch_rows - k) for k in range(sketch_rows))


@given(**streams)
def test_frequent_directions_keep_their_guarantee(seed, rows, features, sketch_rows, decay):
    made, tracker = sketched(seed, rows, features, sketch_rows, decay)
    sketch = tracker.sketch
    assert sketch.shape == (sketch_rows, features)
    missing = np.linalg.eigvalsh(made.T @ made - sketch.T @ sketch)
    rounding = 1e-10 * np.sum(made**2)
    assert missing[0] >= -rounding
    assert missing[-1] <= promised(made, sketch_rows) + rounding


@given(**streams)
def test_robust_frequent_directions_halve_the_error(seed, rows, features, sketch_rows, decay):
    made, tracker = sketched(seed, rows, features, sketch_rows, decay)
    filled = tracker.sketch.T @ tracker.sketch + tracker.shift * np.eye(features)
    error = np.abs(np.linalg.eigvalsh(made.T @ made - filled)).max()
    assert error <= promised(made, sketch_rows) / 2 + 1e-10 * np.sum(made**2)


def test_the_robust_shift_is_needed_for_the_halved_error_and_shown_in_the_strengths():
    made = np.random.default_rng(0).standard_normal((4000, 4))  # as hard as it gets: no decay
    plain, robust = (
        FrequentDirections(n_components=2, sketch_rows=4, robust=r).partial_fit(made)
        for r in (False, True)
    )
    exact = np.linalg.svd(made, compute_uv=False)[:2]
    without = np.linalg.eigvalsh(made.T @ made - plain.sketch.T @ plain.sketch)[-1]
    assert without > promised(made, 4) / 2
    assert np.all(np.abs(robust.strengths - exact) < np.abs(plain.strengths - exact))


def test_a_sketch_as_large_as_the_rank_is_exact():
    rows, _ = low_rank()
    tracker = FrequentDirections(n_components=RANK, sketch_rows=RANK + 1).partial_fit(rows)
    np.testing.assert_allclose(tracker.sketch.T @ tracker.sketch, rows.T @ rows, atol=1e-8)
    np.testing.assert_allclose(
        tracker.strengths, np.linalg.svd(rows, compute_uv=False)[:RANK], rtol=1e-10
    )


# SPIRIT


def test_spirit_finds_how_many_directions_a_stream_has():
    # two of the directions carry 0.945 of the energy, three 0.992
    rows, directions = low_rank(4, noise=0.1)
    settings = {"forgetting": 0.99, "low": 0.96, "high": 0.996, "hold_off": 200}
    tracker = Spirit(adapt=True, **settings).partial_fit(rows)
    assert tracker.components.shape == (RANK, FEATURES)
    assert subspace_distance(tracker.components.T, directions) < 0.1


def test_spirit_drops_directions_that_are_not_needed():
    rows, directions = low_rank(5)
    one = np.outer(rows @ directions[:, 0], directions[:, 0])
    tracker = Spirit(n_components=4, adapt=True).partial_fit(one)
    assert tracker.components.shape == (1, FEATURES)
    assert abs(tracker.components[0] @ directions[:, 0]) > 1 - 1e-10


def test_spirit_follows_a_change_because_it_forgets():
    (old, _), (new, directions) = low_rank(6), low_rank(7)
    tracker = Spirit(n_components=RANK).partial_fit(old).partial_fit(new)
    assert subspace_distance(tracker.components.T, directions) < 1e-6


def test_one_step_of_spirit_worked_out_by_hand():
    # w = (1, 0), x = (3, 4): y = 3, d = 0.5 * 0.001 + 9 and w + 3 ((3, 4) - 3 (1, 0))/d
    tracker = Spirit(n_components=1, forgetting=0.5).partial_fit(np.array([[3.0, 4.0]]))
    expected = np.array([1.0, 12 / 9.0005])
    np.testing.assert_allclose(tracker.components[0], expected / np.linalg.norm(expected))
    np.testing.assert_allclose(tracker.strengths, [3.0])


def test_the_spirit_of_its_program_keeps_few_directions_where_its_paper_s_keeps_all():
    """A new one has no energy yet by the paper's rule, so that the next row adds one more."""
    rows = np.random.default_rng(0).standard_normal((500, 40)) / np.arange(1, 41)
    settings = {"n_components": 3, "forgetting": 0.95, "adapt": True, "hold_off": 2}
    paper, program = (Spirit(as_coded=of, **settings) for of in (False, True))
    assert len(paper.partial_fit(rows).components) == 40
    ranks = [len(program.partial_fit(row[None]).components) for row in rows]
    assert ranks[:3] == [3, 3, 2]  # no change at the first two rows
    assert 1 <= min(ranks) < max(ranks) < 20
    np.testing.assert_allclose(
        program.directions @ program.directions.T, np.eye(ranks[-1]), atol=1e-12
    )
    np.testing.assert_allclose(np.abs(program.directions), np.abs(program.components), atol=1e-12)


# GROUSE


def test_a_greedy_step_of_grouse_takes_the_row_in():
    rows, _ = low_rank(8, rows=5, noise=1.0)
    tracker = Grouse(n_components=RANK, random_state=0)
    for row in rows:
        found = tracker.partial_fit(row).components
        assert np.linalg.norm(row - row @ found.T @ found) < 1e-12 * np.linalg.norm(row)


def test_grouse_converges_linearly_on_rows_without_noise():
    rows, directions = low_rank(9, rows=600)
    tracker, distances = Grouse(n_components=RANK, random_state=0), []
    for piece in np.split(rows, 6):
        found = tracker.partial_fit(piece).components
        distances.append(subspace_distance(found.T, directions))
    assert distances[1] < 1e-2
    assert distances[3] < 1e-4 * distances[1]


def test_small_steps_of_grouse_average_noise_out():
    rows, directions = low_rank(10, noise=0.3)
    greedy, small = (
        Grouse(n_components=RANK, step=step, random_state=0).partial_fit(rows).components
        for step in (None, 0.005)
    )
    assert subspace_distance(small.T, directions) < 0.5 * subspace_distance(greedy.T, directions)


def test_a_diminishing_step_of_grouse_is_divided_by_the_row_and_left_out_when_long():
    settings = {"n_components": 1, "step": 1.0, "random_state": 0}
    start = Grouse(n_components=1, step=1e-12, random_state=0).partial_fit([1.0, 0.0]).components[0]
    across = np.array([-start[1], start[0]])
    row = 0.9 * (start + across)  # |p| |r| = 0.81: the first angle, and half of it for a second row
    tracker = Grouse(diminishing=True, **settings).partial_fit(row)
    found = tracker.components[0]
    np.testing.assert_allclose(abs(found @ start), np.cos(0.81), rtol=1e-9)
    later = Grouse(diminishing=True, **settings).partial_fit(np.zeros(2)).partial_fit(row)
    np.testing.assert_allclose(abs(later.components[0] @ start), np.cos(0.405), rtol=1e-9)
    long = Grouse(diminishing=True, **settings).partial_fit(2.0 * row)  # 3.24 is more than pi/2
    assert (tracker.turns, later.turns, long.turns) == (1, 1, 0)
    np.testing.assert_allclose(abs(long.components[0] @ start), 1.0, rtol=1e-9)


# Block power method


def test_the_block_power_method_gains_the_ratio_of_eigenvalues_with_each_block():
    values = np.array([4.0, 2.0, 1.0, 0.5])
    block = np.diag(np.sqrt(values))  # its second moment is diagonal: one block is one exact step
    tracker = BlockPower(n_components=2, block=4, random_state=0)
    distances = []
    for _ in range(12):
        found = tracker.partial_fit(block).components
        distances.append(subspace_distance(found.T, np.eye(4)[:, :2]))
    ratios = np.array(distances[7:]) / np.array(distances[6:-1])
    np.testing.assert_allclose(ratios, 0.5, rtol=0.02)
    np.testing.assert_allclose(tracker.strengths, np.sqrt(values[:2]), rtol=1e-3)


def test_rows_of_a_block_that_is_not_full_are_not_read():
    rows, _ = low_rank(11, rows=99)
    tracker = BlockPower(n_components=RANK, block=50, random_state=0)
    before = tracker.partial_fit(rows[:50]).components
    np.testing.assert_array_equal(tracker.partial_fit(rows[50:]).components, before)


# IncrementalPCA


def test_incremental_pca_subtracts_the_mean():
    rows, directions = low_rank(12)
    moved = rows + 100.0
    found = Incremental(n_components=RANK, block=400).partial_fit(moved)
    assert subspace_distance(found.components.T, directions) < 1e-6
    uncentered = FPCA(n_components=RANK, adapt=False).partial_fit(moved)
    assert abs(uncentered.components[0].sum()) / np.sqrt(FEATURES) > 0.99  # the mean's direction
    assert subspace_distance(uncentered.components.T, directions) > 0.5
