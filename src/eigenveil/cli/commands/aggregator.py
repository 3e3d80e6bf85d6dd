"""``eigenveil aggregator``: the party that adds up what sites send, and sees no row."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen
from eigenveil.cli.service import Service, StudyEvents, service_options, start_health

aggregator_app = options.group()

PartyPath = Annotated[
    Path,
    typer.Option("--party", help="The aggregator's folder, as 'eigenveil federation' makes it."),
]


@aggregator_app.command()
@options.takes(service=service_options)
def start(
    party: PartyPath,
    listen: Annotated[
        str,
        typer.Option(
            help="Address of this machine to listen on, where the mailbox is served over https; "
            "0.0.0.0 for all of them. The default is reachable from this machine only."
        ),
    ] = "127.0.0.1",
    by_hand: Annotated[
        list[str] | None,
        typer.Option(
            help="A member whose mail 'eigenveil exchange' carries on a disk, if not all mail goes "
            "this way; may be given several times."
        ),
    ] = None,
    *,
    service: Service,
) -> int:
    """Carry studies between leads and sites until stopped (Ctrl-C)."""
    from eigenveil.cli.presenters.site_console import end_at_once
    from eigenveil.network.folder import lock, open_party
    from eigenveil.network.health import Activity, WatchedParty
    from eigenveil.network.mailbox import Mailbox, open_mailbox
    from eigenveil.network.service import serve_aggregator

    opened = open_party(party, role="aggregator")
    say = service.speaker(opened.name)
    federation, address = opened.known.current().head.name, opened.mailbox_address()
    with ExitStack() as stack:
        stack.enter_context(lock(opened))
        if address.startswith("https:"):
            from eigenveil.network.carriers.serving import serve

            server = stack.enter_context(serve(opened, host=listen))
            mailbox: Mailbox = server.mailbox
            is_local = listen.startswith("127.") or listen in ("localhost", "::1")
            only = " (only from this machine: change it with --listen)" * is_local
            say(f"Aggregator of {federation} listens on {listen}:{server.port}{only}.")
        else:
            mailbox = open_mailbox(opened)
            stack.callback(mailbox.close)
            say(f"Aggregator of {federation}: its mailbox is {address}.")
        if by_hand:
            from eigenveil.network.carriers.folder import WithSpool

            for each in by_hand:
                opened.known.role(each)  # an error where nobody is called so
            mailbox = WithSpool(mailbox, opened, by_hand)
            say(f"Mail of {', '.join(by_hand)} is carried by hand: eigenveil exchange.")
        start_health(service.health, WatchedParty(opened, Activity(reached_at=math.inf)), say)
        if not service.quiet:
            StudyEvents(opened, service.teller(opened.name)).start()
        end_at_once(say)
        serve_aggregator(opened, mailbox, say=say)
    return 0


@aggregator_app.command()
def end(
    run: Annotated[str, typer.Argument(help="A run, as the aggregator's log names it.")],
    party: PartyPath,
    reason: Annotated[str, typer.Option(help="Why: its lead reads it.")] = "",
    quiet: options.Quiet = False,
) -> None:
    """End a study that waits or runs, by a signed word: a lead cannot hold the federation."""
    from eigenveil.network.folder import open_party
    from eigenveil.network.service import end_run

    end_run(open_party(party, role="aggregator"), run, reason)
    Screen(quiet=quiet).print(f"ended: run {run}")
