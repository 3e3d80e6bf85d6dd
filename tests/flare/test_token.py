"""A signing key in a PKCS#11 token: SoftHSM 2 in the place of a card."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE makes certificates: pip install '.[flare]'")
pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed")

import pkcs11

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.protocol.envelope import Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.study.study import make_study
from eigenveil.federation.token_key import PIN_VARIABLE, Token, TokenKey, open_token
from eigenveil.network.certificates import read_key
from eigenveil.network.flare.provision import provision
from eigenveil.network.kit import open_kit
from eigenveil.network.registrar import approve
from eigenveil.network.signed import identity_of, party_called
from eigenveil.network.signing import install_signing, request_signing

PLACES = [
    Path("/usr/lib/softhsm/libsofthsm2.so"),
    Path("/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"),
    Path("/usr/lib64/softhsm/libsofthsm2.so"),
]
MODULE = next((str(each) for each in PLACES if each.exists()), "")
UTIL = shutil.which("softhsm2-util")
pytestmark = pytest.mark.skipif(not (MODULE and UTIL), reason="SoftHSM 2 is not installed")
PIN = "246810"


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
    sites = [{"name": name} for name in ("north", "south")]
    study = make_study(
        name="signed", sites=sites, features=4, components=2, epsilon=1.0, delta=1e-6
    )
    return provision(study, tmp_path_factory.mktemp("kits") / "k", host="localhost", port=8102)


@pytest.fixture(scope="module")
def signing(token, kits, tmp_path_factory):
    """North's kit, which signs with the token."""
    folder = tmp_path_factory.mktemp("files")
    kit = open_kit(kits["north"])
    asked = request_signing(kit, token, folder / "north-signing.json")
    approved = approve(asked, kits["registrar"], folder / "approval.json", renew=True)
    install_signing(kit, token, approved)
    return kit, approved


def test_what_it_signs_is_north_to_everybody(signing, kits):
    kit, _ = signing
    own, other = identity_of(kit), identity_of(open_kit(kits["aggregator"]))
    assert isinstance(own.key, TokenKey)
    envelope = Envelope("ab" * 32, "cd" * 12, "join", "north", AGGREGATOR, b"payload")
    data, mark = seal(envelope, own)
    found = open_sealed(data, other, sender=party_called("north"), recipient=AGGREGATOR, limit=100)
    assert (found.payload, found.mark) == (b"payload", mark)
    with pytest.raises(EigenveilError):
        open_sealed(data, other, sender=party_called("south"), recipient=AGGREGATOR, limit=100)


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
