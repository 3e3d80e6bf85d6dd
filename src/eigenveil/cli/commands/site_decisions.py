"""``eigenveil site approve``, ``refuse``, ``revoke`` and ``approver``: decisions at a site.

Each one is signed by its approver's key and recorded in the site's ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from eigenveil.app.decisions import Studies, desk_of, pick, sentence_of, signer_of
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.cli.presenters.study import print_summary, summary
from eigenveil.federation.study.study import Study

if TYPE_CHECKING:
    from eigenveil.federation.approvals.desk import Decisions
    from eigenveil.federation.approvals.documents import ApproverRole
    from eigenveil.federation.approvals.record import Standing
    from eigenveil.federation.identity import Signer

PASSWORD = "EIGENVEIL_APPROVER_PASSWORD"
EVERY = "all"

PartyOption = Annotated[Path, typer.Option("--party", help="The site's folder.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="The site's ledger: a file, or a URL such as postgresql://host/name. By default that "
        "of 'eigenveil site start'.",
    ),
]
By = Annotated[
    str,
    typer.Option("--as", help="Who decides, as the site's list of approvers has the name."),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key", help="The approver's key; by default the one in the folder's 'approvers'."
    ),
]
DataSetOption = Annotated[
    str | None,
    typer.Option(
        help="The data set's name in the ledger; by default that of 'eigenveil site start'."
    ),
]
Purpose = Annotated[str, typer.Option(help="What the study's result may be used for.")]
Reason = Annotated[str, typer.Option(help="Why it is decided so; kept in the ledger.")]
Which = Annotated[str, typer.Argument(help="The study's hash, or its first characters.")]
Who = Annotated[str, typer.Argument(help="As in the list.")]


def approve(
    party: PartyOption,
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
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    data_set: DataSetOption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Approve studies for this site, for ONE run each unless told otherwise; or list them."""
    if sum((study is not None, everything, listed)) > 1:
        raise options.WrongOption(
            "A study, --all and --list exclude each other.", hint="Give one of them."
        )
    last = None if until is None else _end_of_day(until)
    from eigenveil.network.folder import open_party

    opened = open_party(party, role="site")
    at = Studies.of(opened, ledger, data_set)
    screen = Screen(quiet=quiet or json)
    if study is None and not everything:
        _print_list(at, party, json=json, quiet=quiet)
        return
    if everything:
        _print_hidden(at, screen)
    # costs are those before anything is approved
    chosen = [at.shown(e) for e in (at.waiting if everything else [_found(at, str(study))])]
    if not chosen:
        if json:
            options.print_json({"approved": [], "second": []})
        screen.print("No study waits for approval.")
        return
    desk = at.desk or desk_of(opened, ledger)
    signer = signer_for(desk, by, key)
    stood = [
        desk.approve(
            each.study,
            signer,
            by=by,
            purpose=purpose,
            reason=reason,
            runs=runs if runs is not None or last is not None else 1,
            until=last,
            any_rows=any_rows,
        )
        for each in chosen
    ]
    if json:
        both = list(zip(chosen, stood, strict=True))
        options.print_json(
            {
                name: [each.study.hash for each, found in both if found.approved == done]
                for name, done in (("approved", True), ("second", False))
            }
        )
        return
    for each, found in zip(chosen, stood, strict=True):
        said = "approved" if found.approved else "agreed"
        screen.print(f"{said}: study {each.study.name}, {each.study.hash}", soft_wrap=True)
        screen.print(f"  {sentence_of(found)}")
        screen.print(f"  {each.sentence}")


def refuse(
    party: PartyOption,
    study: Which,
    reason: Annotated[str, typer.Option(help="Why; kept in the ledger.")],
    tell_lead: Annotated[
        bool, typer.Option("--tell-lead", help="Let the lead read the reason.")
    ] = False,
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Refuse a study: the lead is told that it was, and the reason only with --tell-lead."""
    desk = _desk(party, ledger)
    found = Studies(desk.party, desk, desk.data_set).find(study)
    desk.refuse(found.hash, signer_for(desk, by, key), by=by, reason=reason, tell_lead=tell_lead)
    screen = Screen(quiet=quiet)
    screen.print(f"refused: study {found.name}, {found.hash}", soft_wrap=True)
    screen.print(
        "  The lead is told the reason." if tell_lead else "  The lead is not told the reason."
    )


def revoke(
    party: PartyOption,
    study: Annotated[
        str,
        typer.Argument(
            help=f"The study's hash, or its first characters; '{EVERY}' for the standing approval "
            "of 'site start --approve all'."
        ),
    ],
    reason: Reason = "",
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take an approval back, from the next message on."""
    desk = _desk(party, ledger)
    called, which = "every study", EVERY
    if study != EVERY:
        stood = Studies(desk.party, desk, desk.data_set).decided()
        chosen = pick(
            [each for each, found in stood if found.rule.revocable], study, what="was approved"
        )
        called, which = f"study {chosen.name}, {chosen.hash}", chosen.hash
    desk.revoke(which, signer_for(desk, by, key), by=by, reason=reason)
    if json:
        options.print_json({"revoked": [which]})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"revoked: {called}", soft_wrap=True)
    screen.print("It may send no more queries; what it was answered stays spent in the ledger.")


# -- who decides


approver_app = typer.Typer(
    help="Who decides at a site: a list in its ledger, changed by those who are in it.",
    no_args_is_help=True,
    add_completion=False,
)


@approver_app.command("add")
def add_approver(
    party: PartyOption,
    name: Annotated[str, typer.Argument(help="A name or staff number; kept for ever.")],
    role: Annotated[
        str, typer.Option(help="owner or approver (they decide), viewer or lead (they do not).")
    ] = "approver",
    public_key: Annotated[
        Path | None,
        typer.Option(help="Their public key; otherwise a key is made, under a password."),
    ] = None,
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Put somebody into the list; with a new key under a password, unless one is given."""
    if role not in ("owner", "approver", "viewer", "lead"):
        raise options.WrongOption(
            f"--role {role!r} is not owner, approver, viewer or lead.",
            hint="Choose one of these.",
        )
    from eigenveil.federation.approvals.keys import read_public_key
    from eigenveil.federation.approvals.roster import key_file

    desk, screen = _desk(party, ledger), Screen(quiet=quiet)
    signer, made, text = signer_for(desk, by, key), None, ""
    if public_key is not None:
        text = read_public_key(public_key)
    elif role in ("owner", "approver"):
        made = key_file(desk.party, name)

    def change(new: str) -> bool:
        return desk.appoint(name, cast("ApproverRole", role), new, signer=signer, by=by)

    done = change(text) if made is None else _with_key(made, name, change)
    _print_change(desk, f"added: {name}, {role}", done, screen, made)


@approver_app.command("list")
def list_approvers(
    party: PartyOption, ledger: LedgerOption = None, json: options.Json = False
) -> None:
    """Show who decides."""
    desk = _desk(party, ledger)
    if json:
        waiting = [
            {"list": new.model_dump(mode="json"), "signed": [each.name for each in agreed]}
            for new, agreed in desk.proposed()
        ]
        found = desk.approvers().model_dump(mode="json")
        options.print_json(found | {"waiting": waiting})
        return
    print_approvers(desk, Screen())


@approver_app.command("renew")
def renew_approver(
    party: PartyOption,
    name: Who,
    public_key: Annotated[
        Path | None,
        typer.Option(
            help="Their new public key; otherwise the party's own for 'owner', and for others "
            "a key is made, under a password."
        ),
    ] = None,
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Give somebody in the list a new key: theirs was lost, or the party has another one."""
    from eigenveil.federation.approvals.keys import read_public_key
    from eigenveil.federation.approvals.roster import FIRST_OWNER, key_file

    desk, screen = _desk(party, ledger), Screen(quiet=quiet)
    signer, own = signer_for(desk, by, key), key_file(desk.party, name)

    def change(new: str) -> bool:
        return desk.renew(name, new, signer=signer, by=by)

    made = None
    if public_key is not None:
        done = change(read_public_key(public_key))
    elif name == FIRST_OWNER and not own.exists():
        done = change(desk.party.signer_now.public_key.text)
    else:
        made = own
        new = own.with_suffix(".new")  # until the list has it, the one before counts
        done = _with_key(new, name, change, overwrite=True)
        new.replace(own)
    _print_change(desk, f"new key: {name}", done, screen, made)


@approver_app.command("remove")
def remove_approver(
    party: PartyOption,
    name: Who,
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Let somebody decide no more; what they decided before stays as it is."""
    desk = _desk(party, ledger)
    done = desk.dismiss(name, signer=signer_for(desk, by, key), by=by)
    _print_change(desk, f"removed: {name}", done, Screen(quiet=quiet))


@approver_app.command("rule")
def set_rule(
    party: PartyOption,
    persons: Annotated[
        int, typer.Argument(min=1, max=2, help="How many must agree to an approval: 1 or 2.")
    ],
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Switch the two-person rule on (2) or off (1)."""
    desk = _desk(party, ledger)
    done = desk.set_needed(2 if persons == 2 else 1, signer=signer_for(desk, by, key), by=by)
    _print_change(desk, f"rule: {persons}", done, Screen(quiet=quiet))


@approver_app.command("agree")
def agree_to_change(
    party: PartyOption,
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Sign the change of the list that waits for a second approver ('list' shows it)."""
    desk = _desk(party, ledger)
    done = desk.agree(signer_for(desk, by, key), by=by)
    _print_change(desk, "agreed", done, Screen(quiet=quiet))


def _with_key(
    place: Path, name: str, change: Callable[[str], bool], *, overwrite: bool = False
) -> bool:
    """Change the list with a new key, which is nobody's where that fails."""
    from eigenveil.federation.approvals.keys import make_key

    password = _password(f"Password for {name}'s new key", confirm=True)
    made = make_key(place, password, overwrite=overwrite)
    try:
        return change(made.public_key.text)
    except BaseException:
        place.unlink(missing_ok=True)
        raise


def _print_change(
    desk: Decisions, what: str, done: bool, screen: Screen, key: Path | None = None
) -> None:
    screen.print(what if done else f"{what} -- once another approver has agreed to it")
    if key is not None:
        screen.print(f"  key: {key} (opened only with the password)", soft_wrap=True)
    print_approvers(desk, screen)


def print_approvers(desk: Decisions, screen: Screen) -> None:
    """The list with its keys, the rule, and what waits."""
    from eigenveil.federation.approvals.documents import key_mark

    found = desk.approvers()
    table = Table(title=f"approvers of {found.whose} (list {found.number})")
    for name in ("name", "role", "since", "until", "key"):
        table.add_column(name, overflow="fold")
    for each in found.approvers:
        table.add_row(
            each.name,
            each.role,
            f"{each.since:%Y-%m-%d}",
            "" if each.until is None else f"{each.until:%Y-%m-%d}",
            key_mark(each.public_key) if each.public_key else "",
        )
    screen.print(table)
    screen.print(
        "An approval takes one of them." if found.needed == 1 else "An approval takes two of them."
    )
    for new, agreed in desk.proposed():
        screen.print(
            f"Waits for another approver ('site approver agree'): list {new.number}, needing "
            f"{new.needed}, of {', '.join(str(e) for e in new.approvers if e.until is None)}; "
            f"signed by {', '.join(map(str, agreed))}.",
            soft_wrap=True,
        )


def _desk(party: Path, ledger: str | None) -> Decisions:
    from eigenveil.network.folder import open_party

    return desk_of(open_party(party, role="site"), ledger)


def signer_for(desk: Decisions, by: str, key: Path | None) -> Signer | None:
    """The approver's key, its password asked for where it has one."""
    return signer_of(desk, by, key, _password)


def _password(prompt: str, *, confirm: bool = False) -> str:
    """From the environment, for programs; else from the terminal, unseen."""
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True))


def _end_of_day(text: str) -> datetime:
    try:
        day = datetime.fromisoformat(text)
        if day.tzinfo is None:
            whole = len(text) <= len("2027-06-30")
            day = day.replace(tzinfo=UTC) + whole * timedelta(days=1, seconds=-1)
    except ValueError:
        raise options.WrongOption(
            f"--until {text!r} is not a date.", hint="Give one such as 2027-06-30."
        ) from None
    return day


# -- what waits, what was decided, and what it would cost


def _print_hidden(at: Studies, screen: Screen) -> None:
    if at.hidden:
        screen.print(
            bold(f"{at.hidden} more"), "cannot be shown on a terminal, and so not be approved."
        )


def _found(at: Studies, text: str) -> Study:
    """A study by its hash, or one in a file."""
    if Path(text).suffix != ".toml":
        return at.find(text)
    from eigenveil.app.study import settled
    from eigenveil.federation.study.file import read_study

    return at.own(settled(read_study(Path(text)))[0])


def _print_list(at: Studies, party: Path, *, json: bool, quiet: bool) -> None:
    screen, stood = Screen(quiet=quiet or json), at.decided()
    if json:
        approved = [each for each, found in stood if found.approved]
        options.print_json(
            {
                name: [
                    {**summary(each, None), "cost": None if cost is None else cost.as_json()}
                    for each in studies
                    for cost in [at.shown(each).cost]
                ]
                for name, studies in (("waiting", at.waiting), ("approved", approved))
            }
        )
        return
    _print_hidden(at, screen)
    for each in map(at.shown, at.waiting):
        if not quiet:
            print_summary(each.study, None, {})
        screen.print(bold("cost:"), each.sentence)
        if each.standing.state not in ("waiting", "approved"):
            screen.print(bold("decided:"), sentence_of(each.standing))
        screen.print(
            "to approve: eigenveil site approve --party "
            f"{quote(str(party))} {each.study.hash[:12]}",
            soft_wrap=True,
        )
        screen.print()
    if not at.waiting:
        screen.print("No study waits for approval.")
    print_stood("decided", stood, screen)


def print_stood(title: str, stood: Sequence[tuple[Study, Standing]], screen: Screen) -> None:
    """A table of studies that were decided about; nothing where there is none."""
    rows = [(each, sentence_of(found)) for each, found in stood if found.state != "waiting"]
    if not rows:
        return
    table = Table(title=title)
    for name in ("study", "hash", "where it stands"):
        table.add_column(name, overflow="fold")
    for each, said in rows:
        table.add_row(each.name, each.hash[:16], said)
    screen.print(table)


def print_studies(title: str, studies: Sequence[Study], screen: Screen) -> None:
    """A table of studies; nothing where there is none."""
    if not studies:
        return
    table = Table(title=title)
    for name in ("study", "task", "epsilon", "sites", "hash"):
        table.add_column(name, overflow="fold")
    for each in studies:
        sites = ", ".join(each.names)
        table.add_row(each.name, each.task, f"{each.epsilon:g}", sites, each.hash[:16])
    screen.print(table)
