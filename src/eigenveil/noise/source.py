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

    The 256-bit key is drawn once an object from ``os.urandom`` and never leaves it. The object
    refuses to be pickled or copied: two copies would draw the same noise twice.
    """

    secure = True

    def __init__(self) -> None:
        cipher = Cipher(algorithms.ChaCha20(os.urandom(32), os.urandom(16)), mode=None)
        self._stream = cipher.encryptor()
        self._owner = os.getpid()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the key stream."""
        if os.getpid() != self._owner:  # a forked child would repeat its parent's noise
            self.__init__()  # type: ignore[misc]
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype=np.uint64)

    def __reduce__(self) -> str:
        raise TypeError("A secure noise source cannot be pickled or copied.")


class SeededSource:
    """Reproducible words, for tests and reproductions; results made with it are not certified."""

    secure = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        rng = np.random.default_rng(seed)
        self._bits = rng.bit_generator

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the seeded generator."""
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)
