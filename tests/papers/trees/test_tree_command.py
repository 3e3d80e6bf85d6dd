"""``eigenveil simulate-tree``: a small tree from the command line, and what is refused."""

import json

import pytest

SMALL = {
    **{"--nodes": 20, "--fan-out": 3, "--features": 12, "-k": 2, "--sketch-size": 6},
    **{"--rows": 60, "--epsilon": 4, "--late": 0.2},
}


def small(*other):
    """The words of a small tree; of options in pairs, those given stand in place of its own."""
    options = SMALL | dict(zip(other[::2], other[1::2], strict=True))
    return [word for pair in options.items() for word in pair]


def test_a_tree_is_played_and_told_whole(run):
    status, printed, err = run("simulate-tree", *small())
    assert (status, err) == (0, "")
    for words in (
        "20 leaves, 3 children a node",
        "root",
        "14 of 20 leaves arrived (3 late), 840 made-up rows",
        "aggregator at level 3",
        "of a leaf that did not arrive",
        "guarantee of the result: (3.",
        "no masks in the tree",
    ):
        assert words in " ".join(printed.split()), words


@pytest.fixture
def play(run):
    """What a tree of these words says as JSON."""

    def call(*words):
        status, printed, err = run("simulate-tree", *words, "--json")
        assert (status, err) == (0, "")
        return json.loads(printed)

    return call


def test_json_says_the_same(play):
    found = play(*small())
    assert (found["leaves"], found["arrived"], found["rows"]) == (20, 14, 840)
    assert [level["level"] for level in found["levels"]] == [0, 1, 2, 3]
    assert [level["parties"] for level in found["levels"]] == [20, 7, 3, 1]
    assert all(0 <= level["error"] <= 1 for level in found["levels"])
    assert all(level["bytes"] > 8 * 12 * 6 for level in found["levels"][:-1])
    outsider = found["guarantees"]["outsider"]
    assert outsider["certified"]
    assert outsider["epsilon"] <= 4.0
    # 7 of 20 may be lost: 13 make the noise, and a single leaf's part is 13 times less of it
    alone = found["guarantees"]["aggregator at level 1"]
    assert alone["mu"] == pytest.approx(outsider["mu"] * 14**0.5, rel=1e-9)
    assert found["levels"][1]["messages"] >= found["levels"][1]["sent"]


def test_quiet_prints_nothing(run):
    assert run("simulate-tree", *small(), "--quiet") == (0, "", "")


def test_a_seed_repeats_everything_and_certifies_nothing(play):
    first, second = (play(*small("--seed", 5)) for _ in range(2))
    assert not any(view["certified"] for view in first["guarantees"].values())
    for level in (*first["levels"], *second["levels"]):
        for timed in ("seconds", "slowest"):
            del level[timed]
    assert first["levels"] == second["levels"]


def test_where_aggregators_are_protected_every_view_keeps_the_wish(play):
    found = play(*small("--protect", "aggregators"))
    assert all(view["epsilon"] <= 4.0 for view in found["guarantees"].values())


def test_a_lost_sub_tree_is_missing_and_the_promise_is_kept(play):
    found = play(*small("--lost", 0, "--late", 0, "--tolerate", 0.6, "--lost-subtrees", 1))
    assert found["arrived"] in {11, 17, 18}  # less 9 or 3 leaves, or the last 2
    assert found["guarantees"]["outsider"]["certified"]
    assert found["guarantees"]["outsider"]["epsilon"] <= 4.0


def test_more_lost_than_tolerated_releases_nothing(run):
    status, printed, err = run("simulate-tree", *small("--lost", 0.5, "--tolerate", 0.35))
    assert (status, printed) == (4, "")
    assert "10 leaves arrived" in err
    assert "Nothing is released" in err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--nodes", 0), 2, "greater than or equal to 1"),
        (("--fan-out", 1), 3, "fan_out = 1"),
        (("--rows", 0), 2, "greater than or equal to 1"),
        (("--seed", -1), 2, "greater than or equal to 0"),
        (("--lost", 1), 3, "lost = 1.0 is not from 0"),
        (("--lost", -0.1), 3, "lost = -0.1 is not from 0"),
        (("--late", 1.5), 3, "late = 1.5 is not from 0"),
        (("--tolerate", -0.2), 3, "tolerate = -0.2 is not from 0"),
        (("--tolerate", "nan"), 3, "tolerate = nan is not from 0"),
        (("--lost-subtrees", 99), 3, "lost_subtrees = 99 is not between 0 and 10"),
        (("--protect", "nobody"), 3, "protect = 'nobody'"),
        (("-k", 13), 3, "n_components = 13"),
        (("-k", 0), 3, "n_components"),
        (("--sketch-size", 1), 3, "sketch_size must be at least"),
        (("--nodes", 1 << 21), 3, "leaves = 2097152"),
        (("--epsilon", 0), 4, "epsilon"),
        (("--delta", 0), 4, "delta"),
    ],
    ids=str,
)
def test_options_that_cannot_be(words, status, said, run):
    found, printed, err = run("simulate-tree", *small(*words))
    assert (found, printed) == (status, "")
    assert said in err
