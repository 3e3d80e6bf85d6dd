"""Records hold what a guarantee follows from, and nothing unproved."""

import math
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from releases_tools import release

from eigenveil.privacy.guarantee import ADJACENCIES
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import Noise, ReleaseRecord
from eigenveil.privacy.statistics import STATISTICS, tensor_rows, tensor_size

PROOF_FILES = Path(__file__).parents[2] / "docs" / "proofs"
NOISE = {
    "norm-histogram": "gaussian laplace",
    "column-histogram": "gaussian laplace",
    "column-counts": "gaussian laplace",
    "pair-counts": "gaussian vector",
    "row-sum": "gaussian vector",
    "second-moment": "gaussian wishart vector",
    "score-histogram": "gaussian laplace",
    "sketch": "gaussian vector",
    "component-energy": "gaussian laplace",
    "bingham-vectors": "bingham",
    "third-moment": "gaussian vector",
    "em-sums": "gaussian vector",
    "document-pairs": "gaussian wishart vector",
    "word-shares": "gaussian vector",
    "document-sketch": "gaussian vector",
    "document-triples": "gaussian vector",
}
PROVED = {(statistic, kind) for statistic, kinds in NOISE.items() for kind in kinds.split()}


def record(**changes):
    noise = {"kind": "gaussian", "scale": 2.0, "size": 10, "grid": -30} | changes.pop("noise", {})
    fields = {"name": "a", "statistic": "row-sum", "adjacency": "add-remove"} | changes
    return ReleaseRecord(noise=Noise(**noise), **fields)


@pytest.mark.parametrize(
    ("statistic", "kind"), list(product(sorted(STATISTICS), sorted(MECHANISMS)))
)
def test_only_proved_pairs_can_be_recorded(statistic, kind):
    if (statistic, kind) in PROVED:
        assert record(statistic=statistic, noise={"kind": kind}).sensitivity() > 0
    else:
        with pytest.raises(ValidationError, match="proved for"):
            record(statistic=statistic, noise={"kind": kind})


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": {"scale": 0.0}},
        {"noise": {"scale": -1.0}},
        {"noise": {"scale": math.inf}},
        {"noise": {"scale": math.nan}},
        {"noise": {"size": 0}},
        {"noise": {"kind": "cauchy"}},
        {"noise": {"grid": 0.5}},
        {"clip": 0.0},
        {"gain": -1.0},
        {"gain": math.nan},
        {"count_weight": -0.1},
        {"variance": -1e-9},
        {"variance": math.inf},
        {"statistic": "third-moment", "noise": {"size": 9}},
        {"statistic": "document-triples", "noise": {"size": 21}},
        {"draws": 0},
        {"adjacency": "both"},
        {"statistic": "mean"},
        {"surprise": 1},
    ],
)
def test_senseless_records_are_refused(changes):
    with pytest.raises(ValidationError):
        record(**changes)


@given(
    st.sampled_from(sorted(PROVED)),
    st.sampled_from(ADJACENCIES),
    st.floats(1e-300, 1e300),
    st.integers(-1074, 1023) | st.none(),
    st.floats(1e-9, 1e9),
    st.floats(0, 1e9),
    st.integers(1, 50),
)
def test_json_keeps_every_digit(pair, adjacency, scale, grid, gain, variance, draws):
    statistic, kind = pair
    made = record(
        statistic=statistic,
        adjacency=adjacency,
        noise={"kind": kind, "scale": scale, "grid": grid},
        gain=gain,
        variance=variance,
        draws=draws,
    )
    assert ReleaseRecord.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize("kind", sorted(MECHANISMS))
def test_the_loss_falls_with_the_scale_and_is_larger_when_a_row_is_replaced(kind):
    losses = {}
    for adjacency, loss in product(ADJACENCIES, (0.5, 1.0)):
        made = release(kind, loss, adjacency=adjacency)
        back = made.mu() if kind == "gaussian" else made.epsilon()
        assert loss * (1 - 1e-15) <= back * (1 + 1e-15)
        assert back <= loss
        losses[adjacency, loss] = made.noise.scale
    assert losses["add-remove", 0.5] == pytest.approx(2 * losses["add-remove", 1.0])
    assert losses["replace-one", 1.0] >= losses["add-remove", 1.0]


def test_every_draw_of_the_exponential_mechanism_is_paid():
    one = record(statistic="bingham-vectors", noise={"kind": "bingham"})
    assert one.model_copy(update={"draws": 7}).epsilon() == pytest.approx(7 * one.epsilon())


@pytest.mark.parametrize("statistic", [s.name for s in STATISTICS.values() if s.proof])
def test_every_sensitivity_with_a_proof_of_its_own_has_it(statistic):
    text = (PROOF_FILES / STATISTICS[statistic].proof).read_text(encoding="utf-8")
    assert f"`{statistic.replace('-', '_')}`" in text


@pytest.mark.parametrize("rows", [*range(1, 40), 1000, 10**5])
def test_rows_of_a_tensor_follow_from_its_size(rows):
    size = tensor_size(rows)
    assert tensor_rows(size) == rows
    for wrong in (size - 1, size + 1)[rows == 1 :]:
        with pytest.raises(ValueError, match="no symmetric tensor"):
            tensor_rows(wrong)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_sampler_s_error_counts_every_draw(kind):
    """Parts and masks are drawn; a Gamma variable of a part costs 37 coordinates (shares.md)."""

    def error(**noise):
        found = record(statistic="norm-histogram", noise={"kind": kind, **noise})
        return found.sampling_error()

    if kind == "gaussian":
        assert error(masks=3) == error(noise_parts=4)
        assert error(masks=3).distance == 4 * error().distance
    else:
        assert error(noise_parts=4).distance >= 4 * 2 * 37 * 10 * 2.0**-120
