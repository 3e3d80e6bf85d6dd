"""``eigenveil federate-tree``: sites' own files up a tree, charged, written and certified."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil import PrivateStreamingPCA
from eigenveil.io import write_table

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def sites(tmp_path):
    rng = np.random.default_rng(1)
    given = []
    for name in ("north", "south", "west"):
        values = rng.standard_normal((400, 4)) * [5, 1, 1, 1]
        columns = {"patient": [f"{name}{k // 2}" for k in range(400)]}
        table = pa.table(columns | dict(zip(NAMES, values.T, strict=True)))
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
        given += ["--site", f"{name}={tmp_path / name}.parquet"]
    return given


def test_a_result_like_that_of_any_fit(tmp_path, run, sites):
    out, ledgers = tmp_path / "result", tmp_path / "ledgers"
    tree = ("federate-tree", *sites, "--unit", "patient", "--max-rows-per-unit", 2, "--fan-out", 2)
    tree = (*tree, "--epsilon", 3, "-k", 1, "--no-plots", "--ledgers", ledgers)
    status, printed, err = run(*tree, "--out", out)
    assert status == 0, err
    words = " ".join(printed.split())
    for part in ("3 sites, 2 levels of nodes", "aggregator at level 1", "guarantee: (3, 1e-06)"):
        assert part in words, part
    assert "each unit is at one site only" in words
    model = PrivateStreamingPCA.load(out / "model.npz")
    assert list(model.feature_names_in_) == list(NAMES)
    assert abs(model.components_[0, 0]) > 0.9
    status, printed, _ = run("certify", out)
    assert (status, "VALID" in printed) == (0, True)
    status, _, _ = run("transform", out, tmp_path / "north.parquet", "--out", tmp_path / "s.csv")
    assert status == 0
    assert (tmp_path / "s.csv").read_text().startswith('"patient","PC1"')
    # the budget of each site is the first fit's target: nothing is left for a second
    status, _, err = run(*tree, "--out", tmp_path / "again")
    assert status != 0
    assert "epsilon = 3" in err
    assert not (tmp_path / "again").exists()
    for site in ("north", "south", "west"):
        status, printed, _ = run("ledger", "show", ledgers / f"{site}.ledger", "--json")
        assert status == 0
        assert len([s for s in json.loads(printed)["sessions"] if s["charges"]]) == 1


def test_json_has_every_view(tmp_path, run, sites):
    sites = (*sites, "--exclude", "patient", "--json", "--no-plots")
    status, printed, _ = run("federate-tree", *sites, "--out", tmp_path / "out")
    assert status == 0
    assert {"outsider", "leaf", "aggregator at level 1"} <= set(json.loads(printed)["views"])


def test_sites_must_have_the_same_columns(tmp_path, run, sites):
    write_table(tmp_path / "south.parquet", np.eye(3), ["a", "b", "x"])
    status, _, err = run("federate-tree", *sites, "--columns", "a,b", "--out", tmp_path / "out")
    assert status == 0, err
    other = ("--exclude", "patient", "--overwrite")
    status, _, err = run("federate-tree", *sites, *other, "--out", tmp_path / "out")
    assert status != 0
    assert "south" in err
