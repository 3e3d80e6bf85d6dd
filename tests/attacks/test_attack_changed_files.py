"""A file that somebody writes to during a fit ends it before the change is released."""

from __future__ import annotations

import os

import numpy as np
import pytest

from eigenveil import PrivatePCA
from eigenveil.errors import DataError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.io import open_rows, write_table

NAMES = ["a", "b", "c"]
ROWS = np.random.default_rng(5).normal(size=(3000, 3))


def appended(path):
    with path.open("a") as file:
        file.write("9,9,9\n")


def replaced(path):
    """By another file of the same size and time."""
    found = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def rewritten(path):
    write_table(path, ROWS[::-1], NAMES)


def removed(path):
    path.unlink()


CHANGES = [
    ("rows.csv", appended),
    ("rows.csv", removed),
    ("rows.parquet", rewritten),
    ("rows.parquet", replaced),
    ("rows.feather", rewritten),
    ("rows.npy", rewritten),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_change_between_passes_ends_the_fit_with_what_was_spent(name, change, tmp_path):
    path, place = tmp_path / name, tmp_path / "rows.ledger"
    write_table(path, ROWS, NAMES)
    passes = []

    def note(what, rows):
        if what not in passes:
            passes.append(what)
            if len(passes) == 2:  # before this pass has ended
                change(path)

    model = PrivatePCA(2, epsilon=2.0, ledger=str(place), data_set="rows")
    with pytest.raises(DataError) as caught:
        model.fit_rows(open_rows([path]), progress=note)
    assert caught.value.code in ("file-changed", "unreadable")
    assert name in caught.value.message
    released = {record.name for record in caught.value.released}
    assert set(passes[0].split(", ")) <= released  # a pass may serve the next release as well
    ledger = Ledger(place)
    (standing,) = ledger.standings()
    whole = PrivatePCA(2, epsilon=2.0, ledger=str(tmp_path / "w.ledger"), data_set="rows")
    whole.fit(ROWS)
    (all_of_it,) = Ledger(tmp_path / "w.ledger").standings()
    assert 0 < standing.spent.mu_squared < all_of_it.spent.mu_squared
    assert not hasattr(model, "components_")


def test_a_change_before_the_first_pass_releases_nothing(tmp_path):
    path = tmp_path / "rows.csv"
    write_table(path, ROWS, NAMES)
    rows = open_rows([path])
    appended(path)
    with pytest.raises(DataError) as caught:
        PrivatePCA(2, epsilon=2.0).fit_rows(rows)
    assert caught.value.code == "file-changed"
    assert getattr(caught.value, "released", ()) == ()
