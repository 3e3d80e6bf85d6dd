"""A promise that no adversary's view can be held to, found only after everything was spent."""

import re

import numpy as np
import pytest

from eigenveil import FederatedPCA
from eigenveil.errors import PrivacyError


def test_a_view_that_nothing_can_be_claimed_of_is_refused_before_anything_is_released():
    rows = np.random.default_rng(0).standard_normal((200, 4))
    with pytest.raises(PrivacyError) as caught:
        FederatedPCA(1, epsilon=40.0).fit([rows[:100], rows[100:]])
    assert caught.value.spent is None
    assert caught.value.released == ()


def test_the_refusal_names_the_view_and_the_largest_epsilon_that_works():
    # would have found: a hint to use a sketch, which has the same view
    rows = np.random.default_rng(0).standard_normal((200, 4))
    sites = [rows[:100], rows[100:]]
    with pytest.raises(PrivacyError, match="against 'site'") as caught:
        FederatedPCA(1, epsilon=60.0).fit(sites)
    named = re.search(r"epsilon = ([0-9.]+) or less", caught.value.hint)
    largest = float(named.group(1))
    assert 30 < largest < 60
    assert FederatedPCA(1, epsilon=largest).fit(sites).views_["site"].epsilon > largest
    with pytest.raises(PrivacyError, match="against 'site'"):
        FederatedPCA(1, epsilon=1.1 * largest).fit(sites)
    # three sites know less of one another's noise, as the hint says
    assert FederatedPCA(1, epsilon=60.0).fit([*sites, rows]).views_["site"].certified
