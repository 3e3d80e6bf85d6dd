"""A certificate is recomputed from its records and stands or falls with them."""

import json

import pytest
from releases_tools import release

from eigenveil.errors import DataError, OutputError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import (
    LARGEST_NORM,
    NOT_COUNTED,
    SEEDED,
    RequestedGuarantee,
    make_certificate,
    read_certificate,
)
from eigenveil.privacy.mechanisms import MECHANISMS

PLAN = {"features": 3, "n_components": 2}
MOMENT = release("gaussian", 0.4).model_copy(update={"statistic": "second-moment"})
RUNS = {
    "laplace alone": ([release("laplace", 0.2)], 0.0),
    "gaussian": ([release("gaussian", 0.3), MOMENT], 1e-6),
    "pure": ([release("laplace", 0.2), release("wishart", 0.5), release("vector", 0.1)], 0.0),
    "mixed": ([release("gaussian", 0.3), release("wishart", 0.2)], 1e-6),
    "drawn": ([release("bingham", 0.5)], 0.0),
}


def certificate(run="gaussian", *, secure=True, plan=PLAN):
    releases, delta = RUNS[run]
    epsilon = compose(releases, delta=delta, adjacency="add-remove").epsilon * 1.0001
    return make_certificate(
        software="eigenveil test",
        plan=plan,
        model="00" * 32,
        secure=secure,
        target=RequestedGuarantee(epsilon=epsilon, delta=delta, adjacency="add-remove"),
        releases=list(releases),
        counted=True,
    )


@pytest.mark.parametrize("run", RUNS)
def test_a_certificate_is_the_same_after_writing_and_reading(run, tmp_path):
    made = certificate(run)
    made.write(tmp_path / "certificate.json")
    read = read_certificate(tmp_path / "certificate.json")
    assert read == made
    assert read.guarantee() == made.guarantee()
    kinds = {r.noise.kind for r in RUNS[run][0]}
    assert set(made.proofs) == {MECHANISMS[kind].proof for kind in kinds} | {"release-grid.md"}


@pytest.mark.parametrize("run", RUNS)
def test_a_halved_scale_costs_more(run):
    made = certificate(run)
    for index, record in enumerate(made.releases):
        noise = record.noise.model_copy(update={"scale": record.noise.scale / 2})
        forged = list(made.releases)
        forged[index] = record.model_copy(update={"noise": noise})
        found = made.model_copy(update={"releases": tuple(forged)}).guarantee()
        assert found.epsilon > made.guarantee().epsilon


def test_seeded_noise_is_never_certified():
    made = certificate(secure=False)
    assert not made.guarantee().certified
    assert SEEDED in made.guarantee().caveats
    assert made.plan["noise_source"] == "seeded"
    assert {record.noise_source for record in made.releases} == {"seeded"}
    # nor where one of the places says otherwise
    for update in (
        {"noise_source": "operating system"},
        {"plan": PLAN},
        {"releases": certificate().releases},
    ):
        assert not made.model_copy(update=update).guarantee().certified


def test_rows_divided_by_their_largest_norm_are_never_certified():
    made = certificate(plan={**PLAN, "row_norm": "max"})
    assert not made.guarantee().certified
    assert LARGEST_NORM in made.guarantee().caveats


@pytest.mark.parametrize(
    ("run", "caveat"),
    [("pure", True), ("drawn", True), ("laplace alone", True), ("gaussian", False)],
)
def test_what_a_pure_guarantee_leaves_out_is_said(run, caveat):
    made = certificate(run)
    assert (made.guarantee().caveats != (made.left_out,)) == caveat


def test_what_no_ledger_counts_is_said():
    made = certificate()
    uncounted = made.model_copy(update={"counted": False})
    assert uncounted.guarantee().caveats == (made.left_out, NOT_COUNTED)
    assert made.guarantee().caveats == (made.left_out,)


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[1]", b'{"format": "eigenveil-certificate-2"}', b"\0", b'{"extra": 1}', b"\xff"],
)
def test_what_is_no_certificate_is_refused_by_name(text, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_bytes(text)
    with pytest.raises(DataError, match=r"certificate\.json is not a certificate"):
        read_certificate(path)
    with pytest.raises(OutputError, match="nowhere"):
        read_certificate(tmp_path / "nowhere.json")


def test_an_unproved_release_in_the_file_is_refused(tmp_path):
    forged = json.loads(certificate("pure").model_dump_json())
    forged["releases"][0]["noise"]["kind"] = "wishart"  # on a histogram
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(forged))
    with pytest.raises(DataError, match="proved for"):
        read_certificate(path)
