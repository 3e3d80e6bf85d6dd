"""Where noise comes from: words of the operating system, or of a seed that marks the result."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

# A key's stream ends at 2**38 bytes; a new one is taken long before.
_BYTES_A_KEY = 1 << 30
# Of streams that are added up, at a time: with as much of the total, within a first-level cache
# or little beyond.
_PIECE = 1 << 16
_ZEROS = memoryview(bytes(_PIECE))


class RandomSource(Protocol):
    """A stream of independent uniform 64-bit words."""

    @property
    def secure(self) -> bool:
        """Whether nobody can predict or repeat the words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words."""


_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


# process numbers do not tell: the children of two namespaces may have the same
os.register_at_fork(after_in_child=_count_fork)


def process() -> tuple[int, int]:
    """Changes in a forked child, whatever its number: what may not be repeated belongs to one."""
    return os.getpid(), _forks


class _Secret:
    """It refuses to be pickled or copied: two copies would draw the same words twice."""

    def __reduce__(self) -> str:
        raise TypeError("A source of secret words cannot be pickled or copied.")


class SecureSource(_Secret):
    """ChaCha20 keyed by the operating system; it cannot be seeded."""

    # every thread has a key of its own, and takes a new one every gibibyte and after a fork

    secure = True

    def __init__(self) -> None:
        self._own = _Stream()

    def words(self, count: int) -> NDArray[np.uint64]:
        own, size = self._own, 8 * count
        if process() != own.process or size > own.left:
            own.rekey()  # a forked child would repeat its parent's noise; a counter runs out
        if size > _BYTES_A_KEY:
            return np.concatenate([self.words(count // 2), self.words(count - count // 2)])
        own.left -= size
        return _next_words(own.stream, count).view(np.uint64)


def _next_words(stream: Any, count: int) -> NDArray[np.uint64]:
    """Words of a key stream, little-endian, written once and piece by piece within the cache."""
    words = np.empty(count, dtype="<u8")
    view = words.view(np.uint8).data
    for start in range(0, 8 * count, _PIECE):
        piece = view[start : start + _PIECE]
        stream.update_into(_ZEROS[: len(piece)], piece)
    return words


class _Stream(threading.local):
    """A thread's key stream."""

    process: tuple[int, int] | None = None
    left = 0
    stream: Any

    def rekey(self) -> None:
        # the first four bytes are the block counter: from zero, so that it cannot run over
        start = bytes(4) + os.urandom(12)
        self.stream = Cipher(algorithms.ChaCha20(os.urandom(32), start), mode=None).encryptor()
        self.left = _BYTES_A_KEY
        self.process = process()


def of_one_release(source: RandomSource) -> RandomSource:
    """A secure source keyed anew for the noise of one release; a seeded one as it is."""
    # whatever happened to the process before, such as a copy of it that nothing here noticed
    return SecureSource() if isinstance(source, SecureSource) else source


class KeyedSource(_Secret):
    """The words that everybody with the same 32-byte key draws: for masks, never for noise."""

    secure = True

    def __init__(self, key: bytes) -> None:
        self._stream = _keyed_stream(key)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the key's stream; at most 2**35 in all."""
        return _next_words(self._stream, count).astype(np.uint64, copy=False)


def _keyed_stream(key: bytes) -> Any:
    """Every key is used for one stream only, so it may start at zero."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()


def add_streams(total: NDArray[np.uint64], keys: Sequence[tuple[bytes, bool]]) -> None:
    """Add the words of keys' streams to ``total``, or subtract them, modulo 2**64."""
    streams = [(_keyed_stream(key), adds) for key, adds in keys]
    drawn = np.empty(_PIECE // 8, dtype="<u8")
    for start in range(0, total.size, drawn.size):
        piece = total[start : start + drawn.size]
        words = drawn[: piece.size]
        view = words.data.cast("B")
        for stream, adds in streams:
            stream.update_into(_ZEROS[: len(view)], view)
            if adds:
                np.add(piece, words, out=piece)
            else:
                np.subtract(piece, words, out=piece)


class SeededSource:
    """Reproducible words, for tests and reproductions; results made with it are not certified."""

    secure = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, size=count, dtype=np.uint64)


def noise_source(random_state: object) -> RandomSource:
    """Operating-system entropy, or the seeded stand-in that marks the result."""
    if random_state is None:
        return SecureSource()
    if isinstance(random_state, np.random.RandomState):
        return SeededSource(int(random_state.randint(2**31)))
    return SeededSource(random_state)  # type: ignore[arg-type]
