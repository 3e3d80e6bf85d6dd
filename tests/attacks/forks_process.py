"""Forks itself twice, all processes with one number; prints what parent and child drew."""

import ctypes
import json
import os
import sys

import numpy as np

from eigenveil.moments.accumulators import RowSum
from eigenveil.moments.release import noise_integers
from eigenveil.moments.rows import RowRule
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.calibration import record_of


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
        found = json.loads(pipe.read())
    os.wait()
    return found


def main():
    how, seeded = sys.argv[1:3]
    os.getpid = lambda: 1
    source = SeededSource(np.random.default_rng(1)) if seeded == "seeded" else SecureSource()
    draw = {"words": words, "noise": noise}[sys.argv[3]]
    draw(source)
    fork = {"python": os.fork, "c": ctypes.CDLL(None).fork}[how]
    drawn = [in_child(fork, draw, source) for _ in range(2)]
    drawn.append(draw(source))
    print(json.dumps(drawn))


if __name__ == "__main__":
    main()
