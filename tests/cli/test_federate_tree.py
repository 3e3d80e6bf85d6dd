"""``eigenveil federate-tree``: sites' own files up a tree, charged, written and certified."""

import json
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil import PrivateStreamingPCA
from eigenveil.errors import ProtocolError
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.io import write_table
from eigenveil.tables.adapters.base import array_rows

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
    printed = run.done(*tree, "--out", out)
    words = " ".join(printed.split())
    for part in ("3 sites, 2 levels of nodes", "aggregator at level 1", "guarantee: (3, 1e-6)"):
        assert part in words, part
    assert "each unit is at one site only" in words
    model = PrivateStreamingPCA.load(out / "model.npz")
    assert list(model.feature_names_in_) == list(NAMES)
    assert abs(model.components_[0, 0]) > 0.9
    assert "VALID" in run.done("certify", out)
    run.done("transform", out, tmp_path / "north.parquet", "--out", tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().startswith('"patient","PC1"')
    # the budget of each site is the first fit's target: nothing is left for a second
    assert "epsilon = 3" in run.fails(*tree, "--out", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    for site in ("north", "south", "west"):
        printed = run.done("ledger", "show", ledgers / f"{site}.ledger", "--json")
        assert len([s for s in json.loads(printed)["sessions"] if s["charges"]]) == 1


def test_json_has_every_view(tmp_path, run, sites):
    sites = (*sites, "--exclude", "patient", "--json", "--no-plots")
    printed = run.done("federate-tree", *sites, "--out", tmp_path / "out")
    assert {"outsider", "leaf", "aggregator at level 1"} <= set(json.loads(printed)["views"])


def test_sites_must_have_the_same_columns(tmp_path, run, sites):
    write_table(tmp_path / "south.parquet", np.eye(3), ["a", "b", "x"])
    run.done("federate-tree", *sites, "--columns", "a,b", "--out", tmp_path / "out")
    other = ("--exclude", "patient", "--overwrite")
    assert "south" in run.fails("federate-tree", *sites, *other, "--out", tmp_path / "out")


# -- rounds: each file of a site is one


def monthly(tmp_path, months, sites=("north", "south", "west"), rows=800, share=0.0):
    """Options for files of rows along another column from the fourth month on."""
    given = []
    for site in sites:
        for month in range(months):
            rng = np.random.default_rng([month, len(site)])
            scale = [5, 1, 1, 1] if month < 3 else [1, 5, 1, 1]
            values = rng.standard_normal((rows, 4)) * scale
            values[rng.random(values.shape) < share] = np.nan
            path = tmp_path / f"{site}-{month}.parquet"
            write_table(path, values, NAMES)
            given += ["--site", f"{site}={path}"]
    return given


OPTIONS = ("--epsilon", 4, "-k", 1, "--no-plots", "--fan-out", 2, "--one-row-per-person")


@pytest.mark.parametrize("missing", ["leave-out", "independent"])
def test_a_tree_that_forgets_follows_a_change_and_is_charged_once(tmp_path, run, missing):
    files = monthly(tmp_path, 5, share=0.0 if missing == "leave-out" else 0.3)
    tree = ("federate-tree", *files, *OPTIONS, "--missing", missing, "--overwrite")
    ledgers = tmp_path / "ledgers"
    out = tmp_path / "out"
    printed = run.done(*tree, "--forgetting", 0.3, "--out", out, "--ledgers", ledgers)
    words = " ".join(printed.split())
    assert "5 rounds: at each further one, older rows count 0.3 times" in words
    assert "guarantee: (4, 1e-6)" in words
    model = PrivateStreamingPCA.load(out / "model.npz")
    assert abs(model.components_[0, 1]) > 0.9
    # of the last month's rows all, of the others' .3, .09, ...
    assert model.n_samples_ == pytest.approx(2400 * (1 - 0.3**5) / 0.7, rel=0.1)
    assert "VALID" in run.done("certify", out)
    plan = json.loads((out / "certificate.json").read_text())["plan"]
    assert (plan["publish"], plan["forgetting"], plan["missing"]) == ("blocks", 0.3, missing)
    printed = run.done("ledger", "show", ledgers / "north.ledger", "--json")
    assert len([s for s in json.loads(printed)["sessions"] if s["charges"]]) == 1
    # all rows alike: three months outvote two
    assert run(*tree, "--out", out)[0] == 0
    assert abs(PrivateStreamingPCA.load(out / "model.npz").components_[0, 0]) > 0.9


def test_forgetting_nothing_is_a_tree_as_before(tmp_path, run):
    files = monthly(tmp_path, 2)
    found = []
    for more in ((), ("--forgetting", 1.0)):
        out = tmp_path / f"out{len(more)}"
        assert run("federate-tree", *files, *OPTIONS, "--seed", 3, *more, "--out", out)[0] == 0
        found.append(PrivateStreamingPCA.load(out / "model.npz"))
    assert np.array_equal(found[0].components_, found[1].components_)
    assert found[0].certificate_.plan == found[1].certificate_.plan


@pytest.mark.parametrize(
    ("drop", "more", "said"),
    [
        (1, ("--forgetting", 0.5), "north 2, south 2, west 1"),
        (0, ("--forgetting", 0), "forgetting"),
        (0, ("--forgetting", "nan"), "forgetting"),
        (0, ("--forgetting", 1.5), "forgetting"),
        (0, ("--forgetting", 0.5, "--unit", "a"), "protects no units"),
        (0, ("--forgetting", 0.5, "--missing", "drop"), "'independent'"),
    ],
)
def test_what_cannot_be_a_round_is_refused_and_nothing_is_charged(tmp_path, run, drop, more, said):
    files = monthly(tmp_path, 2, rows=20)
    files = files[: len(files) - 2 * drop]
    options = OPTIONS if "--unit" not in more else OPTIONS[:-1]
    err = run.fails(
        "federate-tree",
        *files,
        *options,
        *more,
        "--ledgers",
        tmp_path / "l",
        "--out",
        tmp_path / "o",
    )
    assert said in " ".join(err.split())
    assert not (tmp_path / "o").exists()
    assert not list((tmp_path / "l").glob("*.ledger"))


def test_one_file_a_site_has_nothing_to_forget_and_one_file_is_one_round(tmp_path, run):
    files = monthly(tmp_path, 1, rows=20)
    out = ("--out", tmp_path / "o")
    err = run.fails("federate-tree", *files, *OPTIONS, "--forgetting", 0.5, *out)
    assert "--forgetting is for several rounds" in err
    err = run.fails("federate-tree", *files, *files, *OPTIONS, "--forgetting", 0.5, *out)
    assert "is given twice" in err


def test_rows_that_cannot_be_read_in_a_later_round_cost_nothing():
    study = make_tree_study(
        MergeTree(2, 1), features=4, n_components=1, epsilon=1.0, publish="blocks", forgetting=0.5
    )
    good = array_rows(np.eye(4), None)
    bad = mock.Mock(wraps=good, features=4, names=None, newlines_in_cells=False)
    bad.blocks.side_effect = OSError("gone")
    charges = mock.Mock()
    with pytest.raises(OSError, match="gone"):
        fit_tree(study, {"a": good, "b": good}, {"a": good, "b": bad}, charges=[charges])
    charges.charge.assert_not_called()
    once = make_tree_study(MergeTree(2, 1), features=4, n_components=1, epsilon=1.0)
    rounds = [{"a": good, "b": good}] * 2
    with pytest.raises(ProtocolError) as error:
        fit_tree(once, *rounds, charges=[charges])
    assert error.value.code == "one-round"
    charges.charge.assert_not_called()
