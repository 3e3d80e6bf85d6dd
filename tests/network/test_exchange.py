"""Mail that is carried by hand: nothing is lost or doubled, and no file on a disk does harm."""

import json
import os
import random
import shutil
import threading
import zipfile

import pytest

from eigenveil.app import exchange
from eigenveil.app.exchange import exchange_in, exchange_out
from eigenveil.cli.commands.exchange import out, take_in
from eigenveil.errors import EigenveilError
from eigenveil.network.carriers.folder import FolderCarrier, RelayCarrier, WithSpool
from eigenveil.network.mailbox import digest_of
from federation_tools import make_federation
from refusal_tools import refuses


@pytest.fixture
def parties(tmp_path):
    return make_federation(tmp_path / "parties", address="exchange:")


@pytest.fixture
def mailboxes(parties):
    return {name: RelayCarrier().open(each, "exchange:") for name, each in parties.items()}


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    return place


def test_an_exchange_is_one_file_out_and_one_in(parties, mailboxes, disk):
    mailboxes["aggregator"].put("north", b"question")
    mailboxes["aggregator"].put("south", b"another")
    out = exchange_out(parties["aggregator"], disk)
    assert (out.messages, out.length, out.left) == ({"north": 1, "south": 1}, 15, 0)
    assert list(disk.iterdir()) == [out.file]
    assert exchange_out(parties["aggregator"], disk).file == out.file  # nothing has changed

    came = exchange_in(parties["north"], disk)
    assert (came.messages, came.for_others, came.damaged) == ({"aggregator": 1}, 1, {})
    assert mailboxes["north"].take(0) == [b"question"]
    assert exchange_out(parties["north"], disk).unanswered == 1
    mailboxes["north"].put("aggregator", b"answer")
    mailboxes["north"].forget([digest_of(b"question")])
    assert exchange_in(parties["north"], disk).again == 1
    assert mailboxes["north"].take(0) == []

    exchange_out(parties["north"], disk)
    assert len(list(disk.iterdir())) == 2  # what went before it is in it, and gone
    back = exchange_in(parties["aggregator"], disk)
    assert (back.messages, back.confirmed, back.waiting) == ({"north": 1}, 1, {"south": 1})
    assert mailboxes["aggregator"].take(0) == [b"answer"]
    assert exchange_out(parties["aggregator"], disk).messages == {"south": 1}
    assert exchange_in(parties["north"], disk).confirmed == 1
    assert exchange_in(parties["north"], disk).waiting == {}


def test_out_waits_for_the_answers_to_what_came_in(parties, mailboxes, disk):
    mailboxes["aggregator"].put("north", b"question")
    exchange_out(parties["aggregator"], disk)
    exchange_in(parties["north"], disk)

    def answer():
        (question,) = mailboxes["north"].take(5)
        mailboxes["north"].put("aggregator", b"answer")
        mailboxes["north"].forget([digest_of(question)])

    threading.Timer(0.3, answer).start()
    out = exchange_out(parties["north"], disk, wait=60)
    assert (out.messages, out.unanswered) == ({"aggregator": 1}, 0)


def test_copies_that_were_cut_off_or_changed_are_named_and_the_rest_is_taken(
    parties, mailboxes, disk
):
    sent = [bytes([number]) * 500 for number in range(5)]
    for each in sent:
        mailboxes["aggregator"].put("north", each)
    whole = exchange_out(parties["aggregator"], disk).file
    data = whole.read_bytes()
    draw = random.Random(0)
    for cut in [0, 1, 22, len(data) // 2, len(data) - 1, *draw.sample(range(len(data)), 40)]:
        whole.write_bytes(data[:cut])
        found = exchange_in(parties["north"], disk)
        assert list(found.damaged) == [whole.name]
        assert not found.messages
    for place in draw.sample(range(len(data)), 300):
        whole.write_bytes(
            data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        )
        exchange_in(parties["north"], disk)
    assert set(mailboxes["north"].take(0)) <= set(sent)  # no flipped bit is mail
    whole.write_bytes(data)
    assert exchange_in(parties["north"], disk).damaged == {}
    assert set(mailboxes["north"].take(0)) == set(sent)


def _write(disk, *members, name="aggregator", compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(disk / f"eigenveil-{name}-{'0' * 16}.zip", "w", compress) as archive:
        for member, text in members:
            archive.writestr(member, text)


def test_no_file_on_a_disk_does_harm(parties, mailboxes, disk, monkeypatch):
    monkeypatch.setattr(exchange, "LARGEST", 1000)
    mailboxes["north"].put("aggregator", b"answer")
    mail = f"mail/north/{'0' * 64}.eve"
    for members, compress in [
        ([(mail, b"of another digest")], zipfile.ZIP_STORED),
        ([(f"mail/north/{digest_of(bytes(999))}.eve", bytes(999))], zipfile.ZIP_DEFLATED),
        ([(f"mail/north/{digest_of(bytes(1001))}.eve", bytes(1001))], zipfile.ZIP_STORED),
        ([("taken/north.txt", bytes(1 << 20))], zipfile.ZIP_STORED),
        ([("taken/north.txt", "ä".encode())], zipfile.ZIP_STORED),
    ]:
        _write(disk, *members, compress=compress)
        found = exchange_in(parties["north"], disk)
        assert len(found.damaged) == 1, members
        assert not found.messages
    _write(
        disk,
        ("../../north/party.json", b"{}"),
        ("mail/../in/x.eve", b""),
        ("taken/north.txt", digest_of(b"answer")),  # another says it for the aggregator
        name="south",
    )
    (disk / "eigenveil-west-0000000000000000.zip").symlink_to("/dev/zero")
    (disk / "eigenveil-helper-0000000000000000.zip").mkdir()
    os.mkfifo(disk / "eigenveil-lead-0000000000000000.zip")
    (disk / "holidays.zip").write_bytes(b"PK")
    found = exchange_in(parties["north"], disk)
    assert len(found.damaged) == 1  # the last one above
    assert found.waiting == {"aggregator": 1}
    assert mailboxes["north"].take(0) == []


def test_a_disk_that_fills_up_has_no_half_file(parties, mailboxes, disk, monkeypatch):
    mailboxes["aggregator"].put("north", b"question")

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(exchange.os, "fsync", full)
    with refuses("cannot-write", r"\.zip .*No space left on device", kind=EigenveilError):
        exchange_out(parties["aggregator"], disk)
    assert list(disk.iterdir()) == []


def test_more_than_fits_goes_with_the_next_exchange(parties, mailboxes, disk, monkeypatch):
    monkeypatch.setattr(exchange, "MOST_BYTES", 2500)
    sent = {os.urandom(1000) for _ in range(5)}
    for each in sent:
        mailboxes["aggregator"].put("north", each)
    came = set()
    for left in (3, 1, 0):
        assert exchange_out(parties["aggregator"], disk).left == left
        exchange_in(parties["north"], disk)
        came.update(mailboxes["north"].take(0))
        exchange_out(parties["north"], disk)
        exchange_in(parties["aggregator"], disk)
    assert came == sent


def test_a_disk_that_is_not_there_and_mail_that_goes_by_wire(parties, mailboxes, tmp_path, disk):
    for each in (exchange_in, exchange_out):
        with refuses("no-disk", "is it mounted", kind=EigenveilError):
            each(parties["north"], tmp_path / "nowhere")
    wired = make_federation(tmp_path / "wired", address="folder:/nowhere")
    with refuses("no-spool", "by hand yet", kind=EigenveilError):
        exchange_in(wired["north"], disk)


def test_the_commands_name_what_is_carried_awaited_and_damaged(parties, mailboxes, disk, capsys):
    mailboxes["aggregator"].put("north", b"question")
    out(disk, parties["aggregator"].folder, wait=0)
    assert ".zip: 1 for north (8 bytes)" in capsys.readouterr().out.replace("\n", "")
    assert take_in(disk, parties["north"].folder) == 0
    assert "taken: 1 from aggregator; 0 came before" in capsys.readouterr().out
    mailboxes["north"].put("aggregator", b"answer")
    next(disk.iterdir()).write_bytes(b"PK, and then the disk was pulled out")
    assert take_in(disk, parties["north"].folder) == 6
    said = capsys.readouterr().out
    assert "it was not copied whole, or changed. Let the other party exchange again." in said
    assert "waiting for aggregator: 1 messages to it are not confirmed" in said
    out(disk, parties["north"].folder, wait=0, json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["unanswered"]) == ({"aggregator": 1}, 1)


def test_one_member_is_written_to_by_hand_and_others_by_wire(tmp_path, disk):
    parties = make_federation(tmp_path / "parties", address=f"folder:{tmp_path}")
    wires = {name: FolderCarrier().open(parties[name], f"folder:{tmp_path}") for name in parties}
    north = RelayCarrier().open(parties["north"], "exchange:")
    aggregator = WithSpool(wires["aggregator"], parties["aggregator"], ["north"])
    aggregator.put("north", b"far")
    aggregator.put("south", b"near")
    assert wires["south"].take(0) == [b"near"]
    exchange_out(parties["aggregator"], disk)
    exchange_in(parties["north"], disk)
    assert north.take(0) == [b"far"]
    north.put("aggregator", b"from far")
    wires["south"].put("aggregator", b"from near")
    exchange_out(parties["north"], disk)
    exchange_in(parties["aggregator"], disk)
    mail = [b"from far", b"from near"]
    assert aggregator.take(5) == mail
    assert aggregator.take(0, {digest_of(mail[0])}) == mail[1:]
    aggregator.forget([digest_of(each) for each in mail])
    assert aggregator.take(0) == []
    threading.Timer(0.3, aggregator.close).start()
    assert aggregator.take(60) == []


def test_every_order_of_exchanges_loses_nothing(parties, mailboxes, disk, tmp_path):
    """Copies of disks that are old, absent or given twice, in any order."""
    draw, sent, came = random.Random(1), set(), []
    shelves = [disk, tmp_path / "other"]
    shelves[1].mkdir()
    names = ("aggregator", "north")
    for step in range(150):
        who, whom = draw.sample(names, 2)
        place = draw.choice(shelves)
        match draw.randrange(5):
            case 0:
                text = f"{step}".encode()
                mailboxes[who].put(whom, text)
                sent.add(text)
            case 1:
                exchange_out(parties[who], place)
            case 2:
                exchange_in(parties[who], place)
            case 3:
                shutil.copytree(shelves[0], shelves[1], dirs_exist_ok=True)
            case 4:
                mail = mailboxes[who].take(0)
                came += mail
                mailboxes[who].forget([digest_of(each) for each in mail])
    for who in names * 3:
        exchange_out(parties[who], disk)
        exchange_in(parties[names[who == "aggregator"]], disk)
    came += [each for who in names for each in mailboxes[who].take(0)]
    assert sorted(came) == sorted(sent)  # each once
    assert all(not exchange_in(parties[who], disk).waiting for who in names)
