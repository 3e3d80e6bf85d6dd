"""Files of object stores and web servers are read as those on a disk are, or refused."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from row_formats import ALL, NAMED, NAMES, labels_of, values

from eigenveil.errors import DataError
from eigenveil.federation.ledger.fits import marks_of, usual_name
from eigenveil.io import open_rows, stores
from eigenveil.io.files import Lent
from refusal_tools import refuses


@pytest.fixture(scope="module")
def s3():
    """The file system of a server that answers as S3 does, for itself alone."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        place = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": place,
        }.items():
            patch.setenv(name, value)
        files = pyarrow.fs.S3FileSystem(
            endpoint_override=place,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            request_timeout=60,
            connect_timeout=60,
        )
        files.create_dir("bucket")
        yield files
    server.stop()


@pytest.fixture
def put(s3, tmp_path):
    """Puts a folder of files into the bucket, and tells its URL."""

    def put(folder, name):
        pyarrow.fs.copy_files(
            str(folder), f"bucket/{name}", source_filesystem=pyarrow.fs.LocalFileSystem(),
            destination_filesystem=s3,
        )  # fmt: skip
        return f"s3://bucket/{name}"

    return put


@pytest.fixture
def saved(matrix, tmp_path):
    """A folder with the same rows in every format, and with a file that is none."""
    folder = tmp_path / "all"
    folder.mkdir()
    for name, save in ALL.items():
        save(folder / name, matrix, NAMES)
    (folder / "notes.md").write_text("not rows")
    return folder


@pytest.fixture
def web(tmp_path):
    """A web server of a folder's files, which gives no parts of them."""
    folder = tmp_path / "web"
    folder.mkdir()
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(quiet, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent():
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_every_format_is_read_from_s3_as_from_a_disk(saved, put, matrix):
    url = put(saved, "formats")
    for name in ALL:
        local, stored = open_rows([saved / name]), open_rows([f"{url}/{name}"])
        assert stored.names == local.names, name
        for _ in range(2):
            np.testing.assert_array_equal(values(stored), values(local), err_msg=name)


@pytest.mark.parametrize("ending", ["*.parquet", "rows.par?uet", "", "/"])
def test_patterns_and_folders_of_s3(ending, matrix, put, tmp_path):
    folder = tmp_path / "f"
    for name in ("a", "b", ".hidden"):
        (folder / f"sub{name}").mkdir(parents=True)
    NAMED["rows.parquet"](folder / "rows.parquet", matrix, NAMES)
    NAMED["rows.parquet"](folder / "suba" / "deep.parquet", matrix, NAMES)
    url = put(folder, "pattern")
    rows = open_rows([f"{url}/{ending}".removesuffix("/") + ("/" if ending == "/" else "")])
    assert [str(path) for path in rows.paths] == ["s3://bucket/pattern/rows.parquet"]
    np.testing.assert_array_equal(values(rows), matrix)


def in_parts(folder, ending, matrix):
    """Rows in folders by year and site."""
    for number, (year, site) in enumerate([("2023", "n"), ("2024", "n"), ("2024", "s%2Fw")]):
        place = folder / f"year={year}" / f"site={site}"
        place.mkdir(parents=True)
        NAMED[f"rows.{ending}"](place / f"part-0.{ending}", matrix[10 * number :][:10], NAMES)
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("where", ["disk", "s3"])
@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_a_table_in_parts_has_the_columns_of_its_folders(ending, where, matrix, put, tmp_path):
    place = in_parts(tmp_path / "t", ending, matrix)
    rows = open_rows(
        [place if where == "disk" else put(place, f"parts-{ending}")],
        columns=["beta", "year", "alpha"],
        unit="site",
    )
    years = np.repeat([2023.0, 2024.0, 2024.0], 10)
    wanted = np.column_stack([matrix[:30, 1], years, matrix[:30, 0]])
    np.testing.assert_array_equal(values(rows), wanted)
    units = [unit for block in rows.blocks() for unit in block.units]
    assert units == ["n"] * 20 + ["s/w"] * 10
    assert labels_of(rows, "year") == ["2023"] * 10 + ["2024"] * 20


def test_parts_that_are_no_one_table_are_refused(matrix, tmp_path):
    save = NAMED["rows.parquet"]
    folder = in_parts(tmp_path / "a", "parquet", matrix)
    save(folder / "extra.parquet", matrix, NAMES)
    with pytest.raises(DataError, match="holds files, and folders named key=value"):
        open_rows([folder])
    folder = in_parts(tmp_path / "b", "parquet", matrix)
    save(folder / "year=2023" / "part-1.parquet", matrix, NAMES)
    with pytest.raises(DataError, match="other keys than"):
        open_rows([folder])
    place = tmp_path / "c" / "beta=1"
    place.mkdir(parents=True)
    save(place / "part-0.parquet", matrix, NAMES)
    with pytest.raises(DataError, match="has a column 'beta', and lies in a folder that says it"):
        open_rows([tmp_path / "c"])


def test_a_key_that_is_no_number_is_a_text(matrix, tmp_path):
    with pytest.raises(DataError, match="column 'site' is string, not numeric"):
        open_rows([in_parts(tmp_path / "t", "parquet", matrix)])
    with pytest.raises(DataError, match="column 'site' is string, not numeric"):
        open_rows([in_parts(tmp_path / "c", "csv", matrix)], columns=["site"])


def test_a_store_that_only_fsspec_knows(matrix, tmp_path):
    NAMED["rows.csv"](tmp_path / "rows.csv", matrix, NAMES)
    memory = fsspec.filesystem("memory")
    memory.pipe("/in/it/rows.csv", (tmp_path / "rows.csv").read_bytes())
    for url in ("memory://in/it/rows.csv", "memory://in/it", "memory://in/*/r*.csv"):
        rows = open_rows([url])
        np.testing.assert_array_equal(values(rows), matrix)
        assert [path.name for path in rows.paths] == ["rows.csv"]
    memory.rm("/in", recursive=True)


@pytest.mark.parametrize("where", ["disk", "s3", "web"])
def test_a_file_that_changes_between_passes_is_refused(where, matrix, put, web, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    file = folder / "rows.parquet"
    NAMED["rows.parquet"](file, matrix, NAMES)
    if where == "web":
        shutil.copy(file, web[0])
    place = {"disk": file, "s3": f"{put(folder, 'changing')}/rows.parquet"}.get(
        where, f"{web[1]}/rows.parquet"
    )
    rows = open_rows([place])
    values(rows)
    values(rows)
    NAMED["rows.parquet"](file, matrix[:-1], NAMES)
    put(folder, "changing")
    shutil.copy(file, web[0])
    with refuses("file-changed", r"rows\.parquet was changed while it was read"):
        values(rows)
    assert values(open_rows([place])).shape == (39, 3)


def test_a_web_servers_files_are_copied_for_the_time_they_are_read(saved, web, monkeypatch):
    for name in ALL:
        shutil.copy(saved / name, web[0])
    for name in ALL:
        rows = open_rows([f"{web[1]}/{name}?signature=hush"])
        np.testing.assert_array_equal(values(rows), values(open_rows([saved / name])))
        assert str(rows.paths[0]) == f"{web[1]}/{name}"
    copy = Path(rows.paths[0])
    assert copy.stat().st_mode & 0o077 == 0 or copy.parent.stat().st_mode & 0o077 == 0
    del rows
    assert not copy.exists()
    monkeypatch.setattr(stores, "MOST_COPIED", 100)
    with refuses("too-large-to-copy", "is larger than"):
        open_rows([f"{web[1]}/c.npy"])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket/nothing.parquet", "s3://bucket/nothing.parquet does not exist"),
        ("s3://bucket/nothing/*.parquet", "No file matches s3://bucket/nothing"),
        ("s3://no-such-bucket/x.csv", "s3://no-such-bucket/x.csv"),
        ("s3://key:hush@bucket/x.csv", "has a name or password in it"),
        ("s3://bucket/x.csv?secret_key=hush", "A URL s3:// has 'secret_key'"),
        ("https://me:hush@host/x.csv", "has a name or password in it"),
        ("nothing-like-it://bucket/x.csv", "nothing-like-it:// URLs cannot be read"),
        ("WEB/nothing.csv?signature=hush", "/nothing.csv does not exist"),
        ("WEB/*.csv", "cannot be listed"),
    ],
)
def test_what_is_not_there_or_not_right_is_a_sentence_without_secrets(url, said, s3, web):
    with pytest.raises(DataError) as caught:
        open_rows([url.replace("WEB", web[1])])
    assert said in caught.value.message
    assert "hush" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("scheme", ["s3", "http", "http, by its own timeout"])
def test_a_store_that_does_not_answer_is_given_up(scheme, s3, silent, monkeypatch):
    monkeypatch.setattr(stores, "PATIENCE", 0.3)
    if "," in scheme:  # it was said not to exist
        monkeypatch.setattr(stores, "within", lambda action: action())
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{silent}")
    place = "s3://bucket/x.csv" if scheme == "s3" else f"http://{silent}/x.csv"
    with pytest.raises(DataError, match=r"(did not answer|[Tt]imeout|timed out)"):
        open_rows([place])


def test_a_store_that_stops_in_the_middle_is_given_up(put, matrix, tmp_path, monkeypatch):
    folder = tmp_path / "f"
    folder.mkdir()
    NAMED["rows.csv"](folder / "rows.csv", matrix, NAMES)
    rows = open_rows([f"{put(folder, 'stops')}/rows.csv"])
    goes_on = threading.Event()
    monkeypatch.setattr(stores, "PATIENCE", 0.3)
    monkeypatch.setattr(Lent, "_LONGEST", 0.3)
    usual = stores.ObjectStore.open

    class Stopping:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def read(self, size):
            goes_on.wait(2)
            return self._file.read(size)

    monkeypatch.setattr(stores.ObjectStore, "open", lambda self, path: Stopping(usual(self, path)))
    with pytest.raises(DataError, match="did not answer within"):
        values(rows)
    goes_on.set()


def test_the_ledger_knows_a_stores_file_by_place_and_content(put, matrix, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        NAMED["rows.csv"](folder / name, matrix, NAMES)
    url, key = put(folder, "ledger"), b"k" * 32
    first, second = open_rows([f"{url}/a.csv", f"{url}/b.csv"]).paths
    (one,), (again,), (other,) = (marks_of([each], key) for each in (first, first, second))
    (local,) = marks_of([folder / "a.csv"], key)
    assert one == again
    assert one.content == other.content == local.content
    assert len({one.path, other.path, local.path}) == 3
    assert usual_name([first]) == "s3://bucket/ledger/a.csv"
    with pytest.raises(DataError, match="is given twice"):
        open_rows([f"{url}/a.csv", f"{url}/a*.csv"])


def test_a_format_of_several_files_is_refused(put, matrix, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    NAMED["rows.csv"](folder / "a.csv", matrix, NAMES)
    (file,) = open_rows([f"{put(folder, 'beside')}/a.csv"]).paths
    with pytest.raises(DataError, match="is read together with files beside it"):
        file.with_suffix(".bim")


def test_a_fit_and_a_transform_of_files_in_a_bucket(put, matrix, tmp_path, run):
    folder = tmp_path / "f"
    folder.mkdir()
    NAMED["rows.parquet"](folder / "rows.parquet", matrix, NAMES)
    url, result = put(folder, "cli"), tmp_path / "r"
    status, _, err = run("fit", url, "-k", 2, "--epsilon", 9, "--out", result, "--no-plots")
    assert status == 0, err
    assert "opened an account for 's3://bucket/cli/rows.parquet'" in " ".join(err.split())
    run.done("transform", result, f"{url}/*", "--out", tmp_path / "s.csv")
    assert values(open_rows([tmp_path / "s.csv"])).shape == (40, 2)


# -- Stores whose drivers fsspec has: its files in memory stand for one, under an own protocol.

DRIVEN = np.random.default_rng(2).standard_normal((40, 3))


class Driver(MemoryFileSystem):
    """A driver of a cloud's store, as fsspec finds it by its protocol."""

    protocol = "faked"
    store: dict = {}  # noqa: RUF012 - of the class, as fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012


@pytest.fixture
def faked(tmp_path):
    """The driver, with a table in two files."""
    fsspec.register_implementation("faked", Driver, clobber=True)
    files = Driver()
    for number, part in enumerate(np.split(DRIVEN, 2)):
        file = tmp_path / f"{number}.parquet"
        pa.parquet.write_table(pa.table([*part.T], names=["a", "b", "c"]), file)
        files.pipe(f"/bucket/visits/{number}.parquet", file.read_bytes())
    yield files
    Driver.store.clear()


@pytest.mark.parametrize("place", ["faked://bucket/visits", "faked://bucket/visits/*.parquet"])
def test_a_registered_driver_s_files_are_read(place, faked):
    rows = open_rows([place])
    np.testing.assert_array_equal(values(rows), DRIVEN)
    np.testing.assert_array_equal(values(rows), DRIVEN)


def test_a_driver_that_stalls_is_given_up_within_the_stated_time(faked, monkeypatch):
    rows, goes_on = open_rows(["faked://bucket/visits"]), threading.Event()
    monkeypatch.setattr(stores, "PATIENCE", 0.3)

    def stalls(*_, **__):
        goes_on.wait(2)
        return {}

    monkeypatch.setattr(Driver, "info", stalls)
    with pytest.raises(DataError, match=r"did not answer within 0\.3 seconds"):
        values(rows)
    with pytest.raises(DataError, match=r"did not answer within 0\.3 seconds"):
        open_rows(["faked://bucket/visits"])
    goes_on.set()


def test_what_a_driver_raises_is_a_sentence(faked, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Forbidden: no access to this bucket")

    monkeypatch.setattr(Driver, "info", refused)
    with pytest.raises(DataError, match=r"bucket.*cannot be read"):
        open_rows(["faked://bucket/visits"])


@pytest.mark.parametrize("url", ["adl://bucket/x.csv", "oss://bucket/x.csv", "dropbox://b/x.csv"])
def test_a_driver_that_is_not_installed_is_named(url):
    with refuses("unknown-store", f"{url.partition(':')[0]}:// URLs cannot be read"):
        open_rows([url])


@pytest.mark.parametrize("scheme", ["gs", "gcs", "hdfs", "abfs", "abfss"])
def test_a_store_that_arrow_reads_is_never_waited_for_longer(scheme, monkeypatch):
    """Without credentials and servers: whatever Arrow does, a sentence comes in time."""
    goes_on = threading.Event()
    monkeypatch.setattr(stores, "PATIENCE", 0.3)
    monkeypatch.setattr(stores, "_arrow", lambda parts: goes_on.wait(2))
    with pytest.raises(DataError, match=r"cannot be reached.*did not answer within 0\.3 seconds"):
        open_rows([f"{scheme}://bucket/x.csv"])
    goes_on.set()
