"""The role of a site: it answers messages about its own rows and records every answer.

All that matters between two messages is in the ledger, so a site that is killed goes on where it
was. An answer is one transaction: the state that it follows from is read in it, answer and charge
are stored before it is returned. Only rows are read before, for the state that this process saw
last, and again if another one has gone on since. A site works out sensitivities itself
(docs/proofs/views.md, claim 9: of every query that it accepts), and never spends more than the
study's target, whoever asks. Nothing about its rows decides whether it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from eigenveil.errors import BudgetExceeded, DataError, EigenveilError, PrivacyError, ProtocolError
from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.federation.masks import split
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol import payloads, validation
from eigenveil.federation.protocol.certificates import SitePart, check_part, own_signature
from eigenveil.federation.protocol.messages import (
    LETTERS,
    REFUSED,
    Message,
    encode,
    expect,
)
from eigenveil.federation.protocol.sums import (
    Now,
    SeenState,
    SiteMemory,
    SiteSum,
    add_up,
    noisy_arrays,
    wanted_sums,
)
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.secagg.client import SecaggClient, State, pair_letter_bytes
from eigenveil.federation.secagg.consistency import bitmap, check_signatures, members_of, rows
from eigenveil.federation.secagg.keys import SiteKeys
from eigenveil.models.driver import rows_for
from eigenveil.models.task import TASKS
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource, SecureSource
from eigenveil.origins import FileOrigin
from eigenveil.privacy.certificate import Certificate
from eigenveil.tables.names import check_names, first_difference

# Steps of which there is one a round; any other step is answered once.
_EVERY_ROUND = ("round", "survivors", "unmask")
# Of a request, beside its arrays.
_SMALL = 1 << 22
_OWN_LOG = "its owner finds the reason in the site's own log"


@lru_cache(8)
def request_limit(terms: Terms) -> int:
    """Most bytes of a request: arrays of each sum, the helper's masks of all, and letters."""
    plan = terms.plan
    arrays = payloads.MOST_QUERIES * plan.requested_values()
    letters = pair_letter_bytes(terms) * terms.study.degree
    return _SMALL + 8 * (arrays + plan.released_values()) + letters


class Site:
    """One site of a study."""

    def __init__(
        self,
        *,
        name: str,
        terms: Terms,
        rows: RowSource,
        ledger: Ledger,
        data_set: str = "default",
        source: RandomSource | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._identity = identity
        study = terms.study
        self.name, self.study, self.rows = name, study, rows_for(terms.plan, rows)
        self.ledger, self.data_set = ledger, data_set
        self._source = source or SecureSource()
        self.terms, self._limit = terms, request_limit(terms)
        self._memory = SiteMemory(ledger, terms.hash)
        self.last_error: EigenveilError | None = None
        self.invalid: InvalidRows | None = None
        if terms.mends and identity is None:
            raise ProtocolError("no-identity")
        if rows.schema is not None and study.table_schema is not None:
            study.table_schema.check_same(rows.schema, f"site {name}")
        own, wanted = rows.features, terms.plan.features
        if own != wanted:
            raise DataError("other-features", whose=f"site {name}", features=own, wanted=wanted)
        check_names(
            FileOrigin(f"site {name}"),
            rows.names,
            of_words=TASKS[study.task].takes_documents,
        )
        if None not in (study.columns, rows.names) and study.columns != tuple(rows.names or ()):
            found = first_difference(rows.names or (), study.columns or ())
            raise DataError(
                "other-columns", whose=f"site {name}", difference=f"{found} in the study"
            )

    def handle(self, request: bytes) -> bytes:
        """The answer to a message from the aggregator.

        Never raises a package error: the aggregator receives a code and a sentence that shows
        nothing about rows, the owner finds the whole in ``last_error``.
        """
        step, session = REFUSED, ""
        try:
            message = self.terms.opened.message(request, limit=self._limit)
            session = message.session
            expect(message, step=message.step, study=self.terms.hash, session=session)
            kind = message.step.partition(" ")[0]
            answer = self._answers().get(kind if kind in _EVERY_ROUND else message.step)
            if answer is None:
                raise ProtocolError("unknown-step", step=message.step[:40])
            return answer(message, request)
        except EigenveilError as error:
            self.last_error = error
            code, text = _public_text(error)
            refusal = payloads.Refusal(code=code, text=text[:500])
            return encode(Message(step, self.terms.hash, session, self.name, refusal.fields()))

    def _answers(self) -> dict[str, Callable[[Message, bytes], bytes]]:
        return {
            "join": self._join,
            "keys": self._keys,
            "shares": self._shares,
            "round": self._round,
            "survivors": self._survivors,
            "unmask": self._unmask,
            "end": self._end,
        }

    # -- the steps of a session, in order

    def _join(self, message: Message, request: bytes) -> bytes:
        message.read(payloads.JoinRequest)
        terms = self.terms
        if self.name not in terms.names:
            raise ProtocolError("not-a-site-here", name=self.name)
        key = self._memory.key(message)
        stored = self.ledger.begin(
            key,
            terms.wanted(self.name, self.data_set),
            state=State(master=SiteKeys.new_master().hex(), listed=self._listed).stored(),
            note=self.study.name,
        )
        state = self._memory.read(message, stored)
        reply = payloads.JoinReply(
            columns=None if self.rows.names is None else tuple(self.rows.names),
            features=self.rows.features,
            keys=self._public_keys(Now(message, state)),
            listed=state.listed,
            seeded=not self._source.secure,
            dependent=dependence(),
            newlines_in_cells=self.rows.newlines_in_cells,
        )
        return self._memory.answer(message, request, lambda now: self._draft(now, reply))

    def _keys(self, message: Message, request: bytes) -> bytes:
        body = message.read(payloads.KeysRequest)

        def draft(now: Now) -> Draft:
            terms = self.terms
            joined = validation.check_partners(terms, self.name, body)
            client = self._client(now)
            if self._identity is not None:
                for name, keys in body.partners.items():
                    self._identity.check(keys.proved(), keys.proof, client.context, name)
            members = bitmap(terms.names, joined)
            letters, kept = client.letters({name: each.raw for name, each in body.partners.items()})
            state = now.state.model_copy(
                update={
                    "joined": members,
                    "members": "" if terms.mends else members,
                    "held": {self.name: kept.hex()} if terms.mends else {},
                    "ready": not terms.mends,
                    "fewest": len(joined),
                }
            )
            arrays = {LETTERS: rows(letters, pair_letter_bytes(terms))} if letters else {}
            return self._draft(now, payloads.LettersReply(), state, arrays)

        return self._memory.answer(message, request, draft)

    def _shares(self, message: Message, request: bytes) -> bytes:
        """Agree with neighbours, and leave what a round's masks are repaired with."""
        body = message.read(payloads.SharesRequest)

        def draft(now: Now) -> Draft:
            validation.check_senders(self.terms, self.name, body, now.state)
            state = self._opened(now, body.senders)
            packets = self._client(replace(now, state=state)).packets()
            arrays = {"packets": rows(packets, len(packets[0]))}
            return self._draft(now, payloads.SharesReply(), state, arrays)

        return self._memory.answer(message, request, draft)

    def _opened(self, now: Now, senders: Sequence[str]) -> State:
        shape = len(senders), pair_letter_bytes(self.terms)
        table = now.message.array(LETTERS, dtype="b1", shape=shape)
        letters = {name: row.tobytes() for name, row in zip(senders, table, strict=True)}
        return self._client(now).opened(letters)

    def _round(self, message: Message, request: bytes) -> bytes:
        body = message.read(payloads.RoundRequest)
        sums: list[SiteSum] = []
        prepared_for: SeenState | None = None
        problem: ProtocolError | None = None

        def draft(now: Now) -> Draft:
            if self._memory.seen != prepared_for:  # what was just read in the ledger
                if now.state.round_number >= body.round_number:
                    # answered, and not what is requested now: refused
                    validation.check_turn(self.terms, self.name, message.step, body, now.state)
                raise _GoneOn
            if problem is not None:
                raise problem
            return Draft(
                lambda: self._hidden(now, body, sums),
                charges=[each.record for each in sums],
                # those before it went when it was answered itself
                settles=[f"round {body.round_number - 1}"] if body.round_number > 1 else [],
            )

        while True:
            seen = self._memory.last_seen(message)
            if seen.state.round_number < body.round_number:
                prepared_for, problem = seen, None
                now = Now(message, seen.state)
                try:
                    sums = self._sums(now, body)
                except ProtocolError as error:
                    problem = error  # if the ledger agrees
                else:  # outside the transaction: others may write while rows are read
                    self.invalid = add_up(self.rows, sums)
            try:
                return self._memory.answer(message, request, draft)
            except _GoneOn:  # the state that was found instead was seen now
                continue

    def _sums(self, now: Now, body: payloads.RoundRequest) -> list[SiteSum]:
        """What a round asks for, if the plan has it; no rows are read yet."""
        step = now.message.step
        planned = validation.check_turn(self.terms, self.name, step, body, now.state)
        return wanted_sums(self.terms, now.message, planned, self.rows.features, self.name)

    def _hidden(
        self, now: Now, body: payloads.RoundRequest, sums: Sequence[SiteSum]
    ) -> tuple[bytes, bytes]:
        """A round's answer, its noise drawn and its masks added, and the state after it."""
        message, terms, round_number = now.message, self.terms, body.round_number
        state = self._agreed(now, body)
        arrays = noisy_arrays(sums, terms, self._source)
        hidden = [index for index, each in enumerate(sums) if not each.is_unmasked]
        parts = [terms.masks.part(sums[i].accumulator.layout, sums[i].record) for i in hidden]
        request_digest = message.fingerprint
        if parts:
            client = self._client(replace(now, state=state))
            mask = client.mask(round_number, request_digest, parts, message)
            for index, part in zip(hidden, split(mask, parts), strict=True):
                arrays[f"sum {index}"] += part
        reply = Message(message.step, self.terms.hash, message.session, self.name, {}, arrays)
        after = {"round_number": round_number, "request_digest": request_digest, "survivors": ""}
        return encode(reply), self._memory.kept(message, state.model_copy(update=after))

    def _agreed(self, now: Now, body: payloads.RoundRequest) -> State:
        """The state in which a round is answered: the first brings what masks are made with."""
        if body.round_number > 1:
            return now.state
        if body.members is not None:
            count = len(members_of(self.terms.names, body.members))
            update = {"members": body.members, "fewest": min(now.state.fewest, count)}
            return now.state.model_copy(update=update)
        joined = members_of(self.terms.names, now.state.joined)
        senders = self.terms.partners(self.name, joined)
        if senders and self.terms.masks.between_sites:
            return self._opened(now, senders)
        return now.state

    def _survivors(self, message: Message, request: bytes) -> bytes:
        """Sign one set of survivors a round: the ledger refuses a second, different question."""
        body = message.read(payloads.SurvivorsRequest)

        def draft(now: Now) -> Draft:
            validation.check_survivors(self.terms, self.name, message.step, body, now.state)
            if self._identity is None:
                raise ProtocolError("no-identity")
            signature = self._identity.sign(self._client(now).text(body.survivors)).hex()
            count = len(members_of(self.terms.names, body.survivors))
            after = {"survivors": body.survivors, "fewest": min(now.state.fewest, count)}
            reply = payloads.SurvivorsReply(signature=signature)
            return self._draft(now, reply, now.state.model_copy(update=after))

        return self._memory.answer(message, request, draft)

    def _unmask(self, message: Message, request: bytes) -> bytes:
        """Help to unmask, for the set of sites that this site and enough others have signed."""
        body = message.read(payloads.UnmaskRequest)

        def draft(now: Now) -> Draft:
            state, client = now.state, self._client(now)
            signed = validation.check_unmask(self.terms, message.step, body, message, state)
            said, needed = client.said(state.survivors), self.study.signatures
            check_signatures(said, *signed, self._verify, needed)
            survivors = set(members_of(self.terms.names, state.survivors))
            mates, turn = {self.name, *client.near}, body.round_number
            reply = payloads.UnmaskReply(
                own={n: client.revealed(n, turn, own=True) for n in sorted(mates & survivors)},
                repair={n: client.revealed(n, turn, own=False) for n in sorted(mates - survivors)},
            )
            return self._draft(now, reply)

        return self._memory.answer(message, request, draft)

    def _verify(self, text: bytes, signature: bytes, name: str) -> None:
        if self._identity is None:
            raise ProtocolError("no-identity")
        self._identity.verify(text, signature, role="site", name=name)

    def _end(self, message: Message, request: bytes) -> bytes:
        """Sign the certificate, if it fits what this site knows; the session is over either way."""
        body = message.read(payloads.EndRequest)

        def draft(now: Now) -> Draft:
            reply = payloads.EndReply(signature=self._signature(now, body.certificate))
            return replace(self._draft(now, reply), ends=body.outcome)

        try:
            return self._memory.answer(message, request, draft)
        except ProtocolError as error:
            if error.code == "unknown-session":  # it never began here: there is nothing to end
                return self._reply(message, payloads.EndReply())
            if error.code in ("other-certificate", "no-identity"):
                self.ledger.end(self._memory.key(message), body.outcome)
            raise
        finally:
            self._memory.seen = None

    def _signature(self, now: Now, certificate: Certificate | None) -> str | None:
        if certificate is None:
            return None
        if self._identity is None:
            raise ProtocolError("no-identity")
        assert now.session is not None
        part = SitePart(
            terms=self.terms,
            weight=self.terms.weight(self.name),
            releases=now.session.releases(),
            most=now.state.fewest,
            secure=self._source.secure,
            dependent=dependence(),
            newlines_in_cells=self.rows.newlines_in_cells,
        )
        check_part(certificate, part)
        made = own_signature(self._identity, certificate, now.message.session, aggregator=False)
        return made.signature

    # -- who is who

    @property
    def _listed(self) -> str:
        """The digest of the list of members."""
        return "" if self._identity is None else self._identity.members.digest

    def _public_keys(self, now: Now) -> payloads.PublicKeys:
        """The site's own; they follow from the session's master secret, which never changes."""
        client = self._client(now)
        keys = payloads.PublicKeys(sealing=client.keys.sealing.public.hex())
        if self._identity is None:
            return keys
        return self._identity.signed(keys, client.context, self.name)

    # -- answers

    def _draft(
        self,
        now: Now,
        body: BaseModel,
        state: State | None = None,
        arrays: Mapping[str, NDArray[np.uint8]] | None = None,
    ) -> Draft:
        """An answer without sums, which releases nothing."""
        reply = self._reply(now.message, body, arrays)
        return Draft(
            lambda: (reply, None if state is None else self._memory.kept(now.message, state))
        )

    def _client(self, now: Now) -> SecaggClient:
        return SecaggClient(
            name=self.name, state=now.state, terms=self.terms, session=now.message.session
        )

    def _reply(
        self,
        message: Message,
        body: BaseModel,
        arrays: Mapping[str, NDArray[np.uint8]] | None = None,
    ) -> bytes:
        fields, study = body.model_dump(mode="json"), self.terms.hash
        return encode(
            Message(message.step, study, message.session, self.name, fields, arrays or {})
        )


class _GoneOn(Exception):
    """The session's state is not the one that an answer was prepared for."""


def _public_text(error: EigenveilError) -> tuple[str, str]:
    """Code and sentence for the aggregator: nothing that depends on rows or on the budget."""
    match error:
        case ProtocolError():
            return error.code, error.message
        case BudgetExceeded():
            return "budget", "its budget does not cover this study"
        case PrivacyError():
            return "privacy", "it cannot give the requested guarantee"
        case DataError():
            return "data", f"its rows cannot be used as they are; {_OWN_LOG}"
        case _:
            return "problem", f"it cannot answer; {_OWN_LOG}"
