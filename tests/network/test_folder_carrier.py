"""Mail in a folder that others write to as well, on a disk that fills up, in a store that lags."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import EigenveilError
from eigenveil.network.carriers import folder
from eigenveil.network.carriers.folder import (
    FolderCarrier,
    FolderMailbox,
    RelayCarrier,
    folder_name,
    member_name,
)
from eigenveil.network.carriers.shelves import StoreShelf
from eigenveil.network.mailbox import CarrierError, digest_of
from refusal_tools import refuses

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}", fullmatch=True)


def _party(name, where="/"):
    return SimpleNamespace(name=name, folder=Path(where))


def _mailboxes(address, *names):
    return [FolderCarrier().open(_party(name), address) for name in names]


@given(first=NAMES, other=NAMES)
def test_every_name_has_a_folder_of_its_own_on_every_share(first, other):
    made = folder_name(first)
    assert len(os.fsencode(made)) <= 255
    assert made == made.lower()
    assert not made.startswith(".")
    assert not made.endswith(".")
    assert made.partition(".")[0] not in {"con", "prn", "aux", "nul", "com1", "lpt9"}
    assert member_name(made) == first
    assert first == other or made != folder_name(other)


@pytest.mark.parametrize("name", ["con", "NUL.x", "com1", "a.", "A@b.org"])
def test_names_that_windows_has_are_quoted(name):
    assert folder_name(name) != name


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0", "ä", "a" * 65, "-a", "a\n"])
def test_what_nobody_is_called_is_no_path(name):
    with refuses("bad-name-of-party", kind=EigenveilError):
        folder_name(name)


def test_whatever_else_is_in_the_folder_is_ignored(tmp_path):
    site, lead = _mailboxes(f"folder:{tmp_path}", "site", "lead")
    lead.put("site", b"mail")
    box = tmp_path / "site"
    named = [f"{digit * 64}.eve" for digit in "0123456789abcdef"]
    (box / named[0]).write_bytes(b"another text")
    (box / named[1]).mkdir()
    os.mkfifo(box / named[2])
    (box / named[3]).symlink_to(box / f"{digest_of(b'mail')}.eve")
    (box / named[4]).symlink_to("/dev/zero")
    (box / named[5]).touch()
    with (box / named[6]).open("wb") as file:
        file.truncate(folder.LARGEST + 1)  # takes no room on the disk
    (box / f"{digest_of(b'loud').upper()}.eve").write_bytes(b"loud")
    (box / "readme.txt").write_text("hello")
    os.close(os.open(os.fsencode(box) + b"/\xff\xfe.eve", os.O_CREAT))
    (tmp_path / "stranger").symlink_to("/")

    assert site.take(0) == [b"mail"]
    site.forget([digest_of(b"mail"), named[1][:64], "../lead", "a" * 64][:1])
    assert site.take(0) == []
    with pytest.raises(CarrierError):  # what is no regular box is not written into
        lead.put("stranger", b"mail")
    assert (box / named[0]).read_bytes() == b"another text"


def test_a_folder_full_of_others_files_costs_little(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MOST_LOOKED_AT", 50)
    monkeypatch.setattr(folder, "MOST_TAKEN", 1000)
    site, lead = _mailboxes(f"folder:{tmp_path}", "site", "lead")
    sent = [os.urandom(100) for _ in range(120)]
    for each in sent:
        lead.put("site", each)
    for number in range(300):
        (tmp_path / "site" / f"{number:064x}.eve").write_bytes(b"x")
        os.utime(tmp_path / "site" / f"{number:064x}.eve", (0, 0))  # older than all mail
    came = set()
    for _ in range(200):
        mail = site.take(0, {digest_of(each) for each in came})
        assert sum(map(len, mail)) <= 1000
        came.update(mail)
        if len(came) == len(sent):
            break
    assert came == set(sent)


def test_a_file_that_grows_is_mail_once_it_is_whole(tmp_path):
    (site,) = _mailboxes(f"folder:{tmp_path}", "site")
    path = tmp_path / "site" / f"{digest_of(b'whole')}.eve"
    path.parent.mkdir()
    path.write_bytes(b"who")
    assert site.take(0) == []
    path.write_bytes(b"whole")
    assert site.take(0) == [b"whole"]


def test_what_is_made_has_the_permissions_of_the_folder(tmp_path):
    tmp_path.chmod(0o3770)
    old = os.umask(0o077)
    try:
        _mailboxes(f"folder:{tmp_path}", "lead")[0].put("site", b"mail")
    finally:
        os.umask(old)
    (made,) = (tmp_path / "site").iterdir()
    assert stat.S_IMODE(made.stat().st_mode) == 0o660
    # but not that only its owner may remove a file: mail is its recipient's
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o2770


def test_killed_writers_leave_no_mail_and_are_cleaned_up_after(tmp_path):
    site, lead = _mailboxes(f"folder:{tmp_path}", "site", "lead")
    lead.put("site", b"mail")
    scratch = [tmp_path / "site" / f".{digit * 32}.part" for digit in "ab"]
    for each in scratch:
        each.write_bytes(b"half")
    os.utime(scratch[0], (0, 0))
    assert site.take(0) == [b"mail"]
    assert [each.exists() for each in scratch] == [False, True]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE])
def test_what_a_share_reports_is_one_clear_line(tmp_path, monkeypatch, number):
    (lead,) = _mailboxes(f"folder:{tmp_path}", "lead")

    def broken(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(CarrierError) as found:
        lead.put("site", b"mail")
    assert os.strerror(number) in found.value.message
    assert ("full" in found.value.message) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert list((tmp_path / "site").iterdir()) == []


def test_a_share_that_is_not_mounted_is_named(tmp_path):
    (site,) = _mailboxes(f"folder:{tmp_path / 'share'}", "site")
    for action in (lambda: site.take(5), lambda: site.put("lead", b"x")):
        with pytest.raises(CarrierError, match=r"share cannot be reached: No such file"):
            action()
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize("address", ["folder:", "folder:here/there", "flare:x"])
def test_an_address_names_a_folder_from_the_root(address):
    carrier = FolderCarrier() if address.startswith("folder") else RelayCarrier()
    with refuses("bad-address", kind=EigenveilError):
        carrier.open(_party("site"), address)


# -- Stores.


class _Late:
    """A store whose listing is that of some looks ago, and whose first calls fail."""

    def __init__(self, files, lag, failures=0):
        self._files, self._lag, self._failures = files, lag, failures
        self._listed = []

    def __getattr__(self, name):
        return getattr(self._files, name)

    def ls(self, path, detail):
        if self._failures:
            self._failures -= 1
            raise RuntimeError("SlowDown: please reduce your request rate\nTraceback ...")
        try:
            self._listed.append(self._files.ls(path, detail=detail))
        except FileNotFoundError:
            self._listed.append([])
        return self._listed[max(0, len(self._listed) - 1 - self._lag)]


@pytest.fixture
def stored(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield "memory://bucket/study"
    memory.store.clear()


def test_a_store_that_lists_late_delivers_late_and_what_is_gone_is_no_error(stored):
    lead, site = _mailboxes(stored, "lead", "site")
    site.shelf.pace = (0.01, 0.01)
    site.shelf._files = _Late(site.shelf._files, lag=3)
    assert site.take(0) == []
    lead.put("site", b"mail")
    assert site.take(0) == []  # not listed yet
    assert site.take(5) == [b"mail"]
    site.forget([digest_of(b"mail")])
    site.forget([digest_of(b"mail")])
    assert site.take(0) == []  # listed still


def test_a_store_that_fails_is_one_line_and_asked_anew(stored):
    lead, site = _mailboxes(stored, "lead", "site")
    lead.put("site", b"mail")
    site.shelf._files = _Late(site.shelf._files, lag=0, failures=1)
    with pytest.raises(CarrierError) as found:
        site.take(0)
    assert found.value.message == (
        "The mail in memory://bucket/study cannot be reached: "
        "SlowDown: please reduce your request rate."
    )
    assert site.take(0) == [b"mail"]


def test_nothing_in_a_store_is_overwritten(stored):
    lead, site = _mailboxes(stored, "lead", "site")
    path = f"/bucket/study/site/{digest_of(b'mail')}.eve"
    lead.put("site", b"mail")
    site.shelf._files.pipe_file(path, b"what a stranger put there")
    lead.put("site", b"mail")
    assert site.take(0) == []
    assert site.shelf._files.cat_file(path) == b"what a stranger put there"


def test_a_server_of_files_renames(tmp_path):
    """As ``sftp://`` does, here by fsspec's own files of this machine."""
    pytest.importorskip("fsspec")
    shelf = StoreShelf(f"file://{tmp_path}/study")
    seen = []
    move = shelf._files.mv
    shelf._files.mv = lambda old, new: (seen.append(old), move(old, new))
    site, lead = (FolderMailbox(shelf, folder_name(name), folder_name) for name in ("site", "lead"))
    lead.put("site", b"mail")
    lead.put("site", b"mail")
    assert len(seen) == 1
    assert Path(seen[0]).name.endswith(".part")
    assert site.take(0) == [b"mail"]
    site.forget([digest_of(b"mail")])
    assert list((tmp_path / "study" / "site").iterdir()) == []


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("sftp://me:secret@host/mail", "options-in-address"),
        ("s3://bucket/x?key=secret", "options-in-address"),
        ("nonsense://bucket", "no-driver-for-mail"),
    ],
)
def test_an_address_that_everybody_sees_has_no_secret(address, code):
    with refuses(code, kind=EigenveilError) as found:
        FolderCarrier().open(_party("site"), address)
    assert "secret" not in str(found.value)


def test_a_bucket_takes_mail_whole_and_once(monkeypatch):
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        boto3.client("s3").create_bucket(Bucket="bucket")
        lead, site = _mailboxes("s3://bucket/study", "lead@clinic.org", "Site")
        assert site.take(0) == []
        mail = [b"mail", os.urandom(1 << 20)]
        for each in mail * 2:
            lead.put("Site", each)
        assert sorted(site.take(5)) == sorted(mail)
        site.forget([digest_of(each) for each in mail] * 2)
        assert site.take(0) == []
        with pytest.raises(CarrierError, match="there is no bucket nowhere"):
            _mailboxes("s3://nowhere/study", "Site")[0].take(0)
    finally:
        server.stop()
