"""A ledger's heads in PostgreSQL: rights, time, rows that stay, and what is said of a password."""

import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from ledger_tools import begin, budget_of, commit, key_of, loss_of, release

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.ledger.heads_table import HeadsTable
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.tables import Head

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
ONE = release(0.5)
DOCS = Path(__file__).parents[2] / "docs" / "sites.md"


@pytest.fixture
def url(server):
    return server.url().replace("+psycopg", "")


@pytest.fixture
def raw(server, url):
    """The owner's connection to the tables."""
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(server.dsn, options=f"-csearch_path={schema}", autocommit=True) as made:
        made.execute(f"GRANT USAGE ON SCHEMA {schema} TO north")
        yield made


@pytest.fixture
def heads(url):
    return HeadsTable(f"{url}&ledger=north")


@pytest.fixture
def as_site(url, raw):
    """The place as a site sees it where the database's owner did what the docs say."""
    for statement in DOCS.read_text(encoding="utf-8").split("```sql")[1].split("```")[0].split(";"):
        raw.execute(statement)
    return HeadsTable(f"{url.replace('owner@', 'north@')}&ledger=north")


def head(number, letter="a"):
    return Head(number, letter * 64)


def test_a_ledger_and_its_heads(tmp_path, as_site):
    ledger = Ledger(tmp_path / "ledger", heads=as_site)
    ledger.set_budget(budget_of(5.0))
    begin(ledger, key_of(), loss_of(ONE))
    commit(ledger, key_of(), charges=[ONE])
    found = ledger.verify()
    assert found.holds
    assert "All 3 heads" in found.explanation
    (tmp_path / "ledger").unlink()
    with pytest.raises(DataError) as caught:
        ledger.set_budget(budget_of(9.0))
    assert caught.value.code == "heads-differ"


def test_a_ledger_in_the_same_database(url, heads):
    """Neither waits for the other."""
    ledger = Ledger(url, heads=heads)
    ledger.set_budget(budget_of(5.0))
    begin(ledger, key_of(), loss_of(ONE))
    assert ledger.verify().holds


def test_the_table_of_the_docs_is_the_one_that_is_made(url, as_site, server):
    """The same columns, types, defaults and key."""
    made = HeadsTable(f"{server.url()}&ledger=north")
    made.note(head(0))
    query = (
        "SELECT column_name, data_type, character_maximum_length, is_nullable, column_default "
        "FROM information_schema.columns WHERE table_name = 'eigenveil_heads' "
        "ORDER BY table_schema, ordinal_position"
    )
    with psycopg.connect(server.dsn) as connection:
        columns = connection.execute(query).fetchall()
    assert len(columns) >= 8
    assert all(columns[number] == columns[number % 4] for number in range(len(columns)))
    assert columns[3][-1] == "clock_timestamp()"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM eigenveil_heads",
        "UPDATE eigenveil_heads SET hash = ''",
        "TRUNCATE eigenveil_heads",
        "INSERT INTO eigenveil_heads VALUES ('north', 2, '', 'yesterday')",
        "DROP TABLE eigenveil_heads",
        "ALTER TABLE eigenveil_heads DISABLE TRIGGER ALL",
    ],
)
def test_a_site_can_add_heads_alone(server, url, as_site, statement):
    as_site.note(head(1))
    schema = url.rpartition("%3D")[2]
    name = server.dsn.replace("owner", "north")
    with (
        psycopg.connect(name, options=f"-csearch_path={schema}") as site,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        site.execute(statement)
    assert [each.count for each in as_site.read()] == [1]


def test_the_table_s_owner_changes_no_row_by_mistake(heads, raw):
    heads.note(head(1))
    for statement in ("DELETE FROM eigenveil_heads", "UPDATE eigenveil_heads SET hash = ''"):
        with pytest.raises(psycopg.errors.RaiseException, match="heads of a ledger are never"):
            raw.execute(statement)


def test_the_rights_that_are_missing_are_said(url, raw, as_site):
    raw.execute("REVOKE ALL ON eigenveil_heads FROM north")
    for right, call in (
        ("SELECT", lambda: as_site.note(head(1))),
        ("SELECT", as_site.read),
    ):
        with pytest.raises(OutputError) as caught:
            call()
        assert "permission denied for table eigenveil_heads" in caught.value.message, right
    raw.execute("GRANT SELECT ON eigenveil_heads TO north")
    with pytest.raises(OutputError, match="permission denied"):
        as_site.note(head(1))
    raw.execute("ALTER TABLE eigenveil_heads RENAME TO hidden")
    again = HeadsTable(f"{url.replace('owner@', 'north@')}&ledger=north")
    with pytest.raises(OutputError, match="permission denied for schema"):
        again.note(head(1))


def test_a_service_says_it_all(server, as_site, url, tmp_path, monkeypatch):
    """As the docs advise, so that nothing secret is on the command line."""
    schema = url.rpartition("%3D")[2]
    text = f"[heads]\nhost={server.folder}\nuser=north\ndbname=postgres\n"
    (tmp_path / "services").write_text(f"{text}options=-csearch_path={schema}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    HeadsTable("postgresql:///?service=heads&ledger=north").note(head(1))
    assert [each.count for each in as_site.read()] == [1]


def test_no_table_is_said(heads):
    with pytest.raises(OutputError) as caught:
        heads.read()
    assert caught.value.code == "no-heads"


def test_two_ledgers_do_not_meet(url, heads):
    heads.note(head(1))
    other = HeadsTable(f"{url}&ledger=south")
    other.note(head(1, "b"), last=True)
    assert [each.hash[0] for each in heads.read()] == ["a"]
    assert [each.hash[0] for each in other.read()] == ["b"]


def test_later_heads_have_later_times_whoever_waits(heads, url, raw):
    """Times are of when a head is added, not of when its turn was waited for."""
    heads.note(head(0))
    others = [HeadsTable(f"{url}&ledger=north") for _ in range(4)]

    def note(place, numbers):
        for number in numbers:
            place.note(head(number))

    threads = [
        threading.Thread(target=note, args=(place, range(first, 41, 4)))
        for first, place in enumerate(others, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    noted = heads.read()
    assert noted[-1].count == 40
    assert all(one.time <= two.time for one, two in pairwise(noted))
    (zone,) = {each.time.utcoffset() for each in noted}
    assert zone == timedelta(0)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://north:geheim@127.0.0.1:1/heads?ledger=north",
        "postgresql://north@127.0.0.1:1/heads?password=geheim&ledger=north",
        "postgresql://north:geheim@127.0.0.1:port/heads?ledger=north",
        "postgresql://north:geheim@127.0.0.1:1/heads?nonsense=geheim2&ledger=north",
        "postgresql://north:geheim@127.0.0.1:1/heads",
        "oracel://north:geheim@127.0.0.1:1/heads?ledger=north",
    ],
)
def test_no_password_is_shown(where, tmp_path):
    with pytest.raises(EigenveilError) as caught:
        Ledger(tmp_path / "ledger", heads=HeadsTable(where)).set_budget(budget_of(1.0))
    assert "geheim" not in str(caught.value).replace("geheim2", "")
    assert not (tmp_path / "ledger").exists()
