"""``eigenveil site approve``, ``refuse`` and ``revoke``: decisions about studies at a site.

Each one is signed by its approver's key and recorded in the site's ledger.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.commands.approvers import decides
from eigenveil.cli.presenters.screen import Screen, present, print_json
from eigenveil.errors import WrongOption

DataSetOption = Annotated[
    str | None,
    typer.Option(
        help="The data set's name in the ledger; by default that of 'eigenveil site start'."
    ),
]
Purpose = Annotated[str, typer.Option(help="What the study's result may be used for.")]
Reason = Annotated[str, typer.Option(help="Why it is decided so; kept in the ledger.")]
Which = Annotated[str, typer.Argument(help="The study's hash, or its first characters.")]


@decides
def approve(
    study: Annotated[
        str | None,
        typer.Argument(help="Hash of a waiting study (or its first characters), or a study file."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Approve all waiting studies without showing them.")
    ] = False,
    listed: Annotated[
        bool,
        typer.Option("--list", help="Show the waiting studies, what each does and what it costs."),
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="How many runs it is good for; one, unless --until is given."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="The last day (UTC) on which a run may begin, such as 2027-06-30."),
    ] = None,
    any_rows: Annotated[
        bool,
        typer.Option(
            "--any-rows",
            help="Good for whatever rows the data set has when a run begins, not only for those "
            "that it has now.",
        ),
    ] = False,
    purpose: Purpose = "",
    reason: Reason = "",
    data_set: DataSetOption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Approve studies for this site, for ONE run each unless told otherwise; or list them."""
    if sum((study is not None, everything, listed)) > 1:
        raise WrongOption("one-study-or-all")
    at = app.decisions.Studies.of(who.site, who.ledger, data_set)
    if study is None and not everything:
        present(app.site.StudyList(at, who.party), json=json, quiet=quiet)
        return
    approved = app.site.approve(
        at,
        study,
        lambda: who.decider,
        desk=lambda: who.desk,
        purpose=purpose,
        reason=reason,
        runs=runs,
        until=until,
        any_rows=any_rows,
    )
    present(approved, json=json, quiet=quiet)


@decides
def refuse(
    study: Which,
    reason: Annotated[str, typer.Option(help="Why; kept in the ledger.")],
    tell_lead: Annotated[
        bool, typer.Option("--tell-lead", help="Let the lead read the reason.")
    ] = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Refuse a study: the lead is told that it was, and the reason only with --tell-lead."""
    desk = who.desk
    found = app.decisions.Studies(desk.party, desk, desk.data_set).find(study)
    desk.refuse(found.hash, who.decider, reason=reason, tell_lead=tell_lead)
    screen = Screen(quiet=quiet)
    screen.print(f"refused: study {found.name}, {found.hash}", soft_wrap=True)
    screen.print(f"  The lead is {'' if tell_lead else 'not '}told the reason.")


@decides
def revoke(
    study: Annotated[
        str,
        typer.Argument(
            help="The study's hash, or its first characters; 'all' for the standing approval "
            "of 'site start --approve all'."
        ),
    ],
    reason: Reason = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Take an approval back, from the next message on."""
    called, which = app.site.revoke(who.desk, study, who.decider, reason=reason)
    if json:
        print_json({"revoked": [which]})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"revoked: {called}", soft_wrap=True)
    screen.print("It may send no more queries; what it was answered stays spent in the ledger.")
