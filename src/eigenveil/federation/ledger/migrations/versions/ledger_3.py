"""The first format that was released: tables as :mod:`eigenveil.federation.ledger.tables` has them.

Ledgers before it are of no released version.
"""

from __future__ import annotations

revision = "ledger_3"
down_revision = None
FORMAT = "eigenveil-ledger-3"


def upgrade() -> None:
    """Nothing: there is no format before it."""
