"""An aggregator that picks which of a study's releases it asks for, when and how exactly."""

import random
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

import test_tensor_roles as tensors
from roles_tools import LIMIT, Consortium, Wire, changed, query, refusal, run_study, study_of

from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode
from eigenveil.federation.protocol.terms import settle

SESSION = "s"
STUDIES = {
    "pca": lambda **more: study_of(3, row_bound=None, **more),
    "bounded": lambda **more: study_of(3, **more),
    "sketch": lambda **more: study_of(3, protocol="sketch", features=12, **more),
    "pure": lambda **more: study_of(3, row_bound=None, delta=0.0, **more),
    "mixture": lambda **more: tensors.study_of("gaussian-mixture", **more),
    "topics": lambda **more: tensors.study_of("topic-model", **more),
}


def sites_of(which, folder, **more):
    study = STUDIES[which](**more)
    rows = {} if study.task == "pca" else tensors.rows_of(study)
    return Consortium(study, folder, rows=rows)


def asks_of(request):
    return decode(request, sender=AGGREGATOR, limit=LIMIT).body["queries"]


def as_round(request, round_number):
    """A round's question under another number."""
    return changed(request, step=f"round {round_number}", body={"round_number": round_number})


def lied_to(which, folder, lie):
    """A study in which s0 is first told lies, round by round: they are refused and cost nothing.

    ``lie(turn, requests)`` makes false questions of all that are known up to the round, its own
    the last. Each has a code that it is refused with. In the end the study is as it should be.
    """
    consortium, known, reported = sites_of(which, folder), {}, []

    def fate(name, step, request, party):
        if name == "s0" and step.startswith("round "):
            round_number = int(step.removeprefix("round "))
            known.setdefault(round_number, request)
            before = consortium.charged("s0", SESSION)
            for false, code in lie(round_number, known):
                reported.append(refusal(party, "s0", false))
                assert reported[-1] in (code if isinstance(code, tuple) else (code,))
            assert consortium.charged("s0", SESSION) == before
        return ...

    finished = run_study(consortium, fate=fate, session=SESSION)
    plan = consortium.study.plan(consortium.study.width)
    names = [record.name for record in finished.outcome.records]
    assert names == [each.name for each in plan.schedule]
    assert consortium.charged("s0", SESSION) == list(finished.outcome.records)
    return reported


@cache
def honest(which):
    """What an honest aggregator asks in each round of such a study."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        finished = run_study(sites_of(which, Path(folder)), session=SESSION)
    carried = finished.wire.carried
    return {
        int(step.split()[1]): request
        for name, step, request, _ in carried
        if name == "s0" and step.startswith("round ")
    }


@pytest.mark.parametrize("which", STUDIES)
def test_no_round_is_left_out_or_put_before_another(which, tmp_path):
    """Every later round, under its own number and under that of the round that is due."""
    rounds = honest(which)

    def lie(round_number, known):
        for other, request in rounds.items():
            if other > round_number:
                yield request, "other-round"
                yield as_round(request, round_number), "not-in-plan"
        yield (
            as_round(known[round_number], len(rounds) + 1),
            "other-round" if len(rounds) < 8 else "malformed",
        )

    assert len(lied_to(which, tmp_path, lie)) == len(rounds) ** 2


@pytest.mark.parametrize("which", STUDIES)
def test_no_release_is_made_twice(which, tmp_path):
    """An earlier round's question, as it was or renumbered, as the next round and as this one."""

    def lie(round_number, known):
        for earlier in range(1, round_number):
            yield as_round(known[earlier], round_number), "not-in-plan"
        for earlier in range(
            1, round_number - 1
        ):  # the last one may be asked again: the same bytes
            yield known[earlier], "already-settled"

    reported = lied_to(which, tmp_path, lie)
    assert reported.count("not-in-plan") >= 1


@pytest.mark.parametrize("which", STUDIES)
def test_no_release_has_more_or_less_noise_than_planned(which, tmp_path):
    """Also where the whole reservation would cover it: a hundred thousandth less is too little."""

    def lie(round_number, known):
        queries = asks_of(known[round_number])
        for place, each in enumerate(queries):
            for factor in (0.5, 0.99999, 1.00001, 1.9):
                false = [*queries]
                false[place] = each | {"scale": each["scale"] * factor}
                # beyond a power of two its grid may be wrong as well
                yield (
                    changed(known[round_number], body={"queries": false}),
                    ("not-in-plan", "bad-query"),
                )

    reported = lied_to(which, tmp_path, lie)
    assert reported.count("not-in-plan") >= 2 * len(honest(which))


@pytest.mark.parametrize("which", ["pca", "bounded", "sketch"])
def test_what_belongs_into_a_round_is_asked_together_and_in_order(which, tmp_path):
    """The mean that is left, beside the moment: not without it, not before it, not twice."""

    def lie(round_number, known):
        queries = asks_of(known[round_number])
        if len(queries) == 1:
            return
        for false in (
            queries[:1],
            queries[1:],
            queries[::-1],
            queries[:1] * len(queries),
            [*queries, queries[-1]],
        ):
            if len(false) <= 3:
                yield changed(known[round_number], body={"queries": false}), "not-in-plan"
        renamed = [
            first | {"name": second["name"]}
            for first, second in zip(queries, queries[1:] + queries[:1], strict=True)
        ]
        yield changed(known[round_number], body={"queries": renamed}), "not-in-plan"

    assert lied_to(which, tmp_path, lie)


@pytest.mark.parametrize("which", STUDIES)
def test_whatever_is_asked_only_the_schedule_is_charged(which, tmp_path):
    """A hundred questions at random, of all rounds under all numbers: a prefix of the schedule."""
    rounds = honest(which)
    consortium = sites_of(which, tmp_path)
    call_keys = Aggregator(settle(consortium.study), session=SESSION).run()
    wire = Wire(consortium.parties)
    call = next(call_keys)
    while not call.method.startswith("round"):
        call = call_keys.send(wire.call(call.method, call.payloads, call.timeout))
    party, chance = consortium.parties["s0"], random.Random()
    answered = 0
    for _ in range(100):
        of, round_number = chance.choice([*rounds]), chance.choice([*rounds])
        answer = query(party, "s0", as_round(rounds[of], round_number))
        if answer.step != REFUSED:
            assert of == round_number in (answered, answered + 1)
            answered = round_number
    plan = consortium.study.plan(consortium.study.width)
    planned = [each.name for group in plan.rounds[:answered] for each in group]
    assert [record.name for record in consortium.charged("s0", SESSION)] == planned


def test_a_site_that_missed_a_round_is_asked_for_it_before_the_next(tmp_path):
    """So a lost site can come back, and what it answers late is in no sum."""
    consortium = Consortium(study_of(4, row_bound=None, dropouts=1), tmp_path)

    def fate(name, step, request, party):
        return None if (name, step) == ("s2", "round 2") and not late else ...

    late = []

    def reported(name, step, request, party):
        answer = fate(name, step, request, party)
        if (name, step) == ("s0", "unmask 2"):
            late.append(True)
        return answer

    finished = run_study(consortium, fate=reported, session=SESSION)
    order = [step for name, step, _, _ in finished.wire.carried if name == "s2" and "round" in step]
    assert order == [f"round {round_number}" for round_number in range(1, len(finished.rounds) + 1)]
    after = [name for name, step, _, _ in finished.wire.carried if step == "round 2"]
    assert after[-1] == "s2"
    assert finished.outcome.taking_part == 3
    for name in consortium.ledgers:
        assert consortium.charged(name, SESSION) == list(finished.outcome.records)


def test_a_site_that_stays_away_is_asked_nothing_new(tmp_path):
    consortium = Consortium(study_of(4, row_bound=None, dropouts=1), tmp_path)

    def fate(name, step, request, party):
        away = name == "s2" and step.startswith("round") and step != "round 1"
        asked.append(step) if away else None
        return None if away else ...

    asked = []
    finished = run_study(consortium, fate=fate, session=SESSION)
    assert set(asked) == {"round 2"}
    assert len(consortium.charged("s2", SESSION)) == 1
    assert set(finished.outcome.missing) == {"s2"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"center": False},
        {"center": [0.5, -1.0, 2.0]},
        {"center": [0.5, -1.0, 2.0], "row_bound": None},
    ],
    ids=str,
)
def test_what_the_study_itself_says_is_not_asked_otherwise(fields, tmp_path):
    """Bounds and centres that are public; those that releases give are the aggregator's word."""
    STUDIES["public"] = lambda: study_of(3, **({"budget_split": None} | fields))

    def lie(round_number, known):
        for place, each in enumerate(asks_of(known[round_number])):
            said = each["description"]
            for changes in (
                {"bound": said["bound"] * 0.5 + 1.0},
                {"centered": not said["centered"]},
            ):
                queries = asks_of(known[round_number])
                queries[place] = each | {"description": said | changes}
                moved = {f"center {place}": np.ones(3)}
                yield (
                    changed(known[round_number], body={"queries": queries}, arrays=moved),
                    ("not-in-plan",),
                )

    def lie_about_what_is_public(round_number, known):
        private = fields.get("center", True) is True
        found = [*lie(round_number, known)]
        if private:  # the first round of the centre; later ones are about what it released
            found = [each for each in found if round_number == 1]
        elif "row_bound" in fields:  # bounds are released
            found = found[1::2]
        return found

    assert lied_to("public", tmp_path, lie_about_what_is_public)
