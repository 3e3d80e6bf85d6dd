"""The trusted noise helper of CAPE: it draws masks that add up to zero and sees nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.masks import Part, ZeroSum, mask_use
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import (
    AGGREGATOR,
    HELPER,
    LETTERS,
    REFUSED,
    Message,
    decode,
    encode,
    expect,
)
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.secagg.client import pair_letter_bytes
from eigenveil.federation.secagg.keys import Context, SiteKeys, derive, lock
from eigenveil.files import replacing, sync_folder
from eigenveil.models.shapes import sizes_of
from eigenveil.noise.source import process
from eigenveil.privacy.statistics import STATISTICS, tensor_size

# Sessions that are remembered; the oldest is forgotten, and with it what its masks were made from.
_MOST_SESSIONS = 16
_LARGEST_REQUEST = 1 << 24


class _Fixed(BaseModel):
    """What was fixed by the first request: nothing is drawn or sealed in two ways."""

    model_config = ConfigDict(extra="forbid")

    master: payloads.Key
    listed: str  # The digest of the list of members when it began
    sites: dict[str, str] = {}  # Of each site, the digest of its key and its letter
    letters: dict[str, str] = {}  # To each site
    rounds: dict[int, payloads.MasksRequest] = {}


class _Memory(BaseModel):
    """What a file keeps of the sessions."""

    study: str
    sessions: dict[str, _Fixed]


class Helper:
    """Answers requests for masks, each sealed for its site alone.

    A round's masks are fixed by the helper's secret of the session: a repeated request gets the
    same.
    """

    def __init__(
        self, terms: Terms, *, identity: Identity | None = None, memory: Path | None = None
    ) -> None:
        self._terms, self._identity, self._memory = terms, identity, memory
        self._hash, self._sites = terms.hash, terms.names
        self._sessions: dict[str, _Fixed] = self._remembered()
        self._last: tuple[tuple[bytes, int], ZeroSum] | None = None
        self._process = process()

    def handle(self, request: bytes) -> bytes:
        """The answer to a message from the aggregator; never raises a package error."""
        session = ""
        if self._process != process():  # parent and fork could draw one round's masks in two ways
            self._sessions, self._last, self._process = {}, None, process()
            self._memory = None
        try:
            message = decode(request, sender=AGGREGATOR, limit=_LARGEST_REQUEST)
            session = message.session
            expect(message, step=message.step, study=self._hash, session=session)
            if message.step == "join":
                return self._join(message)
            if message.step.startswith("masks "):
                return self._masks(message)
            raise ProtocolError("unknown-step", step=message.step[:40])
        except EigenveilError as error:
            body = payloads.Refusal(code=error.code, text=error.message[:500])
            return encode(Message(REFUSED, self._hash, session, HELPER, body.fields()))

    def _join(self, message: Message) -> bytes:
        message.read(payloads.JoinRequest)
        listed = "" if self._identity is None else self._identity.members.digest
        new = _Fixed(master=SiteKeys.new_master().hex(), listed=listed)
        self._sessions.setdefault(message.session, new)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._remember()
        session = self._session(message)
        sealing = self._keys(message, session).sealing.public.hex()
        keys = payloads.PublicKeys(sealing=sealing)
        if self._identity is not None:
            keys = self._identity.signed(keys, self._context(message, session), HELPER)
        return self._reply(message, payloads.HelperKey(keys=keys))

    def _masks(self, message: Message) -> bytes:
        body, session = message.read(payloads.MasksRequest), self._session(message)
        self._check(message, body)
        context, names = self._context(message, session), tuple(body.sites)
        if self._identity is not None:  # masks are for the sites, not for who passes keys on
            for name, each in body.sites.items():
                self._identity.check(each.proved(), each.proof, context, name)
        shape = len(names), pair_letter_bytes(self._terms)
        table = message.array(LETTERS, dtype="b1", shape=shape)
        letters = {name: row.tobytes() for name, row in zip(names, table, strict=True)}
        keys = self._keys(message, session)
        self._fix(session, body, letters, keys)
        zero_sum = self._zero_sum(message, session, body)
        arrays = {}
        for name, letter in letters.items():
            text = zero_sum.mask(self._sites.index(name)).astype("<u8").tobytes()
            half, _ = keys.opened(letter, names=(name, HELPER))
            pair = keys.pair(name, half, own=HELPER)
            locked = lock(pair, text, context, *mask_use(body.round_number, body.request_digest))
            sealed = bytes.fromhex(session.letters[name]) + locked
            arrays[name] = np.frombuffer(sealed, dtype=np.uint8)
        return self._reply(message, payloads.Done(), arrays)

    def _check(self, message: Message, body: payloads.MasksRequest) -> None:
        """Masks that can be drawn, of sums that this study can have, for its sites."""
        right = (
            message.step == f"masks {body.round_number}"
            and set(body.sites) <= set(self._sites)
            and all(self._fits(part) for part in body.parts)
        )
        if not right:
            raise ProtocolError("bad-query", what="masks that fit no round")

    def _fits(self, part: payloads.PartBody) -> bool:
        """Whether a sum of this study can have such a part."""
        width = self._terms.plan.features
        match part.layout:
            case "symmetric":
                return any(
                    part.size in sizes_of(self._terms.plan, planned, count=False)
                    for planned in self._terms.plan.schedule
                    if STATISTICS[planned.statistic].layout == "symmetric"
                )
            case "tensor":
                most = self._terms.plan.rank
                return part.size in (tensor_size(rows) for rows in range(1, most + 1))
            case _:
                return part.size <= width**2 + 1024

    def _fix(
        self,
        session: _Fixed,
        body: payloads.MasksRequest,
        letters: Mapping[str, bytes],
        keys: SiteKeys,
    ) -> None:
        """Refuse what is not as it was before; a site is written one letter a session."""
        sites = {
            name: hashlib.sha256(body.sites[name].raw + letter).hexdigest()
            for name, letter in letters.items()
        }
        before = {name: session.sites.get(name, sites[name]) for name in sites}
        whole = body.model_copy(update={"sites": {}})
        if sites != before or session.rounds.setdefault(body.round_number, whole) != whole:
            raise ProtocolError("masks-are-fixed")
        session.sites.update(sites)
        for name in sites.keys() - session.letters.keys():
            made = keys.letter(b"", key=body.sites[name].raw, names=(HELPER, name))
            session.letters[name] = made.hex()
        self._remember()

    def _remember(self) -> None:
        """Have what is fixed on the disk, before anything that follows from it leaves."""
        if self._memory is None:
            return
        memory = _Memory(study=self._hash, sessions=self._sessions)
        with replacing(self._memory) as scratch, scratch.open("w", encoding="utf-8") as file:
            file.write(memory.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._memory.parent)  # the new file's name as well

    def _remembered(self) -> dict[str, _Fixed]:
        """What was fixed before; nothing where the file is of another study, or none."""
        if self._memory is None:
            return {}
        try:
            found = _Memory.model_validate_json(self._memory.read_bytes())
        except (OSError, ValueError):
            return {}
        return found.sessions if found.study == self._hash else {}

    def _zero_sum(self, message: Message, session: _Fixed, body: payloads.MasksRequest) -> ZeroSum:
        master = bytes.fromhex(session.master)
        which = (master, body.round_number)
        if self._last is None or self._last[0] != which:
            context = self._context(message, session)
            made = [
                derive(master, context, "zero-sum", body.round_number, name) for name in self._sites
            ]
            parts = [Part(part.size, part.deviation, layout=part.layout) for part in body.parts]
            try:
                self._last = (which, ZeroSum(made, parts))
            except ValueError:  # outside what the sampler can draw
                raise ProtocolError("bad-query", what="masks that cannot be drawn") from None
        return self._last[1]

    def _session(self, message: Message) -> _Fixed:
        try:
            return self._sessions[message.session]
        except KeyError:
            raise ProtocolError("session-of-no-helper") from None

    def _keys(self, message: Message, session: _Fixed) -> SiteKeys:
        return SiteKeys(bytes.fromhex(session.master), self._context(message, session))

    def _context(self, message: Message, session: _Fixed) -> Context:
        return Context(self._hash, message.session, session.listed)

    def _reply(
        self,
        message: Message,
        body: payloads.HelperKey | payloads.Done,
        arrays: Mapping[str, NDArray[np.uint8]] | None = None,
    ) -> bytes:
        fields = body.fields()
        return encode(
            Message(message.step, self._hash, message.session, HELPER, fields, arrays or {})
        )
