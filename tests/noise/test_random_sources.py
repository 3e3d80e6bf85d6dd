"""The sources of random words."""

import copy
import os
import pickle
from collections import Counter

import numpy as np
import pytest

from eigenveil.noise import source as module
from eigenveil.noise.source import KeyedSource, SecureSource, SeededSource
from statistics_tools import FALSE_ALARM, REJECTED, chi_square, together


def uniform(words):
    """p-value of bytes, of bits by place, and of successive bytes being uniform."""
    octets = words.view(np.uint8)
    ones = np.unpackbits(octets.reshape(-1, 8), axis=1).sum(axis=0)
    n = words.size
    pairs = octets.astype(int)[: octets.size // 2 * 2].reshape(-1, 2)
    return together(
        chi_square(np.bincount(octets, minlength=256), np.ones(256)),
        [chi_square([count, n - count], [1, 1]) for count in ones],
        chi_square(
            np.bincount(16 * (pairs[:, 0] >> 4) + (pairs[:, 1] >> 4), minlength=256), [1] * 256
        ),
    )


@pytest.mark.parametrize("source", [SecureSource(), SeededSource(np.random.default_rng())])
def test_words_look_uniform(source):
    words = source.words(200_000)
    assert words.dtype == np.uint64
    assert uniform(words) > FALSE_ALARM
    stuck = words | (np.arange(words.size) % 20 == 0).astype(np.uint64)  # one bit, in one of 20
    assert uniform(stuck) < REJECTED


def test_words_go_on_where_they_stopped_and_never_repeat():
    source = SecureSource()
    parts = [source.words(n) for n in (0, 1, 3, 1000)]
    parts.append(SecureSource().words(1000))
    every = np.concatenate(parts)
    assert np.unique(every).size == every.size == 2004


def test_secure_source_cannot_be_pickled_or_copied():
    for source in (SecureSource(), KeyedSource(bytes(32))):
        source.words(3)
        for make in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                make(source)
        assert source.secure
        assert "key" not in str(vars(source)).lower()


def test_parent_and_forked_child_draw_different_words():
    source = SecureSource()
    source.words(5)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.words(100).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.uint64)
    os.waitpid(child, 0)
    assert theirs.size == 100
    assert np.intersect1d(theirs, source.words(100)).size == 0


def test_block_counter_never_runs_over(monkeypatch):
    """A start of the key stream near the end of its 32-bit counter must not stop a fit."""
    monkeypatch.setattr(module.os, "urandom", lambda n: b"\xff" * n)
    assert SecureSource().words(100_000).size == 100_000


def test_no_key_gives_more_than_its_bytes(monkeypatch):
    """Of 32 words a key here: what is asked for in parts, and more than a key has at once."""
    given = Counter()
    next_words = module._next_words

    def counted(stream, count):
        given[stream] += 8 * count
        return next_words(stream, count)

    monkeypatch.setattr(module, "_next_words", counted)
    monkeypatch.setattr(module, "_BYTES_A_KEY", 256)
    source = SecureSource()
    for count in (20, 12, 1, 20, 1000, 31):
        assert source.words(count).size == count
    assert max(given.values()) == 256
    assert sum(given.values()) == 8 * 1084


def test_seeds_repeat_and_are_marked():
    assert not SeededSource(3).secure
    assert np.array_equal(SeededSource(3).words(9), SeededSource(3).words(9))
    assert not np.array_equal(SeededSource(3).words(9), SeededSource(4).words(9))
    generator = np.random.default_rng(3)
    assert np.array_equal(SeededSource(generator).words(9), SeededSource(3).words(9))


def test_every_numpy_generator_gives_whole_words():
    """MT19937, for one, makes 32 bits at a time."""
    source = SeededSource(np.random.Generator(np.random.MT19937()))
    assert uniform(source.words(50_000)) > FALSE_ALARM
