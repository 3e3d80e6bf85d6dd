"""A timestamp authority (RFC 3161) of the tests' own, on this machine's loopback alone."""

import datetime
import hashlib
import itertools
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class TestAuthority:
    """Certificates, and tokens that are signed with them.

    Attributes
    ----------
    clock : callable
        Says the time that tokens have.
    problem : callable or None
        Changes the bytes of an answer; one that raises OSError closes the connection.
    count : int
        How often it was asked.
    """

    __test__ = False

    def __init__(self, *, usage=ExtendedKeyUsageOID.TIME_STAMPING):
        self.clock = lambda: datetime.datetime.now(datetime.UTC)
        self.last_error, self.count, self.url = None, 0, ""
        self._serials = itertools.count(1)
        root_key, self._key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self._root = _certificate("root", "root", root_key, root_key, authority=True)
        self._leaf = _certificate("stamps", "root", self._key, root_key, usage=usage)

    def pem(self, path):
        """The root certificate in a file."""
        path.write_bytes(self._root.public_bytes(serialization.Encoding.PEM))
        return path

    def answer(self, request):
        """A TimeStampResp to a TimeStampReq, both as bytes."""
        from asn1crypto import algos, cms, core, tsp
        from asn1crypto import x509 as asn1_x509

        asked = tsp.TimeStampReq.load(request)
        info = tsp.TSTInfo(
            {
                "version": "v1",
                "policy": "1.3.6.1.4.1.99999.1",
                "message_imprint": asked["message_imprint"],
                "serial_number": next(self._serials),
                "gen_time": self.clock().replace(microsecond=0),
                "nonce": asked["nonce"],
            }
        ).dump()
        leaf = asn1_x509.Certificate.load(self._leaf.public_bytes(serialization.Encoding.DER))
        named = {"certs": [{"cert_hash": hashlib.sha256(leaf.dump()).digest()}]}
        attributes = cms.CMSAttributes(
            [
                {"type": "content_type", "values": ["tst_info"]},
                {"type": "message_digest", "values": [hashlib.sha256(info).digest()]},
                {"type": "signing_certificate_v2", "values": [tsp.SigningCertificateV2(named)]},
            ]
        )
        signer = {
            "version": "v1",
            "sid": cms.SignerIdentifier(
                {
                    "issuer_and_serial_number": {
                        "issuer": leaf.issuer,
                        "serial_number": leaf.serial_number,
                    }
                }
            ),
            "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
            "signed_attrs": attributes,
            "signature_algorithm": {"algorithm": "sha256_ecdsa"},
            "signature": self._key.sign(attributes.dump(), ec.ECDSA(hashes.SHA256())),
        }
        signed = {
            "version": "v3",
            "digest_algorithms": [{"algorithm": "sha256"}],
            "encap_content_info": {
                "content_type": "tst_info",
                "content": core.ParsableOctetString(info),
            },
            "certificates": [leaf],
            "signer_infos": [signer],
        }
        token = {"content_type": "signed_data", "content": cms.SignedData(signed)}
        granted = {"status": {"status": "granted"}, "time_stamp_token": token}
        return tsp.TimeStampResp(granted).dump()

    @contextmanager
    def serving(self):
        """Answer at ``url`` while the block runs."""
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                authority.count += 1
                assert self.headers["Content-Type"] == "application/timestamp-query"
                request = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    found = (authority.last_error or authority.answer)(request)
                except OSError:
                    return  # nothing is sent
                self.send_response(200)
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *words):
                pass

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/tsr"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def needed():
    """Skip where the libraries are absent."""
    pytest.importorskip("rfc3161_client", reason="rfc3161-client is not installed")
    pytest.importorskip("asn1crypto", reason="asn1crypto is not installed")


def _certificate(name, issuer, key, signing, *, authority=False, usage=None):
    now = datetime.datetime.now(datetime.UTC)
    named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(named[0])
        .issuer_name(named[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=3650))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
    return builder.sign(signing, hashes.SHA256())
