"""How rows are stored decides nothing: one person's value can change the type of a whole table."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import (
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
)
from eigenveil.moments.histograms import ColumnHistogram
from eigenveil.moments.preparation import Effects, Preparation
from eigenveil.moments.rows import Block, RowRule

D = 5
SEEDS = st.integers(0, 1 << 40)
# Ways of storing rows that all have the same numbers.
STORED = {
    "single": lambda rows: rows.astype(np.float32),
    "double": lambda rows: rows.astype(np.float64),
    "columns": lambda rows: np.asfortranarray(rows.astype(np.float32)),
    "sparse": lambda rows: scipy.sparse.csr_array(rows.astype(np.float32)),
}


def table(seed, size=0):
    """Rows that float32 holds exactly, far from zero compared with their spread."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, D)) * 10.0 ** rng.integers(-size, size + 1, (60, 1))
    return (rows + rng.integers(0, 100)).astype(np.float32)


@given(seed=SEEDS, precision=st.sampled_from(["single", "double"]), of=st.integers(0, 4))
def test_prepared_rows_are_the_same_however_they_are_stored(seed, precision, of):
    rng, rows = np.random.default_rng(seed), table(seed, size=12)
    preparation = [
        Preparation(),
        Preparation(rng.standard_normal(D), rng.random(D), 4.0),
        Preparation(rng.standard_normal(D), rng.random(D) * 1e-35, 1e4),
        Preparation(effects=Effects((1,), rng.standard_normal((D, 1)))),
        Preparation(holes=True),
    ][of]
    if preparation.holes:
        rows[rng.random(rows.shape) < 0.2] = np.nan
    rule = RowRule(rng.standard_normal(D), precision=precision, preparation=preparation)
    narrow, wide = Block(rows), Block(rows.astype(np.float64))
    for one, other in zip(rule(narrow), rule(wide), strict=True):
        assert np.array_equal(one, other)
    columns = [ColumnHistogram(D, precision=precision, preparation=preparation) for _ in range(2)]
    columns[0].update(narrow)
    columns[1].update(wide)
    assert np.array_equal(columns[0].integers(), columns[1].integers())


def pca(rows, **options):
    return PrivatePCA(2, epsilon=50.0, **options).fit(rows)


def sites(rows, **options):
    parts = {"a": rows[:30], "b": rows[30:].astype(np.float64), "c": rows[:10]}
    return FederatedPCA(2, epsilon=50.0, **options).fit(parts)


FITS = {
    "pca": pca,
    "units": lambda rows, **options: PrivatePCA(2, epsilon=50.0, unit="p", **options).fit(
        rows, groups=np.arange(60) // 3
    ),
    "scales": lambda rows, **options: pca(rows, scale="private", **options),
    "largest norm": lambda rows, **options: pca(rows, row_norm="max", **options),
    "covariance": lambda rows, **options: PrivateCovariance(epsilon=50.0, **options).fit(rows),
    "mixture": lambda rows, **options: PrivateGaussianMixture(2, epsilon=50.0, **options).fit(rows),
    "stream": lambda rows, **options: PrivateStreamingPCA(2, epsilon=50.0, **options).fit(rows),
    "sites": sites,
}


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_the_same_however_rows_are_stored(name, precision):
    rows, found = table(7), {}
    for stored, store in STORED.items():
        if name == "sites" and stored == "sparse":
            continue
        fit = FITS[name]
        with warnings.catch_warnings(action="ignore"):  # of few rows
            found[stored] = fit(store(rows), precision=precision, random_state=3)
    digests = {each.certificate_.model for each in found.values()}
    assert len(digests) == 1
    assert found["double"].certificate_.plan["precision"] == precision


def test_the_arithmetic_is_seen_in_the_sums():
    """The comparison above can fail: rows in the other precision are other integers."""
    rows = table(7)
    one, other = (RowRule(precision=which)(Block(rows)) for which in ("single", "double"))
    assert not np.array_equal(one[0] * 2.0**9, other[0])
