"""Files of object stores and web servers, read like those of this machine.

Credentials come from where each store's own tools look for them (environment variables, files in
the home folder, the machine's role): never from a URL, which would stand in histories of shells and
lists of processes.
"""

from __future__ import annotations

import fnmatch
import io
import os
import queue
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

import pyarrow.fs

from eigenveil.checks import library
from eigenveil.errors import DataError, EigenveilError, first_line

PATIENCE = 60.0
"""Seconds that a store may take for an answer: a listing, or a piece of a file."""
MOST_COPIED = 1 << 34
"""Most bytes of a file that is copied to this machine for the time it is read."""
_PIECE = 1 << 23
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAGIC = re.compile(r"[*?\[]")
_Found = TypeVar("_Found")


def is_url(text: str) -> bool:
    """Whether a place is a URL, and no path of this machine."""
    return _URL.match(text) is not None


class StoreFile:
    """A file of a store; formats read it as they read a :class:`~pathlib.Path`.

    What must lie on a disk to be read (``os.fspath``) is copied to this machine for as long as this
    object lives, up to ``MOST_COPIED`` bytes, where only this user may read it.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
        self.name = path.rstrip("/").rsplit("/", 1)[-1]
        self.suffix = Path(self.name).suffix
        self._copy: str | None = None

    def __str__(self) -> str:
        return self._store.shown(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFile) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    def __fspath__(self) -> str:
        if self._copy is None:
            self._copy = self._copied()
        return self._copy

    @property
    def _place(self) -> tuple[str, str]:
        return self._store.root, self._path

    def resolve(self) -> StoreFile:
        return self

    @property
    def parent(self) -> NoReturn:
        """Refused: what lies beside it is not copied with it."""
        raise DataError("not-on-disk", path=self)

    def with_suffix(self, suffix: str) -> NoReturn:
        """Refused: likewise."""
        raise DataError("not-on-disk", path=self)

    with_name = with_suffix

    def open(self, mode: Literal["rb"] = "rb", /) -> IO[bytes]:
        assert mode == "rb"
        if not self._store.ranges or self._copy is not None:
            return Path(os.fspath(self)).open("rb")
        opened = self._store.ask(lambda: self._store.open(self._path))
        return io.BufferedReader(_Patient(self._store, opened), _PIECE >> 3)

    def state(self) -> tuple[Any, ...]:
        return self._store.ask(lambda: self._store.state(self._path))

    def _copied(self) -> str:
        store, path = self._store, self._path
        size = store.ask(lambda: store.size(path))
        folder = tempfile.mkdtemp(prefix="eigenveil-")  # for this user alone
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        room = min(MOST_COPIED, shutil.disk_usage(folder).free)
        source = _Patient(store, store.ask(lambda: store.stream(path)))
        target, copied = Path(folder) / self.name, 0
        with source, target.open("xb") as file:
            while piece := source.read(_PIECE):
                copied += len(piece)
                if max(copied, size or 0) > room:
                    raise DataError("too-large-to-copy", path=self, mebibytes=room >> 20)
                file.write(piece)
        if size not in (None, copied):
            raise DataError("copy-cut-off", path=self, copied=copied, size=size)
        return str(target)


@dataclass(frozen=True)
class FolderEntry:
    """What a folder holds: ``parts``, its path from there, and the file; ``None`` of a folder."""

    parts: tuple[str, ...]
    file: Any


class StoreFolder:
    """A folder of a store."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path

    def __str__(self) -> str:
        return self._store.shown(self._path)

    def entries(self, *, deep: bool) -> list[FolderEntry]:
        return self._store.ask(lambda: self._store.inside(self._path, deep=deep))


def found_at(url: str) -> list[StoreFile] | StoreFolder:
    """The file of a URL, the files that match its pattern, or its folder."""
    store, path = _store_of(url)
    if _MAGIC.search(path):
        return _matching(store, path)
    kind = store.ask(lambda: store.kind(path))
    if kind == "nothing":
        raise DataError("no-such-file", path=store.shown(path))
    return StoreFolder(store, path) if kind == "folder" else [StoreFile(store, path)]


def _matching(store: ObjectStore, path: str) -> list[StoreFile]:
    wanted = path.split("/")
    fixed = next(at for at, part in enumerate(wanted) if _MAGIC.search(part))
    rest = wanted[fixed:]
    found = StoreFolder(store, "/".join(wanted[:fixed])).entries(deep=len(rest) > 1)
    return [each.file for each in found if each.file is not None and _fits(each.parts, rest)]


def _fits(parts: tuple[str, ...], wanted: list[str]) -> bool:
    if not wanted or not parts:
        return not wanted and not parts
    if wanted[0] == "**":
        return _fits(parts, wanted[1:]) or _fits(parts[1:], wanted)
    hidden = parts[0].startswith(".") and not wanted[0].startswith(".")
    return not hidden and fnmatch.fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


# -- Stores: those that pyarrow reads, and others through fsspec.


class ObjectStore:
    """A store that pyarrow reads."""

    ranges = True

    def __init__(self, root: str, files: Any, *, query: str = "") -> None:
        self.root, self._files, self._query = root, files, query

    def ask(self, action: Callable[[], _Found]) -> _Found:
        """The result of what asks the store, if it comes in time."""
        try:
            return within(action)
        except (EigenveilError, FileNotFoundError):
            raise
        except Exception as error:
            raise OSError(0, self._said(error)) from None

    def _said(self, error: Exception) -> str:
        text = str(getattr(error, "strerror", None) or error)
        text = text.replace(self._query, "") if self._query else text  # before it is cut
        return first_line(text, empty=type(error).__name__)

    def shown(self, path: str) -> str:
        """A path as messages and ledgers have it, without anything secret."""
        return f"{self.root}{path}"

    def kind(self, path: str) -> str:
        types = pyarrow.fs.FileType
        found = self._files.get_file_info(path).type
        return {types.File: "file", types.Directory: "folder"}.get(found, "nothing")

    def inside(self, folder: str, *, deep: bool) -> list[FolderEntry]:
        selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=deep)
        found = []
        for info in self._files.get_file_info(selector):
            is_file = info.type == pyarrow.fs.FileType.File
            parts = tuple(info.path.strip("/")[len(folder.strip("/")) :].strip("/").split("/"))
            found.append(FolderEntry(parts, StoreFile(self, info.path) if is_file else None))
        return sorted(found, key=lambda each: each.parts)

    def open(self, path: str) -> Any:
        return self._files.open_input_file(path)

    def stream(self, path: str) -> Any:
        return self._files.open_input_stream(path, compression=None)

    def size(self, path: str) -> int | None:
        size: int | None = self._files.get_file_info(path).size
        return size

    def state(self, path: str) -> tuple[Any, ...]:
        info = self._files.get_file_info(path)
        with self._files.open_input_file(path) as file:
            mark = (file.metadata() or {}).get(b"ETag")
        return info.size, info.mtime_ns, mark


# What fsspec's libraries tell of a file that differs when it was changed.
_MARKS = (
    "size", "ETag", "etag", "Content-MD5", "Last-Modified", "LastModified", "mtime", "created"
)  # fmt: skip


class FsspecStore(ObjectStore):
    """A store that fsspec reads."""

    def __init__(self, root: str, files: Any, *, query: str = "") -> None:
        arrows = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(files))
        super().__init__(root, arrows, query=query)
        self._other = files
        self.web = root.startswith(("http:", "https:"))
        self.ranges = not self.web  # many servers have none

    def _said(self, error: Exception) -> str:
        status = getattr(error, "status", None)
        if status is not None:
            return f"the server answered {status} {getattr(error, 'message', '')}".rstrip()
        return super()._said(error)

    def _whole(self, path: str) -> str:
        return f"{self.root}{path}{self._query}" if self.web else path

    def kind(self, path: str) -> str:
        if not self.web:
            return super().kind(path)
        try:
            self._other.info(self._whole(path))
        except FileNotFoundError as error:  # fsspec says so of whatever went wrong
            cause = error.__cause__
            if cause is not None and getattr(cause, "status", None) not in (404, 410):
                raise cause from None
            return "nothing"
        return "file"

    def inside(self, folder: str, *, deep: bool) -> list[FolderEntry]:
        if self.web:
            raise DataError("no-listing", path=self.shown(folder))
        return super().inside(folder, deep=deep)

    def stream(self, path: str) -> Any:
        return self._other.open(self._whole(path), "rb", **({"block_size": 0} if self.web else {}))

    def open(self, path: str) -> Any:
        return self._other.open(path, "rb")

    def size(self, path: str) -> int | None:
        size = self._other.info(self._whole(path)).get("size")
        return None if size is None else int(size)

    def state(self, path: str) -> tuple[Any, ...]:
        info = self._other.info(self._whole(path))
        return tuple(str(info.get(name)) for name in _MARKS)


_ARROWS = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_WEB = ("http", "https")
_OF_S3 = ("endpoint_override", "region", "anonymous")


def _store_of(url: str) -> tuple[ObjectStore, str]:
    parts = urlsplit(url, allow_fragments=False)
    scheme = parts.scheme.lower()
    if scheme not in _WEB and parts.query and "=" not in parts.query:  # a pattern
        parts = parts._replace(path=f"{parts.path}?{parts.query}", query="")
    if parts.username is not None or parts.password is not None:
        raise DataError("credentials-in-url", scheme=scheme)
    try:
        if scheme == "s3":
            return within(lambda: _s3(parts))
        if scheme in _ARROWS:
            return within(lambda: _arrow(parts))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = first_line(error, empty=type(error).__name__)
        raise DataError("store-unreachable", store=f"{scheme}://{parts.netloc}", why=why) from None
    return _fsspec(parts, scheme)


def _s3(parts: SplitResult) -> tuple[ObjectStore, str]:
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    unknown = next((name for name in options if name not in _OF_S3), None)
    if unknown is not None:
        raise DataError("unknown-part-of-url", scheme="s3", part=repr(unknown[:40]))
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = options.get("endpoint_override") or next(filter(None, map(os.getenv, names)), None)
    region = options.get("region") or os.getenv("AWS_REGION") or os.getenv("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = pyarrow.fs.resolve_s3_region(parts.netloc)
    found: dict[str, Any] = {"region": region} if region is not None else {}
    if endpoint is not None:
        scheme, between, host = endpoint.partition("://")
        found["endpoint_override"] = host if between else endpoint
        if between:
            found["scheme"] = scheme
    if options.get("anonymous") == "true":
        found["anonymous"] = True
    files = pyarrow.fs.S3FileSystem(
        connect_timeout=PATIENCE / 6, request_timeout=PATIENCE / 2, **found
    )
    return ObjectStore("s3://", files), f"{parts.netloc}{parts.path}".rstrip("/")


def _arrow(parts: SplitResult) -> tuple[ObjectStore, str]:
    if parts.query:
        raise DataError("unknown-part-of-url", scheme=parts.scheme, part="a question mark")
    # hdfs has its host in the root, other stores their bucket in the path
    files, base = pyarrow.fs.FileSystem.from_uri(f"{parts.scheme}://{parts.netloc}/")
    bucket = base.strip("/")
    root = f"{parts.scheme}://" if bucket else f"{parts.scheme}://{parts.netloc}"
    return ObjectStore(root, files), f"{bucket}{parts.path}".rstrip("/")


def _fsspec(parts: SplitResult, scheme: str) -> tuple[ObjectStore, str]:
    fsspec = library("fsspec", extra="stores", what=f"A {scheme}:// URL")
    web = scheme in _WEB
    try:
        made = fsspec.get_filesystem_class(scheme)
        options: dict[str, Any] = {}
        if web:
            aiohttp = library("aiohttp", extra="stores", what="An https:// URL")
            half = PATIENCE / 2
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=half, sock_read=half)
            options["client_kwargs"] = {"timeout": timeout}
        files = made(**options)
    except (ImportError, ValueError) as error:
        why = first_line(error, empty=type(error).__name__)
        raise DataError("unknown-store", scheme=scheme, why=why) from None
    root = f"{scheme}://{parts.netloc}/" if web else f"{scheme}://"
    path = parts.path.lstrip("/") if web else f"{parts.netloc}{parts.path}"
    query = f"?{parts.query}" if parts.query else ""
    return FsspecStore(root, files, query=query), path.rstrip("/")


# -- Stores that do not answer.


def within(action: Callable[[], _Found]) -> _Found:
    """The result of what asks a store, if it comes in time."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((action(), None))
        except BaseException as error:
            answers.put((None, error))

    # what never ends must not keep the process
    threading.Thread(target=ask, name="eigenveil-store", daemon=True).start()
    try:
        found, error = answers.get(timeout=PATIENCE)
    except queue.Empty:
        raise TimeoutError(0, f"the store did not answer within {PATIENCE:g} seconds") from None
    if error is not None:
        raise error
    result: _Found = found
    return result


class _Patient(io.RawIOBase):
    """A file of a store, each piece of which has to come in time."""

    def __init__(self, store: ObjectStore, file: Any) -> None:
        self._store, self._file = store, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), _PIECE)
        piece = self._store.ask(lambda: self._file.read(wanted))
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(offset, whence)
        return int(self._file.tell())

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            super().close()
            threading.Thread(target=self._file.close, daemon=True).start()
