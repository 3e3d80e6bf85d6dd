"""An aggregator that breaks the rules: what a site does not go along with.

With modular masks the guarantees hold against it too (docs/proofs/views.md, claim 8): tests/attacks
has the stories that it may tell of survivors. With Gaussian masks this is what comes for free.
"""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from roles_tools import (
    DELTA,
    LIMIT,
    Consortium,
    Wire,
    at,
    changed,
    query,
    refusal,
    request_of,
    study_of,
    until,
)

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads as bodies
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, decode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.consistency import bitmap
from eigenveil.federation.secagg.keys import Context, SiteKeys
from eigenveil.federation.secagg.masks import threshold
from eigenveil.privacy.accountant import Loss
from noise_tools import silence
from statistics_tools import FALSE_ALARM, chi_square


def body_of(request):
    return decode(request, sender=AGGREGATOR, limit=LIMIT).body


def keys_of(seed):
    """Keys that nobody else has."""
    some = [f"{256 * seed + i:064x}" for i in range(bodies.MOST_ROUNDS + 1)]
    return {"rounds": some[:-1], "channel": some[-1], "signing": "ab" * 32}


# -- keys


def wrong_neighbours(study, right, own):
    """Lists of neighbours that a site must not take, by what is wrong with them."""
    one, *others = right
    twice = dict.fromkeys(right, right[one])
    stranger = {**{n: right[n] for n in others}, "s9": keys_of(9)}
    itself = {**{n: right[n] for n in others}, "s0": keys_of(9)}
    mine = {**right, one: own}
    part = {**right, one: {**right[one], "channel": right[others[0]]["channel"]}}
    turned = {**right, one: {**right[one], "rounds": right[one]["rounds"][:1] * bodies.MOST_ROUNDS}}
    return {
        "too few": {n: right[n] for n in others},
        "none": {},
        "a stranger": stranger,
        "itself": itself,
        "a key of its own": mine,
        "one key for all": twice,
        "one channel for two": part,
        "one key for all rounds": turned,
        "more than take part": {**right, "s3": keys_of(9)} if "s3" not in right else twice,
    }


@pytest.mark.parametrize("kind", ["modular", "pairwise"])
@pytest.mark.parametrize("dropouts", [0, 1])
def test_neighbours_that_do_not_hide_a_site_are_refused(kind, dropouts, tmp_path):
    """Two with the same key, one on either side, would cancel; too few would hide too little."""
    if kind == "pairwise" and dropouts:
        return
    consortium = Consortium(study_of(4, masks=kind, dropouts=dropouts), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    own = query(party, "s0", request_of(consortium.study, "s", "join", bodies.JoinRequest()))
    right = body_of(request)["neighbours"]
    for what, wrong in wrong_neighbours(consortium.study, right, own.body["keys"]).items():
        code = refusal(party, "s0", changed(request, body={"neighbours": wrong}))
        assert code in ("other-neighbours", "bad-key"), what
    assert query(party, "s0", request).step == "keys"


@pytest.mark.parametrize(
    ("dropouts", "lost", "code"),
    [
        (0, ["s3"], "too-few-sites"),
        (1, ["s2", "s3"], "too-few-sites"),
        (1, ["s3", "s3"], "unknown-site"),
        (1, ["s0"], "unknown-site"),
        (1, ["s9"], "unknown-site"),
        (1, ["s3"], "other-neighbours"),  # it is named as one
        (1, "s3", "malformed"),
        (1, 1, "malformed"),
    ],
)
def test_whoever_is_lost_is_a_site_and_one_of_few(dropouts, lost, code, tmp_path):
    consortium = Consortium(study_of(4, dropouts=dropouts), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    request = changed(call.payloads["s0"], body={"lost": lost})
    assert refusal(party, "s0", request) == code


def test_an_aggregator_cannot_split_the_sites_into_groups(tmp_path):
    """On a ring, who the neighbours are follows from the study; a clique of some is refused.

    Else the sums of each group would come out, with the noise of that group alone.
    """
    consortium = Consortium(study_of(9, neighbours=2), tmp_path)
    join = request_of(consortium.study, "s", "join", bodies.JoinRequest())
    parties = consortium.parties
    keys = {name: query(parties[name], name, join).body["keys"] for name in parties}
    for group, near in ((["s0", "s1", "s2"], {"s1"}), (["s0", "s3", "s6"], set())):
        for name in {*group} - near:  # s1 lies between the two others
            others = {other: keys[other] for other in group if other != name}
            body = bodies.KeysRequest(neighbours=others)
            request = request_of(consortium.study, "s", "keys", body)
            assert refusal(parties[name], name, request) == "other-neighbours"


@pytest.mark.parametrize("kind", ["helper", "none"])
def test_where_no_pairs_share_masks_neighbours_are_refused(kind, tmp_path):
    fields = {"protocol": "local"} if kind == "none" else {"masks": kind}
    consortium = Consortium(study_of(3, **fields), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    named = changed(call.payloads["s0"], body={"neighbours": {"s1": keys_of(1)}})
    assert refusal(party, "s0", named) == "other-neighbours"


def test_keys_are_agreed_on_once(tmp_path):
    """A second list, of other neighbours, would seal other shares with the same key."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    first = party.handle(request)
    assert party.handle(request) == first
    neighbours = body_of(request)["neighbours"]
    fewer = {name: neighbours[name] for name in ("s1", "s2")}
    other = changed(request, body={"neighbours": fewer, "lost": ["s3"]})
    assert refusal(party, "s0", other) == "step-differs"
    for step in ("keys 2", "keys ", "keys\t"):
        assert refusal(party, "s0", changed(other, step=step)) == "unknown-step"
    consortium.restart("s0")
    assert refusal(consortium.parties["s0"], "s0", other) == "step-differs"


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("kind", ["modular", "pairwise"])
def test_without_neighbours_no_round_is_answered(dropouts, kind, tmp_path):
    """Neither where shares are never needed, nor where they come before the keys."""
    if kind == "pairwise" and dropouts:
        return
    consortium = Consortium(study_of(4, masks=kind, dropouts=dropouts), tmp_path)
    call, party = at(consortium, "round 1", session="before"), consortium.parties["s0"]
    request = changed(call.payloads["s0"], session="s")
    join = request_of(consortium.study, "s", "join", bodies.JoinRequest())
    assert query(party, "s0", join).step == "join"
    assert refusal(party, "s0", request) == "out-of-order"
    body = bodies.SharesRequest(members="f0", sealed={})
    shares = request_of(consortium.study, "s", "shares", body)
    assert refusal(party, "s0", shares) == "out-of-order"
    assert refusal(party, "s0", request) == "out-of-order"
    assert consortium.check_books("s0").spent == Loss()


# -- shares


def test_shares_that_are_withheld_count_as_lost(tmp_path):
    """Whoever's shares a site lacks, it makes no mask with: at most as many as may be lost."""
    consortium = Consortium(study_of(5, dropouts=1), tmp_path)
    call, party = at(consortium, "shares", "s"), consortium.parties["s0"]
    request, names = call.payloads["s0"], list(consortium.rows)
    sealed = body_of(request)["sealed"]

    def reported(kept, members):
        body = {
            "sealed": {name: sealed[name] for name in kept},
            "members": bitmap(names, members),
        }
        return changed(request, body=body)

    for kept in (["s1", "s2"], ["s1"], []):
        assert refusal(party, "s0", reported(kept, ["s0", *kept])) == "too-few-sites"
        # nor are they withheld while it is said that all have shared
        assert refusal(party, "s0", reported(kept, names)) == "other-neighbours"
    assert refusal(party, "s0", reported(["s1", "s2", "s3", "s4"], names[:4])) == "other-neighbours"
    assert refusal(party, "s0", reported(["s1", "s2", "s3", "s4"], names[1:])) == "bad-unmask"
    less = reported(["s1", "s2", "s3"], names[:4])
    assert query(party, "s0", less).step == "shares"
    # that was the one: no other can be told to be lost later

    def fate(name, step, request, party):
        return party.handle(less) if (name, step) == ("s0", "shares") else ...

    wire = Wire(consortium.parties, fate)
    call = until(Aggregator(settle(consortium.study), session="s").run(), wire, "survivors 1")
    request = call.payloads["s0"]
    for there in (["s0", "s1", "s2"], ["s0", "s2", "s3"]):
        question = changed(request, body={"survivors": bitmap(names, there)})
        assert refusal(party, "s0", question) == "too-few-sites"
    # and of the one whose shares it lacks it can say nothing
    assert refusal(party, "s0", request) == "bad-unmask"


@pytest.mark.parametrize(
    "tamper",
    [
        lambda sealed: {**sealed, "s1": sealed["s2"]},
        lambda sealed: {**sealed, "s1": sealed["s1"][:-2] + "00"},
        lambda sealed: {**sealed, "s1": ""},
        lambda sealed: {**sealed, "s9": sealed["s1"]},
        lambda sealed: {**sealed, "s0": sealed["s1"]},
    ],
)
def test_shares_that_were_changed_on_the_way_are_refused(tamper, tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    call, party = at(consortium, "shares", "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    tampered = changed(request, body={"sealed": tamper(body_of(request)["sealed"])})
    assert refusal(party, "s0", tampered) in ("bad-seal", "other-neighbours")
    assert query(party, "s0", request).step == "shares"


def test_shares_that_are_too_short_are_refused(tmp_path):
    """Sealed as they should be, by a neighbour with other software."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    seal = SiteKeys.seal

    def short(self, text, *, to, label):
        return seal(
            self, text[:-1] if label.startswith("shares of s1") else text, to=to, label=label
        )

    with mock.patch.object(SiteKeys, "seal", short):
        call = at(consortium, "shares", "s")
    assert refusal(consortium.parties["s0"], "s0", call.payloads["s0"]) == "malformed"


@pytest.mark.parametrize("holders", range(1, 40))
def test_two_stories_never_give_both_secrets(holders):
    """Colluding holders answer both ways, the others one way: too few for one of the two."""
    for collusion in range(holders):
        needed = threshold(holders, collusion)
        honest = holders - collusion
        for told_one in range(honest + 1):
            have = (collusion + told_one, collusion + honest - told_one)
            assert min(have) < needed
        # and no smaller number would do
        assert min(collusion + honest // 2, collusion + honest - honest // 2) + 1 >= needed


def test_what_colluding_sites_hold_alone_opens_nothing():
    for holders, collusion in itertools.product(range(2, 40), range(1, 20)):
        if collusion < holders:
            assert threshold(holders, collusion) > collusion


# -- rounds


def sums_of(consortium, payloads):
    """What the sites' answers add up to."""
    answers = [query(consortium.parties[name], name, payloads[name]) for name in payloads]
    return np.sum([answer.arrays["sum 0"] for answer in answers], axis=0, dtype=np.uint64)


@pytest.mark.parametrize("kind", ["modular", "pairwise"])
@pytest.mark.parametrize("field", ["description", "scale"])
def test_masks_of_sites_that_were_asked_different_things_do_not_cancel(kind, field, tmp_path):
    """Else one site's sum could be had under lesser noise of the others, or on a coarser grid.

    False alarm: 2**-30 an entry at most.
    """
    consortium = Consortium(study_of(4, masks=kind, row_bound=None), tmp_path, times=3.0)
    with silence():
        sums = []
        for session in ("s", "t", "u"):  # the centre, of rows shortened where their norms say it
            payloads = dict(at(consortium, "round 2", session).payloads)
            if session == "u":
                (first,) = body_of(payloads["s0"])["queries"]
                longer = {"bound": math.nextafter(first["description"]["bound"], math.inf)}
                other = {
                    "description": first["description"] | longer,
                    "scale": math.nextafter(first["scale"], math.inf),
                }
                changes = first | {field: other[field]}
                payloads["s0"] = changed(payloads["s0"], body={"queries": [changes]})
            sums.append(sums_of(consortium, payloads))
    assert np.array_equal(sums[0], sums[1])
    assert not np.any(sums[0] == sums[2])


def test_the_helpers_mask_is_for_one_question(tmp_path):
    consortium = Consortium(study_of(3, masks="helper"), tmp_path)
    call, party = at(consortium, "round 1", "s"), consortium.parties["s0"]
    (first,) = body_of(call.payloads["s0"])["queries"]
    scale = math.nextafter(first["scale"], math.inf)
    other = changed(call.payloads["s0"], body={"queries": [first | {"scale": scale}]})
    assert refusal(party, "s0", other) == "bad-seal"
    assert query(party, "s0", call.payloads["s0"]).step == "round 1"


def test_the_helper_gives_no_masks_to_a_changed_key(tmp_path):
    """Under a key of the aggregator's own it could read a mask that a site will use."""
    consortium = Consortium(study_of(3, masks="helper"), tmp_path)
    call, helper = at(consortium, "masks 1", "s"), consortium.parties[HELPER]
    helper.handle(call.payloads[HELPER])
    channels = body_of(call.payloads[HELPER])["channels"]
    mine = SiteKeys(bytes(32), Context("a", "b")).channel_public_key().hex()
    other = changed(call.payloads[HELPER], body={"channels": {**channels, "s1": mine}})
    assert refusal(helper, HELPER, other) == "other-round"


def test_one_site_asked_alone_shows_nothing(tmp_path):
    """Nobody else is asked: what it sent cannot be told from chance, and nobody helps."""
    consortium = Consortium(study_of(4, dropouts=1, features=8, row_bound=None), tmp_path)
    call, party = at(consortium, "round 1", "s"), consortium.parties["s0"]
    with silence():
        words = query(party, "s0", call.payloads["s0"]).arrays["sum 0"]
    counts = np.bincount(words.view(np.uint8) // 16, minlength=16)
    assert chi_square(counts, [1 / 16] * 16) > FALSE_ALARM
    question = bodies.SurvivorsRequest(round_number=1, survivors="f0")
    for name in ("s1", "s2", "s3"):  # they did not answer the round themselves
        request = request_of(consortium.study, "s", "survivors 1", question)
        assert refusal(consortium.parties[name], name, request) == "bad-unmask"


def test_unmasking_is_for_as_many_as_the_noise_was_made_for(tmp_path):
    consortium = Consortium(study_of(5, dropouts=2), tmp_path)
    call, party = at(consortium, "survivors 1", "s"), consortium.parties["s0"]
    for count in (1, 2):
        body = {"survivors": bitmap(range(5), range(count))}
        assert refusal(party, "s0", changed(call.payloads["s0"], body=body)) == "too-few-sites"


def test_a_site_pays_for_what_it_answers_whoever_asks(tmp_path):
    """Session after session: together never more than the budget."""
    consortium = Consortium(study_of(3), tmp_path)
    budget = consortium.check_books("s0").budget.epsilon
    refused = 0
    for number in range(6):
        try:
            call = at(consortium, "round 1", f"s{number}")
        except ProtocolError:
            refused += 1
            continue
        assert query(consortium.parties["s0"], "s0", call.payloads["s0"]).step == "round 1"
        standing = consortium.check_books("s0")
        assert standing.spent_epsilon <= budget
    assert refused
    assert Loss.total([standing.spent, standing.reserved]).epsilon(DELTA) <= budget
