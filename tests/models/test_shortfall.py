"""What is said where components are missing: first what is wrong, then what would do."""

from types import SimpleNamespace

import numpy as np
import pytest

from eigenveil.models.tensors.whitening import NO_COMPONENT, shortfall

PAIR = SimpleNamespace(strengths=np.array([4.0, 1.0, 1.0]), floors=np.array([2.0, 2.0, 2.0]))
MORE = "about 2.0 times as many rows, or an epsilon larger by as much"


@pytest.mark.parametrize(
    ("asked", "usable", "said"),
    [
        (2, [True, True], ""),
        (2, [True, False], f"1 of 2 components stands above the noise. Give {MORE}; or ask for 1."),
        (3, [True, True], f"2 of 3 components stand above the noise. Give {MORE}; or ask for 2."),
        (3, [False] * 3, f"None of 3 components stand above the noise. Give {MORE}."),
        # "or ask for 1" was said to those who had asked for 1, and to those who had left it open
        (1, [False], "None of 1 component stands above the noise. Give many more rows"),
        ("auto", [False], "None of 1 component stands above the noise. Give many more rows"),
    ],
)
def test_what_is_wrong_and_what_would_do(asked, usable, said):
    plan = SimpleNamespace(auto_components=asked == "auto", n_components=asked)
    found = shortfall(PAIR, plan, np.array(usable))
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_where_none_stands_out_at_all():
    assert NO_COMPONENT.startswith("No component stands above the noise. ")
