"""Streams that change and trees whose parties differ: verdicts of made-up numbers, and few runs.

What is measured is seeded: it comes out the same every time.
"""

import numpy as np
import pytest

from eigenveil.federation.tree.private import make_tree_study
from eigenveil_papers.reproduction import paper002_changing as changing
from eigenveil_papers.reproduction.experiment import RunSettings
from eigenveil_papers.reproduction.numbers import Measured, Numbers

SPREAD = (-0.001, 0.0, 0.001)
"""About each value, of three runs."""


def outcomes(panel: str, values: dict[str, dict[float, float]]) -> dict[str, tuple[int, int]]:
    """Positions at which claims that were tested are shown and contradicted."""
    numbers = Numbers(
        Measured(panel, series, x, value * (1 + turn), run)
        for series, of in values.items()
        for x, value in of.items()
        for run, turn in enumerate(SPREAD)
    )
    claims = changing.CHANGING.claims(numbers, RunSettings())
    tested = {claim.statement: claim.verdict for claim in claims if claim.verdict.positions}
    return {words: (of.shown, of.contradicted) for words, of in tested.items()}


@pytest.mark.parametrize(("after", "found"), [(0.9, (2, 0)), (0.4, (0, 2))])
def test_before_a_jump_forgetting_is_to_cost_nothing_and_after_it_to_help(after, found):
    least = {40.0: 0.7, 80.0: 0.95}
    values = {"lambda-0.9": {**least, 90.0: after, 160.0: after}}
    values["lambda-1"] = {40.0: 0.95, 80.0: 0.95, 90.0: 0.5, 160.0: 0.5}
    told = outcomes("jump", values)
    assert [told.pop(words) for words in tuple(told) if "after a jump" in words] == [found]
    assert [*told.values()] == [(1, 1)]


@pytest.mark.parametrize(
    ("panel", "series", "whole", "what"),
    [
        ("failing", "fpca-open", 1.0, "at random"),
        ("failing", "fpca-open-region", 1.0, "fail together"),
        ("unequal", "fpca-open", 1.0, "no mask; beside equal"),
        ("unequal", "fpca-1", 1.0, "under the mask (not said, asked here)"),
        ("holes", "eigenveil", 0.0, "private streams"),
        ("holes", "eigenveil-tree", 0.0, "private trees"),
    ],
)
def test_what_is_lost_is_held_against_nothing_lost_and_that_is_no_position(
    panel, series, whole, what
):
    found = outcomes(panel, {series: {whole: 0.9, 0.5: 0.895, 64.0: 0.8}})
    assert [*found.values()] == [(1, 1)]
    assert what in "".join(found)


@pytest.mark.parametrize(("later", "found"), [(0.99, (2, 0)), (0.4, (0, 2))])
def test_batches_after_the_first_are_asked_to_improve_it(later, found):
    values = {"first-T": {1.0: 0.9, 2.0: later}}
    ((words, (shown, contradicted)),) = outcomes("first-batch", values).items()
    assert "improve it" in words
    assert (shown > 0, contradicted > 0) == (found[0] > 0, found[1] > 0)


@pytest.mark.parametrize(("far", "found"), [(0.01, (1, 0)), (0.05, (0, 1))])
def test_merges_in_the_order_of_arrival_are_judged_by_their_distance(far, found):
    values = {"fpca-open": {64.0: far}, "tree": {64.0: 0.011}}
    assert [*outcomes("arriving", values).values()] == [found]


def points(work, **arguments) -> dict[tuple[str, float], float]:
    found = [
        {(of.series, of.x): of.value for of in work(np.random.default_rng(seed), **arguments)}
        for seed in range(3)
    ]
    return {key: float(np.mean([of[key] for of in found])) for key in found[0]}


def test_a_stream_that_forgets_follows_a_jump_which_the_other_does_not():
    found = points(changing.jump, blocks=160, every=40)
    assert found["lambda-1", 80] > 0.99
    assert found["lambda-1", 160] < 0.8 < 0.98 < found["lambda-0.9", 160]
    assert found["eigenveil-open", 160] > 0.98


def test_rows_after_the_first_batch_spoil_it_and_batches_of_its_size_do_not():
    found = points(changing.first_batch, omega_0=0.01)
    assert found["first-T", 1.0] > 0.9
    assert found["first-T", 2.0] < 0.6
    assert found["all-T", 2.0] > 0.9


def test_leaves_that_are_lost_matter_where_nobody_else_has_their_direction():
    found = points(changing.failing, shares=[1.0, 0.5])
    for series in ("fpca-open", "eigenveil"):
        assert found[series, 0.5] > 0.95
        assert found[f"{series}-region", 0.5] < 0.7


def test_private_results_are_held_to_the_masks_own_neighbours(monkeypatch):
    def study(*tree, **options):
        asked.append(options["adjacency"])
        return make_tree_study(*tree, **options)

    asked = [changing._private(1.0, 0).adjacency]
    monkeypatch.setattr(changing, "make_tree_study", study)
    points(changing.failing, shares=[1.0])
    assert set(asked) == {"replace-one"}
    assert len(asked) > 1


def test_masked_bases_weigh_the_same_whatever_their_rows():
    found = points(changing.unequal, ratios=[1.0, 64.0])
    assert found["fpca-1", 1.0] == pytest.approx(found["weighed", 1.0], abs=1e-3)
    assert found["fpca-1", 64.0] < found["weighed", 64.0] - 0.02
