"""Rows in Dask's partitions: the sums of one machine, bit for bit, and each partition once.

These run in this process: what a cluster adds is in test_dask_cluster.py.
"""

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask_tools import Here, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import (
    DataError,
    FederatedPCA,
    InvalidRowsWarning,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.moments import cluster_rows
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.cluster_rows import ClusterRows, code_digest, merge_parts
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import RowRule
from eigenveil.moments.source import ArrayRows, Reading
from eigenveil.privacy.certificate import ON_CLUSTER
from eigenveil.tables.adapters import rows_of
from eigenveil.tables.units import LabelledRows, UnitRows, unit_rows
from refusal_tools import refuses

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 5)) * [5.0, 4.0, 3.0, 2.0, 1.0] + [10, 0, 0, -3, 0]
WHO = RNG.integers(0, 90, 600)  # every person has rows in most partitions
NAMES = ["age", "height", "weight", "pulse", "sugar"]
FRAME = pd.DataFrame(X, columns=NAMES).assign(patient=[f"p{who}" for who in WHO])
TARGET = {"epsilon": 8.0, "delta": 1e-6, "random_state": 0}


@pytest.fixture(autouse=True)
def _in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def pca(**more):
    return PrivatePCA(n_components=2, **{"mechanism": "gaussian", "center": False} | TARGET | more)


def sums(width=5):
    rule = RowRule(bound=20.0)
    return [SecondMoment(rule, features=width), RowSum(rule, features=width, count_weight=0.5)]


def added(rows):
    made = sums()
    accumulate(rows, made)
    return [each.integers() for each in made]


def parts_of(pieces, opener=None, **more):
    """Arrays as partitions."""
    known = {"features": 5, "names": None, "cluster": Here()} | more
    return ClusterRows(pieces, opener or (lambda part, number: ArrayRows(part)), **known)


class Opener:
    """Opens an array, or an array and its units."""

    def __call__(self, part, number):
        if isinstance(part, np.ndarray):
            return ArrayRows(part, origin=f"partition {number}")
        return LabelledRows(ArrayRows(part[0]), part[1])


@settings(max_examples=6)
@given(st.lists(st.integers(0, 600), max_size=9))
def test_sums_do_not_depend_on_how_rows_are_partitioned(cuts):
    pieces = np.split(X, sorted(cuts))
    for mine, theirs in zip(added(parts_of(pieces, Opener())), added(ArrayRows(X)), strict=True):
        assert np.array_equal(mine, theirs)


@settings(max_examples=6)
@given(st.lists(st.integers(0, 600), max_size=9), st.integers(1, 20))
def test_units_weigh_what_they_do_on_one_machine_wherever_their_rows_are(cuts, most):
    ids = WHO.astype(object)
    ids[::50] = None
    pieces = list(zip(np.split(X, sorted(cuts)), np.split(ids, sorted(cuts)), strict=True))
    there = unit_rows(parts_of(pieces, Opener()), most)
    here = unit_rows(LabelledRows(ArrayRows(X), ids), most)
    assert isinstance(here, UnitRows)
    assert there.count() == here.count()
    for mine, theirs in zip(added(there), added(here), strict=True):
        assert np.array_equal(mine, theirs)


class Growing(Opener):
    """A partition that has more rows of a unit in every pass, and one less in another place."""

    passes = 0

    def __call__(self, part, number):
        type(self).passes += 1
        values, ids = part
        turn = np.roll(ids, type(self).passes)
        return LabelledRows(ArrayRows(values), turn)


def test_a_unit_never_weighs_more_than_one_whatever_is_read():
    """Were counts taken again with each pass, parts could disagree about a unit's rows."""
    ids = np.array([1, 1, 1, 1, 2, 3])
    rows = unit_rows(parts_of([(X[:6], ids), (X[6:12], ids[::-1].copy())], Growing()))
    weights = dict.fromkeys((1, 2, 3), 0.0)
    for part in rows.read_by(WithWeights).fold(Collect()).blocks:
        for unit, divisor in part:
            weights[unit] += 1 / divisor if divisor else 0.0
    assert max(weights.values()) <= 1 + 1e-12
    assert Growing.passes == 4


class WithWeights:
    def __init__(self, rows):
        self.rows = rows


class CountRows(Reading):
    def read(self, rows):
        return Collected(sum(len(block.values) for block in rows.blocks()))

    def merge(self, parts):
        return Collected(sum(part.rows for part in parts))


class Collect(CountRows):
    def read(self, rows):
        blocks = list(rows.rows.blocks())
        count = Collected(sum(len(block.values) for block in blocks))
        count.blocks = [
            list(zip(block.units.tolist(), block.weights.divisors.tolist(), strict=True))
            for block in blocks
        ]
        return count

    def merge(self, parts):
        found = Collected(sum(part.rows for part in parts))
        found.blocks = [block for part in parts for block in part.blocks]
        return found


class Collected:
    def __init__(self, rows):
        self.rows, self.blocks = rows, []


def test_a_unit_that_is_a_text_here_and_a_number_there_is_one():
    pieces = [(X[:6], WHO[:6]), (X[6:12], WHO[6:12].astype(str))]
    count = unit_rows(parts_of(pieces, Opener())).count()
    assert count.units == np.unique(WHO[:12]).size


# -- Each partition once.


def test_a_partition_that_is_merged_twice_is_refused():
    rows = parts_of([X[:10], X[10:]], Opener())
    job = pickle.dumps(cluster_rows._Job(Opener(), (), CountRows()))
    own = pickle.dumps([])
    one = cluster_rows.read_part(code_digest(), job, 0, X[:10], own)
    with refuses("parts-not-once"):
        merge_parts(code_digest(), job, [one, one])
    assert rows.fold(CountRows()).rows == 600


def test_a_partition_that_is_left_out_is_refused():
    class Loses(Here):
        def compute(self, task):
            found = super().compute(task)
            return cluster_rows.Partial({0: found.rows[0]}, found.found)

    with refuses("parts-not-once") as caught:
        added(parts_of([X[:10], X[10:]], Opener(), cluster=Loses()))
    assert "Partition 1 did not count" in caught.value.message


def test_merging_changes_no_part_since_dask_may_merge_it_again():
    job = pickle.dumps(cluster_rows._Job(Opener(), (), sums_of_rows()))
    own = pickle.dumps([])
    parts = [
        cluster_rows.read_part(code_digest(), job, number, piece, own)
        for number, piece in enumerate(np.split(X, 3))
    ]
    first = merge_parts(code_digest(), job, parts).found.sums[0].integers()
    again = merge_parts(code_digest(), job, parts).found.sums[0].integers()
    assert np.array_equal(first, again)


def sums_of_rows():
    from eigenveil.moments.engine import _Sums

    return _Sums(sums())


class Shrinking(Opener):
    passes = 0

    def __call__(self, part, number):
        type(self).passes += 1
        return ArrayRows(part[: len(part) - type(self).passes])


def test_rows_that_change_between_passes_stop_the_fit():
    rows = parts_of([X], Shrinking())
    rows.fold(CountRows())
    with refuses("rows-changed"):
        rows.fold(CountRows())


def test_what_travels_does_not_grow_with_the_rows():
    """Prepared rows wait in a sum for their product: they must not travel with it."""
    few, many = parts_of([X[:5]], Opener()), parts_of([np.tile(X, (20, 1))], Opener())
    added(few)
    added(many)
    assert many._cluster.sizes[0] < few._cluster.sizes[0] + 100


def test_another_version_of_the_package_is_refused(monkeypatch):
    rows = parts_of([X], Opener())
    monkeypatch.setattr(cluster_rows, "_here", lambda: "Worker tcp://there")
    with monkeypatch.context() as patch:
        patch.setattr(cluster_rows, "code_digest", iter(["fit", *["worker"] * 5]).__next__)
        with pytest.raises(DataError) as caught:
            added(rows)
    assert caught.value.code == "cluster-version"
    assert "Worker tcp://there runs another eigenveil (worker) than the fit (fit)" in str(
        caught.value
    )


def test_a_processor_that_breaks_the_promises_of_rounding_is_refused(monkeypatch):
    monkeypatch.setattr(cluster_rows, "dependence", lambda: True)
    with refuses("cluster-processor"):
        added(parts_of([X], Opener()))


# -- Whole fits.


@pytest.mark.parametrize(
    "made",
    [
        X,
        X.astype(np.float32),
        np.rint(X).astype(np.int16),
        np.where(RNG.random(X.shape) < 0.05, np.nan, X),
    ],
    ids=["double", "single", "whole", "holes"],
)
def test_an_array_gives_the_fit_of_one_machine(made):
    how = {"missing": "independent"} if np.isnan(made).any() else {}
    how["precision"] = "single" if made.dtype == np.float32 else "double"
    there = pca(**how).fit(da.from_array(made, chunks=(170, 2)))
    assert_same(there, pca(**how).fit(made))
    assert ON_CLUSTER in there.guarantee_.assumptions


def test_another_array_gives_another_fit():
    """The comparison above can fail: by one row more or less, or another chunk twice."""
    twice = da.concatenate([da.from_array(X, chunks=200), da.from_array(X[:200], chunks=200)])
    assert pca().fit(twice).certificate_.model != pca().fit(X).certificate_.model


def test_chunks_of_unknown_size_will_do():
    chosen = X[X[:, 1] > 0]
    rows = da.from_array(X, chunks=(100, 5))
    assert_same(pca().fit(rows[rows[:, 1] > 0]), pca().fit(chosen))


def test_a_frame_with_units_and_private_scales_gives_the_fit_of_one_machine():
    how = {"unit": "patient", "scale": "private", "center": True, "max_rows_per_unit": 3}
    there = pca(**how).fit(dd.from_pandas(FRAME, npartitions=4))
    assert_same(there, pca(**how).fit(FRAME))
    assert list(there.feature_names_in_) == NAMES


@pytest.mark.parametrize("chunks", [None, 200])
def test_units_beside_an_array_are_partitioned_as_it_is(chunks):
    groups = WHO if chunks is None else da.from_array(WHO, chunks=chunks)
    there = pca().fit(da.from_array(X, chunks=(170, 5)), groups=groups)
    assert_same(there, pca().fit(X, groups=WHO))


def test_the_longest_row_is_that_of_all_partitions():
    how = {"row_norm": "max"}
    assert_same(pca(**how).fit(da.from_array(X, chunks=170)), pca(**how).fit(X))


def test_covariance_mixture_and_topics_give_the_fits_of_one_machine():
    for made in (PrivateCovariance(**TARGET), PrivateGaussianMixture(n_components=2, **TARGET)):
        here = type(made)(**made.get_params()).fit(X)
        assert_same(made.fit(da.from_array(X, chunks=170)), here)
    counts = scipy.sparse.csr_matrix(RNG.poisson(0.5, (400, 12)))
    blocks = da.from_array(counts.toarray(), chunks=(130, 12)).map_blocks(scipy.sparse.csr_matrix)
    made = [PrivateTopicModel(n_components=2, **TARGET) for _ in range(2)]
    assert_same(made[0].fit(blocks), made[1].fit(counts))


def test_sites_may_have_collections():
    sites = {"north": FRAME[:300], "south": FRAME[300:][[*NAMES[::-1], "patient"]]}
    there = {"north": dd.from_pandas(sites["north"], npartitions=3)}
    there["south"] = dd.from_pandas(sites["south"], npartitions=2)
    how = {"unit": "patient", "center": False, "mechanism": "gaussian", "protocol": "cape"}
    made = [FederatedPCA(n_components=2, **how, **TARGET) for _ in range(2)]
    one, other = made[0].fit(sites), made[1].fit(there)
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.explained_variance_, other.explained_variance_)
    assert other.certificate_.cluster
    assert not one.certificate_.cluster


# -- Rows that are not valid, and collections that are none.


def test_an_invalid_row_is_named_by_its_partition():
    broken = X.copy()
    broken[[450, 500], 2] = np.inf
    rows = da.from_array(broken, chunks=(200, 5))
    with pytest.warns(
        InvalidRowsWarning,
        match=r"2 rows.*partition 2: row index 50, column index 2",
    ):
        pca().fit(rows)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: da.from_array(np.array([["a", "b"]], dtype=object), chunks=2), "not-numeric"),
        (lambda: da.from_array(X * 1j), "not-numeric"),
        (lambda: da.from_array(X[:, 0]), "dask-collection"),
        (lambda: da.from_array(X[:0]), "no-rows"),
        (lambda: da.from_array(X[:, :0]), "dask-collection"),
        (lambda: da.from_array(X, chunks=(100, 2))[:, da.from_array(X[0]) > 0], "dask-collection"),
        (lambda: da.from_array(np.ma.masked_array(X)), "dask-collection"),
        (lambda: dask.delayed(X), "dask-collection"),
        (lambda: dd.from_pandas(FRAME, npartitions=2), "not-numeric"),
        (lambda: dd.from_pandas(FRAME, npartitions=2)["age"], "dask-collection"),
        (lambda: dd.from_pandas(FRAME[NAMES].rename(columns={"age": "7.5"}), 2), "header-is-data"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_before_anything_is_computed(made, code):
    with refuses(code) as caught:
        pca().fit(made())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("groups", "code"),
    [
        (lambda: WHO[:-1], "bad-groups"),
        (lambda: da.from_array(WHO[:-1], chunks=300), "groups-partitions"),
        (lambda: da.from_array(X, chunks=300), "groups-partitions"),
    ],
)
def test_units_that_are_not_one_a_row_are_refused(groups, code):
    with refuses(code):
        pca().fit(da.from_array(X, chunks=(170, 5)), groups=groups())


def test_units_beside_rows_of_unknown_number_must_be_a_column():
    with refuses("groups-of-unknown-length", "unit="):
        pca().fit(dd.from_pandas(FRAME[NAMES], npartitions=2), groups=WHO)
    with refuses("no-unit-column"):
        pca(unit="nobody").fit(dd.from_pandas(FRAME, npartitions=2))


def test_a_partition_that_is_not_what_the_collection_states_is_refused():
    narrow = da.from_array(X, chunks=(300, 5)).map_blocks(lambda block: block[:, :4], dtype=float)
    with refuses("dask-collection", r"partition \d has 4 columns"):
        pca().fit(narrow)


def test_a_graph_that_fails_is_a_sentence():
    def broken(block):
        if block.size:
            raise RuntimeError("no such disk")
        return block

    rows = da.from_array(X, chunks=(300, 5)).map_blocks(broken, meta=X[:0])
    with refuses("cluster-failed", r"RuntimeError: no such disk"):
        pca().fit(rows)


def test_rows_elsewhere_are_not_read_here():
    with refuses("rows-elsewhere"):
        rows_of(da.from_array(X)).blocks()
