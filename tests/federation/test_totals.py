"""Sums of several sites are known modulo 2**64: beyond what they hold nothing is usable."""

from dataclasses import replace

import numpy as np
import pytest

from eigenveil import FederatedGaussianMixture, FederatedPCA
from eigenveil.federation.protocol.sums import marked_where_wrapped
from eigenveil.moments.release import capacity

ROWS = np.random.default_rng(0).standard_normal((900, 6)) * [9, 5, 1, 1, 1, 1] + [50, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "model",
    [FederatedPCA(2, epsilon=5.0), FederatedGaussianMixture(1, epsilon=20.0, row_bound=60.0)],
)
def test_too_many_rows_make_nothing_usable_and_say_so(model, monkeypatch):
    seen = []

    def spy(factors, records):
        few = marked_where_wrapped(factors, records)
        assert few is factors
        least = min(capacity(record) for record in records)
        assert least > 1e6
        held = marked_where_wrapped(replace(factors, rows=0.99 * least), records)
        many = marked_where_wrapped(replace(factors, rows=1.01 * least), records)
        assert np.array_equal(held.usable, factors.usable)
        assert not many.usable.any()
        assert "may have wrapped" in many.advice
        seen.append(many)
        return many

    monkeypatch.setattr("eigenveil.federation.protocol.aggregator.marked_where_wrapped", spy)
    with pytest.warns(match="may have wrapped"):
        model.fit(np.array_split(ROWS, 3))
    assert len(seen) == 1
    assert not model.usable_.any()
