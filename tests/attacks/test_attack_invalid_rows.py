"""One row with an entry that is no number, against a data set without that row.

Such a row used to end the fit with an error: whoever sees whether there is a result sees the row,
and no noise hides it. Later it counted as a row of zeros, in ``n_samples_``, the histograms and the
mean. The results must be the same to the last bit as without it, on every path.
"""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

from eigenveil import FederatedPCA, PrivateGaussianMixture, PrivatePCA, PrivateStreamingPCA
from eigenveil.errors import InvalidRowsWarning
from eigenveil.io import open_rows
from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram, range_of
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.third import ThirdMoment

D, BAD = 4, 17
NAMES = ["a", "b", "c", "d"]
VALUES = [np.nan, np.inf, -np.inf]
PCA = {"center": False, "row_bound": 3.0, "epsilon": 20.0, "random_state": 5}


def pair(value=np.nan, dtype=np.float64):
    """Rows with one that is not valid, and the same without it."""
    rows = np.random.default_rng(3).standard_normal((61, D)).astype(dtype)
    rows[BAD, 2] = value
    return rows, np.delete(rows, BAD, axis=0)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidRowsWarning)
        return call()


def same(one, other):
    for name in ("components_", "explained_variance_", "mean_", "usable_"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.n_samples_ == other.n_samples_
    assert one.certificate_.releases == other.certificate_.releases


def sums(precision):
    rule = RowRule(bound=2.0, precision=precision)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((D, 2)))[0]
    return [
        NormHistogram(None, precision=precision),
        NormHistogram(None, precision=precision, basis=basis, bound=2.0),
        ColumnHistogram(D, precision=precision),
        ColumnHistogram(
            D, precision=precision, preparation=range_of(np.zeros(D), np.full(D, 3.0), holes=False)
        ),
        RowSum(rule, features=D, count_weight=0.25),
        SecondMoment(rule, features=D),
        Sketch(rule, basis, clip=0.5),
        ComponentEnergy(rule, basis.T, count_weight=0.25),
        ThirdMoment(rule, basis, clip=0.5, variance=0.1),
        EMSums(
            rule,
            Mixture(np.full((2, D), 0.1), np.zeros(2), np.array([[1.0], [2.0]]), np.ones(2)),
            squares="diag",
        ),
    ]


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("value", VALUES)
def test_every_sum_is_that_of_the_others(precision, value):
    """The bin of norm zero, the counts and the rest of the energy too; extremes are valid rows."""
    dtype = np.float32 if precision == "single" else np.float64
    large, small = (3e38, 1e-44) if precision == "single" else (1e308, 1e-320)
    rows, whole = pair(value, dtype)
    for given in (rows, whole):
        given[3], given[4], given[5] = large, small, [large, small, 0, -large]
    for one, other in zip(sums(precision), sums(precision), strict=True):
        one.update(Block(rows))
        other.update(Block(whole))
        assert np.array_equal(one.integers(), other.integers())
    blocks = Block(whole)
    blocks.check()
    assert blocks.invalid == 0


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("kind", ["dense", "single", "sparse"])
def test_one_table(value, kind):
    rows, whole = pair(value, np.float32 if kind == "single" else np.float64)
    if kind == "sparse":
        rows, whole = scipy.sparse.csr_array(rows), scipy.sparse.csr_array(whole)
    precision = "single" if kind == "single" else "double"
    found = PrivatePCA(2, precision=precision, **PCA)
    with pytest.warns(InvalidRowsWarning, match=f"1 row is not.*index {BAD}, column index 2"):
        found.fit(rows)
    same(found, PrivatePCA(2, precision=precision, **PCA).fit(whole))


def test_a_mixture():
    rows, whole = pair()
    asked = {
        "center": False, "row_bound": 3.0, "epsilon": 1e4, "noise_variance": 0.1,
        "random_state": 5,
    }  # fmt: skip
    one = quietly(lambda: PrivateGaussianMixture(2, **asked).fit(rows))
    other = PrivateGaussianMixture(2, **asked).fit(whole)
    assert np.array_equal(one.means_, other.means_)
    assert one.certificate_.releases == other.certificate_.releases


def write(path, rows):
    match path.suffix:
        case ".csv":
            lines = [",".join("x" if np.isnan(v) else repr(float(v)) for v in row) for row in rows]
            path.write_text("\n".join([",".join(NAMES), *lines, ""]))
        case ".parquet":
            pa.parquet.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), path)
        case ".npy":
            np.save(path, rows)
        case ".npz":
            scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows))


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy", "npz"])
def test_files(ending, tmp_path):
    found = []
    for number, rows in enumerate(pair()):
        path = tmp_path / f"{number}.{ending}"
        write(path, rows)
        found.append(quietly(lambda path=path: PrivatePCA(2, **PCA).fit_rows(open_rows([path]))))
    same(*found)


@pytest.mark.parametrize("line", ["1,2,3", "1,2,3,4,5", "x,,y,", "\xff,1"])
def test_a_line_that_is_no_row_of_a_text_file(line, tmp_path):
    """As if it were not there."""
    found = []
    for number, said in enumerate((line.encode("latin-1") + b"\n", b"")):
        path = tmp_path / f"{number}.csv"
        write(path, pair()[1])
        path.write_bytes(path.read_bytes() + said)
        found.append(quietly(lambda path=path: PrivatePCA(2, **PCA).fit_rows(open_rows([path]))))
    same(*found)


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("protocol", ["cape", "sketch", "full", "local"])
def test_three_sites(protocol, dropouts):
    if dropouts and protocol == "local":
        pytest.skip("one site alone")
    asked = PCA | {"protocol": protocol, "dropouts": dropouts}
    rng = np.random.default_rng(8)
    others = {"b": rng.standard_normal((30, D)), "c": rng.standard_normal((20, D))}
    rows, whole = pair()
    found = FederatedPCA(2, **asked)
    with pytest.warns(InvalidRowsWarning, match=r"site a: 1 row is not valid"):
        found.fit({"a": rows, **others})
    known = FederatedPCA(2, **asked).fit({"a": whole, **others})
    assert found.missing_ == {}
    assert found.certificate_.federation == known.certificate_.federation
    # the messages' keys are fresh, and seeded noise is drawn in the same order
    same(found, known)


@pytest.mark.parametrize("publish", [{}, {"publish": "continual", "horizon": 4}])
def test_streams(publish):
    asked = {"epsilon": 20.0, "random_state": 5, **publish}
    rows, whole = pair()
    streams = [PrivateStreamingPCA(2, **asked) for _ in range(2)]
    for stream, given in zip(streams, (rows, whole), strict=True):
        for block in np.array_split(given, 3):
            quietly(lambda stream=stream, block=block: stream.partial_fit(block))
        stream.release()
    same(*streams)


def test_nothing_of_it_is_kept_or_saved(tmp_path):
    rows, _ = pair()
    found = quietly(lambda: PrivatePCA(2, **PCA).fit(rows))
    clean = PrivatePCA(2, **PCA).fit(pair()[1])
    assert vars(found).keys() == vars(clean).keys()
    for name, model in (("a", found), ("b", clean)):
        model.save(tmp_path / f"{name}.npz")
    with np.load(tmp_path / "a.npz") as one, np.load(tmp_path / "b.npz") as other:
        assert all(np.array_equal(one[key], other[key]) for key in one.files)
