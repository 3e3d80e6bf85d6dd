"""The private score plot: what the cells hold, of tables and of sites, and what it costs."""

import json

import numpy as np
import pandas as pd
import pytest

from eigenveil import FederatedPCA, PrivatePCA, plots
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.pca.plan import CELLS, SCORES, SIDES
from refusal_tools import refuses

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


RANGES = [[-9.0, 14.0], [-12.0, 9.0]] * 4  # whose middles are far from the rows


@pytest.mark.parametrize("kind", [PrivatePCA, FederatedPCA])
@pytest.mark.parametrize(
    "options", [{}, {"ranges": RANGES}, {"ranges": RANGES, "center": [0.4] * 8}]
)
def test_scores_of_scaled_columns_lie_where_transform_puts_them(kind, options):
    """Their mean is off by eight deviations of the noise (1e-15), and by rows at the edge."""
    rows = np.array_split(ROWS, 2) if kind is FederatedPCA else ROWS
    model = fitted(kind, rows, scale="private", epsilon=6.0, **options)
    density = model.score_density_
    for axis, cuts in enumerate(density.edges):
        middles = (cuts[1:] + cuts[:-1]) / 2
        along = density.counts.sum(axis=1 - axis)
        error = density.noise * (np.sum(middles**2) * len(middles)) ** 0.5 / 2000
        mean = np.clip(model.transform(ROWS)[:, axis], cuts[0], cuts[-1]).mean()
        assert along @ middles / 2000 == pytest.approx(mean, abs=8 * error + 0.02 * cuts[-1])


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


TABLE = pd.DataFrame(ROWS, columns=[f"x{i}" for i in range(8)]).assign(
    **{f"kind={level}": (place == GROUP) * 1.0 for place, level in enumerate("uvw")}
)


def by_kind(kind=PrivatePCA, rows=TABLE, **options):
    return fitted(kind, rows, **({"scores_by": "kind"} | options))


def recognised(model, word="kind"):
    """Groups of which the fullest cell is seen, within one cell of their own centre's, and the
    fullest of no other."""
    density, found = model.score_density_, set()
    for place, counts in enumerate(density.counts):
        fullest = np.unravel_index(np.argmax(counts), counts.shape)
        own = TABLE[place == GROUP].rename(columns=lambda name: name.replace("kind", word))
        score = model.transform(own).mean(axis=0)
        wanted = [np.searchsorted(e, x) - 1 for x, e in zip(score, density.edges, strict=True)]
        near = np.abs(np.array(fullest) - wanted).max() <= 1
        if near and density.seen[place][fullest]:
            found.add(fullest)
    return len(found)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adjacency": "replace-one"},
        {"scale": "private", "epsilon": 3.0},
        {"delta": 0.0, "epsilon": 3.0},
        {"row_norm": "auto", "epsilon": 3.0},
        {"row_bound": 9.0},
        {"scores_by": ["kind=u", "kind=v", "kind=w"]},
        {"scores_by": [10, 8, 9]},
    ],
    ids=str,
)
def test_three_groups_are_told_apart(options):
    """At epsilon 1 and 2,000 rows; sums are off by no more than eight deviations (1e-15)."""
    model = by_kind(**options)
    density = model.score_density_
    assert density.groups == tuple("uvw")
    assert recognised(model) == 3
    for place, counts in enumerate(density.counts):
        wide = 8.0 * density.noise * counts.size**0.5
        assert counts.sum() == pytest.approx(np.sum(place == GROUP), abs=wide)
    assert np.all(model.components_[:, 8:] == 0.0)
    means = model.intervals()["mean"]
    assert means.shown[:8].all()
    assert not means.shown[8:].any()
    if not options:  # groups cost nothing
        assert density.noise == pytest.approx(MODEL.score_density_.noise)


def test_sites_count_by_group_together():
    parts = [TABLE.iloc[part] for part in np.array_split(np.arange(2000), 4)]
    model = by_kind(FederatedPCA, parts)
    assert recognised(model) == 3
    assert check(model.certificate_).guarantee is not None


def test_sites_are_told_apart_by_a_column_of_their_names():
    sites = {name: TABLE[place == GROUP].iloc[:, :8] for place, name in enumerate("uvw")}
    parts = {
        name: part.assign(**{f"site={each}": float(each == name) for each in sites})
        for name, part in sites.items()
    }
    model = by_kind(FederatedPCA, parts, scores_by="site")
    assert model.score_density_.groups == tuple("uvw")
    assert recognised(model, "site") == 3


def test_files_are_counted_by_the_levels_of_a_schema(tmp_path, run):
    kinds = np.array(list("uvw"))[GROUP].astype(object)
    kinds[:300] = None  # of no group, and of unknown ones
    TABLE.iloc[:, :8].assign(kind=kinds).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.toml").write_text(
        'format = "eigenveil-schema-1"\n'
        + "".join(f'[[columns]]\nname = "x{i}"\nkind = "number"\n' for i in range(8))
        + '[[columns]]\nname = "kind"\nkind = "category"\nlevels = ["u", "v", "w"]\n'
    )
    words = ("fit", tmp_path / "t.csv", "--schema", tmp_path / "schema.toml", "--no-ledger")
    words += ("--components", "2", "--one-row-per-person", "--scores", "--quiet", "--epsilon", "3")
    out = tmp_path / "out"
    assert run(*words, "--scores-by", "kind", "--out", out)[0] == 0
    shown = json.loads(run("show", out, "--json")[1])["scores"]
    assert shown["groups"] == ["u", "v", "w"]
    assert np.array(shown["counts"]).ndim == 3
    assert run("certify", out)[0] == 0
    assert run("report", out)[0] == 0
    for columns, said in (("x1", "no category"), ("nobody", "there is none")):
        assert said in run.fails(*words, "--scores-by", columns, "--out", tmp_path / "no")
        assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("rows", "hidden"), [("2000", False), ("100", True)])
def test_a_plan_says_before_it_is_paid_whether_groups_would_be_seen(rows, hidden, run):
    words = ("plan", "--rows", rows, "--features", "11", "--scores")
    said = run.done(*words, "--components", "2", "--scores-by", "8,9,10", "--epsilon", "1")
    said = " ".join(said.split())
    assert "scores by 3 groups: " in said
    assert ("Noise would hide most of them" in said) == hidden
    assert "n_components = 12" in run.fails(*words, "--components", "12")


def test_groups_are_drawn_a_colour_each():
    axes = plots.plot_score_density(by_kind())
    seen = by_kind().score_density_.seen
    dots = [len(each.get_offsets()) for each in axes.collections]
    assert dots == seen.reshape(3, -1).sum(axis=1).tolist()
    colours = {tuple(each.get_facecolor()[0]) for each in axes.collections}
    assert len(colours) == 3
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list("uvw")
    line = plots.plot_score_density(by_kind(n_components=1))
    assert [text.get_text() for text in line.get_legend().get_texts()] == list("uvw")


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("scores-by-without-scores", {"scores": False}),
        ("no-such-covariate", {"scores_by": "nobody"}),
        ("score-groups", {"scores_by": ["kind=u"]}),
        ("all-covariates", {"scores_by": list(TABLE)}),
        ("covariates-beside", {"covariates": ["x1"]}),
        ("covariates-beside", {"mechanism": "adaptive"}),
        ("covariates-beside", {"missing": "independent"}),
        ("too-many-with-covariates", {"n_components": 9}),
        ("bad-parameter", {"scores_by": 3.5}),
        ("bad-parameter", {"scores_by": []}),
        ("bad-parameter", {"scores_by": ["kind=u", "kind=u"]}),
    ],
)
def test_groups_that_cannot_be_are_refused(code, options, tmp_path):
    given = {"n_components": 2, "scores": True, "scores_by": "kind"} | options
    given["ledger"] = str(tmp_path / "none.ledger")
    with refuses(code, kind=Exception):
        PrivatePCA(**given).fit(TABLE)
    assert not (tmp_path / "none.ledger").exists()


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
    with refuses("no-scores"):
        plots.plot_score_density(PrivatePCA(2).fit(ROWS))
    split = {"scale": 0.1, "center": 0.1, "moment": 0.7, "scores": 0.1}
    with refuses("scores-without-variances", "variances", kind=Exception):
        PrivatePCA(2, scores=True, budget_split=split).fit(ROWS)


def test_constant_rows_have_no_scores_and_are_no_error():
    model = PrivatePCA(2, scores=True).fit(np.full((500, 4), 3.0))
    if (density := model.score_density_) is not None:
        assert np.isfinite(density.counts).all()
