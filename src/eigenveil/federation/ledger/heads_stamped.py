"""A ledger's heads with timestamps of an authority (RFC 3161): this head existed at that time.

The authority signs the hash of an entry together with the time and keeps nothing, so the signed
tokens are kept here, in a file. Whoever can write that file can take lines away, but not put others
in their place: a chain that is written anew has stamps of the day on which that was done.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from cryptography import x509

from eigenveil.errors import DataError, OutputError, printable
from eigenveil.federation.ledger.heads import HeadsFile, Noted
from eigenveil.federation.ledger.tables import Head

if TYPE_CHECKING:
    from datetime import datetime

_MOST = 2**15  # bytes of an answer; its line stays below what HeadsFile reads at once
_SECONDS = 10.0
_TRIES = 2
_PAUSE = 1.0
_ASKING = {"Content-Type": "application/timestamp-query"}


class NotItsTimestamp(ValueError):
    """What is wrong with a token, as a clause."""


class Authority:
    """A timestamp authority: its certificates, and its address."""

    def __init__(self, certificates: str | os.PathLike[str], url: str = "") -> None:
        try:
            import rfc3161_client
        except ImportError:
            raise OutputError(
                "Timestamps need the library rfc3161-client, which is not installed.",
                hint="pip install 'eigenveil[timestamps]'",
                code="no-timestamps",
            ) from None
        self._tsp: Any = rfc3161_client
        self._roots, self._between = _certificates(Path(certificates))
        self._url, self.name = url, _checked_name(url) if url else ""

    def stamp(self, head: Head) -> bytes:
        """A token for a head, checked."""
        sha256 = self._tsp.HashAlgorithm.SHA256
        asked = (
            self._tsp.TimestampRequestBuilder().data(head.hash.encode()).hash_algorithm(sha256)
        ).build()
        token = self._sent(asked.as_bytes())
        try:
            self.check(token, head, nonce=asked.nonce)
        except NotItsTimestamp as error:
            raise self._failed(f"gave no timestamp that holds: {error}") from error
        return token

    def check(self, token: bytes, head: Head, *, nonce: int | None = None) -> datetime:
        """When the authority saw the head."""
        try:
            response = self._tsp.decode_timestamp_response(token)
            if response.status:
                said = printable("; ".join(response.status_string), most=200)
                raise NotItsTimestamp(f"the authority refused{f' ({said})' if said else ''}")
            info = response.tst_info
            imprint, stamped = info.message_imprint.message, info.gen_time
        except ValueError as error:
            if isinstance(error, NotItsTimestamp):
                raise
            raise NotItsTimestamp("it cannot be read") from None
        if imprint != hashlib.sha256(head.hash.encode()).digest():
            raise NotItsTimestamp("it is about something else than this head")
        verifier = self._tsp.VerifierBuilder(
            roots=self._roots, intermediates=self._between, nonce=nonce
        ).build()
        try:
            verifier.verify_message(response, head.hash.encode())
        except (ValueError, self._tsp.VerificationError) as error:
            raise NotItsTimestamp(
                "the authority whose certificate was given did not sign it as a timestamp"
            ) from error
        return cast("datetime", stamped)

    def _sent(self, asked: bytes) -> bytes:
        """The answer; a moment's problem of the network is tried again."""
        request = urllib.request.Request(self._url, asked, _ASKING)
        for left in reversed(range(_TRIES)):
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                    found: bytes = answer.read(_MOST + 1)
            except (OSError, ValueError, http.client.HTTPException) as error:
                if not left:
                    raise self._failed(f"cannot be reached: {_why(error)}") from None
                time.sleep(_PAUSE)
                continue
            if len(found) > _MOST:
                raise self._failed("gave no timestamp, but something longer")
            return found
        raise AssertionError("unreachable")

    def _failed(self, why: str) -> OutputError:
        return OutputError(
            f"The timestamp authority {self.name} {why}.",
            hint="Check --timestamps, --authority and the network. What was charged stays; its "
            "answer waits until it is requested again and its head is stamped.",
            code="no-timestamp",
        )


class StampedHeads(HeadsFile):
    """A file of heads, each with a token (base64) of an authority as ``timestamp``."""

    keys = HeadsFile.keys | {"timestamp"}

    def __init__(self, place: str | os.PathLike[str], authority: Authority) -> None:
        super().__init__(place)
        self._authority = authority

    def _fields(self, head: Head) -> dict[str, Any]:
        token = base64.b64encode(self._authority.stamp(head)).decode()
        return {**super()._fields(head), "timestamp": token}

    def _noted(self, found: Mapping[str, Any]) -> Noted:
        head = self._head(found)
        try:
            stamped = self._authority.check(_decoded(found["timestamp"]), head)
        except NotItsTimestamp as error:
            raise DataError(
                f"{self._path}: the timestamp of entry {head.count} does not hold: {error}.",
                hint="It was changed, is of another ledger, or of another authority than "
                "--authority names.",
                code="timestamp-wrong",
            ) from error
        return Noted(head.count, head.hash, stamped)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise NotItsTimestamp("it cannot be read") from None


def _certificates(path: Path) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """Roots and others of a PEM file."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise OutputError(
            f"{path}: {error.strerror or error}.",
            hint="Give a PEM file with the timestamp authority's certificates.",
            code="cannot-read",
        ) from None
    except ValueError:
        found = []
    roots = [each for each in found if each.subject == each.issuer]
    if not roots:
        raise DataError(
            f"{path}: no root certificate (one that is signed by itself) is in it.",
            hint="Give a PEM file with the timestamp authority's certificates, its root included.",
            code="bad-certificate",
        )
    return roots, [each for each in found if each not in roots]


def _checked_name(url: str) -> str:
    """The URL as it can be shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise OutputError(
            "The timestamp authority's address is not a URL.",
            hint="Give its URL, such as https://host/path, without user and password.",
            code="bad-url",
        )
    return printable(f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}")


def _why(error: Exception) -> str:
    """The network's error, as a clause."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers with status {error.code}"
    reason = getattr(error, "reason", error)
    return printable(getattr(reason, "strerror", None) or str(reason) or type(error).__name__)
