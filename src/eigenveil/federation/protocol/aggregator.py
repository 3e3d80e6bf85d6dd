"""The role of the aggregator: a generator of calls, from the first message to the result.

It drives the same rounds as a fit of one data set (:func:`eigenveil.models.driver
.rounds_of`), but every sum comes from messages: masked integers are added up modulo 2^64 as they
arrive and forgotten, so memory does not grow with the number of sites.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import EigenveilError, PrivacyError, ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.certificates import signed_by_all
from eigenveil.federation.protocol.messages import HELPER, MASK, Message, encode, fingerprint
from eigenveil.federation.protocol.requests import SMALL, TRIES, Call, Calls, Replies, Requests
from eigenveil.federation.protocol.round_sums import RoundTotals, marked_where_wrapped
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.protocol.validation import check_distinct
from eigenveil.federation.secagg import masks
from eigenveil.federation.secagg.consistency import bitmap
from eigenveil.federation.secagg.keys import RoundFacts
from eigenveil.federation.secagg.masks import neighbours
from eigenveil.federation.secagg.recovery import Mending
from eigenveil.federation.x509_identity import Identity
from eigenveil.models.driver import driven, rounds_of
from eigenveil.models.inputs import first_difference
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import certificate_of
from eigenveil.models.rounds import Answers, Query, Round
from eigenveil.moments.describe import describe
from eigenveil.privacy.certificate import SEEDED, Certificate
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.spending import Spending

# Bytes of answers that are held at once, at the most.
_HELD = 1 << 25
# Bytes for the name of a column, some more than most have: a vocabulary is long.
_LONG_NAME = 256
# Beyond an answer's numbers.
_HEADER_ROOM = 1 << 16


@dataclass(frozen=True)
class Outcome:
    """A finished study.

    Attributes
    ----------
    factors : object
        What the study's task makes of the releases, such as
        :class:`eigenveil.models.pca.rounds.Factors`.
    plan : BasePlan
    records : tuple of ReleaseRecord
        What was released, as calibrated, in order.
    columns : tuple of str or None
        Names of the features.
    taking_part : int
        The fewest sites that any release is the sum of.
    missing : dict
        Sites that fell out, and why.
    secure : bool
        Whether every site states that its noise comes from the operating system.
    dependent : bool
        Whether some site states that on its processor a row's rounding depends on its neighbours.
    certificate : Certificate
        With signatures where the aggregator has an identity.
    """

    factors: Any
    plan: BasePlan
    records: tuple[ReleaseRecord, ...]
    columns: tuple[str, ...] | None
    taking_part: int
    missing: Mapping[str, str]
    secure: bool
    dependent: bool
    certificate: Certificate


@dataclass
class _Session:
    """What the aggregator knows so far."""

    joined: dict[str, payloads.JoinReply] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    members: list[str] = field(default_factory=list)
    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Who was named to each site as its neighbours: they hold its shares."""
    near: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The neighbours with which it makes masks."""
    joined_map: str = ""
    members_map: str = ""
    """Bitmaps of those whose keys were passed on, and of those whose shares were."""
    mending: Mending | None = None
    helper: str | None = None
    helper_proof: payloads.Proof | None = None
    fewest: int = 0
    records: list[ReleaseRecord] = field(default_factory=list)
    asked: list[tuple[bytes, int]] = field(default_factory=list)
    """The query of each round, and the most bytes of an answer."""
    answered: dict[str, int] = field(default_factory=dict)
    """The last round that each site has answered."""


class Aggregator:
    """The role that sends queries, adds up and factorises.

    Parameters
    ----------
    terms : Terms
        Of the study.
    session : str, optional
        Name of this run; fresh by default. Every run has keys, masks and noise of its own.
    timeout : float
        Seconds that a site has for one answer.
    progress : callable, optional
        Called with ``(what, sites)`` after every answer.
    identity : Identity, optional
        Signs the certificate, and has sites sign it that agree with it.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        session: str | None = None,
        timeout: float = 600.0,
        progress: Callable[[str, int], None] | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.study, self._identity = terms.study, identity
        self._terms = terms
        self.session = session or os.urandom(12).hex()
        self._calls = Requests(terms.hash, self.session, timeout, progress)
        self._know = _Session()
        self._over = False

    def run(self) -> Generator[Call, Replies, Outcome]:
        """The whole protocol.

        Raises
        ------
        ProtocolError
            Naming the sites that failed, where fewer are left than the study needs.
        PrivacyError
            When the data are too few for the budget.
        BaseException
            Whatever stops it after something was released reports it, as ``spent`` and
            ``released``.
        """
        try:
            return (yield from self._run())
        except GeneratorExit:
            raise
        except BaseException as error:
            self.attach_spent(error)
            raise

    def attach_spent(self, error: BaseException) -> None:
        """Attach to an error what was released so far, from the first request for it on."""
        Spending(
            delta=self.study.delta,
            adjacency=self.study.adjacency,
            unit=self.study.unit,
            reasons_not_certified=[] if self._secure else [SEEDED],
            records=self._know.records,
        ).notify(error)

    @property
    def _secure(self) -> bool:
        """Whether every site states that its noise comes from the operating system."""
        return not any(site.seeded for site in self._know.joined.values())

    def _run(self) -> Generator[Call, Replies, Outcome]:
        know = self._know
        try:
            yield from self._join()
            self._terms.check_views()
            yield from self._agree_on_keys()
            factors = marked_where_wrapped((yield from self._rounds()), know.records)
            secure, dependent = self._secure, any(site.dependent for site in know.joined.values())
            plan = self._terms.plan.drawn_from(secure=secure)
            federation = self._terms.federation(know.fewest)
            certificate = certificate_of(
                plan,
                factors,
                know.records,
                features=self.study.width,
                names=know.columns,
                secure=secure,
                dependent=dependent,
                counted=True,  # no site answers otherwise
                newlines_in_cells=any(site.newlines_in_cells for site in know.joined.values()),
                view=federation.requested_view,
                federation=federation,
                study=self.study.model_dump(mode="json"),
                study_hash=self._terms.hash,
            )
            if self._identity is not None:
                certificate = yield from signed_by_all(
                    certificate, self._identity, self._calls, know.members
                )
        except EigenveilError as error:
            how = "stopped" if isinstance(error, PrivacyError) else "failed"
            yield from self._finish(f"{how}: {error.code}")
            raise
        yield from self._finish("finished")
        return Outcome(
            factors,
            plan,
            tuple(know.records),
            know.columns,
            know.fewest,
            dict(self._calls.missing),
            secure=secure,
            dependent=dependent,
            certificate=certificate,
        )

    # -- setting up

    def _join(self) -> Calls:
        know = self._know
        names = self._terms.names
        body = payloads.JoinRequest()

        def take(name: str, reply: Message) -> None:
            know.joined[name] = reply.read(payloads.JoinReply)

        limit = SMALL + _LONG_NAME * self._terms.width
        yield from self._calls.query("join", names, self._calls.same("join", body), take, limit)
        know.members = [name for name in names if name in know.joined]
        self._check_left("join")
        check_distinct(self._all_keys())
        self._check_tables()
        know.fewest = len(know.members)

    def _check_tables(self) -> None:
        """All sites have the study's columns; where it has no names for them, the same ones."""
        whose, columns = "the study", self.study.columns
        for name, table in self._know.joined.items():
            if table.features != self._terms.width:
                raise ProtocolError(
                    f"site {name} has {table.features} columns, the study {self._terms.width}.",
                    hint="All sites must use the columns that the study names.",
                    code="other-features",
                )
            if table.columns is None:
                continue
            if columns is None:
                whose, columns = f"site {name}", table.columns
            if table.columns != columns or len(columns) != table.features:
                raise ProtocolError(
                    f"site {name} has other columns than {whose}: "
                    f"{first_difference(table.columns, columns)}.",
                    hint="All sites must use the columns that the study names, in its order.",
                    code="other-columns",
                )
        self._know.columns = columns

    def _agree_on_keys(self) -> Calls:
        know, terms = self._know, self._terms
        paired = terms.mask_kind in ("modular", "pairwise")
        know.near = know.holders = {
            name: neighbours(name, know.members, self.study.degree) if paired else ()
            for name in know.members
        }
        if terms.mask_kind == "helper":
            yield from self._find_helper()
        sealed: dict[str, dict[str, str]] = {}
        lost = tuple(name for name in terms.names if name not in know.joined)

        know.joined_map = know.members_map = bitmap(terms.names, know.members)
        if terms.mends:
            know.mending = Mending(self.study, self._calls, self._all_keys())
        signers = know.mending.signers() if know.mending else {}
        proofs = know.mending.proofs() if know.mending else {}

        def request(name: str) -> bytes:
            near = {name, *know.near[name]}
            body = payloads.KeysRequest(
                lost=lost,
                proofs={other: each for other, each in proofs.items() if other not in near},
                neighbours={other: know.joined[other].keys for other in know.near[name]},
                helper=know.helper,
                helper_proof=know.helper_proof,
            )
            return self._calls.payload("keys", body, signers)

        def take(name: str, reply: Message) -> None:
            found = reply.read(payloads.KeysReply).sealed
            if know.mending is not None and set(found) != set(know.near[name]):
                raise ProtocolError(
                    f"{name}: it did not send shares to all of its neighbours.", code="malformed"
                )
            sealed[name] = found

        yield from self._calls.query("keys", know.members, request, take, SMALL)
        self._keep(sealed)
        self._check_left("keys")
        if know.mending is not None:
            know.members_map = bitmap(terms.names, know.members)
            yield from self._pass_shares(sealed)

    def _all_keys(self) -> dict[str, payloads.PublicKeys]:
        """Of all that take part, in the study's order."""
        return {name: self._know.joined[name].keys for name in self._know.members}

    def _find_helper(self) -> Calls:
        def take(name: str, reply: Message) -> None:
            del name
            found = reply.read(payloads.HelperKey)
            self._know.helper, self._know.helper_proof = found.channel, found.proof

        body = payloads.JoinRequest()
        yield from self._calls.query("join", [HELPER], self._calls.same("join", body), take, SMALL)
        if self._know.helper is None:
            raise ProtocolError(
                f"The noise helper does not answer: {self._calls.missing[HELPER]}.",
                hint="Start the helper, or choose masks='modular', which need none.",
                code="no-helper",
            )

    def _pass_shares(self, sealed: Mapping[str, Mapping[str, str]]) -> Calls:
        know = self._know
        know.near = {
            name: tuple(other for other in know.near[name] if other in sealed)
            for name in know.members
        }
        done: dict[str, bool] = {}

        def request(name: str) -> bytes:
            mine = {other: sealed[other][name] for other in know.near[name]}
            body = payloads.SharesRequest(members=know.members_map, sealed=mine)
            return self._calls.payload("shares", body)

        def take(name: str, reply: Message) -> None:
            reply.read(payloads.Done)
            done[name] = True

        yield from self._calls.query("shares", know.members, request, take, SMALL)
        self._check_left("shares", len(done))

    # -- rounds

    def _rounds(self) -> Generator[Call, Replies, Any]:
        rounds = rounds_of(
            self._terms.plan,
            **self.study.public_columns,
            sharing=self._terms.sharings,
        )
        turns = count(1)
        return (yield from driven(rounds, lambda queries: self._round(next(turns), queries)))

    def _round(self, round_number: int, queries: Round) -> Generator[Call, Replies, Answers]:
        know, terms = self._know, self._terms
        step = f"round {round_number}"
        totals = RoundTotals(terms, queries)
        body, arrays = _request(queries, terms.width, round_number)
        reported = self._calls.message(step, body, arrays)
        common, request_digest = encode(reported), fingerprint(reported)
        sealed: dict[str, NDArray[np.uint8]] = {}
        arrived: list[str] = []

        def request(name: str) -> bytes:
            if name in sealed:
                return self._calls.payload(step, body, {**arrays, MASK: sealed[name]})
            return common

        def take(name: str, reply: Message) -> None:
            totals.add(reply)
            arrived.append(name)
            know.answered[name] = round_number

        yield from self._catch_up()
        know.records.extend(query.record for query in queries)  # from the first request on
        limit = totals.message_bytes + _HEADER_ROOM
        know.asked.append((common, limit))
        for batch in _batches(self._at(round_number), totals.message_bytes):
            if terms.mask_kind == "helper" and totals.parts:
                sealed = yield from self._helpers_masks(
                    round_number, request_digest, batch, totals.parts
                )
            yield from self._calls.query(step, batch, request, take, limit)
        self._check_left(step, len(arrived))
        know.fewest = min(know.fewest, len(arrived))
        if totals.parts and know.mending is not None:
            facts = RoundFacts(round_number, request_digest, know.joined_map, know.members_map)
            leftover = yield from know.mending.leftover(
                facts, arrived, totals.parts, holders=know.holders, near=know.near
            )
            totals.subtract(leftover)
        return totals.releases(len(arrived))

    def _catch_up(self) -> Calls:
        """Ask sites that missed rounds for these: a site answers no round before the one before.

        What they answer is in no sum: its masks were taken off as those of a site that was lost.
        """
        know = self._know

        def take(name: str, reply: Message) -> None:
            know.answered[name] = int(reply.step.removeprefix("round "))

        for round_number, (asked, limit) in enumerate(know.asked, start=1):
            for batch in _batches(self._at(round_number), limit):
                request = dict.fromkeys(batch, asked).__getitem__
                yield from self._calls.query(f"round {round_number}", batch, request, take, limit)

    def _at(self, round_number: int) -> list[str]:
        """Sites that have answered all rounds before this one, and not this one."""
        know = self._know
        return [name for name in know.members if know.answered.get(name, 0) == round_number - 1]

    def _helpers_masks(
        self,
        round_number: int,
        request_digest: str,
        batch: Sequence[str],
        parts: Sequence[masks.Part],
    ) -> Generator[Call, Replies, dict[str, NDArray[np.uint8]]]:
        know = self._know
        body = payloads.MasksRequest(
            round_number=round_number,
            request_digest=request_digest,
            channels={name: know.joined[name].keys.channel for name in batch},
            proved={
                name: know.joined[name].keys
                for name in batch
                if know.joined[name].keys.proof is not None
            },
            parts=tuple(
                payloads.PartBody(size=part.size, deviation=part.mask_deviation, layout=part.layout)
                for part in parts
            ),
        )
        size = 8 * masks.total_size(parts) + 16
        found: dict[str, NDArray[np.uint8]] = {}

        def take(name: str, reply: Message) -> None:
            del name
            found.update({site: reply.array(site, dtype="b1", shape=(size,)) for site in batch})

        yield from self._calls.query(
            f"masks {round_number}",
            [HELPER],
            self._calls.same(f"masks {round_number}", body),
            take,
            len(batch) * (size + 256) + _HEADER_ROOM,
        )
        if not found:
            raise ProtocolError(
                f"The noise helper failed: {self._calls.missing[HELPER]}.",
                hint="Start the study again; what was sent is masked and shows nothing.",
                code="no-helper",
            )
        return found

    # -- who is left

    def _keep(self, answered: Mapping[str, object]) -> None:
        self._know.members = [name for name in self._know.members if name in answered]
        self._know.fewest = min(self._know.fewest, len(self._know.members))

    def _check_left(self, step: str, count: int | None = None) -> None:
        """Enough sites are left for the noise to be what was promised."""
        left = len(self._know.members) if count is None else count
        fewest = self._terms.fewest
        if left < fewest:
            raise self._calls.too_few(
                f"In step {step!r} {left} of the {fewest} sites are left that the study's noise is "
                "made for"
            )

    def _finish(self, outcome: str) -> Calls:
        """Tell everybody that it is over; who does not hear it finds out from the next session."""
        if self._over:
            return
        self._over = True
        missing = dict(self._calls.missing)
        body = payloads.FinishRequest(outcome=outcome[:200])
        others = [name for name in self._terms.names if name not in self._know.joined]
        # those others may have joined without our hearing of it
        for names, tries in ((list(self._know.joined), TRIES), (others, 1)):
            if names:
                say = self._calls.same("finish", body)
                yield from self._calls.query("finish", names, say, _accept, SMALL, tries)
        self._calls.missing = missing


def _accept(name: str, reply: Message) -> None:
    del name, reply


def _request(
    queries: Round, features: int, round_number: int
) -> tuple[payloads.RoundRequest, dict[str, NDArray[np.float64]]]:
    arrays: dict[str, NDArray[np.float64]] = {}
    reported = []
    for index, query in enumerate(queries):
        description, found = describe(query.accumulator, features)
        arrays |= {f"{name} {index}": array for name, array in found.items()}
        reported.append(_query_body(query, description))
    return payloads.RoundRequest(round_number=round_number, queries=tuple(reported)), arrays


def _query_body(query: Query, description: object) -> payloads.QueryBody:
    noise = query.record.noise
    assert noise.grid is not None
    return payloads.QueryBody.model_validate(
        {"name": query.name, "description": description, "scale": noise.scale, "grid": noise.grid}
    )


def _batches(names: Sequence[str], message_bytes: int) -> list[Sequence[str]]:
    size = max(1, _HELD // max(1, message_bytes))
    return [names[start : start + size] for start in range(0, len(names), size)]
