"""Who is told of the progress of fits that name nobody themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

FitProgress = Callable[[str, int], None]
"""Called with what is done, and how many more rows (of a study: sites) it is done for."""
_LISTENER: ContextVar[FitProgress | None] = ContextVar("listener", default=None)


def current_progress() -> FitProgress | None:
    """Who is told now, if anybody."""
    return _LISTENER.get()


@contextmanager
def told_to(listener: FitProgress | None) -> Iterator[None]:
    """Tell this listener of the fits in the block, in this thread and those of its context."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
