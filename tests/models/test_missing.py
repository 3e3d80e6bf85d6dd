"""Missing entries: counted, corrected for, and filled by least squares in a transform."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import (
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
)
from eigenveil.cli.app import main
from eigenveil.errors import DataError, EigenveilError, InvalidRowsWarning
from eigenveil.io import open_rows
from eigenveil.models.certify import plan_of
from eigenveil.models.holes import Observed, corrected, scores_of_observed
from eigenveil.models.task import TASKS
from eigenveil.moments.histograms import ObservedCounts, ObservedPairs
from eigenveil.moments.preparation import Preparation
from eigenveil.moments.rows import Block, RowRule
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record

D = 5
SEEDS = st.integers(0, 2**32 - 1)


def holed(seed, rows=400, share=0.3, scale=(9.0, 5.0, 1.0, 1.0, 1.0)):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, D)) * scale @ np.linalg.qr(rng.standard_normal((D, D)))[0]
    X[rng.random(X.shape) < share] = np.nan
    return X


@given(seed=SEEDS, precision=st.sampled_from(["single", "double"]), bound=st.sampled_from([0, 2.0]))
def test_a_row_with_holes_is_no_longer_than_one_and_zero_where_nothing_is(seed, precision, bound):
    X = holed(seed, 30, share=0.6).astype(np.float32 if precision == "single" else np.float64)
    rule = RowRule(
        np.ones(D), bound=bound, precision=precision, preparation=Preparation(holes=True)
    )
    rows, squares = rule(Block(X))
    assert (rows[np.isnan(X)] == 0).all()
    assert squares.max() <= 4.0**rule.bits
    if bound == 0:
        share = np.count_nonzero(~np.isnan(X), axis=1) / D
        assert squares / 4.0**rule.bits == pytest.approx(share, abs=0.02)


def test_only_what_is_not_a_number_is_a_hole():
    block = Block(np.array([[1.0, np.nan], [np.inf, 1.0], [np.nan, np.nan]]))
    rows, _ = block.residuals(None, "double", Preparation(holes=True))
    assert rows.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert block.invalid == 1
    assert block.first_invalid.row == 1


@pytest.mark.parametrize("kind", [ObservedCounts, ObservedPairs])
def test_a_row_moves_counts_by_no_more_than_recorded(kind):
    """All columns against none is the worst, and reaches it."""
    record = calibrated_record(
        kind(D), name="a", adjacency="replace-one", kind="gaussian", budget=StepBudget(mu=1.0)
    )
    found = []
    for one in range(2**D):
        for other in range(2**D):
            sums = [kind(D), kind(D)]
            for total, columns in zip(sums, (one, other), strict=True):
                row = [1.0 if columns >> j & 1 else np.nan for j in range(D)]
                total.update(Block(np.array([row])))
            found.append(np.linalg.norm(sums[0].integers() - sums[1].integers()))
    assert max(found) == pytest.approx(record.sensitivity())


@given(seed=SEEDS)
def test_counts_merge(seed):
    X = holed(seed, 20)
    for kind in (ObservedCounts, ObservedPairs):
        whole, parts = kind(D), [kind(D), kind(D)]
        whole.update(Block(X))
        for part, rows in zip(parts, (X[:7], X[7:]), strict=True):
            part.update(Block(rows))
        parts[0].merge(parts[1])
        assert np.array_equal(whole.integers(), parts[0].integers())


@pytest.mark.parametrize("pairs", [False, True])
def test_without_noise_a_moment_is_what_it_would_be_without_holes(pairs):
    rng = np.random.default_rng()
    X = rng.standard_normal((200_000, D)) @ rng.standard_normal((D, D))
    there = rng.random(X.shape) < np.linspace(0.5, 0.9, D)
    moment, Z = X.T @ X, np.where(there, X, 0.0)
    counts = there.T.astype(float) @ there if pairs else there.sum(0).astype(float)
    kept = Observed(counts, 0.01).kept(len(X))
    found = corrected(Z.T @ Z, 1e-9, kept, components=D)
    # entries have errors of one part in 100 or so
    assert np.linalg.norm(found.matrix - moment) < 0.05 * np.linalg.norm(moment)
    assert found.seen_in_all == pytest.approx(np.trace(moment) / np.trace(Z.T @ Z), rel=0.05)


def test_where_noise_hides_what_a_correction_mends_there_is_none():
    matrix = np.diag([3.0, 2.0, 1.0])
    kept = Observed(np.array([60.0, 90.0, 30.0]), 1.0).kept(100.0)
    assert np.array_equal(
        corrected(matrix, 1e3, kept, components=1).matrix / matrix.trace() > 0, matrix > 0
    )


@given(seed=SEEDS)
def test_scores_of_holes_are_least_squares(seed):
    rng = np.random.default_rng(seed)
    components = np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    scores = rng.standard_normal((9, 2))
    rows = scores @ components
    rows[rng.random(rows.shape) < 0.3] = np.nan
    there = ~np.isnan(rows)
    # entries that settle both scores, and not just barely
    enough = np.array(
        [np.linalg.svd(components[:, o])[1][-1] > 0.01 if o.sum() > 1 else False for o in there]
    )
    found = scores_of_observed(rows, components)
    assert np.allclose(found[enough], scores[enough], atol=1e-5)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("missing", ["zero", "independent", "pairs"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_fit_with_holes_is_certified_and_transforms_them(missing, adjacency):
    X = holed(3, 4000)
    model = PrivatePCA(2, epsilon=8.0, delta=1e-5, missing=missing, adjacency=adjacency).fit(X)
    assert plan_of(model.certificate_).missing == missing
    assert model.guarantee_.certified
    assert model.guarantee_.epsilon <= 8.0
    assert np.isfinite(model.transform(X)).all()


def test_variances_are_those_of_whole_rows():
    rng = np.random.default_rng()
    X = rng.standard_normal((60_000, 3)) * [6.0, 3.0, 2.0]
    X[rng.random(X.shape) < [0.5, 0.2, 0.3]] = np.nan
    model = PrivatePCA(2, epsilon=20.0, delta=1e-5, missing="independent").fit(X)
    assert model.explained_variance_ == pytest.approx([36, 9], rel=0.2)
    covariance = PrivateCovariance(epsilon=20.0, delta=1e-5, missing="independent").fit(X)
    assert np.diag(covariance.covariance_) == pytest.approx([36, 9, 4], rel=0.2)


def test_sites_and_one_table_release_the_same():
    X = holed(5, 3000)
    options = {"epsilon": 4.0, "delta": 1e-5, "missing": "independent", "random_state": 1}
    alone = PrivatePCA(2, **options).fit(X)
    sites = FederatedPCA(2, **options).fit([X[:1000], X[1000:]])
    names = [[record.name for record in each.certificate_.releases] for each in (alone, sites)]
    assert names[0] == names[1]
    assert names[0][0] == "observed entries"
    assert abs(alone.components_ @ sites.components_.T).diagonal() == pytest.approx(1, abs=0.05)


# -- Rows left out, where what is missing depends on what is there: the older are incomplete.

AGES = np.random.default_rng(11)
AGE = AGES.uniform(1.0, 80.0, 12_000)
BY_AGE = np.column_stack([AGE, 100.0 + AGE, np.full(AGE.size, 70.0)])
BY_AGE[:, 1:] += AGES.normal(0, 1, (AGE.size, 2)) * [15.0, 9.0]
BY_AGE[AGES.random(AGE.size) < AGE / 90.0, 1] = np.nan
COMPLETE = BY_AGE[~np.isnan(BY_AGE).any(axis=1)]
RULE = "missing='leave-out' leaves out every row with a missing or infinite entry.*'independent'"
LEFT = {
    "pca": lambda **more: PrivatePCA(2, epsilon=20.0, **more),
    "scaled": lambda **more: PrivatePCA(2, epsilon=20.0, scale="private", **more),
    "covariance": lambda **more: PrivateCovariance(epsilon=20.0, **more),
    "mixture": lambda **more: PrivateGaussianMixture(2, epsilon=20.0, **more),
}
quiet = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def as_given(way, rows, folder):
    """A call that fits an estimator to rows that come in some way."""
    match way:
        case "array":
            return lambda model: model.fit(rows)
        case "frame":
            return lambda model: model.fit(pd.DataFrame(rows, columns=["age", "b", "c"]))
        case "file":
            path = folder / f"{len(rows)}.csv"
            pd.DataFrame(rows, columns=["age", "b", "c"]).to_csv(path, index=False)
            return lambda model: model.fit_rows(open_rows([path]))
        case "dask":
            dask = pytest.importorskip("dask.array")
            return lambda model: model.fit(dask.from_array(rows, chunks=(2500, 3)))


@quiet
@pytest.mark.filterwarnings("ignore::eigenveil.InvalidRowsWarning")
@pytest.mark.parametrize(
    ("kind", "adjacency", "way"),
    [(kind, each, "array") for kind in LEFT for each in ("add-remove", "replace-one")]
    + [("pca", "replace-one", way) for way in ("frame", "file", "dask")],
)
def test_the_result_is_that_of_the_rows_that_are_complete(kind, adjacency, way, tmp_path):
    """To the last bit, with the same noise: they were zeros, counted in means and histograms."""
    made = [LEFT[kind](adjacency=adjacency, random_state=3) for _ in range(2)]
    as_given(way, BY_AGE, tmp_path)(made[0])
    as_given(way, COMPLETE, tmp_path)(made[1])
    one, other = (model._result.factors for model in made)
    assert one.released.keys() == other.released.keys()
    for held, known in ((vars(one), vars(other)), (one.released, other.released)):
        for name in held.keys() - {"released"}:
            assert np.array_equal(held[name], known[name]), name
    assert made[0].certificate_.releases == made[1].certificate_.releases


@quiet
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("made", [PrivatePCA, PrivateCovariance, FederatedPCA])
def test_the_mean_and_the_number_of_rows_are_those_of_complete_rows(made, adjacency):
    """Within eight deviations of the recorded noise: false once in 10^14."""
    bound = 400.0
    model = made(epsilon=20.0, delta=1e-5, row_bound=bound, adjacency=adjacency)
    with pytest.warns(InvalidRowsWarning, match=RULE):
        model.fit(BY_AGE if made is not FederatedPCA else {"a": BY_AGE[:999], "b": BY_AGE[999:]})
    record = next(each for each in model.certificate_.releases if each.name == "center")
    noise = 8.0 * record.noise.scale
    assert abs(model.n_samples_ - len(COMPLETE)) <= noise / record.count_weight
    mean = model.mean_ if hasattr(model, "mean_") else model.location_
    # of the sum, and of the number that it is divided by
    most = (noise * bound + 1.0 + noise / record.count_weight * np.abs(mean)) / len(COMPLETE)
    assert (np.abs(mean - COMPLETE.mean(axis=0)) <= most).all()
    assert most[0] < 2.0 < BY_AGE[:, 0].mean() - COMPLETE[:, 0].mean()


@quiet
@pytest.mark.parametrize("publish", [{}, {"publish": "continual", "horizon": 4}])
def test_a_stream_counts_complete_rows(publish):
    """The histogram's noise, eight deviations: false once in 10^14."""
    made = PrivateStreamingPCA(2, epsilon=20.0, adjacency="replace-one", **publish)
    for block in np.array_split(BY_AGE, 4):
        with pytest.warns(InvalidRowsWarning, match="a missing or infinite entry are left out"):
            made.partial_fit(block)
    made.release()
    record = next(r for r in made.certificate_.releases if r.statistic == "norm-histogram")
    spread = 1.0 if record.stream is None else record.stream.spread(4)
    assert abs(made.n_samples_ - len(COMPLETE)) <= 8.0 * record.noise.scale * spread


@quiet
@pytest.mark.parametrize("kind", LEFT)
def test_the_rule_is_told_whether_a_row_fell_under_it_or_not(kind, tmp_path, capsys):
    """In the guarantee, and where ``show`` and ``certify`` print it; the report lists it, too."""
    said = []
    for rows in (BY_AGE, COMPLETE):
        with warnings.catch_warnings(action="ignore", category=InvalidRowsWarning):
            model = LEFT[kind](random_state=3).fit(rows)
        said.append(model.guarantee_.caveats)
        assert model.certificate_.left_out in model.guarantee_.caveats
    assert said[0] == said[1]
    wanted = "left out" if kind == "mixture" else RULE
    assert re.search(wanted, " ".join(said[0]))
    kept = PrivatePCA(2, epsilon=20.0, missing="zero").fit(BY_AGE)
    kept.save(tmp_path / "model.npz")
    kept.certificate_.write(tmp_path / "certificate.json")
    for words in (["show", tmp_path], ["certify", tmp_path]):
        with pytest.raises(SystemExit):
            main([*map(str, words)])
        assert "infinite entry are left out" in " ".join(capsys.readouterr().out.split())
    assert "rows with an infinite entry are left out" in " ".join(kept.guarantee_.caveats)


@pytest.mark.parametrize("mechanism", ["sketch", "power"])
def test_what_is_not_released_is_not_corrected(mechanism):
    with pytest.raises(EigenveilError) as error:
        PrivatePCA(2, mechanism=mechanism, missing="independent").fit(holed(1))
    assert error.value.code == "cannot-correct"
    with pytest.raises(DataError, match="missing"):
        PrivatePCA(2, missing="drop").fit(holed(1))


@pytest.mark.parametrize("task", ["pca", "covariance"])
@pytest.mark.parametrize("missing", ["independent", "pairs"])
@pytest.mark.parametrize("options", [{}, {"scale": "private"}, {"center": False}])
def test_counts_of_missing_entries_take_no_pass_of_their_own(task, missing, options):
    def passes(**more):
        values = {"mechanism": "gaussian"} | more if task == "pca" else more
        stated = TASKS[task].options("table", epsilon=1.0, delta=1e-5, **options, **values)
        rounds = TASKS[task].make_plan(stated, features=4).rounds
        return [[each.name for each in one] for one in rounds]

    first, *others = passes(missing=missing)
    assert first[0] == "observed entries"
    assert [first[1:], *others] == passes()
