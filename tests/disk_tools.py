"""What is written need not outlast a power failure: no test cuts the power.

Waiting for the disk took most of a study's time. SQLite's journals stay as they are, so a killed
process is undone as ever.
"""

import os

from eigenveil.federation.ledger import store

FORCED = store.SYNCHRONOUS


def wait_for_no_disk():
    """This process, and those forked from it, leave what they write to the operating system."""
    os.fsync = lambda file: None
    store.SYNCHRONOUS = "OFF"


def ledgers_wait_again():
    store.SYNCHRONOUS = FORCED
