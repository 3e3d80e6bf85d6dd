"""Finding rows: in a folder, beside a checkout, from the network, or what is shipped instead."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil_papers.reproduction import data, data_files, distributed_cases, given
from eigenveil_papers.reproduction.distributed_pca import raw_rows
from eigenveil_papers.reproduction.experiment import RunSettings


@pytest.fixture(autouse=True)
def _nothing_at_hand(tmp_path, monkeypatch):
    """No development checkout's data."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path / "empty"))


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


ZEROS = {"mnist": 0.81, "fashion-mnist": 0.50}  # of all pixels, as in the true sets


def pixels(of="mnist", count=5):
    """Images of the true shape with about the true share of zeros, as rows."""
    grey = np.arange(784) / 784 >= ZEROS[of]
    return (np.arange(count)[:, None] * 3 + np.arange(784) % 200 + 1).astype(np.uint8) * grey


def images(folder, count=5, end="", of="mnist"):
    """Files as they are downloaded: images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = pixels(of, count)
    pack = gzip.compress if end == ".gz" else bytes
    made = rows.reshape(count, 28, 28)
    (folder / f"train-images-idx3-ubyte{end}").write_bytes(pack(idx(made)))
    (folder / f"train-labels-idx1-ubyte{end}").write_bytes(pack(idx(np.arange(count) % 3)))
    return rows


def table(path, rows, columns=54, *, first=None, last=None, names=(), separator=","):
    """A table of numbers, with further cells before and after them."""
    made = []
    for row in range(rows):
        cells = [f"{row + column * 0.5:g}" for column in range(columns)]
        cells = ([str(first[row])] if first else []) + cells + ([str(last[row])] if last else [])
        made.append(separator.join(cells))
    text = "\n".join([separator.join(names)] * bool(names) + made) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def found(name, folder):
    source = data.find(name, RunSettings(folder=folder))
    assert source.stand_in_for == ""
    return data.load(source)


def test_without_files_something_shipped_stands_in_and_says_so():
    for name in data.NAMES:
        source = data.find(name, RunSettings())
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
            assert not data.at_hand(name, RunSettings())
    assert data.load(data.find("mnist", RunSettings())).X.shape == (1797, 64)


def test_made_up_sensors_are_the_same_rows_every_time():
    one, two = data.make("made-up-sensors"), data.make("made-up-sensors")
    assert np.array_equal(one.X, two.X)
    strengths = np.linalg.svd(one.X - one.X.mean(axis=0), compute_uv=False)
    assert strengths[5] < 0.2 * strengths[4]  # five factors and noise


def test_what_was_asked_for_by_name_has_no_stand_in():
    with pytest.raises(DataError, match=r"mnist\*\.npz.*--data-folder.*digits"):
        data.find("mnist", RunSettings(data="mnist"))


def test_unknown_names_and_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="no data set 'mnits'"):
        data.find("mnits", RunSettings())
    with pytest.raises(DataError, match="not a folder"):
        data.find("mnist", RunSettings(folder=tmp_path / "none"))


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
    X = (
        pixels(name, 4)
        if "mnist" in name
        else np.ones((4, data_files.KNOWN_FILES[name].columns or 3))
    )
    names = [f"c{number}" for number in range(X.shape[1])]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    np.savez(path, X=X, y=[7, 9, 7, 8], columns=names)
    rows = found(name, tmp_path)
    assert np.array_equal(rows.X, X)
    assert rows.y.tolist() == [0, 2, 0, 1]
    assert rows.columns == tuple(names)
    assert rows.title == data_files.TITLES[name]
    assert data.at_hand(name, RunSettings(folder=tmp_path))
    with pytest.raises(ValueError, match="read-only"):
        rows.X[0, 0] = 1.0


def test_an_archive_of_keras_is_read_and_the_larger_file_wins(tmp_path):
    np.savez(tmp_path / "mnist_small.npz", X=pixels(count=1))
    whole = pixels(count=50).reshape(50, 28, 28)
    np.savez(tmp_path / "mnist.npz", x_train=whole, y_train=np.arange(50))
    rows = found("mnist", tmp_path)
    assert rows.X.shape == (50, 784)
    assert rows.y.max() == 49


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_mnist_are_read(tmp_path, end):
    X = images(tmp_path, end=end)
    rows = found("mnist", tmp_path)
    assert np.array_equal(rows.X, X)
    assert rows.y.tolist() == [0, 1, 2, 0, 1]


def test_equally_named_files_of_two_sets_are_told_apart_by_their_folder(tmp_path):
    images(tmp_path / "both" / "mnist", 4)
    images(tmp_path / "both" / "fashion-mnist", 6, of="fashion-mnist")
    assert len(found("mnist", tmp_path / "both").X) == 4
    assert len(found("fashion-mnist", tmp_path / "both").X) == 6
    images(tmp_path / "one", 4)
    assert data.find("fashion-mnist", RunSettings(folder=tmp_path / "one")).stand_in_for


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("above", ["", "FOLDER", "FOLDER/raw"])
@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")]
)
def test_where_torchvision_puts_them(tmp_path, name, folder, above, end):
    """ROOT/MNIST/raw and ROOT/FashionMNIST/raw, both there; any of the folders may be said."""
    images(tmp_path / "MNIST" / "raw", 4, end)
    images(tmp_path / "FashionMNIST" / "raw", 6, end, of="fashion-mnist")
    rows = found(name, tmp_path / above.replace("FOLDER", folder))
    assert len(rows.X) == {"mnist": 4, "fashion-mnist": 6}[name]
    assert rows.title == data_files.TITLES[name]


def test_where_debian_puts_them(tmp_path):
    rows = images(tmp_path / "dataset-fashion-mnist", 7, ".gz", of="fashion-mnist")
    for said in (tmp_path, tmp_path / "dataset-fashion-mnist"):
        assert np.array_equal(found("fashion-mnist", said).X, rows)


def test_fashion_mnist_stands_in_for_mnist_by_name(tmp_path):
    images(tmp_path / "FashionMNIST" / "raw", 6, of="fashion-mnist")
    source = data.find("mnist", RunSettings(folder=tmp_path))
    assert data.load(source).title == data.title_of(source) == "Fashion-MNIST, in place of MNIST"
    assert not data.at_hand("mnist", RunSettings(folder=tmp_path))
    with pytest.raises(DataError, match="not at hand"):
        data.find("mnist", RunSettings(folder=tmp_path / "FashionMNIST" / "raw", data="mnist"))


@pytest.mark.parametrize(
    ("name", "other"), [("mnist", "fashion-mnist"), ("fashion-mnist", "mnist")]
)
def test_images_that_are_not_what_was_said_are_refused(tmp_path, name, other):
    images(tmp_path / "files", of=other)
    source = data.find(name, RunSettings(folder=tmp_path / "files", data=name))
    with pytest.raises(DataError, match=f"zeros.*{data_files.TITLES[name]}.*--data") as raised:
        data.load(source)
    assert raised.value.code == "other-data"


def test_another_number_of_columns_is_refused(tmp_path):
    table(tmp_path / "covtype.csv", 3, 12, names=[f"c{n}" for n in range(12)])
    with pytest.raises(DataError, match="12 columns of numbers, and COVTYPE has 54"):
        found("covtype", tmp_path)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_the_uci_file_of_covtype_is_read(tmp_path, end):
    table(tmp_path / f"covtype.data{end}", 6, last=[5, 6] * 3)
    rows = found("covtype", tmp_path)
    assert rows.X.shape == (6, 54)
    assert rows.X[3, :2].tolist() == [3.0, 3.5]
    assert rows.y.tolist() == [0, 1] * 3


@pytest.mark.parametrize("where", ["first", "last", "named", "none"])
def test_tables_with_and_without_classes_and_names(tmp_path, where):
    classes = [4, 2, 4]
    names = [f"c{n}" for n in range(54)]
    if where == "named":
        table(tmp_path / "covtype.csv", 3, first=classes, names=["Cover_Type", *names])
    else:
        table(tmp_path / "covtype.csv", 3, **({} if where == "none" else {where: classes}))
    rows = found("covtype", tmp_path)
    assert rows.X[2, 53] == 28.5
    assert (rows.y.tolist() if where != "none" else rows.y) == (
        [1, 0, 1] if where != "none" else None
    )
    assert rows.columns[0] == ("c0" if where == "named" else "x0")


def test_mnist_as_a_table_has_its_label_first(tmp_path):
    rows = pixels(count=4)
    lines = [
        ",".join(map(str, [label, *row])) for label, row in zip((7, 2, 7, 1), rows, strict=True)
    ]
    (tmp_path / "mnist_train.csv").write_text("\n".join(lines) + "\n")
    read = found("mnist", tmp_path)
    assert np.array_equal(read.X, rows)
    assert read.y.tolist() == [2, 1, 2, 0]


@pytest.mark.thorough
def test_sets_of_the_true_size_are_read(tmp_path):
    """60,000 images, packed; 581,012 rows of UCI's table, packed."""
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    raw = tmp_path / "MNIST" / "raw"
    whole = np.tile(pixels(count=100), (600, 1)).reshape(60_000, 28, 28)
    content = gzip.compress(idx(whole), compresslevel=1)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(content)
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(60_000) % 10))
    source = data.find("mnist", RunSettings(folder=tmp_path))
    rows = data_files.read("mnist", Path(source.path))
    assert (rows.X.shape, rows.y.shape) == ((60_000, 784), (60_000,))
    assert np.array_equal(rows.X, whole.reshape(60_000, 784))
    lines = [",".join(map(str, range(n, n + 54))) + f",{n % 7 + 1}\n" for n in range(1000)]
    text = "".join(lines) * 582
    packed = gzip.compress(text.encode()[: len("".join(lines)) * 581], compresslevel=1)
    last = gzip.compress("".join(lines[:12]).encode())  # packed files may be joined
    (tmp_path / "covtype.data.gz").write_bytes(packed + last)
    source = data.find("covtype", RunSettings(folder=tmp_path))
    rows = data_files.read("covtype", Path(source.path))
    assert (rows.X.shape, rows.y.shape) == ((581_012, 54), (581_012,))
    assert rows.X[-1, 0] == 11
    assert set(rows.y) == set(range(1, 8))


def test_classes_that_may_be_either_end_are_asked_for(tmp_path):
    table(tmp_path / "covtype.csv", 3, 53, first=[1, 2, 1], last=[1, 2, 1])
    with pytest.raises(DataError, match="name it 'label'"):
        found("covtype", tmp_path)


def test_the_only_table_of_a_folder_is_taken_for_what_was_said_and_named_in_titles(tmp_path):
    table(tmp_path / "rows.csv", 3, last=[1, 2, 1])
    settings = RunSettings(folder=tmp_path, data="covtype")
    source = data.find("covtype", settings)
    assert data.load(source).title == data.title_of(source) == "COVTYPE (rows.csv)"
    assert data.find("covtype", RunSettings(folder=tmp_path)).stand_in_for  # nobody said so
    with pytest.raises(DataError, match="55 columns"):
        data.load(data.find("mnist", RunSettings(folder=tmp_path, data="mnist")))
    table(tmp_path / "more.csv", 3)
    with pytest.raises(DataError, match="not at hand"):
        data.find("covtype", settings)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("motes-light", "q8calibLight.dat"),
        ("motes-volt", "volt.dat"),
        ("motes-humidity", "q8calibHumid.dat"),
        ("motes-temperature", "q8calibHumTemp.dat"),
    ],
)
def test_readings_of_sensors_are_columns_with_blanks_between(tmp_path, name, file):
    for other in ("q8calibLight.dat", "volt.dat", "q8calibHumid.dat", "q8calibHumTemp.dat"):
        columns = 46 if other == file else 48
        table(tmp_path / other, 5, columns, separator="  ")
    assert found(name, tmp_path).X.shape == (5, 46)


def test_the_uci_file_of_wine_is_read(tmp_path):
    names = [f'"c{n}"' for n in range(11)] + ['"quality"']
    table(tmp_path / "winequality-red.csv", 2, 11, last=[5, 6], names=names, separator=";")
    rows = found("wine", tmp_path)
    assert rows.X.shape == (2, 11)
    assert rows.columns[:2] == ("c0", "c1")
    assert rows.y.tolist() == [0, 1]


PACKED = gzip.compress(idx(np.random.default_rng(1).integers(1, 99, (5, 28, 28))))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("mnist.npz", b"not an archive"),
        ("train-images-idx3-ubyte", idx(np.zeros((3, 2, 2)))[:-1]),
        ("train-images-idx3-ubyte", b"\x00\x00\x0d\x01" + bytes(20)),
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte.gz", b"not packed"),
        ("train-images-idx3-ubyte.gz", PACKED[: len(PACKED) // 2]),
        ("train-images-idx3-ubyte.gz", PACKED[:12] + bytes(200) + PACKED[212:]),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"1,2,3\n" * 9)),
        ("train-images-idx3-ubyte", idx(np.arange(9))),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    source = data.find("mnist", RunSettings(folder=tmp_path))
    with pytest.raises(DataError, match=file):
        data.load(source)


@pytest.mark.parametrize("labels", [np.arange(4), np.arange(6), np.zeros((5, 2, 2))])
def test_classes_of_other_rows_are_refused(tmp_path, labels):
    images(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte cannot be read.*5 rows"):
        found("mnist", tmp_path)


def test_packed_and_plain_files_side_by_side_are_one_data_set(tmp_path):
    images(tmp_path, end=".gz")
    rows = images(tmp_path)
    assert np.array_equal(found("mnist", tmp_path).X, rows)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(rows)[:-1])  # half a copy
    with pytest.raises(DataError, match="ubyte cannot be read"):
        found("mnist", tmp_path)


def test_of_more_rows_than_the_papers_as_many_are_drawn_and_told(tmp_path, monkeypatch):
    """UCI's COVTYPE has 581,012 rows; papers 000 and 001 drew 60,000 of them."""
    monkeypatch.setattr(distributed_cases, "MOST_ROWS", 20)
    table(tmp_path / "covtype.data", 30, last=[1, 2, 3] * 10)
    settings = RunSettings(folder=tmp_path, data="covtype")
    arguments = distributed_cases.data_of("covtype", settings)
    drawn, whole = raw_rows(arguments), found("covtype", tmp_path).X
    assert drawn.shape == (20, 54)
    assert np.all(np.diff(drawn[:, 0]) > 0)  # none twice, in their order
    assert set(drawn[:, 0]) < set(whole[:, 0])
    monkeypatch.setattr(distributed_cases, "MOST_ROWS", 30)
    assert np.array_equal(raw_rows(distributed_cases.data_of("covtype", settings)), whole)
    assert given.rows_of("covtype", 20, settings, most=20).here == "20 of 30"
    assert given.rows_of("covtype", 99, settings, most=99).here == "30"


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": np.array(3.0)},
        {"X": np.ones((2, 11)), "y": [1, 2, 3]},
        {"x": np.zeros(3)},
        {"X": np.full((2, 11), np.nan)},
        {"X": np.full((2, 11), "a")},
    ],
)
def test_archives_without_finite_rows_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "wine.npz", **arrays)
    source = data.find("wine", RunSettings(folder=tmp_path))
    with pytest.raises(DataError, match=r"wine\.npz"):
        data.load(source)


def test_a_source_is_plain_values_and_names_the_bytes(tmp_path):
    images(tmp_path / "one")
    images(tmp_path / "two")
    one, two = (data.find("mnist", RunSettings(folder=tmp_path / n)) for n in ("one", "two"))
    assert data.Source.of(json.loads(json.dumps(one.as_arguments()))) == one
    assert one.digest == two.digest != ""
    (tmp_path / "two" / "train-labels-idx1-ubyte").write_bytes(idx(np.ones(5)))
    assert data.find("mnist", RunSettings(folder=tmp_path / "two")).digest != one.digest
    assert data.load(one) is data.load(data.Source.of(one.as_arguments()))


def test_the_shared_folder_is_searched_after_the_one_that_was_said(tmp_path, monkeypatch):
    for name, count in (("shared/data", 3), ("own", 4)):
        (tmp_path / name).mkdir(parents=True)
        np.savez(tmp_path / name / "wine.npz", X=np.ones((count, 11)))
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path / "shared"))
    assert found("wine", None).X.shape[0] == 3
    assert found("wine", tmp_path / "own").X.shape[0] == 4


def test_unit_rows_are_centered_and_one_has_norm_one():
    X = np.random.default_rng(1).normal(3.0, 2.0, (40, 5))
    unit = data.unit_rows(X)
    np.testing.assert_allclose(unit.mean(axis=0), 0.0, atol=1e-14)
    assert np.linalg.norm(unit, axis=1).max() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(unit / unit[0, 0], (X - X.mean(0)) / (X - X.mean(0))[0, 0])
    assert np.array_equal(data.unit_rows(np.ones((3, 2))), np.zeros((3, 2)))
