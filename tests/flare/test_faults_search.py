"""Whatever became of a study: nothing of one site is found where an aggregator keeps things."""

import base64
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from fault_tools import PATIENCE, ROWS, SITES, FaultyFederation, pca_study, until

from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, decode, fingerprint
from eigenveil.federation.secagg.client import State
from eigenveil.federation.secagg.consistency import bitmap
from eigenveil.federation.secagg.keys import (
    Context,
    RoundFacts,
    SiteKeys,
    join_secret,
    pair_key,
    self_key,
)
from eigenveil.federation.secagg.masks import Part, self_mask, threshold

ROUNDS = 4
WINDOW = 4  # entries that are searched for together


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("search")) as found:
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES)
        yield found


@pytest.fixture(scope="module")
def studies(federation):
    """Studies with modular masks that ended in every way, and the job of each."""
    jobs = {}
    jobs["finished"] = ended(federation, pca_study("whole", dropouts=1), "finished")
    jobs["plain"] = ended(federation, pca_study("plain"), "finished")

    # south is given up in round 1, and its message comes when its masks are known
    federation.notify("south", step="round 1", seconds=16.0)  # longer than three tries
    federation.notify("aggregator", step="round 1", site="south", greedy=60.0)
    study = pca_study("late", dropouts=1)
    jobs["late"] = federation.run(study, timeout=4.0, wait=False)
    with federation.session() as session:
        status = federation.wait(session, jobs["late"], timeout=PATIENCE)
        assert status.state == "finished", status.error
    federation.honest()

    federation.notify("south", step="round 3", die="after")
    jobs["killed"] = ended(federation, pca_study("killed", dropouts=1), "finished", timeout=3.0)
    federation.honest()

    reported = federation.said("south").count("mischief in round 3")
    federation.notify("south", step="round 3", seconds=5.0)
    jobs["aborted"] = federation.run(pca_study("aborted", dropouts=1), timeout=60.0, wait=False)
    until(lambda: federation.said("south").count("mischief in round 3") > reported)
    with federation.session() as session:
        session.abort(jobs["aborted"])
        assert federation.wait(session, jobs["aborted"]).state == "aborted"
    federation.honest()

    federation.notify("aggregator", step="unmask 2", site="west", die="tree", when="after")
    jobs["felled"] = federation.run(pca_study("felled", dropouts=1), wait=False)
    assert federation.processes["aggregator"].wait(PATIENCE) == -9
    federation.honest()
    with federation.session() as session:
        assert federation.wait(session, jobs["felled"], timeout=PATIENCE).state == "finished"

    # not masked: what the search must find in what the aggregator saw
    jobs["open"] = ended(federation, pca_study("open", protocol="local"), "finished")
    until(federation.all_free)
    federation.check_books()
    return jobs


def ended(federation, study, state, **settings):
    status = federation.run(study, **settings)
    assert status.state == state, status
    return status.job


# -- what is searched for


def forms(name, content):
    """A secret as bytes, and as the texts in which bytes are written."""
    texts = (content.hex(), content.hex().upper(), base64.b64encode(content).decode().rstrip("="))
    return {(name, content)} | {(name, text.encode()) for text in texts}


def windows(name, values):
    """Some entries of an array, as bytes and one by one as text."""
    found = set()
    flat = np.ascontiguousarray(values).reshape(-1)
    for start in {0, flat.size // 3, flat.size // 2, max(0, flat.size - WINDOW)}:
        piece = flat[start : start + WINDOW]
        if len(set(piece.tobytes())) < 12:
            continue  # small counts, which are found anywhere
        found.add((name, piece.astype(piece.dtype.newbyteorder("<")).tobytes()))
        for value in piece.tolist():
            if len(repr(value).strip("-")) >= 11:
                found.add((name, repr(value).encode()))
                if isinstance(value, int) and value >= 1 << 63:
                    found.add((name, repr(value - (1 << 64)).encode()))
    return found


def sums(federation, study):
    """What sites computed in a study, without noise, and with noise and no masks."""
    found = set()
    for name in SITES:
        for file in (federation.folder / "secrets").glob(f"{name}-*-{study}.npz"):
            with np.load(file) as arrays:
                for kind in arrays.files:
                    found |= windows(f"{study}: {kind} of {name}", arrays[kind])
    return found


def keys_of(federation):
    """Everything that only a site knows of its sessions' keys, and every party's private key."""
    found = set()
    for file in (federation.folder / "secrets").glob("*.state"):
        name, session = file.stem.split("-")
        state = State.model_validate_json(file.read_bytes())
        found |= forms(f"master of {name}", bytes.fromhex(state.master))
        study = next(
            each.key.study for each in accounts(federation, name) if each.key.session == session
        )
        keys = SiteKeys(bytes.fromhex(state.master), Context(study, session))
        for round_number in range(1, ROUNDS + 1):
            found |= forms(f"own mask {round_number} of {name}", keys.self_seed(round_number))
            found |= forms(f"pair secret {round_number} of {name}", keys.pair_seed(round_number))
    for file in federation.folder.glob("kits/*/**/*.key"):
        if "kits/aggregator/" in str(file):
            continue
        text = file.read_bytes()
        key = load_pem_private_key(text, None).private_numbers()
        secret = getattr(key, "d", None) or key.private_value
        found |= {(f"{file.parts[-3]}: {file.name}", text.splitlines()[2])}
        found |= forms(f"{file.name}", secret.to_bytes((secret.bit_length() + 7) // 8, "big"))
    return found


def accounts(federation, name):
    from eigenveil.federation.ledger.ledger import Ledger

    return Ledger(federation.ledger(name)).sessions()


def rows():
    return {
        pattern
        for name, values in ROWS.items()
        for row in values[::25]
        for pattern in windows(f"a row of {name}", row)
    }


# -- where


def contents(*folders):
    """Every file, and what is packed in it."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            for file in (Path(place) / name for name in names):
                try:
                    content = file.read_bytes()
                except FileNotFoundError:
                    continue  # FLARE tidies up
                yield str(file), content
                if zipfile.is_zipfile(io.BytesIO(content)):
                    with zipfile.ZipFile(io.BytesIO(content)) as packed:
                        for name in packed.namelist():
                            yield f"{file}: {name}", packed.read(name)


def search(patterns, *folders):
    """Names of what is found, and where."""
    return {
        (name, place)
        for place, content in contents(*folders)
        for name, pattern in patterns
        if pattern in content
    }


def kept(federation):
    """Where an aggregator keeps things: its kit with jobs, logs and results; temporary files."""
    return federation.kits["aggregator"], federation.folder / "tmp" / "aggregator"


def masked(federation):
    names = ("whole", "plain", "late", "killed", "aborted", "felled")
    found = set().union(*(sums(federation, name) for name in names))
    for name in names:
        assert sums(federation, name), name
    return found


def test_nothing_of_one_site_is_kept(federation, studies):
    patterns = masked(federation) | sums(federation, "open") | keys_of(federation) | rows()
    assert len(patterns) > 1000
    assert search(patterns, *kept(federation)) == set()
    log = federation.folder / "aggregator.log"
    assert not [name for name, pattern in patterns if pattern in log.read_bytes()]


def test_nothing_of_one_site_was_ever_seen(federation, studies):
    """Not even in memory: in no message that any job's process received, late ones included."""
    tap = federation.folder / "tap"
    patterns = masked(federation) | keys_of(federation) | rows()
    assert search(patterns, tap) == set()
    # without masks it would have been found there
    found = {name for name, _ in search(sums(federation, "open"), tap / studies["open"])}
    assert {"open: sum 0 of north", "open: value 0 of north"} & found


@pytest.mark.parametrize("how", ["bytes", "text", "packed", "secret", "key"])
def test_the_search_finds_what_is_planted(federation, studies, how):
    place = federation.kits["aggregator"] / "results" / studies["late"] / "planted"
    file = sorted((federation.folder / "secrets").glob("west-*-late.npz"))[-1]
    with np.load(file) as arrays:
        values = arrays["sum 0"]
    wanted = "late: sum 0 of west"
    if how == "bytes":
        place.write_bytes(b"xyz" + values.tobytes())
    if how == "text":
        place.write_text(json.dumps(values.tolist()))
    if how == "packed":
        np.savez_compressed(place.with_suffix(".npz"), values)
        place = place.with_suffix(".npz")
    if how == "secret":
        wanted, content = min(
            each for each in keys_of(federation) if each[0].startswith("own mask 2 of south")
        )
        place.write_bytes(content)
    if how == "key":
        key = federation.kits["registrar"] / "rootCA.key"
        place.write_bytes(key.read_bytes())
        wanted = "registrar"
    try:
        found = search(masked(federation) | keys_of(federation), *kept(federation))
    finally:
        place.unlink()
    assert found
    assert any(wanted in name or wanted in where for name, where in found) or how == "key"


def test_a_late_message_is_under_a_mask_that_nobody_gives_away(federation, studies):
    """South was given up in round 1: the aggregator knows its pair secret and has its message.

    All that this gives is worked out here, and is not what south sent: its own mask is on it, of
    which nobody gave a share. With that mask it would be.
    """
    (late,) = federation.tapped(studies["late"], "south", "round 1 late")
    request, reply = (
        decode(late[0], sender=AGGREGATOR, limit=1 << 30),
        decode(late[1], sender="south", limit=1 << 30),
    )
    assert reply.step == "round 1"
    context, request_digest = Context(reply.study, reply.session), fingerprint(request)
    everybody = bitmap(("north", "south", "west"), ("north", "south", "west"))
    publics, shares, own = {}, {}, set()
    holders = ["north", "west", "south"]
    for name in ("north", "west"):
        ((_, joined),) = federation.tapped(studies["late"], name, "join")
        publics[name] = decode(joined, sender=name, limit=1 << 30).read(payloads.JoinReply).keys
        ((_, unmasked),) = federation.tapped(studies["late"], name, "unmask 1")
        reported = decode(unmasked, sender=name, limit=1 << 30).read(payloads.UnmaskReply)
        shares[holders.index(name)] = bytes.fromhex(reported.pair["south"])
        own |= set(reported.own)
    assert own == {"north", "west"}  # nobody gave a share of south's own mask
    pair_seed = join_secret(shares, threshold=threshold(3, 0))

    state = State.model_validate_json(
        (federation.folder / "secrets" / f"south-{reply.session}.state").read_bytes()
    )
    keys = SiteKeys(bytes.fromhex(state.master), context)
    assert pair_seed == keys.pair_seed(1)  # so much an aggregator knows

    message = np.concatenate([reply.arrays[name].reshape(-1) for name in reply.arrays])
    parts = [Part(size=message.size)]
    left = message.astype(np.uint64)
    for name, public in publics.items():
        facts = RoundFacts(1, request_digest, everybody, everybody)
        key = pair_key(pair_seed, bytes.fromhex(public.rounds[0]), context, facts, ("south", name))
        stream = self_mask(key, parts)
        left = left - stream if name > "south" else left + stream
    file = sorted((federation.folder / "secrets").glob("south-*-late.npz"))[0]
    with np.load(file) as arrays:
        sent = np.concatenate([arrays[name].reshape(-1) for name in reply.arrays])
    assert not (left == sent).any()
    assert np.array_equal(left - self_mask(self_key(keys.self_seed(1), context, 1), parts), sent)
