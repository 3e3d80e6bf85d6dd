"""From a file of one's own to a report, by the five commands that the README prints."""

import re
from pathlib import Path

import numpy as np

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def visits(file):
    """German visits of persons, as a spreadsheet program writes them."""
    rng = np.random.default_rng(0)
    persons = np.repeat(np.arange(10_001, 13_001), 2)
    values = 50 + 9 * rng.normal(size=(6_000, 2)) @ rng.normal(size=(2, 6))
    values += rng.normal(size=values.shape)
    lines = [
        ";".join([str(person), *(f"{value:.1f}".replace(".", ",") for value in row)])
        for person, row in zip(persons, values, strict=True)
    ]
    names = "Patienten-Nr;Größe;Gewicht;Puls;RR_syst;RR_diast;HbA1c"
    file.write_text("\n".join([names, *lines]) + "\n", encoding="latin-1")


def test_five_commands_lead_from_a_german_table_to_a_report(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "besuche.csv")
    read = ("--encoding", "latin-1")
    status, _, err = run("fit", "besuche.csv", *read, "--scale", "private", "--out", "result")
    assert (status, "Patienten-Nr" in err) == (3, True), "whose each row is has to be said"
    walk = (
        ("plan", "--rows", 3000, "--features", 6, "--components", 2, "--epsilon", 3),
        ("fit", "besuche.csv", *read, "--unit", "Patienten-Nr", "--scale", "private",
         "--components", 2, "--epsilon", 3, "--out", "result"),
        ("certify", "result"),
        ("report", "result"),
        ("transform", "result", "besuche.csv", *read, "--out", "scores.csv"),
    )  # fmt: skip
    for words in walk:
        status, _, err = run(*words)
        assert status == 0, err
        assert re.search(rf"^eigenveil {words[0]} ", README, re.MULTILINE), "not in the README"
    page = (tmp_path / "result" / "report.html").read_text("utf-8")
    assert "one 'Patienten-Nr'" in page.replace("&#x27;", "'").replace("&#39;", "'")
    assert "Größe" in page
    assert (tmp_path / "scores.csv").read_text("utf-8").startswith('"Patienten-Nr",')
