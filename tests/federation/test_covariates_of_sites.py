"""Covariates over sites: rows are taken less effects where the plan says so, and nowhere else."""

import json
from dataclasses import replace

import numpy as np
import pytest
from roles_tools import LIMIT, Consortium, at, run_study, study_of

from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode, encode
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.models.pca.plan import COVARIATES

FIELDS = {"covariates": (1,), "budget_split": None, "row_bound": None}
JOINT = 5  # the round of the moment with covariates
EFFECTS = np.array([[0.5], [0.0], [-2.0]])


def consortium(folder):
    return Consortium(study_of(3, **FIELDS), folder)


def refused(parties, request):
    answer = decode(parties.parties["s0"].handle(request), sender="s0", limit=LIMIT)
    return answer.body["code"] if answer.step == REFUSED else ""


def asked(request, covariates, effects):
    """A round's request whose first query takes off other effects."""
    message = decode(request, sender=AGGREGATOR, limit=LIMIT)
    body = json.loads(json.dumps(dict(message.body)))
    body["queries"][0]["description"] |= {"covariates": covariates}
    arrays = {name: each for name, each in message.arrays.items() if name != "effects 0"}
    arrays |= {} if effects is None else {"effects 0": effects}
    return encode(replace(message, body=body, arrays=arrays))


def test_every_round_after_the_joint_moment_takes_the_effects_off(tmp_path):
    finished = run_study(consortium(tmp_path))
    assert not finished.wire.refusals()
    rounds = [queries for queries, _ in finished.rounds]
    assert [query.name for query in rounds[JOINT - 1]] == [COVARIATES]
    found = [[query.accumulator.spec().fields for query in queries] for queries in rounds]
    assert [{fields.get("covariates", ()) for fields in each} for each in found[:JOINT]] == (
        [{()}] * JOINT
    )
    assert len(found) > JOINT
    assert all(fields["covariates"] == (1,) for each in found[JOINT:] for fields in each)


WRONG = {
    "effects too early": (1, [1], EFFECTS, "not-in-plan"),
    "effects in the joint moment": (JOINT, [1], EFFECTS, "not-in-plan"),
    "no effects": (JOINT + 1, [], None, "not-in-plan"),
    "of another column": (JOINT + 1, [0], EFFECTS, "not-in-plan"),
    "of one more column": (JOINT + 1, [1, 2], np.ones((3, 2)), "not-in-plan"),
    "of a column twice": (JOINT + 1, [1, 1], np.ones((3, 2)), "bad-query"),
    "of no column": (JOINT + 1, [3], EFFECTS, "bad-query"),
    "beyond the arithmetic": (JOINT + 1, [1], EFFECTS * 1e9, "bad-query"),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_effects_are_refused(case, tmp_path):
    number, covariates, effects, code = WRONG[case]
    parties = consortium(tmp_path)
    request = at(parties, f"round {number}").payloads["s0"]
    assert refused(parties, asked(request, covariates, effects)) == code
    assert refused(parties, request) == ""


def test_a_study_file_has_covariates(tmp_path):
    for fields in (FIELDS, {**FIELDS, "features": None, "columns": ("a", "b", "c")}):
        study = study_of(3, **fields)
        write_toml(study, tmp_path / "study.toml", overwrite=True)
        again = read_study(tmp_path / "study.toml")
        assert again.hash == study.hash
        assert again.plan(3).covariates == (1,)
    named = study_of(3, **FIELDS | {"features": None, "columns": ("a", "b", "c")})
    named = named.changed(covariates=("b",))
    assert named.plan(3).covariates == (1,)
