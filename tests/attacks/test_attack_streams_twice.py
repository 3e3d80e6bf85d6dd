"""Rows counted twice, or kept, under one certificate."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from eigenveil import PrivateStreamingPCA
from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.moments import stream_sums
from eigenveil.moments.accumulators import Accumulator, SecondMoment
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import Block
from object_tools import arrays_of, contents_of, numbers_of

D = 5
ROWS = np.random.default_rng(3).normal(size=(400, D)) * [7.0, 3.0, 1.0, 1.0, 1.0]
CONTINUAL = {"publish": "continual", "horizon": 9}
BLOCKS = {"publish": "blocks", "forgetting": 0.5}


def stream_of(rows=None, **given):
    stream = PrivateStreamingPCA(2, **{"epsilon": 8.0} | given)
    return stream if rows is None else stream.partial_fit(rows)


def refused(code, call):
    with pytest.raises(PrivacyError) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert caught.value.hint


def refuses_everything(code, stream, other):
    refused(code, lambda: stream.partial_fit(ROWS))
    refused(code, lambda: stream.merge(other))
    refused(code, lambda: other.merge(stream))
    refused(code, stream.release)


@pytest.fixture
def counted(monkeypatch):
    """How many rows each release counts: of the histogram, before its noise."""
    found, real = [], Accumulator.release

    def noting(self, record, source):
        if isinstance(self, NormHistogram):
            found.append(int(self.integers()[-1]))
        return real(self, record, source)

    monkeypatch.setattr(Accumulator, "release", noting)
    return found


# -- merging


def test_a_stream_is_not_merged_into_itself(counted):
    mine = stream_of(ROWS)
    for same in (mine, copy.copy(mine)):
        refused("merge-itself", lambda same=same: mine.merge(same))
    mine.release()
    assert counted == [400]


def test_merged_sums_are_spent(counted):
    mine, theirs = stream_of(ROWS[:100]), stream_of(ROWS[100:])
    seen_twice = copy.copy(theirs)
    mine.merge(theirs)
    for spent in (theirs, seen_twice):
        refuses_everything("already-merged", spent, stream_of(ROWS))
    refused("already-merged", lambda: mine.merge(theirs))
    assert not arrays_of(theirs._stream._sums, theirs._stream._prefixes)
    mine.release()
    assert counted == [400]
    assert mine.blocks_ == 2
    theirs.fit(ROWS)  # a new stream
    assert check(theirs.certificate_).holds


def test_an_open_stream_is_not_copied():
    for given in ({}, CONTINUAL, {"random_state": 1}):
        stream = stream_of(ROWS, **given)
        for make in (copy.deepcopy, pickle.dumps):
            refused("open-stream", lambda make=make, stream=stream: make(stream))
    over = stream_of(ROWS).release()
    again = pickle.loads(pickle.dumps(over))
    assert again.certificate_ == over.certificate_
    refused("already-released", lambda: again.partial_fit(ROWS))


# -- loading


@pytest.mark.parametrize("given", [{}, CONTINUAL])
def test_a_loaded_stream_does_not_go_on(given, tmp_path):
    stream = stream_of(ROWS, **given).release()
    stream.save(tmp_path / "model.npz")
    loaded = PrivateStreamingPCA.load(tmp_path / "model.npz")
    loaded.set_params(epsilon=40.0)
    refuses_everything("loaded-model", loaded, stream_of(ROWS))
    assert loaded.certificate_ == stream.certificate_
    np.testing.assert_array_equal(loaded.components_, stream.components_)
    loaded.save(tmp_path / "again.npz")
    assert PrivateStreamingPCA.load(tmp_path / "again.npz").epsilon == 8.0
    loaded.fit(ROWS)
    assert 39.9 < loaded.guarantee_.epsilon <= 40.0
    assert loaded.certificate_.model != stream.certificate_.model


def test_a_stream_stays_as_it_was_begun(tmp_path):
    """Target, noise and what is saved are those of the start, whatever is set later."""
    stream = stream_of(ROWS[:200], random_state=1, **CONTINUAL)
    stream.set_params(epsilon=0.1, random_state=None, publish="end")
    bases = {stream.components_.tobytes(): stream.certificate_}
    stream.partial_fit(ROWS[200:])
    assert 7.9 < stream.guarantee_.epsilon <= 8.0
    assert stream.certificate_.noise_source == "seeded"
    bases[stream.components_.tobytes()] = stream.certificate_
    assert len({certificate.model for certificate in bases.values()}) == 2
    stream.save(tmp_path / "model.npz")
    assert PrivateStreamingPCA.load(tmp_path / "model.npz").epsilon == 8.0


# -- forks


def in_a_fork(work):
    """What a forked child says of it."""
    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            theirs.send("done")
        except PrivacyError as error:
            theirs.send(error.code)
        except BaseException as error:  # the child must not run the rest of the tests
            theirs.send(repr(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return ours.recv()


def test_a_fork_cannot_use_its_parents_stream():
    stream, over = stream_of(ROWS), stream_of(ROWS).release()
    for work in (
        stream.release,
        lambda: stream.partial_fit(ROWS),
        lambda: stream_of(ROWS).merge(stream),
        lambda: stream.merge(stream_of(ROWS)),
        over.release,
    ):
        assert in_a_fork(work) == "other-process"
    assert in_a_fork(lambda: stream_of(ROWS).release()) == "done"
    assert in_a_fork(lambda: over.transform(ROWS)) == "done"
    stream.release()


# -- interrupts


class Trap:
    """Raises at the n-th step of those it watches, once."""

    def __init__(self, monkeypatch, watched, kind):
        self.left, self.steps, self.kind = None, 0, kind
        for owner, name in watched:
            monkeypatch.setattr(owner, name, self._of(getattr(owner, name)))

    def _of(self, real):
        def watched(*given, **named):
            self.step()
            found = real(*given, **named)
            self.step()
            return found

        return watched

    def step(self):
        self.steps += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise self.kind


STEPS = (
    *((kind, name) for kind in (NormHistogram, SecondMoment) for name in ("update", "merge")),
    (SecondMoment, "flush"),
    (stream_sums.PrefixSum, "release"),
    (stream_sums.DiscountedSum, "release"),
    (stream_sums, "noise_integers"),
    (PrivateStreamingPCA, "_take_over"),
)


@pytest.mark.parametrize(
    ("given", "kind"),
    [({}, MemoryError), (CONTINUAL, KeyboardInterrupt), (BLOCKS, MemoryError)],
    ids=["end", "continual", "blocks"],
)
def test_no_step_of_an_update_can_count_rows_twice(given, kind, monkeypatch, counted):
    """As often as it has steps: as it was, and the block can be given again; or torn for good."""
    trap = Trap(monkeypatch, STEPS, kind)
    plain = stream_of(ROWS[:100], **given)
    trap.steps = 0
    plain.partial_fit(ROWS[100:])
    steps, torn = trap.steps, 0
    assert steps >= 6
    for step in range(steps):
        stream = stream_of(ROWS[:100], **given)
        before = contents_of(stream._stream)
        trap.left = step
        with pytest.raises(kind) as caught:
            stream.partial_fit(ROWS[100:])
        if stream._stream.torn:
            torn += 1
            refuses_everything("torn", stream, stream_of(ROWS, **given))
            assert not arrays_of(stream._stream._sums, stream._stream._prefixes)
            assert bool(given) == (getattr(caught.value, "spent", None) is not None)
            continue
        assert contents_of(stream._stream) == before
        counted.clear()
        stream.partial_fit(ROWS[100:]).release()
        # a block with noise of its own counts its own rows, a prefix is no accumulator's release
        assert counted == {"end": [400], "continual": [], "blocks": [300]}[stream.publish]
    assert 0 < torn < steps


def test_no_step_of_a_merge_can_count_rows_twice(monkeypatch, counted):
    trap = Trap(monkeypatch, STEPS, KeyboardInterrupt)
    mine, theirs = stream_of(ROWS[:100]), stream_of(ROWS[100:])
    trap.steps = 0
    mine.merge(theirs)
    for step in range(trap.steps):
        mine, theirs = stream_of(ROWS[:100]), stream_of(ROWS[100:])
        trap.left = step
        with pytest.raises(KeyboardInterrupt):
            mine.merge(theirs)
        for stream in (mine, theirs):
            refuses_everything("torn", stream, stream_of(ROWS))


def test_no_step_of_a_release_can_draw_noise_twice(monkeypatch):
    import eigenveil.moments.release as release

    trap = Trap(monkeypatch, [(release, "noise_integers")], KeyboardInterrupt)
    stream_of(ROWS).release()
    steps = trap.steps
    assert steps == 4
    for step in range(steps):
        stream = stream_of(ROWS)
        trap.left = step
        with pytest.raises(KeyboardInterrupt) as caught:
            stream.release()
        assert 7.9 < caught.value.spent.epsilon <= 8.0
        assert not hasattr(stream, "certificate_")
        refuses_everything("torn", stream, stream_of(ROWS))
    anew = stream.fit(ROWS)
    assert check(anew.certificate_).holds


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from eigenveil import PrivateStreamingPCA
from eigenveil.errors import PrivacyError
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.histograms import NormHistogram

real = Accumulator.release
def noting(self, record, source):
    if isinstance(self, NormHistogram):
        print("counted", int(self.integers()[-1]))
    return real(self, record, source)
Accumulator.release = noting

rows = np.random.default_rng(0).normal(size=(400_000, 20))
stream = PrivateStreamingPCA(2).partial_fit(rows[:10])
started = time.perf_counter()
PrivateStreamingPCA(2).partial_fit(rows)
took = time.perf_counter() - started
share = float(sys.argv[1])
threading.Timer(share * took, os.kill, (os.getpid(), signal.SIGINT)).start()
given = 0
while given < 3:
    try:
        stream.partial_fit(rows)
        break
    except KeyboardInterrupt:
        given += 1
        print("interrupted")
    except PrivacyError as error:
        print(error.code)
        sys.exit()
try:
    time.sleep(took)  # an interrupt that comes late hits nothing
except KeyboardInterrupt:
    pass
stream.release()
"""


@pytest.mark.parametrize("share", [0.3, pytest.param(0.9, marks=pytest.mark.thorough)])
def test_a_real_interrupt_counts_no_row_twice(share):
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(share)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.split()
    assert "torn" in said or said[-2:] == ["counted", "400010"], ended.stdout


# -- what is kept


def prepared(rows):
    """Rows as sums see them: of norm 1, but for the grid."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("rows", [ROWS[:3], ROWS, ROWS[:1]], ids=["few", "all", "one"])
@pytest.mark.parametrize("given", [{}, {"sketch_size": 4}], ids=["moment", "sketch"])
def test_a_released_stream_holds_nothing_of_the_rows(rows, given):
    stream = stream_of(ROWS[:50], **given).partial_fit(rows)
    open_size = sum(array.nbytes for array in arrays_of(stream._stream))
    count, norms = 50 + len(rows), prepared(rows)
    exact = prepared(np.vstack([ROWS[:50], rows]))
    held = [a for a in arrays_of(stream) if a.dtype != object and a.size]
    assert not any(shows_rows(a, norms) for a in held)  # between two blocks: sums only
    assert any(shows_sum(a, exact) for a in held) == (not given)
    assert count in numbers_of(stream)
    stream.release()
    held = [a for a in arrays_of(stream) if a.dtype != object and a.size]
    assert not any(shows_rows(a, norms) or shows_sum(a, exact) for a in held)
    assert count not in numbers_of(stream)
    noisy = {id(array) for array in stream.released_.values()}  # kept for what is made of them
    left = [array for array in arrays_of(stream._stream) if id(array) not in noisy]
    assert sum(array.nbytes for array in left) < open_size


def shows_rows(array, rows):
    """Whether a prepared row stands anywhere in it, in whatever units."""
    if array.dtype.kind not in "fi" or array.size < D:
        return False
    values = array.astype(float).ravel()
    values = values[: values.size // D * D].reshape(-1, D)
    lengths = np.linalg.norm(values, axis=1)
    values = values[lengths > 0] / lengths[lengths > 0, None]
    return bool(np.any(np.abs(values @ rows.T) > 1 - 1e-5))


def shows_sum(array, rows):
    """Whether it is the rows' exact second moment, in whatever units."""
    if array.shape != (D, D):
        return False
    values, moment = array.astype(float), rows.T @ rows
    if not np.any(values):
        return False
    return bool(
        np.vdot(values, moment) / np.linalg.norm(values) / np.linalg.norm(moment) > 1 - 1e-6
    )


def test_the_last_block_of_a_continual_stream_ends_it():
    stream = stream_of(publish="continual", horizon=2)
    for part in np.array_split(ROWS, 2):
        stream.partial_fit(part)
    assert not arrays_of(stream._stream._sums, stream._stream._prefixes)
    assert 400 not in numbers_of(stream._stream)
    refused("horizon-over", lambda: stream.partial_fit(ROWS))
    before = stream.certificate_
    assert stream.release().certificate_ == before


def test_the_walk_finds_what_is_there():
    """It would see rows that wait, and sums: it is not blind."""
    sums = stream_of(ROWS)._stream._sums
    moment = next(each for each in sums if isinstance(each, SecondMoment)).empty()
    moment.update(Block(ROWS[:20]))
    assert any(shows_rows(a, prepared(ROWS[:20])) for a in arrays_of(moment))
    moment.flush()
    assert any(shows_sum(a, prepared(ROWS[:20])) for a in arrays_of(moment))
