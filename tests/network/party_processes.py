"""Forks parties of a study, each a process that can be killed: ``start NAME`` on standard input.

It imports everything once, so that a party that was killed is there again in some hundredths of a
second. It has no thread of its own, which a fork would lose.
"""

import os
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from contract import opener  # noqa: E402
from study_tools import Site, impatient  # noqa: E402

import disk_tools  # noqa: E402
from eigenveil.federation.ledger.ledger import Ledger  # noqa: E402
from eigenveil.network.attendant import Attendant  # noqa: E402
from eigenveil.network.carriers.serving import serve  # noqa: E402
from eigenveil.network.folder import open_party  # noqa: E402
from eigenveil.network.service import serve_aggregator  # noqa: E402


def _party(folder, name, address):
    party = open_party(folder / "parties" / name)
    if party.role != "aggregator":
        ledger = Ledger(folder / f"{name}.ledger")
        Attendant(Site(party, ledger), opener(address)(party)).serve(threading.Event())
    elif address.startswith("https"):
        with serve(party, host="127.0.0.1") as server:
            serve_aggregator(party, server.mailbox, say=lambda _: None)
    else:
        serve_aggregator(party, opener(address)(party), say=lambda _: None)


def _forever():
    folder, address = Path(sys.argv[1]), sys.argv[2]
    disk_tools.wait_for_no_disk()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for who was killed
    while True:
        words = os.read(0, 200)  # not buffered: a child must find nothing there
        if not words:
            os._exit(0)
        child = os.fork()
        if not child:
            try:
                os.close(0)
                with impatient():
                    _party(folder, words.decode().strip(), address)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        os.write(1, b"%d\n" % child)


if __name__ == "__main__":
    _forever()
