"""The role of a site: it answers messages about its own rows and records every answer.

Between two messages nothing is held in memory that matters: keys, state and answers are in the
ledger, so a site that is killed and started again goes on where it was. An answer is one
transaction: the state that it follows from is read in it, and answer and charge are stored before
the answer is returned; a repeated request gets the same bytes. Only rows are read before it, for
the state that this process saw last, and if another one has gone on since, again. What is
asked is checked against the study: a site runs its own software only, works out sensitivities
itself (docs/proofs/views.md, claim 9: of every query that it accepts), and never spends more than
the study's target, whoever sends the query. Nothing about its
rows decides whether it answers. (Files that cannot be read do so at any time.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel

from eigenveil.errors import BudgetExceeded, DataError, EigenveilError, PrivacyError, ProtocolError
from eigenveil.federation.ledger.entries import UNIT
from eigenveil.federation.ledger.ledger import Draft, Ledger, Session, SessionKey
from eigenveil.federation.protocol import payloads, validation
from eigenveil.federation.protocol.certificates import Part, check_part, own_signature
from eigenveil.federation.protocol.messages import (
    AGGREGATOR,
    HELPER,
    REFUSED,
    Message,
    decode,
    encode,
    expect,
    fingerprint,
)
from eigenveil.federation.protocol.site_sums import SiteSum, add_up, noisy_arrays, wanted_sum
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.secagg import masks
from eigenveil.federation.secagg.client import SecaggClient, State
from eigenveil.federation.secagg.consistency import bitmap, check_signatures, members_of
from eigenveil.federation.secagg.keys import Context, SiteKeys
from eigenveil.federation.x509_identity import Identity
from eigenveil.models.driver import rows_for
from eigenveil.models.inputs import check_names, first_difference
from eigenveil.models.plan import BasePlan
from eigenveil.models.task import TASKS
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import RowSource, newlines_in_cells
from eigenveil.noise.source import RandomSource, SecureSource
from eigenveil.origins import FileOrigin
from eigenveil.tables.schema import Schema

# Steps of which there is one a round; any other step is answered once.
_EVERY_ROUND = ("round", "survivors", "unmask")
# Of a request, beside its arrays.
_SMALL = 1 << 22
_OWN_LOG = "its owner finds the reason in the site's own log"


class Site:
    """One site of a study.

    Parameters
    ----------
    name : str
        Its name in the study.
    terms : Terms
        Of the study as the site's owner agreed to it.
    rows : RowSource
        Its rows, with the study's columns; of topics, word counts of documents.
    ledger : Ledger
        Its own; must hold an account of ``data_set`` that can count the study.
    data_set : str
        The rows' name in the ledger.
    source : RandomSource, optional
        Of its noise; operating-system entropy by default.
    identity : Identity, optional
        Signs its keys and the certificate; keys of other parties are then taken only with their
        signatures.

    Attributes
    ----------
    problem : EigenveilError or None
        Why a message was refused last, in full: for the owner's eyes.
    invalid : InvalidRows or None
        Rows that are not valid, as found when they were read last: for the owner's eyes.
    """

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
        self._settled, self._hash = terms, terms.hash
        self._seen: _Seen | None = None
        self._own: tuple[SessionKey, payloads.PublicKeys] | None = None
        self.last_error: EigenveilError | None = None
        self.invalid: InvalidRows | None = None
        own: Schema | None = getattr(rows, "schema", None)
        if own is not None and study.table_schema is not None:
            study.table_schema.check_same(own, f"site {name}")
        if rows.features != terms.width:
            raise DataError(
                f"site {name}: its rows have {rows.features} features, the study has "
                f"{terms.width}.",
                hint="Give the columns that the study names, in its order.",
                code="other-features",
            )
        check_names(
            FileOrigin(f"site {name}"),
            rows.names,
            of_words=TASKS[study.task].takes_documents,
        )
        if None not in (study.columns, rows.names) and study.columns != tuple(rows.names or ()):
            raise DataError(
                f"site {name}: its rows have other columns than the study: "
                f"{first_difference(rows.names or (), study.columns or ())}.",
                hint="Give the columns that the study names, in its order.",
                code="other-columns",
            )

    @property
    def plan(self) -> BasePlan:
        """What the sites do together."""
        return self._settled.plan

    def handle(self, request: bytes) -> bytes:
        """The answer to a message from the aggregator.

        Never raises a package error: the aggregator receives a code and a sentence that shows
        nothing about rows, the owner finds the whole in ``last_error``.
        """
        step, session = REFUSED, ""
        try:
            message = decode(request, sender=AGGREGATOR, limit=self._limit)
            session = message.session
            expect(message, step=message.step, study=self._hash, session=session)
            kind = message.step.partition(" ")[0]
            answer = self._answers().get(kind if kind in _EVERY_ROUND else message.step)
            if answer is None:
                raise ProtocolError(f"No such step: {message.step[:40]!r}.", code="unknown-step")
            return answer(message, request)
        except EigenveilError as error:
            self.last_error = error
            code, text = _public_text(error)
            refusal = payloads.Refusal(code=code, text=text[:500])
            return encode(Message(step, self._hash, session, self.name, refusal.fields()))

    def _answers(self) -> dict[str, Callable[[Message, bytes], bytes]]:
        return {
            "join": self._join,
            "keys": self._keys,
            "shares": self._shares,
            "round": self._round,
            "survivors": self._survivors,
            "unmask": self._unmask,
            "sign": self._sign,
            "finish": self._finish,
        }

    @cached_property
    def _limit(self) -> int:
        """Most bytes of a request: arrays of each sum, and the helper's masks of all."""
        plan = self._settled.plan
        arrays = payloads.MOST_QUERIES * plan.requested_values()
        return _SMALL + 8 * (arrays + plan.released_values())

    # -- the steps of a session, in order

    def _join(self, message: Message, request: bytes) -> bytes:
        message.read(payloads.JoinRequest)
        terms = self._settled
        if self.name not in terms.names:
            raise ProtocolError(f"{self.name} does not take part in this study.", code="not-a-site")
        key = SessionKey(self._hash, message.session)
        stored = self.ledger.begin(
            key,
            data_set=self.data_set,
            adjacency=self.study.adjacency,
            reserve=terms.reservation(self.name),
            replacing=terms.reservation(self.name, replacing=True),
            state=State(master=SiteKeys.new_master().hex()).stored(),
            unit=self.study.unit or UNIT,
            note=self.study.name,
        )
        now = _Now(message, terms, self._read(key, stored))
        reply = payloads.JoinReply(
            columns=None if self.rows.names is None else tuple(self.rows.names),
            features=self.rows.features,
            keys=self._signed(message, self._public_keys(now)),
            seeded=not self._source.secure,
            dependent=dependence(),
            newlines_in_cells=newlines_in_cells(self.rows),
        )
        return self._answer(message, request, lambda now: self._draft(now, reply))

    def _keys(self, message: Message, request: bytes) -> bytes:
        body = message.read(payloads.KeysRequest)

        def draft(now: _Now) -> Draft:
            terms = self._settled
            own = self._public_keys(now)
            joined = validation.check_neighbours(terms, self.name, own, body)
            signers: dict[str, bytes] = {}
            if terms.mends:
                known = {self.name: own, **body.neighbours}
                signers = validation.signing_keys(message, joined, known)
            self._check_identities(message, body, signers)
            members = bitmap(terms.names, joined)
            state = now.state.model_copy(
                update={
                    "joined": members,
                    "members": "" if terms.mends else members,
                    "signers": validation.signers_digest(signers),
                    "neighbours": {
                        name: keys.model_copy(update={"proof": None})
                        for name, keys in body.neighbours.items()
                    },
                    "helper": body.helper,
                    "ready": not terms.mends,
                    "fewest": len(joined),
                }
            )
            sealed: dict[str, str] = {}
            if terms.mends:
                sealed, kept = self._masking(_Now(message, terms, state)).shared_secrets()
                state = state.model_copy(update={"held": {self.name: kept}})
            return self._draft(now, payloads.KeysReply(sealed=sealed), state)

        return self._answer(message, request, draft)

    def _shares(self, message: Message, request: bytes) -> bytes:
        body = message.read(payloads.SharesRequest)

        def draft(now: _Now) -> Draft:
            state, names = now.state, now.terms.names
            validation.check_shared(now.terms, self.name, body, state)
            held = {**state.held, **self._masking(now).opened(body.sealed)}
            # who did not share could not be made up for later: no masks are made with it
            kept = {name: keys for name, keys in state.neighbours.items() if name in held}
            changed = state.model_copy(
                update={
                    "held": held,
                    "neighbours": kept,
                    "members": body.members,
                    "ready": True,
                    "fewest": min(state.fewest, len(members_of(names, body.members))),
                }
            )
            return self._draft(now, payloads.Done(), changed)

        return self._answer(message, request, draft)

    def _round(self, message: Message, request: bytes) -> bytes:
        body = message.read(payloads.RoundRequest)
        sums: list[SiteSum] = []
        request_digest: _Seen | None = None
        last_error: ProtocolError | None = None

        def draft(now: _Now) -> Draft:
            if self._seen != request_digest:  # what was just read in the ledger
                if (
                    now.state.round_number >= body.round_number
                ):  # answered, and not what is requested now: refused
                    validation.check_turn(now.terms, message.step, body, now.state)
                raise _GoneOn
            if last_error is not None:
                raise last_error
            return Draft(
                lambda: self._hidden(now, body.round_number, sums),
                charges=[each.record for each in sums],
                # those before it went when it was answered itself
                settles=[f"round {body.round_number - 1}"] if body.round_number > 1 else [],
            )

        while True:
            seen = self._last_seen(message)
            if seen.state.round_number < body.round_number:
                request_digest, last_error = seen, None
                now = _Now(message, self._settled, seen.state)
                try:
                    sums = self._sums(now, body)
                except ProtocolError as error:
                    last_error = error  # if the ledger agrees
                else:  # outside the transaction: others may write while rows are read
                    self.invalid = add_up(self.rows, sums)
            try:
                return self._answer(message, request, draft)
            except _GoneOn:  # the state that was found instead was seen now
                continue

    def _sums(self, now: _Now, body: payloads.RoundRequest) -> list[SiteSum]:
        """What a round asks for, if the plan has it; no rows are read yet."""
        if now.state.signed:
            raise ProtocolError(
                "A round came after the certificate, which would not list it, was signed.",
                code="out-of-order",
            )
        planned = validation.check_turn(now.terms, now.message.step, body, now.state)
        weight = now.terms.weight(self.name)
        return [
            wanted_sum(now.terms, self.rows, now.message, (index, query), each, weight=weight)
            for index, (query, each) in enumerate(zip(body.queries, planned, strict=True))
        ]

    def _hidden(self, now: _Now, round_number: int, sums: Sequence[SiteSum]) -> tuple[bytes, bytes]:
        """A round's answer, its noise drawn and its masks added, and the state after it."""
        message, terms = now.message, now.terms
        arrays = noisy_arrays(sums, terms, self._source)
        hidden = [index for index, each in enumerate(sums) if not each.is_unmasked]
        parts = [terms.part(sums[i].accumulator, sums[i].record) for i in hidden]
        request_digest = fingerprint(message)
        if parts:
            mask = self._masking(now).mask(round_number, request_digest, parts, message)
            for index, part in zip(hidden, masks.split(mask, parts), strict=True):
                arrays[f"sum {index}"] += part
        reply = Message(message.step, self._hash, message.session, self.name, {}, arrays)
        after = {"round_number": round_number, "request_digest": request_digest, "survivors": ""}
        return encode(reply), self._kept(message, now.state.model_copy(update=after))

    def _survivors(self, message: Message, request: bytes) -> bytes:
        """Sign one set of survivors a round: the ledger refuses a second, different question."""
        body = message.read(payloads.SurvivorsRequest)

        def draft(now: _Now) -> Draft:
            validation.check_survivors(now.terms, self.name, message.step, body, now.state)
            signature = self._masking(now).signature(body.survivors)
            count = len(members_of(now.terms.names, body.survivors))
            after = {"survivors": body.survivors, "fewest": min(now.state.fewest, count)}
            reply = payloads.SurvivorsReply(signature=signature)
            return self._draft(now, reply, now.state.model_copy(update=after))

        return self._answer(message, request, draft)

    def _unmask(self, message: Message, request: bytes) -> bytes:
        """Help to unmask, for the set of sites that this site and enough others have signed."""
        body = message.read(payloads.UnmaskRequest)

        def draft(now: _Now) -> Draft:
            state, masking = now.state, self._masking(now)
            signed = validation.check_unmask(now.terms, message.step, body, message, state)
            check_signatures(masking.said(state.survivors), *signed, self.study.signatures)
            survivors = set(members_of(now.terms.names, state.survivors))
            request_digest = {self.name, *state.neighbours}
            own, pair = sorted(request_digest & survivors), sorted(request_digest - survivors)
            reply = payloads.UnmaskReply(
                own={name: masking.revealed(name, body.round_number, own=True) for name in own},
                pair={name: masking.revealed(name, body.round_number, own=False) for name in pair},
            )
            return self._draft(now, reply)

        return self._answer(message, request, draft)

    def _sign(self, message: Message, request: bytes) -> bytes:
        """Sign one certificate a session, if it fits what this site knows; no round follows."""
        certificate = message.read(payloads.SignRequest).certificate
        identity = self._identity
        if identity is None:
            raise ProtocolError("It has no key to sign with.", code="no-identity")

        def draft(now: _Now) -> Draft:
            assert now.session is not None
            part = Part(
                terms=now.terms,
                weight=now.terms.weight(self.name),
                releases=now.session.releases(),
                most=now.state.fewest,
                secure=self._source.secure,
                dependent=dependence(),
                newlines_in_cells=newlines_in_cells(self.rows),
            )
            check_part(certificate, part)
            made = own_signature(identity, certificate, message.session, aggregator=False)
            proof = payloads.Proof(certificate=made.certificate, signature=made.signature)
            signed = now.state.model_copy(update={"signed": True})
            return self._draft(now, payloads.SignReply(proof=proof), signed)

        return self._answer(message, request, draft)

    def _finish(self, message: Message, request: bytes) -> bytes:
        del request
        body = message.read(payloads.FinishRequest)
        self._seen = None
        try:
            self.ledger.end(SessionKey(self._hash, message.session), body.outcome)
        except ProtocolError as error:
            if error.code != "unknown-session":  # it never began here: there is nothing to end
                raise
        return self._reply(message, payloads.Done())

    # -- who is who

    def _signed(self, message: Message, keys: payloads.PublicKeys) -> payloads.PublicKeys:
        if self._identity is None:
            return keys
        return self._identity.signed(keys, self._context(message), self.name)

    def _check_identities(
        self, message: Message, body: payloads.KeysRequest, signers: Mapping[str, bytes]
    ) -> None:
        """Keys are of the parties that the study names, and not of whoever passes them on."""
        if self._identity is None:
            return
        context = self._context(message)
        for name, keys in body.neighbours.items():
            self._identity.check(keys.proved(), keys.proof, context, name)
        for name in signers.keys() - {self.name, *body.neighbours}:
            shown = body.proofs.get(name)
            said = (signers[name].hex(), "" if shown is None else shown.digest)
            self._identity.check(said, None if shown is None else shown.proof, context, name)
        if body.helper is not None:
            self._identity.check((body.helper,), body.helper_proof, context, HELPER)

    def _context(self, message: Message) -> Context:
        return Context(self._hash, message.session)

    # -- what the ledger remembers

    def _answer(self, message: Message, request: bytes, draft: Callable[[_Now], Draft]) -> bytes:
        """The answer to a message, in one transaction of the ledger."""
        key = SessionKey(self._hash, message.session)

        def drafted(session: Session, stored: bytes) -> Draft:
            state = self._read(key, stored)
            return draft(_Now(message, self._settled, state, session))

        return self.ledger.commit(key, message.step, request=request, draft=drafted)

    def _last_seen(self, message: Message) -> _Seen:
        """A session as this process saw it last; another may have gone on since."""
        key = SessionKey(self._hash, message.session)
        if self._seen is None or self._seen.key != key:
            self._read(key, self.ledger.state(key))
        assert self._seen is not None
        return self._seen

    def _read(self, key: SessionKey, stored: bytes) -> State:
        state = State.model_validate_json(stored)
        self._seen = _Seen.of(key, stored, state)
        return state

    def _kept(self, message: Message, state: State) -> bytes:
        """A new state for the ledger; should it not get there, the next answer finds that out."""
        stored = state.stored()
        self._seen = _Seen.of(SessionKey(self._hash, message.session), stored, state)
        return stored

    def _draft(self, now: _Now, body: BaseModel, state: State | None = None) -> Draft:
        """An answer without numbers, which releases nothing."""
        reply = self._reply(now.message, body)
        return Draft(lambda: (reply, None if state is None else self._kept(now.message, state)))

    def _masking(self, now: _Now) -> SecaggClient:
        return SecaggClient(
            name=self.name,
            state=now.state,
            context=self._context(now.message),
            kind=now.terms.mask_kind,
            collusion=self.study.collusion,
            dropouts=self.study.dropouts,
        )

    def _public_keys(self, now: _Now) -> payloads.PublicKeys:
        """The site's own; they follow from the session's master secret, which never changes."""
        key = SessionKey(self._hash, now.message.session)
        if self._own is None or self._own[0] != key:
            self._own = key, self._masking(now).public_keys()
        return self._own[1]

    def _reply(self, message: Message, body: BaseModel) -> bytes:
        fields = body.model_dump(mode="json")
        return encode(Message(message.step, self._hash, message.session, self.name, fields))


@dataclass(frozen=True)
class _Now:
    """A message, and what the site knows of its session when it answers."""

    message: Message
    terms: Terms
    state: State
    session: Session | None = None


@dataclass(frozen=True)
class _Seen:
    """A session's state without its keys and shares, and the digest of all of it."""

    key: SessionKey
    digest: bytes
    state: State

    @classmethod
    def of(cls, key: SessionKey, stored: bytes, state: State) -> _Seen:
        public = state.model_copy(update={"master": "", "neighbours": {}, "held": {}})
        return cls(key, hashlib.sha256(stored).digest(), public)


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
