"""Forks itself twice in each way, all processes with one number; prints what each of them drew."""

import ctypes
import json
import os

import numpy as np

from eigenveil.moments.accumulators import RowSum
from eigenveil.moments.release import noise_integers
from eigenveil.moments.rows import RowRule
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.calibration import record_of

LIBC = ctypes.CDLL(None, use_errno=True)


def noise(source):
    """Of one release."""
    sums = RowSum(RowRule(), features=40, count_weight=0.25)
    record = record_of(
        sums, name="mean", adjacency="add-remove", kind="gaussian", scale=3.0, grid=-18
    )
    return noise_integers(sums, record, source).tolist()


def words(source):
    return source.words(40).tolist()


def in_child(fork, draw, source):
    """What a fork draws next."""
    read, write = os.pipe()
    if fork() == 0:
        os.write(write, json.dumps(draw(source)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found = pipe.read()
    os.wait()
    return json.loads(found or b"null")


def copies(fork, draw, source):
    """What two forks and the process itself draw next."""
    draw(source)
    return [in_child(fork, draw, source) for _ in range(2)] + [draw(source)]


def in_namespace(source):
    """The number and the words of the first process of a new namespace; nothing if refused."""
    if LIBC.unshare(0x10000000 | 0x20000000):  # users and processes
        return None
    return in_child(os.fork, lambda source: [os.getpid(), words(source)], source)


def main():
    source = SecureSource()
    words(source)
    found = {"namespaces": [in_child(os.fork, in_namespace, source) for _ in range(2)]}
    os.getpid = lambda: 1
    for name, fork, draw in (
        ("python words", os.fork, words),
        ("python noise", os.fork, noise),
        ("c noise", LIBC.fork, noise),
    ):
        secure = copies(fork, draw, SecureSource())
        found[name] = secure, copies(fork, draw, SeededSource(np.random.default_rng(1)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
