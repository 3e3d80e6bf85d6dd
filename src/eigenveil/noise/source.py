"""Where noise comes from: operating-system entropy, or a seed that marks the result.

Every distribution here is made from one stream of uniform 64-bit words, so a seeded run takes the
same path as a secure one.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

# A key's stream ends at 2**38 bytes; a new one is taken long before.
_BYTES_A_KEY = 1 << 30


class RandomSource(Protocol):
    """A stream of independent uniform 64-bit words."""

    @property
    def secure(self) -> bool:
        """Whether nobody can predict or repeat the words."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words."""
        ...


class SecureSource:
    """ChaCha20 keyed by the operating system; it cannot be seeded.

    The 256-bit key comes from ``os.urandom`` and never leaves the object, which takes a new one
    every gibibyte and after a fork. It refuses to be pickled or copied: two copies would draw the
    same noise twice.
    """

    secure = True

    def __init__(self) -> None:
        self._rekey()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the key stream."""
        size = 8 * count
        if os.getpid() != self._owner or size > self._left:
            self._rekey()  # a forked child would repeat its parent's noise; a counter runs out
        if size > _BYTES_A_KEY:
            return np.concatenate([self.words(count // 2), self.words(count - count // 2)])
        self._left -= size
        return np.frombuffer(self._stream.update(bytes(size)), dtype=np.uint64)

    def _rekey(self) -> None:
        # the first four bytes are the block counter: from zero, so that it cannot run over
        start = bytes(4) + os.urandom(12)
        self._stream = Cipher(algorithms.ChaCha20(os.urandom(32), start), mode=None).encryptor()
        self._left = _BYTES_A_KEY
        self._owner = os.getpid()

    def __reduce__(self) -> str:
        raise TypeError("A secure noise source cannot be pickled or copied.")


class KeyedSource:
    """The words that everybody with the same 32-byte key draws: for masks, never for noise."""

    secure = True

    def __init__(self, key: bytes) -> None:
        # every key is used for one stream only, so it may start at zero
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the key's stream; at most 2**35 in all."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8").astype(
            np.uint64, copy=False
        )


class SeededSource:
    """Reproducible words, for tests and reproductions; results made with it are not certified."""

    secure = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the seeded generator."""
        return self._rng.integers(0, 2**64, size=count, dtype=np.uint64)
