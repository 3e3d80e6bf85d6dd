"""A promise that no adversary's view can be held to, found only after everything was spent.

Would have found: with two sites and a large epsilon the noise of one site alone is too little for
any claim against the other, which was noticed when the result's certificate was made.
"""

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
