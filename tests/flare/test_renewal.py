"""Certificates and keys are renewed while parties run: nobody is stopped, and a study goes on."""

import socket
import ssl
import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from cryptography import x509

from eigenveil.network.certificates import fingerprint, read_certificate
from eigenveil.network.enrolment import package, request
from eigenveil.network.signed import known_members
from eigenveil.network.status import read_progress
from eigenveil.network.x509_registrar import approve, revoke
from federation_tools import SITES, Federation, pca_study

RNG = np.random.default_rng(6)
ROWS = {name: RNG.standard_normal((500, 20)) * np.linspace(3.0, 0.3, 20) for name in SITES}
FOUNDING = pca_study("founding", masks="helper")


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("renewal"), approve="all") as found:
        found.start_all()
        yield found


def renewed(federation, name, *, new_key=False):
    """As two people do it, with three files; the serial number of the new certificate."""
    kit, office = federation.kit(name), federation.kits["registrar"]
    words = {"role": kit.role, "name": kit.name, "renew": True, "new_key": new_key}
    asked = request(FOUNDING, kit.folder, **words)
    approval = federation.folder / f"{name}.approval.json"
    approve(asked, office, approval, renew=True, overwrite=True)
    package(kit.folder, approval, fingerprint=fingerprint(read_certificate(kit.root_certificate)))
    return read_certificate(kit.certificate).serial_number


def shown(federation):
    """The certificate that the aggregator shows to a new connection; 0 while it starts."""
    kit = federation.kit("lead")
    context = ssl.create_default_context(cafile=kit.root_certificate)
    context.check_hostname = False
    context.load_cert_chain(kit.certificate, kit.key)
    try:
        with (
            socket.create_connection(("localhost", federation.port), timeout=10) as plain,
            context.wrap_socket(plain) as found,
        ):
            return x509.load_der_x509_certificate(found.getpeercert(True)).serial_number
    except OSError:
        return 0


def until(check, seconds=180.0):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.2)


def said(federation, name, words, count=1):
    until(lambda: federation.said(name).count(words) >= count)


def run(federation, name, meanwhile=None):
    """A study to its end, followed in the aggregator's own file."""
    study = pca_study(name)
    federation.give_rows(study, ROWS)
    with federation.session() as session:
        job = session.submit(study, timeout=170.0)
    if meanwhile is not None:
        meanwhile()
    folder = federation.kit("aggregator").results / job
    until(lambda: (read_progress(folder) or {}).get("state") in ("finished", "failed", "lost"))
    found = read_progress(folder)
    assert found["state"] == "finished", found


def test_a_renewed_certificate_counts_at_once_and_a_study_goes_on(federation, tmp_path):
    pids = {name: process.pid for name, process in federation.processes.items()}
    go_on = tmp_path / "go-on"
    federation.notify("north", step="round 1", until=str(go_on))
    before = shown(federation)

    def renew():
        said(federation, "north", "mischief in round 1")
        serial = renewed(federation, "aggregator")
        renewed(federation, "south")
        until(lambda: shown(federation) == serial)
        go_on.touch()

    run(federation, "goes-on", renew)
    assert shown(federation) != before
    said(federation, "south", "south has a new certificate")
    said(federation, "aggregator", "for new connections")
    run(federation, "after")
    assert {name: process.pid for name, process in federation.processes.items()} == pids


def test_a_new_key_counts_from_the_next_study_on(federation, tmp_path):
    """Also the aggregator's: its process starts itself again. No other kit is touched."""
    go_on, before = tmp_path / "go-on", federation.said("north").count("mischief in round 1")
    federation.notify("north", step="round 1", until=str(go_on))

    def renew():
        said(federation, "north", "mischief in round 1", before + 1)
        renewed(federation, "south", new_key=True)
        renewed(federation, "aggregator", new_key=True)
        time.sleep(3.0)
        assert "has a new key" not in federation.said("aggregator")
        go_on.touch()

    run(federation, "old-keys", renew)
    said(federation, "aggregator", "has a new key, and starts again")
    serial = read_certificate(federation.kit("aggregator").certificate).serial_number
    until(lambda: shown(federation) == serial)  # it listens again
    for name in SITES:
        said(federation, name, "The aggregator has a new key")
    federation.wait_connected(*SITES, timeout=180.0, times=2)
    run(federation, "new-keys")
    for name in ("west", "lead", "helper"):
        newest = known_members(federation.kit("registrar")).current()
        found = known_members(federation.kit(name)).current()
        assert (found == newest) == (name == "west"), name  # whoever took part has the list

    # south's old key was stolen: what it has now is another
    revoked = revoke(federation.kits["registrar"], "south")
    known_members(federation.kit("aggregator")).adopt(revoked.line())
    renewed(federation, "south", new_key=True)
    run(federation, "after-revocation")
