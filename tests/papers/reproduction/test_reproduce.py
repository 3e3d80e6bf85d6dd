"""``eigenveil reproduce`` on a toy: what it prints and writes, and what is refused."""

import json
from pathlib import Path

import pytest
from toy_experiment import TOY, TROUBLE

from eigenveil_papers.reproduction import page, runner

FILES = {f"000-toy{end}" for end in (".png", ".svg", ".csv", ".runs.csv.gz", ".json")}


@pytest.fixture(autouse=True)
def _toys_only(monkeypatch):
    monkeypatch.setattr(page, "EXPERIMENTS", {TOY.name: TOY})


@pytest.fixture
def reproduce(run, tmp_path):
    def call(*words, jobs=1):
        return run("reproduce", *words, "--toy", "--jobs", jobs, "--out", tmp_path / "out")

    return call


def test_the_list_says_names_data_and_time(run):
    status, printed, err = run("reproduce", "list", "--fast", "--jobs", 2)
    assert (status, err) == (0, "")
    assert "fast scale, 2 processes" in printed
    for words in ("000-toy", "Utility of a toy", "good, bad", "21 s"):
        assert words in printed, words
    assert run("reproduce", "--fast", "--jobs", 2) == (status, printed, err)
    listed = json.loads(run("reproduce", "list", "--json")[1])
    assert listed[0]["name"] == "000-toy"
    assert listed[0]["data"] == {"good": True, "bad": True}


def test_a_run_writes_figures_numbers_and_verdicts(tmp_path, reproduce):
    status, printed, err = reproduce("000-toy")
    assert status == 0
    assert err.startswith("[1/1] 000-toy: 4 tasks, ")
    said = " ".join(printed.split())
    for words in (
        "000-toy: Utility of a toy",
        "The paper's 1 claims about it, by positions: contradicted at 1.",
        "000-toy: ours is better shown at 1 of 1 positions",
        "000-toy (.png, .svg, .csv, .runs.csv.gz, .json)",
    ):
        assert words in said, words
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*FILES, "000-toy.journal.jsonl"}
    again = reproduce("all")
    assert "4 tasks, 4 of them earlier" in again[2]
    assert again[1] == printed


@pytest.mark.usefixtures("undrawn")
def test_json_and_quiet(tmp_path, reproduce):
    status, printed, err = reproduce("all", "--json")
    assert (status, err) == (0, "")
    (found,) = json.loads(printed)
    assert {Path(path).name for path in found["files"]} == FILES
    assert found["claims"][0]["verdict"]["contradicted"] == 1
    assert reproduce("all", "--quiet") == (0, "", "")


@pytest.mark.usefixtures("undrawn")
def test_one_data_set_and_a_number_of_runs(tmp_path, reproduce):
    reproduce("all", "--data", "bad", "--runs", 3)
    rows = (tmp_path / "out" / "000-toy.csv").read_text().splitlines()[1:]
    assert {row.split(",")[0] for row in rows} == {'"bad"'}
    assert {row.split(",")[-1] for row in rows} == {"3"}


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_written_with_it_and_redrawn_without_measuring(tmp_path, reproduce, monkeypatch):
    target = tmp_path / "page.md"
    assert f"wrote {target}" in reproduce("all", "--page", target)[1].replace("\n", "")
    text = target.read_text()
    assert "out/000-toy.png" in text
    target.unlink()
    monkeypatch.setattr(runner, "do_task", None)
    (tmp_path / "out" / "000-toy.journal.jsonl").unlink()
    assert reproduce("all", "--redraw", "--page", target)[0] == 0
    assert target.read_text() == text


@pytest.mark.usefixtures("undrawn")
def test_restart_measures_anew(reproduce):
    reproduce("all")
    assert "earlier" not in reproduce("all", "--restart")[2]


@pytest.mark.parametrize(
    ("words", "status", "statement"),
    [
        (["000-tyo"], 2, "Did you mean 000-toy"),
        (["000-toy", "--data", "mnist"], 3, "Those known are good, bad"),
        (["all", "--data", "mnist"], 3, "Those known are good, bad"),
        (["all", "--fast"], 2, "exclude"),
        (["all", "--restart", "--redraw"], 2, "does not measure"),
        (["all", "--redraw"], 7, "without --redraw"),
        (["all", "--page", "none/page.md"], 2, "not a folder"),
        (["all", "--runs", "0"], 2, "--runs"),
    ],
)
def test_what_cannot_be_is_refused(reproduce, words, status, statement):
    found, _, err = reproduce(*words)
    assert (found, statement in " ".join(err.split())) == (status, True), err


@pytest.mark.usefixtures("undrawn")
def test_after_ctrl_c_it_says_how_to_go_on(tmp_path, reproduce, monkeypatch):
    done = runner.do_task

    def interrupted(task):
        if task.run == 0:
            raise KeyboardInterrupt
        return done(task)

    monkeypatch.setattr(runner, "do_task", interrupted)
    status, _, err = reproduce("all")
    assert status == 130
    assert "stopped during 000-toy" in err
    assert "goes on from there" in err
    monkeypatch.setattr(runner, "do_task", done)
    assert "4 tasks, 2 of them earlier" in reproduce("all")[2]


def test_a_defect_of_an_experiment_is_no_traceback(reproduce, monkeypatch):
    monkeypatch.setenv(TROUBLE, "defect")
    status, _, err = reproduce("all")
    assert status == 70
    assert 'awkward({"data": "good"}), run 0: ZeroDivisionError: of the toy' in err
    assert "Traceback" not in err
