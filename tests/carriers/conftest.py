"""A network of each kind that all tests share."""

import os
import sys
from pathlib import Path

import pytest

from eigenveil.network.relays import SAME_USER

for _each in (Path(__file__).parent, Path(__file__).parents[1] / "network"):
    sys.path.insert(0, str(_each))

from networks import KINDS, VERSION, Flare, Flower  # noqa: E402


@pytest.fixture(scope="session", params=KINDS)
def network(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    os.environ[SAME_USER] = "1"
    with Flare(folder, VERSION) if request.param == "flare" else Flower(folder) as started:
        yield started
