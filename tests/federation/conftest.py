"""One PostgreSQL server for all tests of a process; a site where approvers decide."""

import pytest

from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.ledger.ledger import Budget, Ledger
from ledger_tools import postgresql_server


@pytest.fixture(scope="session")
def server():
    """It has a role ``north`` beside its owner."""
    with postgresql_server() as running:
        import psycopg

        with psycopg.connect(running.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE north LOGIN")
        yield running


@pytest.fixture
def desk(party, tmp_path):
    """With a budget of epsilon 5."""
    made = Decisions(party, Ledger(tmp_path / "north.ledger", durable=False))
    assert made.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    return made


@pytest.fixture
def ledger(desk):
    return desk.ledger
