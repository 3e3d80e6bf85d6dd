"""Sites that are killed, slow, without room for their ledger, or not who they say: real processes.

After each fault the study has ended, with the survivors or with one clear message, and every ledger
balances.
"""

import shutil
import subprocess

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from fault_tools import PATIENCE, SITES, FaultyFederation, pca_study, until

from eigenveil.federation.ledger.ledger import Budget, Ledger
from federation_tools import Federation
from soak_tools import count


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("sites"), approve="manual") as found:
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES)
        yield found


@pytest.fixture(autouse=True)
def in_order(federation):
    yield
    federation.honest()


MOMENTS = ("before", "during", "after")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_site_is_killed_and_there_are_enough_others(federation, moment):
    study = pca_study(f"spared-{moment}", dropouts=1)
    federation.notify("south", step="round 2", die=moment)
    status = federation.run(study, timeout=3.0)
    assert federation.processes["south"].wait(PATIENCE) == -9
    assert status.state == "finished", status.error
    with federation.session() as session:
        found = federation.fetch(session, status.job)
    assert set(found.missing_) == {"south"}
    assert found.certificate_.federation.taking_part == 2
    federation.check_books(all_free=False)
    count("killed", "a site on the network", 1)
    federation.start_again("south")
    until(federation.all_free)  # FLARE tells it that the job is over
    federation.check_books()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_site_is_killed_and_all_are_needed(federation, moment):
    study = pca_study(f"needed-{moment}")
    federation.notify("south", step="round 2", die=moment)
    status = federation.run(study, timeout=3.0)
    assert federation.processes["south"].wait(PATIENCE) == -9
    assert status.state == "failed"
    assert status.error.code == "too-few-sites"
    assert "site south: it" in status.error.message
    assert status.error.message.count("site ") == 1  # nobody else is blamed
    federation.check_books(all_free=False)
    count("killed", "a site on the network", 1)
    federation.start_again("south")
    until(federation.all_free)
    federation.check_books()


@pytest.mark.parametrize(("moment", "dropouts"), [("before", 1), ("during", 0), ("after", 1)])
def test_a_killed_site_that_is_started_again_takes_part(federation, moment, dropouts):
    study = pca_study(f"again-{moment}-{dropouts}", dropouts=dropouts)
    federation.notify("south", step="round 1", die=moment)
    job = federation.run(study, timeout=60.0, wait=False)
    federation.start_again("south")
    with federation.session() as session:
        status = federation.wait(session, job, timeout=PATIENCE)
        assert status.state == "finished", status.error
        assert federation.fetch(session, job).missing_ == {}
    until(federation.all_free)
    federation.check_books()


def test_an_answer_after_its_time_is_dropped(federation):
    study = pca_study("slow", dropouts=1)
    federation.notify("south", step="round 1", seconds=14.0)
    status = federation.run(study, timeout=2.0)
    assert status.state == "finished", status.error
    with federation.session() as session:
        assert set(federation.fetch(session, status.job).missing_) == {"south"}
    until(federation.all_free)
    federation.check_books()


# -- a disk that is full


@pytest.mark.parametrize(("step", "dropouts"), [("join", 0), ("round 2", 1)])
def test_a_ledger_without_room(federation, step, dropouts):
    """SQLite says that the disk is full, at the beginning or in the middle of a study."""
    reported = federation.said("south").count("the disk is full")
    study = pca_study(f"full-{step.replace(' ', '-')}-{dropouts}", dropouts=dropouts)
    federation.notify("south", step=step, full=True)
    status = federation.run(study, timeout=5.0)
    check_did_without(federation, status, dropouts)
    assert federation.said("south").count("the disk is full") > reported
    assert "Make room on the disk" in federation.said("south")
    federation.check_books(all_free=False)
    check_goes_on(federation, study)


@pytest.fixture
def small_disk(federation):
    """South's ledger on a disk of its own, of 256 KiB."""
    disk = federation.folder / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("making a small disk is not permitted here")
    place, kept = federation.ledger("south"), federation.folder / "south.kept"
    federation.settle()
    try:
        federation.kill("south")
        place.rename(kept)
        Ledger(disk / "ledger").set_budget(Budget("default", "add-remove", 500.0, 0.5))
        place.symlink_to(disk / "ledger")
        start(federation, "south")
        yield disk
    finally:
        federation.settled = frozenset(federation.jobs())
        federation.kill("south")
        subprocess.run(["umount", str(disk)], check=True)
        place.unlink()
        kept.rename(place)
        (federation.kits["south"] / "full").unlink(missing_ok=True)
        start(federation, "south")


def start(federation, name):
    times = federation.said(name).count(" is connected to ")
    federation.start(name)
    federation.wait_connected(name, times=times + 1)


def test_a_full_disk(federation, small_disk):
    study = pca_study("full-disk", dropouts=1)
    reported = federation.said("south").count("the disk is full")
    federation.notify("south", step="round 1", full=str(small_disk))
    status = federation.run(study, timeout=5.0)
    check_did_without(federation, status, 1)
    assert federation.said("south").count("the disk is full") > reported
    assert (small_disk / "filler").stat().st_size > 0
    ledger = Ledger(federation.ledger("south"))
    assert ledger.verify().holds
    assert [account.charges for account in ledger.sessions()] == [()]
    (small_disk / "filler").unlink()
    (federation.kits["south"] / "full").unlink()
    check_goes_on(federation, study)


def check_did_without(federation, status, dropouts):
    if dropouts:
        assert status.state == "finished", status.error
        with federation.session() as session:
            assert set(federation.fetch(session, status.job).missing_) == {"south"}
    else:
        assert status.state == "failed"
        assert status.error.code == "too-few-sites"
        assert "site south: it cannot answer; its owner finds the reason" in status.error.message
        assert "disk" not in status.error.message


def check_goes_on(federation, study):
    """With room again, the same study runs with everybody, and everything else is free."""
    federation.honest()
    status = federation.run(study)
    assert status.state == "finished", status.error
    with federation.session() as session:
        assert federation.fetch(session, status.job).missing_ == {}
    until(federation.all_free)
    federation.check_books()


# -- who is not who they say, or asks for what is not theirs


class Stranger(Federation):
    """Parties of somebody else's making, at the address of the true ones."""

    def __init__(self, folder, port):
        self.true_port = port
        super().__init__(folder)


@pytest.fixture
def strangers(federation, tmp_path, monkeypatch):
    """A north of another root, and a south with north's certificate: both keep trying."""
    monkeypatch.setattr("federation_tools.free_port", lambda: federation.port)
    with Federation(tmp_path / "other") as other:
        false = other.kits["south"]
        for each in ("client.key", "client.crt", "rootCA.pem"):
            shutil.copy(federation.kits["north"] / "startup" / each, false / "startup" / each)
        yield other


def test_wrong_certificates_take_part_in_nothing(federation, strangers, monkeypatch):
    """One is of another root, one is north's and says that it is south; the true ones go on."""
    strangers.start("north", "south")
    study = pca_study("strangers")
    status = federation.run(study)
    assert status.state == "finished", status.error
    assert federation.same_as_in_process(status.job, study)
    # the kit's owner is told before anything is sent
    strangers.processes["south"].wait(PATIENCE)
    assert "certificate" in strangers.said("south")
    # the other one cannot know, and is told after a while
    until(lambda: "Not connected to the aggregator" in strangers.said("north"))
    assert "certificate is of its federation" in " ".join(strangers.said("north").split())
    for name in ("north", "south"):
        assert " is connected to " not in strangers.said(name)
    federation.check_books()
