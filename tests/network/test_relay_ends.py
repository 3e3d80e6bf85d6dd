"""What a relay's two ends make of messages that are lost, doubled, late, damaged or made up."""

import ast
import contextlib
import hashlib
import json
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.network import relays
from eigenveil.network.carriers.folder import RelayCarrier
from eigenveil.network.relays.eigenveil_relay import spool as ends
from federation_tools import make_federation
from refusal_tools import refuses
from soak_tools import times

CHUNK = 1000


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(ends.Spool.pieces, "__defaults__", (None, CHUNK))


def put(spool, body, recipient="hub"):
    """A file as a party writes it; its name."""
    name = f"{hashlib.sha256(body).hexdigest()}.eve"
    folder = spool.root / "out" / recipient
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(body)
    return name


def found(spool):
    return {each.name: each.read_bytes() for each in (spool.root / "in").iterdir()}


def two(folder):
    return [ends.Spool(relays.make_spool(folder / name)) for name in ("server", "client")]


@pytest.mark.parametrize("seed", range(times(20)))
def test_files_arrive_whole_whatever_happens_to_messages(tmp_path, seed):
    chance = random.Random(seed)
    server, client = two(tmp_path)
    sizes = [1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7]
    sent = [{put(end, chance.randbytes(n), to) for n in sizes} for end, to in
            ((server, "north"), (client, "hub"))]  # fmt: skip
    desk = None
    for _ in range(3000):
        if not any(end.outgoing() for end in (server, client)):
            break
        if desk is None or chance.random() < 0.1:  # the server's process is new
            desk = ends.Peer(server, "node", patience=0.0, idle=0.0, recipient="north")
        desk.next = 0.0
        message = desk.due()
        if message is None or chance.random() < 0.2:
            continue
        if chance.random() < 0.2:
            message = damaged(message, chance)
        for _ in range(chance.choice((1, 1, 2))):
            try:
                reply = ends.answer(client, message, name="north")
                desk.answered(damaged(reply, chance) if chance.random() < 0.2 else reply)
            except ends.SpoolError:
                pass
    for end, names in zip((client, server), sent, strict=True):
        here = found(end)
        assert all(f"{hashlib.sha256(body).hexdigest()}.eve" == name for name, body in here.items())
        assert here.keys() == names


def damaged(message, chance):
    where = chance.randrange(len(message))
    return (
        message[:where] + bytes([message[where] ^ 1 << chance.randrange(8)]) + message[where + 1 :]
    )


@given(st.binary(max_size=200) | st.builds(
    lambda head, body: ends.pack(head, body),
    st.dictionaries(st.sampled_from(["have", "pieces", "wait"]),
                    st.recursive(st.none() | st.integers() | st.text(max_size=70),
                                 lambda inner: st.lists(inner, max_size=4)
                                 | st.dictionaries(st.text(max_size=70), inner, max_size=3))),
    st.binary(max_size=50),
))  # fmt: skip
def test_a_message_that_is_none_is_refused_whole(data):
    with contextlib.suppress(ends.SpoolError):
        head, body = ends.unpack(data)
        assert sum(piece[3] for piece in head["pieces"]) == len(body)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), 1e9, -1, "9", None, [9]])
def test_a_wait_that_is_none_is_not_waited_for(tmp_path, wait):
    _, client = two(tmp_path)
    message = ends.pack({"wait": wait, "have": {}, "pieces": []})
    begun = time.monotonic()
    stopped = lambda: time.monotonic() > begun + 3  # noqa: E731
    head, _ = ends.unpack(ends.answer(client, message, stopped=stopped))
    assert head["pieces"] == []
    assert time.monotonic() < begun + 3


def test_nothing_but_letters_leaves_and_nothing_grows_without_end(tmp_path, monkeypatch):
    server, client = two(tmp_path)
    name = put(server, b"whole", "north")
    box = server.root / "out" / "north"
    (box / ("0" * 64 + ".eve")).write_bytes(b"not what its name says")
    (box / "notes.txt").write_text("a stranger's")
    (box / ("1" * 64 + ".eve")).symlink_to("/etc/hostname")
    (server.root / "out" / "../evil").mkdir()
    pieces, body = server.pieces({})
    assert [each[0] + ".eve" for each in pieces] == [name]
    assert body == b"whole"
    # another's bytes under a digest: thrown away when they are whole
    digest = hashlib.sha256(b"mine").hexdigest()
    head = {"pieces": [[digest, 4, 0, 4]], "have": {}}
    assert client.receive("peer", head, b"your") == {digest: 0}
    assert client.receive("peer", head, b"mine") == {digest: ends.WHOLE}
    # neither more files than may wait, nor more begun ones than a peer may have, nor giants
    begun = [[f"{n:064x}", 10, 0, 1] for n in range(ends.PIECES + 5)]
    have = client.receive("peer", {"pieces": begun}, b"x" * len(begun))
    assert sum(have.values()) == ends.PIECES
    giant = [["2" * 64, ends.LARGEST + 1, 0, 1]]
    assert client.receive("other", {"pieces": giant}, b"x") == {"2" * 64: 0}
    monkeypatch.setattr(ends, "MOST_FILES", 1)
    assert client.receive("other", {"pieces": [["3" * 64, 1, 0, 1]]}, b"x") == {"3" * 64: 0}


def test_what_runs_in_the_network_imports_no_package_of_ours():
    allowed = sys.stdlib_module_names | {"nvflare", "flwr"}
    files = list(relays.SOURCE.glob("*.py"))
    assert len(files) == 6
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert all(each.name.partition(".")[0] in allowed for each in node.names)
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module.partition(".")[0] in allowed


def test_a_kit_is_changed_only_where_flare_leaves_it_to_the_site(tmp_path):
    local = tmp_path / "kit" / "local"
    local.mkdir(parents=True)
    (local / "resources.json.default").write_text('{"class_allow_list": ["a.B"], "x": 1}')
    for _ in range(2):
        relays.allow_in_flare(tmp_path / "kit", tmp_path / "spool")
    content = json.loads((local / "resources.json").read_text())
    assert content == {"class_allow_list": ["a.B", *relays.FLARE_CLASSES], "x": 1}
    assert Path((local / "eigenveil.spool").read_text().strip()) == tmp_path / "spool"
    assert [each.name for each in (tmp_path / "kit").iterdir()] == ["local"]
    with refuses("bad-file"):
        relays.allow_in_flare(tmp_path / "other", tmp_path / "spool")


def test_a_party_does_not_start_where_the_network_can_read_its_keys(tmp_path, monkeypatch):
    monkeypatch.delenv(relays.SAME_USER, raising=False)
    party = make_federation(tmp_path / "parties")["north"]
    address = f"flare:{tmp_path / 'spool'}"
    RelayCarrier().open(party, address)  # no relay has been here yet
    ends.Spool(tmp_path / "spool")  # one of this user's
    with refuses("keys-readable"):
        RelayCarrier().open(party, address)
    key = next(party.folder.rglob("*.pem"))
    key.chmod(0o640)
    assert "open to others" in relays.readable_by_others(party.folder, tmp_path / "new")
    inside = party.folder / "spool"
    assert "lies in the folder" in relays.readable_by_others(party.folder, inside)
