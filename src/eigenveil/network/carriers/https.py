"""A member's mailbox over HTTPS: members only call out, through the proxy that is set, if any.

The server is shown who asks: it gives a challenge, the member signs it with its key of the
federation's list, and is given a session. Nothing that comes is believed: envelopes are sealed.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx  # of the extra "sites"; who opens mailboxes says so
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from eigenveil.errors import DataError, ProtocolError, first_line
from eigenveil.federation.members import Identity
from eigenveil.files import replacing
from eigenveil.network.folder import PartyFolder, identity_of
from eigenveil.network.mailbox import LARGEST, CarrierError, check_recipient, digest_of

# -- TLS of a mailbox server: its certificate, and clients that pin it.

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""In the aggregator's folder: what its server shows."""
PIN = "sha256="


def make_tls(folder: Path, host: str) -> str:
    """Make the server's own certificate; what stands behind ``#`` in the address that pins it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    try:
        other: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        other = x509.DNSName(host)
    made = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - datetime.timedelta(days=1))
        .not_valid_after(made + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([other]), critical=False)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, content in ((KEY, private), (CERTIFICATE, certificate.public_bytes(Encoding.PEM))):
        with replacing(folder / file) as scratch:
            scratch.write_bytes(content)
    return PIN + certificate.fingerprint(SHA256()).hex()


class OtherPin(ssl.SSLError):
    pass


class _Pinned(ssl.SSLContext):
    """Takes the one certificate whose digest is known, and asks no authority."""

    pin = ""

    def check(self, shown: bytes | None) -> None:
        if shown is None or hashlib.sha256(shown).hexdigest() != self.pin:
            raise OtherPin("other certificate")


class _PinnedSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        if isinstance(self.context, _Pinned):
            self.context.check(self.getpeercert(True))


class _PinnedObject(ssl.SSLObject):  # in the TLS of a proxy
    def do_handshake(self) -> None:
        super().do_handshake()
        if isinstance(self.context, _Pinned):
            self.context.check(self.getpeercert(True))


@lru_cache(maxsize=16)
def client_context(ca: str, pin: str) -> ssl.SSLContext:
    if pin:
        context: ssl.SSLContext = _Pinned(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.sslsocket_class, context.sslobject_class = _PinnedSocket, _PinnedObject
        context.pin = pin  # type: ignore[attr-defined]
    else:
        try:
            context = ssl.create_default_context(cafile=ca or None)
        except (OSError, ssl.SSLError) as problem:
            raise DataError(
                "bad-authorities",
                path=ca,
                reason=first_line(problem.strerror or problem, empty="unreadable"),
            ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as problem:
        raise DataError(
            "bad-tls-certificate",
            certificate=certificate,
            key=key.name,
            reason=first_line(problem.strerror or problem, empty="unreadable"),
        ) from None
    return context


KIND = "application/x-eigenveil"
LONGEST_POLL = 25.0
_MOST = LARGEST + (64 << 20)  # bytes of one answer
_DOMAIN = b"eigenveil mailbox session 1\0"
_RENEWED = 3000.0  # seconds; the server's sessions last an hour
_TRIES = 3


class HttpsCarrier:
    """Mailboxes that the aggregator serves."""

    scheme = "https"

    def open(self, party: PartyFolder, address: str) -> HttpsMailbox:
        """The mailbox of a party, at ``https://host:port``, perhaps with ``#sha256=...``."""
        return HttpsMailbox(identity_of(party), address, ca=party.ca)


class HttpsMailbox:
    """One member's mail on a server; several threads may use it."""

    def __init__(self, identity: Identity, address: str, *, ca: str = "") -> None:
        self._identity = identity
        self._url, pin = parse(address)
        context = client_context("" if pin else ca or os.environ.get("SSL_CERT_FILE", ""), pin)
        try:
            self._client = httpx.Client(
                verify=context,
                headers={"accept-encoding": "identity", "user-agent": "eigenveil"},
                limits=httpx.Limits(keepalive_expiry=60.0),
            )
        except (ImportError, ValueError, httpx.InvalidURL) as problem:  # of a proxy
            raise _bad_proxy(self._url, problem) from None
        self._guard = threading.Lock()
        self._token, self._until, self._largest = "", 0.0, 0
        self._forgotten: set[str] = set()
        self._sockets: list[socket.socket] = []
        self._closed = False

    def put(self, recipient: str, envelope: bytes) -> None:
        self._session()
        if len(envelope) > self._largest:
            raise _refused(self._url, "too-large")
        self._ask("PUT", f"/mail/{quote(check_recipient(recipient), safe='')}", envelope)

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        until = time.monotonic() + wait
        while True:
            left = max(0.0, min(until - time.monotonic(), LONGEST_POLL))
            with self._guard:
                forgotten, self._forgotten = self._forgotten, set()
            told = f"{' '.join(forgotten)}\n{' '.join({*known} - forgotten)}".encode()
            try:
                data = self._ask("POST", f"/take?wait={left:.3f}", told, wait=left)
            except ProtocolError:
                with self._guard:
                    self._forgotten |= forgotten
                if self._closed:
                    return []
                raise
            found = [each for each in _mail(data, self._url) if digest_of(each) not in known]
            if found or time.monotonic() >= until:
                return found

    def forget(self, digests: Collection[str]) -> None:
        """Throw own mail away, with the next request."""
        with self._guard:
            self._forgotten.update(digests)

    def close(self) -> None:
        """Forget what is to be forgotten, and hang up."""
        if self._forgotten:
            with contextlib.suppress(ProtocolError):  # it comes again, and is known
                self._ask("POST", "/take?wait=0", f"{' '.join(self._forgotten)}\n".encode(), most=0)
        self._closed = True
        for found in self._sockets:  # who waits is woken
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def _connected(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("start_tls.complete"):
            there = [each for each in self._sockets if each.fileno() >= 0]
            self._sockets = [*there, info["return_value"].get_extra_info("socket")]

    def _session(self) -> str:
        with self._guard:
            if time.monotonic() < self._until:
                return self._token
            found = self._identity
            challenge = self._answer("GET", "/challenge", b"").decode("latin-1")
            text = what_is_signed(found.members.federation, found.name, challenge)
            name = found.name.encode().hex()
            words = (found.members.federation, name, challenge, found.sign(text).hex())
            answer = self._answer("POST", "/session", "\n".join(words).encode("latin-1", "replace"))
            token, _, most = answer.decode("latin-1").partition("\n")
            if not most.isdecimal() or not token.isprintable():
                raise _no_mailbox(self._url, "a session that is none")
            self._token, self._largest = token, int(most[:20])
            self._until = time.monotonic() + _RENEWED
            return token

    def _ask(self, method: str, path: str, content: bytes, **rest: Any) -> bytes:
        for last in (False, True):
            token = self._session()
            try:
                return self._answer(method, path, content, token=token, **rest)
            except ProtocolError as problem:
                if problem.code != "no-session" or last:
                    raise
                with self._guard:
                    if self._token == token:
                        self._until = 0.0
        raise AssertionError

    def _answer(
        self,
        method: str,
        path: str,
        content: bytes,
        *,
        token: str = "",
        wait: float = 0.0,
        most: int = _MOST,
    ) -> bytes:
        """An answer's body; tried again where a connection broke, as all requests may be."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        for tries in range(1, _TRIES + 1):
            try:
                with self._client.stream(
                    method,
                    f"{self._url}{path}",
                    content=content,
                    headers=headers,
                    extensions={"trace": self._connected},
                    timeout=httpx.Timeout(30.0 + wait, connect=10.0, write=60.0),
                ) as answer:
                    return _body(answer, self._url, most if token else 1024)
            except httpx.HTTPError as problem:
                error, again = _named(problem, self._url)
                if not again or tries == _TRIES or self._closed:
                    raise error from None
            except RuntimeError as problem:
                if isinstance(problem, CarrierError) or not self._client.is_closed:
                    raise
                raise _unreachable(self._url, "it was closed here") from None
            time.sleep(random.uniform(0.1, 0.3) * tries)
        raise AssertionError


def what_is_signed(federation: str, name: str, challenge: str) -> bytes:
    return _DOMAIN + b"\0".join(each.encode() for each in (federation, name, challenge))


def parse(address: str) -> tuple[str, str]:
    """URL and pinned certificate of an address; of one that is none, an error."""
    found = urlsplit(address)
    pin = found.fragment.removeprefix(PIN)
    with contextlib.suppress(ValueError):  # of the port
        if (
            found.scheme == "https"
            and found.hostname
            and found.port != 0
            and (not found.fragment or (found.fragment != pin and len(bytes.fromhex(pin)) == 32))
            and not (found.query or found.username or found.password)
        ):
            return f"https://{found.netloc}{found.path.rstrip('/')}", pin.lower()
    raise DataError("bad-mailbox-address", address=address)


# -- What came.


def _mail(data: bytes, url: str) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "big")
        if end > len(data):
            raise _no_mailbox(url, "mail that is cut off")
        yield data[at + 8 : end]
        at = end


def _body(answer: httpx.Response, url: str, most: int) -> bytes:
    if answer.headers.get("content-type", "").partition(";")[0] != KIND:
        kind = answer.headers.get("content-type", "nothing").partition(";")[0]
        raise _no_mailbox(url, f"status {answer.status_code} and {kind}")
    good = answer.status_code in (200, 204)
    data = bytearray()
    for piece in answer.iter_raw():
        data += piece
        if len(data) > (most if good else 1024):
            raise _no_mailbox(url, "more than may come")
    if not good:
        raise _refused(url, bytes(data).decode("latin-1"))
    return bytes(data)


_REASONS = {
    "no-session": ("the session is over", "Try again."),
    "not-a-member": (
        "its list of members does not have this name",
        "Give the aggregator the registrar's newest list, or ask to be admitted.",
    ),
    "revoked-party": ("this party, or the one it writes to, was revoked", "Ask the registrar."),
    "expired-list": ("its list of members expired", "Give the aggregator the newest list."),
    "wrong-federation": ("it serves another federation", "Check the address."),
    "bad-identity": (
        "its list of members has another key for this name",
        "Give the aggregator the registrar's newest list.",
    ),
    "mailbox-full": (
        "too much of this party's mail lies there",
        "Start those who are to take it, and try again.",
    ),
    "cannot-write": ("it cannot write on its disk", "Ask its operator to make room."),
    "no-answer": ("the request came too slowly", "Check the network; it is tried again."),
    "too-large": ("the envelope is too large", "Ask its operator which size it takes."),
    "malformed": ("it does not understand the request", "Use the same version at both."),
}


def _refused(url: str, code: str) -> CarrierError:
    if code not in _REASONS:
        return _no_mailbox(url, "a refusal that is none")
    why, hint = _REASONS[code]
    return CarrierError.relayed(f"The mailbox {url} refuses: {why}.", hint=hint, code=code)


def _no_mailbox(url: str, shown: str) -> CarrierError:
    return CarrierError("not-a-mailbox", url=url, reason=first_line(shown, empty="nothing"))


def _unreachable(url: str, why: object) -> CarrierError:
    return CarrierError(
        "no-mailbox", mailbox=f"The mailbox {url}", reason=first_line(why, empty="no answer")
    )


def _bad_proxy(url: str, problem: Exception) -> CarrierError:
    return CarrierError("proxy-refused", url=url, reason=first_line(problem, empty="no reason"))


def _named(problem: httpx.HTTPError, url: str) -> tuple[CarrierError, bool]:
    """What a failed request means, and whether to try it again at once."""
    causes: list[BaseException] = [problem]
    while (deeper := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(deeper)
    if isinstance(problem, httpx.ProxyError):
        return _bad_proxy(url, problem), False
    for cause in causes:
        if isinstance(cause, OtherPin):
            return CarrierError("other-pin", url=url), False
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = first_line(cause.verify_message, empty="it is not trusted")
            return CarrierError("bad-tls", url=url, why=why), False
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
        ):
            return _no_mailbox(url, f"no TLS ({cause.reason or 'handshake failed'})"), False
    why = "no answer in time" if isinstance(problem, httpx.TimeoutException) else str(problem)
    return _unreachable(url, why), not isinstance(problem, httpx.TimeoutException)
