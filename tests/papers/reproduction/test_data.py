"""Finding rows: in a folder, beside a checkout, from the network, or what is shipped instead."""

import gzip
import json

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil_papers.reproduction import data
from eigenveil_papers.reproduction import data as data_fetched
from eigenveil_papers.reproduction import data as data_files
from eigenveil_papers.reproduction import data as data_shipped
from eigenveil_papers.reproduction.experiment import Settings


@pytest.fixture(autouse=True)
def _nothing_at_hand(tmp_path, monkeypatch):
    """Neither a development checkout's data nor those fetched before."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path / "empty"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def images(folder, count=5, end=""):
    folder.mkdir(parents=True, exist_ok=True)
    made = np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2)
    pack = gzip.compress if end == ".gz" else bytes
    (folder / f"train-images-idx3-ubyte{end}").write_bytes(pack(idx(made)))
    (folder / f"train-labels-idx1-ubyte{end}").write_bytes(pack(idx(np.arange(count) % 3)))
    return made.reshape(count, 4)


def found(name, folder):
    source = data.find(name, Settings(folder=folder))
    assert source.stand_in_for == ""
    return data.load(source)


def test_without_files_something_shipped_stands_in_and_says_so():
    for name in data.NAMES:
        source = data.find(name, Settings())
        rows = data.load(source)
        assert rows.X.dtype == np.float64
        assert np.isfinite(rows.X).all()
        assert len(rows.columns) == rows.X.shape[1]
        assert rows.title == data.title_of(source)
        if name in ("digits", "breast-cancer"):
            assert source == data.Source(name=name)
        else:
            assert source.stand_in_for == name
            assert f"in place of {data_files.TITLES[name]}" in rows.title
            assert not data.at_hand(name, Settings())
    assert data.load(data.find("mnist", Settings())).X.shape == (1797, 64)


def test_made_up_sensors_are_the_same_rows_every_time():
    one, two = data_shipped.make("made-up-sensors"), data_shipped.make("made-up-sensors")
    assert np.array_equal(one.X, two.X)
    strengths = np.linalg.svd(one.X - one.X.mean(axis=0), compute_uv=False)
    assert strengths[5] < 0.2 * strengths[4]  # five factors and noise


def test_what_was_asked_for_by_name_has_no_stand_in():
    with pytest.raises(DataError, match=r"mnist\*\.npz.*--data-folder.*--fetch.*digits"):
        data.find("mnist", Settings(data="mnist"))
    with pytest.raises(DataError) as raised:
        data.find("motes-light", Settings(data="motes-light"))
    assert "--fetch" not in raised.value.hint


def test_unknown_names_and_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="no data set 'mnits'"):
        data.find("mnits", Settings())
    with pytest.raises(DataError, match="not a folder"):
        data.find("mnist", Settings(folder=tmp_path / "none"))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "mnist_10k.npz"),
        ("mnist", "mnist.npz"),
        ("fashion-mnist", "fashion_mnist.npz"),
        ("fashion-mnist", "fashion-mnist/fashion.npz"),
        ("covtype", "covtype_15k.npz"),
        ("wine", "wine_red.npz"),
        ("motes-light", "motes_light.npz"),
        ("motes-volt", "motes_volt.npz"),
    ],
)
def test_archives_are_recognised(tmp_path, name, file):
    X = np.arange(12, dtype=np.uint8).reshape(4, 3)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    np.savez(path, X=X, y=[7, 9, 7, 8], columns=["a", "b", "c"])
    rows = found(name, tmp_path)
    assert np.array_equal(rows.X, X)
    assert rows.y.tolist() == [0, 2, 0, 1]
    assert rows.columns == ("a", "b", "c")
    assert rows.title == data_files.TITLES[name]
    assert data.at_hand(name, Settings(folder=tmp_path))
    with pytest.raises(ValueError, match="read-only"):
        rows.X[0, 0] = 1.0


def test_an_archive_of_keras_is_read_and_the_larger_file_wins(tmp_path):
    np.savez(tmp_path / "mnist_small.npz", X=np.zeros((1, 4)))
    np.savez(tmp_path / "mnist.npz", x_train=np.ones((50, 2, 2)), y_train=np.arange(50))
    rows = found("mnist", tmp_path)
    assert rows.X.shape == (50, 4)
    assert rows.y.max() == 49


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_mnist_are_read(tmp_path, end):
    X = images(tmp_path, end=end)
    rows = found("mnist", tmp_path)
    assert np.array_equal(rows.X, X)
    assert rows.y.tolist() == [0, 1, 2, 0, 1]


def test_equally_named_files_of_two_sets_are_told_apart_by_their_folder(tmp_path):
    images(tmp_path / "both" / "mnist", 4)
    images(tmp_path / "both" / "fashion-mnist", 6)
    assert found("mnist", tmp_path / "both").X.shape == (4, 4)
    assert found("fashion-mnist", tmp_path / "both").X.shape == (6, 4)
    assert data.find("mnist", Settings(folder=tmp_path / "both" / "fashion-mnist")).stand_in_for
    images(tmp_path / "one", 4)
    assert data.find("fashion-mnist", Settings(folder=tmp_path / "one")).stand_in_for


@pytest.mark.parametrize("end", ["", ".gz"])
def test_the_uci_file_of_covtype_is_read(tmp_path, end):
    lines = "".join(f"{row},{row + 1},{row % 2 + 5}\n" for row in range(6)).encode()
    pack = gzip.compress if end else bytes
    (tmp_path / f"covtype.data{end}").write_bytes(pack(lines))
    rows = found("covtype", tmp_path)
    assert rows.X.shape == (6, 2)
    assert rows.X[3].tolist() == [3.0, 4.0]
    assert rows.y.tolist() == [0, 1] * 3


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("motes-light", "q8calibLight.dat"),
        ("motes-volt", "q8calibVolt.dat"),
        ("motes-humidity", "q8calibHumid.dat"),
        ("motes-temperature", "q8calibHumTemp.dat"),
    ],
)
def test_the_authors_files_of_motes_are_read(tmp_path, name, file):
    (tmp_path / file).write_text("   1.5e+00   2.0\n  -3   4.25\n 0 1\n")
    rows = found(name, tmp_path)
    assert rows.X.tolist() == [[1.5, 2.0], [-3.0, 4.25], [0.0, 1.0]]
    (tmp_path / file).write_text("1 2\n3\n")
    with pytest.raises(DataError, match=file):
        data.load(data.find(name, Settings(folder=tmp_path)))


def test_the_uci_file_of_wine_is_read(tmp_path):
    (tmp_path / "winequality-red.csv").write_text('"acid";"pH";"quality"\n7.4;3.5;5\n7.8;3.2;6\n')
    rows = found("wine", tmp_path)
    assert rows.X.tolist() == [[7.4, 3.5], [7.8, 3.2]]
    assert rows.columns == ("acid", "pH")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("mnist.npz", b"not an archive"),
        ("train-images-idx3-ubyte", idx(np.zeros((3, 2, 2)))[:-1]),
        ("train-images-idx3-ubyte", b"\x00\x00\x0d\x01" + bytes(20)),
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte.gz", b"not packed"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    source = data.find("mnist", Settings(folder=tmp_path))
    with pytest.raises(DataError, match=file):
        data.load(source)


@pytest.mark.parametrize(
    "arrays", [{"x": np.zeros(3)}, {"X": np.full((2, 2), np.nan)}, {"X": np.array([["a"]])}]
)
def test_archives_without_finite_rows_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "wine.npz", **arrays)
    source = data.find("wine", Settings(folder=tmp_path))
    with pytest.raises(DataError, match=r"wine\.npz"):
        data.load(source)


def test_a_source_is_plain_values_and_names_the_bytes(tmp_path):
    images(tmp_path / "one")
    images(tmp_path / "two")
    one, two = (data.find("mnist", Settings(folder=tmp_path / n)) for n in ("one", "two"))
    assert data.Source.of(json.loads(json.dumps(one.as_arguments()))) == one
    assert one.digest == two.digest != ""
    (tmp_path / "two" / "train-labels-idx1-ubyte").write_bytes(idx(np.ones(5)))
    assert data.find("mnist", Settings(folder=tmp_path / "two")).digest != one.digest
    assert data.load(one) is data.load(data.Source.of(one.as_arguments()))


def test_the_shared_folder_is_searched_after_the_one_that_was_said(tmp_path, monkeypatch):
    for name, count in (("shared/data", 3), ("own", 4)):
        (tmp_path / name).mkdir(parents=True)
        np.savez(tmp_path / name / "wine.npz", X=np.ones((count, 2)))
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path / "shared"))
    assert found("wine", None).X.shape[0] == 3
    assert found("wine", tmp_path / "own").X.shape[0] == 4


def test_the_network_is_asked_only_when_wished_and_once(tmp_path, monkeypatch):
    import sklearn.datasets

    asked = []

    class Answer:
        data = np.arange(8.0).reshape(4, 2)
        target = np.array(["a", "b", "b", "a"])
        feature_names = ("p", "q")

    def answer(**options):
        asked.append(options["data_id"])
        return Answer

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", answer)
    assert data.find("covtype", Settings()).stand_in_for
    assert asked == []
    rows = data.load(data.find("covtype", Settings(fetch=True)))
    assert asked == [data_fetched.KNOWN["covtype"]]
    assert np.array_equal(rows.X, Answer.data)
    assert rows.y.tolist() == [0, 1, 1, 0]
    assert rows.columns == ("p", "q")
    again = data.find("covtype", Settings(fetch=True))
    assert again == data.find("covtype", Settings())  # it is kept
    assert len(asked) == 1


def test_a_network_that_does_not_answer_is_told(monkeypatch):
    import sklearn.datasets

    def fail(**options):
        raise TimeoutError("no answer")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    with pytest.raises(DataError, match=r"TimeoutError: no answer.*--data-folder"):
        data.find("mnist", Settings(fetch=True))
    with pytest.raises(DataError, match="cannot be fetched"):
        data.find("motes-volt", Settings(fetch=True))


def test_unit_rows_are_centered_and_one_has_norm_one():
    X = np.random.default_rng(1).normal(3.0, 2.0, (40, 5))
    unit = data.unit_rows(X)
    np.testing.assert_allclose(unit.mean(axis=0), 0.0, atol=1e-14)
    assert np.linalg.norm(unit, axis=1).max() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(unit / unit[0, 0], (X - X.mean(0)) / (X - X.mean(0))[0, 0])
    assert np.array_equal(data.unit_rows(np.ones((3, 2))), np.zeros((3, 2)))
