"""Ledgers of an older format, and copies that are restored: no budget is reset."""

import shutil
import sqlite3
import textwrap

import pytest
from ledger_tools import begin, budget_of, commit, key_of, loss_of, release

pytest.importorskip("alembic", reason="alembic is not installed")

from sqlalchemy import create_engine, inspect, update

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger import tables
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.migrations import VERSIONS, migrate
from eigenveil.federation.ledger.store import Store
from eigenveil.federation.ledger.tables import FORMAT, HEAD

ONE = release(0.5)
NEXT = "eigenveil-ledger-next"


@pytest.fixture(params=["file", "postgresql"])
def place(request, tmp_path):
    if request.param == "file":
        return str(tmp_path / "ledger")
    return request.getfixturevalue("server").url()


@pytest.fixture
def ledger(place):
    return charged(Ledger(place))


def charged(made):
    made.set_budget(budget_of(5.0))
    begin(made, key_of(), loss_of(ONE, ONE))
    commit(made, key_of(), charges=[ONE])
    return made


def revisions(folder, upgrade):
    """The package's own, and one more."""
    shutil.copytree(VERSIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = f"""
    import sqlalchemy as sa
    from alembic import op
    revision, down_revision, FORMAT = "ledger_next", "ledger_3", {NEXT!r}
    def upgrade():
        {upgrade}
    """
    (folder / "ledger_next.py").write_text(textwrap.dedent(text))
    return folder


def test_the_newest_revision_is_the_format_that_is_written(ledger, place):
    before = ledger.verify()
    found = migrate(place)
    assert (found.before, found.after) == (FORMAT, FORMAT)
    assert (found.entries, found.last) == (before.entries, before.last)
    assert ledger.verify() == before


def test_a_revision_adds_to_a_ledger_and_changes_no_entry(ledger, place, tmp_path, monkeypatch):
    before, spent = ledger.verify(), ledger.standings()[0].spent
    upgrade = "op.add_column('ledger_states', sa.Column('note', sa.String(40)))"
    versions = revisions(tmp_path / "versions", upgrade)
    monkeypatch.setattr(tables, "FORMAT", NEXT)
    with pytest.raises(DataError) as error:
        ledger.standings()
    assert error.value.code == "other-format"
    assert "ledger migrate" in error.value.hint
    found = migrate(place, versions=versions)
    assert (found.before, found.after, found.last) == (FORMAT, NEXT, before.last)
    assert ledger.verify() == before
    assert ledger.standings()[0].spent == spent
    with Store(place).reading() as connection:
        assert "note" in {each["name"] for each in inspect(connection).get_columns("ledger_states")}
    assert migrate(place, versions=versions).before == NEXT  # once is enough


@pytest.mark.parametrize(
    "upgrade",
    [
        'op.execute("UPDATE ledger_head SET count = 0")',
        "op.drop_table('ledger_entries')",
        "raise OSError",
    ],
)
def test_a_revision_that_fails_leaves_the_ledger_as_it_was(
    ledger, place, upgrade, tmp_path, monkeypatch
):
    before = ledger.verify()
    versions = revisions(tmp_path / "versions", upgrade)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "FORMAT", NEXT)
        with pytest.raises((DataError, OutputError, OSError)):
            migrate(place, versions=versions)
    assert ledger.verify() == before


def test_an_unknown_format_is_refused(ledger, place):
    with Store(place).migrating() as connection:
        connection.execute(update(HEAD).values(format="eigenveil-ledger-99"))
    with pytest.raises(DataError) as error:
        migrate(place)
    assert error.value.code == "other-format"


def test_where_there_is_no_ledger(tmp_path):
    with pytest.raises(OutputError) as error:
        migrate(str(tmp_path / "none"))
    assert error.value.code == "no-ledger"


# -- backup and restore, as docs/operations.md says


def test_an_old_copy_of_a_file_that_is_restored_is_noticed(tmp_path):
    place, copy, heads = tmp_path / "ledger", tmp_path / "copy", HeadsFile(tmp_path / "heads")
    ledger = charged(Ledger(place, heads=heads))
    with sqlite3.connect(place) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    commit(ledger, key_of(), step="round 2", charges=[ONE])
    spent = ledger.standings()[0].spent
    shutil.copy(copy, place)  # the charge is gone from the ledger, and a budget with it
    assert ledger.standings()[0].spent.mu_squared < spent.mu_squared
    found = ledger.verify()
    assert not found.holds
    assert "noted elsewhere" in found.explanation or "missing" in found.explanation
    with pytest.raises(DataError) as error:
        commit(ledger, key_of(), step="round 2", charges=[ONE])
    assert error.value.code == "heads-differ"
    # nothing was charged by the refused answer
    assert Ledger(place).verify().entries == found.entries


def test_the_latest_copy_can_be_restored(tmp_path):
    place, copy, heads = tmp_path / "ledger", tmp_path / "copy", HeadsFile(tmp_path / "heads")
    ledger = charged(Ledger(place, heads=heads))
    with sqlite3.connect(place) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    place.unlink()
    shutil.copy(copy, place)
    assert ledger.verify().holds
    commit(ledger, key_of(), step="round 2", charges=[ONE])


def test_postgresql_restored_from_an_old_dump_is_noticed(server, tmp_path):
    """As a dump would be: tables as they were before the last charge."""
    url, heads = server.url(), HeadsFile(tmp_path / "heads")
    ledger = charged(Ledger(url, heads=heads))
    engine = create_engine(Store(url)._url)
    names = ("ledger_head", "ledger_entries", "ledger_states", "ledger_replies")
    with engine.begin() as connection:
        for name in names:
            connection.exec_driver_sql(f"CREATE TABLE old_{name} AS SELECT * FROM {name}")
    commit(ledger, key_of(), step="round 2", charges=[ONE])
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE ledger_entries DISABLE TRIGGER ALL")
        for name in names:
            connection.exec_driver_sql(f"DELETE FROM {name}")
            connection.exec_driver_sql(f"INSERT INTO {name} SELECT * FROM old_{name}")
        connection.exec_driver_sql("ALTER TABLE ledger_entries ENABLE TRIGGER ALL")
    engine.dispose()
    assert not ledger.verify().holds
    with pytest.raises(DataError) as error:
        commit(ledger, key_of(), step="round 2", charges=[ONE])
    assert error.value.code == "heads-differ"
