"""A registrar of the tests' own, and identities that it certifies."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER
from eigenveil.federation.x509_identity import Identity, role_extension

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Registrar:
    """An independent party with a root key."""

    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.root = self._certificate("registrar", self.key, NOW - DAY, NOW + DAY, authority=True)

    def identity(self, name, *, role=None, start=NOW - DAY, end=NOW + DAY, trusted=None, **more):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        usual = {HELPER: "helper", AGGREGATOR: "aggregator"}.get(name, "site")
        made = self._certificate(name, key, start, end, role=role or usual, **more)
        return Identity(key, made, trusted or self.root)

    def _certificate(self, name, key, start, end, *, authority=False, role="", serves=None):
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registrar")])
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if (role == "aggregator") if serves is None else serves:
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
        return (
            x509.CertificateBuilder()
            .subject_name(named)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(role_extension(role), critical=False)
            .sign(self.key, SHA256())
        )
