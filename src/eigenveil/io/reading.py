"""How a library's complaint about a file becomes the package's own error."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from eigenveil.errors import DataError

_COMPLAINTS = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    OverflowError,
    MemoryError,  # a damaged length
    SyntaxError,  # a damaged header of an array; TokenError too
    tokenize.TokenError,
    RuntimeError,  # an encrypted archive; NotImplementedError too
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
)
_LONGEST = 200  # characters of a complaint that quotes what it found


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except _COMPLAINTS as error:
        raise DataError(
            f"{path} cannot be read: {_first_line(error)}.",
            hint="Check that the file is complete, readable, and of the format its name ends in.",
            code="unreadable",
        ) from None


def _first_line(error: BaseException) -> str:
    known = isinstance(error, OSError) and not isinstance(error, pa.ArrowException)
    text = getattr(error, "strerror", None) if known else None
    lines = (text or str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST].rstrip(". ")
