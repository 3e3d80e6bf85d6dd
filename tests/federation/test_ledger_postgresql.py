"""What is PostgreSQL's own; the rest of a ledger's contract runs there in the other tests."""

import pytest

from eigenveil.federation.ledger import store
from eigenveil.federation.ledger.ledger import Ledger
from ledger_tools import begin, budget_of, commit, key_of, loss_of, refused, release

psycopg = pytest.importorskip("psycopg")
ONE = release(0.5)


@pytest.fixture
def url(server):
    return server.url()


@pytest.fixture
def raw(server, url):
    """A connection of one's own to the ledger's tables."""
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(server.dsn, options=f"-csearch_path={schema}", autocommit=True) as made:
        yield made


@pytest.fixture
def ledger(url):
    made = Ledger(url)
    made.set_budget(budget_of(5.0))
    begin(made, key_of(), loss_of(ONE))
    commit(made, key_of(), charges=[ONE])
    return made


def test_the_database_itself_refuses_to_change_entries(ledger, raw):
    for statement in (
        "UPDATE ledger_entries SET time = ''",
        "DELETE FROM ledger_entries",
        "TRUNCATE ledger_entries",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="never changed"):
            raw.execute(statement)
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE ledger_entries SET body = replace(body, '5.0', '9.0') WHERE number = 1", 1),
        ("DELETE FROM ledger_entries WHERE number = 3", 3),
        ("UPDATE ledger_head SET count = 2", 3),
        ("DELETE FROM ledger_replies", 3),
        ("UPDATE ledger_entries SET session = 's7' WHERE number = 2", 2),
        ("UPDATE ledger_states SET session = 's7'", None),
    ],
)
def test_tampering_is_found(ledger, raw, statement, wrong):
    raw.execute("ALTER TABLE ledger_entries DISABLE TRIGGER ALL")
    raw.execute(statement)
    verdict = ledger.verify()
    assert (verdict.holds, verdict.wrong) == (False, wrong)


def test_looking_does_not_make_a_ledger(url, raw):
    for call in (Ledger.standings, Ledger.verify, lambda ledger: ledger.end_study("a1")):
        refused("no-ledger", call, Ledger(url))
    assert not raw.execute("SELECT 1 FROM pg_tables WHERE tablename = 'ledger_head' "
                           "AND schemaname = current_schema()").fetchall()  # fmt: skip


def test_a_ledger_lives_beside_other_tables(url, raw):
    raw.execute("CREATE TABLE birds (name text)")
    Ledger(url).set_budget(budget_of(1.0))
    assert Ledger(url).verify().holds


def test_a_ledger_that_another_process_holds(ledger, raw, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    with raw.transaction():
        raw.execute("SELECT * FROM ledger_head FOR UPDATE")
        refused("ledger-busy", ledger.set_budget, budget_of(1.0))
        assert ledger.verify().holds
    ledger.set_budget(budget_of(1.0))


def test_answers_are_durable_whatever_the_server_s_habit(ledger, raw, monkeypatch):
    """A server that need not write before it says 'committed' is told to."""
    raw.execute("ALTER ROLE owner SET synchronous_commit = off")
    raw.execute("ALTER ROLE owner SET default_transaction_isolation = 'serializable'")
    try:
        with ledger.store.writing() as tables:
            assert tables.run("SHOW synchronous_commit").fetchone() == ("on",)
            assert tables.run("SHOW transaction_isolation").fetchone() == ("read committed",)
    finally:
        raw.execute("ALTER ROLE owner RESET ALL")


def test_no_connection_stays(ledger, server):
    list(ledger.entries())
    with psycopg.connect(server.dsn) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'owner' "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        ).fetchone()
    assert count == 0


def test_the_name_of_a_place_has_no_password(tmp_path):
    assert Ledger("postgresql://me:hush@host/x").name == "postgresql://me:***@host/x"
    url = f"postgresql+psycopg://me:hush@/x?host={tmp_path}"  # a server that does not answer
    text = str(refused("database-refused", Ledger(url).standings))
    assert "hush" not in text
    assert "\n" not in text.partition(" -- ")[0]
