"""The registry, the verdicts and the report."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from eigenveil.audit import all_cases, audit, chosen
from eigenveil.audit.case import Case, ClaimedLoss, Randomness, Samples, Witness
from eigenveil.audit.report import summary, write_findings
from eigenveil.audit.run import judge, trials_of
from eigenveil.errors import DataError, PrivacyError
from eigenveil.privacy.statistics import STATISTICS

QUICK = ["row-sum-gaussian-add-remove", "federated-helper-aggregator", "cape-10-sites-8-colluding"]


def gaussian_case(mu, claimed, **more):
    def sample(trials, randomness):
        drawn = randomness.rng.normal(size=(2, trials))
        return Samples(drawn[0] + mu, drawn[1])

    return Case(
        name="own",
        mechanism="own",
        title="own",
        group="sound",
        adjacency="add-remove",
        test="the output",
        sampling="normal draws",
        claim=ClaimedLoss(epsilon=10.0, delta=0.01, mu=claimed, exact=True, whence="here"),
        sample=sample,
        **more,
    )


def test_every_statistic_with_every_noise_has_a_sound_case():
    requested = {f"{s}/{noise.name}" for s, each in STATISTICS.items() for noise in each.mechanisms}
    covered = {pair for case in all_cases().values() for pair in case.covers if "/" in pair}
    assert covered == requested


def test_every_case_says_what_it_is():
    for name, case in all_cases().items():
        assert case.name == name
        assert case.test
        assert case.sampling
        assert case.claim.whence
        assert 0 < case.share <= 1
        assert math.isfinite(case.claim.epsilon)
        assert (case.claim.mu is None) == (not case.gaussian)


def test_words_name_cases():
    everything = chosen(["all"])
    assert len(everything) == len(all_cases())
    cape = [case.name for case in chosen(["cape"])]
    assert cape[:2] == ["cape-10-sites", QUICK[2]]
    assert {case.mechanism for case in chosen(["cape"])} == {"cape"}
    assert set(cape) == {case.name for case in everything if case.mechanism == "cape"}
    assert {case.group for case in chosen(["published"])} == {"published"}
    assert chosen(["cape", "cape-10-sites"]) == chosen(["cape"])  # none twice
    assert len(chosen(["sound"])) + len(chosen(["published"])) == len(everything)


@pytest.mark.parametrize(("word", "meant"), [("capee", "cape"), ("Second_Moment", "second-moment")])
def test_an_unknown_mechanism_is_refused_with_the_closest(word, meant):
    with pytest.raises(DataError, match="no mechanism") as caught:
        chosen([word])
    assert meant in caught.value.hint
    assert caught.value.code == "unknown-mechanism"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        *(({"confidence": each}, "out-of-range") for each in (0.0, 0.5, 1.0, 99.9, math.nan)),
        ({"jobs": 0}, "out-of-range"),
        ({"trials": 0}, "too-few-trials"),
        ({"trials": 50}, "trials-show-nothing"),
    ],
)
def test_what_could_show_nothing_is_refused(asked, code):
    with pytest.raises(PrivacyError) as caught:
        audit(chosen(["cape"]), **{"trials": 1000} | asked)
    assert caught.value.code == code
    assert code != "trials-show-nothing" or "--trials" in caught.value.hint


def test_the_chance_of_an_error_is_divided_among_the_cases():
    findings = audit(chosen(QUICK), trials=1500, confidence=0.99)
    assert [finding.case.name for finding in findings] == QUICK
    assert sum(finding.false_alarm for finding in findings) == pytest.approx(0.01)


def test_a_seed_gives_the_same_outputs_whatever_else_is_audited():
    alone = audit(chosen(QUICK[:1]), trials=1500, seed=3)[0]
    among = audit(chosen(QUICK), trials=1500, seed=3)[0]
    other = audit(chosen(QUICK[:1]), trials=1500, seed=4)[0]
    case = all_cases()[QUICK[0]]
    assert alone.mu != other.mu
    one, two = (case.sample(100, Randomness(np.random.SeedSequence(5))) for _ in range(2))
    np.testing.assert_array_equal(one.first, two.first)
    assert among.mu is not None
    assert alone.mu is not None
    assert among.mu <= alone.mu  # the same outputs, and less chance of an error for each


def test_processes_give_what_one_process_gives():
    one = audit(chosen(QUICK[:2]), trials=1500, seed=3)
    two = audit(chosen(QUICK[:2]), trials=1500, seed=3, jobs=2)
    assert [finding.mu for finding in one] == [finding.mu for finding in two]


def test_progress_reaches_the_end():
    seen = []
    audit(chosen(QUICK), trials=1500, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4500, 4500)


def test_a_sound_claim_stands_and_a_false_one_falls():
    # with false alarms of 1e-8 neither goes wrong once in 1e6 runs
    rng = Randomness()
    for mu, claimed, holds in ((1.0, 1.0, True), (1.0, 0.5, False)):
        case = gaussian_case(mu, claimed)
        finding = judge(case, case.sample(20_000, rng), false_alarm=1e-8)
        assert finding.holds is holds
        assert finding.verdict.startswith("under" if holds else "CLAIM BROKEN (mu")
        assert finding.tightness == pytest.approx(finding.mu / claimed)
    assert "BROKEN" in summary([finding], confidence=0.999)


def test_a_paper_that_states_no_mu_is_not_broken_by_it():
    """mu 1 is (1.2, 0.1)-private; the paper's own calculation of half of it is told."""
    stated = {"delta": 0.1, "mu": 0.5, "whence": "a paper"}
    for group, epsilon, holds in (
        ("published", 3.0, True),
        ("published", 0.5, False),
        ("sound", 3.0, False),
    ):
        claim = ClaimedLoss(epsilon=epsilon, **stated)
        case = replace(gaussian_case(1.0, 0.5), group=group, claim=claim)
        finding = judge(case, case.sample(20_000, Randomness()), false_alarm=1e-8)
        assert finding.holds is holds, finding.broken
        assert finding.beyond_mu
        assert ("mu" in finding.broken) == (group == "sound")
        told = summary([finding], confidence=0.999)
        assert ("Not broken, but with a larger mu" in told) == holds
        assert ("mu above its calculation" in finding.verdict) == holds


def test_a_gaussian_bound_carries_to_epsilon_and_delta():
    case = gaussian_case(1.0, 1.0)
    finding = judge(case, case.sample(20_000, Randomness()), false_alarm=1e-6)
    assert finding.epsilon > 1.5  # of 2.32; from rare events alone it would be less
    assert np.all(finding.deltas <= finding.claimed)
    assert finding.deltas[0] > 0.3


def test_a_curve_of_an_approximate_claim_is_that_of_randomised_response():
    claim = ClaimedLoss(epsilon=1.0, delta=0.1, whence="here")
    curve = claim.curve(np.array([0.0, 1.0, 2.0]))
    assert curve[0] == pytest.approx(0.1 + 0.9 * (math.e - 1) / (math.e + 1))
    assert curve[1:] == pytest.approx([0.1, 0.1])


def test_slow_cases_draw_a_part_of_the_trials():
    case = gaussian_case(1.0, 1.0, share=0.1)
    assert trials_of(case, 100_000) == 10_000
    assert trials_of(case, 2_000) == 1_000
    assert trials_of(case, 500) == 500


def test_the_report_is_written_whole(tmp_path):
    witness = Witness(what="the output is below 0", chance=0.5)
    findings = audit(chosen(QUICK), trials=1500, seed=1)
    own = gaussian_case(1.0, 1.0, witness=witness)
    findings.append(judge(own, own.sample(1000, Randomness()), false_alarm=1e-3))
    write_findings(findings, tmp_path, confidence=0.999)
    with (tmp_path / "audit.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [*QUICK, "own"]
    whole = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert whole["audits"][0]["mu_at_least"] == findings[0].mu
    assert whole["audits"][3]["witness"]["predicted"] == 0.5
    table = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in table for name in QUICK)
    assert (tmp_path / "audit.png").stat().st_size > 10_000
    assert (tmp_path / "audit.svg").read_text(encoding="utf-8").startswith("<?xml")
