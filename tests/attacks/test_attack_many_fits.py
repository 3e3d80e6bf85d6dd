"""One table fitted again and again: by its file, a copy, another name or other files."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

FIT = ("-k", 1, "--epsilon", 1, "--no-plots", "--quiet")


@pytest.fixture
def table(tmp_path, next_ledger):
    values = np.random.default_rng(0).normal(size=(20000, 3)) * [9, 1, 1]
    file = tmp_path / "rows.parquet"
    pd.DataFrame(values, columns=list("abc")).to_parquet(file)
    return file


@pytest.fixture
def run(run, tmp_path, monkeypatch):
    monkeypatch.setenv("EIGENVEIL_LEDGER", str(tmp_path / "my.ledger"))  # the one of this user
    return run


# tests/federation/test_ledger_of_files.py has every other way to make a file look new
@pytest.mark.parametrize("again", ["same", "copied", "called otherwise", "for another task"])
def test_a_second_fit_beyond_the_budget_is_refused(table, tmp_path, run, again):
    assert run("fit", table, *FIT, "--out", tmp_path / "a")[0] == 0
    file, words = table, FIT
    if again == "copied":
        file = shutil.copy(table, table.with_name("copy.parquet"))
    elif again == "called otherwise":
        words = (*FIT, "--data-set", "a new table")
    elif again == "for another task":
        words = (*FIT[2:], "--task", "covariance")
    status, out, err = run("fit", file, *words, "--out", tmp_path / "b")
    assert (status, out) == (5, "")
    assert "left: nothing" in err
    assert "eigenveil ledger budget" in err
    assert not (tmp_path / "b").exists()
    _, out, _ = run("ledger", "show", "--json")
    found = json.loads(out)
    assert len(found["sessions"]) == 1
    assert found["standings"][0]["spent_epsilon"] == pytest.approx(1.0, rel=1e-3)


def test_what_is_said_of_fits_that_nothing_counts(table, tmp_path, run):
    words = [word for word in FIT if word != "--quiet"]
    for name in "ab":
        status, out, err = run("fit", table, *words, "--no-ledger", "--out", tmp_path / name)
        assert status == 0
        assert "charged to no ledger that is kept" in " ".join(out.split())
        assert err.startswith("no ledger: this fit is charged nowhere.")
        assert "charged to no ledger that is kept" in " ".join(
            run("show", tmp_path / name)[1].split()
        )
        certificate = json.loads((tmp_path / name / "certificate.json").read_text())
        assert certificate["counted"] is False
    assert not (tmp_path / "my.ledger").exists()
