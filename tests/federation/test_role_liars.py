"""Sites that talk nonsense: the aggregator goes on without them, and never stumbles."""

import math

import numpy as np
import pytest
from roles_tools import (
    LIMIT,
    NOTHING,
    Consortium,
    run_study,
    spent,
    study_of,
)

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import REFUSED, Message, decode, encode
from noise_tools import silence


class Liar:
    """A site that says something else at one step."""

    def __init__(self, party, name, step, say):
        self._party, self._name, self._step, self._say = party, name, step, say
        self.last_error = None

    def handle(self, request):
        answer = self._party.handle(request)
        message = decode(answer, sender=self._name, limit=LIMIT)
        return self._say(message, answer) if message.step == self._step else answer


def statement(**fields):
    def say(message, answer):
        return encode(Message(**(vars(message) | fields)))

    return say


def body(**fields):
    def say(message, answer):
        return encode(Message(**(vars(message) | {"body": dict(message.body) | fields})))

    return say


@pytest.mark.parametrize(
    ("step", "say"),
    [
        ("join", lambda m, a: b""),
        ("join", lambda m, a: a[:-1]),
        ("join", statement(session="another")),
        ("join", statement(study="another")),
        ("join", body(rows=-1)),
        ("join", body(rows=2**60)),
        ("join", body(features=0)),
        ("join", body(keys=None)),
        ("keys", body(sealed={})),
        ("keys", body(sealed={"s1": "00"})),
        ("keys", body(sealed={"s1": "zz", "s2": "00", "s3": "00"})),
        ("shares", body(more=1)),
        ("round 1", statement(arrays={})),
        ("round 1", statement(arrays={"sum 0": np.zeros(3, np.uint64)})),
        ("round 1", statement(arrays={"sum 0": np.zeros(4)})),
        ("round 1", statement(step="round 2")),
        ("round 1", lambda m, a: b"x" * (1 << 23)),
        ("survivors 1", body(signature="00" * 64)),
        ("survivors 1", body(signature="00" * 63)),
        ("survivors 1", body(more=1)),
        ("unmask 1", body(own={})),
        ("unmask 1", body(own={"s0": "00" * 15})),
        ("unmask 1", body(pair={"s9": "00" * 16})),
    ],
)
def test_a_site_that_talks_nonsense_is_one_that_is_lost(step, say, tmp_path):
    """The others are as before, and the sums are theirs."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", step, say)
    with silence():
        finished = run_study(consortium)
    assert set(finished.outcome.missing) == {"s0"}
    assert finished.outcome.taking_part == (3 if step in ("join", "keys", "round 1") else 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_a_factor_with_impossible_numbers_is_refused(value, tmp_path):
    consortium = Consortium(study_of(4, protocol="dpdispca", dropouts=1, center=False), tmp_path)

    def say(message, answer):
        array = message.arrays["factor 0"].copy()
        array[0, 0] = value
        return encode(Message(**(vars(message) | {"arrays": {"factor 0": array}})))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "round 1", say)
    assert set(run_study(consortium).outcome.missing) == {"s0"}


def test_what_a_site_says_of_itself_cannot_write_on_the_terminal(tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    refused = payloads.Refusal(code="\x1b[2Kx", text="\x1b[2J\x07gone\u202e").fields()

    def say(message, answer):
        return encode(Message(**(vars(message) | {"step": REFUSED, "body": refused})))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "round 1", say)
    assert run_study(consortium).outcome.missing == {"s0": "[2Jgone (problem)"}


def test_keys_of_small_order_are_refused_by_every_neighbour(tmp_path):
    """Whoever sends them, nobody answers a round with masks that anybody could know."""
    consortium = Consortium(study_of(3), tmp_path)

    def say(message, answer):
        rounds = [f"{i:02x}" + "00" * 31 for i in range(payloads.MOST_ROUNDS)]
        keys = message.body["keys"] | {"rounds": rounds}
        return encode(Message(**(vars(message) | {"body": dict(message.body) | {"keys": keys}})))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "join", say)
    with pytest.raises(ProtocolError) as caught:
        run_study(consortium)
    assert caught.value.code == "bad-key"
    for name in ("s1", "s2"):
        assert spent(consortium, name) == NOTHING
