"""A ledger's file is damaged, or was made by somebody else before."""

import os
import random
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import begin, budget_of, commit, key_of, loss_of, release, tamper
from soak_tools import times

RELEASE = release(0.1)
SCALE, GRID = str(RELEASE.noise.scale), str(RELEASE.noise.grid)
RESERVE = Loss.total([loss_of(RELEASE)] * 3)
KEY = key_of("s1")
FLIPS = times(4_000)


def used(path):
    ledger = Ledger(path)
    ledger.set_budget(budget_of(3.0))
    begin(ledger, KEY, RESERVE, state=b"s" * 100)
    for step in ("keys", "round 1"):
        answer(ledger, step)
    return ledger


def answer(ledger, step):
    return commit(ledger, KEY, step, charges=[RELEASE], reply=b"reply" * 9, state=b"t" * 100)


CALLS = [
    Ledger.verify,
    Ledger.standings,
    Ledger.sessions,
    lambda ledger: list(ledger.entries()),
    lambda ledger: ledger.budget("rows"),
    lambda ledger: ledger.state(KEY),
    lambda ledger: answer(ledger, "keys"),
    lambda ledger: answer(ledger, "round 2"),
    lambda ledger: begin(ledger, key_of("s2", "b2"), RESERVE),
    lambda ledger: ledger.set_budget(budget_of(4.0)),
    lambda ledger: ledger.end(KEY, "done"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def test_flipped_bytes_end_well(path):
    """One or more bytes of a file: every call answers, or says in the package's words why not."""
    used(path)
    whole = path.read_bytes()
    changes = random.Random(1234)  # which bytes: nothing here is a matter of chance
    reported = 0
    for round_number in range(FLIPS):
        broken = bytearray(whole)
        for _ in range(changes.choice((1, 1, 1, 4))):
            broken[changes.randrange(len(broken))] ^= changes.randrange(1, 256)
        path.write_bytes(broken)
        path.with_name("ledger-journal").unlink(missing_ok=True)
        call = CALLS[round_number // 2 % len(CALLS)] if round_number % 2 else Ledger.verify
        try:
            found = call(Ledger(path))
        except (DataError, OutputError):
            reported += 1
        except EigenveilError:  # of the protocol: a session that is there no more
            pass
        else:
            reported += call is Ledger.verify and not found.holds
    assert reported > FLIPS / 20  # so many hit something


def put(old, new):
    return f"UPDATE ledger_entries SET body = replace(body, '{old}', '{new}')"


HOSTILE = {
    "text that is no UTF-8": "UPDATE ledger_entries SET time = CAST(x'ff' AS TEXT)",
    "a body that is no UTF-8": "UPDATE ledger_entries SET body = CAST(x'7bff7d' AS TEXT)",
    "a lone surrogate": """UPDATE ledger_entries SET body = '{"a":"\\ud800"}'""",
    "a number beyond all floats": put(SCALE, "8e999"),
    "a scale next to nothing": put(SCALE, "1e-300"),
    "a scale beyond all": put(SCALE, "1e+300"),
    "a grid beyond all": put(GRID, "-99999"),
    "a size beyond all": "UPDATE ledger_entries SET body = replace(body, '\"size\":10', "
    "'\"size\":1' || printf('%0400d', 0))",
    "deep nesting": "UPDATE ledger_entries SET body = printf('%.200000c', '[')",
    "a count beyond all": "UPDATE ledger_head SET count = 9223372036854775807",
    "a count below all": "UPDATE ledger_head SET count = -1",
    "a hash of bytes": "UPDATE ledger_head SET hash = x'ff'",
    "a number for a state": "UPDATE ledger_states SET state = 1000000000000",
    "text for a state": "UPDATE ledger_states SET state = 'a'",
    "a number for an answer": "UPDATE ledger_replies SET reply = 1000000000000",
    "a name that is no UTF-8": "UPDATE ledger_replies SET step = CAST(x'ff' AS TEXT) "
    "WHERE step = 'keys'",
}


@pytest.mark.parametrize("change", HOSTILE)
def test_hostile_contents_end_well(path, change):
    used(path)
    tamper(path, HOSTILE[change])
    whole = path.read_bytes()
    for call in CALLS:
        path.write_bytes(whole)
        with suppress(EigenveilError):
            found = call(Ledger(path))
            assert call is not Ledger.verify or not found.holds


@pytest.mark.parametrize("name", ["a\x00b", "x\udcff"])
def test_names_that_files_hardly_have(tmp_path, name):
    """The second is what Linux calls a file whose name is no UTF-8."""
    ledger = Ledger(tmp_path / name)
    with suppress(OutputError):
        ledger.set_budget(budget_of(1.0))
        assert ledger.verify().holds
    for call in CALLS:
        with pytest.raises(OutputError):
            call(Ledger(tmp_path / "no" / name))


# -- files that were there before


def test_a_ledger_is_closed_to_others(path):
    used(path)
    for call in (Ledger.verify, Ledger.standings, lambda ledger: answer(ledger, "round 2")):
        for mode in (0o644, 0o660, 0o666, 0o604):
            path.chmod(mode)
            call(Ledger(path))
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_an_empty_file_that_others_hold_open_does_not_become_the_ledger(path):
    path.touch()
    path.chmod(0o666)
    with path.open("rb") as spy:
        used(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert spy.read() == b""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_a_file_of_somebody_else_is_refused():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        path = Path(folder) / "ledger"
        path.touch(mode=0o666)  # root's
        path.chmod(0o666)
        os.seteuid(65534)
        try:
            with pytest.raises(OutputError) as caught:
                Ledger(path).verify()
            assert caught.value.code == "not-yours"
        finally:
            os.seteuid(0)
