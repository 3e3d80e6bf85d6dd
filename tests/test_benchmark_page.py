"""docs/benchmarks.md says of each section when it was measured, and which are of other code."""

import pytest
from benchmarks import intervals, report
from benchmarks.report import Report, digest


def test_a_section_of_other_code_is_shown_as_stale_until_it_is_measured_again(
    tmp_path, monkeypatch
):
    page, codes = tmp_path / "page.md", iter(["a" * 12, "b" * 12, "b" * 12])
    monkeypatch.setattr(report, "digest", lambda: next(codes))
    first = Report()
    first.add("Utility", "energy", 0.9, 0.8)
    first.text("Tables", "| a |")
    first.write(page, whole=True)
    said = page.read_text()
    assert "Stale" not in said
    assert said.count(f"code {'a' * 12}.") == 2
    second = Report()
    second.text("Tables", "| b |")
    second.write(page, whole=False)
    tables = "## Tables\n\nMeasured on"
    utility = "## Utility\n\n**Stale: measured of other code (it was aaaaaaaaaaaa, and is bbbb"
    assert tables in page.read_text()
    assert utility in page.read_text()
    third = Report()
    third.note("Utility", "energy", ".97")
    third.write(page, whole=False)
    assert "Stale" not in page.read_text()
    assert page.read_text().count("Measured on") == 2


def test_a_section_that_does_not_say_is_stale_once(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "digest", lambda: "a" * 12)
    page = tmp_path / "page.md"
    page.write_text("# Measured\n\n## Old\n\n| x |\n")
    for _ in range(2):
        Report().write(page, whole=False)
    assert page.read_text().count("**Stale:") == 1
    assert page.read_text().endswith("\n\n| x |\n")


def test_the_state_is_of_code_and_not_of_what_is_said_about_it(tmp_path):
    room = tmp_path / "noise"
    room.mkdir()
    found = []
    for text in ("x = 1\n", '"""Said."""\n\nx = 1  # why\n', "x = 2\n"):
        (room / "a.py").write_text(text)
        found.append(digest(tmp_path))
    assert found[0] == found[1] != found[2]
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "b.py").write_text("y = 1\n")
    assert digest(tmp_path) == found[2]


def test_a_file_of_measured_cells_makes_the_section_without_fitting_again(tmp_path, monkeypatch):
    file = tmp_path / "cells.json"
    monkeypatch.setattr(intervals, "EPSILONS", (1.0,))
    monkeypatch.setattr(intervals, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(intervals, "FIGURE", tmp_path / "images" / "intervals.png")
    found = intervals.measure(["iris"], 2, file, 1)
    fitted = {name for name, fit in intervals.FITTED.items() if "iris" in fit.tables}
    assert set(found.cells) == {("iris", name, 1.0) for name in fitted}
    assert intervals.Measured.read(file) == found
    monkeypatch.setattr(intervals, "counts_of", lambda *_: pytest.fail("fitted again"))
    assert intervals.measure(["iris"], 2, file, 1) == found
    monkeypatch.setattr(report, "digest", lambda: "b" * 12)
    intervals.main(["--from", str(file)])
    said = (tmp_path / "page.md").read_text()
    assert "Coverage of 95 % intervals of a table (2 fits a cell, delta = 1e-5)" in said
    assert f"Stale: measured of other code (it was {found.code}, and is bbbb" in said
    assert (tmp_path / "images" / "intervals.png").exists()
