"""A study is settled once: what a fit of three sites does is counted, not timed.

It would have found a plan made nine times, active sites listed 146 times, and 28 transactions in
each site's ledger for six rounds.
"""

import sys
from collections import Counter

import numpy as np
import pytest

from eigenveil import FederatedGaussianMixture, FederatedPCA
from eigenveil.federation.ledger import memory, store
from eigenveil.federation.protocol import terms
from eigenveil.federation.study.study import Study

SITES = ("north", "south", "west")
# Functions whose calls are counted, by their code.
COUNTED = {
    Study._made_plan.__code__: "plans",
    Study.hash.fget.__code__: "hashes",
    terms.settle.__code__: "settled",
    Study.active.func.__code__: "listings",
    store.FileStore._connected.__code__: "connections",
    memory.MemoryTables.__init__.__code__: "transactions",
}


def counted(model, rows):
    """Calls of the functions above during a fit, and the rounds that it had."""
    found = Counter()

    def note(frame, event, argument):
        if event == "call" and frame.f_code in COUNTED:
            found[COUNTED[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        model.fit(rows)
    finally:
        sys.setprofile(before)
    sent = model.traffic_["north"].sent_by_step
    return found, sum(step.startswith("round") for step in sent), len(sent)


def rows_of(width=6):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((200, width)) for name in SITES}


@pytest.mark.parametrize("estimator", [FederatedPCA, FederatedGaussianMixture])
@pytest.mark.parametrize(
    "options",
    [{}, {"dropouts": 1}, {"masks": "pairwise"}, {"masks": "helper"}],
    ids=lambda options: "-".join(map(str, options.values())) or "usual",
)
def test_in_one_process_a_study_is_settled_once(estimator, options):
    found, rounds, steps = counted(estimator(2, epsilon=8.0, protocol="cape", **options), rows_of())
    assert (found["plans"], found["hashes"], found["settled"], found["listings"]) == (1, 1, 1, 1)
    assert not found["connections"]
    # a site's: one an answer, one that begins the session; the new ledgers': one, for all sites
    assert rounds
    assert found["transactions"] <= len(SITES) * (steps + 1) + 1


def test_public_row_counts_make_one_more_plan_a_number():
    found, _, _ = counted(FederatedPCA(2, epsilon=8.0, adjacency="replace-one"), rows_of())
    assert found["settled"] == 1
    # 'auto' looks at two protocols; then what each site has, and what all have together
    assert found["listings"] <= 4
    assert found["plans"] <= 4 + 2
