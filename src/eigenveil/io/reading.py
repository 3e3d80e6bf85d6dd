"""What every file of rows can do, and how a library's complaint becomes the package's own error."""

from __future__ import annotations

import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.rows import FloatArray

_COMPLAINTS = (
    OSError,
    EOFError,
    LookupError,
    NotImplementedError,
    OverflowError,
    RuntimeError,  # an encrypted archive
    TypeError,
    ValueError,
    MemoryError,  # a damaged length
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
)


class RowFile(ABC):
    """Rows of one file.

    Parameters
    ----------
    path : Path
        Named in messages as it was given.
    """

    names: ClassVar[Sequence[str] | None] = None
    """Names of the columns; ``None`` where the format has none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def single(self, columns: Sequence[str] | None) -> bool:
        """Whether single precision holds every entry of these columns exactly."""

    @abstractmethod
    def parts(
        self, columns: Sequence[str] | None, dtype: type, step: int
    ) -> Iterator[FloatArray | NDArray[Any]]:
        """All rows of these columns, in order, in parts of about ``step`` rows.

        ``columns`` is of no meaning to a file without names, which gives all it has. Parts may be
        views, and of any numeric type.
        """

    def has_rows(self, columns: Sequence[str] | None) -> bool:
        """Whether there is a row at all; reads no more than the first."""
        with reading(self.path):
            return any(part.shape[0] > 0 for part in self.parts(columns, float, 1))


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
    if isinstance(error, OSError) and error.strerror and not isinstance(error, pa.ArrowException):
        text = error.strerror
    else:
        text = str(error).strip() or type(error).__name__
    text = text.splitlines()[0]
    # pyarrow ends by quoting the offending line: the owner's data has no business in a message
    text = re.sub(r"(Expected \d+ columns, got \d+):.*", r"\1", text)
    return text.rstrip(". ")
