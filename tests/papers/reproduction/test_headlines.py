"""The sentences of the first page, and the table of what a figure was measured with."""

import pytest

from eigenveil_papers.reproduction import given, headlines, page
from eigenveil_papers.reproduction.experiment import Claim, RunSettings, Verdict
from eigenveil_papers.reproduction.numbers import Measured, Numbers


@pytest.fixture(autouse=True)
def _nothing_at_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path))


def measured(panel, runs=2, **series):
    return Numbers(
        Measured(panel, name, 1.0, value, run)
        for name, value in series.items()
        for run in range(runs)
    )


def test_every_sentence_is_of_an_experiment():
    assert set(headlines.HEADLINES) <= set(page.EXPERIMENTS)


def test_a_sentence_names_the_data_really_used_and_what_was_measured():
    numbers = measured("mnist-epsilon", eigenveil=0.9, dpdispca=0.25)
    said = headlines.headline("000-fig1", numbers, RunSettings(), [])
    assert said == (
        "Share of the exact directions' energy (digits, in place of MNIST, epsilon 1): Eigenveil "
        "0.90, DPdisPCA 0.25."
    )


def test_errors_of_components_are_told_as_they_came_out_also_where_ours_is_worse():
    rows = [*measured("mixture-a", eigenveil=0.1, capeagn=0.5).measured]
    rows += measured("mixture-b", eigenveil=0.2, capeagn=0.1).measured
    said = headlines.headline("001-fig3", Numbers(rows), RunSettings(), [])
    assert "larger than Eigenveil's at 1 of 2 points" in said
    assert "(0.5 to 5)" in said


def test_without_numbers_the_claims_are_counted():
    claims = [
        Claim(statement="a", where="Figure 1", measured="", verdict=Verdict(shown=3, undecided=1)),
        Claim(statement="b", where="eigenveil", measured="", verdict=Verdict(shown=3, undecided=1)),
    ]
    said = headlines.headline("000-fig1", Numbers(), RunSettings(), claims)
    assert said == "The paper's 1 claims about it, by positions: shown at 3, undecided at 1."


def test_runs_are_counted_and_those_that_differ_named():
    rows = [*measured("a", 10, x=1.0).measured, *measured("b", 10, x=1.0).measured]
    rows += measured("c", 3, x=1.0).measured
    assert given.runs_of(Numbers(rows), "10").here == "10; 3 of c"


@pytest.mark.parametrize("scale", ["full", "fast", "toy"])
def test_rows_are_those_at_hand_beside_the_papers(scale):
    told = {each.what: each for each in given.pca_of_sites(RunSettings(scale=scale))}
    assert told["rows of MNIST"].here == "1,797 of digits, in place of MNIST"
    assert told["rows of MNIST"].paper == "60,000"
    assert told["delta, where it is fixed"].whence == "authors' script"
