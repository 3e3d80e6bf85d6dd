"""Keys are taken only from the parties that the study names, whoever passes them on."""

import base64
from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from identity_tools import DAY, NOW, Known, Registrar
from roles_tools import run_study, study_of

from eigenveil.errors import DataError, OutputError, ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, Message, decode, encode
from eigenveil.federation.secagg.keys import Context, SiteKeys
from eigenveil.federation.x509_identity import Identity, certified_role, check_signature
from eigenveil.network.certificates import parse_certificate

LIMIT = 1 << 24


@pytest.fixture(scope="module")
def registrar():
    return Registrar()


@pytest.fixture(scope="module")
def identities(registrar):
    return {name: registrar.identity(name) for name in ("s0", "s1", "s2", HELPER)}


CONTEXT = Context("study", "session")


def keys():
    made = SiteKeys(SiteKeys.new_master(), CONTEXT)
    return payloads.PublicKeys(
        rounds=tuple(
            made.public_key(round_number).hex()
            for round_number in range(1, payloads.MOST_ROUNDS + 1)
        ),
        channel=made.channel_public_key().hex(),
        signing=made.signing_public_key().hex(),
    )


def refused(call):
    with pytest.raises(ProtocolError) as caught:
        call()
    assert caught.value.code == "bad-identity"
    return str(caught.value)


@pytest.mark.parametrize(
    "fields", [{}, {"dropouts": 1}, {"masks": "pairwise"}, {"masks": "helper"}], ids=str
)
def test_a_study_among_known_parties_is_the_same(fields, tmp_path, identities):
    consortium = Known(study_of(3, **fields), tmp_path, identities)
    outcome = run_study(consortium).outcome
    assert outcome.taking_part == 3
    assert not outcome.missing


@pytest.mark.parametrize("field", ["rounds", "channel", "signing"])
@pytest.mark.parametrize("signs", [False, True])
def test_an_aggregator_cannot_put_its_own_keys_in_their_place(
    field, signs, tmp_path, identities, registrar
):
    """Unsigned, or signed with its own certificate of the same registrar."""
    consortium = Known(study_of(3), tmp_path, identities)
    own, mallory = keys(), registrar.identity("aggregator")

    def fate(name, step, request, party):
        if step != "keys" or name != "s0":
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        body = message.read(payloads.KeysRequest)
        forged = body.neighbours["s1"].model_copy(update={field: getattr(own, field)})
        if signs:
            forged = mallory.signed(forged, Context(message.study, message.session), "s1")
        changed = body.model_copy(update={"neighbours": {**body.neighbours, "s1": forged}})
        reported = Message(step, message.study, message.session, AGGREGATOR, changed.fields(), {})
        return party.handle(encode(reported))

    with pytest.raises(ProtocolError, match="s0"):
        run_study(consortium, fate=fate)
    assert consortium.parties["s0"].last_error.code == "bad-identity"


@pytest.mark.parametrize("forged", ["key", "proof", "neither"])
def test_sites_that_sign_are_known_to_those_who_share_no_masks_with_them(
    forged, tmp_path, registrar
):
    """On a ring s0 has s1 and s4 for neighbours; s2 signs too, and its key cannot be exchanged."""
    study = study_of(5, neighbours=2, dropouts=1)
    consortium = Known(study, tmp_path, {n: registrar.identity(n) for n in study.names})
    own, mallory = keys(), registrar.identity("aggregator")

    def fate(name, step, request, party):
        if step != "keys" or name != "s0" or forged == "neither":
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        body = message.read(payloads.KeysRequest)
        assert set(body.neighbours) == {"s1", "s4"}
        assert set(body.proofs) == {"s2", "s3"}
        signers, proofs = message.arrays["signers"].copy(), dict(body.proofs)
        signers[2] = list(bytes.fromhex(own.signing))
        if forged == "proof":  # by a certificate of the same registrar
            proof = mallory.signed(own, Context(message.study, message.session), "s2").proof
            proofs["s2"] = payloads.SignerProof(digest=own.digest(), proof=proof)
        reported = body.model_copy(update={"proofs": proofs}).fields()
        arrays = {"signers": signers}
        return party.handle(
            encode(Message(step, message.study, message.session, AGGREGATOR, reported, arrays))
        )

    outcome = run_study(consortium, fate=fate).outcome
    assert set(outcome.missing) == (set() if forged == "neither" else {"s0"})
    if forged != "neither":
        assert consortium.parties["s0"].last_error.code == "bad-identity"


def test_a_helper_seals_masks_for_the_sites_alone(tmp_path, identities):
    consortium = Known(study_of(3, masks="helper"), tmp_path, identities)
    own = keys()

    def fate(name, step, request, party):
        if name != HELPER or not step.startswith("masks"):
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        body = message.read(payloads.MasksRequest)
        changed = body.model_copy(update={"channels": {**body.channels, "s1": own.channel}})
        reported = Message(step, message.study, message.session, AGGREGATOR, changed.fields(), {})
        return party.handle(encode(reported))

    with pytest.raises(ProtocolError, match="not signed"):
        run_study(consortium, fate=fate)


def test_a_helper_is_known_too(tmp_path, identities, registrar):
    others = {**identities, HELPER: registrar.identity("aggregator")}
    consortium = Known(study_of(3, masks="helper"), tmp_path, others)
    with pytest.raises(ProtocolError):
        run_study(consortium)
    assert consortium.parties["s0"].last_error.code == "bad-identity"


def test_every_part_of_a_proof_counts(registrar):
    mine, theirs, made = registrar.identity("north"), registrar.identity("south"), keys()
    proof = theirs.signed(made, CONTEXT, "south").proof
    mine.check(made.proved(), proof, CONTEXT, "south")
    other = Registrar().identity("south")
    late = registrar.identity("south", start=NOW - 3 * DAY, end=NOW - DAY)
    wrong = [
        (made.proved(), None, CONTEXT, "south", "not signed"),
        (keys().proved(), proof, CONTEXT, "south", "does not hold"),
        (made.proved(), proof, Context("study", "another"), "south", "does not hold"),
        (made.proved(), proof, Context("another", "session"), "south", "does not hold"),
        (made.proved(), proof, CONTEXT, "west", "another party's"),
        (made.proved(), mine.signed(made, CONTEXT, "south").proof, CONTEXT, "south", "another"),
        (made.proved(), other.signed(made, CONTEXT, "south").proof, CONTEXT, "south", "registrar"),
        (made.proved(), late.signed(made, CONTEXT, "south").proof, CONTEXT, "south", "this time"),
        (
            made.proved(),
            proof.model_copy(update={"certificate": "nonsense"}),
            CONTEXT,
            "south",
            "registrar",
        ),
        (made.proved(), proof.model_copy(update={"signature": "00"}), CONTEXT, "south", "does not"),
    ]
    for shown, evidence, context, name, why in wrong:
        text = refused(lambda s=shown, e=evidence, c=context, n=name: mine.check(s, e, c, n))
        assert why in text


@pytest.mark.parametrize(
    ("name", "role", "as_name"),
    [
        ("s1", "aggregator", "s1"),
        ("s1", "lead", "s1"),
        ("s1", "helper", "s1"),
        (HELPER, "site", HELPER),
    ],
)
def test_a_certificate_of_another_role_is_no_sites(name, role, as_name, registrar):
    """The aggregator whose host is called like a site, such as ``localhost``, is not that site."""
    impostor, made = registrar.identity(name, role=role), keys()
    proof = impostor.signed(made, CONTEXT, as_name).proof
    text = refused(
        lambda: registrar.identity("north").check(made.proved(), proof, CONTEXT, as_name)
    )
    assert "its certificate is not of a" in text


def test_role_and_usage_must_agree(registrar):
    for role, serves in (("aggregator", False), ("site", True), ("lead", True), ("boss", False)):
        assert certified_role(registrar.identity("x", role=role, serves=serves).certificate) is None
    for role in ("site", "helper", "aggregator", "lead"):
        assert certified_role(registrar.identity("x", role=role).certificate) == role
    assert certified_role(registrar.root) is None


def test_a_name_in_the_middle_of_another_certificate_is_no_root(registrar):
    """A site's certificate cannot sign further ones: only the root's signature counts."""
    south = registrar.identity("south")
    chain = Registrar()
    chain.key = south.key
    forged = chain.identity("west", trusted=registrar.root)
    made = keys()
    proof = forged.signed(made, CONTEXT, "west").proof
    refused(lambda: registrar.identity("north").check(made.proved(), proof, CONTEXT, "west"))


def test_files_of_a_kit(tmp_path, registrar):
    north = registrar.identity("north")
    paths = {name: tmp_path / f"{name}.pem" for name in ("key", "certificate", "root")}
    private = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    paths["key"].write_bytes(north.key.private_bytes(*private))
    paths["certificate"].write_bytes(north.certificate.public_bytes(Encoding.PEM))
    paths["root"].write_bytes(registrar.root.public_bytes(Encoding.PEM))
    read = Identity.from_files(**paths)
    made = keys()
    north.check(made.proved(), read.signed(made, CONTEXT, "north").proof, CONTEXT, "north")
    elliptic = ec.generate_private_key(ec.SECP256R1())
    for name, content in (
        ("key", b"no key"),
        ("key", elliptic.private_bytes(*private)),
        ("certificate", b""),
        ("root", None),
    ):
        before = paths[name].read_bytes()
        paths[name].unlink() if content is None else paths[name].write_bytes(content)
        with pytest.raises(OutputError) as caught:
            Identity.from_files(**paths)
        assert str(paths[name]) in str(caught.value)
        assert caught.value.code == "bad-kit"
        paths[name].write_bytes(before)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_certificate_that_is_damaged_anywhere_is_refused(registrar):
    """Each bit of it, with an authority and without: some make parts that nothing can read."""
    signer = registrar.identity("north")
    der = signer.certificate.public_bytes(Encoding.DER)
    known = {"role": "site", "name": "north", "now": NOW}
    signature = signer.sign(b"text")
    for place in range(8 * len(der)):
        damaged = bytearray(der)
        damaged[place // 8] ^= 1 << place % 8
        body = base64.encodebytes(damaged).decode()
        shown = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
        with suppress(DataError):
            parse_certificate(shown.encode(), "rootCA.pem")
        for root in (None, signer.root):
            with suppress(ProtocolError):
                check_signature(b"text", signature, shown, root=root, **known)
                if root is not None:  # beside what the registrar has signed
                    found = x509.load_pem_x509_certificate(shown.encode())
                    assert found.tbs_certificate_bytes == signer.certificate.tbs_certificate_bytes
