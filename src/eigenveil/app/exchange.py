"""Mail that a person carries through an airlock: one file out, one file in.

A file is a ZIP archive that nothing is compressed in, so that who guards the airlock can look at
it: ``mail/<recipient>/<SHA-256>.eve``, and in ``taken/<sender>.txt`` the digests of what came from
that party before, which it then sends no more.  Nothing in it is believed but digests: the parties
check the rest.
"""

from __future__ import annotations

import os
import re
import struct
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any

from eigenveil.app.parts import Part, whole
from eigenveil.errors import OutputError
from eigenveil.files import replacing, sync_folder
from eigenveil.network.carriers.folder import folder_name, member_name, spool_of
from eigenveil.network.carriers.shelves import ENDING, LocalShelf, MailFile
from eigenveil.network.folder import PartyFolder
from eigenveil.network.folder import open_party as open_party
from eigenveil.network.mailbox import LARGEST, digest_of

MOST_BYTES = 4_000_000_000
"""Of a file: more fits on no FAT disk."""
MOST_MESSAGES = 10_000
"""In a file; and files looked at on a disk."""
MOST_LISTED = 1 << 22
"""Bytes of an archive's list of what is in it."""
MOST_TAKEN = 5_000
"""Digests of one party's messages that are remembered as taken."""
_PARTY = r"([a-z0-9=][a-z0-9=._-]*)"
_FILE = re.compile(rf"eigenveil-{_PARTY}-[0-9a-f]{{16}}\.zip")
_MAIL = re.compile(rf"mail/{_PARTY}/([0-9a-f]{{64}})\.eve")
_END = struct.Struct("<4s4H2LH")  # an archive's end, which says how long its list is


@dataclass(frozen=True)
class CarriedOut:
    file: Path | None
    messages: dict[str, int]  # by recipient
    length: int
    left: int  # messages for which there was no room: another exchange takes them
    unanswered: int  # messages that came in, with which the party has not dealt yet

    def parts(self) -> Iterator[Part]:
        whom = ", ".join(f"{count} for {name}" for name, count in self.messages.items())
        if self.file is None:
            yield "nothing to carry"
        else:
            what = whom or "only word of what has arrived"
            yield whole(f"{self.file}: {what} ({self.length} bytes)")
        if self.left:
            yield f"{self.left} messages had no room: exchange again for them"
        if self.unanswered:
            yield whole(
                f"{self.unanswered} messages that came in are not answered yet: does the party run "
                "('eigenveil site start')?"
            )


@dataclass
class TakenIn:
    messages: Counter[str] = field(default_factory=Counter)  # by sender
    again: int = 0  # messages that came before
    for_others: int = 0
    confirmed: int = 0  # own messages that have arrived
    waiting: dict[str, int] = field(default_factory=dict)  # those not confirmed, by recipient
    damaged: dict[str, str] = field(default_factory=dict)  # what is wrong, by file

    def parts(self) -> Iterator[Part]:
        came = ", ".join(f"{count} from {name}" for name, count in self.messages.items())
        yield whole(
            f"taken: {came or 'nothing new'}; {self.again} came before, {self.for_others} are for "
            f"others; {self.confirmed} of our own have arrived"
        )
        for name, why in self.damaged.items():
            yield whole(f"{name}: {why}. Let the other party exchange again.")
        for name, count in self.waiting.items():
            yield f"waiting for {name}: {count} messages to it are not confirmed"


def exchange_out(party: PartyFolder, disk: Path, *, wait: float = 0.0) -> CarriedOut:
    """Pack all mail that is not known to have arrived; ``wait`` seconds at most for answers."""
    shelf = _spool(party)
    _check_disk(disk)
    _settle(shelf, wait)
    chosen: list[tuple[str, MailFile]] = []
    left = length = 0
    for box in _boxes(shelf):
        for each in sorted(shelf.found(f"out/{box}")):
            if length + each.size > MOST_BYTES or len(chosen) == MOST_MESSAGES:
                left += 1
                continue
            chosen.append((box, each))
            length += each.size
    taken = {each.name: each.read_bytes() for each in sorted(_taken(shelf).glob("*.txt"))}
    own, path = folder_name(party.name), None
    unanswered = sum(1 for _ in shelf.found("in"))
    if chosen or taken:
        names = "".join(f"{box}/{each.digest}\n" for box, each in chosen).encode()
        mark = sha256(names + b"".join(taken.values())).hexdigest()[:16]
        path = disk / f"eigenveil-{own}-{mark}.zip"
        _pack(path, shelf, chosen, taken)
        for older in _files(disk):
            if older != path and _sender(older) == own:  # all that still counts is in the new one
                older.unlink(missing_ok=True)
    messages = Counter(member_name(box) for box, _ in chosen)
    return CarriedOut(path, dict(messages), length, left, unanswered)


def exchange_in(party: PartyFolder, disk: Path) -> TakenIn:
    """Take a party's mail from all files of others on a disk; to do so again is harmless."""
    shelf = _spool(party)
    _check_disk(disk)
    found, own = TakenIn(), folder_name(party.name)
    for path in _files(disk):
        sender = _sender(path)
        if sender == own:
            continue
        try:
            with _opened(path) as file, zipfile.ZipFile(file) as archive:
                _unpack(archive, shelf, own, sender, found)
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
            found.damaged[path.name] = str(error) or "it is not whole"
        except OSError as error:
            found.damaged[path.name] = error.strerror or str(error)
    for box in _boxes(shelf):
        if count := sum(1 for _ in shelf.found(f"out/{box}")):
            found.waiting[member_name(box)] = count
    return found


def _spool(party: PartyFolder) -> LocalShelf:
    """The spool, which a party that was started with it has made."""
    shelf = LocalShelf(spool_of(party, party.mailbox_address()))
    if not (shelf.root / "in").is_dir():
        raise OutputError("no-spool", name=party.name, root=shelf.root)
    return shelf


def _check_disk(disk: Path) -> None:
    if not disk.is_dir():
        raise OutputError("no-disk", path=disk)


def _files(disk: Path) -> list[Path]:
    """Files of exchanges, the oldest first."""
    found = []
    with os.scandir(disk) as entries:
        for entry in entries:
            if _FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                found.append((entry.stat().st_mtime, entry.name))
                if len(found) == MOST_MESSAGES:
                    break
    return [disk / name for _, name in sorted(found)]


def _sender(path: Path) -> str:
    named = _FILE.fullmatch(path.name)
    return named[1] if named else ""


def _boxes(shelf: LocalShelf) -> list[str]:
    """Recipients for whom there is, or was, mail."""
    out = shelf.root / "out"
    if not out.is_dir():
        return []
    return sorted(each.name for each in out.iterdir() if re.fullmatch(_PARTY, each.name))


def _taken(shelf: LocalShelf) -> Path:
    return shelf.root / "taken"


def _settle(shelf: LocalShelf, wait: float) -> None:
    """Wait until the party has dealt with what came in, and writes no more."""
    end, before, since = time.monotonic() + wait, None, time.monotonic()
    while time.monotonic() < end:
        state = sorted(each.digest for box in _boxes(shelf) for each in shelf.found(f"out/{box}"))
        unanswered = any(True for _ in shelf.found("in"))
        if state != before or unanswered:
            before, since = state, time.monotonic()
        elif time.monotonic() - since > 1:
            return
        time.sleep(0.1)


def _pack(
    path: Path, shelf: LocalShelf, chosen: list[tuple[str, MailFile]], taken: dict[str, bytes]
) -> None:
    with replacing(path) as scratch:
        with scratch.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
                for name, text in taken.items():
                    archive.writestr(zipfile.ZipInfo(f"taken/{name}"), text)
                for box, each in chosen:
                    envelope = shelf.read(f"out/{box}", each)
                    if envelope is not None and digest_of(envelope) == each.digest:
                        name = f"mail/{box}/{each.digest}{ENDING}"
                        archive.writestr(zipfile.ZipInfo(name), envelope)
            file.flush()
            os.fsync(file.fileno())
        scratch.chmod(0o644)  # all in it is sealed, and the other machine's users are not ours
    sync_folder(path.parent)


def _opened(path: Path) -> IO[bytes]:
    """A file whose end says that all of it is there, and that its list is short."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    try:
        about = os.fstat(file.fileno())
        if not S_ISREG(about.st_mode) or about.st_size < _END.size:
            raise ValueError("it is empty, or was not copied whole")
        file.seek(-_END.size, os.SEEK_END)
        magic, _, _, _, _, listed, start, more = _END.unpack(file.read(_END.size))
        if magic != b"PK\5\6" or more or start + listed + _END.size != about.st_size:
            raise ValueError("it was not copied whole, or changed")
        if listed > MOST_LISTED:
            raise ValueError("it lists more messages than a file has")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _unpack(
    archive: zipfile.ZipFile, shelf: LocalShelf, own: str, sender: str, found: TakenIn
) -> None:
    log = _taken(shelf) / f"{sender}.txt"
    before = log.read_text("ascii").split() if log.is_file() else []
    known, new = set(before), []
    try:
        for info, most in _listed(archive, own):
            if most is None:
                found.for_others += 1
            elif info.filename.startswith("taken/"):
                for digest in set(re.findall("[0-9a-f]{64}", archive.read(info).decode("ascii"))):
                    if (shelf.root / "out" / sender / f"{digest}{ENDING}").exists():
                        shelf.remove(f"out/{sender}", digest)
                        found.confirmed += 1
            else:
                digest = info.filename[-68:-4]
                if digest in known:
                    found.again += 1
                    continue
                envelope = archive.read(info)
                if digest_of(envelope) != digest:
                    raise ValueError("a message in it is damaged")
                shelf.write("in", digest, envelope)
                known.add(digest)
                new.append(digest)
                found.messages[member_name(sender)] += 1
    finally:
        if new:  # what was written is confirmed, and not taken again
            with replacing(log) as scratch:
                scratch.write_text("".join(f"{each}\n" for each in (before + new)[-MOST_TAKEN:]))


def _listed(archive: zipfile.ZipFile, own: str) -> Iterator[tuple[zipfile.ZipInfo, Any]]:
    """What is in a file, checked before any of it is read: with its bound, ``None`` for others."""
    for info in archive.infolist():
        named = _MAIL.fullmatch(info.filename)
        most = LARGEST if named else MOST_TAKEN * 65
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError("something in it is compressed or encrypted")
        if not info.file_size == info.compress_size <= most:
            raise ValueError("a message in it is too long")
        if named:
            yield info, most if named[1] == own else None
        elif info.filename == f"taken/{own}.txt":
            yield info, most
