"""``eigenveil aggregator``: the party that adds up what sites send, and sees no row."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.service import (
    HealthAt,
    LogJson,
    Say,
    StudyEvents,
    print_event,
    speaker,
    start_health,
)
from eigenveil.errors import OutputError

aggregator_app = typer.Typer(
    help="The aggregator between organisations: it has no rows, and only its own key.",
    no_args_is_help=True,
    add_completion=False,
)


@aggregator_app.callback()
def _one_of_several() -> None:
    """Keep ``start`` a word of its own, though it is the only one."""


@aggregator_app.command()
def start(
    kit: Annotated[
        Path, typer.Option("--kit", help="The aggregator's kit, as 'eigenveil flare' makes it.")
    ],
    listen: Annotated[
        str,
        typer.Option(
            help="Address of this machine to listen on; 0.0.0.0 for all of them. The "
            "default is reachable from this machine only."
        ),
    ] = "127.0.0.1",
    health: HealthAt = None,
    log_json: LogJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Carry studies between the lead and the sites until stopped (Ctrl-C)."""
    from eigenveil.cli.presenters.site_console import end_at_once, reported
    from eigenveil.network.flare.authority import need_flare
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="aggregator")
    need_flare()
    from eigenveil.network.flare.entry import run_aggregator
    from eigenveil.network.metrics import Activity, Party
    from eigenveil.network.status import AGGREGATOR_STARTED

    say = speaker(quiet=quiet, log_json=log_json, who=opened.name)
    _check_address(listen, opened.port)
    only = " (only from this machine: change it with --listen)" if _is_loopback(listen) else ""
    say(f"Aggregator {opened.name} listens on {listen}:{opened.port}{only}; Ctrl-C stops it.")
    party = Party(opened, Activity(is_ready=AGGREGATOR_STARTED.is_set))
    start_health(health, party, say)
    if not quiet:
        StudyEvents(opened, _told(say, log_json=log_json, who=opened.name)).start()
    end_at_once(say)
    return reported(run_aggregator(opened, listen=listen, say=say), opened.folder, say)


def _told(say: Say, *, log_json: bool, who: str) -> Callable[[Mapping[str, str], str], None]:
    """Tells of a study, with its ids where the log is for a program."""

    def tell(ids: Mapping[str, str], text: str) -> None:
        if log_json:
            print_event(who, ids, text)
        else:
            say(text)

    return tell


def _is_loopback(address: str) -> bool:
    return ipaddress.IPv4Address(address).is_loopback


def _check_address(host: str, port: int) -> None:
    """Refuse what cannot be listened on, for which FLARE would wait without a word.

    Raises
    ------
    OutputError
    """
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise options.WrongOption(
            f"--listen {host!r} is not an IPv4 address.",
            hint="Give one of this machine's, such as 192.0.2.7, or 0.0.0.0 for all of them.",
        ) from None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OutputError(
                    f"Port {port} is in use by another process.",
                    hint="Stop that one; another port needs new kits: 'eigenveil flare provision "
                    "--port'.",
                    code="port-in-use",
                ) from None
            raise OutputError(
                f"{host}:{port} cannot be listened on: {error.strerror}.",
                hint="Give an address of this machine: --listen.",
                code="bad-address",
            ) from None
