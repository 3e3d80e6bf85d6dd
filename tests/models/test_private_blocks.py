"""Streams without end: each block with noise of its own, old ones forgotten, ranks chosen anew.

Statistical tests state their chance of false alarm in ``statistics_tools``.
"""

import json
import math

import numpy as np
import pytest

from eigenveil import PrivateStreamingPCA
from eigenveil.errors import DataError, PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.moments import stream_sums
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.stream_sums import DiscountedSum
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.privacy.certificate import ONE_BLOCK, SAME_BLOCKS, Certificate, plan_hash
from eigenveil.privacy.releases import ReleaseRecord, Sharing
from eigenveil.privacy.streams import best_factor
from statistics_tools import FALSE_ALARM, REJECTED, isotropic, svec

D = 4
RULE = RowRule(bound=1.0)
SPREAD = np.array([8.0, 5.0, 1.0, 1.0])


def stream_of(**given):
    options = {"epsilon": 1.0, "publish": "blocks", "forgetting": 0.8, **given}
    return PrivateStreamingPCA(2, **options)


def blocks_of(count, rows=400, seed=0):
    return np.random.default_rng(seed).normal(size=(count, rows, D)) * SPREAD


# Privacy: what is seen of all blocks costs what one block does


def released(stream, blocks):
    """What every block's release adds to the discounted sums, (blocks, values), as all can see."""
    found, before = [], None
    for block in blocks:
        stream.partial_fit(block)
        kept = np.concatenate([p._sum._values.ravel() for p in stream._stream._prefixes])
        found.append(kept - (0.0 if before is None else stream.forgetting * before))
        before = kept
    return np.array(found)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_row_moves_the_release_of_its_own_block_and_no_other(adjacency):
    """With the same noise in both streams: what remains is the row, in exact arithmetic.

    So all releases together are one mechanism of one block, beside others that do not depend on
    the row: any number of blocks costs what a single one does (docs/proofs/streams.md, claim 4).
    """
    blocks = list(blocks_of(5))
    other = [block.copy() for block in blocks]
    if adjacency == "add-remove":
        other[2] = other[2][1:]
    else:
        other[2][0] = [0.0, 0.0, 0.0, 9.0]
    given = {"adjacency": adjacency, "random_state": 5}
    streams = [stream_of(**given), stream_of(**given)]
    one, two = (released(s, b) for s, b in zip(streams, (blocks, other), strict=True))
    moved = one - two
    still = np.delete(moved, 2, axis=0)
    assert np.abs(still).max() < 1e-9 * np.abs(one).max()  # rounding of the undone discount
    assert np.abs(moved[2]).max() > 0.01
    start = 0
    for record, prefix in zip(
        streams[0]._stream._records, streams[0]._stream._prefixes, strict=True
    ):
        size = prefix._sum._values.size
        part = moved[2][start : start + size]
        start += size
        assert np.linalg.norm(part) <= record.sensitivity() * (1 + 1e-6)


def test_a_stream_that_carries_rows_over_is_caught_by_it(monkeypatch):
    """The same comparison, of streams that count a block's rows again in the next one."""
    carried = []

    def wrong(self, total):
        for each in carried:
            if type(each) is type(total) and each.merge_key() == total.merge_key():
                total.merge(each)
                break
        carried.append(total)
        return real(self, total)

    real = DiscountedSum.release
    monkeypatch.setattr(DiscountedSum, "release", wrong)
    blocks = list(blocks_of(3))
    found = []
    for first in (blocks[0], blocks[0][1:]):
        carried.clear()
        found.append(released(stream_of(random_state=5), [first, *blocks[1:]]))
    assert np.abs((found[0] - found[1])[1]).max() > 0.01


def test_the_certificate_says_so_and_holds(tmp_path):
    stream = stream_of()
    for block in blocks_of(3):
        stream.partial_fit(block)
    certificate = stream.certificate_
    assert all(record.disjoint and record.stream is None for record in certificate.releases)
    assert "streams.md" in certificate.proofs
    guarantee = stream.guarantee_
    assert guarantee.certified
    assert 0.99 < guarantee.epsilon <= 1.0
    assert SAME_BLOCKS in guarantee.caveats
    assert ONE_BLOCK in guarantee.assumptions
    assert check(certificate).holds
    # after one block and after many it is one and the same loss
    again = stream_of().partial_fit(blocks_of(1)[0])
    assert again.guarantee_.epsilon == guarantee.epsilon


def holds(certificate):
    try:
        return check(certificate).holds
    except (PrivacyError, DataError):
        return False


def forged(certificate, change):
    values = json.loads(certificate.model_dump_json())
    change(values)
    values["plan_hash"] = plan_hash(values["plan"])
    return Certificate.model_validate(values)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: [record.update(disjoint=False) for record in v["releases"]],
        lambda v: v["releases"][0].update(disjoint=False),
        lambda v: v["plan"].update(publish="end"),
        lambda v: v["plan"].update(unit="patient"),
        lambda v: v["plan"].update(forgetting=0.0),
        lambda v: v["plan"].update(publish="continual", horizon=3),
        lambda v: v["releases"][-1]["noise"].update(
            scale=0.5 * v["releases"][-1]["noise"]["scale"]
        ),
        lambda v: v.update(proofs=[p for p in v["proofs"] if p != "streams.md"]),
    ],
)
def test_a_certificate_of_blocks_that_was_changed_does_not_hold(change):
    certificate = stream_of().partial_fit(blocks_of(1)[0]).certificate_
    assert holds(forged(certificate, lambda v: None))
    assert not holds(forged(certificate, change))


def test_an_end_or_a_fit_cannot_pass_as_blocks():
    """The flag says "any number of these": a certificate of one release may not have it."""
    ended = PrivateStreamingPCA(2).fit(blocks_of(1)[0]).certificate_

    def change(values):
        for record in values["releases"]:
            record["disjoint"] = True

    assert holds(ended)
    assert not holds(forged(ended, change))
    with pytest.raises(ValueError, match="not both"):
        ReleaseRecord.model_validate(
            {
                **ended.releases[0].model_dump(),
                "disjoint": True,
                "stream": best_factor(3).model_dump(),
            }
        )


# The noise


def record_of_blocks(mu=1.0):
    return calibrated_record(
        SecondMoment(RULE, features=D),
        name="a",
        adjacency="add-remove",
        kind="gaussian",
        budget=StepBudget(mu=mu),
        sharing=Sharing(disjoint=True),
    )


def noise_after(blocks, forgetting, n=400):
    """Noise of the discounted sum in isometric coordinates over its recorded scale, (n, size)."""
    rows = np.random.default_rng(3).normal(size=(blocks, 5, D))
    record, found = record_of_blocks(), []
    for _ in range(n):
        stream = DiscountedSum(record, SecureSource(), forgetting=forgetting)
        exact = np.zeros((D, D))
        for block in rows:
            total = SecondMoment(RULE, features=D)
            total.update(Block(block))
            exact = forgetting * exact + np.ldexp(total.integers().astype(float), total.grid)
            release = stream.release(total)
        found.append(svec(release.values - exact) / release.record.noise.scale)
    return np.array(found)


@pytest.mark.parametrize("forgetting", [1.0, 0.5])
def test_the_noise_of_a_discounted_sum_is_as_recorded(forgetting):
    assert isotropic(noise_after(5, forgetting), 1.0) > FALSE_ALARM


def test_other_noise_is_rejected(monkeypatch):
    drawn = SecondMoment.release

    def halved(self, record, source):
        release = drawn(self, record, source)
        exact = np.ldexp(self.integers().astype(float), self.grid)
        return type(release)(release.record, exact + (release.values - exact) / 2)

    monkeypatch.setattr(SecondMoment, "release", halved)
    assert isotropic(noise_after(3, 0.5, 200), 1.0) < REJECTED


def test_noise_stays_bounded_where_old_blocks_are_forgotten():
    record = record_of_blocks()
    stream = DiscountedSum(record, SecureSource(), forgetting=0.9)
    for _ in range(200):
        release = stream.release(SecondMoment(RULE, features=D))
    times = release.record.noise.scale / record.noise.scale
    assert times == pytest.approx(1 / math.sqrt(1 - 0.81), rel=1e-6)
    never = DiscountedSum(record, SecureSource(), forgetting=1.0)
    for _ in range(16):
        release = never.release(SecondMoment(RULE, features=D))
    assert release.record.noise.scale == pytest.approx(4 * record.noise.scale)


# What it is for


def test_a_change_of_subspace_is_followed_where_old_blocks_are_forgotten():
    """Released overlaps differ by .5 and more, their deviations are below .01."""
    rng = np.random.default_rng(1)
    turned = np.linalg.qr(rng.normal(size=(D, D)))[0]
    first, second = blocks_of(8, 2000), blocks_of(8, 2000, seed=1) @ turned.T
    overlaps = {}
    for forgetting in (1.0, 0.5):
        stream = stream_of(forgetting=forgetting, epsilon=4.0)
        for block in [*first, *second]:
            stream.partial_fit(block)
        best = np.linalg.eigh(np.cov(second.reshape(-1, D).T))[1][:, -2:]
        overlaps[forgetting] = np.linalg.norm(stream.components_ @ best) ** 2
    assert overlaps[0.5] > 1.97
    assert overlaps[1.0] < overlaps[0.5] - 0.01


def test_counted_rows_are_discounted_and_ranks_chosen_at_no_cost():
    """Counts are released; "auto" follows the released spectrum from block to block."""
    stream = stream_of(adjacency="replace-one", forgetting=0.5, epsilon=8.0)
    stream.set_params(n_components="auto")
    for block in blocks_of(3, 1000):
        stream.partial_fit(block)
    assert abs(stream.n_samples_ - 1750) < 100  # ten deviations of the noise
    before = stream.n_components_
    for block in blocks_of(6, 1000) * np.array([1.0, 0.0, 0.0, 0.0]):
        stream.partial_fit(block)
    assert stream.n_components_ < before
    assert stream.guarantee_.epsilon <= 8.0


def test_nothing_of_the_rows_is_held_between_blocks():
    stream = stream_of()
    for block in blocks_of(3):
        stream.partial_fit(block)
    assert stream._stream._sums == []
    assert all(isinstance(p, DiscountedSum) for p in stream._stream._prefixes)
    with pytest.raises(PrivacyError, match="pickled or copied"):
        stream._stream.__getstate__()


def test_prefix_sums_are_not_taken_for_it():
    with pytest.raises(AssertionError):
        stream_sums.PrefixSum(SecondMoment(RULE, features=D), record_of_blocks(), SecureSource())
