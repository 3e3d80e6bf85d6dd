"""``eigenveil audit``: lists, tables, files, and what is refused."""

import json

import eigenveil.audit.run as registry
from eigenveil.audit.case import ClaimedLoss

FILES = {"audit.csv", "audit.json", "audit.md", "audit.png", "audit.svg"}
FEW = ("--trials", 3000, "--jobs", 1, "--seed", 1)


def test_the_list_names_every_mechanism(run):
    status, printed, err = run("audit", "list")
    assert (status, err) == (0, "")
    for name in registry.all_cases():
        assert name in printed
    printed = run.done("audit", "--json")  # without a word it is the list, too
    listed = json.loads(printed)
    assert {case["name"] for cases in listed.values() for case in cases} == set(
        registry.all_cases()
    )


def test_an_audit_is_printed_and_written_whole(tmp_path, run):
    out = tmp_path / "found"
    names = ("row-sum-gaussian-add-remove", "analyze-gauss-10-replace-one")
    status, printed, err = run("audit", *names, *FEW, "--out", out)
    assert (status, err) == (0, "")
    words = " ".join(printed.split())
    assert "under its claim" in words
    assert "CLAIM BROKEN" in words
    assert "Published claims that are broken: analyze-gauss-10-replace-one" in words
    assert "A bound under its claim proves nothing" in words
    assert {file.name for file in out.iterdir()} == FILES


def test_one_audit_says_how_it_was_done(run):
    printed = run.done("audit", "row-sum-gaussian-add-remove", *FEW)
    words = " ".join(printed.split())
    for word in ("neighbours: add-remove", "test: the output along", "3,000 on each data set"):
        assert word in words


def test_json_says_the_same(run):
    status, printed, err = run("audit", "stream-3-blocks", *FEW, "--json")
    assert (status, err) == (0, "")
    found = json.loads(printed)
    assert found["confidence"] == 0.999
    [finding] = found["audits"]
    assert finding["verdict"] == "under its claim"
    assert 0 < finding["mu_at_least"] <= finding["claimed_mu"]
    assert len(finding["curve"]["epsilon"]) == len(finding["curve"]["delta_at_least"])


def test_a_broken_claim_of_ones_own_has_a_status_of_its_own(run, monkeypatch):
    from dataclasses import replace

    case = registry.all_cases()["row-sum-gaussian-add-remove"]
    claim = ClaimedLoss(epsilon=0.5, delta=0.01, mu=0.3, exact=True, whence="made up")
    monkeypatch.setattr(registry, "chosen", lambda words: [replace(case, claim=claim)])
    status, printed, _ = run("audit", "row-sum", *FEW)
    assert status == 8
    assert "CLAIM BROKEN" in printed
    assert "report this" in " ".join(printed.split())
