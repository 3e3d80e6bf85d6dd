"""The papers' commands, also where an older build of the package is installed."""

import pytest

from eigenveil.cli import app
from eigenveil_papers.entry import SIMULATE_TREE


@pytest.fixture(autouse=True)
def command(monkeypatch):
    monkeypatch.setitem(app.COMMANDS, "simulate-tree", SIMULATE_TREE)
