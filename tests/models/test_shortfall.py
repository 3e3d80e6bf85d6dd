"""What is said where noise hides something: never a number that nobody simulated."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from eigenveil import (
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.models.tensors.whitening import NO_COMPONENT, shortfall

MORE = "A larger epsilon or more rows may show more"


@pytest.mark.parametrize(
    ("asked", "usable", "said", "instead"),
    [
        (2, [True, True], "", ""),
        (2, [True, False], f"1 of 2 components stands above the noise. {MORE}", "Or ask for 1."),
        (3, [True, True], f"2 of 3 components stand above the noise. {MORE}", "Or ask for 2."),
        (3, [False] * 3, f"None of 3 components stand above the noise. {MORE}", ""),
        # "or ask for 1" was said to those who had asked for 1, and to those who had left it open
        (1, [False], f"None of 1 component stands above the noise. {MORE}", ""),
        ("auto", [False], f"None of 1 component stands above the noise. {MORE}", ""),
    ],
)
def test_what_is_wrong_and_what_would_do(asked, usable, said, instead):
    plan = SimpleNamespace(auto_components=asked == "auto", n_components=asked)
    found = shortfall(plan, np.array(usable))
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert ("Or ask" in found) == bool(instead)
    assert found.endswith(instead)


def test_where_none_stands_out_at_all():
    assert NO_COMPONENT.startswith("No component stands above the noise. ")


RNG = np.random.default_rng()
# at epsilon .02 noise shows twice the strength that 900 rows can have
ROWS = RNG.standard_normal((900, 30)) * np.geomspace(1, 1e4, 30)
WEAK = {
    "pca": lambda **more: PrivatePCA(3, **{"epsilon": 0.02, **more}),
    "scaled": lambda **more: PrivatePCA(3, scale="private", **{"epsilon": 0.1, **more}),
    "covariance": lambda **more: PrivateCovariance(**{"epsilon": 0.3, **more}),
    "mixture": lambda **more: PrivateGaussianMixture(3, **{"epsilon": 0.02, **more}),
    "topics": lambda **more: PrivateTopicModel(3, **{"epsilon": 0.02, **more}),
    "stream": lambda **more: PrivateStreamingPCA(3, **{"epsilon": 0.02, **more}),
    "sites": lambda **more: FederatedPCA(3, **{"epsilon": 0.02, **more}),
}


def advice(kind, rows, **options):
    """All that a fit warns of."""
    given = np.abs(np.rint(rows)).astype(int) % 50 if kind == "topics" else rows
    given = {"a": given[::2], "b": given[1::2]} if kind == "sites" else given
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        WEAK[kind](**options).fit(given)
    return " ".join(str(each.message) for each in said)


@pytest.mark.parametrize("rows", [40, 900])
@pytest.mark.parametrize("kind", WEAK)
def test_no_advice_names_a_number_of_rows_or_times_the_budget(kind, rows):
    """It said "about 4e+02 rows" to those who had 8,366, and "3.3 times" whatever there was."""
    said = advice(kind, ROWS[:rows])
    assert said, "it shows something: another budget"
    assert not re.search(r"\d[\d.,e+]* (times|rows)|e\+0", said)


@pytest.mark.parametrize(
    ("kind", "named", "followed"),
    [
        ("scaled", "ranges=", {"ranges": np.outer(np.geomspace(1, 1e4, 30), [-5, 5])}),
        ("scaled", "larger epsilon", {"epsilon": 300.0}),
        ("covariance", "larger epsilon", {"epsilon": 1e12}),
        ("covariance", "row_bound", {"row_bound": 1e5}),
        ("pca", "larger epsilon", {"epsilon": 300.0}),
    ],
)
def test_what_is_advised_works(kind, named, followed):
    """Of fits that end early, leave columns out or show nothing: not so where advice is followed.

    With ranges at epsilon .8 the rows' norms are six deviations beyond what is needed to be seen,
    all other cases farther: false once in 10^9.
    """
    rows = ROWS[:60] if named == "row_bound" else ROWS
    weak = {"row_bound": {"epsilon": 0.02}, "ranges=": {"epsilon": 0.8}}.get(named, {})
    assert named in advice(kind, rows, **weak)
    with warnings.catch_warnings(action="ignore"):
        model = WEAK[kind](**weak | followed).fit(rows)
    assert model.certificate_.stopped is None
    if named != "row_bound":
        assert not getattr(model, "unscaled_", np.zeros(1)).any()
    if named == "larger epsilon":
        assert model.usable_.any()
