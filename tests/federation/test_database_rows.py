"""Rows of a query are the same in every pass, nothing is written, and no password is shown."""

import gc
import json
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from types import ModuleType

import numpy as np
import pytest

from eigenveil import PrivatePCA
from eigenveil.errors import DataError
from eigenveil.federation.ledger.fits import marks_of, usual_name
from eigenveil.io import Query, open_rows
from eigenveil.io.files import absolute
from ledger_tools import refused

ROWS = np.random.default_rng(3).normal(size=(300, 3))
PEOPLE = [f"p{row % 80}" for row in range(len(ROWS))]
ALL = "SELECT * FROM visits"


_RUN = """
import sqlite3, sys
for statement in sys.argv[2:]:
    connection = sqlite3.connect(sys.argv[1])
    connection.execute(statement)
    connection.commit()
    connection.close()
"""


class Sqlite:
    def __init__(self, folder):
        self.file = folder / "visits.db"
        self.uri = f"sqlite:///{self.file}"

    def run(self, *statements):
        """In another process: in this one, closing the file here would drop the reader's locks."""
        subprocess.run([sys.executable, "-S", "-c", _RUN, self.file, *statements], check=True)

    def fill(self, rows):
        kinds = "person TEXT, a REAL, b REAL, c REAL"
        self.run("PRAGMA journal_mode = WAL", "DROP TABLE IF EXISTS visits")
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(f"CREATE TABLE visits ({kinds})")
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)

    def count(self):
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute("SELECT count(*) FROM visits").fetchone()[0]


class Snowflake(Sqlite):
    """Snowflake's own server is not at hand: its driver is SQLite's here."""

    def __init__(self, folder, monkeypatch):
        super().__init__(folder)
        driver = pytest.importorskip("adbc_driver_sqlite.dbapi", reason="it is not installed")
        found = ModuleType("adbc_driver_snowflake.dbapi")
        found.connect = lambda uri: {self.uri: driver.connect}[uri](f"file:{self.file}")
        for name in ("adbc_driver_snowflake", found.__name__):
            monkeypatch.setitem(sys.modules, name, found)
        found.__name__ = "adbc_driver_snowflake"
        self.uri = "snowflake://owner:hush@account/ward/public?warehouse=small"


class Postgres:
    def __init__(self, server):
        pytest.importorskip("adbc_driver_postgresql", reason="its ADBC driver is not installed")
        self._server = server
        self.uri = f"postgresql://owner:hush@/postgres?host={server.folder}"

    def run(self, *statements):
        with self._server.connected() as connection:
            for statement in statements:
                connection.execute(statement)

    def fill(self, rows):
        gc.collect()  # rows of the test before, which an exception's traceback may keep
        with self._server.connected() as connection:
            connection.execute("DROP TABLE IF EXISTS visits")
            connection.execute(
                "CREATE TABLE visits (person text, a float8, b float8, c numeric(40, 20))"
            )
            with connection.cursor().copy("COPY visits FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

    def count(self):
        with self._server.connected() as connection:
            return connection.execute("SELECT count(*) FROM visits").fetchone()[0]


@pytest.fixture(params=["sqlite", "postgresql", "snowflake"])
def database(request, tmp_path, monkeypatch):
    """A database with the table ``visits``."""
    if request.param == "sqlite":
        pytest.importorskip("adbc_driver_sqlite", reason="its ADBC driver is not installed")
        made = Sqlite(tmp_path)
    elif request.param == "snowflake":
        made = Snowflake(tmp_path, monkeypatch)
    else:
        made = Postgres(request.getfixturevalue("server"))
    made.fill([(person, *row) for person, row in zip(PEOPLE, ROWS.tolist(), strict=True)])
    return made


def values(rows):
    return np.concatenate([block.values for block in rows.blocks()])


def units(rows):
    return [unit for block in rows.blocks() for unit in block.units]


def test_rows_units_and_labels_of_a_query(database):
    rows = open_rows([Query(ALL, database.uri)], unit="person")
    assert rows.names == ("a", "b", "c")
    for _ in range(2):
        np.testing.assert_allclose(values(rows), ROWS, rtol=1e-14)
        assert units(rows) == PEOPLE
    chosen = open_rows([Query(f"{ALL} ; ", database.uri)], columns=["c", "a"])
    np.testing.assert_allclose(values(chosen), ROWS[:, [2, 0]], rtol=1e-14)
    found = [each for _, part in chosen.labelled_blocks(["person"]) for each in part["person"]]
    assert found == PEOPLE


def test_every_pass_sees_the_same_rows_whoever_writes(database):
    """Without the snapshot the second pass has one row more, and other numbers."""
    rows = open_rows([Query(ALL, database.uri)], exclude=["person"])
    database.run("INSERT INTO visits VALUES ('new', 1, 2, 3)")
    database.run("UPDATE visits SET a = a + 1")
    np.testing.assert_allclose(values(rows), ROWS, rtol=1e-14)
    database.run("DELETE FROM visits")
    np.testing.assert_allclose(values(rows), ROWS, rtol=1e-14)
    assert values(open_rows([Query("SELECT 1 AS a", database.uri)])).tolist() == [[1.0]]


def test_a_database_whose_locks_cannot_be_written_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason="its ADBC driver is not installed")
    database = Sqlite(tmp_path)
    database.fill([("p", 1, 2, 3)])
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(DataError, match="cannot write its locks"):
        open_rows([Query(ALL, database.uri)])
    database.run("PRAGMA journal_mode = DELETE")
    assert len(values(open_rows([Query(ALL, database.uri)], columns=["a"]))) == 1


WRITES = [
    "DELETE FROM visits",
    "DELETE FROM visits RETURNING a",
    "INSERT INTO visits VALUES ('x', 1, 2, 3) RETURNING a",
    "SELECT a FROM visits; DELETE FROM visits",
    "WITH gone AS (DELETE FROM visits RETURNING a) SELECT a FROM gone",
    "COMMIT",
    "DROP TABLE visits",
]


def test_a_query_that_writes_is_refused_and_writes_nothing(database):
    for sql in WRITES:
        refused("query-failed", lambda sql=sql: values(open_rows([Query(sql, database.uri)])))
        assert database.count() == len(ROWS), sql


def test_no_statement_but_the_first_is_run(database):
    """SQLite's driver leaves out the others, PostgreSQL's refuses them all."""
    sql = "SELECT a FROM visits) AS x; DELETE FROM visits; SELECT * FROM (SELECT 1 AS a"
    with suppress(DataError):
        values(open_rows([Query(sql, database.uri)]))
    assert database.count() == len(ROWS)


def test_a_function_that_writes_is_refused_by_the_transaction(server):
    database = Postgres(server)
    database.fill([("p", 1, 2, 3)])
    database.run(
        "CREATE OR REPLACE FUNCTION writes() RETURNS int LANGUAGE sql AS "
        "$$ INSERT INTO visits VALUES ('x', 1, 2, 3) RETURNING 1 $$"
    )
    with pytest.raises(DataError, match="read-only transaction"):
        values(open_rows([Query("SELECT writes() AS a", database.uri)]))
    sql = "SELECT set_config('transaction_read_only', 'off', false)::text AS x, writes() AS a"
    with pytest.raises(DataError):
        values(open_rows([Query(sql, database.uri)], columns=["a"]))
    assert database.count() == 1


def test_what_is_wrong_with_a_query_is_a_sentence(database):
    for sql, said in (
        ("SELECT nothing FROM visits", "nothing"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT FROM FROM", "syntax error"),
    ):
        error = refused("query-failed", open_rows, [Query(sql, database.uri)])
        assert said in error.message
        assert "hush" not in f"{error.message}{error.hint}"


def test_cells_are_in_no_message(server):
    database = Postgres(server)
    database.fill([("a-secret", 1, 2, 3)])
    with pytest.raises(DataError, match="invalid input syntax for type double precision") as caught:
        values(open_rows([Query("SELECT person::float8 AS a FROM visits", database.uri)]))
    assert "secret" not in caught.value.message


def test_a_cell_of_another_type_is_a_row_that_is_not_valid_and_no_end(tmp_path):
    """SQLite's driver takes types from the first 1024 rows, and one "<5" later ended the pass."""
    pytest.importorskip("adbc_driver_sqlite", reason="its ADBC driver is not installed")
    database = Sqlite(tmp_path)
    database.run("CREATE TABLE visits (a INTEGER)")
    database.run(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000) "
        "INSERT INTO visits SELECT x FROM n",
        "INSERT INTO visits VALUES (0.5), ('<5'), (NULL), (x'ff'), ('7')",
    )
    found = values(open_rows([Query(ALL, database.uri)]))[:, 0]
    np.testing.assert_array_equal(found[:2000], np.arange(1, 2001))
    np.testing.assert_array_equal(found[2000:], [0.5, np.nan, np.nan, np.nan, 7.0])


def test_a_password_is_in_nothing_that_is_shown(server):
    uri = f"postgresql://owner:hush@127.0.0.1:1/x?host={server.folder}/nowhere&password=hush2"
    query = Query(ALL, uri)
    with pytest.raises(DataError) as caught:
        open_rows([query])
    shown = f"{query!r} {query} {caught.value.message} {caught.value.hint} {usual_name([query])}"
    shown += query.open("rb").read().decode()
    assert "hush" not in shown
    assert "owner" not in shown.replace("owner's", "")


def test_a_ledger_knows_a_query_by_the_database_and_its_text():
    key = b"k" * 32
    queries = [
        Query("SELECT a\n  FROM t;", "postgresql://me:one@host/db"),
        Query("SELECT a FROM t", "postgresql://you:two@host/db?sslmode=require"),
        Query("SELECT a FROM t", "postgresql://host/other"),
        Query("SELECT a FROM t WHERE a > 0", "postgresql://host/db"),
    ]
    marks = [marks_of([query], key)[0] for query in queries]
    assert marks[0] == marks[1]
    assert len({mark.content for mark in marks}) == len({mark.path for mark in marks}) == 3
    assert usual_name(queries[:1]).startswith("postgresql://host/db (query ")


def test_what_names_no_database_is_refused_unquoted():
    for uri in ("", "visits.db", "host=x password=hush", "postgresql://h:port/x"):
        assert "hush" not in refused("bad-database-url", Query, ALL, uri).message


def test_a_driver_that_promises_no_snapshot_is_refused(tmp_path):
    pytest.importorskip("adbc_driver_duckdb", reason="DuckDB is not installed")
    query = Query("SELECT 1 AS a", f"duckdb:///{tmp_path}/x.db")
    refused("query-failed", open_rows, [query])
    with pytest.raises(DataError, match="needs the library adbc_driver_nothing"):
        open_rows([Query("SELECT 1 AS a", "nothing://host/x")])


def test_snowflakes_driver_has_an_extra_of_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_snowflake", None)
    query = Query("SELECT 1 AS a", "snowflake://me@account/ward")
    assert "eigenveil[snowflake]" in refused("extra-missing", open_rows, [query]).hint


def test_a_server_that_is_not_there_is_named_without_its_url(tmp_path, monkeypatch):
    def connect(_):
        raise OSError('IO: Post "https://account/login?token=hush": dial tcp: no such host')

    query = Query(ALL, Snowflake(tmp_path, monkeypatch).uri)
    monkeypatch.setattr(sys.modules["adbc_driver_snowflake"], "connect", connect)
    error = refused("query-failed", open_rows, [query])
    assert "IO: Post to the server: dial tcp: no such host" in error.message
    assert "hush" not in error.message


def test_a_fit_charges_the_query_and_a_transform_carries_units(database, tmp_path, run):
    words = ("--sql", ALL, "--from", database.uri)
    result = tmp_path / "result"
    place = tmp_path / "rows.ledger"
    fit = ("fit", *words, "--unit", "person", "-k", 2, "--no-plots", "--ledger", place)
    status, out, err = run(*fit, "--out", result)
    assert status == 0, err
    assert "hush" not in out + err
    assert "(query " in err
    err = run.fails(*fit, "--out", tmp_path / "again")
    assert "(query " in err
    assert "hush" not in err
    run.done("transform", result, *words, "--out", tmp_path / "scores.csv")
    scores = open_rows([tmp_path / "scores.csv"], unit="person")
    assert units(scores) == PEOPLE
    model = PrivatePCA.load(result / "model.npz")
    np.testing.assert_allclose(values(scores), model.transform(ROWS), rtol=1e-9, atol=1e-12)
    run.done("schema", "new", *words, "--out", tmp_path / "schema.toml", "--yes")
    for file in result.iterdir():
        assert b"hush" not in file.read_bytes()


def test_a_query_is_given_whole_and_alone(tmp_path, run):
    to = ("--out", tmp_path / "o.csv")
    where = ("--from", "sqlite:///x.db")
    for words in (("--sql", ALL), where, ("rows.csv", "--sql", ALL, *where), ()):
        for command in (("schema", "check", "--schema", "s.toml"), ("transform", "result", *to)):
            run.fails(*command, *words, status=2)


def test_a_file_is_one_database_from_whatever_folder_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    whole = Query("SELECT 1", f"sqlite:///{tmp_path}/ward.db")
    here = Query("SELECT 1", "sqlite:///ward.db")
    monkeypatch.chdir(tmp_path / "inner")
    beside = Query("SELECT 1", "sqlite:///../ward.db")
    assert beside.database == whole.database
    assert beside.open("rb").read() == whole.open("rb").read()
    monkeypatch.chdir(tmp_path)
    assert here.open("rb").read() == whole.open("rb").read()


def test_a_place_means_the_same_after_its_process_went_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason="its ADBC driver is not installed")
    Sqlite(tmp_path).fill([("p", 1.0, 2.0, 3.0)])
    monkeypatch.chdir(tmp_path)
    place = absolute(Query(ALL, "sqlite:///visits.db"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert values(open_rows([place], exclude=["person"])).tolist() == [[1.0, 2.0, 3.0]]


# -- databases of sites, and of trees


@pytest.fixture
def half(database, tmp_path):
    """South's rows in a file, of the columns that the database has."""
    file = tmp_path / "south.csv"
    lines = ["person,a,b,c", *(f"s{row},1.5,{row},{-row}" for row in range(900))]
    file.write_text("\n".join(lines) + "\n")
    return file


def fitted(run, command, out, *words):
    """The components that a command writes, with seeded noise."""
    how = ("--epsilon", 20, "--seed", 5, "-k", 2, "--json", "--no-plots")
    status, said, err = run(*command, *words, *how, "--out", out)
    assert status == 0, err
    assert "hush" not in said + err
    return json.loads(said)["components"]


def test_a_site_s_rows_may_be_what_its_database_answers(database, half, tmp_path, run):
    rows = tmp_path / "north.csv"
    lines = [",".join(map(repr, row)) for row in ROWS.tolist()]
    rows.write_text("\n".join(["a,b,c", *lines]) + "\n")
    query = ("--site", f"north={database.uri}", "--sql", "SELECT * FROM visits")
    south = ("--site", f"south={half}", "--columns", "a,b,c")
    for command in (["fit", "--protocol", "cape"], ["federate-tree"]):
        place = tmp_path / command[0]
        books = ("--ledgers", place / "ledgers")
        found = fitted(run, command, place / "query", *query, *south, *books)
        assert b"hush" not in (books[1] / "north.ledger").read_bytes()
        other = ("--site", f"north={rows}", *south)
        np.testing.assert_allclose(found, fitted(run, command, place / "file", *other), rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--site", "n=sqlite:///x.db", "--site", "s=a.csv"], "x.db is a database: which rows"),
        (["--site", "n=postgresql://me:hush@h/d"], "postgresql://h/d is a database: which rows"),
        (["sqlite:///x.db"], "x.db is a database: which rows are meant?"),
        (["--site", "n=a.csv", "--sql", ALL], "--sql is a query, and no site names a database"),
        (["a.csv", "--sql", ALL], "--sql is a query, and no database is named"),
        (["--site", "n=a.csv", "--sql", ALL, "--from", "sqlite:///x"], "--from is for one data"),
        (["--site", "postgresql://me:hush@h/d"], "is not NAME=FILE"),
        (
            ["--site", "n=sqlite:///{}", "--site", "s=sqlite:///{}", "--sql", ALL],
            "is given to site n, too",
        ),
    ],
)
def test_a_site_s_database_and_its_query_are_named_together(words, said, tmp_path, run):
    if any("{}" in word for word in words):
        pytest.importorskip("adbc_driver_sqlite", reason="its ADBC driver is not installed")
        made = Sqlite(tmp_path)
        made.fill([("p", 1.0, 2.0, 3.0)])
        words = [word.format(made.file) for word in words] + ["--exclude", "person"]
    status, _, err = run("fit", *words, "--out", tmp_path / "out")
    assert status in (2, 3), err
    assert said in " ".join(err.split())
    assert "hush" not in err
