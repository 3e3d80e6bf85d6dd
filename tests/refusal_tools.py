"""Refusals by their codes."""

from contextlib import contextmanager

import pytest

from eigenveil import DataError


@contextmanager
def refuses(code, match=None, kind=DataError):
    """What is done within is refused with this code."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.code == code
