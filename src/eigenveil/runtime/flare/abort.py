"""A lead's word that a study is to end, signed as every message is.

FLARE's own ways to end a job (a command, a report, a signal) are nobody's signature: none of them
ends a study. The lead's word goes into a file beside the study's status; the process that conducts
the study reads it there and believes nothing but the signature, of the lead that signed the job,
for this study and run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from eigenveil.errors import ProtocolError
from eigenveil.federation.envelope import Envelope, open_sealed, seal
from eigenveil.federation.identity import Identity
from eigenveil.federation.messages import AGGREGATOR
from eigenveil.files import replacing
from eigenveil.runtime.flare.channel import ABORT
from eigenveil.runtime.flare.signed import lead_called

_FILE = "abort"
_log = logging.getLogger(__name__)


def signed_abort(identity: Identity, lead: str, *, study: str, session: str) -> bytes:
    """A lead's word that a run is to end."""
    word = Envelope(study, session, ABORT, lead_called(lead).called, AGGREGATOR)
    return seal(word, identity)[0]


def check_abort(data: bytes, identity: Identity, lead: str, *, study: str, session: str) -> None:
    """Raise where it is not this lead's word about this run.

    Parameters
    ----------
    identity : Identity
        The aggregator's.

    Raises
    ------
    ProtocolError
    """
    found = open_sealed(data, identity, sender=lead_called(lead), recipient=AGGREGATOR, limit=0)
    if (found.study, found.session, found.step) != (study, session, ABORT):
        raise ProtocolError(
            "It is about another run, or says something else.",
            hint="It is refused; the study goes on.",
            code="other-session",
        )


@dataclass
class Word:
    """What a study's lead may have said about its end.

    Attributes
    ----------
    folder : Path
        Of the study's status.
    identity : Identity
        The aggregator's.
    lead : str
        Who signed the job.
    study, session : str
    """

    folder: Path
    identity: Identity
    lead: str
    study: str
    session: str
    _seen: bytes | None = None
    _holds: bool = False

    def keep(self, data: bytes) -> None:
        """Put the lead's word where it is looked for.

        Raises
        ------
        ProtocolError
            When it is none.
        """
        self._check(data)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self.folder / _FILE) as scratch:
            scratch.write_bytes(data)

    def is_said(self) -> bool:
        """Whether the lead has said that the study is to end; each word is looked at once."""
        try:
            data = (self.folder / _FILE).read_bytes()
        except OSError:
            return False
        if data != self._seen:
            self._seen = data
            try:
                self._check(data)
                self._holds = True
            except ProtocolError as error:
                _log.warning("an end that nobody signed: %s", error.message)
                self._holds = False
        return self._holds

    def _check(self, data: bytes) -> None:
        check_abort(data, self.identity, self.lead, study=self.study, session=self.session)
