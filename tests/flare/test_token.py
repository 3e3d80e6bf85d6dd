"""A signing key in a PKCS#11 token: SoftHSM 2 in the place of a card."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE makes certificates: pip install '.[flare]'")
pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed")

import pkcs11

from eigenveil.errors import DataError, EigenveilError, OutputError, ProtocolError
from eigenveil.federation.protocol.envelope import Envelope, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.study.study import make_study
from eigenveil.federation.token_key import PIN_VARIABLE, Token, TokenKey, open_token
from eigenveil.federation.x509_identity import Identity
from eigenveil.network.certificates import fingerprint, read_certificate, read_key
from eigenveil.network.enrolment import package, request
from eigenveil.network.flare.provision import provision
from eigenveil.network.kit import open_kit
from eigenveil.network.signed import identity_of, list_of, open_learning, party_called
from eigenveil.network.signing import install_signing, request_signing
from eigenveil.network.x509_members import LARGEST
from eigenveil.network.x509_registrar import approve

PLACES = [
    Path("/usr/lib/softhsm/libsofthsm2.so"),
    Path("/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"),
    Path("/usr/lib64/softhsm/libsofthsm2.so"),
]
MODULE = next((str(each) for each in PLACES if each.exists()), "")
UTIL = shutil.which("softhsm2-util")
pytestmark = pytest.mark.skipif(not (MODULE and UTIL), reason="SoftHSM 2 is not installed")
PIN = "246810"
STUDY = make_study(
    name="signed",
    sites=[{"name": name} for name in ("north", "south")],
    features=4,
    components=2,
    epsilon=1.0,
    delta=1e-6,
)


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    """A token with one key."""
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    settings = folder / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {folder / 'tokens'}\n")
    patch = pytest.MonkeyPatch()
    patch.setenv("SOFTHSM2_CONF", str(settings))
    patch.setenv(PIN_VARIABLE, PIN)
    subprocess.run(
        [UTIL, "--init-token", "--free", "--label", "site", "--so-pin", "1357", "--pin", PIN],
        check=True,
        capture_output=True,
    )
    lib = pkcs11.lib(MODULE)
    with lib.get_token(token_label="site").open(user_pin=PIN, rw=True) as session:
        session.generate_keypair(pkcs11.KeyType.RSA, 2048, label="signing", store=True)
    yield Token(MODULE, "site", "signing")
    open_token.cache_clear()
    patch.undo()


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return provision(STUDY, tmp_path_factory.mktemp("kits") / "k", host="localhost", port=8102)


@pytest.fixture(scope="module")
def signing(token, kits, tmp_path_factory):
    """North's kit, which signs with the token."""
    folder = tmp_path_factory.mktemp("files")
    kit = open_kit(kits["north"])
    asked = request_signing(kit, token, folder / "north-signing.json")
    approved = approve(asked, kits["registrar"], folder / "approval.json", renew=True)
    install_signing(kit, token, approved)
    return kit, approved


def sealed(identity, step="hello", payload=b""):
    """A message of north's."""
    return seal(Envelope("ab" * 32, "cd" * 12, step, "north", AGGREGATOR, payload), identity)[0]


def opened(data, kit, name="north"):
    sender = party_called(name)
    return open_learning(data, identity_of(kit), sender=sender, recipient=AGGREGATOR, limit=LARGEST)


def test_only_the_token_signs_for_north(signing, kits):
    """A stolen file with the key of TLS signs nothing that a peer with the list takes."""
    kit, _ = signing
    own, peer = identity_of(kit), open_kit(kits["aggregator"])
    stolen = Identity.from_files(
        key=kit.key, certificate=kit.certificate, root=kit.root_certificate
    )
    assert isinstance(own.key, TokenKey)
    assert opened(sealed(stolen), peer).sender == "north"  # the list with the token comes now
    assert opened(sealed(own, payload=list_of(own)), peer).sender == "north"
    for step in ("hello", "join", "round 1"):
        assert opened(sealed(own, step), peer).step == step
        with pytest.raises(ProtocolError, match="another key than the list") as error:
            opened(sealed(stolen, step), peer)
        assert error.value.code == "other-signing-key"
    with pytest.raises(EigenveilError):
        opened(sealed(own), peer, "south")


def test_a_renewal_of_the_connection_leaves_the_token_in_charge(signing, kits, tmp_path):
    kit, _ = signing
    before = identity_of(kit).members.current()
    asked = request(STUDY, kit.folder, role="site", name="north", renew=True)
    approved = approve(asked, kits["registrar"], tmp_path / "a.json", renew=True)
    mark = fingerprint(read_certificate(kit.root_certificate))
    package(kit.folder, approved, fingerprint=mark)
    assert identity_of(kit).members.current() == before
    assert isinstance(identity_of(kit).key, TokenKey)


def test_the_key_of_tls_stays_the_file(signing):
    kit, _ = signing
    own = identity_of(kit)
    assert read_key(kit.key).public_key().public_numbers() != own.key.public_key().public_numbers()
    assert PIN not in kit.signing_file.read_text()
    for what in (own.key.private_numbers, own.key.private_bytes):
        with pytest.raises(Exception, match="never leaves"):
            what()


def test_an_approval_of_another_kit_or_key_is_refused(signing, token, kits):
    _, approved = signing
    with pytest.raises(DataError) as error:
        install_signing(open_kit(kits["south"]), token, approved)
    assert error.value.code == "other-name"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"token": "nobody"}, "no-token"),
        ({"key": "nothing"}, "no-token"),
        ({"module": "/nowhere.so"}, "no-token"),
    ],
)
def test_a_token_that_is_absent(token, fields, code):
    with pytest.raises(OutputError) as error:
        open_token(Token(**(vars(token) | fields)))
    assert error.value.code == code


def test_pins(token, tmp_path, monkeypatch):
    subprocess.run(
        [UTIL, "--init-token", "--free", "--label", "other", "--so-pin", "1357", "--pin", PIN],
        check=True,
        capture_output=True,
    )
    pins = tmp_path / "pin"
    other = Token(MODULE, "other", "signing", str(pins))
    with pytest.raises(OutputError) as error:
        open_token(other)
    assert error.value.code == "no-pin"
    pins.write_text("000000\n")
    with pytest.raises(OutputError) as error:
        open_token(other)
    assert error.value.code in ("wrong-pin", "no-token")  # "no-token": not seen since it was made
    monkeypatch.delenv(PIN_VARIABLE)
    with pytest.raises(OutputError) as error:
        open_token(Token(MODULE, "other", "signing"))
    assert error.value.code == "no-pin"
