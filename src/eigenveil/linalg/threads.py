"""How many threads the linear-algebra libraries may take."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import cast

from threadpoolctl import ThreadpoolController


def single_threaded_blas() -> AbstractContextManager[object]:
    """One thread a call, while our own workers use the processors."""
    return cast("AbstractContextManager[object]", _controller().limit(limits=1))


def small_matrix_threads(size: int) -> AbstractContextManager[object]:
    """One thread for matrices of up to about a thousand rows."""
    # idle threads spin for a while after a call, and slow down whatever our workers do next
    return single_threaded_blas() if size < _LARGE else nullcontext()


_LARGE = 1500


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """Looks through the loaded libraries once; doing so for every call would take longer."""
    return ThreadpoolController()
