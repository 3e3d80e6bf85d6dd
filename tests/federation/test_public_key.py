"""Keys that sign and keys that seal: one encoding of each, and none that anybody can sign for."""

import hashlib
import importlib
import pkgutil

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

import eigenveil
from eigenveil.errors import ProtocolError
from eigenveil.federation.public_key import P256_ORDER, KeySigner, PublicKey
from eigenveil.federation.sealing import (
    SEALED_MORE,
    SEALING_BYTES,
    SealingKey,
    check_sealing,
    encrypt_to,
    point_of,
)
from eigenveil.federation.signed import Document, Signed
from eigenveil.network.folder import PartyKeys, pem_of, read_signer
from refusal_tools import refuses

PRIME = 2**255 - 19
SMALL = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
]


def ed25519_signer():
    return KeySigner.new()


def p256_signer():
    return KeySigner(ec.generate_private_key(ec.SECP256R1()))


KINDS = pytest.mark.parametrize("signer", [ed25519_signer(), p256_signer()], ids=["ed", "p256"])


def refused(text):
    with pytest.raises(ProtocolError) as found:
        PublicKey.parse(text)
    return found.value.code


# -- signing


@KINDS
@given(text=st.binary(max_size=200))
def test_a_signature_holds_for_its_text_and_key_alone(signer, text):
    key, other = signer.public_key, KeySigner.new().public_key
    signature = signer.sign(text)
    assert len(signature) == 64
    assert key.verify(text, signature)
    assert not key.verify(text + b"\0", signature)
    assert not other.verify(text, signature)


@KINDS
@given(bit=st.integers(0, 511))
def test_no_other_signature_of_a_text_can_be_made_of_one(signer, bit):
    signature = signer.sign(b"text")
    changed = (int.from_bytes(signature) ^ 1 << bit).to_bytes(64)
    assert not signer.public_key.verify(b"text", changed)
    padded = signature[:32] + b"\0" + signature[32:]
    for short in (b"", signature[:63], signature + b"\0", padded):
        assert not signer.public_key.verify(b"text", short)


def test_the_other_half_of_a_p256_signature_does_not_hold():
    signer = p256_signer()
    signature = signer.sign(b"text")
    s = P256_ORDER - int.from_bytes(signature[32:])
    assert not signer.public_key.verify(b"text", signature[:32] + s.to_bytes(32))


@KINDS
def test_a_key_has_one_text_and_comes_back_from_it(signer):
    text = signer.public_key.text
    assert PublicKey.parse(text) == signer.public_key
    assert signer.public_key.fingerprint == hashlib.sha256(text.encode()).hexdigest()
    for wrong in (text.upper(), text + "0", text[:-1], f" {text}", text.replace(":", ":0x"), ""):
        assert refused(wrong) == "bad-public-key", wrong


@pytest.mark.parametrize("small", SMALL)
def test_keys_of_small_order_are_refused(small):
    assert refused(f"ed25519:{small}") == "bad-public-key"


@given(st.integers(0, 18), st.booleans())
def test_encodings_that_are_not_reduced_are_refused(above, sign):
    raw = (PRIME + above | sign << 255).to_bytes(32, "little")
    assert refused(f"ed25519:{raw.hex()}") == "bad-public-key"


@given(st.binary(min_size=32, max_size=32))
def test_half_of_all_texts_are_no_points_and_are_refused(raw):
    """The points are those that the library can verify with; others are refused at once."""
    try:
        key = PublicKey.parse(f"ed25519:{raw.hex()}")
    except ProtocolError:
        return
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    square = (y * y - 1) * pow(d * y * y + 1, -1, PRIME) % PRIME
    assert pow(square, (PRIME - 1) // 2, PRIME) == 1
    assert key.text.endswith(raw.hex())


def test_points_off_the_curve_of_p256_are_refused():
    for raw in ("02" + "ff" * 32, "02" + "00" * 31 + "01", "04" + "00" * 32, "00" * 33):
        assert refused(f"p256:{raw}") == "bad-public-key"


@KINDS
def test_a_mirror_image_is_the_same_point(signer):
    text = signer.public_key.text
    kind, _, digits = text.partition(":")
    raw = bytearray(bytes.fromhex(digits))
    if kind == "p256":
        raw[0] ^= 1
    else:
        raw[31] ^= 128
    other = PublicKey.parse(f"{kind}:{raw.hex()}")
    assert other.point == signer.public_key.point
    assert other.family == signer.public_key.family
    assert KeySigner.new().public_key.family != signer.public_key.family


def edwards_sum(a, b):
    """The sum of two points of Ed25519, affine."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    (x1, y1), (x2, y2) = a, b
    product = d * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME)
    return x % PRIME, y % PRIME


def test_keys_that_differ_by_a_point_of_small_order_are_of_one_family():
    raw = bytes.fromhex(KeySigner.new().public_key.text[8:])
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    square = (y * y - 1) * pow(d * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    x = x if x & 1 == raw[31] >> 7 else PRIME - x
    moved = edwards_sum((x, y), (0, PRIME - 1))  # of order 2
    text = (moved[1] | (moved[0] & 1) << 255).to_bytes(32, "little").hex()
    twin, own = PublicKey.parse(f"ed25519:{text}"), PublicKey.parse(f"ed25519:{raw.hex()}")
    assert twin.point != own.point
    assert twin.family == own.family


# -- sealing


@given(text=st.binary(max_size=500), info=st.binary(max_size=50))
def test_what_is_sealed_opens_for_its_key_and_purpose_alone(text, info):
    key, other = SealingKey.generate(), SealingKey.generate()
    sealed = encrypt_to(key.public, text, info)
    assert len(sealed) == len(text) + SEALED_MORE
    assert key.decrypt(sealed, info) == text
    assert SealingKey(key.raw).public == key.public
    for wrong_key, wrong_info, wrong in (
        (other, info, sealed),
        (key, info + b"\0", sealed),
        (key, info, sealed[:-1]),
        (key, info, b""),
        (key, info, bytes([sealed[0] ^ 1]) + sealed[1:]),
    ):
        with refuses("seal-broken", kind=ProtocolError):
            wrong_key.decrypt(wrong, wrong_info)


def test_sealing_keys_have_one_encoding_and_none_of_small_order():
    public = SealingKey.generate().public
    assert len(public) == SEALING_BYTES
    check_sealing(public)
    unreduced = (PRIME + 9).to_bytes(32, "little")  # 9, the base point
    wrong = [
        public[:-1],
        public + b"\0",
        public[:-32] + bytes(32),
        public[:-32] + (1).to_bytes(32, "little"),
        public[:-32] + unreduced,
        public[:-1] + bytes([public[-1] | 128]),
        b"\xff" * 1184 + public[-32:],  # coefficients above 3,329
    ]
    for each in wrong:
        with refuses("bad-public-key", kind=ProtocolError):
            check_sealing(each)
    assert point_of((9).to_bytes(32, "little"))


# -- files


def test_keys_come_back_from_their_files_which_only_their_owner_reads(tmp_path):
    for signer in (KeySigner.new(), p256_signer()):
        keys = PartyKeys.new(signer)
        folder = tmp_path / signer.public_key.fingerprint
        keys.write(folder)
        again = PartyKeys.read(folder, party=tmp_path)
        assert again.signer.public_key == keys.signer.public_key
        assert again.sealing.raw == keys.sealing.raw
        names = {file.name for file in folder.iterdir()}
        assert names == {"signing.pem", "mlkem.pem", "x25519.pem"}
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700


def test_keys_of_other_kinds_are_refused(tmp_path):
    curve = KeySigner(ec.generate_private_key(ec.SECP384R1()))
    for name, text in (("a", pem_of(curve.private)), ("b", b"no key"), ("c", b"")):
        (tmp_path / name).write_bytes(text)
        with refuses("bad-party", kind=OSError):
            read_signer(tmp_path / name)


# -- documents


class Word(Document):
    DOMAIN = "test word 1"
    word: str


class Other(Document):
    DOMAIN = "test other 1"
    word: str


@given(st.text())
def test_a_signed_document_says_one_thing_of_one_kind(word):
    signer, other = ed25519_signer(), p256_signer()
    made = Signed[Word].by(Word(word=word), signer)
    assert Signed[Word].read(made.line(), limit=1 << 20, what="a word") == made
    made.check(signer.public_key, "north")
    both = made.also(other)
    assert both.holds(signer.public_key)
    assert both.holds(other.public_key)
    assert both.said.digest == made.said.digest
    for wrong in (
        made.model_copy(update={"said": Word(word=word + "x")}),
        Signed[Other].read(made.line(), limit=1 << 20, what="a word"),
    ):
        with refuses("not-signed", kind=ProtocolError):
            wrong.check(signer.public_key, "north")
    for data in (made.line()[:-1], made.line() + b"x", b'{"said":1}', made.line() * 2):
        with refuses("bad-document", kind=ProtocolError):
            Signed[Word].read(data, limit=1 << 20, what="a word")


def test_no_two_kinds_of_documents_are_signed_in_one_name():
    """What is said in one of them is said in no other: also of kinds that are added later."""
    for module in pkgutil.walk_packages(eigenveil.__path__, "eigenveil."):
        ours = module.name.startswith(("eigenveil.federation", "eigenveil.network"))
        if ours and ".relays" not in module.name:  # those need what they relay through
            importlib.import_module(module.name)

    def kinds(of):
        return [of, *(each for kind in of.__subclasses__() for each in kinds(kind))]

    mine = [each for each in kinds(Document) if each.__module__.startswith("eigenveil")]
    names = [each.DOMAIN for each in mine if each.DOMAIN]
    assert len(names) > 5
    assert len(set(names)) == len(names)
