"""FLARE's TLS connections in this process: whose they are, and with what certificate made.

FLARE 2.9 checks a certificate when a connection is made, and never again; it has no list of who was
put out, and a listener keeps the certificate that it was started with. Here a connection whose
certificate was revoked, or whose party was removed, is closed, whatever comes over it, from the
moment that this party's list of members says so; and a renewed certificate is used for every new
connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import Any
from weakref import WeakSet

from cryptography.x509 import load_der_x509_certificate
from nvflare.fuel.f3.drivers import aio_http_driver, net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams

from eigenveil.federation.x509_identity import key_digest
from eigenveil.network.x509_members import KnownMembers

_log = logging.getLogger(__name__)
# In the place of a certificate's name, where the certificate counts for nothing: nobody's name.
_NOBODY = "(put out)"


class Connections:
    """All connections of this process, from now on.

    Parameters
    ----------
    members : KnownMembers
        Who may be at the other end.
    forget : callable, optional
        Called when the certificate was renewed, the key being the same: FLARE is to read it again.
    """

    def __init__(self, members: KnownMembers, forget: Callable[[], None] = lambda: None) -> None:
        self._forget = forget
        self._open: WeakSet[Any] = WeakSet()
        self._keys: set[str] = set()
        self._listening: list[tuple[SSLContext, dict[str, Any]]] = []
        aio_http_driver.WsConnection = _checked(members, self._open, self._keys)
        make = net_utils.get_ssl_context

        def remembered(params: dict[str, Any], ssl_server: bool) -> SSLContext | None:
            made: SSLContext | None = make(params, ssl_server)
            if ssl_server and made is not None:
                self._listening.append((made, params))
            return made

        net_utils.get_ssl_context = remembered

    @property
    def peer_has_a_new_key(self) -> bool:
        """Whether the other end (a site's is the aggregator) came back with another key.

        FLARE 2.9 has registered with the one before, and does not again while its process lives.
        """
        return len(self._keys) > 1

    def renew(self) -> None:
        """Use the certificate that is in the kit's files now, for every new connection.

        It is of the same key. A connection that this process makes reads the files anyway.
        """
        self._forget()
        for context, params in self._listening:
            context.load_cert_chain(
                params[DriverParams.SERVER_CERT.value], params[DriverParams.SERVER_KEY.value]
            )

    def close(self) -> None:
        """Close all that are open; FLARE makes those that it needs again, within seconds."""
        for each in list(self._open):
            each.close()


def _checked(members: KnownMembers, register: WeakSet[Any], keys: set[str]) -> type[Any]:
    """FLARE's class of a connection, which looks up whose it is whenever something comes."""
    inner: Any = aio_http_driver.WsConnection

    class Checked(inner):  # type: ignore[misc]
        def __init__(self, *rest: Any, **named: Any) -> None:
            super().__init__(*rest, **named)
            shown = self.websocket.get_extra_info("peercert") or {}
            self._serial = int(shown.get("serialNumber", "0"), 16)
            register.add(self)
            found = self.websocket.get_extra_info("ssl_object")
            if found is not None and members.connects(name="", serial=self._serial):
                shown = load_der_x509_certificate(found.getpeercert(True))
                keys.add(key_digest(shown.public_key()))

        def get_conn_properties(self) -> dict[str, Any]:
            known: dict[str, Any] = super().get_conn_properties()
            name = known.get(DriverParams.PEER_CN.value)
            if name is None or members.connects(name=name, serial=self._serial):
                return known
            if not self.closing:
                _log.warning("a connection of %r is closed: it was put out", name)
                self.close()
            return known | {DriverParams.PEER_CN.value: _NOBODY}

    return Checked
