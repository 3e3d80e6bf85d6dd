"""``eigenveil site approve``, ``refuse``, ``revoke`` and ``approver``: decisions at a site.

Each one is signed by its approver's key and recorded in the site's ledger.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.cli.presenters.study import print_summary, summary
from eigenveil.cli.presenters.study_cost import (
    Cost,
    can_be_shown,
    cost_of,
    owner_of,
    pick,
    sentence_of,
)
from eigenveil.errors import DataError, OutputError
from eigenveil.federation.study.study import Study

if TYPE_CHECKING:
    from eigenveil.federation.ledger.decisions import Standing
    from eigenveil.federation.ledger.documents import ApproverList, ApproverRole
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.network.decisions import Decisions
    from eigenveil.network.kit import Kit
    from eigenveil.network.signers import Signer

PASSWORD = "EIGENVEIL_APPROVER_PASSWORD"
EVERY = "all"

KitOption = Annotated[Path, typer.Option("--kit", help="The site's kit.")]
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
    typer.Option("--key", help="The approver's key; by default the one in the kit's 'approvers'."),
]
Purpose = Annotated[str, typer.Option(help="What the study's result may be used for.")]
Reason = Annotated[str, typer.Option(help="Why it is decided so; kept in the ledger.")]
Which = Annotated[str, typer.Argument(help="The study's hash, or its first characters.")]


def approve(
    kit: KitOption,
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
    purpose: Purpose = "",
    reason: Reason = "",
    by: By = "owner",
    key: KeyOption = None,
    ledger: LedgerOption = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            help="The data set's name in the ledger; by default that of 'eigenveil site start'."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Approve studies for this site, for ONE run each unless told otherwise; or list them."""
    if sum((study is not None, everything, listed)) > 1:
        raise options.WrongOption(
            "A study, --all and --list exclude each other.", hint="Give one of them."
        )
    last = None if until is None else _end_of_day(until)
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="site")
    screen = Screen(quiet=quiet or json)
    owner = owner_of(opened.local)
    books = _ledger_if_there(ledger if ledger is not None else owner.ledger)
    costs = _Costs(opened.name, books, owner.data_set if data_set is None else data_set)
    if study is None and not everything:
        _print_list(opened, costs, kit, json=json, quiet=quiet)
        return
    chosen = waiting_of(opened, screen) if everything else [_find(opened, str(study))]
    sentences = [(each, costs.sentence(each)) for each in chosen]  # before anything is approved
    if not chosen:
        if json:
            options.print_json({"approved": [], "second": []})
        screen.print("No study waits for approval.")
        return
    desk = desk_of(opened, ledger)
    signer = signer_of(desk, by, key)
    count = runs if runs is not None or last is not None else 1
    stood = [
        desk.approve(each, signer, by=by, purpose=purpose, reason=reason, runs=count, until=last)
        for each in chosen
    ]
    if json:
        options.print_json(
            {
                name: [
                    study.hash
                    for study, found in zip(chosen, stood, strict=True)
                    if found.approved == done
                ]
                for name, done in (("approved", True), ("second", False))
            }
        )
        return
    for (each, cost), found in zip(sentences, stood, strict=True):
        if found.approved:
            screen.print(f"approved: study {each.name}, {each.hash}", soft_wrap=True)
        else:
            screen.print(f"agreed: study {each.name}, {each.hash}", soft_wrap=True)
        screen.print(f"  {sentence_of(found)}")
        screen.print(f"  {cost}")


def refuse(
    kit: KitOption,
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
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="site")
    found = _find(opened, study)
    desk = desk_of(opened, ledger)
    desk.refuse(found.hash, signer_of(desk, by, key), by=by, reason=reason, tell_lead=tell_lead)
    screen = Screen(quiet=quiet)
    screen.print(f"refused: study {found.name}, {found.hash}", soft_wrap=True)
    screen.print(
        "  The lead is told the reason." if tell_lead else "  The lead is not told the reason."
    )


def revoke(
    kit: KitOption,
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
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="site")
    desk = desk_of(opened, ledger)
    record = desk.record()
    if study == EVERY:
        called, which = "every study", EVERY
    else:
        stood = stood_of(opened, record.standing)
        chosen = pick(
            [each for each, found in stood if found.rule.revocable], study, what="was approved"
        )
        called, which = f"study {chosen.name}, {chosen.hash}", chosen.hash
    desk.revoke(which, signer_of(desk, by, key), by=by, reason=reason)
    if json:
        options.print_json({"revoked": [which]})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"revoked: {called}", soft_wrap=True)
    screen.print("It may send no more queries; what it was answered stays spent in the ledger.")


# -- who decides


approver_app = typer.Typer(
    help="Who decides at a site: a list that the site's own key signs, in its ledger.",
    no_args_is_help=True,
    add_completion=False,
)


@approver_app.command("add")
def add_approver(
    kit: KitOption,
    name: Annotated[str, typer.Argument(help="A name or staff number; kept for ever.")],
    role: Annotated[
        str, typer.Option(help="owner or approver (they decide), viewer or lead (they do not).")
    ] = "approver",
    public_key: Annotated[
        Path | None,
        typer.Option(help="Their public key (PEM); otherwise a key is made, under a password."),
    ] = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Put somebody into the list; with a new key under a password, unless one is given."""
    if role not in ("owner", "approver", "viewer", "lead"):
        raise options.WrongOption(
            f"--role {role!r} is not owner, approver, viewer or lead.",
            hint="Choose one of these.",
        )
    from eigenveil.network.decisions import key_file
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signers import make_key, read_public_key

    opened = open_kit(kit, role="site")
    desk = desk_of(opened, ledger)
    screen = Screen(quiet=quiet)
    text, made = "", None
    if public_key is not None:
        text = read_public_key(public_key)
    elif role in ("owner", "approver"):
        made = key_file(opened, name)
        text = make_key(made, _password(f"Password for {name}'s new key", confirm=True)).public_key
    try:
        found = desk.appoint(name, cast("ApproverRole", role), text)
    except BaseException:
        if made is not None:
            made.unlink(missing_ok=True)  # nobody's key
        raise
    screen.print(f"added: {name}, {role}")
    if made is not None:
        screen.print(f"  key: {made} (opened only with the password)", soft_wrap=True)
    print_approvers(found, screen)


@approver_app.command("list")
def list_approvers(kit: KitOption, ledger: LedgerOption = None, json: options.Json = False) -> None:
    """Show who decides."""
    from eigenveil.network.kit import open_kit

    found = desk_of(open_kit(kit, role="site"), ledger).approvers()
    if json:
        options.print_json(found.model_dump(mode="json", exclude={"certificate", "root"}))
        return
    print_approvers(found, Screen())


@approver_app.command("renew")
def renew_approver(
    kit: KitOption,
    name: Annotated[str, typer.Argument(help="As in the list.")],
    public_key: Annotated[
        Path | None,
        typer.Option(
            help="Their new public key (PEM); otherwise the kit's own for 'owner', and for others "
            "a key is made, under a password."
        ),
    ] = None,
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Give somebody in the list a new key: theirs was lost, or the kit has another one."""
    from eigenveil.network.decisions import FIRST_OWNER, key_file
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signers import KitSigner, make_key, read_public_key

    opened = open_kit(kit, role="site")
    desk, screen = desk_of(opened, ledger), Screen(quiet=quiet)
    own = key_file(opened, name)
    made = None
    if public_key is not None:
        text = read_public_key(public_key)
    elif name == FIRST_OWNER and not own.exists():
        text = KitSigner(desk.own()).public_key
    else:
        made = own.with_suffix(".new")  # until the list has it, the one before counts
        password = _password(f"Password for {name}'s new key", confirm=True)
        text = make_key(made, password, overwrite=True).public_key
    try:
        found = desk.renew(name, text)
    except BaseException:
        if made is not None:
            made.unlink(missing_ok=True)  # nobody's key
        raise
    if made is not None:
        made.replace(own)
    screen.print(f"new key: {name}")
    if made is not None:
        screen.print(f"  key: {own} (opened only with the password)", soft_wrap=True)
    print_approvers(found, screen)


@approver_app.command("remove")
def remove_approver(
    kit: KitOption,
    name: Annotated[str, typer.Argument(help="As in the list.")],
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Let somebody decide no more; what they decided before stays as it is."""
    from eigenveil.network.kit import open_kit

    found = desk_of(open_kit(kit, role="site"), ledger).dismiss(name)
    screen = Screen(quiet=quiet)
    screen.print(f"removed: {name}")
    print_approvers(found, screen)


@approver_app.command("rule")
def set_rule(
    kit: KitOption,
    persons: Annotated[
        int, typer.Argument(min=1, max=2, help="How many must agree to an approval: 1 or 2.")
    ],
    ledger: LedgerOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Switch the two-person rule on (2) or off (1)."""
    from eigenveil.network.kit import open_kit

    found = desk_of(open_kit(kit, role="site"), ledger).set_needed(2 if persons == 2 else 1)
    print_approvers(found, Screen(quiet=quiet))


def print_approvers(found: ApproverList, screen: Screen) -> None:
    """The list, and the rule."""
    from eigenveil.federation.ledger.decisions import key_mark

    table = Table(title=f"approvers of {found.site} (list {found.number})")
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


# -- the ledger and the keys


def desk_of(kit: Kit, ledger: str | None) -> Decisions:
    """The decisions of a kit, in the ledger that was given, or is known from 'site start'.

    Raises
    ------
    OutputError
        ``no-ledger`` when neither is there.
    """
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.network.decisions import Decisions

    place = ledger if ledger is not None else owner_of(kit.local).ledger
    if place is None:
        raise OutputError(
            f"The ledger of {kit.name} is not known here, and decisions are recorded in it.",
            hint="Give --ledger; 'eigenveil site start' remembers it for later.",
            code="no-ledger",
        )
    return Decisions(kit, Ledger(place))


def signer_of(desk: Decisions, by: str, key: Path | None) -> Signer | None:
    """The approver's key; ``None`` for the kit's own, which the first owner has."""
    from eigenveil.network.decisions import FIRST_OWNER, key_file
    from eigenveil.network.signers import KitSigner, open_key

    if key is None:
        known = desk.approvers().called(by)
        own = KitSigner(desk.own())
        if known is not None and known.public_key == own.public_key:
            return own
        if by == FIRST_OWNER and not key_file(desk.kit, by).exists():
            return desk.owner()  # says that the kit has another key
    place = key if key is not None else key_file(desk.kit, by)
    if not place.exists():
        raise OutputError(
            f"There is no key of {by!r} at {place}.",
            hint="Give --key FILE; 'eigenveil site approver list' shows who decides.",
            code="cannot-read",
        )
    return open_key(place, _password(f"Password of {by}'s key"))


def _password(prompt: str, *, confirm: bool = False) -> str:
    """From the environment, for programs; else from the terminal, unseen."""
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True))


def _end_of_day(text: str) -> datetime:
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise options.WrongOption(
            f"--until {text!r} is not a date.", hint="Give one such as 2027-06-30."
        ) from None
    if day.tzinfo is not None:
        return day
    if len(text) > len("2027-06-30"):
        return day.replace(tzinfo=UTC)
    return day.replace(tzinfo=UTC) + timedelta(days=1, seconds=-1)


def _ledger_if_there(place: str | None) -> Ledger | None:
    if place is None:
        return None
    from eigenveil.federation.ledger.ledger import Ledger

    return Ledger(place)


# -- what waits, what was decided, and what it would cost


def waiting_of(kit: Kit, screen: Screen) -> list[Study]:
    """Studies that wait; those that cannot be shown are only counted."""
    from eigenveil.network.approvals import waiting_studies

    found = waiting_studies(kit)
    shown = [study for study in found if can_be_shown(study)]
    if hidden := len(found) - len(shown):
        screen.print(
            bold(f"{hidden} more"), "cannot be shown on a terminal, and so not be approved."
        )
    return shown


def stood_of(kit: Kit, standing: Any) -> list[tuple[Study, Standing]]:
    """Studies that were decided about, and where each stands."""
    from eigenveil.network.approvals import decided_studies

    return [(each, standing(each.hash)) for each in decided_studies(kit)]


def stood_if_known(kit: Kit, ledger: str | None) -> list[tuple[Study, Standing]]:
    """The same; nothing where no ledger is known."""
    place = ledger if ledger is not None else owner_of(kit.local).ledger
    return [] if place is None else stood_of(kit, desk_of(kit, place).record().standing)


def _find(kit: Kit, text: str) -> Study:
    """A study that waits, or was decided about before, by its hash; or one in a file."""
    from eigenveil.network.approvals import decided_studies

    if Path(text).suffix == ".toml":
        from eigenveil.app.study import settled
        from eigenveil.federation.study.file import read_study

        study, _ = settled(read_study(Path(text)))
    else:
        known = {each.hash: each for each in decided_studies(kit) if can_be_shown(each)}
        known |= {each.hash: each for each in waiting_of(kit, Screen(quiet=True))}
        study = pick(list(known.values()), text, what="waits")
    if kit.name not in study.names:
        raise DataError(
            f"{kit.name} is not a site of study {study.name}.",
            hint=f"Its sites are {', '.join(study.names)}.",
            code="unknown-site",
        )
    return study


@dataclass(frozen=True)
class _Costs:
    site: str
    ledger: Ledger | None
    data_set: str

    def of(self, study: Study) -> Cost | None:
        return cost_of(study, self.site, self.ledger, self.data_set)

    def sentence(self, study: Study) -> str:
        """What a study can cost, and whether the budget covers it."""
        cost = self.of(study)
        if cost is None:
            return "It sends no query to this site: with protocol local only the first site counts."
        most = f"It can cost at most epsilon = {cost.epsilon:.4g} at delta = {cost.delta:g}"
        if self.ledger is None:
            return f"{most}; with --ledger, what is left is shown beside it."
        place = f"{self.ledger.name}, data set {self.data_set}"
        if cost.budget is None:
            return f"{most}, and there is NO BUDGET for it in {place}."
        verdict = "covers it" if cost.covered else "does NOT cover it: the site would refuse"
        return (
            f"{most}. The budget, epsilon = {cost.budget.epsilon:g} at delta = "
            f"{cost.budget.delta:g} ({cost.budget.adjacency}), {verdict}; {cost.left} ({place})."
        )


def _print_list(opened: Kit, costs: _Costs, kit: Path, *, json: bool, quiet: bool) -> None:
    screen = Screen(quiet=quiet or json)
    waiting = waiting_of(opened, screen)
    place = None if costs.ledger is None else costs.ledger
    stood = _stood_in(opened, place)
    approved = [(each, found) for each, found in stood if found.approved]
    if json:
        options.print_json(
            {
                name: [
                    {**summary(each, None), "cost": None if cost is None else cost.as_json()}
                    for each in studies
                    for cost in [costs.of(each)]
                ]
                for name, studies in (
                    ("waiting", waiting),
                    ("approved", [each for each, _ in approved]),
                )
            }
        )
        return
    agreed = {each.hash: found for each, found in stood if found.state != "approved"}
    for each in waiting:
        if not quiet:
            print_summary(each, None, {})
        screen.print(bold("cost:"), costs.sentence(each))
        if (found := agreed.get(each.hash)) is not None and found.state != "waiting":
            screen.print(bold("decided:"), sentence_of(found))
        screen.print(f"to approve: eigenveil site approve --kit {kit} {each.hash[:12]}")
        screen.print()
    if not waiting:
        screen.print("No study waits for approval.")
    print_stood("decided", stood, screen)


def _stood_in(kit: Kit, ledger: Ledger | None) -> list[tuple[Study, Standing]]:
    if ledger is None:
        return []
    from eigenveil.network.decisions import Decisions

    return stood_of(kit, Decisions(kit, ledger).record().standing)


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
