"""A site, for its owner: what is asked, what it costs, decisions, the ledger, health."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from eigenveil.app.decisions import can_be_shown, cost_of, desk_of, owner_of, sentence_of
from eigenveil.app.parts import bytes_text
from eigenveil.app.presenters.study import adversaries, summary, what_is_sent
from eigenveil.app.site import is_running
from eigenveil.console.desk.ledger import Budgets, LedgerPages
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, OutputError, ProtocolError, number_text
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.documents import EVERY_STUDY
from eigenveil.federation.approvals.keys import open_key
from eigenveil.federation.approvals.record import Record
from eigenveil.federation.approvals.roster import FIRST_OWNER, Decider, key_file
from eigenveil.federation.ledger.entries import UNIT, Budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.study.study import Study
from eigenveil.models.task import TASKS
from eigenveil.network.folder import PartyFolder, open_party
from eigenveil.planning.forecast import forecast
from eigenveil.privacy.accountant import epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.guarantee import neighbours_text


class SiteDesk(Budgets):
    def __init__(self, rows: Rows) -> None:
        assert rows.party is not None
        self._rows = rows
        self._party: PartyFolder = open_party(rows.party, role="site")
        self._pages = LedgerPages(lambda: rows.ledger or owner_of(self._party).ledger)
        self._shown: dict[str, dict[str, Any]] = {}
        self._costs: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._texts: dict[tuple[str, str], Study] = {}

    @property
    def _decisions(self) -> Decisions:
        if (place := self._pages.place) is None:
            raise OutputError("ledger-not-named")
        return desk_of(self._party, place, self._data_set)

    # -- what the pages show

    def health(self) -> dict[str, Any]:
        """How the site is: who it is, whether it runs, its data set, its certificate."""
        party = self._party
        head = party.known.current().head
        log = party.folder / "log.txt"
        last = datetime.fromtimestamp(log.stat().st_mtime, UTC) if log.is_file() else None
        accounts = self._pages.accounts()
        mine = next((each for each in accounts if each["data_set"] == self._data_set), None)
        listed = self._record().listed
        return {
            "name": party.name,
            "organisation": party.organisation,
            "federation": f"{head.name} ({party.origin[:16]})",
            "address": party.mailbox_address(),
            "approvers": []
            if listed is None
            else [str(each) for each in listed.approvers if each.until is None],
            "running": is_running(self._party),
            "version": importlib.metadata.version("eigenveil"),
            "days": (head.until - datetime.now(UTC)).days,
            "until": f"{head.until:%Y-%m-%d}",
            "last": None if last is None else f"{last:%Y-%m-%d %H:%M:%S}",
            "data_set": self._data_set,
            "account": mine,
            "accounts": accounts,
            "ledger": self._pages.name,
            "open": self._pages.open_sessions(self._names()),
        }

    def studies(self) -> dict[str, Any]:
        """Those that wait, and those that were decided about; the hidden are only counted."""
        record = self._record()
        waiting: list[dict[str, Any]] = []
        decided: list[dict[str, Any]] = []
        hidden = 0
        for study in self._studies().values():
            if not can_be_shown(study):
                hidden += 1
                continue
            standing = record.standing(study.hash)
            found = self._study(study) | {"standing": _standing(standing)}
            (waiting if standing.waits else decided).append(found)
        return {
            "waiting": sorted(waiting, key=lambda each: str(each["name"])),
            "decided": sorted(decided, key=lambda each: str(each["name"])),
            "hidden": hidden,
            "needed": 1 if record.listed is None else record.listed.needed,
            "every": record.standing(EVERY_STUDY).approved,
        }

    def study(self, study: str, by: str) -> dict[str, Any]:
        """One of them, with all decisions about it, and whether the key of who looks is here."""
        found = self._find(study)
        record = self._record()
        return self._study(found) | {
            "signs": self._signs(by),
            "data_set": self._data_set,
            "account": self._account_needed(found),
            "standing": _standing(record.standing(found.hash)),
            "history": [
                {
                    "by": each.decision.by if each.approver is None else str(each.approver),
                    "action": each.decision.action,
                    "time": f"{each.decision.time:%Y-%m-%d %H:%M}",
                    "purpose": each.decision.purpose,
                    "reason": each.decision.reason,
                    "entry": each.number,
                    "problem": each.problem,
                }
                for each in self._about(found.hash)
            ],
        }

    def ledger(self, page: int, only: str = "") -> dict[str, Any]:
        return self._pages.page(page, only, self._names())

    # -- decisions

    def decide(
        self, action: str, study: str, by: str, password: str, seen: int, terms: dict[str, Any]
    ) -> dict[str, Any]:
        """Make, sign and record a decision; ``terms`` are of its kind, ``until`` a last day."""
        decisions, found = self._decisions, self._find(study)
        own = self._signs(by) == "own"
        decider = Decider(by, None if own else open_key(self._key(by), password))
        if len(self._about(found.hash)) != seen:
            raise ProtocolError("decided-meanwhile")
        if (last := terms.get("until")) is not None:
            end = datetime.fromisoformat(last).replace(tzinfo=UTC) + timedelta(days=1)
            terms = terms | {"until": end}
        deciding: dict[str, Callable[..., Any]] = {
            "approve": decisions.approve,
            "refuse": decisions.refuse,
            "revoke": decisions.revoke,
        }
        return _standing(deciding[action](found.hash, decider, **terms))

    # -- parts

    @property
    def _data_set(self) -> str:
        """The one that is named, or with which the site was started."""
        named = self._rows.data_set
        return owner_of(self._party).data_set if named == Rows.data_set else named

    def _signs(self, by: str) -> str:
        if self._key(by).is_file():
            return "password"
        return "own" if self._rows.own_key and by == FIRST_OWNER else "elsewhere"

    def _key(self, by: str) -> Path:
        """Where the key of somebody is, if it is at the console."""
        usual = key_file(self._party, by)
        return usual if self._rows.keys is None else Path(self._rows.keys) / usual.name

    def _budgets_waiting(self, data_set: str) -> list[dict[str, Any]]:
        return [
            each.said.model_dump(
                mode="json", include={"by", "epsilon", "delta", "adjacency", "unit"}
            )
            for each in self._record().waiting
            if each.said.data_set == data_set
        ]

    def _account_needed(self, study: Study) -> dict[str, Any] | None:
        """The account that a study needs, where that of the site's data set cannot cover it."""
        books, unit = self._pages.books(), study.unit or UNIT
        account = books.accounts.get(self._data_set)
        if account is None and self._cost(study) is None:
            return None
        if account is None:
            needed = Budget(self._data_set, study.adjacency, study.epsilon, study.delta, unit=unit)
        elif (found := self._decisions.account_needed(study, account.budget)) is not None:
            needed = found
        else:
            return None
        return asdict(needed) | {"is_new": needed.data_set != self._data_set}

    def _about(self, study: str) -> list[Any]:
        return [
            each for each in self._record().decisions if each.decision.study in (study, EVERY_STUDY)
        ]

    def _record(self) -> Record:
        """The site's decisions, as the ledger's entries that were added up tell them."""
        books = self._pages.books()
        return Record("") if not books.decided else Record.of(books, self._mark)

    @cached_property
    def _mark(self) -> str:
        """What decisions call the ledger, which is there."""
        return Ledger(str(self._pages.place)).store.mark()

    def _studies(self) -> dict[str, Study]:
        """Studies that wait or were decided about, by hash; a file is read once."""
        found: dict[str, Study] = {}
        texts: dict[tuple[str, str], Study] = {}
        for folder, read in (
            (self._party.waiting, approvals.waiting_study),
            (self._party.decided, approvals.decided_study),
        ):
            for file in sorted(folder.glob("*.json")):
                state = file.stat()
                mark = (str(file), f"{state.st_mtime_ns} {state.st_size} {state.st_ino}")
                study = self._texts.get(mark) or read(self._party, file.stem)
                if study is not None:
                    texts[mark] = found[file.stem] = study
        self._texts = texts
        return found

    def _find(self, study: str) -> Study:
        """A study by its whole hash, as it lies in the folder now."""
        found = approvals.waiting_study(self._party, study) or approvals.decided_study(
            self._party, study
        )
        if found is None or found.hash != study:
            raise ProtocolError("study-changed")
        if not can_be_shown(found):
            raise DataError("not-shown")
        return found

    def _study(self, study: Study) -> dict[str, Any]:
        """What a study does and costs; what does not change is worked out once."""
        if (fixed := self._shown.get(study.hash)) is None:
            fixed = self._shown[study.hash] = fixed_values(study)
        return fixed | {"cost": self._cost(study), "federation": self._party.origin[:16]}

    def _cost(self, study: Study) -> dict[str, Any] | None:
        """What it can cost; worked out anew only where the account stands otherwise."""
        mine = self._standing(self._data_set)
        about = (study.hash, repr(mine))
        if about not in self._costs:
            pages: Any = None if mine is None else self._pages
            found = cost_of(study, self._party.name, pages, self._data_set)
            plain: Any = None if found is None else found.as_json()
            if plain is not None and not math.isfinite(plain["epsilon"]):
                plain["epsilon"] = None
            if pages is not None and found is not None and found.covered:
                plain["after"] = pages.left_after(found.wanted)
            self._costs = {k: v for k, v in self._costs.items() if k[1] == about[1]}
            self._costs[about] = plain
        return self._costs[about]

    def _names(self) -> dict[str, str]:
        return {study.hash: study.name for study in self._studies().values()}


def fixed_values(study: Study) -> dict[str, Any]:
    """What follows from a study alone, in words."""
    task = TASKS[study.task]
    sizes = forecast(study, study.width, None)
    plan = study.plan(study.width)
    views = []
    for each in adversaries(study):
        promise: str
        if each.protected:
            promise = f"epsilon {study.epsilon:g} at delta {number_text(study.delta)}, or less"
        elif study.delta == 0:
            promise = "no promise"
        else:
            mu = mu_of_epsilon(study.epsilon, study.delta)
            weaker = epsilon_of_mu(mu * math.sqrt(each.needed / each.honest), study.delta)
            promise = f"less than was requested: epsilon {weaker:.3g} or more"
        views.append({"name": each.name, "promise": promise, "protected": each.protected})
    sent = what_is_sent(study)
    return {
        **{k: v for k, v in summary(study, None).items() if k not in ("table_schema", "columns")},
        "title": task.title,
        "columns": [] if study.columns is None else list(study.columns[:200]),
        "sent": f"{sent[:1].upper()}{sent[1:]}; {bytes_text(sizes.round_bytes)} in all rounds.",
        "whose": neighbours_text(study.adjacency, plan.unit),
        "views": sorted(views, key=lambda view: bool(view["protected"])),  # the worst first
    }


def _standing(found: Any) -> dict[str, Any]:
    return {
        "state": found.state,
        "label": found.rule.label,
        "sentence": sentence_of(found),
        "by": list(found.by),
        "left": found.left,
        "until": None if found.until is None else f"{found.until:%Y-%m-%d %H:%M} UTC",
        "waits": found.waits,
        "approved": found.approved,
    }
