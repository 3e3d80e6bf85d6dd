"""Tests of the console, where its libraries are installed."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
for needed in ("authlib", "httpx", "itsdangerous", "jinja2", "starlette", "uvicorn"):
    pytest.importorskip(needed)


@pytest.fixture(autouse=True)
def _ended():
    """Servers end with their test."""
    from console_tools import OPEN

    yield
    while OPEN:
        OPEN.pop().__exit__(None, None, None)
