"""Who decides at a site: the list in its ledger, and changes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eigenveil.app.decisions import decider_of, desk_of
from eigenveil.app.parts import Part, TablePart, whole
from eigenveil.errors import WrongOption
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.documents import DECIDING, Approver, ApproverList, key_mark
from eigenveil.federation.approvals.keys import make_key, read_public_key
from eigenveil.federation.approvals.roster import FIRST_OWNER, Decider, key_file
from eigenveil.network.folder import PartyFolder, open_party

Password = Callable[..., str]
"""Asks for a password, given a prompt and whether it is to be ``confirm``-ed."""


@dataclass(frozen=True)
class Deciding:
    """Somebody who decides at a site, as the commands name it."""

    party: Path
    ledger: str | None
    by: str
    key: Path | None
    password: Password

    @cached_property
    def site(self) -> PartyFolder:
        return open_party(self.party, role="site")

    @cached_property
    def desk(self) -> Decisions:
        return desk_of(self.site, self.ledger)

    @cached_property
    def decider(self) -> Decider:
        """With the key that signs; its password is asked for where it has one."""
        return decider_of(self.desk, self.by, self.key, self.password)


@dataclass(frozen=True)
class RosterView:
    """The list of approvers, and what waits for another one."""

    listed: ApproverList
    proposed: list[tuple[ApproverList, tuple[Approver, ...]]]

    @classmethod
    def of(cls, desk: Decisions) -> RosterView:
        return cls(desk.approvers(), desk.proposed())

    def as_json(self) -> dict[str, Any]:
        waiting = [
            {"list": new.model_dump(mode="json"), "signed": [each.name for each in agreed]}
            for new, agreed in self.proposed
        ]
        return self.listed.model_dump(mode="json") | {"waiting": waiting}

    def parts(self) -> Iterator[Part]:
        found = self.listed
        rows = [
            (
                each.name,
                each.role,
                f"{each.since:%Y-%m-%d}",
                "" if each.until is None else f"{each.until:%Y-%m-%d}",
                key_mark(each.public_key) if each.public_key else "",
            )
            for each in found.approvers
        ]
        headings = ("name", "role", "since", "until", "key")
        title = f"approvers of {found.whose} (list {found.number})"
        yield TablePart(title, headings, rows, overflow="fold")
        yield f"An approval takes {'one' if found.needed == 1 else 'two'} of them."
        for new, agreed in self.proposed:
            text = (
                f"Waits for another approver ('site approver agree'): list {new.number}, needing "
                f"{new.needed}, of {', '.join(str(e) for e in new.approvers if e.until is None)}; "
                f"signed by {', '.join(map(str, agreed))}."
            )
            yield whole(text)


@dataclass(frozen=True)
class RosterChange:
    """A change of the list: whether it counts, and the key that was made for it."""

    what: str
    done: bool
    roster: RosterView
    key: Path | None = None

    def parts(self) -> Iterator[Part]:
        yield self.what if self.done else f"{self.what} -- once another approver has agreed to it"
        if self.key is not None:
            yield whole(f"  key: {self.key} (opened only with the password)")
        yield from self.roster.parts()


def list_approvers(party: Path, ledger: str | None) -> RosterView:
    return RosterView.of(desk_of(open_party(party, role="site"), ledger))


def add(who: Deciding, name: str, role: str, public_key: Path | None) -> RosterChange:
    """Put somebody into the list; with a new key under a password, unless one is given."""
    if role not in (*DECIDING, "viewer", "lead"):
        raise WrongOption(
            "unknown-choice", option="--role", given=role, known="owner, approver, viewer, lead"
        )

    by = who.decider

    def change(new: str) -> bool:
        return who.desk.appoint(name, role, new, by=by)

    made = None
    if public_key is not None:
        done = change(read_public_key(public_key))
    elif role in DECIDING:
        made = key_file(who.desk.party, name)
        done = _with_key(made, name, change, who.password)
    else:
        done = change("")
    return _changed(who, f"added: {name}, {role}", done, made)


def renew(who: Deciding, name: str, public_key: Path | None) -> RosterChange:
    """Give somebody another key: one of a file, the party's own, or a new one."""
    desk, by = who.desk, who.decider
    own, made = key_file(desk.party, name), None

    def change(new: str) -> bool:
        return desk.renew(name, new, by=by)

    if public_key is not None:
        done = change(read_public_key(public_key))
    elif name == FIRST_OWNER and not own.exists():
        done = change(desk.party.signer_now.public_key.text)
    else:
        made = own
        new = own.with_suffix(".new")  # until the list has it, the one before counts
        done = _with_key(new, name, change, who.password, overwrite=True)
        new.replace(own)
    return _changed(who, f"new key: {name}", done, made)


def remove(who: Deciding, name: str) -> RosterChange:
    done = who.desk.dismiss(name, by=who.decider)
    return _changed(who, f"removed: {name}", done)


def set_rule(who: Deciding, persons: int) -> RosterChange:
    done = who.desk.set_needed(2 if persons == 2 else 1, by=who.decider)
    return _changed(who, f"rule: {persons}", done)


def agree(who: Deciding) -> RosterChange:
    return _changed(who, "agreed", who.desk.agree(who.decider))


def _changed(who: Deciding, what: str, done: bool, key: Path | None = None) -> RosterChange:
    return RosterChange(what, done, RosterView.of(who.desk), key)


def _with_key(
    place: Path,
    name: str,
    change: Callable[[str], bool],
    password: Password,
    *,
    overwrite: bool = False,
) -> bool:
    """Change the list with a new key, which is nobody's where that fails."""
    made = make_key(
        place, password(f"Password for {name}'s new key", confirm=True), overwrite=overwrite
    )
    try:
        return change(made.public_key.text)
    except BaseException:
        place.unlink(missing_ok=True)
        raise
