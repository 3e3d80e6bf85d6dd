"""``eigenveil aggregator``: the party that adds up what sites send, and sees no row."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.errors import OutputError

aggregator_app = typer.Typer(
    help="The aggregator between organisations: it has no rows, and no key but its own.",
    no_args_is_help=True,
)


@aggregator_app.callback()
def _one_of_several() -> None:
    """Keep ``start`` a word of its own, though it is the only one."""


@aggregator_app.command()
def start(
    kit: Annotated[
        Path, typer.Option("--kit", help="The aggregator's kit, as 'eigenveil flare' makes it.")
    ],
    quiet: options.Quiet = False,
) -> int:
    """Carry studies between the lead and the sites until stopped (Ctrl-C)."""
    from eigenveil.cli.site_says import end_at_once, lines, told
    from eigenveil.runtime.flare.installed import need_flare
    from eigenveil.runtime.flare.kit import open_kit

    opened = open_kit(kit, role="aggregator")
    need_flare()
    from eigenveil.runtime.flare.entry import run_aggregator

    say = lines(quiet=quiet)
    _check_port(opened.host, opened.port)
    say(f"Aggregator {opened.name} on port {opened.port}; Ctrl-C stops it.")
    end_at_once(say)
    return told(run_aggregator(opened, say=say), opened.folder, say)


def _check_port(host: str, port: int) -> None:
    """Refuse a port that is taken, for which FLARE would wait without a word.

    Raises
    ------
    OutputError
    """
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
