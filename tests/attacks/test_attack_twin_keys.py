"""Keys that are not those of the party that presents them, but derive the same.

Found by it: X25519 ignores bit 255 of a key, so a colluding site could present another site's key
with that bit flipped. The two masks that a third site made with them, one added, one subtracted,
were the same and cancelled: its sums lay bare but for its own share of the noise. The same holds of
a key plus a point of small order, and of any two spellings of one point.

In each attack the aggregator and the site s3 collude against s0, whose masks with s1 and s3 are to
cancel. The honest site refuses before it has answered any round, and has paid for nothing.
"""

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import (
    LIMIT,
    NOTHING,
    Consortium,
    at,
    changed,
    exact,
    query,
    refusal,
    run_study,
    spent,
    study_of,
)
from test_identity import Known, Registrar

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import aggregator, validation
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, decode, encode
from eigenveil.federation.protocol.payloads import PublicKeys
from eigenveil.federation.secagg import keys
from eigenveil.federation.secagg.keys import Context
from noise_tools import silence

PRIME = 2**255 - 19
SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def flipped(key):
    """The same key to X25519, which ignores its highest bit."""
    return key[:-2] + f"{int(key[-2:], 16) ^ 128:02x}"


def shifted(key):
    """The point, and the point of order two added to it: u becomes 1/u."""
    u = int.from_bytes(bytes.fromhex(key), "little")
    return pow(u, -1, PRIME).to_bytes(32, "little").hex()


def second_encoding(number):
    """Of the coordinate ``number``, which a field element below 2^255 - 19 already has."""
    return (PRIME + number).to_bytes(32, "little").hex()


def every_key(change):
    """Keys made of another site's by changing each."""

    def forge(other):
        rounds = tuple(change(key) for key in other.rounds)
        return other.model_copy(update={"rounds": rounds, "channel": change(other.channel)})

    return forge


def one_key(text):
    """A site's own keys but for that of the first round."""

    def forge(other):
        empty = every_key(shifted)(other)
        return empty.model_copy(update={"rounds": (text, *other.rounds[1:]), "channel": text})

    return forge


FORGED = {
    "bit 255": every_key(flipped),
    "a point of order two added": every_key(shifted),
    "both": every_key(lambda key: flipped(shifted(key))),
    "one key under two names": every_key(lambda key: key),
    "one round's only": lambda other: other.model_copy(
        update={"rounds": (other.rounds[0], *map(shifted, other.rounds[1:]))}
    ),
    "another round's": lambda other: other.model_copy(
        update={"rounds": tuple(map(shifted, (*other.rounds[1:], other.rounds[0])))}
    ),
    "u + p": one_key(second_encoding(9)),
    "largest encoding": one_key("ff" * 32),
    **{f"small order {number}": one_key(text) for number, text in enumerate(SMALL_ORDER)},
    **{
        f"small order {number}, flipped": one_key(flipped(t))
        for number, t in enumerate(SMALL_ORDER)
    },
    "zero, encoded again": one_key(second_encoding(0)),
    "one, encoded again": one_key(second_encoding(1)),
}


def reported(call, name):
    return decode(call.payloads[name], sender=AGGREGATOR, limit=LIMIT).body


def with_forged(call, forge):
    """What s0 is told, with keys of s3 that are made of s1's."""
    near = dict(reported(call, "s0")["neighbours"])
    near["s3"] = forge(PublicKeys.model_validate(near["s1"])).fields()
    return changed(call.payloads["s0"], body={"neighbours": near})


@pytest.mark.parametrize("fields", [{}, {"dropouts": 1}, {"masks": "pairwise"}], ids=str)
def test_a_site_refuses_twin_keys_before_it_sends_anything(fields, tmp_path):
    consortium = Consortium(study_of(4, **fields), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    for what, forge in FORGED.items():
        assert refusal(party, "s0", with_forged(call, forge)) == "bad-key", what
    assert spent(consortium, "s0") == NOTHING
    assert query(party, "s0", call.payloads["s0"]).step == "keys"


@pytest.mark.parametrize(
    "what", ["bit 255", "a point of order two added", "u + p", "one round's only"]
)
def test_the_aggregator_refuses_them_when_they_are_presented(what, tmp_path):
    """An honest aggregator, whom the colluding site has not told: it names the site."""
    consortium = Consortium(study_of(4), tmp_path)

    def fate(name, step, request, party):
        if (name, step) != ("s3", "join"):
            return ...
        others = decode(consortium.parties["s1"].handle(request), sender="s1", limit=LIMIT)
        forged = FORGED[what](PublicKeys.model_validate(others.body["keys"])).fields()
        mine = decode(party.handle(request), sender=name, limit=LIMIT)
        return encode(replace(mine, body={**mine.body, "keys": forged}))

    with pytest.raises(ProtocolError, match="s3") as caught:
        run_study(consortium, fate=fate)
    assert caught.value.code == "bad-key"
    assert all(spent(consortium, name) == NOTHING for name in consortium.rows)


@pytest.fixture(scope="module")
def identities():
    registrar = Registrar()
    return {name: registrar.identity(name) for name in ("s0", "s1", "s2", "s3", HELPER)}


@pytest.mark.parametrize("what", ["bit 255", "a point of order two added", "small order 0"])
def test_a_certificate_does_not_make_twin_keys_good(what, tmp_path, identities):
    """The colluding site signs them with its own certificate, as it may."""
    consortium = Known(study_of(4), tmp_path, identities)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    context = Context(consortium.study.hash, "s")

    def forge(other):
        return identities["s3"].signed(FORGED[what](other), context, "s3")

    assert refusal(party, "s0", with_forged(call, forge)) == "bad-key"
    assert spent(consortium, "s0") == NOTHING


@pytest.mark.parametrize("dropouts", [0, 1])
def test_keys_do_not_change_names(dropouts, tmp_path, identities):
    """The keys of two honest sites, each under the other's name."""
    consortium = Known(study_of(4, dropouts=dropouts), tmp_path, identities)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    near = dict(reported(call, "s0")["neighbours"])
    near["s1"], near["s2"] = near["s2"], near["s1"]
    arrays = {}
    if dropouts:
        message = decode(call.payloads["s0"], sender=AGGREGATOR, limit=LIMIT)
        arrays = {"signers": message.arrays["signers"][[0, 2, 1, 3]]}
    request = changed(call.payloads["s0"], body={"neighbours": near}, arrays=arrays)
    assert refusal(party, "s0", request) == "bad-identity"
    assert spent(consortium, "s0") == NOTHING


# -- that names in the derivation hold by themselves, and that the attack works without either


@contextmanager
def every_key_taken(*, names):
    """Sites that take any key for a new one; ``names`` says whether they derive names too."""
    pair_key = keys._pair_key

    def without_names(own, other, context, facts, names):
        return pair_key(own, other, context, facts, ("", ""))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(validation, "check_distinct", return_value=None))
        stack.enter_context(mock.patch.object(aggregator, "check_distinct", return_value=None))
        stack.enter_context(mock.patch.object(keys, "point_of", X25519PublicKey.from_public_bytes))
        if not names:
            stack.enter_context(mock.patch.object(keys, "_pair_key", without_names))
        yield


def sent_by_the_victim(folder, *, names, forge):
    """What s1, between s0 and s3, sends when s3's keys are made of s0's: of three sites."""
    consortium = Consortium(study_of([{"name": n} for n in ("s0", "s1", "s3")]), folder)

    def fate(name, step, request, party):
        if (name, step) != ("s1", "keys"):
            return ...
        near = dict(decode(request, sender=AGGREGATOR, limit=LIMIT).body["neighbours"])
        near["s3"] = forge(PublicKeys.model_validate(near["s0"])).fields()
        return party.handle(changed(request, body={"neighbours": near}))

    with silence(), every_key_taken(names=names):
        finished = run_study(consortium, fate=fate)
    queries, _ = finished.rounds[0]
    sums = exact(consortium.study, queries[0], {"s1": consortium.rows["s1"]})
    return finished.wire.answers("round 1")["s1"].arrays["sum 0"], sums


@pytest.mark.parametrize("what", ["bit 255", "a point of order two added"])
def test_without_the_checks_a_sites_sums_lay_bare(what, tmp_path):
    bare, sums = sent_by_the_victim(tmp_path, names=False, forge=FORGED[what])
    assert np.array_equal(bare, sums)


@pytest.mark.parametrize("what", ["bit 255", "a point of order two added"])
def test_the_names_in_the_derivation_hold_by_themselves(what, tmp_path):
    """False alarm: 2**-64 an entry."""
    masked, sums = sent_by_the_victim(tmp_path, names=True, forge=FORGED[what])
    assert not np.any(masked == sums)
