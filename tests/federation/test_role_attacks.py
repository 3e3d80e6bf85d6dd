"""An aggregator that breaks the rules: what a site does not go along with.

With modular masks the guarantees hold against it too (docs/proofs/views.md, claim 8): tests/attacks
has the stories that it may tell of survivors. With Gaussian masks this is what comes for free.
"""

import itertools
import math

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
from eigenveil.federation.sealing import SealingKey
from eigenveil.federation.secagg.consistency import bitmap, threshold
from eigenveil.federation.secagg.keys import Context, SiteKeys
from eigenveil.privacy.accountant import Loss
from noise_tools import silence
from statistics_tools import FALSE_ALARM, chi_square


def body_of(request):
    return decode(request, sender=AGGREGATOR, limit=LIMIT).body


def keys_of(seed):
    """Keys that nobody else has."""
    return {"sealing": SealingKey(bytes([seed]) * 96).public.hex()}


# -- keys


def wrong_partners(right):
    """Lists of partners that a site must not take, by what is wrong with them."""
    one, *others = right
    bad = {"sealing": right[one]["sealing"][:-64] + "00" * 32}  # of small order
    return {
        "too few": {n: right[n] for n in others},
        "none": {},
        "a stranger": {**{n: right[n] for n in others}, "s9": keys_of(9)},
        "itself": {**{n: right[n] for n in others}, "s0": keys_of(9)},
        "no key": {**right, one: bad},
        "more than take part": {**right, "s9": keys_of(9)},
    }


@pytest.mark.parametrize("kind", ["modular", "pairwise"])
@pytest.mark.parametrize("dropouts", [0, 1])
def test_partners_that_do_not_hide_a_site_are_refused(kind, dropouts, tmp_path):
    if kind == "pairwise" and dropouts:
        return
    consortium = Consortium(study_of(4, masks=kind, dropouts=dropouts), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    right = body_of(request)["partners"]
    for what, wrong in wrong_partners(right).items():
        code = refusal(party, "s0", changed(request, body={"partners": wrong}))
        assert code in ("other-neighbours", "bad-public-key"), what
    assert query(party, "s0", request).step == "keys"


@pytest.mark.parametrize(
    ("dropouts", "lost", "code"),
    [
        (0, ["s3"], "too-few-for-noise"),
        (1, ["s2", "s3"], "too-few-for-noise"),
        (1, ["s3", "s3"], "lost-sites-wrong"),
        (1, ["s0"], "lost-sites-wrong"),
        (1, ["s9"], "lost-sites-wrong"),
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
            body = bodies.KeysRequest(partners=others)
            request = request_of(consortium.study, "s", "keys", body)
            assert refusal(parties[name], name, request) == "other-neighbours"


@pytest.mark.parametrize("kind", ["helper", "none"])
def test_where_no_pairs_share_masks_neighbours_are_refused(kind, tmp_path):
    fields = {"protocol": "local"} if kind == "none" else {"masks": kind}
    consortium = Consortium(study_of(3, **fields), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    named = changed(call.payloads["s0"], body={"partners": {"s1": keys_of(1)}})
    assert refusal(party, "s0", named) == "other-neighbours"


def test_keys_are_agreed_on_once(tmp_path):
    """A second list, of other neighbours, would seal other shares with the same key."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    call, party = at(consortium, "keys", "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    first = party.handle(request)
    assert party.handle(request) == first
    partners = body_of(request)["partners"]
    fewer = {name: partners[name] for name in ("s1", "s2")}
    other = changed(request, body={"partners": fewer, "lost": ["s3"]})
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
    body = bodies.SharesRequest(senders=())
    shares = request_of(consortium.study, "s", "shares", body)
    assert refusal(party, "s0", shares) == "out-of-order"
    assert refusal(party, "s0", request) == "out-of-order"
    assert consortium.check_books("s0").spent == Loss()


# -- shares


def test_letters_that_are_withheld_count_as_lost(tmp_path):
    """With whose letter a site lacks it makes no mask: at most as many as may be lost."""
    consortium = Consortium(study_of(5, dropouts=1), tmp_path)
    call, party = at(consortium, "shares", "s"), consortium.parties["s0"]
    request, names = call.payloads["s0"], list(consortium.rows)
    less = changed(
        request,
        body={"senders": ["s1", "s2", "s3"]},
        arrays={"letters": decode(request, sender=AGGREGATOR, limit=LIMIT).arrays["letters"][:3]},
    )
    assert query(party, "s0", less).step == "shares"

    def fate(name, step, request, party):
        return party.handle(less) if (name, step) == ("s0", "shares") else ...

    # its packet has three pairs, so that the aggregator does not take it; of those who remain
    wire = Wire(consortium.parties, fate)
    call = until(Aggregator(settle(consortium.study), session="s").run(), wire, "round 1")
    (round_1,) = {bytes(each) for each in call.payloads.values()}
    for members, code in (
        (names, "no-secret-agreed"),  # with s4 it has agreed on nothing
        (names[1:], "bad-unmask"),  # it is not among them
        (["s0", "s1", "s2"], "too-few-for-noise"),
        ([*names[:4], "s9"], None),
    ):
        body = {"members": bitmap([*names, "s9"], members)}
        found = refusal(party, "s0", changed(round_1, body=body))
        assert found == (code or "malformed")
    body = {"members": bitmap(names, names[:4])}
    assert query(party, "s0", changed(round_1, body=body)).step == "round 1"
    # that was the one: no other can be told to be lost later
    question = bodies.SurvivorsRequest(round_number=1, survivors=bitmap(names, names))
    request = request_of(consortium.study, "s", "survivors 1", question)
    assert refusal(party, "s0", request) == "bad-unmask"
    for there in (["s0", "s1", "s2"], ["s0", "s2", "s3"]):
        assert refusal(party, "s0", survivors_of(request, names, there)) == "too-few-for-noise"


def survivors_of(request, names, there):
    return changed(request, body={"survivors": bitmap(names, there)})


def test_who_can_be_lost_is_said_with_the_first_round_alone(tmp_path):
    for dropouts, step, members in (
        (1, "round 1", None),
        (1, "round 2", "f0"),
        (0, "round 1", "f0"),
    ):
        folder = tmp_path / f"{dropouts} {step}"
        folder.mkdir()
        consortium = Consortium(study_of(4, dropouts=dropouts), folder)
        call = at(consortium, step, "s")
        request = changed(call.payloads["s0"], body={"members": members})
        assert refusal(consortium.parties["s0"], "s0", request) == "losable-said-late"
        assert query(consortium.parties["s0"], "s0", call.payloads["s0"]).step == step


def another(letters):
    other = letters.copy()
    other[0] = letters[1]
    return other


def flipped(letters):
    other = letters.copy()
    other[0, -1] ^= 1
    return other


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize(
    ("tamper", "code"),
    [
        (another, "bad-seal"),
        (flipped, "bad-seal"),
        (lambda letters: letters[::-1], "bad-seal"),
        (lambda letters: letters[1:], "malformed"),
        (lambda letters: letters[:, 1:], "malformed"),
    ],
)
def test_letters_that_were_changed_on_the_way_are_refused(tamper, code, dropouts, tmp_path):
    """The sender of the first that does not open is named."""
    consortium = Consortium(study_of(4, dropouts=dropouts), tmp_path)
    step = "shares" if dropouts else "round 1"
    call, party = at(consortium, step, "s"), consortium.parties["s0"]
    request = call.payloads["s0"]
    letters = decode(request, sender=AGGREGATOR, limit=LIMIT).arrays["letters"]
    tampered = changed(request, arrays={"letters": tamper(letters)})
    assert refusal(party, "s0", tampered) == code
    if code == "bad-seal":
        assert party.last_error.message.startswith("s1: ")
    assert query(party, "s0", request).step == step


@pytest.mark.parametrize("senders", [["s9"], ["s0"], ["s1", "s1"]])
def test_letters_of_strangers_are_refused(senders, tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    call, party = at(consortium, "shares", "s"), consortium.parties["s0"]
    request = changed(call.payloads["s0"], body={"senders": senders})
    assert refusal(party, "s0", request) == "letters-of-strangers"


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


def test_the_helper_gives_no_masks_to_a_changed_key_or_letter(tmp_path):
    """Under a key of the aggregator's own it could read a mask that a site will use."""
    consortium = Consortium(study_of(3, masks="helper"), tmp_path)
    call, helper = at(consortium, "masks 1", "s"), consortium.parties[HELPER]
    helper.handle(call.payloads[HELPER])
    sites = body_of(call.payloads[HELPER])["sites"]
    letters = decode(call.payloads[HELPER], sender=AGGREGATOR, limit=LIMIT).arrays["letters"]
    mine = SealingKey(bytes(96)).public
    context = Context(consortium.study.hash, "s")
    to = SealingKey.generate().public  # not even the helper's
    forged = SiteKeys(bytes(32), context).letter(b"", key=to, names=("s1", HELPER))
    for body, arrays in (
        ({"sites": sites | {"s1": {"sealing": mine.hex(), "proof": None}}}, {}),
        ({}, {"letters": np.stack([letters[0], np.frombuffer(forged, np.uint8), letters[2]])}),
    ):
        other = changed(call.payloads[HELPER], body=body, arrays=arrays)
        assert refusal(helper, HELPER, other) == "masks-are-fixed"


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
        assert refusal(party, "s0", changed(call.payloads["s0"], body=body)) == "too-few-for-noise"


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
