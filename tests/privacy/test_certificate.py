"""A certificate is recomputed from its records and stands or falls with them."""

import json

import pytest
from releases_tools import release

from eigenveil.errors import DataError, OutputError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import (
    Certificate,
    Claim,
    check,
    make_certificate,
    plan_hash,
    read_certificate,
)
from eigenveil.privacy.releases import PROOFS

PLAN = {"features": 3, "n_components": 2}
MOMENT = release("gaussian", 0.4).model_copy(update={"statistic": "second-moment"})
RUNS = {
    "gaussian": ([release("gaussian", 0.3), MOMENT], 1e-6),
    "pure": ([release("laplace", 0.2), release("wishart", 0.5), release("vector", 0.1)], 0.0),
    "mixed": ([release("gaussian", 0.3), release("wishart", 0.2)], 1e-6),
    "drawn": ([release("bingham", 0.5)], 0.0),
}


def certificate(run="gaussian", *, secure=True, reasons=(), adjacency="add-remove"):
    releases, delta = RUNS[run]
    epsilon = compose(releases, delta=delta, adjacency="add-remove").epsilon * 1.0001
    return make_certificate(
        software="eigenveil test",
        plan=PLAN,
        plan_hash=plan_hash(PLAN),
        model="00" * 32,
        secure=secure,
        wish=Claim(epsilon=epsilon, delta=delta, adjacency=adjacency),
        releases=list(releases),
        reasons_not_certified=list(reasons),
    )


@pytest.mark.parametrize("run", RUNS)
def test_an_honest_certificate_holds_after_writing_and_reading(run, tmp_path):
    made = certificate(run)
    made.write(tmp_path / "certificate.json")
    read = read_certificate(tmp_path / "certificate.json")
    assert read == made
    verdict = check(read)
    assert verdict.holds
    assert verdict.guarantee.certified
    assert verdict.guarantee.epsilon == made.guarantee().epsilon
    kinds = {r.noise.kind for r in RUNS[run][0]}
    assert set(made.proofs) == {PROOFS[kind] for kind in kinds} | {"release-grid.md"}


@pytest.mark.parametrize("run", RUNS)
def test_a_halved_scale_does_not_hold(run, tmp_path):
    path = tmp_path / "certificate.json"
    certificate(run).write(path)
    for index in range(len(RUNS[run][0])):
        forged = json.loads(path.read_text())
        forged["releases"][index]["noise"]["scale"] /= 2
        (tmp_path / "forged.json").write_text(json.dumps(forged))
        verdict = check(read_certificate(tmp_path / "forged.json"))
        assert not verdict.holds
        assert "does not give the claim" in verdict.explanation


@pytest.mark.parametrize(
    "forge",
    [
        lambda c: c["wish"].update(epsilon=c["wish"]["epsilon"] / 2),
        lambda c: c["releases"].append(c["releases"][0]),
        lambda c: c["wish"].update(delta=c["wish"]["delta"] / 10),
    ],
)
def test_a_smaller_claim_or_one_more_release_does_not_hold(forge):
    forged = json.loads(certificate().model_dump_json())
    forge(forged)
    assert not check(Certificate.model_validate(forged)).holds


def test_seeded_noise_is_never_certified():
    verdict = check(certificate(secure=False))
    assert not verdict.holds
    assert not verdict.guarantee.certified
    assert "seed" in verdict.explanation
    # nor when the reason is struck out of the file
    forged = certificate(secure=False).model_copy(update={"reasons_not_certified": ()})
    assert not check(forged).holds


def test_a_reason_not_to_certify_is_told():
    verdict = check(certificate(reasons=["the largest norm was used"]))
    assert not verdict.holds
    assert "the largest norm was used" in verdict.explanation


@pytest.mark.parametrize(("run", "caveat"), [("pure", True), ("drawn", True), ("gaussian", False)])
def test_what_a_pure_guarantee_leaves_out_is_said(run, caveat):
    assert bool(certificate(run).guarantee().caveats) == caveat


def test_laplace_noise_alone_carries_the_caveat_of_its_cut_tail():
    alone = certificate().model_copy(
        update={
            "releases": (release("laplace", 0.2),),
            "wish": Claim(epsilon=1.0, delta=0.0, adjacency="add-remove"),
        }
    )
    assert alone.guarantee().caveats


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"format": "eigenveil-certificate-2"}', "\x00", '{"extra": 1}']
)
def test_what_is_no_certificate_is_refused_by_name(text, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"certificate\.json is not a certificate"):
        read_certificate(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a certificate"):
        read_certificate(path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(OutputError, match="nowhere"):
        read_certificate(tmp_path / "nowhere.json")


def test_an_unproved_release_in_the_file_is_refused(tmp_path):
    forged = json.loads(certificate("pure").model_dump_json())
    forged["releases"][0]["noise"]["kind"] = "wishart"  # on a histogram
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(forged))
    with pytest.raises(DataError, match="proved for"):
        read_certificate(path)


@pytest.mark.parametrize(
    "forge",
    [
        lambda c: c["releases"].clear(),
        lambda c: c["releases"].pop(),
        lambda c: c["releases"][1]["noise"].update(size=1),
        lambda c: c["plan"].update(features=2),
        lambda c: c["releases"][0]["noise"].update(grid=None),
        lambda c: c["wish"].update(delta=0.0),
    ],
    ids=["emptied", "moment left out", "fewer values", "another plan", "no grid", "no delta"],
)
def test_a_certificate_that_is_not_whole_does_not_hold(forge, tmp_path):
    path = tmp_path / "certificate.json"
    certificate().write(path)
    forged = json.loads(path.read_text())
    forge(forged)
    path.write_text(json.dumps(forged))
    verdict = check(read_certificate(path))
    assert not verdict.holds
    assert verdict.word == "DOES NOT HOLD"
