"""Repair of one round that bares another, and letters that whoever carries them forges."""

import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import (
    LIMIT,
    Consortium,
    Wire,
    at,
    changed,
    exact,
    lost_at,
    query,
    run_study,
    study_of,
    until,
)

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import SessionKey
from eigenveil.federation.masks import MODULAR, Part
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, decode, encode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg import client, keys
from eigenveil.federation.secagg.client import State
from eigenveil.federation.secagg.consistency import threshold
from eigenveil.federation.secagg.keys import (
    KEY_BYTES,
    Context,
    RoundFacts,
    SiteKeys,
    join_secret,
    mask_key,
    self_key,
    unlock,
)
from noise_tools import silence

NAMES = ("s0", "s1", "s2", "s3")
OTHERS = ("s0", "s2", "s3")


def secret_of(finished, kind, turn):
    """A secret of s1 from the shares that its holders gave in a round."""
    said = finished.wire.answers(f"unmask {turn}")
    place = {name: number for number, name in enumerate([*OTHERS, "s1"])}
    shares = {
        place[holder]: bytes.fromhex(answer.body[kind]["s1"])
        for holder, answer in said.items()
        if "s1" in answer.body[kind]
    }
    return join_secret(shares, threshold=threshold(4, 0))


def rounds_known(finished, secret, context):
    """Keys of s1's pairs by round, from all packets that the secret opens."""
    found = {}
    for turn, row in enumerate(finished.wire.answers("shares")["s1"].arrays["packets"], start=1):
        try:
            text = unlock(secret, row.tobytes(), context, "packet", turn, "s1")
        except InvalidTag:
            continue
        found[turn] = [text[i : i + KEY_BYTES] for i in range(0, len(text), KEY_BYTES)]
    return found


def second_round_of_s1(folder):
    """What a repair of s1 in round 1 makes of its message of round 2, and its exact sum."""
    consortium = Consortium(study_of(4, dropouts=1), folder)
    with silence():
        finished = run_study(consortium, fate=lost_at(("s1", "round 1")))
    assert finished.outcome.missing.keys() == {"s1"}
    context = Context(consortium.study.hash, finished.session)
    known = rounds_known(finished, secret_of(finished, "repair", 1), context)
    asked = next(r for n, s, r, _ in finished.wire.carried if (n, s) == ("s1", "round 2"))
    digest = decode(asked, sender=AGGREGATOR, limit=LIMIT).fingerprint
    facts = RoundFacts(2, digest, "f0", "f0")
    message = finished.wire.answers("round 2")["s1"]
    total = message.arrays["sum 0"].copy()
    parts = [Part(message.arrays[name].size) for name in ("sum 0", "sum 1")]
    own = self_key(secret_of(finished, "own", 2), context, 2)
    pairs = [
        (mask_key(key, context, facts, ("s1", other)), other > "s1")
        for other, key in zip(OTHERS, known.get(2, known[1]), strict=True)
    ]
    mask = MODULAR.expanded([*pairs, (own, True)], parts)
    asked_for = finished.rounds[1][0][0]
    sums = exact(consortium.study, asked_for, {"s1": consortium.rows["s1"]})
    return total - mask[: total.size], sums, known


def test_repair_of_one_round_shows_nothing_of_another(tmp_path):
    found, sums, known = second_round_of_s1(tmp_path)
    assert known.keys() == {1}
    assert not np.any(found == sums)


def test_with_one_repair_secret_a_session_it_would(tmp_path):
    one = SiteKeys.repair_secret
    with mock.patch.object(SiteKeys, "repair_secret", lambda self, turn: one(self, 1)):
        found, sums, known = second_round_of_s1(tmp_path)
    assert known.keys() == {1, 2}
    assert np.array_equal(found, sums)


def test_with_the_pairs_secret_in_the_packet_it_would(tmp_path):
    with mock.patch.object(client, "round_key", lambda pair, context, turn, names: pair):
        found, sums, _ = second_round_of_s1(tmp_path)
    assert np.array_equal(found, sums)


# -- letters


def forged_to(folder, dropouts=0):
    """The message of s3 after whoever carries letters put its own in the place of all to it."""
    consortium = Consortium(study_of(4, dropouts=dropouts), folder)
    call = at(consortium, "round 1", "s")
    context = Context(consortium.study.hash, "s")
    carrier = SiteKeys(bytes(32), context)
    to = query(consortium.parties["s3"], "s3", call_of_join(consortium)).body["keys"]["sealing"]
    letters = np.array(
        [
            np.frombuffer(carrier.letter(b"", key=bytes.fromhex(to), names=(other, "s3")), np.uint8)
            for other in NAMES[:3]
        ]
    )
    request = changed(call.payloads["s3"], arrays={"letters": letters})
    with silence():
        message = query(consortium.parties["s3"], "s3", request)
    facts = RoundFacts(1, decode(request, sender=AGGREGATOR, limit=LIMIT).fingerprint, "f0", "f0")
    size = message.arrays["sum 0"].size
    pairs = [
        (
            mask_key(
                keys.round_key(
                    keys.pair_secret({other: carrier.half("s3"), "s3": bytes(32)}, context),
                    context,
                    1,
                    (other, "s3"),
                ),
                context,
                facts,
                (other, "s3"),
            ),
            False,
        )
        for other in NAMES[:3]
    ]
    left = message.arrays["sum 0"] - MODULAR.expanded(pairs, [Part(size)])
    with silence():
        asked = run_study(Consortium(consortium.study, folder / "again", times=2.0)).rounds[0][0][0]
    return left, exact(consortium.study, asked, {"s3": consortium.rows["s3"]})


def call_of_join(consortium):
    run = Aggregator(settle(consortium.study), session="s").run()
    return until(run, Wire(consortium.parties), "join").payloads["s3"]


@pytest.mark.parametrize("both", [True, False])
def test_a_forged_letter_shows_no_message(both, tmp_path):
    """And would, were a letter one way all that a pair's secret is made of."""
    (tmp_path / "again").mkdir()
    secret = keys.pair_secret

    def one_way(halves, context):
        """The lower-named site's half alone."""
        lower = min(halves)
        return secret(dict.fromkeys(halves, halves[lower]), context)

    with mock.patch.object(keys, "pair_secret", secret if both else one_way):
        found, sums = forged_to(tmp_path)
    assert np.array_equal(found, sums) != both
    assert np.any(found == sums) != both


def test_another_sites_key_as_ones_own_opens_nothing(tmp_path):
    """A colluding site presents s0's key: what is sealed for it nobody opens in its name."""
    consortium = Consortium(study_of(4), tmp_path)

    def fate(name, step, request, party):
        if (name, step) != ("s3", "join"):
            return ...
        said = query(party, name, request)
        keys_of_s0 = query(consortium.parties["s0"], "s0", request).body["keys"]
        return encode(replace(said, body=dict(said.body) | {"keys": keys_of_s0}))

    wire = Wire(consortium.parties, fate)
    until(Aggregator(settle(consortium.study), session="s").run(), wire, "round 1")
    context = Context(consortium.study.hash, "s")
    for_s0, _, for_s3 = wire.answers("keys")["s1"].arrays["letters"]
    state = consortium.ledgers["s0"].state(SessionKey(consortium.study.hash, "s"))
    s0 = SiteKeys(bytes.fromhex(State.model_validate_json(state).master), context)
    assert s0.opened(for_s0.tobytes(), names=("s1", "s0"))
    assert s0.opened(for_s3.tobytes(), names=("s1", "s3"))  # only in the other's name
    with pytest.raises(ProtocolError, match="under seal"):
        s0.opened(for_s3.tobytes(), names=("s1", "s0"))
