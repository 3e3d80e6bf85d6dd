"""Who signed a certificate between organisations: in which role, in which session, under whom.

A signature is of a text that begins with its purpose, so that nothing else a party signs (keys,
envelopes) is one, and names study, session, role and party, so that it serves for no others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.identity import Identity, check_signature
from eigenveil.federation.study import parse_study
from eigenveil.federation.sums import active_sites
from eigenveil.privacy.certificate import Certificate, Signature

WHAT_SITES_SIGN = (
    "a site signs that in this session it was asked for these releases and no others, and added "
    "its part of their noise; that the model was made of their sums is the aggregator's word"
)


@dataclass(frozen=True)
class Signed:
    """Whose signatures a certificate has; all of them hold.

    Attributes
    ----------
    session : str
    aggregator : str
        The name in its certificate.
    sites, unsigned : tuple of str
        Those of the study that signed, and those that did not.
    authority : str or None
        Fingerprint of the root certificate that all of them are under; ``None`` where none was
        named.
    """

    session: str
    aggregator: str
    sites: tuple[str, ...]
    unsigned: tuple[str, ...]
    authority: str | None

    def __str__(self) -> str:
        count = f"{len(self.sites)} of {len(self.sites) + len(self.unsigned)} sites"
        who = f"signed by the aggregator ({self.aggregator}) and {count}"
        who += f" ({', '.join(self.sites)})" if self.sites else ""
        who += f", not by {', '.join(self.unsigned)}" if self.unsigned else ""
        if self.authority is None:
            return (
                f"{who}; not checked against an authority: anybody can have made these parties up. "
                "Name its root certificate: --root FILE"
            )
        return f"{who}, all under the root certificate {self.authority}"


def text_of(certificate: Certificate, session: str, role: str, name: str) -> bytes:
    """What a party signs of a certificate."""
    said = ["eigenveil certificate 1", certificate.study_hash, session, role, name]
    return json.dumps([*said, certificate.digest]).encode()


def own_signature(
    identity: Identity, certificate: Certificate, session: str, *, aggregator: bool
) -> Signature:
    """An identity's signature of a certificate, in its role."""
    name, role = identity.name, "aggregator" if aggregator else "site"
    signature = identity.sign(text_of(certificate, session, role, name)).hex()
    return Signature.model_validate(
        {"role": role, "name": name, "certificate": identity.pem, "signature": signature}
    )


def who_signed(certificate: Certificate, root: x509.Certificate | None) -> Signed | None:
    """Whose signatures a certificate has; ``None`` where nobody's were expected.

    The dates of the parties' certificates do not count: a study is read for longer than they last,
    and nothing shows when it was signed.

    Parameters
    ----------
    root : x509.Certificate, optional
        The authority that the parties' certificates must be of.

    Raises
    ------
    PrivacyError
        ``bad-signature`` where one does not hold or the aggregator's is missing.
    """
    signatures = certificate.signatures
    if signatures is None:
        if root is not None:
            raise _bad("Nobody has signed it")
        return None
    if certificate.study is None:
        raise _bad("It is of no study that parties could have signed")
    expected = active_sites(parse_study(certificate.study))
    signed = [each.name for each in signatures.by if each.role == "site"]
    aggregators = [each.name for each in signatures.by if each.role == "aggregator"]
    if strangers := set(signed) - set(expected):
        raise _bad(f"It is signed by {min(strangers)}, which is no site of its study")
    if len(set(signed)) < len(signed) or len(aggregators) > 1:
        raise _bad("A party has signed it twice")
    if not aggregators:
        raise _bad("The aggregator has not signed it")
    for each in signatures.by:
        try:
            check_signature(
                text_of(certificate, signatures.session, each.role, each.name),
                bytes.fromhex(each.signature),
                each.certificate,
                root=root,
                role=each.role,
                name=each.name,
                now=None,
            )
        except ProtocolError as error:
            raise _bad(f"The signature of {each.role} {error.message.rstrip('.')}") from None
    return Signed(
        session=signatures.session,
        aggregator=aggregators[0],
        sites=tuple(name for name in expected if name in signed),
        unsigned=tuple(name for name in expected if name not in signed),
        authority=None if root is None else f"SHA256:{root.fingerprint(SHA256()).hex(':').upper()}",
    )


def _bad(what: str) -> PrivacyError:
    return PrivacyError(
        f"{what}.",
        hint="Ask the parties of the study for the certificate that they signed.",
        code="bad-signature",
    )
