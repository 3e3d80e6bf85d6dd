"""One PostgreSQL server for all tests of a process."""

import pytest
from ledger_tools import postgresql_server


@pytest.fixture(scope="session")
def server():
    """It has a role ``north`` beside its owner."""
    with postgresql_server() as running:
        import psycopg

        with psycopg.connect(running.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE north LOGIN")
        yield running
