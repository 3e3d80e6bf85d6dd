"""Migrations of ledgers: one revision a format, in ``versions``, run by alembic.

A revision may add tables, columns and indexes. It never changes an entry: the chain of a ledger
that was migrated is the chain that was written, hash for hash, so no migration can reset a budget.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger.store import Store
from eigenveil.federation.ledger.tables import ENTRIES, HEAD
from eigenveil.federation.ledger.verify import check

VERSIONS = Path(__file__).with_name("versions")


@dataclass(frozen=True)
class Migrated:
    """What a migration did.

    Attributes
    ----------
    before, after : str
        The ledger's formats; the same where nothing was to be done.
    entries : int
        Of the chain, which is as it was.
    last : str
        Hash of the last one.
    """

    before: str
    after: str
    entries: int
    last: str


def migrate(place: str, *, versions: Path = VERSIONS) -> Migrated:
    """Bring a ledger to this version's format, in one transaction, or leave it as it is.

    Parameters
    ----------
    place : str
        The ledger's file or URL.
    versions : Path
        The folder of the revisions.

    Raises
    ------
    OutputError
        ``no-alembic``; when there is no ledger, or it cannot be written.
    DataError
        ``other-format`` for one of no known format, ``ledger-damaged`` where the migrated ledger
        does not hold.
    """
    scripts = _scripts(versions)
    with Store(place).migrating() as connection:
        before = str(connection.execute(select(HEAD.c.format)).scalar_one())
        known = {each.module.FORMAT: each.revision for each in scripts.walk_revisions()}
        if before not in known:
            raise DataError(
                f"The ledger's format is {before!r}, which this version of eigenveil cannot bring "
                "to its own.",
                hint="Use the version that wrote it, or a newer one.",
                code="other-format",
            )
        chain = _chain(connection)
        after = before
        for revision in reversed(list(scripts.iterate_revisions("head", known[before]))):
            _run(connection, revision.module)
            after = revision.module.FORMAT
            connection.execute(update(HEAD).values(format=after))
        if _chain(connection) != chain:
            raise _damaged("a migration changed its entries")
        found = check(connection)
        if not found.holds:
            raise _damaged(found.explanation.rstrip("."))
        return Migrated(before, after, found.entries, found.last)


def _scripts(versions: Path) -> Any:
    try:
        from alembic.config import Config
        from alembic.script import ScriptDirectory
    except ImportError:
        raise OutputError(
            "Migrations need alembic, which is not installed.",
            hint="Install it: pip install 'eigenveil[migrations]'.",
            code="no-alembic",
        ) from None
    config = Config()
    config.set_main_option("script_location", str(versions.parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


def _run(connection: Connection, module: Any) -> None:
    """Run one revision in the open transaction."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    with Operations.context(MigrationContext.configure(connection)):
        module.upgrade()


def _chain(connection: Connection) -> str:
    """A digest of all entries and the head."""
    digest = hashlib.sha256()
    for row in connection.execute(
        select(
            ENTRIES.c.number, ENTRIES.c.time, ENTRIES.c.kind, ENTRIES.c.body, ENTRIES.c.hash
        ).order_by(ENTRIES.c.number)
    ):
        digest.update(repr(tuple(row)).encode())
    head = connection.execute(select(HEAD.c.count, HEAD.c.hash, HEAD.c.key)).one()
    digest.update(repr(tuple(head)).encode())
    return digest.hexdigest()


def _damaged(why: str) -> DataError:
    return DataError(
        f"The ledger does not hold after the migration: {why}. It is left as it was.",
        hint="Check it with 'eigenveil ledger verify' of the version that wrote it.",
        code="ledger-damaged",
    )
