"""Sites that are lost, late or asked twice, at every step: the sum is that of those who arrived."""

import itertools

import numpy as np
import pytest
from roles_tools import (
    LIMIT,
    Consortium,
    Wire,
    carry,
    changed,
    exact,
    lost_at,
    query,
    refusal,
    rows_of,
    run_study,
    study_of,
    sums_seen,
    until,
)

from eigenveil.errors import ProtocolError
from eigenveil.federation.masks import MODULAR
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.consistency import bitmap, threshold
from eigenveil.federation.secagg.keys import Context, join_secret, self_key
from eigenveil.models.schedule import SITE_MEANS
from noise_tools import silence

ROUNDS = ("round 1", "round 2")
STEPS = (
    *("join", "keys", "shares"),
    *("round 1", "survivors 1", "unmask 1"),
    *("round 2", "survivors 2", "unmask 2"),
    "end",
)
LOST = "s1"


def gone(site, step):
    """The site cannot be reached from this step on."""

    def fate(name, now, request, party):
        return None if name == site and STEPS.index(now) >= STEPS.index(step) else ...

    return fate


def reply_lost(site, step):
    """The site answers this step, however often it is asked, but nobody hears it."""

    def fate(name, now, request, party):
        if name == site and now == step:
            party.handle(request)
            return None
        return ...

    return fate


def arrived_in(finished, step):
    """Sites whose answer the aggregator heard in time, before it went on."""
    carried = finished.wire.carried
    steps = [now for _, now, _, _ in carried]
    first = steps.index(step)
    last = next((i for i in range(first, len(steps)) if steps[i] != step), len(steps))
    heard = dict.fromkeys(name for name, _, _, _ in carried[first:last])
    return [name for name in heard if (name, step) not in finished.wire.refusals()]


def check(consortium, finished):
    """Each round's sum is that of those who arrived, and books agree with answers."""
    for round_number, (queries, sums) in enumerate(finished.rounds, start=1):
        names = arrived_in(finished, f"round {round_number}")
        assert len(names) >= consortium.study.fewest_sites
        tables = {name: consortium.rows[name] for name in names}
        for each, found in zip(queries, sums, strict=True):
            assert np.array_equal(found, exact(consortium.study, each, tables))
    for name in consortium.ledgers:
        records = consortium.charged(name, finished.session)
        assert records == [r for r in finished.outcome.records if r in records]
        consortium.check_books(name)


# Releases of so many rounds: the centre; then the second moment, and what is left of the mean.
CHARGED = (0, 1, 3)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("happens", [gone, reply_lost])
def test_one_site_may_fail_at_any_step(step, happens, tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    with silence():
        finished = run_study(consortium, fate=happens(LOST, step))
    check(consortium, finished)
    assert set(finished.outcome.missing) == ({LOST} if step != "end" else set())
    # a site that signs, or helps to unmask, and is not heard still sends its sum
    counted = step in ("join", "keys", "shares", *ROUNDS) or (
        happens is gone and step in STEPS[2:6]
    )
    assert finished.outcome.taking_part == (3 if counted else 4)
    for name in set(consortium.rows) - {LOST}:
        assert len(consortium.charged(name, finished.session)) == CHARGED[2]
        assert consortium.account(name, finished.session).outcome == "finished"


def test_every_first_answer_may_be_lost(tmp_path):
    """Asked again, a site says the same, and nobody is missing."""
    consortium, said = Consortium(study_of(4), tmp_path), {}

    def fate(name, now, request, party):
        again = (name, now) in said
        answer = said.setdefault((name, now), party.handle(request))
        assert answer == party.handle(request)
        return answer if again else None

    with silence():
        finished = run_study(consortium, fate=fate)
    check(consortium, finished)
    assert not finished.outcome.missing
    assert finished.outcome.taking_part == 4


def test_a_site_may_be_lost_for_one_round_and_another_for_the_next(tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    with silence():
        finished = run_study(consortium, fate=lost_at(("s0", "round 1"), ("s3", "round 2")))
    check(consortium, finished)
    assert arrived_in(finished, "round 1") == ["s1", "s2", "s3"]
    assert arrived_in(finished, "round 2") == ["s0", "s1", "s2"]


def test_a_site_that_is_lost_when_means_are_released_keeps_the_common_centre(tmp_path):
    made = study_of(4, dropouts=1, within_sites=True)
    means = next(i for i, one in enumerate(made.plan(3).rounds, 1) if one[0].name == SITE_MEANS)
    apart = zip(rows_of(made, rows=400).items(), (5.0, -5.0, 5.0, -5.0), strict=True)
    rows = {name: each + shift for (name, each), shift in apart}
    consortium = Consortium(made, tmp_path, rows=rows)
    with silence():
        finished = run_study(consortium, fate=lost_at(("s2", f"round {means}")))
    assert arrived_in(finished, f"round {means}") == ["s0", "s1", "s3"]
    found = finished.outcome.factors
    apart = np.linalg.norm(found.site_means - found.mean, axis=1)
    assert apart[2] == 0 < np.delete(apart, 2).min()


@pytest.mark.parametrize("neighbours", [None, 6])
def test_two_sites_may_be_lost_in_different_ways(neighbours, tmp_path):
    """Also on a ring, where most sites do not share masks with either."""
    study = study_of(9, dropouts=2, collusion=1, neighbours=neighbours)
    fault_plan = [gone("s0", "keys"), reply_lost("s4", "round 1")]

    def fate(*call):
        found = [each(*call) for each in fault_plan]
        return None if None in found else ...

    consortium = Consortium(study, tmp_path)
    with silence():
        finished = run_study(consortium, fate=fate)
    check(consortium, finished)
    assert finished.outcome.taking_part == 7


@pytest.mark.parametrize(
    ("fields", "lost", "step"),
    [
        *(({"dropouts": 1}, ("s1", "s2"), step) for step in STEPS[:4]),
        ({"dropouts": 1}, ("s1", "s2"), "round 2"),
        ({}, ("s3",), "join"),
        ({}, ("s3",), "keys"),
        ({}, ("s3",), "round 2"),
        ({"masks": "pairwise"}, ("s0",), "round 1"),
        ({"masks": "helper"}, ("s0",), "round 1"),
    ],
    ids=str,
)
def test_when_more_are_lost_than_allowed_the_study_ends_and_says_who(fields, lost, step, tmp_path):
    consortium = Consortium(study_of(4, **fields), tmp_path)

    def fate(name, now, request, party):
        return None if name in lost and now == step else ...

    wire, aggregator = Wire(consortium.parties, fate), Aggregator(settle(consortium.study))
    with sums_seen() as rounds, pytest.raises(ProtocolError) as caught:
        carry(aggregator.run(), wire)
    assert caught.value.code == "too-few-sites"
    assert all(f"site {name}: it cannot be reached" in caught.value.message for name in lost)
    round_number = ROUNDS.index(step) if step in ROUNDS else 0
    assert len(rounds) == round_number  # nothing of the round that failed was unmasked
    for name in consortium.ledgers:
        asked = step in ROUNDS and name not in lost
        assert len(consortium.charged(name, aggregator.session)) == CHARGED[round_number + asked]
        account = consortium.account(name, aggregator.session)
        if name not in lost or step != "join":
            assert account.outcome == "failed: too-few-sites"
        consortium.check_books(name)


def test_too_few_that_sign_who_took_part_end_the_study(tmp_path):
    """Nothing of the round is unmasked, whatever else is heard."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    wire = Wire(consortium.parties, lambda n, s, r, p: None if (n, s) in gone_two else ...)
    gone_two = {("s1", "survivors 1"), ("s2", "survivors 1")}
    with sums_seen() as rounds, pytest.raises(ProtocolError, match="2 of the 3 sites") as caught:
        carry(Aggregator(settle(consortium.study)).run(), wire)
    assert caught.value.code == "too-few-sites"
    assert not rounds
    assert not any(step.startswith("unmask") for _, step, _, _ in wire.carried)


def test_too_few_that_help_to_unmask_end_the_study(tmp_path):
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)

    def fate(name, now, request, party):
        return None if name != "s0" and now == "unmask 1" else ...

    with pytest.raises(ProtocolError, match="can help to take off") as caught:
        run_study(consortium, fate=fate)
    assert caught.value.code == "too-few-for-mask"
    for name in consortium.ledgers:
        assert not consortium.ledgers[name].sessions()[0].is_open


# -- what holders reveal


def unmasked(folder, *, late="s1", step="round 1", **fields):
    """A study in which one site's answer comes too late; the late answer, and what was said."""
    consortium = Consortium(study_of(**({"sites": 4, "dropouts": 1} | fields)), folder)
    answers = []

    def fate(name, now, request, party):
        if name == late and now == step and len(answers) < TRIES:
            answers.append(party.handle(request))
            return None
        return ...

    with silence():
        finished = run_study(consortium, fate=fate)
    return consortium, finished, decode(answers[-1], sender=late, limit=LIMIT)


def shares_of(finished, site, round_number):
    """By kind, shares of a site's secrets that were given in a round, by holder."""
    reported = finished.wire.answers(f"unmask {round_number}")
    return {
        kind: {holder: m.body[kind][site] for holder, m in reported.items() if site in m.body[kind]}
        for kind in ("own", "repair")
    }


def test_never_both_secrets_of_a_site_in_one_round(tmp_path):
    _, finished, _ = unmasked(tmp_path)
    for site, round_number in itertools.product(("s0", "s1", "s2", "s3"), (1, 2)):
        given = shares_of(finished, site, round_number)
        lost = site == "s1" and round_number == 1
        assert bool(given["repair"]) == lost
        assert bool(given["own"]) != lost


def test_a_late_message_stays_hidden_for_good(tmp_path):
    """All that anybody ever says about its round are shares of its pair secret."""
    consortium, finished, late = unmasked(tmp_path)
    study, names = consortium.study, list(consortium.rows)
    given = shares_of(finished, "s1", 1)
    assert set(given["repair"]) == {"s0", "s2", "s3"}
    holders = {name: place for place, name in enumerate([*(n for n in names if n != "s1"), "s1"])}
    needed = threshold(4, study.collusion)
    pair = join_secret(
        {holders[h]: bytes.fromhex(s) for h, s in given["repair"].items()}, threshold=needed
    )
    queries, _ = finished.rounds[0]
    sums = exact(study, queries[0], {"s1": consortium.rows["s1"]})
    terms = settle(study)
    parts = [terms.masks.part(queries[0].accumulator.layout, queries[0].record)]
    # without its pair masks it would still have its own, and of the two secrets that one was never
    # given
    own = late.arrays["sum 0"] - sums
    wrong = self_key(pair, Context(study.hash, finished.session), 1)
    assert not np.any(MODULAR.expanded([(wrong, True)], parts) == own)
    # asked whatever, whenever, holders sign nothing else
    request = next(r for n, s, r, _ in finished.wire.carried if (n, s) == ("s0", "survivors 1"))
    for name in ("s0", "s2", "s3"):
        for others in (names, {name, "s1"}, {"s0", "s1", "s2"}, {"s1", "s2", "s3"}):
            body = {"survivors": bitmap(names, others)}
            refusal(consortium.parties[name], name, changed(request, body=body))


@pytest.mark.parametrize("restarts", [False, True])
def test_one_set_of_survivors_is_signed_a_round(restarts, tmp_path):
    """Before the next round: the same question has the same answer, another has none."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    wire = Wire(consortium.parties, lambda n, s, r, p: None if (n, s) == ("s1", "round 1") else ...)
    call = until(Aggregator(settle(consortium.study)).run(), wire, "survivors 1")
    party = consortium.parties["s0"]
    first = party.handle(call.payloads["s0"])
    if restarts:
        consortium.restart("s0")
        party = consortium.parties["s0"]
    assert party.handle(call.payloads["s0"]) == first
    for others in ("1111", "1101", "1110", "1000", "0111"):
        other = changed(call.payloads["s0"], body={"survivors": bits(others)})
        assert refusal(party, "s0", other) == "step-differs"
    assert party.handle(call.payloads["s0"]) == first


def bits(text):
    """A bitmap, from ones and zeros."""
    return np.packbits([int(bit) for bit in text]).tobytes().hex()


def ready_for(step, folder, **fields):
    consortium = Consortium(study_of(**({"sites": 4, "dropouts": 1} | fields)), folder)
    call = until(Aggregator(settle(consortium.study)).run(), Wire(consortium.parties), step)
    return call.payloads["s0"], consortium.parties["s0"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"survivors": bits("0111")}, "bad-unmask"),  # without the site itself
        ({"survivors": bits("0000")}, "bad-unmask"),
        ({"survivors": bits("1100")}, "too-few-for-noise"),
        ({"survivors": bits("1000")}, "too-few-for-noise"),
        ({"survivors": bits("11111")}, "malformed"),  # a site that the study has not
        ({"survivors": bits("1111") + "00"}, "malformed"),
        ({"survivors": ""}, "malformed"),
        ({"survivors": "F0"}, "malformed"),
        ({"survivors": ["s0", "s1", "s2"]}, "malformed"),
        ({"round_number": 2}, "malformed"),
        ({"round_number": 9}, "malformed"),
    ],
    ids=str,
)
def test_sets_of_survivors_that_could_expose_a_site_are_not_signed(body, code, tmp_path):
    request, party = ready_for("survivors 1", tmp_path)
    assert refusal(party, "s0", changed(request, body=body)) == code
    # and the right question is still answered
    assert query(party, "s0", request).step == "survivors 1"


def test_nothing_is_revealed_without_enough_signatures_of_one_set(tmp_path):
    request, party = ready_for("unmask 1", tmp_path)
    right = decode(request, sender=AGGREGATOR, limit=LIMIT)
    signed = right.arrays["signatures"]
    assert right.body["signed"] == bits("1110")
    assert signed.shape == (3, 64)
    other = signed.copy()
    other[1, 5] ^= 1
    for arrays, body, code in (
        ({"signatures": signed[:2]}, {"signed": bits("1100")}, "too-few-signatures"),
        ({"signatures": signed[:0]}, {"signed": bits("0000")}, "too-few-signatures"),
        ({"signatures": signed[:2]}, {}, "malformed"),
        ({}, {"signed": bits("1101")}, "bad-signature-of-sites"),  # by another site
        ({"signatures": signed[[0, 0, 0]]}, {}, "bad-signature-of-sites"),
        ({"signatures": signed[[1, 0, 2]]}, {}, "bad-signature-of-sites"),
        ({"signatures": other}, {}, "bad-signature-of-sites"),
        ({}, {"signed": bits("11111")}, "malformed"),
        ({}, {"round_number": 2}, "malformed"),
    ):
        wrong = changed(request, body=body, arrays=arrays)
        assert refusal(party, "s0", wrong) == code
    assert set(query(party, "s0", request).body["own"]) == {"s0", "s1", "s2", "s3"}


def test_a_site_reveals_nothing_before_it_has_signed(tmp_path):
    """Even where all others have signed."""
    consortium = Consortium(study_of(5, dropouts=1), tmp_path)
    fate = lambda n, s, r, p: None if (n, s) == ("s0", "survivors 1") else ...  # noqa: E731
    call = until(
        Aggregator(settle(consortium.study)).run(), Wire(consortium.parties, fate), "unmask 1"
    )
    assert "s0" not in call.payloads
    assert refusal(consortium.parties["s0"], "s0", call.payloads["s1"]) == "out-of-order"


def test_a_lost_site_signs_for_nobody(tmp_path):
    """Its signature of a set that it is not in does not count."""
    consortium = Consortium(study_of(5, dropouts=1), tmp_path)
    wire = Wire(consortium.parties, lambda n, s, r, p: None if (n, s) == ("s1", "round 1") else ...)
    request = until(Aggregator(settle(consortium.study)).run(), wire, "unmask 1").payloads["s0"]
    assert refusal(
        consortium.parties["s0"], "s0", changed(request, body={"signed": bits("11100")})
    ) == ("bad-unmask")


@pytest.mark.parametrize("kind", ["survivors", "unmask"])
def test_only_the_last_round_that_was_answered_is_unmasked(kind, tmp_path):
    request, party = ready_for(f"{kind} 1", tmp_path)
    later = changed(request, body={"round_number": 2}, step=f"{kind} 2")
    assert refusal(party, "s0", later) == "bad-unmask"
    again = [changed(request, step=kind + end) for end in (" 01", " 1 ", "", " 2")]
    assert {refusal(party, "s0", each) for each in again} == {"malformed"}


@pytest.mark.parametrize("kind", ["survivors", "unmask"])
def test_an_older_round_is_not_unmasked_once_the_next_was_answered(kind, tmp_path):
    """A question that was late itself: the others helped without s0."""
    consortium, missed = Consortium(study_of(4, dropouts=1), tmp_path), {}

    def fate(name, now, request, party):
        if (name, now) == ("s0", f"{kind} 1"):
            missed[name] = request
            return None
        return ...

    until(Aggregator(settle(consortium.study)).run(), Wire(consortium.parties, fate), "survivors 2")
    assert refusal(consortium.parties["s0"], "s0", missed["s0"]) == "bad-unmask"


def test_sites_lost_before_count_among_those_that_may_be_lost(tmp_path):
    """Who was lost when keys were agreed on, and another lost now, are two."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    wire = Wire(consortium.parties, lambda n, s, r, p: None if (n, s) == ("s3", "keys") else ...)
    call = until(Aggregator(settle(consortium.study)).run(), wire, "survivors 1")
    request, party = call.payloads["s0"], consortium.parties["s0"]
    assert decode(request, sender=AGGREGATOR, limit=LIMIT).body["survivors"] == bits("1110")
    for story, code in (
        ("1100", "too-few-for-noise"),
        ("1101", "bad-unmask"),
        ("1111", "bad-unmask"),
    ):
        body = {"survivors": bits(story)}
        assert refusal(party, "s0", changed(request, body=body)) == code
    assert query(party, "s0", request).step == "survivors 1"


def test_another_site_may_be_lost_in_every_round(tmp_path):
    consortium = Consortium(study_of(4, dropouts=1, row_bound=None), tmp_path)
    turns = itertools.cycle(consortium.rows)
    lost = [(next(turns), f"round {round_number}") for round_number in range(1, 6)]
    with silence():
        finished = run_study(consortium, fate=lost_at(*lost))
    check(consortium, finished)
    assert len(finished.rounds) == 6
    assert finished.outcome.taking_part == 3
