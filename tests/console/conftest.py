"""Tests of the console, where its libraries are installed."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
for needed in ("argon2", "authlib", "httpx", "pyotp", "segno", "starlette", "uvicorn"):
    pytest.importorskip(needed)


@pytest.fixture(autouse=True)
def _ended():
    """Servers end with their test."""
    from console_tools import OPEN

    yield
    while OPEN:
        OPEN.pop().__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch):
    """Passwords cost what they cost in benchmarks; here they are many."""
    import argon2

    from eigenveil.console import passwords

    quick = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", quick)
    passwords._nobodys.cache_clear()
