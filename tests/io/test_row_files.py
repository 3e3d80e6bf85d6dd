"""Folders, patterns, and what a path may not be."""

from __future__ import annotations

import os

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil.io import open_rows


@pytest.fixture
def folder(tmp_path):
    for name in ("b.csv", "a.csv", "c.tsv", ".hidden.csv", "note.txt", "note.md", "sub/d.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"x\n{ord(path.stem[0])}\n")
    return tmp_path


def origins(*paths):
    return [block.origin.name for block in open_rows(paths).blocks()]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([""], ["a.csv", "b.csv", "c.tsv"]),
        (["*.csv"], ["a.csv", "b.csv"]),
        (["**/d*"], ["sub/d.csv"]),
        (["su?"], ["sub/d.csv"]),
        (["note.txt"], ["note.txt"]),  # in no folder, but by its name
        (["b.csv", "sub", "a.csv"], ["b.csv", "sub/d.csv", "a.csv"]),
    ],
)
def test_folders_and_patterns_are_what_is_in_them_by_name(given, meant, folder, monkeypatch):
    whole = [str(folder / name) for name in meant]
    assert origins(*(folder / name for name in given)) == whole
    monkeypatch.chdir(folder)
    if given[0]:
        assert origins(*given) == meant  # relative paths stay as given


def test_an_existing_path_is_no_pattern(folder):
    (folder / "[ab].csv").write_text("x\n1\n")
    assert origins(folder / "[ab].csv") == [str(folder / "[ab].csv")]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nowhere.csv", "no-such-file"),
        ("nowhere*.csv", "pattern-matches-nothing"),
        ("empty", "empty-folder"),
        ("note.md", "unknown-format"),
        ("[n]ote.md", "unknown-format"),
        ("x" * 300 + ".csv", "unreadable"),
    ],
)
def test_a_path_that_is_no_data_is_named(folder, path, code):
    (folder / "empty").mkdir()
    with pytest.raises(DataError) as caught:
        open_rows([folder / path])
    assert str(folder / path.replace("[n]", "n")) in caught.value.message
    assert caught.value.code == code


def test_no_path_at_all():
    with pytest.raises(DataError, match="No file"):
        open_rows([])


@pytest.mark.parametrize("again", ["a.csv", "./a.csv", "link.csv", "a*.csv", "."])
def test_rows_never_count_twice(folder, monkeypatch, again):
    monkeypatch.chdir(folder)
    (folder / "link.csv").symlink_to("a.csv")
    with pytest.raises(DataError, match=r"(a|link)\.csv is given twice") as caught:
        open_rows(["a.csv", again])
    assert caught.value.code == "file-twice"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_forbidden_file_is_named(folder):
    (folder / "a.csv").chmod(0)
    with pytest.raises(DataError, match=r"a\.csv cannot be read: .*[Pp]ermission"):
        open_rows([folder / "a.csv"])


def test_an_error_of_the_system_is_in_words(folder, monkeypatch):
    np.save(folder / "m.npy", np.eye(2))
    rows = open_rows([folder / "m.npy"])
    (folder / "m.npy").unlink()
    with pytest.raises(DataError, match=r"m\.npy cannot be read: No such file or directory\."):
        list(rows.blocks())
