"""What a site refuses: bad rows, foreign messages, and sums that were not agreed on.

Each time the owner finds the whole reason, the aggregator a code that says nothing about rows, and
nothing is charged beyond what was sent; the other sites are as they were.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from roles_tools import (
    LIMIT,
    NOTHING,
    Consortium,
    Wire,
    at,
    carry,
    changed,
    changed_ask,
    query,
    refusal,
    request_of,
    requested_budget,
    rows_of,
    run_study,
    spent,
    study_of,
)

from eigenveil.errors import BudgetExceeded, DataError, ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import (
    AGGREGATOR,
    HELPER,
    REFUSED,
    Message,
    decode,
    encode,
)
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.keys import SiteKeys
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SecureSource
from noise_tools import silence
from refusal_tools import refuses
from soak_tools import times


def check_unharmed(consortium, step, but="s0"):
    """The others answer the step, and this one answers the right question."""
    for name, party in consortium.parties.items():
        if name != HELPER:
            assert name != but or spent(consortium, name) == NOTHING
            assert query(party, name, step.payloads[name]).step == step.method


# -- rows


def site_of(consortium, name, rows, names=None):
    return Site(
        name=name,
        terms=settle(consortium.study),
        rows=ArrayRows(rows, names=names, origin=f"{name}.csv"),
        ledger=consortium.ledgers[name],
        identity=consortium.identities.get(name),
    )


def columned(*names):
    return study_of(3, features=None, columns=list(names))


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("study", [study_of(3), columned("a", "b", "c")], ids=["number", "names"])
def test_a_site_with_another_number_of_columns_does_not_start(study, width, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    with refuses("other-features", f"site s0 has {width} columns"):
        Site(name="s0", terms=settle(study), rows=ArrayRows(np.zeros((5, width))), ledger=ledger)
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("names", [["a", "c", "b"], ["a", "b", "C"]])
def test_a_site_with_other_columns_than_the_study_does_not_start(names, tmp_path):
    rows = ArrayRows(np.zeros((5, 3)), names=names)
    with pytest.raises(
        DataError, match=r"site s0.*column [23] .from 1. has another name"
    ) as caught:
        Site(
            name="s0",
            terms=settle(columned("a", "b", "c")),
            rows=rows,
            ledger=Ledger(tmp_path / "l"),
        )
    assert caught.value.code == "other-columns"


def named_sites(study, folder, names):
    consortium = Consortium(study, folder)
    for site, columns in names.items():
        rows = consortium.rows[site]
        consortium.parties[site] = site_of(consortium, site, rows, columns)
    return consortium


@pytest.mark.parametrize(
    "names",
    [
        {"s0": None, "s1": ["a", "b", "c"], "s2": ["a", "c", "b"]},
        {"s0": ["a", "b", "c"], "s1": None, "s2": ["a", "b", "d"]},
    ],
    ids=str,
)
def test_sites_whose_columns_differ_do_not_begin(names, tmp_path):
    """Where the study has no names; a site without names is no yardstick for the others."""
    consortium = named_sites(study_of(3), tmp_path, names)
    with refuses("other-columns", "site s2 has other columns", kind=ProtocolError):
        run_study(consortium)
    for name in consortium.ledgers:
        assert spent(consortium, name) == NOTHING
        assert not consortium.ledgers[name].sessions()[0].is_open


def test_columns_come_from_the_study_or_from_a_site_that_has_them(tmp_path):
    for study, names, expected in (
        (study_of(3), {"s0": None, "s1": ["a", "b", "c"]}, ("a", "b", "c")),
        (columned("x", "y", "z"), {"s0": None}, ("x", "y", "z")),
        (study_of(3), {}, None),
    ):
        folder = tmp_path / str(expected and expected[0])
        folder.mkdir()
        consortium = named_sites(study, folder, names)
        with silence():
            assert run_study(consortium).outcome.columns == expected


@pytest.mark.parametrize("study", [study_of(3), columned("a", "b", "c")], ids=["number", "names"])
@pytest.mark.parametrize(
    "fake",
    [
        {"features": 4},
        {"features": 3, "columns": ["a", "b"]},
        {"columns": ["a", "b", "d"]},
    ],
    ids=str,
)
def test_a_site_that_tells_of_another_table_is_named(study, fake, tmp_path):
    consortium = named_sites(study, tmp_path, {"s0": ["a", "b", "c"]})

    def fate(name, step, request, party):
        if (name, step) != ("s2", "join"):
            return ...
        reported = decode(party.handle(request), sender=name, limit=LIMIT)
        return encode(
            Message("join", reported.study, reported.session, name, dict(reported.body) | fake)
        )

    with pytest.raises(ProtocolError, match="site s2"):
        run_study(consortium, fate=fate)


VALUE, ROW, COLUMN = 1234.5, 27, 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dropouts", [0, 1])
def test_a_row_that_is_no_number_is_told_to_its_owner_alone(bad, dropouts, tmp_path):
    """It is a zero row: nothing is refused, nobody is lost, and all sites pay alike."""
    study = study_of(4, dropouts=dropouts)
    rows = rows_of(study)["s1"]
    rows[ROW, COLUMN] = bad
    consortium = Consortium(study, tmp_path, rows={"s1": rows})
    wire = Wire(consortium.parties)
    outcome = carry(Aggregator(settle(study)).run(), wire)
    assert outcome.missing == {}
    assert outcome.taking_part == 4
    assert not wire.refusals()
    assert consortium.parties["s1"].invalid.count == 1
    assert (
        consortium.parties["s1"].invalid.first
        == f"s1.csv: row index {ROW}, column index {COLUMN} (from 0) is {bad}"
    )
    assert len({spent(consortium, name) for name in study.names}) == 1
    for name in ("s0", "s2", "s3"):
        assert consortium.parties[name].invalid is None


# -- messages from elsewhere


def test_messages_of_another_study_are_refused(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    party = consortium.parties["s0"]
    other = request_of(study_of(3, epsilon=19.0), "s", "join", payloads.JoinRequest())
    assert refusal(party, "s0", other) == "other-study"
    assert not consortium.ledgers["s0"].sessions()


def test_messages_of_an_unknown_or_ended_session_are_refused(tmp_path):
    consortium = Consortium(study_of(3, dropouts=1), tmp_path)
    old = run_study(consortium)
    requests = {s: r for n, s, r, _ in old.wire.carried if n == "s0"}
    assert len(requests) == 10
    for step, request in requests.items():
        party = consortium.parties["s0"]
        if step == "end":  # the last answer is given again
            assert query(party, "s0", request).step == "end"
            request = changed(request, body={"outcome": "another"})
        assert refusal(party, "s0", request) == "session-ended"
        unknown = changed(request, session="another")
        if step == "end":  # what never began is over already
            assert query(party, "s0", unknown).step == "end"
        elif step != "join":
            assert refusal(party, "s0", unknown) == "unknown-session"
    assert consortium.charged("s0", old.session) == list(old.outcome.records)


@pytest.mark.parametrize(
    ("step", "round_number", "code"),
    [
        ("round 1", 2, "step-differs"),
        ("round 2", 1, "other-round"),
        ("round 01", 1, "other-round"),
        ("round", 1, "other-round"),
        ("round one", 1, "other-round"),
        ("round 0", 0, "malformed"),
        (f"round {payloads.MOST_ROUNDS + 1}", payloads.MOST_ROUNDS + 1, "malformed"),
        ("round -1", -1, "malformed"),
    ],
)
def test_rounds_only_go_forward(step, round_number, code, tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    call, party = at(consortium, "round 1", session="s"), consortium.parties["s0"]
    party.handle(call.payloads["s0"])
    request = changed(call.payloads["s0"], body={"round_number": round_number}, step=step)
    assert refusal(party, "s0", request) == code
    assert len(consortium.charged("s0", "s")) == 1


@pytest.mark.parametrize(
    "step",
    [
        "",
        "x",
        "join 2",
        "keys 1",
        "keys keys",
        "shares 1",
        "end 2",
        "sign",
        "finish",
        "Join",
        "_join",
        "refused",
    ],
)
def test_steps_that_there_are_not_are_refused(step, tmp_path):
    """Also a step said twice under two names: it would be answered in two ways."""
    consortium = Consortium(study_of(3), tmp_path)
    call, party = at(consortium, "keys"), consortium.parties["s0"]
    assert refusal(party, "s0", changed(call.payloads["s0"], step=step)) == "unknown-step"


def test_a_message_by_anybody_but_the_aggregator_is_refused(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    call = at(consortium, "keys")
    for sender in ("s1", "helper", "Aggregator", ""):
        request = changed(call.payloads["s0"], sender=sender)
        assert refusal(consortium.parties["s0"], "s0", request) == "wrong-sender"


def test_steps_out_of_order_are_refused(tmp_path):
    study = study_of(3, dropouts=1)
    consortium = Consortium(study, tmp_path)
    later = at(consortium, "round 1", session="s")
    rounds = changed(later.payloads["s1"], session="t")
    party = consortium.parties["s0"]

    def say(step, body):
        return request_of(study, "t", step, body)

    party.handle(say("join", payloads.JoinRequest()))
    shares = say("shares", payloads.SharesRequest(senders=()))
    assert refusal(party, "s0", rounds) == "out-of-order"
    assert refusal(party, "s0", shares) == "out-of-order"
    assert refusal(party, "s0", rounds) == "out-of-order"
    survivors = payloads.SurvivorsRequest(round_number=1, survivors="e0")
    assert refusal(party, "s0", say("survivors 1", survivors)) == "bad-unmask"
    unmask = payloads.UnmaskRequest(round_number=1, signed="e0")
    assert refusal(party, "s0", say("unmask 1", unmask)) == "bad-unmask"
    assert spent(consortium, "s0") == NOTHING


@pytest.mark.parametrize("session", ["", "x" * 5000, "two\nlines", "\x00", "\u202e", "\ud800"])
def test_sessions_that_cannot_be_named_are_refused(session, tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    party = consortium.parties["s0"]
    text = request_of(consortium.study, "NAME", "join", payloads.JoinRequest())
    said = json.dumps(session).encode()
    body = text[8:].replace(b'"NAME"', said)
    request = text[:4] + len(body).to_bytes(4, "little") + body
    assert refusal(party, "s0", request) in ("bad-name", "malformed")
    assert not consortium.ledgers["s0"].sessions()


def test_the_site_of_another_study_or_none_does_not_take_part(tmp_path):
    study = study_of(3)
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(requested_budget(study))
    party = Site(name="s9", terms=settle(study), rows=ArrayRows(np.ones((5, 3))), ledger=ledger)
    join = request_of(study, "s", "join", payloads.JoinRequest())
    assert refusal(party, "s9", join) == "not-a-site-here"
    assert not ledger.sessions()


def test_an_answer_under_another_sites_name_is_refused(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)

    def fate(name, step, request, party):
        return consortium.parties["s1"].handle(request) if name == "s2" else ...

    with pytest.raises(ProtocolError, match=r"site s2: .*names another party"):
        run_study(consortium, fate=fate)


# -- sums that were not agreed on


SECOND_MOMENT = {"kind": "second-moment", "extra_bits": 0, "count_weight": 0.0}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"description": {"kind": "norm-histogram"}}, "not-in-plan"),  # row_bound is public
        ({"description": {"kind": "component-energy"}}, "malformed"),  # its basis did not come
        ({"description": {"kind": "sketch", "columns": 1}}, "malformed"),
        ({"description": {"kind": "bingham-vectors", "extra_bits": 0}}, "bad-query"),
        ({"description": {"kind": "code"}}, "malformed"),
        ({"description": {"features": 4}}, "bad-query"),
        ({"description": {"features": 2}}, "bad-query"),
        ({"description": {"features": 10**6}}, "bad-query"),
        ({"description": {"precision": "single"}}, "bad-query"),
        ({"description": {"extra_bits": -17, "precision": "single"}}, "bad-query"),
        ({"description": SECOND_MOMENT | {"extra_bits": 2}}, "bad-query"),
        ({"description": {"centered": True}}, "malformed"),
        ({"description": {"count_weight": 1e308}}, "malformed"),
        ({"description": {"bound": -1.0}}, "malformed"),
        ({"scale": 1e-6}, "bad-query"),  # the grid is then too coarse
        ({"scale": 1e-3, "grid": -36}, "not-in-plan"),
        ({"scale": 0.1}, "not-in-plan"),
        ({"scale": 2.0**-60, "grid": -86}, "not-in-plan"),
        ({"scale": 2.0**60}, "privacy"),
        ({"scale": 1e308}, "malformed"),
        ({"scale": 5e-324}, "malformed"),
        ({"scale": 0.0}, "malformed"),
        ({"grid": -19}, "bad-query"),  # the sum does not fit
        ({"grid": 40}, "bad-query"),
        ({"grid": -37}, "bad-query"),  # finer than it need be: it would overflow
        ({"grid": -100}, "bad-query"),
        ({"grid": 10**30}, "malformed"),
        ({"name": "x" * 65}, "malformed"),
    ],
    ids=str,
)
def test_a_sum_that_was_not_agreed_on_is_refused(fields, code, tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    call, party = at(consortium, "round 1", session="s"), consortium.parties["s0"]
    asked = changed_ask(call.payloads["s0"], **fields)
    found = query(party, "s0", asked)
    assert found.step == REFUSED
    assert found.body["code"] == code
    check_unharmed(consortium, call)


def test_more_sums_than_a_round_has_are_refused(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    call, party = at(consortium, "round 1", session="s"), consortium.parties["s0"]
    queries = decode(call.payloads["s0"], sender=AGGREGATOR, limit=LIMIT).body["queries"]
    for count, code in ((4, "malformed"), (0, "malformed"), (2, "not-in-plan"), (3, "not-in-plan")):
        request = changed(call.payloads["s0"], body={"queries": queries * count})
        assert refusal(party, "s0", request) == code
    check_unharmed(consortium, call)


def test_nothing_about_rows_shows_in_why_a_sum_is_refused(tmp_path):
    """Row counts from 1 to 100000: one grid or another would hold the sum, and neither is told."""
    study, codes = study_of(3), set()
    for number, rows in enumerate((1, 100, 100_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        consortium = Consortium(study, folder, rows={"s0": np.ones((rows, 3))})
        call, party = at(consortium, "round 1"), consortium.parties["s0"]
        codes.add(
            tuple(
                refusal(party, "s0", changed_ask(call.payloads["s0"], grid=grid, scale=scale))
                for grid in range(-100, -32, 7)
                for scale in (2.0**-60, 1e-6, 0.5)
            )
        )
    assert len(codes) == 1


_KEPT = {}


def empty(step, factory):
    """A site that waits for a step, and the request: a study is run once, its ledgers copied."""
    if not _KEPT:
        consortium = Consortium(study_of(3, dropouts=1, row_bound=None), factory.mktemp("run"))
        ledger = consortium.folder / "s0.ledger"

        def fate(name, now, request, party):
            if name == "s0":
                _KEPT[now] = request, ledger.read_bytes()
            return ...

        run_study(consortium, fate=fate, session="s")
        _KEPT["consortium"] = consortium
    request, books = _KEPT[step]
    consortium = _KEPT["consortium"]
    (consortium.folder / "s0.ledger").write_bytes(books)
    consortium.restart("s0")
    return consortium, request


EVERY_STEP = st.sampled_from(
    ["join", "keys", "shares", "round 1", "survivors 1", "unmask 1", "round 2", "round 4", "end"]
)


def check_answered(consortium, request):
    """In words, with nothing spent but for what is answered."""
    before = consortium.check_books("s0").spent
    answer = query(consortium.parties["s0"], "s0", request)
    after = consortium.check_books("s0").spent
    if not answer.step.startswith("round "):
        assert after == before
    if answer.step == REFUSED:
        assert len(answer.body["text"]) <= 500


@given(data=st.data())
@settings(max_examples=times(200))
def test_requests_of_any_bytes_are_answered_in_words(data, tmp_path_factory):
    """A request with any byte changed, cut or added: never an exception, never a lost book."""
    consortium, whole = empty(data.draw(EVERY_STEP), tmp_path_factory)
    request = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(request)))
        match data.draw(st.sampled_from(["change", "cut", "add"])):
            case "change":
                request[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del request[place : place + data.draw(st.integers(1, 20))]
            case "add":
                request[place:place] = data.draw(st.binary(min_size=1, max_size=20))
    check_answered(consortium, bytes(request))


def leaves(value, path=()):
    """Paths to everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(inner, (*path, key))


def replaced(value, path, new):
    """The value with what is at a path replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


NUMBERS = [0, -1, 1, 2, 7, 10**18, 2**64, 10**4000, 0.5, 1e-9, 1e308, 5e-324, -0.0]
NO_NUMBERS = [None, True, math.inf, -math.inf, math.nan, "", "s1", "00" * 32, "x" * 70, "\x00"]
NESTED = [[], {}, ["s1"], ["s0"] * 3, {"s1": "00"}, [[[]]], ["basis", 3]]
KINDS = ["norm-histogram", "row-sum", "second-moment", "sketch", "component-energy", "single"]


@given(data=st.data())
@settings(max_examples=times(400))
def test_requests_with_any_field_replaced_are_answered_in_words(data, tmp_path_factory):
    """Well-formed messages that say nonsense; numbers that are none as JSON has them."""
    consortium, request = empty(data.draw(EVERY_STEP), tmp_path_factory)
    message = decode(request, sender=AGGREGATOR, limit=LIMIT)
    header = {
        "step": message.step,
        "study": message.study,
        "session": message.session,
        "sender": AGGREGATOR,
        "body": message.body,
        "arrays": [
            {"name": n, "dtype": "f8", "shape": list(a.shape)} for n, a in message.arrays.items()
        ],
    }
    places = [path for path in leaves(header) if path]
    inner = [path for path in places if path[0] == "body" and len(path) > 1] or places
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(data.draw(st.sampled_from([inner, inner, places]))))
        junk = data.draw(st.sampled_from([*NUMBERS, *NO_NUMBERS, *NESTED, *KINDS]))
        try:
            header = replaced(header, path, junk)
        except (LookupError, TypeError):
            continue  # that part has just been replaced
    text = json.dumps(header).encode()
    tail = b"".join(array.tobytes() for array in message.arrays.values())
    check_answered(consortium, b"EVM1" + len(text).to_bytes(4, "little") + text + tail)


# -- budgets


def test_without_a_budget_a_site_does_not_join(tmp_path):
    study = study_of(3, dropouts=1)
    consortium = Consortium(study, tmp_path)
    for place, code in (("new", "no-budget"), ("other", "no-budget")):
        consortium.ledgers["s0"] = Ledger(tmp_path / place)
        if place == "other":
            consortium.ledgers["s0"].set_budget(replace(requested_budget(study), data_set="others"))
        party = site_of(consortium, "s0", consortium.rows["s0"])
        join = request_of(study, "s", "join", payloads.JoinRequest())
        assert refusal(party, "s0", join) == "data"
        assert party.last_error.code == code
        assert not consortium.ledgers["s0"].sessions()
    consortium.parties["s0"] = party
    assert set(run_study(consortium).outcome.missing) == {"s0"}


def test_a_budget_that_is_too_small_is_told_to_the_owner_alone(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    consortium.ledgers["s1"].set_budget(requested_budget(consortium.study, 0.99))
    wire = Wire(consortium.parties)
    with pytest.raises(ProtocolError, match="site s1: its budget does not cover this study"):
        carry(Aggregator(settle(consortium.study)).run(), wire)
    problem = consortium.parties["s1"].last_error
    assert isinstance(problem, BudgetExceeded)
    assert "19.8" in problem.message
    code, text = wire.refusals()["s1", "join"]
    assert code == "budget"
    assert not any(character.isdigit() for character in text)
    for name in consortium.ledgers:
        assert spent(consortium, name) == NOTHING
        assert all(not account.is_open for account in consortium.ledgers[name].sessions())


def test_the_same_study_twice_needs_the_budget_twice(tmp_path):
    consortium = Consortium(study_of(3), tmp_path)
    run_study(consortium)
    with pytest.raises(ProtocolError, match="its budget does not cover this study"):
        run_study(consortium)
    for name in consortium.ledgers:
        standing = consortium.check_books(name)
        assert standing.reserved == NOTHING
        assert 0 < standing.spent_epsilon <= standing.budget.epsilon


def test_an_abandoned_session_gives_its_reservation_to_the_next(tmp_path):
    """What it was charged stays spent: here nothing, later too much for another."""
    consortium = Consortium(study_of(3), tmp_path)
    at(consortium, "round 1")
    run_study(consortium)
    outcomes = [a.outcome for a in consortium.ledgers["s0"].sessions()]
    assert outcomes == ["replaced", "finished"]


def test_noise_of_a_site_comes_from_the_operating_system():
    party = Site(
        name="s0",
        terms=settle(study_of(3)),
        rows=ArrayRows(np.ones((5, 3))),
        ledger=Ledger("nowhere"),
    )
    assert isinstance(party._source, SecureSource)
    assert party._source.secure
    assert len(SiteKeys.new_master()) == 32
