"""What lies in or beside the folder that is published: rows drawn by default, scratch left behind.

Before, ``fit`` wrote projection.png, which shows rows, into every result; and 90 of 109 killed fits
left a hidden folder that nothing removed.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from eigenveil.app.results import new_folder
from eigenveil.cli.app import app
from eigenveil.errors import OutputError, WrongOption

N = 137  # nowhere else a number


CALLS = itertools.count()


def invoke(*words):
    """Run a command, with a ledger of its own."""
    ledger = {"EIGENVEIL_LEDGER": f"{os.environ['EIGENVEIL_LEDGER']}-{next(CALLS)}"}
    words = [str(word) for word in words]
    return CliRunner().invoke(app, words, env=ledger, auto_envvar_prefix="EIGENVEIL")


@pytest.fixture
def rows(tmp_path):
    values = np.random.default_rng(0).normal(size=(N, 3)) * [9, 1, 1]
    file = tmp_path / "rows.csv"
    pd.DataFrame(values, columns=list("abc")).to_csv(file, index=False)
    return file


FIT = ("-k", 1, "--epsilon", 50)


def test_rows_are_drawn_only_where_asked(rows, tmp_path):
    (tmp_path / "own").mkdir()
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / "a")
    assert reported.exit_code == 0, reported.exception
    assert not list(tmp_path.rglob("*projection*"))
    for place, file in (("own", "own/projection.png"), ("mine.svg", "mine.svg")):
        out = tmp_path / f"of-{place}"
        reported = invoke("fit", rows, *FIT, "--out", out, "--projection", tmp_path / place)
        assert reported.exit_code == 0, reported.exception
        assert (tmp_path / file).stat().st_size > 1000
        assert "ROWS" in reported.stdout
        assert not list(out.rglob("*projection*"))
    assert "shows rows" in (tmp_path / "mine.svg").read_text()


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("result/rows.png", WrongOption),
        ("old", WrongOption),
        ("old/rows.png", WrongOption),
        ("old/deeper/../rows.png", WrongOption),
        ("link/rows.png", WrongOption),
        ("rows.pdf", WrongOption),
        ("nowhere", WrongOption),
        ("x" * 300, OutputError),
        ("rows.csv/rows.png", OutputError),
        ("x" * 300 + ".png", OutputError),
    ],
)
def test_places_that_would_be_published(rows, tmp_path, place, error, monkeypatch):
    monkeypatch.setattr("eigenveil.noise.source.SecureSource.words", lambda *_: 1 / 0)
    (tmp_path / "old" / "deeper").mkdir(parents=True)
    (tmp_path / "old" / "certificate.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    out = tmp_path / ("result" if place.startswith("result") else "old")
    words = ("--out", out, "--overwrite", "--projection", tmp_path / place)
    assert isinstance(invoke("fit", rows, *FIT, *words).exception, error)


def test_no_exact_count_leaves_by_json_or_the_result(rows, tmp_path):
    """Exact counts are on standard error only, and nowhere with --quiet."""
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / "a")
    assert f"{N} rows" in reported.stderr
    assert str(N) not in reported.stdout
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / "b", "--quiet")
    assert not reported.stdout
    assert not reported.stderr
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / "c", "--json")
    assert not reported.stderr
    values = list(leaves(json.loads(reported.stdout)))
    for folder in "abc":
        for file in ("certificate.json",):
            values += leaves(json.loads((tmp_path / folder / file).read_text()))
    assert N not in values
    assert str(N) not in values


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from eigenveil.app.results import new_folder
    with new_folder(Path(sys.argv[1])) as folder:
        (folder / "model.npz").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def hidden(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("."))


def test_what_a_killed_fit_left_is_removed_by_the_next(rows, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "r")], check=False
    )
    assert done.returncode == -signal.SIGKILL
    [left] = hidden(tmp_path)
    assert json.loads((left / "being-written.json").read_text())["host"] == platform.node()
    assert left.stat().st_mode & 0o077 == 0
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / "another")
    assert reported.exit_code == 0, reported.exception
    assert not hidden(tmp_path)
    assert not (tmp_path / "another" / "being-written.json").exists()


def test_nothing_else_is_removed(tmp_path):
    """Not what is being written, not of another host, not without our mark, not through a link."""
    other = tmp_path / ".eigenveil-other"
    unmarked = tmp_path / ".eigenveil-unmarked"
    named = tmp_path / ".result-abc"
    odd = tmp_path / ".eigenveil-odd"
    for folder in (other, unmarked, named, odd):
        folder.mkdir()
        (folder / "kept").write_text("")
    mine = {"host": platform.node(), "process": os.getpid()}
    (other / "being-written.json").write_text(json.dumps(mine | {"host": "elsewhere"}))
    (named / "being-written.json").write_text(json.dumps(mine))
    (odd / "being-written.json").write_text("[")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "being-written.json").write_text(json.dumps(mine))
    (tmp_path / ".eigenveil-link").symlink_to(outside)
    with new_folder(tmp_path / "a") as first:
        (first / "kept").write_text("")
        with new_folder(tmp_path / "b"):
            assert (first / "kept").exists()
    assert (tmp_path / "a" / "kept").exists()
    assert all((folder / "kept").exists() for folder in (other, unmarked, named, odd))
    assert (outside / "being-written.json").exists()


@pytest.mark.parametrize("name", ["x" * 300, "rows.csv/result"])
def test_places_where_nothing_can_be_written(rows, tmp_path, name, monkeypatch):
    monkeypatch.setattr("eigenveil.noise.source.SecureSource.words", lambda *_: 1 / 0)
    out = f"{tmp_path}/{name}"
    result = tmp_path / "result"
    for words in (
        ("fit", rows, *FIT, "--out", out),
        ("watch", rows, "-k", 1, "--out", out),
        ("watch", rows, "-k", 1, "--epsilon", 1, "--out", out),
        ("watch", rows, "-k", 1, "--out", f"{out}.csv"),
        ("transform", result, rows, "--out", f"{out}.csv"),
        ("study", "schema", "--out", out),
        ("audit", "second-moment", "--out", out),
    ):
        assert isinstance(invoke(*words).exception, OutputError), words


def test_a_name_as_long_as_can_be(rows, tmp_path):
    reported = invoke("fit", rows, *FIT, "--out", tmp_path / ("x" * 255))
    assert reported.exit_code == 0, reported.exception
