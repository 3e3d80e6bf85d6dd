"""Studies from the first message to the last: sums are exact, books agree, nothing else leaves."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from roles_tools import (
    LIMIT,
    Consortium,
    Wire,
    carry,
    check_records,
    check_sums,
    exact,
    rows_of,
    run_study,
    study_of,
    sums_seen,
)

from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol import aggregator as aggregator_module
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import HELPER, decode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.sealing import SEALING_BYTES
from eigenveil.federation.secagg.keys import letter_bytes
from eigenveil.moments import release
from eigenveil.noise.entries import from_coordinates
from noise_tools import silence
from statistics_tools import FALSE_ALARM, chi_square, ended_early


def weighed(**weights):
    return [{"name": name, "weight": weight} for name, weight in weights.items()]


JOIN_REPLY = (
    *("columns", "features", "keys", "listed"),
    *("seeded", "dependent", "newlines_in_cells"),
)
PROTOCOLS = ("cape", "sketch", "dpdispca", "full", "local")
ADJACENCIES = ("add-remove", "replace-one")


def valid_studies():
    """Every protocol, masks, adjacency, collusion and dropouts that a study allows."""
    found = []
    for protocol, kind, adjacency, (collusion, dropouts) in itertools.product(
        PROTOCOLS, ("modular", "pairwise", "helper"), ADJACENCIES, [(0, 0), (1, 0), (0, 1), (1, 1)]
    ):
        if protocol == "local" and kind != "modular":
            continue  # it has none
        if adjacency == "replace-one" and collusion != dropouts:
            continue  # nothing that depends on the one depends on the others
        fields = {
            "protocol": protocol,
            "masks": kind,
            "adjacency": adjacency,
            "collusion": collusion,
            "dropouts": dropouts,
            "center": False,
        }
        if kind != "modular" and dropouts:
            with pytest.raises(PrivacyError, match="dropouts"):
                study_of(4, **fields)
            continue
        name = f"{protocol}-{kind}-{adjacency}-t{collusion}-d{dropouts}"
        # a record says what its adjacency is, whatever protocol makes the sum
        slow = adjacency == "replace-one" and protocol not in ("cape", "dpdispca")
        marks = (pytest.mark.thorough,) if slow else ()
        found.append(pytest.param(fields, id=name, marks=marks))
    return found


@pytest.mark.parametrize("fields", valid_studies())
def test_every_study_adds_up_exactly(fields, tmp_path):
    consortium = Consortium(study_of(4, **fields), tmp_path)
    with silence():
        finished = run_study(consortium)
    check_sums(consortium, finished)
    check_records(consortium, finished)
    assert finished.outcome.taking_part == len(consortium.study.active)
    assert not finished.outcome.missing
    assert not finished.wire.refusals()


@pytest.mark.parametrize(
    "fields",
    [
        {"row_bound": None},
        {"row_bound": None, "row_norm": "auto", "dropouts": 1},
        {"row_bound": None, "center": False},
        {"center": False},
        {"center": [0.5, 0.5, 0.25]},
        {"row_norm": 3.0, "protocol": "sketch", "masks": "helper"},
        {"row_bound": None, "adjacency": "replace-one", "masks": "pairwise"},
        {"delta": 0.0, "row_bound": None, "row_norm": "auto"},
        {"delta": 0.0, "collusion": 1},
        {"delta": 0.0, "adjacency": "replace-one", "protocol": "local"},
        {"neighbours": 2, "sites": 7},
        {"neighbours": 4, "dropouts": 1, "collusion": 1, "sites": 9},
        {
            "sites": [
                {"name": "a"},
                {"name": "b", "epsilon": 10.0},
                {"name": "c", "epsilon": 1.7},
            ],
            "dropouts": 1,
        },
        {"sites": weighed(a=3, b=1, c=2, d=7), "dropouts": 1, "row_bound": None},
        {"sites": weighed(a=3, b=1, c=2), "delta": 0.0},
        {"within_sites": True},
        {"within_sites": True, "row_bound": None, "sites": weighed(a=3, b=1, c=2), "dropouts": 1},
        {"within_sites": True, "scale": "private", "delta": 0.0, "row_bound": None},
        {"within_sites": True, "protocol": "sketch", "adjacency": "replace-one"},
    ],
    ids=str,
)
def test_every_way_of_preparing_rows_adds_up_exactly(fields, tmp_path):
    consortium = Consortium(study_of(**({"sites": 4} | fields)), tmp_path)
    with silence():
        finished = run_study(consortium)
    check_sums(consortium, finished)
    check_records(consortium, finished)


def values_of(finished):
    """What each release would be without its noise: its name, record, and symmetric matrix."""
    for queries, sums in finished.rounds:
        for query, found in zip(queries, sums, strict=True):
            whole = from_coordinates(
                query.accumulator.layout, query.accumulator.shape, found.view(np.int64)
            )
            yield query.record, whole * math.ldexp(1.0, query.record.noise.grid)


def run_over(study, rows, folder):
    folder.mkdir()
    return run_study(Consortium(study, folder, rows=rows))


def test_a_site_of_twice_the_weight_is_one_whose_rows_are_there_twice(tmp_path):
    rows = rows_of(study_of(2))
    plain = {"center": False, "protocol": "cape"}
    made = study_of(weighed(s0=5.0, s1=2.5), **plain)
    twice = study_of([{"name": name} for name in ("s0", "s1", "t0")], **plain)
    with silence():
        found = run_over(made, rows, tmp_path / "weighted")
        wanted = run_over(twice, rows | {"t0": rows["s0"]}, tmp_path / "twice")
    for (_, weighted), (_, doubled) in zip(values_of(found), values_of(wanted), strict=True):
        assert np.array_equal(2 * weighted, doubled)


@pytest.mark.parametrize("protocol", ["cape", "full", "sketch"])
def test_no_row_of_any_site_moves_a_sum_further_than_its_weight_allows(protocol, tmp_path):
    """Nor does the heaviest site's move it by less: the noise is made for no more than there is."""
    made = study_of(weighed(a=4, b=1, c=3), center=False, protocol=protocol, features=3)
    rows = rows_of(made)
    with silence():
        before = run_over(made, rows, tmp_path / "before")
        for name, weight in made.row_weights().items():
            more = rows | {name: np.vstack([rows[name], [[3e5, -4e5, 1e5]]])}
            after = run_over(made, more, tmp_path / name)
            for (record, old), (_, new) in zip(values_of(before), values_of(after), strict=True):
                moved, most = np.linalg.norm(new - old), record.sensitivity()
                assert moved <= weight * most * (1 + 1e-9)
                if protocol != "sketch":  # whose rows need not reach the bound
                    assert moved >= 0.999 * weight * most


def test_single_precision_rows_add_up_exactly(tmp_path):
    """However each site stores its rows."""
    study, rng = study_of(3, precision="single"), np.random.default_rng(1)
    kinds = zip(study.sites, (np.float32, np.float64, np.float64), strict=True)
    rows = {site.name: rng.random((9, 3)).astype(kind) for site, kind in kinds}
    consortium = Consortium(study, tmp_path, rows=rows)
    with silence():
        finished = run_study(consortium)
    check_sums(consortium, finished)


def test_what_noise_is_added_is_what_the_record_says(tmp_path):
    """With noise the sums are those of the rows and every site's own share; nothing is left out."""
    consortium, drawn = Consortium(study_of(4, dropouts=1), tmp_path), {}
    draw = release.noise_integers

    def noting(accumulator, record, source):
        noise = draw(accumulator, record, source)
        drawn.setdefault(record.name, []).append(noise.view(np.uint64))
        return noise

    with mock.patch.object(release, "noise_integers", noting):
        finished = run_study(consortium)
    for queries, sums in finished.rounds:
        for query, found in zip(queries, sums, strict=True):
            assert len(drawn[query.name]) == 4
            noise = np.sum(drawn[query.name], axis=0, dtype=np.uint64)
            assert np.any(noise)
            assert np.array_equal(found, exact(consortium.study, query, consortium.rows) + noise)


# -- what leaves a site

HEADER = 400


def sent(consortium, finished):
    """Bytes of each site's answers, by step."""
    found = {}
    for name, step, _, answer in finished.wire.carried:
        if name != HELPER:
            found.setdefault(name, {})[step] = len(answer)
    return found


@pytest.mark.parametrize(
    ("kind", "features"), [("modular", 40), ("modular", 8), ("pairwise", 8), ("helper", 8)]
)
def test_a_site_sends_the_triangle_for_cape_and_the_sketch_for_sketch(kind, features, tmp_path):
    d, r = features, 6
    numbers = {
        "cape": d * (d + 1) // 2,
        "sketch": d * r,
        "dpdispca": d * r,
        "full": d * (d + 1) // 2,
    }
    for protocol, size in numbers.items():
        columns = {"sketch_size": r} if size == d * r else {}
        study = study_of(3, features=d, protocol=protocol, masks=kind, center=False, **columns)
        folder = tmp_path / protocol
        folder.mkdir()
        consortium = Consortium(study, folder)
        finished = run_study(consortium)
        for steps in sent(consortium, finished).values():
            assert 8 * size <= steps["round 1"] <= 8 * size + HEADER
            rest = sum(steps.values()) - steps["round 1"]
            if protocol == "sketch":  # then the moment inside its range
                inside = 8 * (r * (r + 1) // 2)
                assert inside <= steps["round 2"] <= inside + HEADER
                rest -= steps["round 2"]
            # the session's key, in hexadecimal, and a letter for either partner
            assert rest <= 4 * HEADER + 2 * SEALING_BYTES + 2 * letter_bytes()


def test_nothing_but_sums_leaves_a_site(tmp_path):
    """Every answer is a known body and the arrays that were asked for; row counts stay at home."""
    consortium = Consortium(study_of(4, dropouts=1), tmp_path)
    finished = run_study(consortium)
    seen = {}
    for name, step, _, answer in finished.wire.carried:
        message = decode(answer, sender=name, limit=LIMIT)
        kind = step.partition(" ")[0]
        seen.setdefault(kind, set()).add((tuple(message.body), tuple(message.arrays)))
    assert seen == {
        "join": {(JOIN_REPLY, ())},
        "keys": {((), ("letters",))},
        "shares": {((), ("packets",))},
        "round": {((), ("sum 0",)), ((), ("sum 0", "sum 1"))},
        "survivors": {(("signature",), ())},
        "unmask": {(("own", "repair"), ())},
        "end": {(("signature",), ())},
    }


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"row_bound": None, "mechanism": "auto"}, 10),  # the default plan
        ({"row_bound": None, "mechanism": "auto", "dropouts": 1}, 25),
        ({"center": False, "budget_split": None}, 5),  # one release, and explained variances
        ({"center": False}, 4),  # explained variances are those of the released moment
        ({"center": False, "dropouts": 1}, 7),
        ({"center": False, "masks": "helper"}, 5),
    ],
    ids=str,
)
def test_a_study_says_how_many_questions_a_site_answers(fields, count, tmp_path):
    """As many as there are; where the helper is asked before a round, the sites wait for that."""
    study = study_of(3, **fields)
    consortium = Consortium(study, tmp_path)
    finished = run_study(consortium)
    steps = dict.fromkeys(step for _, step, _, _ in finished.wire.carried)
    assert len(steps) == settle(study).exchanges == count


@pytest.mark.parametrize("fields", [{}, {"dropouts": 1}], ids=str)
def test_what_a_site_sends_looks_like_chance(fields, tmp_path):
    """Under modular masks, without any noise: bytes of all messages of a study are uniform."""
    consortium = Consortium(study_of(4, features=8, row_bound=None, **fields), tmp_path)
    with silence():
        finished = run_study(consortium)
    words = [
        array.view(np.uint8)
        for name, step, _, answer in finished.wire.carried
        if step.startswith("round")
        for array in decode(answer, sender=name, limit=LIMIT).arrays.values()
    ]
    counts = np.bincount(np.concatenate(words) // 4, minlength=64)
    assert chi_square(counts, [1 / 64] * 64) > FALSE_ALARM


# -- sessions


@pytest.mark.parametrize("kind", ["modular", "pairwise", "helper"])
def test_a_session_that_is_repeated_shares_no_mask_and_no_noise(kind, tmp_path):
    consortium = Consortium(study_of(3, masks=kind), tmp_path, times=3.0)
    runs = []
    for _ in range(2):
        with silence():  # what differs are the masks
            runs.append(run_study(consortium))
    answers = [[run.wire.answers(f"round {t}") for t in (1, 2)] for run in runs]
    differences = []
    for round_number, name in itertools.product((0, 1), consortium.rows):
        one, other = (run[round_number][name].arrays["sum 0"] for run in answers)
        assert not np.any(one == other)  # each would be with chance 2**-64, or 2**-30 if Gaussian
        differences.append(one - other)
    keys = [run.wire.answers("join")[name].body["keys"] for run in runs for name in consortium.rows]
    every = [found["sealing"] for found in keys]
    assert len(set(every)) == len(every)
    if kind == "modular":
        ones = int(np.unpackbits(np.concatenate(differences).view(np.uint8)).sum())
        bits = 64 * sum(d.size for d in differences)
        assert chi_square([ones, bits - ones], [0.5, 0.5]) > FALSE_ALARM


def test_noise_is_drawn_anew_in_every_session(tmp_path):
    """Sums of two sessions differ in every entry: equal ones have chance 2**-20 or so each."""
    consortium = Consortium(study_of(3, center=False), tmp_path, times=3.0)
    one, other = (run_study(consortium).rounds[0][1][0] for _ in range(2))
    assert not np.any(one == other)


def test_every_request_asked_again_has_the_same_answer(tmp_path):
    """Also after a restart; finish, too, may be said twice."""
    consortium = Consortium(study_of(3, dropouts=1, row_bound=None), tmp_path)

    def twice(name, step, request, party):
        first = party.handle(request)
        assert party.handle(request) == first
        consortium.restart(name)
        assert consortium.parties[name].handle(request) == first
        return first

    with silence():
        finished = run_study(consortium, fate=twice)
    check_sums(consortium, finished)
    check_records(consortium, finished)


def test_sites_are_asked_a_few_at_a_time_where_answers_are_large(tmp_path, monkeypatch):
    """Also where the helper seals the masks of one part of the sites after the other."""
    monkeypatch.setattr(aggregator_module, "_HELD", 100)
    for kind in ("modular", "helper"):
        folder = tmp_path / kind
        folder.mkdir()
        consortium = Consortium(study_of(5, masks=kind), folder)
        with silence():
            finished = run_study(consortium)
        check_sums(consortium, finished)
        check_records(consortium, finished)


def test_a_study_that_stops_says_what_was_released(tmp_path):
    """Too few rows for their norms to be seen: sites and aggregator agree on the one charge."""
    study = study_of(3, epsilon=0.5, row_bound=None)
    folders = (tmp_path / f"{number}" for number in range(9))

    def run():
        folder = next(folders)
        folder.mkdir()
        consortium = Consortium(study, folder)
        wire, aggregator = Wire(consortium.parties), Aggregator(settle(study))
        with sums_seen():
            return consortium, aggregator, carry(aggregator.run(), wire)

    for consortium, aggregator, outcome in ended_early(run, lambda each: each[2].factors.stopped):
        assert not outcome.factors.usable.any()
        assert "nothing above its noise" in outcome.factors.stopped
        assert len(outcome.records) == 1
        for name in consortium.ledgers:
            assert consortium.charged(name, aggregator.session) == list(outcome.records)
            assert consortium.account(name, aggregator.session).outcome == "finished"
            standing = consortium.check_books(name)
            assert 0 < standing.spent_epsilon < 0.5
