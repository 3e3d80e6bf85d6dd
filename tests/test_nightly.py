"""The record of ``make nightly`` says what failed, what did not run and how much was tried."""

import nightly


def test_a_part_that_failed_or_did_not_run_is_shown():
    part = {
        "outcomes": {"passed": 3, "error": 1},
        "counts": [["queried", "a site", "tried", 20_000], ["queried", "a site", "accepted", 0]],
        "commit": "abc", "when": "2026-01-02 03:04", "seconds": 90, "factor": 1.0, "passed": True,
    }  # fmt: skip
    text = nightly.page({"noise": part, "io": part | {"passed": False}})
    assert "| noise | abc | 2026-01-02 03:04 | 1.5 | 3 | 1 | 0 |  |" in text
    assert "| io | abc | 2026-01-02 03:04 | 1.5 | 3 | 1 | 0 | **failed**" in text
    assert "| flare-2.8.0 | | | | | | | **not run** |" in text
    assert "| queried | a site | 40000 | 0 |" in text


def test_a_part_that_ends_without_results_has_failed(tmp_path, monkeypatch, capsys):
    for name in ("KEPT", "PAGE"):
        monkeypatch.setattr(nightly, name, tmp_path / name)
    for name in ("ROOT", "TESTS"):
        monkeypatch.setattr(nightly, name, tmp_path)
    monkeypatch.setattr(nightly, "commit", lambda: "abc")
    monkeypatch.setitem(nightly.SPREAD, "noise", ["-n", "0"])
    assert nightly.main(["noise"]) == 1  # there are no tests in that folder
    assert "FAILED: noise" in capsys.readouterr().out
    assert nightly.main(["nothing"]) == 2
