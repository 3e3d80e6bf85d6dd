"""Scales of columns: found in histograms, refined from the moment, public, and refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import FederatedPCA, NoisyResultWarning, PrivatePCA, PrivateStreamingPCA
from eigenveil.errors import DataError, PrivacyError
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.certify import check_against_plan, plan_of
from eigenveil.models.pca.second_moment import correlation_of, edge_growth
from eigenveil.models.schedule import CLOSER_RANGES, COLUMN_RANGES, COLUMNS
from eigenveil.moments.histograms import ColumnHistogram, range_of
from eigenveil.moments.preparation import AS_IT_IS
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.privacy.certificate import plan_hash
from eigenveil.privacy.releases import ALONE
from eigenveil.tables.scales import LIMIT, closer_ranges, ranges_of, scales_of
from refusal_tools import refuses
from soak_tools import some

# Hardly any noise, and always the same
EXACT = {"epsilon": 20.0, "delta": 1e-5, "random_state": 1}
RNG = np.random.default_rng


def scales(rows, *, mu=1e4, variables=None, seed=0, winsorize=None):
    """The three rounds over rows, with hardly any noise by default."""
    rows, source = np.asarray(rows, dtype=float), SeededSource(RNG(seed))

    def released(preparation):
        total = ColumnHistogram(
            rows.shape[1], precision="double", preparation=preparation, variables=variables
        )
        total.update(Block(rows))
        record = calibrated_record(
            total, name="a", adjacency="add-remove", kind="gaussian", budget=StepBudget(mu=mu)
        )
        return total.release(record, source)

    first = released(AS_IT_IS)
    ranges = ranges_of(first, rows.shape[1], winsorize)
    second = released(range_of(ranges.middle, ranges.half, holes=False))
    closer = closer_ranges(second, ranges)
    third = released(range_of(closer.middle, closer.half, holes=False))
    return scales_of((first, second, third), ranges, closer, variables)


COLUMNS_OF_ALL_KINDS = {
    "standard": lambda z: z,
    "years": lambda z: 2000 + 5 * z,
    "density": lambda z: 0.9967 + 0.0019 * z,
    "small": lambda z: 1e-6 * (3 + z),
    "large": lambda z: -1e7 * (20 + z),
    "skewed": lambda z: np.exp(z),
    "whole numbers": lambda z: np.rint(3 * z),
    "two values": lambda z: np.where(z > 1, 7.0, 3.0),
    "mostly zero": lambda z: np.where(z > 1.5, 1.0, 0.0),
}


@pytest.mark.parametrize("kind", COLUMNS_OF_ALL_KINDS)
def test_the_scale_of_a_column_is_its_deviation(kind):
    """To a tenth where hardly any noise is in the way: that much is lost to bins."""
    column = COLUMNS_OF_ALL_KINDS[kind](RNG(1).standard_normal(20_000))
    found = scales(column[:, None])
    deviation = column.std()
    assert found.scale[0] == pytest.approx(deviation, rel=0.1)
    assert abs(found.offset[0] - column.mean()) < 0.1 * deviation


@pytest.mark.parametrize("value", [0.0, 1.0, -3.7, 2000.0, 1e-12, 1e12])
def test_a_constant_column_has_no_scale(value):
    found = scales(np.full((1000, 1), value))
    assert found.scale[0] == 0


def test_a_column_of_which_too_few_rows_show_has_no_scale():
    rows = RNG(2).standard_normal((200, 3))
    for seed in range(5):
        assert not scales(rows, mu=0.02, seed=seed).scale.any()


def test_a_level_has_the_scale_of_its_share():
    shares = np.array([0.6, 0.3, 0.09, 0.01])
    levels = RNG(3).choice(4, size=40_000, p=shares)
    rows = np.column_stack([RNG(4).standard_normal(40_000), np.eye(4)[levels]])
    variables = np.array([0.0, 1, 1, 1, 1])
    found = scales(rows, variables=variables)
    wanted = np.sqrt(shares * (1 - shares))
    assert found.scale[1:] == pytest.approx(wanted, rel=0.05)
    assert found.offset[1:] == pytest.approx(shares, rel=0.05)


@given(shift=st.integers(-3, 3), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_columns_do_not_disturb_one_another(shift, seed):
    """Permuted columns have permuted scales; the order of rows does not matter."""
    rng = RNG(seed)
    rows = rng.standard_normal((3000, 4)) * [1, 10, 0.1, 5] + [0, 100, 0, -3]
    whole = scales(rows, mu=1e6)
    moved = scales(np.roll(rng.permutation(rows), shift, axis=1), mu=1e6)
    assert np.roll(whole.scale, shift) == pytest.approx(moved.scale, rel=1e-3)


# -- from the moment


def elliptical(rows, features, seed=0):
    rng = RNG(seed)
    basis = np.linalg.qr(rng.standard_normal((features, features)))[0]
    eigenvalues = 1.0 / np.arange(1, features + 1) ** 1.2
    return rng.standard_normal((rows, features)) @ (basis * np.sqrt(eigenvalues)) @ basis.T


def refined(rows, factors, *, unit=True):
    """Of rows whose columns were divided by wrong scales, without noise."""
    given_ = rows / rows.std(axis=0) / factors
    if unit:
        given_ = given_ / np.linalg.norm(given_, axis=1)[:, None]
    return correlation_of(
        given_.T @ given_,
        1e-9,
        scaled=np.ones(rows.shape[1], dtype=bool),
        covariates=np.zeros(rows.shape[1], dtype=bool),
        components=3,
        rows=rows.shape[0],
        unit_rows=unit,
    )


def test_wrong_scales_are_corrected_from_unit_rows():
    """And would not be without inverting what division by norms does to the eigenvalues."""
    rows = elliptical(30_000, 10)
    exact = np.corrcoef(rows.T)
    factors = np.exp(0.3 * RNG(5).standard_normal(10))
    found = refined(rows, factors)
    assert captured_energy(exact, found.components) > 0.999
    assert found.factors / found.factors[0] == pytest.approx(factors[0] / factors, rel=0.05)
    moment = rows / rows.std(axis=0) / factors
    moment = moment / np.linalg.norm(moment, axis=1)[:, None]
    diagonal = np.sqrt(np.diag(moment.T @ moment))
    assert diagonal / diagonal[0] != pytest.approx(factors[0] / factors, rel=0.05)


def test_columns_without_a_scale_are_in_no_component():
    rng = RNG(6)
    noisy = rng.standard_normal((5, 5))
    matrix = 50 * (noisy + noisy.T)
    matrix[:3, :3] += np.diag([900.0, 1000.0, 1100.0])
    found = correlation_of(
        matrix,
        1.0,
        scaled=np.array([True, True, True, False, False]),
        covariates=np.zeros(5, dtype=bool),
        components=4,
        rows=3000.0,
        unit_rows=True,
    )
    assert not found.components[:3, 3:].any()
    assert found.components @ found.components.T == pytest.approx(np.eye(4), abs=1e-12)
    assert found.strengths[3] == 0
    assert found.factors[3:].tolist() == [1, 1]


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.7])
def test_the_edge_of_noise_in_other_scales_is_where_its_eigenvalues_end(spread):
    """Within 4 per cent at 600 columns; above it where a few columns have most of the noise."""
    rng = RNG(7)
    factors = np.exp(spread * rng.standard_normal(600))
    noise = rng.standard_normal((600, 600))
    noise = (noise + noise.T) / 2 * np.multiply.outer(factors, factors)
    found = np.linalg.eigvalsh(noise)[-1] / (np.sqrt(2 * 600) * edge_growth(factors**2))
    assert (0.96 if spread < 0.5 else 0.8) < found < 1.04
    assert edge_growth(np.ones(9)) == pytest.approx(1.0, rel=1e-3)


# -- fits


def table(rows=3000, seed=0):
    """Three factors behind eight columns in very different units."""
    rng = RNG(seed)
    z = rng.standard_normal((rows, 3)) @ rng.standard_normal((3, 8))
    z += rng.standard_normal((rows, 8))
    return z * 10.0 ** np.arange(-4, 4) + np.array([0, 1, 0, 50, -7, 2000, 0, 1e4])


def energy(model, rows):
    return captured_energy(np.corrcoef(rows.T), model.components_)


@pytest.mark.parametrize(
    "options",
    some(
        [
            {"delta": 0.0, "epsilon": 40.0, "n_components": 2},
            {"adjacency": "replace-one"},
            {},
            {"row_norm": "auto"},
            {"mechanism": "sketch"},
            {"mechanism": "wishart"},
            {"row_bound": 6.0},
            {"budget_split": {"columns": 0.3, "scale": 0.1, "center": 0.1, "moment": 0.5}},
        ]
    ),
    ids=str,
)
def test_the_components_are_those_of_the_correlation_matrix(options):
    rows = table(6000)
    options = {"n_components": 3, "scale": "private"} | EXACT | options
    model = PrivatePCA(**options).fit(rows)
    assert energy(model, rows) > 0.97
    assert model.usable_.all()
    assert not model.unscaled_.any()
    whole = model.transform(rows)
    assert whole == pytest.approx(
        (rows - model.mean_) / model.scale_ @ model.components_.T, rel=1e-6, abs=1e-6
    )
    back = (model.inverse_transform(whole) - model.mean_) / model.scale_
    assert back == pytest.approx(whole @ model.components_, rel=1e-6, abs=1e-6)


def test_without_scales_they_are_not():
    rows = table()
    assert energy(PrivatePCA(3, **EXACT).fit(rows), rows) < 0.9


def test_scales_and_means_are_in_the_datas_units_and_variances_add_up():
    rows = table()
    model = PrivatePCA(3, scale="private", **EXACT).fit(rows)
    assert model.scale_ == pytest.approx(rows.std(axis=0), rel=0.1)
    assert np.abs((model.mean_ - rows.mean(axis=0)) / rows.std(axis=0)).max() < 0.1
    assert model.total_variance_ == pytest.approx(8)
    exact = np.linalg.eigvalsh(np.corrcoef(rows.T))[::-1][:3]
    assert model.explained_variance_ == pytest.approx(exact, rel=0.15)


def test_a_column_that_shows_nothing_is_left_out_and_told():
    rows = table()
    rows[:, 2], rows[:, 5] = 4.0, 0.0
    with pytest.warns(
        NoisyResultWarning, match="2 columns were left out .*Left out: 2 and 5 .from 0"
    ):
        model = PrivatePCA(2, scale="private", **EXACT).fit(rows)
    assert np.flatnonzero(model.unscaled_).tolist() == [2, 5]
    assert not model.components_[:, [2, 5]].any()
    assert (model.scale_ == 0).tolist() == model.unscaled_.tolist()
    new = rows.copy()
    new[:, [2, 5]] = 1e6
    assert model.transform(new) == pytest.approx(model.transform(rows))
    assert np.isfinite(model.inverse_transform(model.transform(rows))).all()


def test_with_far_too_few_rows_nothing_is_usable_and_the_way_out_is_told():
    with pytest.warns(NoisyResultWarning, match="Give ranges="):
        model = PrivatePCA(2, scale="private", epsilon=0.1).fit(table(60))  # 9 deviations off
    assert not model.usable_.any()
    assert model.unscaled_.all()
    assert model.certificate_.stopped
    assert len(model.certificate_.releases) == 3
    assert model.guarantee_.certified
    assert model.transform(table(5)).tolist() == [[0, 0]] * 5


def test_public_scales_and_ranges_cost_nothing_and_agree():
    rows = table()
    deviations, middle = rows.std(axis=0), rows.mean(axis=0)
    ranges = np.column_stack([middle - 4 * deviations, middle + 4 * deviations])
    for options in ({"scale": deviations}, {"ranges": ranges}):
        model = PrivatePCA(3, **EXACT, **options).fit(rows)
        assert energy(model, rows) > 0.97
        assert "columns" not in model.plan_.fractions
    model = PrivatePCA(3, scale="private", ranges=ranges, **EXACT).fit(rows)
    assert "columns" not in model.plan_.fractions
    assert model.scale_ == pytest.approx(deviations, rel=0.1)
    assert energy(model, rows) > 0.99
    without = PrivatePCA(3, ranges=ranges, **EXACT).fit(rows)
    assert without.scale_ == pytest.approx(4 * deviations)


@given(share=st.floats(1e-3, 0.25), shift=st.floats(-1e3, 1e3), skew=st.sampled_from([0.0, 0.5]))
@settings(deadline=None)
def test_entries_are_clipped_at_the_quantiles_of_their_column(share, shift, skew):
    rows = RNG(5).standard_normal((20_000, 1))
    rows = shift + np.expm1(skew * rows) / skew if skew else shift + rows
    found = scales(rows, winsorize=share)
    ends = found.offset[0] + np.array([-LIMIT, LIMIT]) * found.scale[0]
    quantiles = np.quantile(rows, [share, 1.0 - share])
    assert ends == pytest.approx(quantiles, abs=1.2 * rows.std())  # within a bin


def test_the_columns_of_a_category_are_not_winsorized():
    levels = np.eye(3)[RNG(0).choice(3, size=20_000, p=[0.9, 0.095, 0.005])]
    variables = np.zeros(3)
    with_, without = (scales(levels, variables=variables, winsorize=w) for w in (0.01, None))
    assert np.array_equal(with_.offset, without.offset)
    assert np.array_equal(with_.scale, without.scale)


@pytest.mark.parametrize("federated", [False, True])
def test_winsorized_columns_show_the_components_that_wild_entries_hide(federated):
    rows = table()
    wild = np.where(RNG(3).random(rows.shape) < 0.004, 1e4 * rows, rows)
    clipped = np.clip(wild, *np.quantile(wild, [0.02, 0.98], axis=0))
    given = np.array_split(wild, 3) if federated else wild
    kind = FederatedPCA if federated else PrivatePCA
    model = kind(3, scale="private", winsorize=0.02, **EXACT).fit(given)
    assert energy(model, clipped) > 0.99
    assert model.scale_ == pytest.approx(clipped.std(axis=0), rel=0.1)
    assert energy(kind(3, scale="private", **EXACT).fit(given), clipped) < 0.97
    assert model.certificate_.plan["winsorize"] == 0.02


def test_entries_are_clipped_to_public_ranges():
    rows = table()
    middle, deviations = rows.mean(axis=0), rows.std(axis=0)
    ranges = np.column_stack([middle - 4 * deviations, middle + 4 * deviations])
    wild = rows.copy()
    wild[::3] = np.where(wild[::3] > middle, 1e12, -1e12)
    clipped = np.clip(wild, *ranges.T)
    models = [PrivatePCA(3, ranges=ranges, **EXACT).fit(each) for each in (wild, clipped)]
    assert np.array_equal(models[0].components_, models[1].components_)


OF_TWO = {"age": (18, 90), "pulse": (60, 220)}


@pytest.mark.parametrize("ranges", [list(OF_TWO.values()), OF_TWO, dict(reversed(OF_TWO.items()))])
@pytest.mark.parametrize("kind", [PrivatePCA, FederatedPCA, PrivateStreamingPCA])
def test_a_range_is_a_pair_of_a_column_by_place_or_by_name(kind, ranges, tmp_path):
    """Two columns' pairs were taken for two lows and two highs: 18 to 60, and 90 to 220."""
    frame = pd.DataFrame(RNG(0).uniform([18, 60], [90, 220], (600, 2)), columns=list(OF_TWO))
    rows = [frame, frame.copy()] if kind is FederatedPCA else frame
    model = kind(1, ranges=ranges, **EXACT).fit(rows)
    model.save(tmp_path / "pca.npz")
    for found in (model, kind.load(tmp_path / "pca.npz")):
        assert found.scale_.tolist() == [36, 80]
    if kind is FederatedPCA:
        write_toml(model.study_, tmp_path / "study.toml")
        assert read_study(tmp_path / "study.toml").hash == model.study_.hash
    with refuses("ranges-of-others", "pulses"):
        kind(1, ranges={**OF_TWO, "pulses": (60, 220)}, **EXACT).fit(rows)


BAD = {
    "ends together": (
        {"ranges": [[0, 0], [1, 9]]},
        "bad-ranges",
        r"column index 0 .* empty, 0 to 0.* shape \(n_features, 2\)",
    ),
    "of no names": ({"ranges": {"a": (0, 1), "b": (0, 9)}}, "ranges-of-others", "columns: a and b"),
    "reversed": (
        {"ranges": [[0.0, 1.0], [5.0, 4.0]]},
        "bad-ranges",
        "column index 1 .* reversed",
    ),
    "array not finite": (
        {"ranges": np.array([[0.0, 1], [0, np.nan]])},
        "not-one-a-column",
        "not numb",
    ),
    "too few": ({"ranges": np.zeros((3, 2))}, "not-one-a-column", "2 features"),
    "scales": ({"scale": [1.0, -1.0]}, "bad-scale", "column index 1 .from 0."),
    "scales next to nothing": ({"scale": [1.0, 1e-320]}, "bad-scale", "column index 1 .from 0."),
    "scales too many": ({"scale": np.ones(3)}, "not-one-a-column", "2 features"),
    "scales not finite": ({"scale": np.array([1.0, np.nan])}, "not-one-a-column", "not numbers"),
    "both": ({"scale": [1.0, 1.0], "ranges": [[0, 1]] * 2}, "scales-given-twice", "ranges"),
    "no centre": ({"scale": "private", "center": False}, "scale-without-center", "center"),
    "max": ({"scale": "private", "row_norm": "max"}, "largest-norm-unscaled", "row_norm"),
    "no quantiles": ({"winsorize": 0.01}, "winsorize-without-quantiles", "ranges"),
    "quantiles of ranges": (
        {"winsorize": 0.01, "scale": "private", "ranges": [[0, 1]] * 2},
        "winsorize-without-quantiles",
        "ranges",
    ),
}


@pytest.mark.parametrize("federated", [False, True], ids=["table", "sites"])
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_before_anything_is_charged(case, federated, monkeypatch):
    options, code, text = BAD[case]
    if federated and case == "max":
        return  # which sites do not have
    for source in (SecureSource, SeededSource):
        monkeypatch.setattr(source, "words", lambda *_: 1 / 0)
    rows = RNG(0).standard_normal((50, 2))
    estimator = FederatedPCA if federated else PrivatePCA
    with pytest.raises((DataError, PrivacyError), match=text) as caught:
        estimator(2, **options).fit({"a": rows, "b": rows.copy()} if federated else rows)
    assert caught.value.code == code


# -- many sites, categories, certificates


def test_sites_follow_the_plan_of_one_table():
    rows = table()
    one = PrivatePCA(3, scale="private", **EXACT).fit(rows)
    sites = FederatedPCA(3, scale="private", protocol="cape", **EXACT)
    sites.fit({"a": rows[:900], "b": rows[900:]})
    assert energy(sites, rows) > 0.97
    assert sites.scale_ == pytest.approx(one.scale_, rel=0.1)
    assert [r.name for r in sites.certificate_.releases] == [
        r.name for r in one.certificate_.releases
    ]
    own = {"noise_draws", "noise_source", "sketch_columns"}
    assert sites.plan_.model_dump(exclude=own) == one.plan_.model_dump(exclude=own)
    for first, second in zip(sites.certificate_.releases, one.certificate_.releases, strict=True):
        assert first.noise.size == second.noise.size
        assert first.sensitivity() == pytest.approx(second.sensitivity(), rel=1e-6)


def test_a_category_is_one_variable():
    rng = RNG(8)
    number, level = rng.standard_normal(5000), rng.integers(0, 3, 5000)
    rows = np.column_stack([number + level, np.eye(3)[level]])
    source = ArrayRows(rows)
    source.variables = np.array([0.0, 1.0, 1.0, 1.0])
    model = PrivatePCA(2, scale="private", **EXACT).fit_rows(source)
    assert model.plan_.variables == 2
    records = {record.name: record for record in model.certificate_.releases}
    assert all(records[name].variables == 2 for name in (COLUMNS, COLUMN_RANGES, CLOSER_RANGES))
    assert records[COLUMNS].sensitivity() == pytest.approx(np.sqrt(2))
    assert energy(model, rows) > 0.95
    check(model.certificate_)


def check(certificate):
    check_against_plan(
        certificate, plan_of(certificate), view="outsider", sharing=lambda step: ALONE
    )


def tampered(certificate, plan=None, record=None, index=0):
    fields = dict(certificate.plan) | (plan or {})
    releases = list(certificate.releases)
    if record is not None:
        releases[index] = releases[index].model_copy(update=record)
    return certificate.model_copy(
        update={"plan": fields, "plan_hash": plan_hash(fields), "releases": tuple(releases)}
    )


def test_a_certificate_of_scales_is_checked():
    certificate = PrivatePCA(3, scale="private", epsilon=20.0).fit(table()).certificate_
    assert certificate.guarantee().certified
    check(certificate)
    louder = certificate.releases[0].noise.model_copy(
        update={"scale": 0.5 * certificate.releases[0].noise.scale}
    )
    for wrong in (
        tampered(certificate, plan={"variables": 2}),
        tampered(certificate, plan={"variables": 9}),
        tampered(certificate, plan={"scaled": "no"}),
        tampered(certificate, plan={"scaled": "public"}),
        tampered(certificate, plan={"ranged": True}),
        tampered(certificate, record={"variables": 2}),
        tampered(certificate, record={"noise": louder}),
        certificate.model_copy(update={"releases": certificate.releases[1:]}),
    ):
        with pytest.raises(PrivacyError):
            check(wrong)


def test_fewer_variables_cannot_hide_less_noise():
    """A plan of two variables, with records of two: it claims what its plan says, and no less."""
    certificate = PrivatePCA(3, scale="private", **EXACT).fit(table()).certificate_
    wrong = tampered(certificate, plan={"variables": 2})
    for index in range(3):
        wrong = tampered(wrong, record={"variables": 2}, index=index)
    with pytest.raises(PrivacyError, match="costs mu"):
        check(wrong)


def test_a_unit_counts_once_in_the_histograms():
    """Rows of units count 1 together: the histograms have the same sizes and sensitivities."""
    rows, groups = table(), np.repeat(np.arange(1000), 3)
    with warnings.catch_warnings(action="ignore"):
        model = PrivatePCA(3, scale="private", **EXACT).fit(rows, groups=groups)
    assert model.n_samples_ == pytest.approx(1000, rel=0.01)
    assert energy(model, rows) > 0.95
    assert isinstance(model.certificate_.releases[0].sensitivity(), float)


@pytest.mark.parametrize("publish", ["end", "continual"])
def test_a_stream_takes_public_ranges(publish):
    """The second of two streams is the same but for its units of measure."""
    rng = np.random.default_rng()
    rows = rng.standard_normal((8000, 3)) * [1.0, 1.0, 3.0] + [0.0, 5.0, 0.0]
    units = np.array([1.0, 1000.0, 0.001])
    found = []
    for times in (np.ones(3), units):
        ranges = np.array([[-4.0, 4.0], [1.0, 9.0], [-6.0, 6.0]]) * times[:, None]
        horizon = 4 if publish == "continual" else None
        stream = PrivateStreamingPCA(
            1, epsilon=20.0, delta=1e-5, ranges=ranges, publish=publish, horizon=horizon
        )
        for block in np.split(rows * times, 4):
            stream.partial_fit(block)
        found.append(stream.release())
        assert stream.guarantee_.certified
        assert any("ranges" in each for each in stream.guarantee_.assumptions)
    first, second = (np.abs(each.components_) for each in found)
    assert first == pytest.approx(second, abs=0.1)
    assert found[0].transform(rows) == pytest.approx(found[1].transform(rows * units), abs=0.6)


def test_streams_with_other_ranges_are_not_merged():
    streams = [PrivateStreamingPCA(1, ranges=[[0.0, 1.0], [0.0, top]]) for top in (1.0, 2.0)]
    for stream in streams:
        stream.partial_fit(np.ones((5, 2)))
    with pytest.raises(DataError, match="scales"):
        streams[0].merge(streams[1])
    with pytest.raises(DataError, match="scale"):
        PrivateStreamingPCA(1, scale="private").partial_fit(np.ones((5, 2)))
