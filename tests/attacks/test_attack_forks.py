"""Copies of a process that draw the same noise: forks that have one process number.

It would have found that a source of noise noticed forks by their process number alone: two
children, each number 1 in a namespace of its own, drew the same noise, and the difference of their
two releases was exact. Also what no hook can notice, a fork inside a C library, and threads.
"""

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
from eigenveil.noise import source as source_module
from eigenveil.noise.source import SecureSource

PROCESS = Path(__file__).with_name("forks_process.py")


def drawn(*words):
    done = subprocess.run(
        [sys.executable, str(PROCESS), *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = [np.array(each) for each in json.loads(done.stdout)]
    assert all(each.size >= 40 for each in found)
    return found


def different(found):
    return all(np.any(a != b) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize(
    ("how", "what"), [("python", "words"), ("python", "noise"), ("c", "noise")]
)
def test_forks_with_one_process_number_draw_different_noise(how, what):
    """Equal by chance: 40 values of 64 bits, or of 10 bits of noise at the least."""
    found = drawn(how, "secure", what)
    assert len(found) == 3
    assert different(found)
    # the same copies of a source that notices nothing
    assert not different(drawn(how, "seeded", what))


NAMESPACES = """
import json, os, sys
sys.argv[0] = sys.argv[1]
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from forks_process import words, noise
from eigenveil.noise.source import SecureSource
source = SecureSource()
words(source)
numbers, drawn = [], []
for _ in range(2):
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x10000000 | 0x20000000):  # users and processes
            os.write(write, b"refused")
            os._exit(0)
        if os.fork() == 0:
            os.write(write, json.dumps([os.getpid(), words(source)]).encode())
            os._exit(0)
        os.wait()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(middle, 0)
    if text in (b"refused", b""):
        print("refused")
        sys.exit()
    number, found = json.loads(text)
    numbers.append(number)
    drawn.append(found)
print(json.dumps([numbers, drawn]))
"""


def test_first_processes_of_two_namespaces_draw_different_noise():
    done = subprocess.run(
        [sys.executable, "-c", NAMESPACES, str(PROCESS)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "refused":
        pytest.skip("this system allows no namespaces of processes")
    numbers, found = json.loads(done.stdout)
    assert numbers == [1, 1]
    assert different([np.array(each) for each in found])


def test_threads_draw_different_words():
    source, ready = SecureSource(), Barrier(4)

    def draw(_):
        ready.wait()
        return [source.words(5_000) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        every = np.concatenate([part for parts in pool.map(draw, range(4)) for part in parts])
    assert every.size == 400_000
    assert np.unique(every).size == every.size  # equal by chance: 4e5**2 / 2**65 < 1e-8


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
    helper = helper_of_a_study()

    def key():
        body = JoinRequest()
        message = Message("join", helper._hash, "ab" * 12, AGGREGATOR, body.fields(), {})
        reply = decode(helper.handle(encode(message)), sender="helper", limit=1 << 20)
        return reply.read(HelperKey).keys

    first = key()
    assert key() == first
    monkeypatch.setattr(source_module, "_forks", source_module._forks + 1)
    assert key() != first


def helper_of_a_study():
    from eigenveil.federation.protocol.terms import settle
    from eigenveil.federation.study.study import make_study

    study = make_study(
        name="three",
        features=5,
        components=2,
        epsilon=1.0,
        delta=1e-6,
        protocol="cape",
        masks="helper",
        sites=[{"name": name} for name in ("north", "south", "west")],
    )
    return Helper(settle(study))
