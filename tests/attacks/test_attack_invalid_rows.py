"""One row with an entry that is no number, against a data set without that row."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

from eigenveil import (
    FederatedPCA,
    FederatedTopicModel,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.errors import InvalidRowsWarning
from eigenveil.io import open_rows
from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram, range_of
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.third import ThirdMoment

D, BAD = 4, 17
VALUES = [np.nan, np.inf, -np.inf]
PCA = {"center": False, "row_bound": 3.0, "epsilon": 20.0, "random_state": 5}


def pair(value=np.nan, dtype=np.float64):
    """Rows with one that is not valid, and the same without it."""
    rows = np.random.default_rng(3).standard_normal((61, D)).astype(dtype)
    rows[BAD, 2] = value
    return rows, np.delete(rows, BAD, axis=0)


def quietly(call):
    with warnings.catch_warnings(action="ignore", category=InvalidRowsWarning):
        return call()


OF_PCA = ("components_", "explained_variance_", "mean_", "usable_", "n_samples_")


def same(one, other, names=OF_PCA):
    for name in names:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
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
        SecondMoment(replace(rule, basis=basis, clip=0.5, products=True), features=D),
        ScoreHistogram(replace(rule, basis=basis, clip=0.5), cells=6),
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
    same(one, other, ["means_"])


# -- documents


WORDS = 6
SHORT = [[1, 0, 1, 0, 0, 0], [0] * WORDS, [0, 0, 0, 0, 0, 1], [0, 2, 0, 0, 0, 0]]
BAD_DOCUMENTS = [
    [first, second, 0, 0, 0, 0]
    for first, second in ((3, -1), (0.5, 3), (1.5, 0), (np.nan, 3), (np.inf, 0), (2**24, 1))
]
TOPICS = {"epsilon": 30.0, "clip_documents": False, "random_state": 4}
OF_TOPICS = ("topics_", "weights_")


def documents(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    topics = np.repeat(np.eye(2), 3, axis=1) / 3
    return rng.multinomial(12, topics[rng.integers(2, size=rows)]).astype(float)


def with_one(document):
    return np.insert(documents(), 70, document, axis=0)


@pytest.mark.parametrize("bad", BAD_DOCUMENTS)
@pytest.mark.parametrize("store", [np.asarray, scipy.sparse.csr_array])
def test_one_collection(bad, store):
    """Without norms nothing is counted: the document adds nothing at all."""
    found = PrivateTopicModel(2, **TOPICS)
    with pytest.warns(InvalidRowsWarning, match="1 row is not valid.*row index 70"):
        found.fit(store(with_one(bad)))
    same(found, PrivateTopicModel(2, **TOPICS).fit(documents()), OF_TOPICS)


@pytest.mark.parametrize("short", SHORT)
@pytest.mark.parametrize("alpha0", [0.0, 1.0])
def test_a_short_document_is_no_error_and_adds_nothing(short, alpha0):
    asked = TOPICS | {"alpha0": alpha0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidRowsWarning)
        found = PrivateTopicModel(2, **asked).fit(with_one(short))
    same(found, PrivateTopicModel(2, **asked).fit(documents()), OF_TOPICS)


def test_norms_count_it_as_a_document_without_words():
    asked = TOPICS | {"clip_documents": True}
    fits = [
        quietly(lambda bad=bad: PrivateTopicModel(2, **asked).fit(np.vstack([documents(), bad])))
        for bad in SHORT + BAD_DOCUMENTS
    ]
    for fit in fits[1:]:
        same(fits[0], fit, OF_TOPICS)


# -- files, sites, streams


def write(path, rows):
    match path.suffix:
        case ".csv":
            lines = [",".join("x" if np.isnan(v) else repr(float(v)) for v in row) for row in rows]
            names = [f"w{number}" for number in range(rows.shape[1])]
            path.write_text("\n".join([",".join(names), *lines, ""]))
        case ".parquet":
            columns = {f"w{number}": column for number, column in enumerate(rows.T)}
            pa.parquet.write_table(pa.table(columns), path)
        case ".npy":
            np.save(path, rows)
        case ".npz":
            scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows))
        case ".mtx":
            scipy.io.mmwrite(path, scipy.sparse.coo_array(rows))


# Rows with one that is not valid and without it, who fits them, and what must be the same.
KINDS = {
    "rows": (pair, PrivatePCA, PCA, OF_PCA),
    "documents": (
        lambda: (with_one(BAD_DOCUMENTS[0]), documents()), PrivateTopicModel, TOPICS, OF_TOPICS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["csv", "parquet", "npy", "npz", "mtx"])
def test_files(ending, kind, tmp_path):
    make, estimator, asked, names = KINDS[kind]
    found = []
    for number, rows in enumerate(make()):
        path = tmp_path / f"{number}.{ending}"
        write(path, rows)
        found.append(quietly(lambda path=path: estimator(2, **asked).fit_rows(open_rows([path]))))
    same(*found, names)


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
@pytest.mark.parametrize("protocol", ["cape", "sketch", "full", "local", "topics"])
def test_three_sites(protocol, dropouts):
    if dropouts and protocol == "local":
        pytest.skip("one site alone")
    make, _, asked, names = KINDS["documents" if protocol == "topics" else "rows"]
    estimator = FederatedTopicModel if protocol == "topics" else FederatedPCA
    rows, whole = make()
    asked = asked | {"protocol": "cape" if protocol == "topics" else protocol, "dropouts": dropouts}
    others = {"b": whole[:30] + 1.0, "c": whole[30:50]}
    found = estimator(2, **asked)
    with pytest.warns(InvalidRowsWarning, match=r"site a: 1 row is not valid"):
        found.fit({"a": rows, **others})
    known = estimator(2, **asked).fit({"a": whole, **others})
    assert found.missing_ == {}
    assert found.certificate_.federation == known.certificate_.federation
    # the messages' keys are fresh, and seeded noise is drawn in the same order
    same(found, known, names)


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
