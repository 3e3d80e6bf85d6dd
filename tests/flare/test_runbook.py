"""The runbook's lines for what is lost or stolen, as they stand in docs/operations.md."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE makes certificates: pip install '.[flare]'")

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.envelope import Correspondent, Envelope, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.study.file import write_toml
from eigenveil.network.decisions import Decisions
from eigenveil.network.flare.provision import inspect, provision
from eigenveil.network.kit import open_kit
from eigenveil.network.signed import identity_of, list_of, open_learning
from eigenveil.network.signers import open_key
from eigenveil.network.x509_members import LARGEST
from kit_tools import study_of

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
HOST = "aggregator.example.org"
STUDY = study_of(masks="helper")
PASSWORD = "four words are enough"
# The section, whose key it is, and the kit that has the new one.
LOST = [
    ("A site's key", "north", "north"),
    ("A kit without a copy", "north", "north-2"),
    ("The lead's key", "lead", "lead"),
    ("The helper's key", "helper", "helper"),
    ("The aggregator's key", "aggregator", "aggregator"),
]


def lines(title):
    text = PAGE.read_text().partition(f"### {title}\n")[2].partition("```\n")[2].partition("```")[0]
    found = re.findall(r"^eigenveil (.*)$", text, re.MULTILINE)
    assert found, title
    return [shlex.split(each, comments=True) for each in found]


@pytest.fixture
def kits(tmp_path, monkeypatch):
    """Kits as they are between organisations, an approver, and an approval from before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EIGENVEIL_APPROVER_PASSWORD", PASSWORD)
    write_toml(STUDY, Path("study.toml"))
    made = provision(STUDY, tmp_path / "kits", host=HOST)
    Path("kits/registrar").rename("registrar")
    return made


def type_in(run, title):
    mark = inspect(open_kit("kits/south")).root_fingerprint
    for words in lines(title):
        status, out, err = run(*(mark if word == "SHA256:..." else word for word in words))
        assert (status, err) == (0, ""), (words, out, err)


def hello(identity, kit):
    """A first question, or its answer: with the newest list that its party has."""
    called = AGGREGATOR if kit.role == "aggregator" else kit.name
    made = Envelope("ab" * 32, "cd" * 12, "hello", called, AGGREGATOR, list_of(identity))
    return seal(made, identity)[0], Correspondent(called, kit.role, kit.name)


def opened(made, peer):
    data, sender = made
    open_learning(data, identity_of(peer), sender=sender, recipient=AGGREGATOR, limit=LARGEST)


@pytest.mark.parametrize(("title", "whose", "where"), LOST)
def test_a_lost_key(title, whose, where, kits, run):
    site = Decisions(open_kit("kits/north"), Ledger("north.ledger"))
    status, _, err = run(
        *("site", "approver", "add", "steward-2", "--kit", "kits/north", "--ledger", "north.ledger")
    )
    assert (status, err) == (0, "")
    site.approve(STUDY, runs=None)
    kit = open_kit(kits[whose])
    stolen = hello(identity_of(kit), kit)
    others = [Path("kits") / name for name in ("south", "west", "lead", "helper", "aggregator")]
    others = [each for each in others if each != kits[whose].relative_to(Path.cwd())]
    for each in others:
        opened(stolen, open_kit(each))

    type_in(run, title)
    kit = open_kit(Path("kits") / where)
    fresh = hello(identity_of(kit), kit)
    for each in others:  # also those that nobody gave the list
        opened(fresh, open_kit(each))
        with pytest.raises(ProtocolError) as caught:
            opened(stolen, open_kit(each))
        assert caught.value.code == "revoked-party"

    site = Decisions(open_kit(kit.folder if kit.role == "site" else "kits/north"), site.ledger)
    assert site.standing(STUDY.hash).approved
    assert site.approve(STUDY, runs=None).approved
    assert site.ledger.verify().holds


def test_a_lost_password(kits, run, monkeypatch):
    words = ("--kit", "kits/north", "--ledger", "north.ledger")
    assert run("site", "approver", "add", "steward-2", *words)[0] == 0
    site = Decisions(open_kit("kits/north"), Ledger("north.ledger"))
    old = open_key("kits/north/approvers/steward-2.key", PASSWORD)
    monkeypatch.setenv("EIGENVEIL_APPROVER_PASSWORD", "another password, too")
    type_in(run, "An approver's key")
    with pytest.raises(EigenveilError) as caught:
        site.approve(STUDY, old, by="steward-2")
    assert caught.value.code == "bad-signature"
    new = open_key("kits/north/approvers/steward-2.key", "another password, too")
    assert site.approve(STUDY, new, by="steward-2").approved


def test_what_is_refused_on_the_way(kits, run):
    """The thief's request, a kit that was not renewed in the ledger, a budget nobody signed."""
    shutil.copytree("kits/north", "thief")
    site = Decisions(open_kit("kits/north"), Ledger("north.ledger"))
    site.approve(STUDY, runs=None)
    first, last = lines("A site's key")[:-1], lines("A site's key")[-1]
    mark = inspect(open_kit("kits/south")).root_fingerprint
    for words in first:
        assert run(*(mark if word == "SHA256:..." else word for word in words))[0] == 0
    asked = ("--role", "site", "--name", "north", "--out", "thief", "--renew")
    assert run("flare", "request", "study.toml", *asked)[0] == 0
    stolen = ("flare", "approve", "thief/north-request.json", "--kit", "registrar", "--renew")
    status, _, err = run(*stolen, "--out", "thief.json")
    assert status != 0
    assert "was revoked" in err
    assert "--new-key" in err
    approve = ("site", "approve", "study.toml", "--kit", "kits/north", "--ledger", "north.ledger")
    status, _, err = run(*approve)
    assert status != 0
    assert "site approver renew owner" in err
    assert run(*last)[0] == 0
    assert run(*approve)[0] == 0
    budget = ("ledger", "budget", "north.ledger", "--data-set", "default", "--epsilon", "2")
    status, _, err = run(*budget)
    assert status != 0
    assert "--kit KIT" in err
    status, out, _ = run(*budget, "--kit", "kits/north")
    assert status == 0
    status, out, _ = run("ledger", "show", "north.ledger")
    assert "owner" in out
