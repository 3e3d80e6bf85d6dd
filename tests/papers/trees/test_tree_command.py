"""``eigenveil simulate-tree``: a small tree from the command line, and what is refused."""

import csv
import json

import numpy as np
import pytest

SMALL = (
    *("--nodes", 20, "--fan-out", 3, "--features", 12, "-k", 2, "--sketch-size", 6),
    *("--rows", 60, "--epsilon", 4, "--late", 0.2),
)
FILES = {"tree.csv", "tree.png", "tree.svg", "certificate.json"}


def test_a_tree_is_played_and_written_whole(tmp_path, run):
    out = tmp_path / "tree"
    status, printed, err = run("simulate-tree", *SMALL, "--out", out)
    assert (status, err) == (0, "")
    for words in (
        "20 leaves, 3 children a node",
        "root",
        "14 of 20 leaves arrived (3 late), 840 rows",
        "aggregator at level 3",
        "of a leaf that did not arrive",
        "guarantee of the result: (3.",
        "no masks in the tree",
        "tree.png",
        f"next: eigenveil certify {out}",
    ):
        assert words in " ".join(printed.split()), words
    assert {file.name for file in out.iterdir()} == FILES
    with (out / "tree.csv").open(newline="") as file:
        levels = list(csv.DictReader(file))
    assert [int(level["parties"]) for level in levels] == [20, 7, 3, 1]
    assert int(levels[0]["sent"]) == int(levels[0]["messages"]) == 14
    assert levels[0]["least"] == ""
    assert levels[1]["least"] == "1"
    assert all(0 <= float(level["error"]) <= 1 for level in levels)
    assert all(int(level["bytes"]) > 8 * 12 * 6 for level in levels[:-1])
    assert (out / "tree.svg").read_text().startswith("<?xml")
    status, printed, _ = run("certify", out)
    assert status == 0
    assert "VALID" in printed
    assert "tree" in printed.partition("proofs: ")[2]


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are empty files."""
    monkeypatch.setattr("eigenveil.plots.save_figure", lambda axes, path: path.touch())


@pytest.fixture
def play(tmp_path, run, undrawn):
    """What a tree of these words says as JSON; it lies in the folder `tree`."""

    def call(*words):
        status, printed, err = run(
            "simulate-tree", *words, "--out", tmp_path / "tree", "--json", "--overwrite"
        )
        assert (status, err) == (0, "")
        return json.loads(printed)

    return call


def test_json_says_the_same(play):
    found = play(*SMALL)
    assert (found["leaves"], found["arrived"], found["rows"]) == (20, 14, 840)
    assert [level["level"] for level in found["levels"]] == [0, 1, 2, 3]
    outsider = found["guarantees"]["outsider"]
    assert outsider["certified"]
    assert outsider["epsilon"] <= 4.0
    # 7 of 20 may be lost: 13 make the noise, and a single leaf's part is 13 times less of it
    alone = found["guarantees"]["aggregator at level 1"]
    assert alone["mu"] == pytest.approx(outsider["mu"] * 14**0.5, rel=1e-9)
    assert found["levels"][1]["messages"] >= found["levels"][1]["sent"]


OWN = (
    *("--nodes", 20, "--fan-out", 3, "-k", 2, "--sketch-size", 4, "--epsilon", 8),
    *("--lost", 0.2, "--tolerate", 0.35, "--late", 0.2),
)


@pytest.fixture
def own_rows(tmp_path):
    rows = np.random.default_rng(5).normal(size=(4000, 5)) * np.array([8.0, 5.0, 1.0, 1.0, 1.0])
    names = ",".join(f"x{i}" for i in range(5))
    for name, part in (("one.csv", rows[:2500]), ("two.csv", rows[2500:])):
        np.savetxt(tmp_path / name, part, delimiter=",", header=names, comments="", fmt="%.6f")
    return [tmp_path / "one.csv", tmp_path / "two.csv"]


def test_a_tree_is_played_on_files_of_ones_own(tmp_path, run, play, own_rows):
    """Errors are far below those of a random subspace of two of five directions, about 0.6."""
    found = play(*own_rows, *OWN)
    assert (found["leaves"], found["arrived"], found["rows"]) == (20, 16, 16 * 200)
    assert found["made_up"] is False
    assert found["levels"][-1]["error"] < 0.1
    assert found["levels"][-1]["merged_error"] < 0.01
    assert run("certify", tmp_path / "tree")[0] == 0
    words = ("--columns", "x0,x1,x2", "--sketch-size", 3, "--out", tmp_path / "some")
    status, printed, _ = run("simulate-tree", *own_rows, *OWN, *words)
    assert status == 0
    assert "as private as they are" in " ".join(printed.split())
    assert "made-up" not in printed


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--rows", 5), 2, "--rows is for made-up rows"),
        (("--features", 5), 2, "--features is for made-up rows"),
        (("--nodes", 5000), 3, "4000 rows are too few for 5000 leaves"),
        (("--columns", "nobody"), 3, "nobody"),
    ],
    ids=str,
)
def test_what_files_cannot_have_is_refused(words, status, said, tmp_path, run, own_rows):
    found, _, err = run("simulate-tree", *own_rows, *OWN, *words, "--out", tmp_path / "tree")
    assert found == status
    assert said in err
    assert not (tmp_path / "tree").exists()


def test_a_tree_of_several_rounds_has_one_refreshed_result(tmp_path, run, play, own_rows):
    """Each of the rows in one of them; the certificate is of all rounds."""
    found = play(*own_rows, *OWN, "--rounds", 4, "--forgetting", 0.5)
    assert [each["arrived"] for each in found["rounds"]] == [16] * 4
    assert sum(each["rows"] for each in found["rounds"]) == 4 * 16 * 50
    assert found["rounds"][-1]["error"] == found["levels"][-1]["error"] < 0.3
    certificate = json.loads((tmp_path / "tree" / "certificate.json").read_text())
    assert certificate["plan"]["publish"] == "blocks"
    assert found["guarantees"]["outsider"]["epsilon"] <= 8.0
    assert run("certify", tmp_path / "tree")[0] == 0
    status, printed, _ = run("simulate-tree", *SMALL, "--rounds", 2, "--out", tmp_path / "made-up")
    assert status == 0
    assert "round by round" in printed
    status, _, err = run("simulate-tree", *SMALL, "--forgetting", 0.5, "--out", tmp_path / "no")
    assert (status, "--forgetting is for several rounds" in err) == (2, True)


def test_options_of_files_need_some_and_every_entry_must_be_a_number(tmp_path, run):
    found, _, err = run("simulate-tree", *SMALL, "--columns", "a", "--out", tmp_path / "tree")
    assert (found, "--columns is for files" in err) == (2, True)
    (tmp_path / "bad.csv").write_text("a,b\n" + "1,2\n" * 30 + "1,\n")
    words = ("--nodes", 4, "-k", 1, "--sketch-size", 2, "--out", tmp_path / "tree")
    found, _, err = run("simulate-tree", tmp_path / "bad.csv", *words)
    assert found == 3
    assert "line 32, column 'b' is nan" in err


@pytest.mark.usefixtures("undrawn")
def test_quiet_prints_nothing(tmp_path, run):
    assert run("simulate-tree", *SMALL, "--out", tmp_path / "tree", "--quiet") == (0, "", "")


def test_a_seed_repeats_everything_and_certifies_nothing(tmp_path, run, play):
    first, second = (play(*SMALL, "--seed", 5) for _ in range(2))
    assert not any(view["certified"] for view in first["guarantees"].values())
    assert run("certify", tmp_path / "tree")[0] == 8
    for level in (*first["levels"], *second["levels"]):
        for timed in ("seconds", "slowest", "merged_seconds"):
            del level[timed]
    assert first["levels"] == second["levels"]


def test_where_aggregators_are_protected_every_view_keeps_the_wish(play):
    found = play(*SMALL, "--protect", "aggregators")
    assert all(view["epsilon"] <= 4.0 for view in found["guarantees"].values())


def test_a_lost_sub_tree_is_missing_and_the_promise_is_kept(play):
    found = play(*SMALL, "--lost", 0, "--late", 0, "--tolerate", 0.6, "--lost-subtrees", 1)
    assert found["arrived"] in {11, 17, 18}  # less 9 or 3 leaves, or the last 2
    assert found["guarantees"]["outsider"]["certified"]
    assert found["guarantees"]["outsider"]["epsilon"] <= 4.0


def test_more_lost_than_tolerated_releases_nothing(tmp_path, run):
    out = tmp_path / "tree"
    words = (*SMALL, "--lost", 0.5, "--tolerate", 0.35, "--out", out)
    status, printed, err = run("simulate-tree", *words)
    assert (status, printed) == (4, "")
    assert "10 leaves arrived" in err
    assert "Nothing is released" in err
    assert not out.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--nodes", 1), 2, "--nodes 1 is below 2"),
        (("--fan-out", 1), 2, "--fan-out 1 is below 2"),
        (("--rows", 0), 2, "--rows 0 is below 1"),
        (("--rounds", 0), 2, "--rounds 0 is below 1"),
        (("--rounds", 2, "--forgetting", 0), 3, "forgetting"),
        (("--sketch-size", 0), 2, "--sketch-size 0 is below 1"),
        (("--seed", -1), 2, "--seed -1 is below 0"),
        (("--lost", 1), 2, "--lost = 1.0 is not from 0"),
        (("--lost", -0.1), 2, "--lost = -0.1 is not from 0"),
        (("--late", 1.5), 2, "--late = 1.5 is not from 0"),
        (("--tolerate", -0.2), 2, "--tolerate = -0.2 is not from 0"),
        (("--tolerate", "nan"), 2, "--tolerate = nan is not from 0"),
        (("--lost-subtrees", 99), 3, "lost_subtrees = 99 is not between 0 and 10"),
        (("--protect", "nobody"), 3, "protect = 'nobody'"),
        (("-k", 13), 3, "n_components = 13"),
        (("--sketch-size", 1), 3, "sketch_size must be at least"),
        (("--nodes", 1 << 21), 3, "leaves = 2097152"),
        (("--epsilon", 0), 4, "epsilon"),
        (("--delta", 0), 4, "delta"),
    ],
    ids=str,
)
def test_options_that_cannot_be(words, status, said, tmp_path, run):
    found, printed, err = run("simulate-tree", *SMALL, *words, "--out", tmp_path / "tree")
    assert (found, printed) == (status, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_kept(tmp_path, run):
    (tmp_path / "tree").mkdir()
    for more in ((), ("--overwrite",)):  # it is no result of ours
        status, _, err = run("simulate-tree", *SMALL, "--out", tmp_path / "tree", *more)
        assert status == 7
        assert "exists" in err
