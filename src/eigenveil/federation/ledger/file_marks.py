"""By what a ledger knows a table's files: keyed digests of their places and of their content.

A file that grew or changed keeps its place, one that was copied or renamed its content: either
leads to its account. The digests are under the ledger's own key, so that whoever sees a ledger's
entries learns nothing of the files; they stand in the ledger alone, in no certificate or result.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from eigenveil.errors import DataError, of_system
from eigenveil.federation.ledger.entries import FileMark
from eigenveil.files import Place

# A file of more bytes is read in pieces, evenly spaced from its first byte to its last: two files
# of one size that agree in all of them share an account, which only ever charges more.
_WHOLE, _PIECE, _PIECES = 1 << 26, 1 << 20, 64


def place_mark(file: Place, key: bytes) -> str:
    """The digest of a file's place, links followed."""
    place = os.fsencode(str(file.resolve()))
    return hashlib.blake2b(place, digest_size=32, key=key, person=b"place").hexdigest()


def content_mark(file: Place, key: bytes) -> str:
    """The digest of a file's size and content; of more than 64 MiB, of 64 pieces of 1 MiB.

    Of a folder that is one file to its format: of the names, sizes and first MiB of all in it.
    """
    digest = hashlib.blake2b(digest_size=32, key=key, person=b"content")
    try:
        if isinstance(file, Path) and file.is_dir():
            for part in sorted(each for each in file.rglob("*") if each.is_file()):
                name = os.fsencode(part.relative_to(file))
                with part.open("rb") as stream:
                    size = os.fstat(stream.fileno()).st_size
                    digest.update(b"%d %d " % (len(name), size) + name + stream.read(_PIECE))
            return digest.hexdigest()
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "big"))
            for start in _starts(size):
                stream.seek(start)
                digest.update(stream.read(_PIECE))
    except OSError as error:
        raise DataError("cannot-read", path=file, reason=of_system(error)) from None
    return digest.hexdigest()


def marks_of(files: Sequence[Place], key: bytes) -> tuple[FileMark, ...]:
    return tuple(FileMark(place_mark(file, key), content_mark(file, key)) for file in files)


def rows_digest(places: Sequence[Place], key: bytes) -> str:
    """The digest of a site's rows, as an approval names them: of all files' contents."""
    marks = sorted(content_mark(file, key) for file in places)
    return hashlib.blake2b("".join(marks).encode(), digest_size=32, key=key).hexdigest()


def usual_name(files: Sequence[Place]) -> str:
    """What a new account is called: by the path of its first file, where that can be a name."""
    first = str(files[0].resolve())
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    name = f"{first}{more}"
    if len(name) <= 200 and name.isprintable():
        return name
    return f"table {hashlib.sha256(os.fsencode(first)).hexdigest()[:16]}{more}"


def _starts(size: int) -> Iterator[int]:
    if size <= _WHOLE:
        yield from range(0, size, _PIECE)
    else:
        yield from (each * (size - _PIECE) // (_PIECES - 1) for each in range(_PIECES))
