"""Shelves of mail: boxes of files in a folder of this machine, often on a share, or in a store.

``BOX/<SHA-256>.eve`` is an envelope. It is written under another name, forced to the disk and
renamed; a store takes it whole, if it is not there. Whatever else is in a box is ignored.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib.parse import urlsplit

from eigenveil.errors import DataError, first_line, printable
from eigenveil.network.mailbox import LARGEST, CarrierError

ENDING = ".eve"
OLD_SCRATCH = 86_400.0
"""Seconds after which a scratch file in one's own mail is what a killed writer left."""
_MAIL = re.compile(r"([0-9a-f]{64})\.eve")
_SCRATCH = re.compile(r"\.[0-9a-f]{32}\.part")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MailFile(NamedTuple):
    """A file that has the name of an envelope."""

    changed: float  # in any unit: for the order
    digest: str
    size: int


class Shelf(Protocol):
    """Boxes of files: a folder of this machine, or a store."""

    shown: str
    pace: tuple[float, float]  # seconds between two looks: at first, and at most

    def found(self, box: str) -> Iterator[MailFile]:
        """The envelopes in a box, in any order."""

    def read(self, box: str, found: MailFile) -> bytes | None:
        """One of them, if it is there and no longer than it was."""

    def write(self, box: str, digest: str, envelope: bytes) -> None:
        """Leave one, whole or not at all; nothing if it is there."""

    def remove(self, box: str, digest: str) -> None:
        """Take one away, if it is there."""


# -- A folder of this machine, often on a share.


class LocalShelf:
    """A folder; see :class:`Shelf`. Links in it are not followed.

    What is made in it may be read, written and removed by whom the folder itself allows.
    """

    pace = (0.05, 0.5)

    def __init__(self, root: Path) -> None:
        self.root, self.shown = root, str(root)

    def found(self, box: str) -> Iterator[MailFile]:
        with self._asked(), self._opened(box) as folder:
            if folder is None:
                return
            with os.scandir(folder) as entries:
                for entry in entries:
                    named = _MAIL.fullmatch(entry.name)
                    with suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        if named and stat.S_ISREG(about.st_mode) and 0 < about.st_size <= LARGEST:
                            yield MailFile(about.st_mtime_ns, named[1], about.st_size)
                        elif (
                            _SCRATCH.fullmatch(entry.name)
                            and stat.S_ISREG(about.st_mode)
                            and time.time() - about.st_mtime > OLD_SCRATCH
                        ):
                            with suppress(OSError):
                                os.unlink(entry.name, dir_fd=folder)

    def read(self, box: str, found: MailFile) -> bytes | None:
        with self._asked(), self._opened(box) as folder:
            if folder is None:
                return None
            with suppress(FileNotFoundError):
                # a pipe of that name must not hold us up
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                with os.fdopen(os.open(found.digest + ENDING, flags, dir_fd=folder), "rb") as file:
                    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        return file.read(found.size)
            return None

    def write(self, box: str, digest: str, envelope: bytes) -> None:
        with self._asked(), self._opened(box, make=True) as folder:
            assert folder is not None
            with suppress(FileNotFoundError):
                there = os.stat(digest + ENDING, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(there.st_mode) and there.st_size == len(envelope):
                    return
            scratch = f".{secrets.token_hex(16)}.part"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            try:
                with os.fdopen(os.open(scratch, flags, 0o600, dir_fd=folder), "wb") as file:
                    file.write(envelope)
                    file.flush()
                    self._share(file.fileno(), 0o666)
                    now = time.time_ns()  # finer than the disk's own clock: for the order
                    os.utime(file.fileno(), ns=(now, now))
                    os.fsync(file.fileno())
                os.rename(scratch, digest + ENDING, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(scratch, dir_fd=folder)
                raise
            with suppress(OSError):  # some shares have no such call for folders
                os.fsync(folder)

    def remove(self, box: str, digest: str) -> None:
        with self._asked(), self._opened(box) as folder, suppress(FileNotFoundError):
            if folder is not None:
                os.unlink(digest + ENDING, dir_fd=folder)

    def make(self, *boxes: str) -> None:
        """Make the folder and boxes in it where they are missing."""
        with self._asked():
            self.root.mkdir(parents=True, exist_ok=True)
            for box in boxes:
                with self._opened(box, make=True):
                    pass

    @contextmanager
    def _opened(self, box: str, *, make: bool = False) -> Iterator[int | None]:
        """A box, opened without following links in the folder; ``None`` where it is not there."""
        inside = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in box.split("/"):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=inside)
                        made = os.open(part, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=inside)
                        try:
                            self._share(made, 0o2777)
                        finally:
                            os.close(made)
                try:
                    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                    deeper = os.open(part, flags, dir_fd=inside)
                except FileNotFoundError:
                    if make:
                        raise
                    yield None
                    return
                os.close(inside)
                inside = deeper
            yield inside
        finally:
            os.close(inside)

    def _share(self, made: int, most: int) -> None:
        """Give what was made the folder's own permissions."""
        with suppress(OSError):  # a share may have none, or decide by itself
            os.fchmod(made, self.root.stat().st_mode & most)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _unreachable(self.shown, error)


def _unreachable(shown: str, error: Exception) -> NoReturn:
    """One line for whatever a folder or a store says."""
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL:
        raise CarrierError("no-room-for-mail", place=shown, reason=os.strerror(number)) from None
    said = first_line(getattr(error, "strerror", None) or error, empty=type(error).__name__)
    raise CarrierError(
        "no-mailbox", mailbox=f"The mail in {shown}", reason=printable(said)
    ) from None


# -- A store that fsspec reaches.

_WHOLE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Stores in which a file is there when all of it is there; others rename."""


class StoreShelf:
    """A store; see :class:`Shelf`."""

    pace = (0.5, 3.0)

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.password is not None or parts.query or parts.fragment:
            raise DataError("options-in-address", address=f"{parts.scheme}://{parts.hostname}")
        self.shown, self._scheme = url.rstrip("/"), parts.scheme.lower()
        self._files: Any = None
        self._root, self._there = "", False
        self._connected()

    def _connected(self) -> Any:
        if self._files is None:
            try:
                core = import_module("fsspec.core")
            except ImportError:
                raise DataError(
                    "extra-missing",
                    what=f"Mail at {self._scheme}://",
                    library="fsspec",
                    extra="stores",
                ) from None
            try:
                self._files, self._root = core.url_to_fs(
                    self.shown, skip_instance_cache=self._scheme != "memory"
                )
            except (ImportError, ValueError) as error:
                raise DataError(
                    "no-driver-for-mail",
                    scheme=self._scheme,
                    reason=first_line(error, empty=type(error).__name__),
                ) from None
            except Exception as error:
                _unreachable(self.shown, error)
        return self._files

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        try:
            yield self._connected()
        except (DataError, CarrierError):
            raise
        except Exception as error:  # each library has errors of its own
            self._files = None  # a connection that broke is made anew
            _unreachable(self.shown, error)

    def _check_bucket(self, files: Any) -> None:
        bucket = self._root.strip("/").partition("/")[0]
        if not self._there and not files.exists(bucket):
            raise FileNotFoundError(errno.ENOENT, f"there is no bucket {bucket}")
        self._there = True

    def _path(self, box: str, name: str = "") -> str:
        return f"{self._root.rstrip('/')}/{box}{'/' if name else ''}{name}"

    def found(self, box: str) -> Iterator[MailFile]:
        with self._asked() as files:
            path = self._path(box)
            files.invalidate_cache(path)
            try:
                entries = files.ls(path, detail=True)
            except FileNotFoundError:
                entries = []
                if self._scheme in _WHOLE and self._scheme != "memory":
                    self._check_bucket(files)
        for entry in entries:
            named = _MAIL.fullmatch(str(entry["name"]).rpartition("/")[2])
            size = entry.get("size")
            if named and entry.get("type") == "file" and size and 0 < size <= LARGEST:
                yield MailFile(_changed(entry), named[1], size)

    def read(self, box: str, found: MailFile) -> bytes | None:
        path = self._path(box, found.digest + ENDING)
        with self._asked() as files:
            try:
                read: bytes = files.cat_file(path, start=0, end=found.size)
            except FileNotFoundError:
                return None
            return read

    def write(self, box: str, digest: str, envelope: bytes) -> None:
        with self._asked() as files:
            path = self._path(box, digest + ENDING)
            if self._scheme in _WHOLE:
                with suppress(FileExistsError):
                    files.pipe_file(path, envelope, mode="create")
                return
            with suppress(FileNotFoundError):
                if files.info(path).get("size") == len(envelope):
                    return
            files.makedirs(self._path(box), exist_ok=True)
            scratch = self._path(box, f".{secrets.token_hex(16)}.part")
            try:
                files.pipe_file(scratch, envelope)
                files.mv(scratch, path)
            except BaseException:
                with suppress(Exception):
                    files.rm_file(scratch)
                raise

    def remove(self, box: str, digest: str) -> None:
        with self._asked() as files, suppress(FileNotFoundError):
            files.rm_file(self._path(box, digest + ENDING))


def _changed(entry: dict[str, Any]) -> float:
    """When a file was changed, if its store says so: only for the order."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        when = entry.get(name)
        if isinstance(when, datetime):
            return when.timestamp()
        if isinstance(when, int | float):
            return float(when)
    return 0.0
