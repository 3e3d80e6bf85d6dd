"""The ledger of this user's tables, as somebody meets it who fits files."""

import json
import os
import re

import numpy as np
import pandas as pd
import pytest

from eigenveil.app.ledger_place import usual_ledger
from eigenveil.errors import OutputError
from eigenveil.federation.ledger.ledger import Ledger

FIT = ("-k", 1, "--epsilon", 1, "--no-plots")


@pytest.fixture
def table(tmp_path):
    values = np.random.default_rng(0).normal(size=(20000, 3)) * [9, 1, 1]
    file = tmp_path / "my rows.csv"
    pd.DataFrame(values.round(3), columns=list("abc")).to_csv(file, index=False)
    return file


@pytest.fixture
def home(tmp_path, monkeypatch, run):
    """A user without a ledger."""
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    del run
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path / "home"


@pytest.fixture
def run(run, monkeypatch):
    monkeypatch.setenv("EIGENVEIL_LEDGER", "")  # none is named: each call has the same
    return run


def test_the_first_fit_makes_the_ledger_and_says_so(table, tmp_path, home, run):
    place = home / ".local" / "share" / "eigenveil" / "tables.ledger"
    status, out, err = run("fit", table, *FIT, "--out", tmp_path / "r")
    assert status == 0
    first, *_, last = err.splitlines()
    assert first.startswith(f"ledger: {place}: opened an account for '{table}', with a budget of")
    assert last.startswith(f"ledger: {table}: of epsilon = 1 at delta = 1e-6, left: ")
    assert str(table) not in out
    assert place.stat().st_mode & 0o077 == 0
    status, _, err = run("fit", table, *FIT, "--out", tmp_path / "r2")
    assert status == 5
    # what the hint says does it
    (hint,) = re.findall(r"eigenveil (ledger budget .*) --adjacency", err)
    assert hint == f"ledger budget {place} --data-set '{table}'"
    words = ("--data-set", table, "--epsilon", 2, "--delta", 1e-6, "--reason", "another fit")
    assert run("ledger", "budget", *words)[0] == 0  # of the usual ledger, as all that follow
    assert run("fit", table, *FIT, "--out", tmp_path / "r2", "--quiet")[:2] == (0, "")
    assert run("ledger", "verify")[0] == 0
    status, out, _ = run("ledger", "show", "--json")
    assert [each["outcome"] for each in json.loads(out)["sessions"]] == ["finished"] * 2
    assert out.count(str(table)) == 5  # one account, two sessions, its budget as set twice
    assert "0 sessions" not in run("ledger", "show")[1]
    assert run("ledger", "end", "--study", "none")[0] == 0
    assert run("ledger", "export")[0] == 0


def test_another_place_and_name(table, tmp_path, run):
    place = tmp_path / "l"
    words = ("--ledger", place, "--data-set", "ward 7", "--out", tmp_path / "r")
    assert run("fit", table, *FIT, *words)[0] == 0
    assert [each.budget.data_set for each in Ledger(place).standings()] == ["ward 7"]
    for file in (tmp_path / "r").iterdir():
        assert b"ward 7" not in file.read_bytes()


def test_a_damaged_ledger_stops_the_fit(table, tmp_path, run):
    place = tmp_path / "l"
    assert run("fit", table, *FIT, "--ledger", place, "--out", tmp_path / "r")[0] == 0
    content = bytearray(place.read_bytes())
    start = content.index(b'"pure_as_gaussian"')
    content[start : start + 4] = b"xxxx"
    place.write_bytes(content)
    status, _, err = run("fit", table, *FIT, "--ledger", place, "--out", tmp_path / "r2")
    assert status == 3
    assert "restore a copy" in err.lower()
    assert run("ledger", "verify", place)[0] == 8


def test_watch_is_charged_to_the_table(table, tmp_path, home, run):
    words = ("watch", table, "--epsilon", 1, "-k", 1, "-b", 5000, "--quiet")
    assert run(*words)[0] == 0
    status, _, err = run("fit", table, *FIT, "--out", tmp_path / "r")
    assert status == 5
    assert "left: " in err
    assert run("watch", table, "-k", 1, "--no-ledger")[0] == 2
    assert run("watch", table, "-k", 1, "--quiet")[0] == 0  # without --epsilon nothing is private


def test_where_the_usual_ledger_is(home, monkeypatch, tmp_path):
    assert usual_ledger() == str(home / ".local" / "share" / "eigenveil" / "tables.ledger")
    assert not home.exists()  # it is only named
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert usual_ledger(make_folder=True) == str(tmp_path / "data" / "eigenveil" / "tables.ledger")
    assert (tmp_path / "data" / "eigenveil").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert str(home) in usual_ledger()
    monkeypatch.setattr("sys.platform", "darwin")
    assert usual_ledger().startswith(str(home / "Library"))
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert usual_ledger().startswith(str(tmp_path / "local"))
    monkeypatch.setenv("EIGENVEIL_LEDGER", "postgresql://host/x")
    assert usual_ledger() == "postgresql://host/x"


def test_no_place_for_the_usual_ledger_says_the_way_out(home, monkeypatch, tmp_path, table, run):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    status, _, err = run("fit", table, *FIT, "--out", tmp_path / "r")
    assert status == 7
    assert "--ledger FILE" in err
    assert "EIGENVEIL_LEDGER" in err
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match="it cannot be written"):
        usual_ledger(make_folder=True)
