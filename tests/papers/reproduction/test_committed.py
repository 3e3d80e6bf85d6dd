"""What was measured is judged and drawn anew from its files alone, those of the repository too."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from legible import faults, legible

from eigenveil_papers.reproduction import page, results
from eigenveil_papers.reproduction.data import Source
from eigenveil_papers.reproduction.experiment import RunSettings

MEASURED = Path(__file__).parents[3] / "docs/images/reproduction"
COMMITTED = sorted(path.name.removesuffix(results.RUNS) for path in MEASURED.glob("*.runs.csv.gz"))


def read(name, folder):
    """Every run, the settings, and what is told of them."""
    stored = json.loads((folder / f"{name}{results.CLAIMS}").read_text())
    settings = RunSettings(
        scale=stored["scale"],
        data=stored["data"],
        runs=stored["repetitions"],
        sources=tuple(Source.of(each) for each in stored["sources"]),
    )
    return results.read_runs(folder / f"{name}{results.RUNS}"), settings, stored


def judged(name, folder):
    """The claims that follow from every run, and those that are told, as JSON has them."""
    numbers, settings, stored = read(name, folder)
    claims = page.EXPERIMENTS[name].claims(numbers, settings)
    return json.loads(json.dumps([asdict(claim) for claim in claims])), stored["claims"]


@pytest.mark.parametrize("name", COMMITTED)
def test_the_verdicts_of_the_pages_follow_from_the_numbers_beside_them(name):
    found, told = judged(name, MEASURED)
    assert found == told


@pytest.mark.parametrize("name", COMMITTED)
def test_nothing_beside_the_repository_is_needed_to_judge_and_to_tell_the_rows(name):
    """Every claim has its points, the authors' curves too; rows are told of what was measured."""
    _, settings, stored = read(name, MEASURED)
    assert not [c["statement"] for c in stored["claims"] if "not measured" in c["measured"]]
    rows = {given.what: given.here for given in page.EXPERIMENTS[name].given(settings)}
    told = {given["what"]: given["here"] for given in stored["given"]}
    assert {what for what in told if what.startswith("rows of ")} <= rows.keys()
    assert all(told[what] == here for what, here in rows.items() if what.startswith("rows of "))


@pytest.mark.parametrize("name", COMMITTED)
def test_the_words_of_the_pictures_can_be_read_at_the_width_of_a_page(name):
    numbers, settings, _ = read(name, MEASURED)
    drawn = page.EXPERIMENTS[name].draw(numbers, settings)
    assert legible(drawn)
    assert not faults(drawn)


def test_all_runs_of_the_pages_are_few_bytes():
    assert sum(path.stat().st_size for path in MEASURED.glob("*.runs.csv.gz")) < 5_000_000


def test_rows_that_are_gone_are_not_needed_and_a_changed_number_is_seen(tmp_path, undrawn):
    rng = np.random.default_rng(4)
    rows, out, name = tmp_path / "rows", tmp_path / "out", "000-fig2"
    rows.mkdir()
    np.savez(rows / "covtype.npz", X=rng.standard_normal((400, 54)), y=np.arange(400) % 7)
    experiment = page.EXPERIMENTS[name]
    settings = RunSettings(scale="toy", data="covtype", folder=rows, runs=2)
    files = [path for path in results.make(experiment, settings, out=out).files if path.is_file()]
    first = {path.name: path.read_bytes() for path in files}
    shutil.rmtree(rows)
    results.redraw(experiment, RunSettings(), out=out)
    assert {path.name: path.read_bytes() for path in files} == first
    numbers = results.read_runs(out / f"{name}{results.RUNS}")
    changed = [row._replace(value=row.value / 2 + row.run / 10) for row in numbers.measured]
    results.write_runs(type(numbers)(changed), out / f"{name}{results.RUNS}")
    found, told = judged(name, out)
    assert found != told
