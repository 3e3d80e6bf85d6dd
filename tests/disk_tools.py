"""What is written need not outlast a power failure: no test cuts the power.

Waiting for the disk took most of a study's time. SQLite's journals stay as they are, so a killed
process is undone as ever.
"""

import os
import sqlite3

from sqlalchemy import Engine, event


def _unforced(connection, _):
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def wait_for_no_disk():
    """This process, and those forked from it, leave what they write to the operating system."""
    os.fsync = lambda file: None
    event.listen(Engine, "connect", _unforced)


def ledgers_wait_again():
    event.remove(Engine, "connect", _unforced)
