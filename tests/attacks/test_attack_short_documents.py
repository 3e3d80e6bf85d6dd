"""One document of two words, or with a count that is none, against the same documents without it.

The first is valid and has no pairs that are used; the second is not valid. Such a document used to
make a site refuse; with dropouts the study went on without all of its documents, in plain sight.
It would have found any path on which it still decides who takes part, or adds more than its count
to a sum.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from eigenveil import FederatedTopicModel, PrivateTopicModel
from eigenveil.errors import InvalidRowsWarning
from eigenveil.io import open_rows

D = 6
SHORT = [[1, 0, 1, 0, 0, 0], [0] * D, [0, 0, 0, 0, 0, 1], [0, 2, 0, 0, 0, 0]]
BAD = [[3, -1, 0, 0, 0, 0], [0.5, 3, 0, 0, 0, 0], [1.5, 0, 0, 0, 0, 0],
       [np.nan, 3, 0, 0, 0, 0], [np.inf, 0, 0, 0, 0, 0], [2**24, 1, 0, 0, 0, 0]]  # fmt: skip
ASKED = {
    "epsilon": 30.0, "clip_documents": False, "random_state": 4,
}  # fmt: skip


def counts(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    topics = np.repeat(np.eye(2), 3, axis=1) / 3
    return rng.multinomial(12, topics[rng.integers(2, size=rows)]).astype(float)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidRowsWarning)
        return call()


def same(one, other):
    assert np.array_equal(one.topics_, other.topics_)
    assert np.array_equal(one.weights_, other.weights_)
    assert one.certificate_.releases == other.certificate_.releases


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("sparse", [False, True])
def test_one_collection(bad, sparse):
    """Without norms nothing is counted: the document adds nothing at all."""
    known, given = counts(), np.insert(counts(), 70, bad, axis=0)
    if sparse:
        given = scipy.sparse.csr_array(given)
    found = PrivateTopicModel(2, **ASKED)
    with pytest.warns(InvalidRowsWarning, match="1 row is not valid.*row index 70"):
        found.fit(given)
    same(found, PrivateTopicModel(2, **ASKED).fit(known))


@pytest.mark.parametrize("short", SHORT)
@pytest.mark.parametrize("alpha0", [0.0, 1.0])
def test_a_short_document_is_no_error_and_adds_nothing(short, alpha0):
    asked = ASKED | {"alpha0": alpha0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidRowsWarning)
        found = PrivateTopicModel(2, **asked).fit(np.insert(counts(), 70, short, axis=0))
    same(found, PrivateTopicModel(2, **asked).fit(counts()))


def test_norms_count_it_as_a_document_without_words():
    asked = ASKED | {"clip_documents": True}
    fits = [
        quietly(lambda bad=bad: PrivateTopicModel(2, **asked).fit(np.vstack([counts(), bad])))
        for bad in SHORT + BAD
    ]
    for fit in fits[1:]:
        same(fits[0], fit)


@pytest.mark.parametrize("ending", ["csv", "npy", "npz", "mtx"])
def test_files(ending, tmp_path):
    found = []
    for number, rows in enumerate((counts(), np.insert(counts(), 70, BAD[0], axis=0))):
        path = tmp_path / f"{number}.{ending}"
        match ending:
            case "csv":
                names = ",".join(f"w{i}" for i in range(D))
                np.savetxt(path, rows, "%g", ",", header=names, comments="")
            case "npy":
                np.save(path, rows)
            case "npz":
                scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows))
            case "mtx":
                scipy.io.mmwrite(path, scipy.sparse.coo_array(rows))
        rows = open_rows([path])
        found.append(quietly(lambda rows=rows: PrivateTopicModel(2, **ASKED).fit_rows(rows)))
    same(*found)


@pytest.mark.parametrize("dropouts", [0, 1])
def test_three_sites(dropouts):
    asked = ASKED | {"dropouts": dropouts, "protocol": "cape"}
    others = {"b": counts(200, 1), "c": counts(100, 2)}
    found = FederatedTopicModel(2, **asked)
    with pytest.warns(InvalidRowsWarning, match="site a: 1 row"):
        found.fit({"a": np.insert(counts(), 70, BAD[0], axis=0), **others})
    known = FederatedTopicModel(2, **asked).fit({"a": counts(), **others})
    assert found.missing_ == {}
    assert found.certificate_.federation == known.certificate_.federation
    same(found, known)
