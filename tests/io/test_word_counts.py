"""Word counts from files: sparse all the way, located where wrong, with names or without."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from row_formats import ALL, NAMED, NAMELESS, NAMES, bag_of_words, refusal, values

from eigenveil.errors import DataError
from eigenveil.io import open_rows, read_vocabulary
from eigenveil.moments.documents.documents import as_documents
from eigenveil.moments.documents.pairs import DocumentPairs
from eigenveil.moments.engine import accumulate


@pytest.fixture
def counts():
    return np.random.default_rng(1).poisson(0.7, size=(41, 3)) + 1


def sparse_values(rows):
    return scipy.sparse.vstack([block.values for block in rows.sparse_blocks()]).toarray()


@pytest.mark.parametrize("name", ["csr.npz", "csc.npz", "rows.mtx", "docword.x.txt"])
def test_documents_of_sparse_files_are_never_made_dense(name, tmp_path, monkeypatch):
    # 32 GB, were it dense
    rng = np.random.default_rng(2)
    shape = (40_000, 100_000)
    words = np.sort(rng.integers(shape[1], size=(40_000, 4)), axis=1)
    matrix = scipy.sparse.csr_array(
        (np.ones(words.size), words.ravel(), np.arange(0, words.size + 1, 4)), shape=shape
    )
    path = tmp_path / name
    if name == "docword.x.txt":
        lines = np.column_stack([np.repeat(np.arange(1, shape[0] + 1), 4), words.ravel() + 1])
        head = f"{shape[0]}\n{shape[1]}\n{words.size}"
        np.savetxt(path, np.c_[lines, np.ones(len(lines))], "%d", header=head, comments="")
    elif name == "rows.mtx":
        scipy.io.mmwrite(path, matrix)
    else:
        scipy.sparse.save_npz(path, matrix.asformat(name[:3]), compressed=False)

    def refuse(*_, **__):
        raise AssertionError("made dense")

    monkeypatch.setattr(scipy.sparse.csr_array, "toarray", refuse)
    sums, first = np.zeros(shape[1]), []
    for block in as_documents(open_rows([path])).blocks():
        sums += block.values.sum(axis=0)
        first.append((block.first_row, block.values.shape[0]))
    assert [start for start, _ in first] == np.cumsum([0, *(n for _, n in first)])[:-1].tolist()
    np.testing.assert_array_equal(sums, matrix.sum(axis=0))


@pytest.mark.parametrize("name", ["docword.txt", "docword.kos.txt", "DOCWORD.kos.txt.gz"])
def test_bags_of_words(name, counts, tmp_path):
    counts[5] = counts[40] = 0  # documents without words have no entries
    rows = open_rows([bag_of_words(tmp_path / name, counts)])
    assert (rows.features, rows.names) == (3, None)
    np.testing.assert_array_equal(values(rows), counts)
    np.testing.assert_array_equal(sparse_values(rows), counts)


@pytest.mark.parametrize("step", [1, 4, 40, 41])
def test_bags_of_words_are_cut_between_documents(step, counts, tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.open.SPARSE_ROWS", step)
    counts[:9] = 0
    counts[20:30] = 0
    # read in many small pieces, which end within documents
    import pyarrow.csv

    options = pyarrow.csv.ReadOptions
    monkeypatch.setattr("pyarrow.csv.ReadOptions", lambda **said: options(**said, block_size=32))
    rows = open_rows([bag_of_words(tmp_path / "docword.a.txt", counts)])
    blocks = list(rows.sparse_blocks())
    assert {block.values.shape[0] for block in blocks[:-1]} <= {step}
    np.testing.assert_array_equal(sparse_values(rows), counts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2\n3\n2\n1 1 1\n1 4 1\n", "word 4, and its words are 1 to 3"),
        ("2\n3\n2\n1 1 1\n3 1 1\n", "document 3, and its documents are 1 to 2"),
        ("2\n3\n2\n1 0 1\n2 1 1\n", "word 0"),
        ("2\n3\n2\n2 1 1\n1 1 1\n", "not in order"),
        ("2\n3\n3\n1 1 1\n2 1 1\n", "has 2 entries, and its third line states 3"),
        ("2\n3\n2\n1 1 1\n2 1 secret\n", "at line 5: an entry is not three whole numbers"),
        ("2\n3\n2\n1 1 1\n2 1\n", "an entry is not three whole numbers"),
        ("2\n3\n1\n1 1 1.5\n", "an entry is not three whole numbers"),
        ("2\n3\n", "cannot be read"),
        ("two\n3\n1\n1 1 1\n", "cannot be read"),
        ("2\n-3\n1\n1 1 1\n", "first three lines"),
        ("2\n0\n0\n", "not rows of numbers"),
    ],
)
def test_a_bag_of_words_that_is_damaged(text, said, tmp_path):
    path = tmp_path / "docword.bad.txt"
    path.write_text(text)
    error = refusal([path])
    assert str(path) in error.message
    assert said in error.message
    assert "secret" not in error.message


def test_entries_of_a_bag_of_words_that_are_there_twice_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.open.SPARSE_ROWS", 1)
    path = tmp_path / "docword.twice.txt"
    path.write_text("3\n2\n5\n1 2 1\n1 2 4\n2 1 3\n3 1 1\n3 2 2\n")
    assert sparse_values(open_rows([path])).tolist() == [[0, 5], [3, 0], [1, 2]]
    path.write_text("2\n3\n0\n")
    assert values(open_rows([path])).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("field", ["integer", "real", "pattern"])
def test_matrix_market_of_each_field(field, tmp_path):
    array = np.array([[0, 1, 1], [1, 0, 0]])
    scipy.io.mmwrite(tmp_path / "m.mtx", scipy.sparse.coo_array(array), field=field)
    np.testing.assert_array_equal(values(open_rows([tmp_path / "m.mtx"])), array)
    scipy.io.mmwrite(tmp_path / "s.mtx", scipy.sparse.coo_array(array[:, :2]), symmetry="symmetric")
    np.testing.assert_array_equal(values(open_rows([tmp_path / "s.mtx"])), array[:, :2])
    scipy.io.mmwrite(tmp_path / "m.mtx", scipy.sparse.coo_array(np.eye(2) * 1j))
    assert refusal([tmp_path / "m.mtx"]).code == "not-numeric"


@pytest.mark.parametrize("name", ["csr.npz", "rows.csv", "docword.x.txt"])
def test_a_document_that_cannot_be_is_located_in_its_file(name, counts, tmp_path):
    counts[17] = [2**24, 0, 1]
    first, path = tmp_path / "first.parquet", tmp_path / name
    NAMED["rows.parquet"](first, counts[:7], NAMES)
    write = {"docword.x.txt": lambda *given: bag_of_words(*given[:2])} | ALL
    write[name](path, counts, NAMES)
    found = accumulate(as_documents(open_rows([first, path])), [DocumentPairs(3)]).invalid.first
    assert re.search(r"(row 18|line 19) is a document of 16777217", found)
    assert str(path) in found


# -- names


def test_names_are_given_to_files_without_and_found_in_files_with(counts, tmp_path):
    NAMED["rows.csv"](tmp_path / "a.csv", counts[:, [2, 0, 1]], ["gamma", "alpha", "beta"])
    NAMELESS["csr.npz"](tmp_path / "b.npz", counts, NAMES)
    for paths in (["a.csv"], ["b.npz"], ["b.npz", "a.csv"]):
        rows = open_rows([tmp_path / path for path in paths], names=NAMES)
        assert rows.names == NAMES
        np.testing.assert_array_equal(values(rows), np.concatenate([counts] * len(paths)))


def test_names_that_do_not_fit(counts, tmp_path):
    np.save(tmp_path / "c.npy", counts)
    error = refusal([tmp_path / "c.npy"], names=["a", "b"])
    assert error.message == f"{tmp_path / 'c.npy'} has 3 columns, and there are 2 names for them."
    assert "transpose" not in error.hint
    np.save(tmp_path / "t.npy", counts.T)
    assert "transpose" in refusal([tmp_path / "t.npy"], names=["a", "b", "c"]).hint
    NAMED["rows.csv"](tmp_path / "a.csv", counts, NAMES)
    assert "no column 'a'" in refusal([tmp_path / "a.csv"], names=["a"]).message


def test_a_vocabulary_is_a_word_a_line(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes("\ufeffcafé\r\n two words \r\nthree\r\n\r\n".encode())
    assert read_vocabulary(path) == ["café", "two words", "three"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no word"),
        ("\n\n", "has no word"),
        ("a\n\nb\n", "line 2 is empty"),
        ("a\nb\na\n", "line 3 has 'a' again, as line 1"),
    ],
)
def test_a_vocabulary_that_cannot_be(text, said, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        read_vocabulary(path)
    assert str(path) in caught.value.message
    for name, data in (("none.txt", None), ("bytes.txt", b"\xff\xfe\xfa")):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=name):
            read_vocabulary(tmp_path / name)
