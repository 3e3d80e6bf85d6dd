"""A renewed kit takes effect while its party runs: FLARE's connections follow the kit's files.

What eigenveil signs follows them by itself (:class:`eigenveil.network.signed.KitIdentity`). FLARE's
part of a site makes its connection again, between studies. An aggregator's listener shows the new
certificate to every new connection at once. Of an aggregator with another *key* FLARE keeps more
(tokens that it gave to sites are signed with the old one), so its process starts itself again,
between studies. A site that connects to an aggregator with another key does the same: FLARE would
show it the old token for ever.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from eigenveil.errors import EigenveilError
from eigenveil.federation.x509_identity import key_digest
from eigenveil.network.certificates import fingerprint, read_certificate
from eigenveil.network.flare.connections import Connections
from eigenveil.network.kit import Kit, check_own_certificate
from eigenveil.network.together import finish_writing

# Seconds between two looks at the kit's files.
_LOOK = 1.0


class Renewal:
    """Looks at a kit's certificate, in a thread of its own.

    Parameters
    ----------
    kit : Kit
    connections : Connections
    idle : callable
        Whether no study goes on.
    say : callable
    home : Path
        Where the process was started: FLARE changes its folder.
    """

    def __init__(
        self,
        kit: Kit,
        connections: Connections,
        *,
        idle: Callable[[], bool],
        say: Callable[[str], None],
        home: Path,
    ) -> None:
        self._kit, self._connections, self._idle = kit, connections, idle
        self._say, self._home = say, home
        self._shown, self._key = self._read()
        self._told = ""

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._watch, daemon=True, name="eigenveil renewal").start()

    def look(self) -> None:
        """Take a renewed certificate over, if there is one and now is the time."""
        if self._kit.role != "aggregator" and self._connections.peer_has_a_new_key:
            if self._idle():
                self._tell(f"The aggregator has a new key: {self._kit.name} starts again with it.")
                self._start_again()
            return
        try:
            finish_writing(self._kit.folder)
            shown, key = self._read()
            if shown == self._shown:
                return
            check_own_certificate(self._kit)
        except EigenveilError as error:
            self._tell(f"The kit's new certificate cannot be used: {error}")
            return
        until = f"{read_certificate(self._kit.certificate).not_valid_after_utc:%Y-%m-%d}"
        name = self._kit.name
        if self._kit.role != "aggregator":
            if not self._idle():
                return
            self._connections.close()
            self._tell(f"{name} has a new certificate, good until {until}: it connects with it.")
        elif key == self._key:
            self._connections.renew()
            self._tell(f"{name} has a new certificate, good until {until}, for new connections.")
        elif self._idle():
            self._tell(f"{name} has a new key, and starts again with it; no study goes on.")
            self._start_again()
        else:
            return
        self._shown, self._key = shown, key

    def _start_again(self) -> None:
        """The same program with the same words, in this process: nothing of FLARE's is left."""
        os.chdir(self._home)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def _read(self) -> tuple[str, str]:
        """Certificate and key, of one file: between reads of two they could be of two kits."""
        found = read_certificate(self._kit.certificate)
        return fingerprint(found), key_digest(found.public_key())

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._say(text)
        self._told = text

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK)
            self.look()
