"""The console as a process: what it loads, how it starts, and what its command refuses."""

import json
import os
import subprocess
import sys

import pytest
from console_tools import PASSWORD, Visitor
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.cli.app import main
from eigenveil.console.accounts import Accounts
from eigenveil.console.desk.serve import first_line
from eigenveil.console.settings import Rows
from eigenveil.console.signing import unlocked
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.public_key import PublicKey
from eigenveil.network.decisions import Decisions
from federation_tools import make_federation


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main(["console", *words])
    return ended.value.code


def test_its_own_process_loads_no_numerical_library():
    code = (
        "import sys, eigenveil.console.app, eigenveil.console.serving, eigenveil.console.command\n"
        "import eigenveil.console.desk.serve\n"
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'sqlalchemy', 'authlib') "
        "if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.strip() == "[]"


def test_the_process_beside_it_answers_lines(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    rows = Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger"))
    asked = [first_line("table", rows)]
    asked += [json.dumps({"number": 1, "method": "table", "arguments": {}})]
    asked += [json.dumps({"number": 2, "method": "result", "arguments": {"folder": "none"}})]
    found = subprocess.run(
        [sys.executable, "-m", "eigenveil.console.desk.serve"],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    first, second = (json.loads(line) for line in found.stdout.splitlines())
    assert first["found"]["columns"] == ["a", "b"]
    assert second["error"]["kind"] == "OutputError"


def test_accounts_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EIGENVEIL_CONSOLE_PASSWORD", PASSWORD)
    state = ("--state", str(tmp_path / "state"))
    party = make_federation(tmp_path)["north"]
    ledger = tmp_path / "north.ledger"
    Decisions(party, Ledger(ledger)).set_budget(Budget("default", "add-remove", 1.0, 1e-6))
    at = ("--party", str(party.folder), "--ledger", str(ledger))
    assert command("user", "add", "ann", "--role", "owner", *state, *at) == 0
    assert command("user", "add", "vic", "--role", "viewer", *state) == 0
    assert command("user", "add", "ann", "--role", "owner", *state, *at) == 3
    assert command("user", "add", "eve", "--role", "king", *state) == 3
    listed = Decisions(party, Ledger(ledger)).approvers()
    assert listed.called("ann").role == "owner"
    assert command("user", "list", *state) == 0
    assert "vic: viewer, password, second factor not set up yet" in capsys.readouterr().out
    assert command("user", "reset", "vic", *state) == 0
    accounts = Accounts(tmp_path / "state")
    lost, secret = accounts.kept("ann"), accounts.secret("ann")
    monkeypatch.setenv("EIGENVEIL_CONSOLE_PASSWORD", "another four words here")
    assert command("user", "key", "ann", *state, *at) == 3  # not her password
    assert command("user", "reset", "ann", "--password", *state) == 0
    out = capsys.readouterr().out
    assert "The key of ann is lost" in out
    assert "eigenveil console user key ann --party" in out
    assert (accounts.kept("ann").key, accounts.secret("ann")) == ("", secret)
    old = Decisions(party, Ledger(ledger)).approvers().called("ann").public_key
    assert command("user", "key", "ann", *state, *at) == 0
    listed = Decisions(party, Ledger(ledger)).approvers()
    assert [each.name for each in listed.approvers].count("ann") == 1
    assert listed.called("ann").public_key != old
    private = unlocked(accounts, "ann", "another four words here")
    made = Ed25519PrivateKey.from_private_bytes(private).public_key()
    assert listed.called("ann").public_key == PublicKey.of(made).text
    assert accounts.kept("ann").key != lost.key
    assert Ledger(ledger).verify().holds
    assert command("user", "key", "vic", *state, *at) == 3  # a viewer decides nothing
    assert command("user", "remove", "ann", *state, *at) == 0
    assert Decisions(party, Ledger(ledger)).approvers().called("ann").until is not None
    assert [each.name for each in Accounts(tmp_path / "state").all()] == ["vic"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 3),
        (("--data", "t.csv", "--party", "k"), 3),
        (("--party", "no-such-party"), 7),
        (("--data", "t.csv", "--host", "0.0.0.0"), 3),
        (("--data", "t.csv", "--tls-cert", "c.pem"), 3),
        (("--data", "t.csv", "--oidc", "https://login.example.org"), 3),
    ],
)
def test_what_cannot_be_served_is_refused(words, status, tmp_path):
    assert command(*words, "--state", str(tmp_path / "state")) == status


def test_a_stopped_run_is_not_taken_for_one_that_goes_on(tmp_path):
    found = Visitor(tmp_path)
    place = found.console.jobs.folder / "20300101000000-0badcafe"
    place.mkdir()
    fields = {"name": place.name, "kind": "fit", "title": "t", "words": [], "who": "ann",
              "begun": 0.0, "process": 2**22 + 1}  # fmt: skip
    (place / "job.json").write_text(json.dumps(fields))
    assert found.console.jobs.named(place.name).state == "lost"
    (place / "result").mkdir()  # it ended well while no console was there
    assert found.console.jobs.named(place.name).state == "finished"
