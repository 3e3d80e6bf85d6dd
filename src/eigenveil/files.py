"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eigenveil.errors import OutputError


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A scratch file beside ``target`` that takes its place when the block ends well.

    Only its owner may read it, as is right for what may show rows.

    Raises
    ------
    OutputError
        When the folder is missing or cannot be written; ``target`` is as it was.
    """
    try:
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix
        )
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            f"{target}: {error.strerror or error}.",
            hint="Choose a folder that exists and can be written.",
            code="cannot-write",
        ) from None
