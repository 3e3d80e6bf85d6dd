"""A process that ends anywhere in a renewal leaves a kit that works: tried at every write."""

import os
import stat
import sys

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE makes certificates: pip install '.[flare]'")

from nvflare.fuel.f3.drivers import aio_http_driver, net_utils

from eigenveil.errors import EigenveilError
from eigenveil.federation.protocol.envelope import Envelope, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.network.certificates import fingerprint, read_certificate
from eigenveil.network.enrolment import package, request
from eigenveil.network.flare.connections import Connections
from eigenveil.network.flare.provision import provision
from eigenveil.network.flare.renewal import Renewal
from eigenveil.network.kit import check_own_certificate, open_kit
from eigenveil.network.signed import identity_of, list_of, members_of, open_learning, party_called
from eigenveil.network.signers import make_key
from eigenveil.network.x509_members import LARGEST
from eigenveil.network.x509_registrar import approve
from kit_tools import study_of

STUDY = study_of()
# What an operation on files announces itself as, before it happens.
WRITES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate"}
CUT, DONE = 7, 0


def cut_off(work, at):
    """Do it in a process that is gone at its write of this number; whether it was."""
    child = os.fork()
    if child == 0:
        left = [at]

        def hook(event, words):
            writing = event == "open" and (words[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if writing or event in WRITES:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(CUT)

        sys.addaudithook(hook)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(DONE)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (CUT, DONE)
    return status == CUT


@pytest.fixture
def kits(tmp_path):
    return provision(STUDY, tmp_path / "kits", host="localhost", port=8102)


def works(kits):
    """North's key and certificate are a pair, and a peer that learns north's list takes them."""
    kit, peer = open_kit(kits["north"]), open_kit(kits["aggregator"])
    check_own_certificate(kit)
    identity = identity_of(kit)
    hello = Envelope("ab" * 32, "cd" * 12, "hello", "north", AGGREGATOR, list_of(identity))
    data, _ = seal(hello, identity)
    sender = party_called("north")
    open_learning(data, identity_of(peer), sender=sender, recipient=AGGREGATOR, limit=LARGEST)
    return kit


def renewal(kits, tmp_path, *, new_key):
    """The three files' way, but for its last step: that step."""
    asked = request(STUDY, kits["north"], role="site", name="north", renew=True, new_key=new_key)
    approval = approve(asked, kits["registrar"], tmp_path / "a.json", renew=True, overwrite=True)
    mark = fingerprint(read_certificate(open_kit(kits["north"]).root_certificate))
    return lambda: package(kits["north"], approval, fingerprint=mark)


@pytest.mark.parametrize("new_key", [False, True])
def test_packaging(kits, tmp_path, new_key):
    work, at = renewal(kits, tmp_path, new_key=new_key), 0
    before = read_certificate(open_kit(kits["north"]).certificate)
    while cut_off(work, at):
        works(kits)
        at += 1
    assert at > 10
    kit = works(kits)
    assert read_certificate(kit.certificate) != before
    assert not kit.next_key.exists()
    assert not list(kit.folder.glob("*next*"))  # nothing is left of those that were cut off


def test_asking_and_approving(kits, tmp_path):
    """Each is simply done again, and other parties notice nothing."""
    words = {"role": "site", "name": "north", "renew": True, "new_key": True}
    at = 0
    while cut_off(lambda: request(STUDY, kits["north"], **words), at):
        works(kits)
        at += 1
    asked, at = next(kits["north"].glob("*-request.json")), 0
    approval = tmp_path / "a.json"

    def certify():
        approve(asked, kits["registrar"], approval, renew=True, overwrite=True)

    while cut_off(certify, at):
        works(kits)
        at += 1
    mark = fingerprint(read_certificate(open_kit(kits["north"]).root_certificate))
    package(kits["north"], approval, fingerprint=mark)
    works(kits)


def test_an_approvers_key_is_whole_or_not_there(tmp_path):
    place, at = tmp_path / "keys" / "ann.key", 0
    while cut_off(lambda: make_key(place, "four words are enough"), at):
        assert not place.exists()
        at += 1
    assert "ENCRYPTED" in place.read_text()


@pytest.mark.parametrize("mask", [0, 0o077])
def test_only_the_owner_reads_what_is_secret(tmp_path, mask):
    """Whatever the process's umask is, from the first byte on."""
    seen = set()
    before = os.umask(mask)
    try:
        kits = provision(STUDY, tmp_path / "kits", host="localhost", port=8102)
        request(STUDY, kits["north"], role="site", name="north", renew=True, new_key=True)
        make_key(kits["north"] / "approvers" / "ann.key", "four words are enough")
        renewal(kits, tmp_path, new_key=True)()
    finally:
        os.umask(before)
    for folder in kits.values():
        assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0, folder
        for file in folder.rglob("*"):
            if file.is_file() and b"PRIVATE KEY" in file.read_bytes():
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
                seen.add(file.name)
    assert seen == {"client.key", "server.key", "rootCA.key", "ann.key"}


def test_a_renewal_of_another_federation_is_refused(kits, tmp_path):
    other = provision(STUDY, tmp_path / "others", host="localhost", port=8102)
    work = renewal({**kits, "registrar": other["registrar"]}, tmp_path, new_key=False)
    with pytest.raises(EigenveilError) as caught:
        work()
    assert caught.value.code == "other-fingerprint"
    works(kits)


def test_a_look_between_two_writes_sees_one_kit(kits, tmp_path, monkeypatch):
    """The certificate is new and the key file is not: the key that is seen is the certificate's."""
    kit = open_kit(kits["aggregator"])
    for module, name in ((aio_http_driver, "WsConnection"), (net_utils, "get_ssl_context")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    seen = Renewal(
        kit, Connections(members_of(identity_of(kit))), idle=lambda: True, say=print, home=tmp_path
    )
    before = seen._read()
    other = open_kit(kits["north"]).certificate.read_bytes()
    kit.certificate.write_bytes(other)
    assert all(now != then for now, then in zip(seen._read(), before, strict=True))
