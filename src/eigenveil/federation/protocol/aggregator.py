"""The role of the aggregator: a generator of calls, from the first message to the result.

It drives the rounds of a fit of one data set, but sums come from messages: masked integers are
added up as they arrive and forgotten, so memory does not grow with the number of sites.
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
from eigenveil.federation.masks import Part, helpers_bytes
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.certificates import (
    own_signature,
    signatures_of,
    site_signature,
)
from eigenveil.federation.protocol.messages import (
    HELPER,
    LETTERS,
    MASK,
    Message,
    encode,
)
from eigenveil.federation.protocol.requests import (
    SMALL,
    TRIES,
    Call,
    Calls,
    Replies,
    Requests,
    round_request,
)
from eigenveil.federation.protocol.sums import RoundTotals, marked_where_wrapped
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.protocol.validation import check_keys, common_columns, one_list
from eigenveil.federation.secagg.client import packet_bytes, pair_letter_bytes
from eigenveil.federation.secagg.consistency import Verify, bitmap
from eigenveil.federation.secagg.keys import RoundFacts
from eigenveil.federation.secagg.recovery import Agreement, Mending
from eigenveil.models.driver import driven, rounds_of
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import certificate_of
from eigenveil.models.rounds import Answers, Round
from eigenveil.privacy.accountant import Spending
from eigenveil.privacy.certificate import SEEDED, Certificate, Signature
from eigenveil.privacy.releases import ReleaseRecord

# Bytes of answers that are held at once, at the most.
_HELD = 1 << 25
# Bytes for the name of a column, some more than most have: a vocabulary is long.
_LONG_NAME = 256
# Beyond an answer's numbers.
_HEADER_ROOM = 1 << 16


@dataclass(frozen=True)
class Outcome:
    """A finished study."""

    factors: Any  # What the study's task makes of the releases
    plan: BasePlan
    records: tuple[ReleaseRecord, ...]  # What was released, as calibrated, in order
    columns: tuple[str, ...] | None  # Names of the features
    taking_part: int  # The fewest sites that any release is the sum of
    missing: Mapping[str, str]  # Sites that fell out, and why
    certificate: Certificate  # With signatures where the aggregator has an identity


@dataclass
class _Known:
    """What the aggregator knows so far."""

    joined: dict[str, payloads.JoinReply] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    members: list[str] = field(default_factory=list)
    partners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # By sender and receiver
    letters: dict[str, dict[str, NDArray[np.uint8]]] = field(default_factory=dict)
    # Bitmaps of those whose keys were passed on, and of those that can be lost
    joined_map: str = ""
    members_map: str = ""
    mending: Mending | None = None
    helper: payloads.PublicKeys | None = None
    fewest: int = 0
    records: list[ReleaseRecord] = field(default_factory=list)
    # The query of each round, and the most bytes of an answer; the last round a site has answered
    asked: list[tuple[bytes, int]] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)


class Aggregator:
    """The role that sends queries, adds up and factorises."""

    def __init__(
        self,
        terms: Terms,
        *,
        session: str | None = None,
        timeout: float = 600.0,
        progress: Callable[[str, int], None] | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.study, self._terms, self._identity = terms.study, terms, identity
        self.session = session or os.urandom(12).hex()
        self._calls = Requests(terms.hash, self.session, timeout, progress)
        self._know = _Known()

    def run(self) -> Generator[Call, Replies, Outcome]:
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
            plan = self._terms.plan.drawn_from(secure=self._secure)
            sites = know.joined.values()
            federation = self._terms.federation(know.fewest)
            certificate = certificate_of(
                plan,
                factors,
                know.records,
                names=know.columns,
                schema=self.study.table_schema,
                secure=self._secure,
                dependent=any(site.dependent for site in sites),
                counted=True,  # no site answers otherwise
                newlines_in_cells=any(site.newlines_in_cells for site in sites),
                view=federation.requested_view,
                federation=federation,
                study=self.study.model_dump(mode="json"),
                study_hash=self._terms.hash,
            )
        except EigenveilError as error:
            how = "stopped" if isinstance(error, PrivacyError) else "failed"
            yield from self._end(f"{how}: {error.code}")
            raise
        certificate = yield from self._end_well(certificate)
        return Outcome(
            factors,
            plan,
            tuple(know.records),
            know.columns,
            know.fewest,
            dict(self._calls.missing),
            certificate,
        )

    # -- setting up

    def _join(self) -> Calls:
        know = self._know
        names = self._terms.names

        def take(name: str, reply: Message) -> None:
            found = reply.read(payloads.JoinReply)
            check_keys({name: found.keys})
            know.joined[name] = found

        limit = SMALL + _LONG_NAME * self._terms.plan.features
        yield from self._calls.ask("join", names, payloads.JoinRequest(), take, limit)
        know.members = [name for name in names if name in know.joined]
        self._check_left("join")
        self._calls.listed = one_list(know.joined)
        know.columns = common_columns(self._terms, know.joined)
        know.fewest = len(know.members)

    def _agree_on_keys(self) -> Calls:
        know, terms = self._know, self._terms
        if terms.masks.needs_helper:
            yield from self._find_helper()
        know.partners = holders = terms.masks.pairing(know.members, self.study.degree)
        keys = {name: reply.keys for name, reply in know.joined.items()}
        if know.helper is not None:
            keys[HELPER] = know.helper
        lost = tuple(name for name in terms.names if name not in know.joined)
        know.joined_map = bitmap(terms.names, know.members)
        size = pair_letter_bytes(terms)

        def request(name: str) -> bytes:
            body = payloads.KeysRequest(
                lost=lost, partners={other: keys[other] for other in holders[name]}
            )
            return self._calls.payload("keys", body)

        def take(name: str, reply: Message) -> None:
            reply.read(payloads.LettersReply)
            to = holders[name]
            table = reply.array(LETTERS, dtype="b1", shape=(len(to), size)) if to else ()
            know.letters[name] = dict(zip(to, table, strict=True))

        limit = SMALL + size * self.study.degree
        yield from self._calls.query("keys", know.members, request, take, limit)
        self._keep(know.letters)
        self._check_left("keys")
        if terms.mends:
            yield from self._share(holders)
        know.members_map = bitmap(terms.names, know.members)

    def _find_helper(self) -> Calls:
        def take(name: str, reply: Message) -> None:
            keys = reply.read(payloads.HelperKey).keys
            check_keys({name: keys})
            self._know.helper = keys

        yield from self._calls.ask("join", [HELPER], payloads.JoinRequest(), take, SMALL)
        if self._know.helper is None:
            raise ProtocolError(
                "no-helper", what="does not answer", reason=self._calls.missing[HELPER]
            )

    def _share(self, holders: Mapping[str, tuple[str, ...]]) -> Calls:
        """Bring letters, and fetch what masks of sites that are lost are repaired with."""
        know, rounds = self._know, len(self._terms.plan.rounds)
        paired = {
            name: tuple(other for other in holders[name] if other in know.letters)
            for name in know.members
        }
        packets: dict[str, list[bytes]] = {}

        def request(name: str) -> bytes:
            body = payloads.SharesRequest(senders=paired[name])
            return self._calls.payload("shares", body, self._letters_for(name, paired[name]))

        def take(name: str, reply: Message) -> None:
            reply.read(payloads.SharesReply)
            shape = rounds, packet_bytes(len(paired[name]))
            table = reply.array("packets", dtype="b1", shape=shape)
            packets[name] = [row.tobytes() for row in table]

        limit = SMALL + rounds * packet_bytes(self.study.degree)
        yield from self._calls.query("shares", know.members, request, take, limit)
        know.letters = {}
        self._keep(packets)
        self._check_left("shares")
        near = {
            name: tuple(other for other in paired[name] if other in packets)
            for name in know.members
        }
        agreement = Agreement(holders, near, paired, packets)
        know.mending = Mending(self.study, self._calls, agreement, self._verify)

    def _letters_for(self, name: str, senders: Sequence[str]) -> dict[str, NDArray[np.uint8]]:
        if not senders:
            return {}
        return {LETTERS: np.stack([self._know.letters[other][name] for other in senders])}

    @property
    def _verify(self) -> Verify | None:
        identity = self._identity
        if identity is None:
            return None
        return lambda text, mark, name: identity.verify(text, mark, role="site", name=name)

    # -- rounds

    def _rounds(self) -> Generator[Call, Replies, Any]:
        terms = self._terms
        rounds = rounds_of(terms.plan, **terms.public_columns, sharing=terms.sharings)
        turns = count(1)
        return (yield from driven(rounds, lambda queries: self._round(next(turns), queries)))

    def _round(self, round_number: int, queries: Round) -> Generator[Call, Replies, Answers]:
        know, terms = self._know, self._terms
        step = f"round {round_number}"
        totals = RoundTotals(terms, queries)
        told = know.members_map if know.mending is not None and round_number == 1 else None
        body, arrays = round_request(queries, terms.plan.features, round_number, told)
        reported = self._calls.message(step, body, arrays)
        common, request_digest = encode(reported), reported.fingerprint
        sealed: dict[str, NDArray[np.uint8]] = {}
        arrived: list[str] = []

        def request(name: str) -> bytes:
            if name in sealed:
                return self._calls.payload(step, body, {**arrays, MASK: sealed[name]})
            if round_number == 1 and know.mending is None and terms.masks.between_sites:
                letters = self._letters_for(name, know.partners[name])
                return self._calls.payload(step, body, {**arrays, **letters})
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
            if terms.masks.needs_helper and totals.parts:
                sealed = yield from self._helpers_masks(
                    round_number, request_digest, batch, totals.parts
                )
            yield from self._calls.query(step, batch, request, take, limit)
        self._check_left(step, len(arrived))
        know.fewest = min(know.fewest, len(arrived))
        if totals.parts and know.mending is not None:
            facts = RoundFacts(round_number, request_digest, know.joined_map, know.members_map)
            leftover = yield from know.mending.leftover(facts, arrived, totals.parts)
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
        parts: Sequence[Part],
    ) -> Generator[Call, Replies, dict[str, NDArray[np.uint8]]]:
        know = self._know
        body = payloads.MasksRequest(
            round_number=round_number,
            request_digest=request_digest,
            sites={name: know.joined[name].keys for name in batch},
            parts=tuple(
                payloads.PartBody(size=part.size, deviation=part.mask_deviation, layout=part.layout)
                for part in parts
            ),
        )
        size = helpers_bytes(parts)
        letters = np.stack([know.letters[name][HELPER] for name in batch])
        found: dict[str, NDArray[np.uint8]] = {}

        def take(name: str, reply: Message) -> None:
            del name
            found.update({site: reply.array(site, dtype="b1", shape=(size,)) for site in batch})

        step, limit = f"masks {round_number}", len(batch) * (size + 256) + _HEADER_ROOM
        yield from self._calls.ask(step, [HELPER], body, take, limit, arrays={LETTERS: letters})
        if not found:
            raise ProtocolError("no-helper", what="failed", reason=self._calls.missing[HELPER])
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

    def _end_well(self, certificate: Certificate) -> Generator[Call, Replies, Certificate]:
        """End a study; its certificate, signed by all who are there and agree with it."""
        identity, found = self._identity, dict[str, Signature]()
        if identity is None:
            yield from self._end("finished")
            return certificate

        def take(name: str, reply: Message) -> None:
            said = reply.read(payloads.EndReply).signature
            found[name] = site_signature(identity, certificate, self.session, name, said)

        before = dict(self._calls.missing)
        body = payloads.EndRequest(outcome="finished", certificate=certificate)
        members = self._know.members
        yield from self._calls.ask("end", members, body, take, SMALL)
        unsigned = {
            name: f"it did not sign the certificate: {why}"
            for name, why in self._calls.missing.items()
        }
        self._calls.missing = unsigned | before
        yield from self._end("finished", known=members)
        own = own_signature(identity, certificate, self.session, aggregator=True)
        by = (own, *(found[name] for name in members if name in found))
        signatures = signatures_of(identity, self.session, by)
        return certificate.model_copy(update={"signatures": signatures})

    def _end(self, outcome: str, known: Sequence[str] = ()) -> Calls:
        """Tell all but the known; who does not hear it finds out from the next session."""
        missing = dict(self._calls.missing)
        body = payloads.EndRequest(outcome=outcome[:200])
        joined = [name for name in self._know.joined if name not in known]
        others = [name for name in self._terms.names if name not in self._know.joined]
        # those others may have joined without our hearing of it
        for names, tries in ((joined, TRIES), (others, 1)):
            if names:
                yield from self._calls.ask("end", names, body, lambda *_: None, SMALL, tries=tries)
        self._calls.missing = missing


def _batches(names: Sequence[str], message_bytes: int) -> list[Sequence[str]]:
    size = max(1, _HELD // max(1, message_bytes))
    return [names[start : start + size] for start in range(0, len(names), size)]
