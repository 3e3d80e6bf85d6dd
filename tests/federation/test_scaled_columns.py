"""Scales of columns over sites: what each is asked for, and what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
from roles_tools import LIMIT, Consortium, at, changed, rows_of, run_study, study_of

from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode, encode
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.federation.study.study import make_study
from eigenveil.models.schedule import CLOSER_RANGES, COLUMN_RANGES, COLUMNS, OBSERVED

RANGES = ((-4.0, 5.0), (-3.0, 4.0), (-2.0, 3.0))
PRIVATE = {"scale": "private", "budget_split": None, "row_bound": None}
PUBLIC = {"ranges": RANGES}


def consortium(folder, **fields):
    return Consortium(study_of(3, **fields), folder)


def refused(parties, request):
    answer = decode(parties.parties["s0"].handle(request), sender="s0", limit=LIMIT)
    return answer.body["code"] if answer.step == REFUSED else ""


def asked(request, description, arrays=None):
    """A round's request whose first query is described otherwise, with these arrays."""
    message = decode(request, sender=AGGREGATOR, limit=LIMIT)
    queries = json.loads(json.dumps(message.body["queries"]))
    queries[0]["description"] |= description
    body = json.loads(json.dumps(dict(message.body))) | {"queries": queries}
    found = dict(message.arrays) if arrays is None else arrays
    return encode(replace(message, body=body, arrays=found))


def test_the_rounds_are_those_of_one_table(tmp_path):
    finished = run_study(consortium(tmp_path, **PRIVATE))
    names = [[query.name for query in queries] for queries, _ in finished.rounds]
    assert names[:3] == [[COLUMNS], [COLUMN_RANGES], [CLOSER_RANGES]]
    assert not finished.wire.refusals()
    assert finished.outcome.factors.scale.shape == (3,)


ZEROS = np.zeros(3)
# a round, and what is asked for there instead
WRONG = {
    "ranges in the first round": (
        1,
        {"offset": True, "scaled": True, "limit": 1.0625},
        {"offset 0": ZEROS, "scale 0": ZEROS + 1.0},
    ),
    "no ranges in the second": (2, {"offset": False, "scaled": False, "limit": None}, {}),
    "a wider limit": (2, {"limit": 5.0}, None),
    "no limit": (4, {"limit": None}, None),
    "unscaled norms": (4, {"offset": False, "scaled": False, "limit": None}, {}),
    "ranges of the histograms": (5, {"limit": 1.0625}, None),
    "holes": (2, {"holes": True}, None),
    "weights": (1, {"weighted": True}, None),
    "scales below 0": (4, {}, {"offset 0": ZEROS, "scale 0": ZEROS - 1.0}),
}


@pytest.mark.parametrize("case", WRONG)
def test_columns_that_are_scaled_otherwise_are_refused(case, tmp_path):
    number, description, arrays = WRONG[case]
    parties = consortium(tmp_path, **PRIVATE)
    request = at(parties, f"round {number}").payloads["s0"]
    found = refused(parties, asked(request, description, arrays))
    assert found == (
        "bad-query" if case in ("holes", "weights", "scales below 0") else "not-in-plan"
    )
    assert refused(parties, request) == ""


def test_fewer_variables_than_the_plan_has_are_refused(tmp_path):
    """They would halve the noise of every bin for the same recorded loss."""
    parties = consortium(tmp_path, **PRIVATE)
    request = at(parties, "round 1").payloads["s0"]
    grouped = asked(request, {"categories": True}, {"variables 0": ZEROS})
    assert refused(parties, grouped) == "not-in-plan"
    apart = asked(request, {"categories": True}, {"variables 0": np.arange(3.0)})
    assert refused(parties, apart) == "not-in-plan"  # the study has no schema with categories
    assert refused(parties, request) == ""


@pytest.mark.parametrize("change", ["offset 0", "scale 0"])
def test_other_ranges_than_the_studys_are_refused(change, tmp_path):
    parties = consortium(tmp_path, **PUBLIC)
    request = at(parties, "round 1").payloads["s0"]
    message = decode(request, sender=AGGREGATOR, limit=LIMIT)
    arrays = {name: np.array(array) for name, array in message.arrays.items()}
    arrays[change] = arrays[change] + 0.5
    assert refused(parties, changed(request, arrays=arrays)) == "not-in-plan"
    assert refused(parties, asked(request, {"limit": 2.0})) == "not-in-plan"
    assert refused(parties, request) == ""


@pytest.mark.parametrize("fields", [PRIVATE, PUBLIC, {"scale": (1.0, 2.0, 0.5)}], ids=str)
def test_a_study_file_has_scales(fields, tmp_path):
    study = study_of(3, **fields)
    write_toml(study, tmp_path / "study.toml")
    again = read_study(tmp_path / "study.toml")
    assert again == study
    assert again.hash == study.hash
    assert make_study(**again.model_dump()).plan(3) == study.plan(3)


@pytest.mark.parametrize("fields", [PRIVATE, PUBLIC], ids=["private", "public"])
def test_missing_entries_go_with_scales(fields, tmp_path):
    """Their counts are of entries as they are, whatever columns are scaled by."""
    with_holes = {"missing": "independent", "budget_split": None, "row_bound": None}
    study = study_of(3, **fields | with_holes)
    rows = rows_of(study, rows=400)
    for each in rows.values():
        each[::7, 1] = np.nan
    finished = run_study(Consortium(study, tmp_path, rows=rows))
    assert not finished.wire.refusals()
    names = [query.name for queries, _ in finished.rounds for query in queries]
    assert names[0] == OBSERVED
    assert np.isfinite(finished.outcome.factors.components).all()
