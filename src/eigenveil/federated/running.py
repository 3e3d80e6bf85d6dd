"""Parties in one process: real messages, serialised and counted, and no network."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from numpy.typing import ArrayLike

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    ProtocolError,
    nearest,
    same_spent,
)
from eigenveil.federation.ledger.entries import UNIT
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.memory import MemoryStore
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol.aggregator import Aggregator, Outcome
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.requests import Call, Replies, Transport
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import Terms, settle
from eigenveil.federation.study.study import Study
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import PartitionedRows, RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.planning.protocol import choose_protocol
from eigenveil.privacy.certificate import Certificate
from eigenveil.tables.adapters import adapter, rows_of

Result = TypeVar("Result")


class Role(Protocol):
    """A role that answers messages."""

    def handle(self, request: bytes) -> bytes:
        """The answer."""


@dataclass
class Traffic:
    """What one party received and sent."""

    messages: int = 0  # Requests that it answered
    received: int = 0  # Bytes
    sent: int = 0
    sent_by_step: dict[str, int] = field(default_factory=dict)  # Bytes that it sent, by step

    def count(self, step: str, request: bytes, reply: bytes) -> None:
        self.messages += 1
        self.received += len(request)
        self.sent += len(reply)
        self.sent_by_step[step] = self.sent_by_step.get(step, 0) + len(reply)


class InProcess:
    """A transport that calls its parties one after the other."""

    def __init__(self, parties: Mapping[str, Role]) -> None:
        self._parties = dict(parties)
        self.traffic = {name: Traffic() for name in parties}

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Each party's answer; nobody is waited for here, so ``timeout`` does not matter."""
        del timeout
        replies: dict[str, bytes] = {}
        failures: dict[str, EigenveilError] = {}
        for name, request in payloads.items():
            party = self._parties.get(name)
            if party is None:
                failures[name] = ProtocolError("unknown-party")
                continue
            replies[name] = party.handle(request)
            self.traffic[name].count(method, request, replies[name])
        return replies, failures


def carry(run: Generator[Call, Replies, Result], transport: Transport) -> Result:
    """Carry a role's calls until it has its result."""
    answers: Replies | None = None
    while True:
        try:  # of the role alone: whatever a party raises is no result
            call = next(run) if answers is None else run.send(answers)
        except StopIteration as end:
            result: Result = end.value
            return result
        answers = transport.call(call.method, call.payloads, call.timeout)


# -- Studies over rows in one process: every site's own software, real messages, no network.


@dataclass(frozen=True)
class _ProcessKey:
    """What signs in one process, where whoever runs it is all parties: a code by a shared key."""

    secret: bytes
    public_key: Any = None

    def sign(self, text: bytes) -> bytes:
        return hmac.digest(self.secret, text, "sha512")

    def verify(self, text: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(text), signature)


@dataclass(frozen=True)
class _ProcessMembers:
    """Takes everybody for who they say they are: they all have the same key."""

    shared: _ProcessKey
    federation: str = ""
    digest: str = ""

    def key(self, *, role: str, name: str) -> Any:
        del role, name
        return self.shared


def process_identities(names: Sequence[str], secret: bytes | None = None) -> dict[str, Identity]:
    """Who the sites of a study in one process are, where they sign who took part."""
    key: Any = _ProcessKey(secret or os.urandom(32))
    members: Any = _ProcessMembers(key)
    return {name: Identity(name, "site", key, members) for name in names}


DATA_SET = "default"
StudyProgress = Callable[[str, int], None]


@dataclass(frozen=True)
class StudyRun:
    """A finished study."""

    study: Study  # With the protocol that was run
    choice: str  # Why that protocol, where the study did not name one
    outcome: Outcome
    certificate: Certificate
    traffic: dict[str, Traffic]  # Of each party
    # Of each site that has some: for the owner of its rows only
    invalid: dict[str, InvalidRows] = field(default_factory=dict)


def run_study(
    study: Study,
    rows: Mapping[str, RowSource],
    *,
    source: RandomSource,
    ledgers: Mapping[str, Ledger] | None = None,
    progress: StudyProgress | None = None,
    keep: Callable[[StudyRun], object] | None = None,
) -> StudyRun:
    """Run a study over its sites' rows."""
    check_sites(study, rows)
    choice = None if study.is_settled else choose_protocol(study, study.width)
    settled = study if choice is None else study.with_protocol(choice.protocol)
    terms = settle(settled)
    identities = process_identities(terms.names) if terms.mends else {}
    books = _new_ledgers(terms) if ledgers is None else ledgers
    sites = {
        name: Site(
            name=name,
            terms=terms,
            rows=rows[name],
            ledger=books[name],
            source=source,
            identity=identities.get(name),
        )
        for name in terms.names
    }
    parties: dict[str, Role] = dict(sites)
    if terms.masks.needs_helper:
        parties[HELPER] = Helper(terms)
    transport = InProcess(parties)
    aggregator = Aggregator(terms, progress=progress)
    try:
        outcome = carry(aggregator.run(), transport)
        reason = "" if choice is None else choice.reason
        run = StudyRun(settled, reason, outcome, outcome.certificate, transport.traffic)
        invalid = {name: site.invalid for name, site in sites.items() if site.invalid is not None}
        cluster = any(isinstance(each, PartitionedRows) for each in rows.values())
        known = {"counted": ledgers is not None, "cluster": cluster}
        certificate = run.certificate.model_copy(update=known)
        run = replace(run, invalid=invalid, certificate=certificate)
        if keep is not None:
            keep(run)
    except EigenveilError as error:
        aggregator.attach_spent(error)
        raise _for_the_owner(error, sites) from None
    except BaseException as error:
        aggregator.attach_spent(error)
        raise
    return run


def _new_ledgers(terms: Terms) -> Mapping[str, Ledger]:
    """New ones that are thrown away, each with just the budget that the study takes."""
    first = MemoryStore()
    Ledger(first).set_budget(requested_budget(terms))
    return {name: Ledger(first.copy()) for name in terms.names}


def requested_budget(terms: Terms) -> Budget:
    """The budget that just covers a study."""
    study = terms.study
    return Budget(
        data_set=DATA_SET,
        adjacency=study.adjacency,
        unit=study.unit or UNIT,
        epsilon=study.epsilon,
        delta=study.delta,
        pure_epsilon=terms.plan.pure_part,
    )


def site_rows(
    X: Sequence[ArrayLike] | Mapping[str, ArrayLike],
    *,
    for_one: str,
    unit: str | None = None,
    groups: Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None,
) -> dict[str, RowSource]:
    """Rows of each site, checked, with their units; columns of frames are matched by name."""
    if isinstance(X, Mapping):
        named = {str(name): array for name, array in X.items()}
    elif isinstance(X, str | os.PathLike) or adapter(X).is_one_table:
        raise DataError("one-array-for-sites", for_one=for_one)
    else:
        named = {f"site{number}": array for number, array in enumerate(X, start=1)}
    _check_twice(named)
    own = _groups_of(named, groups)
    found: dict[str, RowSource] = {}
    wanted: Sequence[str] | None = None
    for name, table in named.items():
        with _of_site(name):
            rows = rows_of(
                table, unit=unit, groups=own.get(name), like=wanted, origin=f"site {name}", fewest=0
            )
        found[name], wanted = rows, wanted or rows.names
    return found


def _groups_of(
    named: Mapping[str, ArrayLike], groups: Sequence[ArrayLike] | Mapping[str, ArrayLike] | None
) -> dict[str, ArrayLike]:
    """The units of each site's rows, as the rows themselves are given."""
    if groups is None:
        return {}
    if isinstance(groups, Mapping):
        own = {str(name): ids for name, ids in groups.items()}
    else:
        own = dict(zip(named, groups, strict=False)) if len(groups) == len(named) else {}
    if set(own) != set(named):
        raise DataError("groups-not-of-all-sites")
    return own


@contextmanager
def _of_site(name: str) -> Iterator[None]:
    """Name the site in what is wrong with its rows."""
    try:
        yield
    except DataError as error:
        said = error.message
        said = said if said.startswith(f"site {name}: ") else f"site {name}: {said}"
        raise DataError.relayed(said, hint=error.hint, code=error.code) from None


def _check_twice(given: Mapping[str, object]) -> None:
    """Refuse one object or file for two sites: its rows would count twice."""
    first: dict[int | str, str] = {}
    for name, rows in given.items():
        path = os.path.realpath(rows) if isinstance(rows, str | os.PathLike) else None
        if (other := first.setdefault(path or id(rows), name)) != name:
            raise DataError("rows-twice", name=name, other=other)


def check_sites(study: Study, rows: Mapping[str, RowSource]) -> None:
    """Refuse rows of a site that the study has not, or none of one that it has."""
    _check_twice(rows)
    names = {site.name for site in study.sites}
    if strange := set(rows) - names:
        raise DataError(
            "unknown-site",
            site=repr(sorted(strange)[0]),
            near=nearest(sorted(strange)[0], sorted(names)),
        )
    if missing := names - set(rows):
        raise DataError("no-rows-for-site", site=sorted(missing)[0])


def _for_the_owner(error: EigenveilError, sites: Mapping[str, Site]) -> EigenveilError:
    """In one process the caller owns all rows: it may know what the aggregator must not."""
    for name, site in sites.items():
        last_error = site.last_error
        if isinstance(last_error, DataError | BudgetExceeded):
            message = last_error.message
            if f"site {name}" not in message:
                message = f"site {name}: {message}"
            reported = type(last_error).relayed(message, hint=last_error.hint, code=last_error.code)
            same_spent(error, reported)
            return reported
    return error
