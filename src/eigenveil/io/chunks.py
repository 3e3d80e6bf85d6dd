"""Rows in pieces of one size, whatever pieces they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def rechunk(parts: Iterable[NDArray[Any]], step: int) -> Iterator[NDArray[Any]]:
    """Cut the same rows into pieces of ``step``; only the last may be shorter, and none is empty.

    A piece that lies within one part is a view of it.
    """
    waiting: list[NDArray[Any]] = []
    count = 0
    for part in parts:
        taken = 0
        while taken < part.shape[0]:
            piece = part[taken : taken + step - count]
            waiting.append(piece)
            taken += piece.shape[0]
            count += piece.shape[0]
            if count == step:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
