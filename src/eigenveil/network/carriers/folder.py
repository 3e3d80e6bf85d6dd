"""Mail as files: on a share, in a store (``s3://``, ``sftp://``), and in the spool of a relay.

``ROOT/<recipient>/<SHA-256>.eve`` is an envelope.  It is written under another name, forced to the
disk and renamed; a store takes it whole, if it is not there.  A reader checks the digest, so half a
file is no mail yet.  Whatever else is in the folder is ignored and counted.

A relay's spool is one party's: ``out/<recipient>/<SHA-256>.eve`` is what it sends (a relay removes
what it has handed on), ``in/<SHA-256>.eve`` what came for it (written as above).
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib.parse import urlsplit

from eigenveil.errors import DataError, ProtocolError, first_line, printable
from eigenveil.network.mailbox import LARGEST, CarrierError, Mailbox, check_recipient, digest_of
from eigenveil.network.relays import check_apart

ENDING = ".eve"
MOST_LOOKED_AT = 4096
"""Files whose names are kept at a look; others wait for the next."""
MOST_TAKEN = 1 << 26
"""Bytes after which no more is read at a look."""
OLD_SCRATCH = 86_400.0
"""Seconds after which a scratch file in one's own mail is what a killed writer left."""
_TURN = 1.0  # seconds of a look into one of two mailboxes
_MAIL = re.compile(r"([0-9a-f]{64})\.eve")
_SCRATCH = re.compile(r"\.[0-9a-f]{32}\.part")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def folder_name(name: str) -> str:
    """A member's name as every share can have it: small letters, digits, ``-``, ``_``, ``.``.

    Other bytes are ``=`` and two digits, capitals too, since some shares do not tell them apart.
    """
    check_recipient(name)
    quoted = re.sub(r"[^a-z0-9._-]", lambda found: f"={ord(found[0]):02x}", name)
    # Windows has devices of these names, whatever their ending, and drops a dot at an end
    if quoted.endswith(".") or re.match(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", quoted):
        quoted = f"={ord(quoted[0]):02x}{quoted[1:]}" if quoted[-1] != "." else f"{quoted[:-1]}=2e"
    return quoted


def member_name(quoted: str) -> str:
    """The name that :func:`folder_name` made a folder's."""
    return re.sub(r"=([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), quoted)


class Found(NamedTuple):
    """A file that has the name of an envelope."""

    changed: float  # in any unit: for the order
    digest: str
    size: int


class Shelf(Protocol):
    """Boxes of files: a folder of this machine, or a store."""

    shown: str
    pace: tuple[float, float]  # seconds between two looks: at first, and at most
    ignored: int  # files at the last look that are no mail

    def found(self, box: str) -> Iterator[Found]:
        """The envelopes in a box, in any order."""
        ...

    def read(self, box: str, found: Found) -> bytes | None:
        """One of them, if it is there and no longer than it was."""
        ...

    def write(self, box: str, digest: str, envelope: bytes) -> None:
        """Leave one, whole or not at all; nothing if it is there."""
        ...

    def remove(self, box: str, digest: str) -> None:
        """Take one away, if it is there."""
        ...


class FolderMailbox:
    """A member's mailbox on a shelf: its own box, and one for each recipient."""

    def __init__(self, shelf: Shelf, own: str, box_of: Callable[[str], str]) -> None:
        self.shelf, self._own, self._box_of = shelf, own, box_of
        self._pace = shelf.pace[0]
        self._closed = threading.Event()
        self._after = ""
        self._damaged: set[Found] = set()  # what does not have its digest, as it was

    def put(self, recipient: str, envelope: bytes) -> None:
        """Leave an envelope; see :class:`~eigenveil.network.mailbox.Mailbox`."""
        if not 0 < len(envelope) <= LARGEST:
            raise ProtocolError(
                f"An envelope for {recipient} has {len(envelope)} bytes.",
                hint=f"It can have {LARGEST} at most: split the study.",
                code="too-large",
            )
        self.shelf.write(self._box_of(check_recipient(recipient)), digest_of(envelope), envelope)
        self._pace = self.shelf.pace[0]

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        """Own mail, oldest first; see :class:`~eigenveil.network.mailbox.Mailbox`."""
        end = time.monotonic() + wait
        while not self._closed.is_set():
            began = time.monotonic()
            mail = self._look(known)
            now = time.monotonic()
            if mail or now >= end:
                self._pace = self.shelf.pace[0] if mail else self._pace
                return mail
            # a folder that is slow to list is not listed all the time
            self._closed.wait(min(max(self._pace, now - began), end - now))
            self._pace = min(self._pace * 1.5, self.shelf.pace[1])
        return []

    def _look(self, known: Collection[str]) -> list[bytes]:
        new = (
            each
            for each in self.shelf.found(self._own)
            if each.digest not in known and each not in self._damaged
        )
        mail: list[bytes] = []
        length = 0
        # of very many, some at a look and others at the next: no stranger's files are in the way
        some = heapq.nsmallest(
            MOST_LOOKED_AT, new, key=lambda each: (each.digest <= self._after, each.digest)
        )
        self._after = some[-1].digest if len(some) == MOST_LOOKED_AT else ""
        for each in sorted(some):
            if mail and length + each.size > MOST_TAKEN:
                break
            envelope = self.shelf.read(self._own, each)
            if envelope is None:
                continue
            if digest_of(envelope) != each.digest:  # being copied, or not by a party
                if len(self._damaged) >= MOST_LOOKED_AT:
                    self._damaged.clear()
                self._damaged.add(each)
                continue
            mail.append(envelope)
            length += len(envelope)
        return mail

    def forget(self, digests: Collection[str]) -> None:
        """Remove own mail; see :class:`~eigenveil.network.mailbox.Mailbox`."""
        for digest in digests:
            if _MAIL.fullmatch(digest + ENDING):
                self.shelf.remove(self._own, digest)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is waited for any more."""
        return self._closed.is_set()

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()


# -- A folder of this machine, often on a share.


class LocalShelf:
    """A folder; see :class:`Shelf`. Links in it are not followed.

    What is made in it may be read, written and removed by whom the folder itself allows.
    """

    pace = (0.05, 0.5)

    def __init__(self, root: Path) -> None:
        self.root, self.shown, self.ignored = root, str(root), 0

    def found(self, box: str) -> Iterator[Found]:
        """The envelopes in a box."""
        with self._asked(), self._opened(box) as folder:
            self.ignored = 0
            if folder is None:
                return
            with os.scandir(folder) as entries:
                for entry in entries:
                    named = _MAIL.fullmatch(entry.name)
                    with suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        if named and stat.S_ISREG(about.st_mode) and 0 < about.st_size <= LARGEST:
                            yield Found(about.st_mtime_ns, named[1], about.st_size)
                        elif _SCRATCH.fullmatch(entry.name) and stat.S_ISREG(about.st_mode):
                            if time.time() - about.st_mtime > OLD_SCRATCH:
                                with suppress(OSError):
                                    os.unlink(entry.name, dir_fd=folder)
                        else:
                            self.ignored += 1

    def read(self, box: str, found: Found) -> bytes | None:
        """An envelope, if it is there and no longer than it was."""
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
        """Leave an envelope, whole or not at all."""
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
        """Take an envelope away, if it is there."""
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
        raise CarrierError(
            f"{shown} is full: {os.strerror(number)}. Nothing was half written.",
            hint="Make room, or let the other parties run, which remove their mail; it is tried "
            "again.",
            code="no-mailbox",
        ) from None
    said = first_line(getattr(error, "strerror", None) or error, empty=type(error).__name__)
    raise CarrierError(
        f"The mail in {shown} cannot be reached: {printable(said)}.",
        hint="Check that the share is mounted, or the store's credentials, and that this user may "
        "read and write there; it is tried again.",
        code="no-mailbox",
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
            raise DataError(
                f"The address {parts.scheme}://{parts.hostname} has a password or options in it.",
                hint="Leave them out: all members see the address, and credentials come from the "
                "environment, as the store's own tools have them.",
                code="credentials-in-url",
            )
        self.shown, self.ignored, self._scheme = url.rstrip("/"), 0, parts.scheme.lower()
        self._files: Any = None
        self._root, self._there = "", False
        self._connected()

    def _connected(self) -> Any:
        if self._files is None:
            try:
                core = import_module("fsspec.core")
            except ImportError:
                raise DataError(
                    f"Mail at {self._scheme}:// needs the library fsspec, which is not installed.",
                    hint="pip install 'eigenveil[stores]'.",
                    code="extra-missing",
                ) from None
            try:
                self._files, self._root = core.url_to_fs(
                    self.shown, skip_instance_cache=self._scheme != "memory"
                )
            except (ImportError, ValueError) as error:
                raise DataError(
                    f"Mail at {self._scheme}:// cannot be read: "
                    f"{first_line(error, empty=type(error).__name__)}.",
                    hint="pip install s3fs for s3://, paramiko for sftp://.",
                    code="extra-missing",
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

    def found(self, box: str) -> Iterator[Found]:
        """The envelopes in a box, as far as the store lists them yet."""
        with self._asked() as files:
            path = self._path(box)
            files.invalidate_cache(path)
            try:
                entries = files.ls(path, detail=True)
            except FileNotFoundError:
                entries = []
                if self._scheme in _WHOLE and self._scheme != "memory":
                    self._check_bucket(files)
        self.ignored = 0
        for entry in entries:
            named = _MAIL.fullmatch(str(entry["name"]).rpartition("/")[2])
            size = entry.get("size")
            if named and entry.get("type") == "file" and size and 0 < size <= LARGEST:
                yield Found(_changed(entry), named[1], size)
            else:
                self.ignored += 1

    def read(self, box: str, found: Found) -> bytes | None:
        """An envelope, if it is there yet and still."""
        path = self._path(box, found.digest + ENDING)
        with self._asked() as files:
            try:
                read: bytes = files.cat_file(path, start=0, end=found.size)
            except FileNotFoundError:
                return None
            return read

    def write(self, box: str, digest: str, envelope: bytes) -> None:
        """Leave an envelope whole, if it is not there."""
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
        """Take an envelope away, if it is there."""
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


# -- The carriers.


def place_of(address: str, default: Path | None = None) -> Path:
    """The folder that an address names."""
    path = Path(address.partition(":")[2] or default or "").expanduser()
    if not path.is_absolute():
        raise DataError(
            f"The address {printable(address)!r} does not name a folder from the root.",
            hint="For example folder:/mnt/share/study.",
            code="bad-address",
        )
    return path


class FolderCarrier:
    """``folder:/path`` and stores (``s3://bucket/prefix``): all parties reach the same folder."""

    scheme = "folder"

    def open(self, party: Any, address: str) -> FolderMailbox:
        """The mailbox of a party."""
        local = address.startswith("folder:")
        shelf: Shelf = LocalShelf(place_of(address)) if local else StoreShelf(address)
        return FolderMailbox(shelf, folder_name(party.name), folder_name)


def spool_of(party: Any, address: str = "") -> Path:
    """Where a party's mail waits for a relay: by default ``mail`` in its own folder."""
    relayed = address.partition(":")[0] in ("flare", "flower", "exchange")
    return place_of(address if relayed else "exchange:", Path(party.folder).absolute() / "mail")


class RelayCarrier:
    """``flare:/path``, ``flower:/path``: a relay carries what is in the party's spool."""

    scheme = "flare"

    def open(self, party: Any, address: str) -> FolderMailbox:
        """The mailbox of a party, whose spool is made where it is missing.

        ``exchange:`` is one that a person carries; see :mod:`eigenveil.app.exchange`.
        """
        spool = spool_of(party, address)
        shelf = LocalShelf(spool)
        shelf.make("in", "out")
        if not address.startswith("exchange:"):
            check_apart(Path(party.folder), spool)
        return FolderMailbox(shelf, "in", lambda name: f"out/{folder_name(name)}")


class WithSpool:
    """A mailbox of one who writes to some members by a spool, which a person carries."""

    def __init__(self, mailbox: Mailbox, party: Any, names: Collection[str]) -> None:
        self._mailbox, self._names = mailbox, frozenset(names)
        self._spool = RelayCarrier().open(party, "exchange:")

    def put(self, recipient: str, envelope: bytes) -> None:
        """Leave an envelope where it goes on from."""
        (self._spool if recipient in self._names else self._mailbox).put(recipient, envelope)

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        """Own mail of both, which is looked for by turns."""
        end = time.monotonic() + wait
        while True:
            brought = self._spool.take(0, known)
            left = 0.0 if brought else max(0.0, min(_TURN, end - time.monotonic()))
            found = brought + self._mailbox.take(left, known)
            if found or time.monotonic() >= end or self._spool.is_closed:
                return found

    def forget(self, digests: Collection[str]) -> None:
        """Remove own mail."""
        self._spool.forget(digests)
        self._mailbox.forget(digests)

    def close(self) -> None:
        """End all waiting."""
        self._spool.close()
        self._mailbox.close()
