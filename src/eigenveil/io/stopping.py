"""Ctrl-C as an orderly end of something that otherwise never ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import pyarrow as pa

_T = TypeVar("_T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether it is time to end.

    Ctrl-C cuts waiting short, but lets a step that is under way finish; a second one during that
    step is an ordinary KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False
        self._waiting = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM for requests while this lasts (in the main thread only)."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # pyarrow's own handlers hand a signal on through a thread, and lose it where reading ends
        # first.
        pa.enable_signal_handlers(False)
        before = {number: signal.signal(number, self._take) for number in _SIGNALS}
        try:
            yield
        finally:
            pa.enable_signal_handlers(True)
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, action: Callable[[], _T]) -> _T | None:
        """Do what may take for ever; ``None`` as soon as the end is requested."""
        try:
            try:
                self._waiting = True
                return None if self.requested else action()
            finally:
                self._waiting = False
        except _Interrupted:  # also where it came during the line above
            return None

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        again, self.requested = self.requested, True
        if self._waiting:
            self._waiting = False
            raise _Interrupted
        if again:
            raise KeyboardInterrupt


class _Interrupted(BaseException):
    """Leaves what waits."""
