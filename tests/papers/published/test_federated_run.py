"""The function around Federated-PCA: what it does is what the classes do."""

import numpy as np
import pytest

from eigenveil.errors import DataError, PrivacyError
from eigenveil_papers.published import fpca
from eigenveil_papers.published.federated_pca import FPCA, merge_up_tree
from eigenveil_papers.published.sulq import omega

ROWS = np.random.default_rng(0).standard_normal((210, 3)) @ np.random.default_rng(
    1
).standard_normal((3, 8))
SITES = np.split(ROWS, 3)
PRIVATE = {"epsilon": 0.5, "delta": 0.05, "row_bound": 30.0}


@pytest.mark.parametrize("private", [{}, PRIVATE])
def test_one_stream_is_one_client(private):
    made = fpca(ROWS, n_components=2, adapt=False, random_state=3, **private)
    client = FPCA(n_components=2, adapt=False, random_state=np.random.default_rng(3), **private)
    client.partial_fit(ROWS)
    np.testing.assert_array_equal(made.components, client.components)
    np.testing.assert_array_equal(made.strengths, client.strengths)
    assert made.claim == client.claim
    assert made.messages is None
    assert made.deviation == (omega(0.5, 0.05, 8, 25) if private else None)
    assert made.as_published


@pytest.mark.parametrize("private", [{}, PRIVATE])
def test_sites_are_clients_under_a_tree(private):
    made = fpca(SITES, n_components=3, adapt=False, random_state=3, leaves=3, **private)
    rng = np.random.default_rng(3)
    subspaces = [
        FPCA(n_components=3, adapt=False, random_state=rng, **private).partial_fit(rows).subspace
        for rows in SITES
    ]
    expected = merge_up_tree(subspaces, rank=3, leaves=3)
    np.testing.assert_array_equal(made.strengths, expected.strengths)
    np.testing.assert_allclose(
        [each.T @ each for each in made.messages],
        [np.diag(each.strengths**2) for each in subspaces],
        atol=1e-9,
    )


def test_blocks_of_the_same_rows_are_exact_when_no_rank_is_lost():
    made = fpca(SITES, n_components=3, block=10, adapt=False)
    exact = np.linalg.svd(ROWS)[1][:3]
    np.testing.assert_allclose(made.strengths, exact, rtol=1e-9)
    assert made.claim is None


def test_a_stream_shorter_than_a_block_is_folded_all_the_same():
    made = fpca(ROWS[:7], n_components=2, adapt=False, block=100)
    np.testing.assert_allclose(
        made.strengths, np.linalg.svd(ROWS[:7], compute_uv=False)[:2], rtol=1e-9
    )


def test_the_claim_is_never_certified():
    for rows in (ROWS, SITES):
        claim = fpca(rows, n_components=2, **PRIVATE).claim
        assert not claim.certified
        assert claim.caveats


@pytest.mark.parametrize(
    ("rows", "options", "error"),
    [
        ([], {}, DataError),
        (np.full((3, 2), np.nan), {}, DataError),
        (ROWS[0], {}, DataError),
        ([SITES[0], SITES[1][:, :5]], {}, DataError),
        (ROWS, {"n_components": 9}, DataError),
        (ROWS, {"epsilon": 0.5}, DataError),
        (ROWS, {"block": 0}, DataError),
        (SITES, {"leaves": 1}, DataError),
        (ROWS, {"epsilon": -1.0, "delta": 0.1}, PrivacyError),
        (ROWS, {"epsilon": 1.0, "delta": 0.1, "row_bound": 0.1}, DataError),
    ],
)
def test_bad_input_is_refused_with_a_way_out(rows, options, error):
    with pytest.raises(error) as raised:
        fpca(rows, **({"n_components": 2} | options))
    assert raised.value.hint
