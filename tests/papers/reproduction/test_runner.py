"""Runs that are stopped, killed, damaged or wrong, and the numbers that come of them."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from toy_experiment import EPSILONS, LATER, TOY, TRACE, TROUBLE, threads_of_linear_algebra

from eigenveil.errors import DataError, OutputError, PrivacyError
from eigenveil_papers.reproduction import journal, results, runner
from eigenveil_papers.reproduction.experiment import RunSettings, RunTask
from eigenveil_papers.reproduction.numbers import Measured, Numbers

TOYS = RunSettings(scale="toy")


def run(out, settings=TOYS, **options):
    return runner.run(TOY, settings, out=out, **options)


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Says how many tasks were really done."""
    path = tmp_path / "trace"
    monkeypatch.setenv(TRACE, str(path))
    return lambda: path.read_text().splitlines() if path.exists() else []


def journal_of(out):
    return runner.journal_path(TOY.name, out)


def test_numbers_come_in_the_order_of_the_tasks_with_their_runs(tmp_path):
    found = run(tmp_path / "new" / "out")
    assert found.panels == ("good", "bad")
    assert found.series("good") == ("eigenveil", "capepca")
    assert found.curve("good", "capepca").x.tolist() == list(EPSILONS)
    assert found.curve("good", "capepca").runs.tolist() == [2, 2, 2]
    assert {row.run for row in found.measured} == {0, 1}
    assert len(set(found.points("good", "eigenveil")[:, 1])) == 6  # each run has its own numbers


def test_long_tasks_come_first(tmp_path, trace):
    run(tmp_path / "out", RunSettings(scale="toy", runs=3))
    lines = journal_of(tmp_path / "out").read_text().splitlines()[1:]
    costs = {task.key: task.cost for task in TOY.tasks(RunSettings(scale="toy", runs=3))}
    assert [costs[json.loads(line)["key"]] for line in lines] == [3.0, 3.0, 2.0, 2.0, 1.0, 1.0]


def test_processes_give_the_same_numbers_and_what_must_be_alone_is_done_here_at_last(
    tmp_path, trace
):
    def tasks(settings):
        return [
            replace(task, alone=task.arguments["data"] == "good") for task in TOY.tasks(settings)
        ]

    plain = run(tmp_path / "plain")
    before = len(trace())
    alone = runner.run(replace(TOY, tasks=tasks), TOYS, out=tmp_path / "alone", jobs=2)
    assert repr(alone.measured) == repr(plain.measured)
    done = [line.split() for line in trace()[before:]]
    assert [name for name, _ in done] == ["bad", "bad", "good", "good"]
    assert [process == str(os.getpid()) for _, process in done] == [False, False, True, True]


def test_what_is_done_is_not_done_again_and_more_runs_only_add(tmp_path, trace):
    first = run(tmp_path)
    assert len(trace()) == 4
    assert repr(run(tmp_path).measured) == repr(first.measured)
    assert len(trace()) == 4
    more = run(tmp_path, RunSettings(scale="toy", runs=3))
    assert len(trace()) == 6
    assert set(map(repr, first.measured)) <= set(map(repr, more.measured))
    run(tmp_path, restart=True)
    assert len(trace()) == 10


def test_a_torn_last_line_is_dropped_wherever_it_is_torn(tmp_path, trace):
    whole = run(tmp_path)
    content = journal_of(tmp_path).read_bytes()
    ends = [at for at, byte in enumerate(content) if byte == ord("\n")]
    for cut in (ends[-2] + 2, ends[-1] - 1, ends[-1]):
        journal_of(tmp_path).write_bytes(content[:cut])
        before = len(trace())
        assert repr(run(tmp_path).measured) == repr(whole.measured)
        assert len(trace()) == before + 1
        assert len(journal_of(tmp_path).read_text().splitlines()) == 5
    journal_of(tmp_path).write_bytes(content[: ends[0] - 3])  # not even the first line is whole
    assert repr(run(tmp_path).measured) == repr(whole.measured)


def test_a_damaged_line_is_measured_again(tmp_path, trace):
    whole = run(tmp_path)
    lines = journal_of(tmp_path).read_text().splitlines()
    lines[2] = '{"key": 3}'
    lines[3] = "###"
    journal_of(tmp_path).write_text("\n".join(lines) + "\n")
    notes = []
    found = run(tmp_path, progress=lambda step: notes.append(step.note))
    assert repr(found.measured) == repr(whole.measured)
    assert len(trace()) == 6
    assert "left out" in notes[0]


@pytest.mark.parametrize("what", ["code", "scale", "eigenveil"])
def test_numbers_of_other_code_are_set_aside(tmp_path, trace, what):
    run(tmp_path)
    lines = journal_of(tmp_path).read_text().splitlines()
    header = json.loads(lines[0])
    lines[0] = json.dumps({**header, what: "other"})
    journal_of(tmp_path).write_text("\n".join(lines) + "\n")
    notes = []
    run(tmp_path, progress=lambda step: notes.append(step.note))
    assert len(trace()) == 8
    assert "measured anew" in notes[0]
    aside = tmp_path / "000-toy.journal-aside.jsonl"
    assert aside.read_text().splitlines() == lines
    assert json.loads(journal_of(tmp_path).read_text().splitlines()[0]) == header


def test_the_code_digest_sees_the_modules_that_have_a_say(tmp_path, monkeypatch):
    package = tmp_path / "package"
    for name in ("linalg/eigen", "cli/fit", "reproduction/figure", "reproduction/paper001"):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    (package / "reproduction" / "paper000.py").write_text("from .paper000_more import work\n")
    (package / "reproduction" / "paper000_more.py").write_text("def work(rng): ...\n")
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(journal.eigenveil, "__path__", [str(package)])
    monkeypatch.setattr(journal.eigenveil_papers, "__path__", [str(package)])
    monkeypatch.setattr(
        journal.inspect, "getfile", lambda _: str(package / "reproduction" / "paper000.py")
    )
    tasks = TOY.tasks(TOYS)

    def digest():
        return journal.header(TOY, TOYS, tasks)["code"]

    before = digest()
    for silent in ("cli/fit", "reproduction/figure", "reproduction/paper001"):
        (package / f"{silent}.py").write_text("x = 2\n")
        assert digest() == before, silent
    for telling in ("linalg/eigen", "reproduction/paper000_more", "reproduction/paper000"):
        path = package / f"{telling}.py"
        path.write_text(path.read_text() + "# changed\n")
        assert digest() != before, telling
        before = digest()


def test_a_defect_names_its_task_and_keeps_what_is_done(tmp_path, monkeypatch, trace):
    monkeypatch.setenv(TROUBLE, "defect")
    with pytest.raises(runner.TaskError, match=r'awkward\(\{"data": "good"\}\), run 0: ZeroDiv'):
        run(tmp_path)
    kept = len(journal_of(tmp_path).read_text().splitlines()) - 1
    assert kept >= 2  # the failing task is the last one
    monkeypatch.delenv(TROUBLE)
    before = len(trace())
    run(tmp_path)
    assert len(trace()) == before + 4 - kept


def test_an_error_of_the_package_passes_through(tmp_path, monkeypatch):
    monkeypatch.setenv(TROUBLE, "error")
    with pytest.raises(PrivacyError, match="Not so") as raised:
        run(tmp_path)
    sent = pickle.loads(pickle.dumps(raised.value))  # as it comes from another process
    for error in (raised.value, sent):
        assert (error.message, error.hint, error.code) == (
            "Not so.",
            "Otherwise.",
            "hopeless-noise",
        )
        assert "awkward" in error.__notes__[0]


def test_a_process_that_is_killed_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(TROUBLE, "killed")
    with pytest.raises(runner.TaskError, match="memory"):
        run(tmp_path, jobs=2)


SCRIPT = """
import sys
from pathlib import Path
from toy_experiment import TOY
from eigenveil_papers.reproduction import runner
from eigenveil_papers.reproduction.experiment import RunSettings

if __name__ == "__main__":
    runner.run(TOY, RunSettings(scale="toy", runs=4), out=Path(sys.argv[1]), jobs=int(sys.argv[2]))
"""


def started(tmp_path, out, jobs):
    """A run in a process of its own, which has finished two tasks or more."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        LATER: "yes",
        TRACE: str(tmp_path / "trace"),
    }
    process = subprocess.Popen(
        [sys.executable, script, out, str(jobs)], env=environment, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        path = journal_of(out)
        if path.exists() and path.read_bytes().count(b"\n") >= 3:
            return process
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("the run did nothing")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a process whose parent is gone may wait to be collected
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.parametrize(
    ("how", "jobs"), [("SIGKILL", 2), pytest.param("SIGINT", 2, marks=pytest.mark.thorough)]
)
def test_a_run_that_was_killed_midway_goes_on_to_the_same_numbers(tmp_path, how, jobs):
    out = tmp_path / "out"
    process = started(tmp_path, out, jobs)
    process.send_signal(getattr(signal, how))
    process.wait(30)
    process.stderr.close()
    done = journal_of(out).read_bytes().count(b"\n") - 1
    assert 2 <= done < 8
    workers = {int(line.split()[1]) for line in (tmp_path / "trace").read_text().splitlines()}
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers), "processes outlive the run"
    settings = RunSettings(scale="toy", runs=4)
    steps = []
    found = run(out, settings, progress=steps.append)
    assert steps[0].done == done
    assert repr(found.measured) == repr(run(tmp_path / "whole", settings).measured)


def test_two_runs_do_not_write_one_journal(tmp_path):
    tasks = TOY.tasks(TOYS)
    with (
        journal.RunJournal(journal_of(tmp_path), journal.header(TOY, TOYS, tasks)),
        pytest.raises(OutputError, match="another run"),
    ):
        run(tmp_path)
    run(tmp_path)


def test_a_folder_that_cannot_be_one_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        run(tmp_path / "file" / "out")
    journal_of(tmp_path).mkdir()
    with pytest.raises(OutputError, match="journal"):
        run(tmp_path)


def test_progress_counts_tasks(tmp_path):
    steps = []
    run(tmp_path, progress=steps.append)
    assert [step.done for step in steps] == [0, 1, 2, 3, 4]
    assert {step.total for step in steps} == {4}


def test_a_data_set_that_the_experiment_has_not_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no data set 'mnist'. Those known are good, bad"):
        run(tmp_path, RunSettings(data="mnist"))


def test_two_equal_tasks_are_a_defect(tmp_path):
    twice = type(TOY)(**{**vars(TOY), "tasks": lambda settings: TOY.tasks(settings)[:1] * 2})
    with pytest.raises(ValueError, match="same arguments"):
        runner.run(twice, TOYS, out=tmp_path)


def test_a_tasks_key_names_what_is_done_and_not_where_files_are():
    def key(run=0, **arguments):
        return RunTask(TOY.tasks, arguments, run).key

    one = {"name": "mnist", "path": "/a/mnist.npz", "digest": "12"}
    assert key(source=one) == key(source={**one, "path": "/b/mnist.npz"})
    assert key(source=one) != key(source={**one, "digest": "13"})
    assert key(sources=[one]) == key(sources=[{**one, "path": ""}])
    assert key(path="/a") != key(path="/b")  # not a file that is named by a digest
    assert key(run=0) != key(run=1)
    assert key(a=(1, 2)) == key(a=[1, 2])


def test_results_are_read_back_and_redrawn_alike(tmp_path):
    one = results.make(TOY, TOYS, out=tmp_path / "one")
    names = [path.name for path in one.files]
    assert names == [f"000-toy{end}" for end in (".png", ".svg", ".csv", ".runs.csv.gz", ".json")]
    before = {path: path.read_bytes() for path in one.files}
    again = results.redraw(TOY, RunSettings(), out=tmp_path / "one")
    assert repr(again.numbers.measured) == repr(one.numbers.measured)
    assert before == {path: path.read_bytes() for path in one.files}
    with pytest.MonkeyPatch.context() as patch:  # other tasks: other data, say
        patch.setenv("TOY_TROUBLE", "other")
        with pytest.raises(OutputError, match="other data or settings"):
            results.redraw(TOY, RunSettings(), out=tmp_path / "one")
    with pytest.raises(OutputError, match="without --redraw"):
        results.redraw(TOY, TOYS, out=tmp_path)


def test_tables_say_means_errors_and_every_run(tmp_path):
    numbers = Numbers(
        [
            Measured('a "b", c', "s", 0.1, 1.0, 0),
            Measured('a "b", c', "s", 0.1, 2.0, 1),
            Measured('a "b", c', "s", 1e-7, float("nan"), 1),
            Measured("p", "nan", 0.1 + 0.2, 1 / 3, 0),
        ]
    )
    results.write_means(numbers, tmp_path / "means.csv")
    lines = (tmp_path / "means.csv").read_text().splitlines()
    assert lines[0] == '"panel","series","x","mean","standard_error","deviation","runs"'
    assert lines[1] == f'"a ""b"", c","s",0.1,1.5,0.5,{0.5**0.5},2'
    results.write_runs(numbers, tmp_path / "runs.csv.gz")
    assert repr(results.read_runs(tmp_path / "runs.csv.gz").measured) == repr(numbers.measured)
    results.write_runs(Numbers(), tmp_path / "none.csv.gz")
    assert results.read_runs(tmp_path / "none.csv.gz").measured == ()


def test_processes_have_one_thread_each_without_a_task_that_says_so():
    with runner.processes(1) as pool:
        assert pool.submit(threads_of_linear_algebra).result() == 1
        assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
