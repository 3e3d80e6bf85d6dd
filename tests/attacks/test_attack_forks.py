"""Copies of a process that draw the same noise: forks that have one process number."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import AGGREGATOR, Message, decode, encode
from eigenveil.federation.protocol.payloads import HelperKey, JoinRequest
from eigenveil.federation.protocol.terms import settle
from eigenveil.noise import source as source_module
from eigenveil.noise.source import SecureSource
from federation_tools import study_of

PROCESS = Path(__file__).with_name("forks_process.py")


@pytest.fixture(scope="module")
def drawn():
    done = subprocess.run(
        [sys.executable, str(PROCESS)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def different(found):
    parts = [np.array(each) for each in found]
    assert all(each.size >= 40 for each in parts)
    return all(np.any(a != b) for i, a in enumerate(parts) for b in parts[:i])


@pytest.mark.parametrize("how", ["python words", "python noise", "c noise"])
def test_forks_with_one_process_number_draw_different_noise(drawn, how):
    """Equal by chance: 40 values of 64 bits, or of 10 bits of noise at the least."""
    secure, seeded = drawn[how]
    assert len(secure) == 3
    assert different(secure)
    assert not different(seeded)  # the same copies of a source that notices nothing


def test_first_processes_of_two_namespaces_draw_different_noise(drawn):
    if None in drawn["namespaces"]:
        pytest.skip("this system allows no namespaces of processes")
    (one, mine), (other, theirs) = drawn["namespaces"]
    assert one == other == 1
    assert different([mine, theirs])


def test_threads_draw_different_words():
    source, ready = SecureSource(), Barrier(4)

    def draw(_):
        ready.wait()
        return [source.words(2_000) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        every = np.concatenate([part for parts in pool.map(draw, range(4)) for part in parts])
    assert every.size == 80_000
    assert np.unique(every).size == every.size  # equal by chance: 8e4**2 / 2**65 < 1e-8


def test_every_thread_has_a_key_of_its_own(monkeypatch):
    """The same entropy for all gives all the same words: nothing else is shared."""
    monkeypatch.setattr(source_module.os, "urandom", lambda count: bytes(count))
    source = SecureSource()
    mine = source.words(10)
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(source.words, 10).result()
    assert np.array_equal(mine, theirs)
    assert not np.array_equal(mine, source.words(10))


def test_a_forked_helper_knows_no_session(monkeypatch):
    """Parent and child could else be asked for one round's masks in two ways."""
    helper = Helper(settle(study_of(masks="helper")))

    def key():
        body = JoinRequest()
        message = Message("join", helper._hash, "ab" * 12, AGGREGATOR, body.fields(), {})
        reply = decode(helper.handle(encode(message)), sender="helper", limit=1 << 20)
        return reply.read(HelperKey).keys

    first = key()
    assert key() == first
    monkeypatch.setattr(source_module, "_forks", source_module._forks + 1)
    assert key() != first
