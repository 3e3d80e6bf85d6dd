"""PrivateStreamingPCA: one pass, exact sums, one target for the whole stream."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from eigenveil import PrivatePCA, PrivateStreamingPCA
from eigenveil.errors import DataError, PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.pca.estimator import FittedPCA
from object_tools import arrays_of

D = 6


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    return rng.normal(size=(6000, D)) * np.array([8.0, 5.0, 2.0, 1.0, 1.0, 1.0])


def refused(kind, code, call):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert caught.value.hint
    return str(caught.value)


def fitted(rows, blocks=5, **given):
    stream = PrivateStreamingPCA(2, **{"epsilon": 1.0, "random_state": 3, **given})
    for block in np.array_split(rows, blocks):
        stream.partial_fit(block)
    return stream.release()


@given(seed=st.integers(0, 2**32 - 1), blocks=st.integers(1, 7))
def test_neither_order_nor_blocks_nor_merges_change_the_release(rows, seed, blocks):
    """Permuting the rows changes the state by nothing at all: it is a sum of integers."""
    some = rows[:300]
    expected = fitted(some, 1)
    shuffled = np.random.default_rng(seed).permutation(some)
    np.testing.assert_array_equal(fitted(shuffled, blocks).components_, expected.components_)
    parts = [
        PrivateStreamingPCA(2, epsilon=1.0, random_state=3).partial_fit(part)
        for part in np.array_split(shuffled, blocks)
    ]
    root = PrivateStreamingPCA(2, epsilon=1.0, random_state=3)
    for place in np.random.default_rng(seed).permutation(blocks):
        root.merge(parts[place])
    np.testing.assert_array_equal(root.release().components_, expected.components_)
    assert root.n_samples_ == expected.n_samples_


def test_a_stream_that_was_not_released_says_how(tmp_path):
    stream = PrivateStreamingPCA(2)
    with pytest.raises(NotFittedError, match="partial_fit and then release"):
        stream.transform(np.eye(4))
    stream.partial_fit(np.eye(4))
    with pytest.raises(NotFittedError, match=r"nothing is released yet: call release\(\)"):
        stream.transform(np.eye(4))
    with pytest.raises(AttributeError, match=r"call release\(\)"):
        stream.components_  # noqa: B018


def test_the_end_is_the_same_as_private_pca_of_the_same_sums(rows):
    """One path: with the same noise, the same components as the batch fit of one moment."""
    stream = fitted(rows)
    batch = PrivatePCA(
        2, epsilon=1.0, delta=1e-6, center=False, budget_split={"moment": 1.0}, random_state=3
    ).fit(rows)
    alike = np.abs(np.sum(stream.components_ * batch.components_, axis=1))
    assert np.all(alike > 0.99)


@pytest.mark.parametrize("publish", [{}, {"publish": "continual", "horizon": 40}])
def test_the_whole_stream_costs_the_wish(rows, publish):
    stream = PrivateStreamingPCA(2, epsilon=0.7, delta=1e-5, **publish)
    for block in np.array_split(rows, 40):
        stream.partial_fit(block)
    stream.release()
    assert stream.guarantee_.certified
    assert 0.69 < stream.guarantee_.epsilon <= 0.7
    assert stream.guarantee_.delta == 1e-5
    assert check(stream.certificate_).holds
    assert stream.blocks_ == 40
    # false alarm far below 1e-6: the counts' noise has a deviation of 600 at the most
    assert abs(stream.n_samples_ - 6000) < 4500
    moment = rows.T @ rows
    assert captured_energy(moment, stream.components_) > 0.8


def test_continual_release_has_a_basis_after_every_block(rows):
    stream = PrivateStreamingPCA(2, epsilon=2.0, publish="continual", horizon=12)
    seen = []
    for block in np.array_split(rows, 12):
        stream.partial_fit(block)
        seen.append(stream.components_)
        assert stream.guarantee_.epsilon <= 2.0
    assert len({basis.tobytes() for basis in seen}) == 12
    text = refused(PrivacyError, "horizon-over", lambda: stream.partial_fit(rows[:10]))
    assert "12 blocks" in text
    np.testing.assert_array_equal(stream.components_, seen[-1])
    assert stream.blocks_ == 12
    assert any("same blocks" in caveat for caveat in stream.guarantee_.caveats)


def test_a_certificate_with_a_shorter_horizon_is_found_out(rows):
    stream = PrivateStreamingPCA(2, publish="continual", horizon=12).partial_fit(rows)
    made = stream.certificate_
    first = made.releases[0]
    shorter = first.model_copy(update={"stream": first.stream.model_copy(update={"blocks": 3})})
    verdict = check(made.model_copy(update={"releases": (shorter, *made.releases[1:])}))
    assert not verdict.holds
    without = first.model_copy(update={"stream": None})
    assert not check(made.model_copy(update={"releases": (without, *made.releases[1:])})).holds


def test_after_the_release_the_stream_is_closed(rows):
    stream = fitted(rows)
    before = stream.components_.copy()
    assert stream.release() is stream
    np.testing.assert_array_equal(stream.components_, before)
    refused(PrivacyError, "already-released", lambda: stream.partial_fit(rows))
    refused(PrivacyError, "already-released", lambda: stream.merge(fitted_open(rows)))
    refused(PrivacyError, "already-released", lambda: fitted_open(rows).merge(stream))


def fitted_open(rows, **given):
    return PrivateStreamingPCA(2, **{"epsilon": 1.0, "random_state": 3, **given}).partial_fit(rows)


def test_a_merge_of_other_streams_is_refused(rows):
    mine = fitted_open(rows)
    for other in (
        fitted_open(rows, epsilon=2.0),
        fitted_open(rows, sketch_size=4),
        fitted_open(rows, center=np.ones(D)),
        fitted_open(rows, row_norm=5.0),
        fitted_open(rows[:, :4]),
    ):
        refused(DataError, "merge-plans", lambda other=other: mine.merge(other))
    continual = fitted_open(rows, publish="continual", horizon=5)
    again = fitted_open(rows, publish="continual", horizon=5)
    refused(PrivacyError, "merge-continual", lambda: continual.merge(again))
    blocks = [fitted_open(rows, publish="blocks") for _ in range(2)]
    refused(PrivacyError, "merge-continual", lambda: blocks[0].merge(blocks[1]))
    refused(DataError, "merge-kind", lambda: mine.merge(PrivatePCA()))
    frame = pd.DataFrame(rows, columns=list("abcdef"))
    named = fitted_open(frame)
    refused(DataError, "streams-differ", lambda: named.merge(fitted_open(frame[list("bacdef")])))
    assert mine.merge(PrivateStreamingPCA(2)) is mine
    assert mine.blocks_ == 1


@pytest.mark.parametrize(
    ("given", "kind", "code"),
    [
        ({"publish": "continual"}, DataError, "no-horizon"),
        (
            {"publish": "continual", "horizon": 5, "delta": 0},
            PrivacyError,
            "pure-needs-other-mechanism",
        ),
        ({"horizon": 5}, DataError, "unused-parameter"),
        ({"n_components": 7}, DataError, "too-many-components"),
        ({"row_norm": "max"}, DataError, "bad-parameter"),
        ({"publish": "blocks", "horizon": 5}, DataError, "unused-parameter"),
        ({"publish": "blocks", "delta": 0}, PrivacyError, "pure-needs-other-mechanism"),
        ({"publish": "blocks", "unit": "patient"}, PrivacyError, "units-in-blocks"),
        ({"forgetting": 0.5}, DataError, "unused-parameter"),
        ({"publish": "continual", "horizon": 5, "forgetting": 0.5}, DataError, "unused-parameter"),
    ],
)
def test_wrong_wishes_are_refused_before_any_row_is_added(rows, given, kind, code):
    stream = PrivateStreamingPCA(**given)
    groups = np.arange(len(rows)) if "unit" in given else None
    refused(kind, code, lambda: stream.partial_fit(rows, groups=groups))
    assert not hasattr(stream, "blocks_")


def test_nothing_is_there_before_the_release(rows):
    stream = fitted_open(rows)
    for call in (lambda: stream.transform(rows), lambda: stream.save("nowhere")):
        with pytest.raises(NotFittedError):
            call()
    refused(DataError, "no-block", lambda: PrivateStreamingPCA().release())
    few = fitted_open(rows[:1])
    assert few.partial_fit(rows[1:]).release().guarantee_.epsilon <= 1.0


def test_a_stream_is_loaded_as_any_fitted_pca(rows, tmp_path):
    stream = fitted(rows, 3, center=np.ones(D), sketch_size=5)
    stream.save(tmp_path / "model.npz")
    loaded = FittedPCA.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.transform(rows), stream.transform(rows))
    assert loaded.guarantee_ == stream.guarantee_


def test_other_forms(rows):
    """Pure epsilon, a sketch, replace-one, and public numbers."""
    pure = fitted(rows, delta=0)
    assert pure.guarantee_.delta == 0
    assert pure.guarantee_.epsilon <= 1
    sketched = fitted(rows, sketch_size=4, epsilon=5.0)
    assert captured_energy(rows.T @ rows, sketched.components_) > 0.9
    counted = fitted(rows, adjacency="replace-one")
    assert counted.n_samples_ == pytest.approx(6000, abs=600)
    assert counted.guarantee_.adjacency == "replace-one"
    moved = rows + 100.0
    public = fitted(moved, center=np.full(D, 100.0), row_norm=30.0, epsilon=8.0)
    np.testing.assert_array_equal(public.mean_, np.full(D, 100.0))
    truth = np.linalg.eigvalsh(rows.T @ rows / len(rows))[::-1][:2]
    np.testing.assert_allclose(public.explained_variance_, truth, rtol=0.15)
    unit = fitted(rows, epsilon=8.0)  # in the data's units by the released norms
    assert 0.4 < unit.total_variance_ / np.mean(np.sum(rows * rows, axis=1)) < 1.6


def test_a_wide_stream_is_sketched_by_itself():
    wide = np.random.default_rng(1).normal(size=(30, 1500))
    stream = PrivateStreamingPCA(3, epsilon=5.0, random_state=1).partial_fit(wide).release()
    assert stream.plan_.sketched
    assert stream.plan_.sketch_columns == 12
    assert stream.components_.shape == (3, 1500)


def test_memory_does_not_grow_with_the_stream(rows):
    stream = fitted_open(rows[:50], publish="continual", horizon=50)
    small = sum(array.nbytes for array in arrays_of(stream._stream))
    for _ in range(40):
        stream.partial_fit(rows[:50])
    assert sum(array.nbytes for array in arrays_of(stream._stream)) <= small * 1.05


def test_the_error_of_a_prefix_grows_with_the_logarithm(rows):
    """Beside one release: less than the best Toeplitz factor's growth and a hundredth."""
    one = fitted_open(rows, publish="continual", horizon=1).certificate_.releases[0]
    many = fitted_open(rows, publish="continual", horizon=1024).certificate_.releases[0]
    ratio = many.noise.scale * many.stream.spread(1024) / one.noise.scale
    assert ratio < 1.01 * (1 + (math.log(1024) + 0.6) / math.pi + 0.3)
