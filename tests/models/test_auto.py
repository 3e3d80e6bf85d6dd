"""What ``mechanism="auto"`` takes of wide tables: by public numbers alone, and as if it were named.

Noise is seeded where releases are compared, so that these tests do not fail by chance.
"""

import json

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.errors import EigenveilError
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.study.study import make_study
from eigenveil.models.pca import auto
from eigenveil.models.task import task_named
from refusal_tools import refuses

PCA = task_named("pca")
# The first width of which the whole second moment has more than 64 MiB.
WIDE = next(d for d in range(4000, 5000) if 4 * d * (d + 1) > 64 << 20)
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((300, 2)) @ RNG.standard_normal((2, WIDE)) * 9.0
ROWS += RNG.standard_normal(ROWS.shape)


def planned(features, **options):
    return PCA.make_plan(PCA.options("table", **options), features=features)


def chosen(features, **options):
    return auto.choose(PCA.options("table", **options), features, whole=False)


@pytest.mark.parametrize("count", [1, 2, 40, 0.9, "auto"])
def test_a_sketch_begins_where_the_whole_moment_is_large(count):
    assert planned(WIDE - 1, n_components=count).mechanism == "adaptive"
    plan = planned(WIDE, n_components=count)
    assert plan.mechanism == "sketch"
    assert plan.sketch_columns == max(64, 4 * (count if isinstance(count, int) else 32))
    assert planned(WIDE, n_components=count, mechanism="gaussian").mechanism == "gaussian"


@given(
    features=st.integers(auto.LARGEST_WHOLE >> 14, 1_000_000),
    part=st.floats(1e-6, 1.0),
    rows=st.integers(0, 1 << 50),
)
def test_where_it_is_taken_the_whole_moment_costs_ten_times_as_much_of_any_number_of_rows(
    features, part, rows
):
    count = max(1, round(part * part * features))
    found = chosen(features, n_components=count)
    columns = found.columns or min(features, max(4 * count, -(-features // 64)))
    whole = auto.work_of_whole(features)
    sketch = auto.work_of_sketch(features, columns, count)
    costs = [float(rows) * each.a_row + each.alone for each in (whole, sketch)]
    if found.mechanism == "sketch":
        assert columns >= 4 * count
        assert costs[0] >= 10.0 * costs[1] * (1.0 - 1e-12)
    else:  # then of no rows or of many it does not
        assert min(whole.a_row / sketch.a_row, whole.alone / sketch.alone) < 10.0
        assert found.mechanism == ("gaussian" if count == features else "adaptive")


def test_the_most_components_of_a_sketch():
    """One more, and the whole moment would not cost ten times as much."""
    counts = [k for k in range(1, 200) if chosen(WIDE, n_components=k).mechanism == "sketch"]
    assert counts == list(range(1, counts[-1] + 1))
    last = counts[-1]
    costs = [
        auto.work_of_whole(WIDE).times(auto.work_of_sketch(WIDE, 4 * k, k))
        for k in (last, last + 1)
    ]
    assert costs[0] >= 10.0 > costs[1]
    assert "takes 9." in chosen(WIDE, n_components=last + 1).reason


@pytest.mark.parametrize(
    ("options", "mechanism"),
    [
        ({"delta": 0.0}, "wishart"),
        ({"covariates": (0,)}, "gaussian"),
        ({"missing": "independent"}, "gaussian"),
        ({"scale": "private"}, "adaptive"),
        ({"row_norm": "auto"}, "adaptive"),
        ({"row_norm": "max"}, "adaptive"),
        ({"budget_split": {"scale": 1, "center": 2, "moment": 9}}, "adaptive"),
    ],
    ids=str,
)
def test_what_only_the_whole_moment_has_keeps_it(options, mechanism):
    assert planned(WIDE, n_components=2).mechanism == "sketch"
    assert planned(WIDE, n_components=2, **options).mechanism == mechanism
    with refuses("no-sketch-made", kind=EigenveilError):
        planned(WIDE, n_components=2, sketch_size=9, **options)


def test_who_says_how_many_columns_a_sketch_has_wants_one():
    plan = planned(50, n_components=2, sketch_size=9)
    assert (plan.mechanism, plan.sketch_columns) == ("sketch", 9)
    assert planned(WIDE, n_components=2, sketch_size=9).sketch_columns == 9
    assert planned(50, n_components=2, sketch_size=90).sketch_columns == 50
    for features in (50, WIDE):
        with refuses("small-sketch", kind=EigenveilError):
            planned(features, n_components=3, sketch_size=2)
    with refuses("no-sketch-made", kind=EigenveilError):
        planned(50, mechanism="gaussian", sketch_size=9)


def test_a_fit_is_that_of_the_sketch_by_name():
    model = PrivatePCA(2, epsilon=30.0, random_state=1).fit(ROWS)
    columns = model.plan_.sketch_columns
    named = PrivatePCA(
        2, epsilon=30.0, random_state=1, mechanism="sketch", sketch_size=columns
    ).fit(ROWS)
    assert model.plan_ == named.plan_
    sparse = PrivatePCA(2, epsilon=30.0, random_state=1).fit(scipy.sparse.csr_array(ROWS))
    for name, values in named.released_.items():
        assert np.array_equal(model.released_[name], values)
        assert np.array_equal(sparse.released_[name], values)
    assert model.usable_.all()
    captured = np.linalg.norm((ROWS - ROWS.mean(axis=0)) @ model.components_.T) ** 2
    exact = np.linalg.svd(ROWS - ROWS.mean(axis=0), compute_uv=False)[:2]
    assert captured > 0.9 * np.sum(exact**2)
    assert model.total_variance_ == pytest.approx(ROWS.var(axis=0).sum(), rel=0.1)
    assert np.isfinite(model.score(ROWS[:9]))


def test_its_result_is_certified_and_read_again(tmp_path):
    model = PrivatePCA(2, epsilon=30.0).fit(ROWS)
    assert check(model.certificate_).word == "VALID"
    assert model.certificate_.plan["mechanism"] == "sketch"
    assert "sketch" in [each.name for each in model.certificate_.releases]
    model.save(tmp_path / "model.npz")
    again = PrivatePCA.load(tmp_path / "model.npz")
    assert (again.mechanism, again.plan_) == ("auto", model.plan_)


def test_sites_send_what_their_protocol_says():
    """Of one site alone it is the fit of a table."""
    common = {"name": "trial", "components": 2, "epsilon": 1.0, "delta": 1e-6}
    sites = [{"name": each} for each in "ab"]
    made = {
        protocol: make_study(**common, sites=sites, features=WIDE, protocol=protocol).plan(WIDE)
        for protocol in ("cape", "local", "full", "sketch", "dpdispca", "auto")
    }
    assert {name: plan.mechanism for name, plan in made.items()} == {
        "cape": "adaptive",
        "local": "sketch",
        "full": "gaussian",
        "sketch": "sketch",
        "dpdispca": "gaussian",
        "auto": "adaptive",
    }
    assert made["sketch"].sketch_columns == 8
    assert made["local"].sketch_columns == 64
    table = PrivatePCA(2, epsilon=30.0, random_state=1).fit(ROWS)
    study = FederatedPCA(2, epsilon=30.0, random_state=1, protocol="local").fit({"only": ROWS})
    for name, values in table.released_.items():
        assert np.array_equal(study.released_[name], values)


def test_a_plan_says_which_and_why(run):
    words = ("plan", "--rows", 300, "--components", 2, "--fits", 1, "--features")
    reason = chosen(WIDE, n_components=2).reason
    status, out, _ = run(*words, WIDE, "--mechanism", "auto")
    assert (status, f"auto takes sketch: {reason}" in " ".join(out.split())) == (0, True)
    status, out, _ = run(*words, WIDE, "--mechanism", "auto", "--json")
    (found,) = json.loads(out)
    assert (found["mechanism"], found["plan"]["sketch_columns"]) == ("sketch", 64)
    assert found["why"] == reason
    status, out, _ = run(*words, 30)
    assert "auto takes adaptive: " in out
    status, out, _ = run(*words, 30, "--mechanism", "gaussian")
    assert "auto takes" not in out
