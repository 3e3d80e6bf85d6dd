"""What lies in or beside the published folder: rows drawn by default, scratch left behind."""

from __future__ import annotations

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

from eigenveil.app.results import new_folder

N = 137  # nowhere else a number


@pytest.fixture
def rows(tmp_path):
    values = np.random.default_rng(0).normal(size=(N, 3)) * [9, 1, 1]
    file = tmp_path / "rows.csv"
    pd.DataFrame(values, columns=list("abc")).to_csv(file, index=False)
    return file


FIT = ("-k", 1, "--epsilon", 50)


def test_rows_are_drawn_only_where_asked(rows, tmp_path, run):
    (tmp_path / "own").mkdir()
    assert run("fit", rows, *FIT, "--out", tmp_path / "a")[0] == 0
    assert not list(tmp_path.rglob("*projection*"))
    for place, file in (("own", "own/projection.png"), ("mine.svg", "mine.svg")):
        out = tmp_path / f"of-{place}"
        words = ("--no-plots", "--out", out, "--projection", tmp_path / place)
        assert "ROWS" in run.done("fit", rows, *FIT, *words)
        assert (tmp_path / file).stat().st_size > 1000
        assert not list(out.rglob("*projection*"))
    assert "shows rows" in (tmp_path / "mine.svg").read_text()


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("result/rows.png", 2),
        ("old", 2),
        ("old/rows.png", 2),
        ("old/deeper/../rows.png", 2),
        ("link/rows.png", 2),
        ("rows.pdf", 2),
        ("nowhere", 2),
        ("x" * 300, 7),
        ("rows.csv/rows.png", 7),
        ("x" * 300 + ".png", 7),
    ],
)
def test_places_that_would_be_published(rows, tmp_path, place, status, monkeypatch, run):
    monkeypatch.setattr("eigenveil.noise.source.SecureSource.words", lambda *_: 1 / 0)
    (tmp_path / "old" / "deeper").mkdir(parents=True)
    (tmp_path / "old" / "certificate.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    out = tmp_path / ("result" if place.startswith("result") else "old")
    words = ("--out", out, "--overwrite", "--projection", tmp_path / place)
    assert run("fit", rows, *FIT, *words)[0] == status


def test_no_exact_count_leaves_by_json_or_the_result(rows, tmp_path, run):
    """Exact counts are on standard error only, and nowhere with --quiet."""
    _, out, err = run("fit", rows, *FIT, "--out", tmp_path / "a")
    assert f"{N} rows" in err
    assert str(N) not in out
    quiet = ("--no-plots", "--quiet", "--out", tmp_path / "b")
    status, out, err = run("fit", rows, *FIT, *quiet)
    assert (status, out) == (0, "")
    assert f"{N} rows" not in err  # warnings may stand there: they depend on the noise
    _, out, err = run("fit", rows, *FIT, "--no-plots", "--json", "--out", tmp_path / "c")
    assert f"{N} rows" not in err
    values = list(leaves(json.loads(out)))
    for folder in "abc":
        values += leaves(json.loads((tmp_path / folder / "certificate.json").read_text()))
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


def test_what_a_killed_fit_left_is_removed_by_the_next(rows, tmp_path, run):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "r")], check=False
    )
    assert done.returncode == -signal.SIGKILL
    [left] = hidden(tmp_path)
    assert json.loads((left / "being-written.json").read_text())["host"] == platform.node()
    assert left.stat().st_mode & 0o077 == 0
    assert run("fit", rows, *FIT, "--no-plots", "--out", tmp_path / "another")[0] == 0
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
def test_places_where_nothing_can_be_written(rows, tmp_path, name, monkeypatch, run):
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
        assert run(*words)[0] == 7, words


def test_a_name_as_long_as_can_be(rows, tmp_path, run):
    assert run("fit", rows, *FIT, "--no-plots", "--out", tmp_path / ("x" * 255))[0] == 0
