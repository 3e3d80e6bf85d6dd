"""Starting a site, a noise helper or an aggregator: FLARE's programs, hardened, in this process.

A party of eigenveil never runs FLARE's own start scripts: see
:mod:`eigenveil.network.flare.hardening`.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenveil.network.flare.authority import need_flare
from eigenveil.network.health import Connection
from eigenveil.network.kit import Kit, lock, prepare
from eigenveil.network.parties import Party, Say, set_party
from eigenveil.network.status import mark_lost

if TYPE_CHECKING:  # imports FLARE
    from eigenveil.network.flare.connections import Connections

# Seconds after which it is reported that there is no connection.
PATIENCE = 20.0
# Seconds between two looks at the connection.
_LOOK = 0.2
# Where an aggregator listens unless its owner changes it.
LOOPBACK = "127.0.0.1"
# Loaded before the first study comes, which would otherwise wait for it.
_NEEDED = (
    "numpy",
    "scipy.linalg",
    "sklearn.utils.validation",
    "eigenveil.federation.ledger.ledger",
    "eigenveil.federation.protocol.site",
    "eigenveil.federation.protocol.helper",
)
# Seconds that FLARE keeps a job open for word of a site that was started again meanwhile; with its
# default of 900 the next study would wait as long.
_OUTCOME_WAIT = "5"


def run_site(kit: Kit, party: Party, *, say: Say = print) -> int:
    """Be a site or a noise helper until stopped; the process's exit status.

    Parameters
    ----------
    say : callable
        Called with whether there is a connection.

    Raises
    ------
    OutputError
        When the kit cannot be written, another process runs from it, or FLARE is not there in a
        version that was tested.
    """
    need_flare()
    say(f"{kit.name} starts and connects to the aggregator at {kit.host}:{kit.port}.")
    with lock(kit):
        _tidy(kit)
        prepare(kit)
        for name in _NEEDED:
            import_module(name)
        from nvflare.private.fed.app.client import client_train

        from eigenveil.network.flare.hardening import harden_site

        made = harden_site(kit, lambda: party.limit)
        _follow(kit, made, lambda: party.admission is None, say)
        set_party(party)
        _watch(kit, party.connection, say)
        arguments = argparse.Namespace(
            workspace=str(kit.folder),
            fed_client=kit.configuration.name,
            set=[f"uid={kit.name}", *_settings(kit)],
            local_rank=0,
        )
        return _run(client_train.main, arguments)


def run_aggregator(kit: Kit, *, listen: str = LOOPBACK, say: Say = print) -> int:
    """Be the aggregator until stopped; the process's exit status.

    Parameters
    ----------
    listen : str
        The address of this machine on which it listens: "0.0.0.0" is every one.

    Raises
    ------
    OutputError
        When the kit cannot be written, another process runs from it, or FLARE is not there in a
        version that was tested.
    """
    need_flare()
    with lock(kit):
        _tidy(kit)
        prepare(kit)
        lost, resumed = mark_lost(kit)
        if resumed:
            say(f"Studies that go on where the aggregator stopped: {resumed}.")
        if lost:
            say(f"Studies that cannot go on, to be run again: {lost}.")
        os.environ["NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"] = _OUTCOME_WAIT
        from nvflare.private.fed.app.server import server_train

        from eigenveil.network.flare.hardening import harden_aggregator

        made = harden_aggregator(kit, listen)
        _follow(kit, made, lambda: not any(kit.journals.iterdir()), say)
        arguments = argparse.Namespace(
            workspace=str(kit.folder),
            fed_server=kit.configuration.name,
            set=_settings(kit),
        )
        return _run(server_train.main, arguments)


def _follow(kit: Kit, made: Connections, idle: Callable[[], bool], say: Say) -> None:
    """Take a renewed certificate over while the party runs."""
    from eigenveil.network.flare.renewal import Renewal

    Renewal(kit, made, idle=idle, say=say, home=Path.cwd()).start()


def _settings(kit: Kit) -> list[str]:
    return ["secure_train=true", f"org={kit.org}", "config_folder=config"]


def _run(main: Callable[[Any], Any], arguments: argparse.Namespace) -> int:
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    # FLARE gives the processes of its jobs this process's path
    with _own_arguments():
        status = MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments)
    return status if isinstance(status, int) else 0


@contextmanager
def _own_arguments() -> Iterator[None]:
    """FLARE must not see the words of our command line."""
    kept, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = kept


def _watch(kit: Kit, connection: Connection, say: Say) -> None:
    """Say when there is a connection, and plainly when there is none: FLARE tries for ever."""
    where = f"{kit.host}:{kit.port}"

    def until(up: bool, seconds: float = math.inf) -> bool:
        end = time.monotonic() + seconds
        while connection.is_up() != up and time.monotonic() < end:
            time.sleep(_LOOK)
        return connection.is_up() == up

    def watch() -> None:
        if not until(True, PATIENCE):
            say(
                f"Not connected to the aggregator at {where} after {PATIENCE:.0f} s; still trying. "
                "Check that it runs and can be reached, and that this kit's certificate is of its "
                "federation."
            )
            until(True)
        say(f"{kit.name} is connected to the aggregator at {where}.")
        while True:
            until(False)
            say(f"{kit.name} lost its connection to the aggregator at {where}; still trying.")
            until(True)
            say(f"{kit.name} has its connection to the aggregator at {where} again.")

    threading.Thread(target=watch, daemon=True, name="eigenveil connection").start()


def _tidy(kit: Kit) -> None:
    """Remove what FLARE left of jobs that are over."""
    shutil.rmtree(kit.runs, ignore_errors=True)
