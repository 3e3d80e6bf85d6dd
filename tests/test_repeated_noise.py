"""That two runs of the tests on one commit draw the same noise, and different tests another."""

import os
from pathlib import Path

import numpy as np
import pytest

import repeated_tools
from eigenveil import PrivatePCA
from eigenveil.noise.source import SecureSource

pytestmark = pytest.mark.skipif(repeated_tools.FRESH, reason="noise is fresh in this run")
ROWS = np.random.default_rng(1).standard_normal((50, 4))


def components():
    return PrivatePCA(2, center=False, row_bound=3.0).fit(ROWS).components_


def test_one_name_is_one_stream():
    found = []
    for name in ("one", "one", "other"):
        with repeated_tools.noise_of(name):
            found.append([components(), components()])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0][0], found[0][1])
    assert not np.array_equal(found[0][0], found[2][0])


@pytest.fixture(scope="module", params=["a", "b"])
def shared(request):
    return request.param, SecureSource().words(1)


def test_a_fixtures_noise_is_not_its_first_tests(shared):
    place, index = Path("tests", "test_repeated_noise.py").as_posix(), "ab".index(shared[0])
    with repeated_tools.noise_of(f"{place} shared {index}"):
        assert np.array_equal(shared[1], SecureSource().words(1))


def test_a_forked_child_draws_its_own():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, SecureSource().words(1).tobytes())
        os._exit(0)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read(8) != SecureSource().words(1).tobytes()
    os.wait()
