"""Sites that talk nonsense: the aggregator goes on without them, and never stumbles."""

import math
from dataclasses import replace

import numpy as np
import pytest
from roles_tools import (
    LIMIT,
    NOTHING,
    Consortium,
    lost_at,
    run_study,
    spent,
    study_of,
)

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import REFUSED, decode, encode
from federation_tools import identities
from noise_tools import silence
from refusal_tools import refuses


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
        return encode(replace(message, **fields))

    return say


def body(**fields):
    def say(message, answer):
        return encode(replace(message, body=dict(message.body) | fields))

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
        ("join", body(keys={"sealing": "00" * 1216, "proof": None})),
        ("join", body(keys={"sealing": "ff" * 1216, "proof": None})),
        ("keys", body(more=1)),
        ("keys", statement(arrays={})),
        ("keys", statement(arrays={"letters": np.zeros((2, 1200), np.uint8)})),
        ("shares", body(more=1)),
        ("shares", statement(arrays={})),
        ("shares", statement(arrays={"packets": np.zeros((2, 10), np.uint8)})),
        ("round 1", statement(arrays={})),
        ("round 1", statement(arrays={"sum 0": np.zeros(3, np.uint64)})),
        ("round 1", statement(arrays={"sum 0": np.zeros(4)})),
        ("round 1", statement(step="round 2")),
        ("round 1", lambda m, a: b"x" * (1 << 23)),
        ("survivors 1", body(signature="00" * 63)),
        ("survivors 1", body(more=1)),
        ("unmask 1", body(own={})),
        ("unmask 1", body(own={"s0": "00" * 15})),
        ("unmask 1", body(repair={"s9": "00" * 16})),
    ],
)
def test_a_site_that_talks_nonsense_is_one_that_is_lost(step, say, tmp_path):
    """The others are as before, and the sums are theirs."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", step, say)
    with silence():
        finished = run_study(consortium)
    assert set(finished.outcome.missing) == {"s0"}
    early = ("join", "keys", "shares", "round 1")
    assert finished.outcome.taking_part == (3 if step in early else 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_a_factor_with_impossible_numbers_is_refused(value, tmp_path):
    consortium = Consortium(study_of(4, protocol="dpdispca", dropouts=1, center=False), tmp_path)

    def say(message, answer):
        array = message.arrays["factor 0"].copy()
        array[0, 0] = value
        return encode(replace(message, arrays={"factor 0": array}))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "round 1", say)
    assert set(run_study(consortium).outcome.missing) == {"s0"}


def test_what_a_site_says_of_itself_cannot_write_on_the_terminal(tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    refused = payloads.Refusal(code="\x1b[2Kx", text="\x1b[2J\x07gone\u202e").fields()

    def say(message, answer):
        return encode(replace(message, step=REFUSED, body=refused))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "round 1", say)
    assert run_study(consortium).outcome.missing == {"s0": "[2Jgone (problem)"}


@pytest.mark.parametrize("dropouts", [0, 1])
def test_letters_that_do_not_open_end_a_study_and_name_their_sender(dropouts, tmp_path):
    """Whoever sends them, nobody answers a round with masks that anybody could know."""
    consortium = Consortium(study_of(4, dropouts=dropouts), tmp_path)

    def say(message, answer):
        letters = message.arrays["letters"].copy()
        letters[:, 5] ^= 1
        return encode(replace(message, arrays={"letters": letters}))

    consortium.parties["s0"] = Liar(consortium.parties["s0"], "s0", "keys", say)
    with refuses("too-few-sites", "site s1: s0: what it sent under seal", kind=ProtocolError):
        run_study(consortium)
    for name in ("s1", "s2", "s3"):
        assert spent(consortium, name) == NOTHING


def test_packets_and_shares_that_do_not_fit_name_the_lost_site(tmp_path):
    """The round's sum is not taken for one: nobody can say which of them lied."""
    for liar, step, kind in (("s1", "shares", "packets"), ("s0", "unmask 1", "repair")):
        folder = tmp_path / kind
        folder.mkdir()
        consortium = Consortium(study_of(4, dropouts=1), folder)

        def say(message, answer, kind=kind):
            if kind == "packets":
                more = {"arrays": {"packets": message.arrays["packets"] ^ 1}}
            else:
                more = {"body": dict(message.body) | {"repair": {"s1": "00" * 16}}}
            return encode(replace(message, **more))

        consortium.parties[liar] = Liar(consortium.parties[liar], liar, step, say)
        with refuses("bad-repair", "What s1 left", kind=ProtocolError):
            run_study(consortium, fate=lost_at(("s1", "round 1")))


def test_a_false_signature_of_who_took_part_does_not_count(tmp_path):
    """Where parties have identities the aggregator looks before it shows it to others."""
    names = tuple(f"s{i}" for i in range(4))
    consortium = Consortium(study_of(4, dropouts=1), tmp_path, identities=identities(names))
    consortium.parties["s0"] = Liar(
        consortium.parties["s0"], "s0", "survivors 1", body(signature="00" * 64)
    )
    finished = run_study(consortium, identity=consortium.identities["aggregator"])
    assert set(finished.outcome.missing) == {"s0"}
    assert finished.outcome.taking_part == 4
