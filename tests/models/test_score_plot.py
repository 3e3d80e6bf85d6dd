"""The private score plot: what the cells hold, of tables and of sites, and what it costs."""

import json

import numpy as np
import pytest

from eigenveil import DataError, FederatedPCA, PrivatePCA, plots
from eigenveil.models.pca.plan import CELLS, SCORES, SIDES

RNG = np.random.default_rng(7)
GROUP = RNG.integers(3, size=2000)
CENTERS = np.array([[4.0, 0.0], [-3.0, 3.0], [-2.0, -4.0]])
AXES = np.linalg.qr(RNG.standard_normal((8, 2)))[0].T
ROWS = CENTERS[GROUP] @ AXES + 0.7 * RNG.standard_normal((2000, 8))


def fitted(kind=PrivatePCA, rows=ROWS, **options):
    options = {"n_components": 2, "epsilon": 1.0, "delta": 1e-5, "random_state": 3} | options
    return kind(**options, scores=True).fit(rows)


MODEL = fitted()


def of_all(density):
    """What the noise of all cells together does not exceed but once in 1e15."""
    return 8.0 * density.noise * density.counts.size**0.5


def exact(model, rows):
    """Counts of the rows in the same cells, from their own scores."""
    scores = model.transform(rows)
    edges = model.score_density_.edges
    inside = [np.clip(each, cuts[0], cuts[-1]) for each, cuts in zip(scores.T, edges, strict=False)]
    return np.histogramdd(np.array(inside).T, edges)[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delta": 0.0, "epsilon": 3.0},
        {"scale": "private", "epsilon": 3.0},
        {"n_components": 1},
        {"adjacency": "replace-one"},
        {"mechanism": "sketch"},
        {"row_norm": 9.0},
    ],
    ids=str,
)
def test_cells_hold_the_rows_that_are_in_them(options):
    """Off by noise and by rows at the edge: of 49 cells or more none beyond 7 deviations (1e-10)
    and a tenth of the rows."""
    model = fitted(**options)
    density = model.score_density_
    off = np.abs(density.counts - exact(model, ROWS))
    assert np.all(off < 7.0 * density.noise + 0.1 * len(ROWS))
    assert np.median(off) < 2.0 * density.noise
    assert density.counts.sum() == pytest.approx(
        2000, abs=8 * density.noise * density.counts.size**0.5
    )


def test_three_groups_are_seen():
    """At 2,000 rows and epsilon 1 the cells of each centre stand out, and few others."""
    density, model = MODEL.score_density_, MODEL
    assert density.counts.shape == (7, 7)
    for center in CENTERS @ AXES:
        place = model.transform(center[None])[0]
        cell = tuple(
            int(np.searchsorted(cuts, x) - 1) for x, cuts in zip(place, density.edges, strict=True)
        )
        around = density.counts[
            max(cell[0] - 1, 0) : cell[0] + 2, max(cell[1] - 1, 0) : cell[1] + 2
        ]
        assert around.max() > 6.0 * density.noise
    assert np.count_nonzero(density.seen) < 25


def test_sites_count_together():
    model = fitted(FederatedPCA, np.array_split(ROWS, 4))
    off = np.abs(model.score_density_.counts - exact(model, ROWS))
    assert np.median(off) < 2.0 * model.score_density_.noise


def test_persons_count_once():
    model = PrivatePCA(2, epsilon=3.0, unit="person", scores=True)
    density = model.fit(ROWS, groups=np.arange(2000) // 4).score_density_
    assert density.counts.sum() == pytest.approx(
        500, abs=8 * density.noise * density.counts.size**0.5
    )


def test_a_tenth_of_the_budget_pays_for_it():
    plan = MODEL.plan_
    assert plan.fractions[SCORES] == pytest.approx(0.1)
    assert sum(plan.fractions.values()) == pytest.approx(1.0)
    record = next(each for each in MODEL.certificate_.releases if each.name == SCORES)
    assert "scores.md" in MODEL.certificate_.proofs
    assert record.sensitivity() == 1.0
    assert SCORES not in PrivatePCA(2).fit(ROWS).plan_.fractions


def test_it_is_kept_shown_and_drawn(tmp_path, run):
    MODEL.save(tmp_path / "model.npz")
    again = PrivatePCA.load(tmp_path / "model.npz").score_density_
    np.testing.assert_array_equal(again.counts, MODEL.score_density_.counts)
    assert plots.plot_score_density(MODEL).get_title()
    plots.plot_score_density(fitted(n_components=1))
    np.save(tmp_path / "rows.npy", ROWS)
    words = ("fit", tmp_path / "rows.npy", "--components", "2", "--scores", "--no-ledger")
    assert run(*words, "--one-row-per-person", "--out", tmp_path / "out", "--quiet")[0] == 0
    assert (tmp_path / "out" / "scores.png").exists()
    shown = json.loads(run("show", tmp_path / "out", "--json")[1])["scores"]
    assert {"counts", "edges", "noise"} == shown.keys()
    assert run("certify", tmp_path / "out")[0] == 0


def test_grids_are_within_what_a_plan_allows():
    assert len(fitted(epsilon=40.0).score_density_.counts) <= SIDES[-1]
    assert fitted(n_components=1, epsilon=40.0).score_density_.counts.size <= CELLS[-1]
    few = fitted(epsilon=0.05)
    assert few.score_density_ is None or len(few.score_density_.counts) >= SIDES[0]


def test_what_cannot_be_is_refused():
    assert PrivatePCA(2).fit(ROWS).score_density_ is None
    with pytest.raises(DataError) as caught:
        plots.plot_score_density(PrivatePCA(2).fit(ROWS))
    assert caught.value.code == "no-scores"
    split = {"scale": 0.1, "center": 0.1, "moment": 0.7, "scores": 0.1}
    with pytest.raises(Exception, match="variances") as caught:
        PrivatePCA(2, scores=True, budget_split=split).fit(ROWS)
    assert caught.value.code == "scores-without-variances"


def test_constant_rows_have_no_scores_and_are_no_error():
    model = PrivatePCA(2, scores=True).fit(np.full((500, 4), 3.0))
    if (density := model.score_density_) is not None:
        assert np.isfinite(density.counts).all()
