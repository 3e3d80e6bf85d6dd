"""The console's processes: what each loads, how runs live and end, and what the command refuses."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from console_tools import Visitor, put_run

import eigenveil.console.running as running
import eigenveil.console.runs as console_runs
import eigenveil.console.workers as workers
from eigenveil.cli.app import main
from eigenveil.console.runs import Runs
from eigenveil.console.settings import Rows
from eigenveil.console.workers import DeskProcess, answer
from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.ledger.ledger import Ledger
from refusal_tools import refuses

HEAVY = ("numpy", "scipy", "sklearn", "pyarrow", "matplotlib", "authlib")


def test_its_own_process_loads_no_numerical_library(tmp_path):
    """Nor while desks answer it, and what they raise arrives."""
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    code = f"""if __name__ == "__main__":
    import asyncio, sys
    import eigenveil.console.app, eigenveil.console.command
    from eigenveil.console.settings import Rows
    from eigenveil.console.workers import DeskProcess
    from eigenveil.errors import EigenveilError
    async def run():
        desk = DeskProcess("table", Rows(data=({str(table)!r},), ledger={str(tmp_path / "l")!r}))
        assert (await desk.ask("table"))["columns"] == ["a", "b"]
        await desk.ask("point", kind="pca", given={{}}, rows=100, epsilon=1.0)
        try:
            await desk.ask("check", kind="pca", given={{"epsilon": "much"}})
        except EigenveilError as error:
            print(type(error).__name__, "epsilon" in error.message)
        await desk.close()
    asyncio.run(run())
    print([m for m in {HEAVY} if m in sys.modules])
"""
    file = tmp_path / "own.py"  # what is spawned reads the main module again
    file.write_text(code)
    found = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.stdout.split("\n")[:2] == ["PrivacyError True", "[]"], found.stderr


# -- desks


class OddDesk:
    def __init__(self, rows):
        del rows

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(1)

    def wait(self, seconds):
        time.sleep(seconds)
        return seconds

    def odd(self):
        raise ZeroDivisionError

    def away(self):
        raise FileNotFoundError(2, "No such file", "t.csv")

    def nan(self):
        return float("nan")


@pytest.fixture
def odd(monkeypatch):
    monkeypatch.setitem(workers._DESKS, "odd", f"{__name__}:OddDesk")
    return DeskProcess("odd", Rows())


def test_what_a_desk_raises_is_of_the_packages_own(odd):
    for method, kind, code in (
        ("odd", EigenveilError, "unexpected"),
        ("away", OutputError, "cannot-read"),
        ("nan", EigenveilError, "unexpected"),
        ("none", EigenveilError, "unexpected"),
    ):
        with pytest.raises(kind) as raised:
            answer("odd", Rows(), method, {})
        assert (type(raised.value), raised.value.code) == (kind, code)


@pytest.fixture
def spawned(monkeypatch):
    from multiprocessing import get_context

    monkeypatch.setattr(workers, "get_context", lambda _: get_context("fork"))


@pytest.mark.usefixtures("spawned")
def test_a_desk_that_dies_is_said_and_another_takes_its_place(odd):
    async def run():
        first = await odd.ask("pid")
        with refuses("desk-lost", kind=OutputError):
            await odd.ask("die")
        assert await odd.ask("pid") not in (first, os.getpid())
        await odd.close()

    asyncio.run(run())


@pytest.mark.usefixtures("spawned")
def test_who_gives_a_question_up_does_not_end_what_others_wait_for(odd):
    async def run():
        first = await odd.ask("pid")
        given_up = asyncio.create_task(odd.ask("wait", seconds=0.5))
        await asyncio.sleep(0.1)
        other = asyncio.create_task(odd.ask("wait", seconds=0.1))
        given_up.cancel()
        assert await other == 0.1
        assert await odd.ask("pid") == first
        await odd.close()

    asyncio.run(run())


@pytest.mark.usefixtures("spawned")
def test_a_desk_that_does_not_answer_is_ended(odd, monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE", 0.5)

    async def run():
        pid = await odd.ask("pid")
        with pytest.raises(OutputError):
            await odd.ask("wait", seconds=600)
        until = time.monotonic() + 20
        while lives(pid) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert not lives(pid)
        await odd.close()

    asyncio.run(run())


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


# -- runs


@pytest.fixture
def table(tmp_path):
    values = np.random.default_rng(0).normal(size=(500, 4))
    file = tmp_path / "t.csv"
    np.savetxt(file, values, delimiter=",", header="a,b,c,d", comments="")
    return Rows(data=(str(file),), ledger=str(tmp_path / "t.ledger"))


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


def start(runs, rows, kind="pca", **given):
    asked = {"kind": kind, "given": {"epsilon": "5", **given}}
    return runs.start("fit", "A fit", rows=rows, asked=asked, who="ann")


def when(runs, run, holds):
    until = time.monotonic() + 120
    while not holds(found := runs.named(run.name)):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def begun(runs, run):
    return when(runs, run, lambda now: now.told("began"))


def ended(runs, run):
    return when(runs, run, lambda now: now.state != "running")


@pytest.fixture
def inside(monkeypatch):
    """Runs are done in this process, and have ended once they are started."""

    def run(words, *, stdout, **_):
        running.main(Path(words[-1]), running.Events(os.dup(stdout.fileno())))
        return subprocess.Popen(["true"])

    monkeypatch.setattr(console_runs, "subprocess", SimpleNamespace(Popen=run, DEVNULL=None))


@pytest.mark.parametrize(
    ("kind", "given"),
    [("pca", {}), ("pca:stream", {"block_size": "100", "publish": "blocks"}), ("pca:stream", {})],
)
def test_a_run_tells_events_and_leaves_a_result(runs, table, kind, given, request):
    """The first as a process of its own."""
    if kind != "pca":
        request.getfixturevalue("inside")
    run = start(runs, table, kind, **given)
    assert kind != "pca" or run.state == "running"
    found = ended(runs, run)
    assert found.state == "finished", found.events
    assert (runs.result(found) / "certificate.json").is_file()
    assert "Methods, to paste" in (runs.result(found) / "report.html").read_text("utf-8")
    assert any(each["count"] == 500 for each in found.told("advanced"))
    assert found.ended >= found.begun
    (standing,) = Ledger(table.ledger).standings()
    assert standing.spent_epsilon > 0
    assert not [each for each in Ledger(table.ledger).sessions() if each.is_open]
    assert runs.all()[0].name == run.name


@pytest.mark.usefixtures("inside")
def test_a_run_that_cannot_be_says_why_and_charges_nothing(runs, table):
    run = start(runs, Rows(data=("no-such.csv",), ledger=table.ledger))
    (failed,) = run.told("failed")
    assert failed["code"]
    assert "no-such.csv" in failed["message"]
    assert runs.result(run) is None
    assert not Path(table.ledger).exists()


def test_a_run_is_stopped_as_by_a_key(runs, tmp_path):
    """Also where the console ignores the key."""
    file = tmp_path / "slow.csv"
    file.write_text("a,b,c,d\n" + "1,2,3,4\n" * 3_000_000)
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = begun(runs, start(runs, Rows(data=(str(file),), ledger=str(tmp_path / "l"))))
    finally:
        signal.signal(signal.SIGINT, usual)
    runs.stop(run)
    found = ended(runs, run)
    assert found.state == "stopped"
    assert runs.result(run) is None
    assert not list((runs.folder / run.name).glob("*result*"))
    runs.stop(found)  # there is nothing to stop


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """Runs begin and do nothing."""
    script = tmp_path / "endless"
    began = '{"event": "began", "time": 1, "process": %d}\\n'
    script.write_text(f"#!/bin/sh\nprintf '{began}' $$\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.usefixtures("endless")
def test_a_run_outlives_the_console_and_is_lost_where_it_is_killed(tmp_path, table, monkeypatch):
    visitor = Visitor(tmp_path)
    runs = visitor.console.runs
    run = begun(runs, start(runs, table))
    later = Runs(runs.folder)  # a console that was started again
    assert later.named(run.name).state == "running"
    assert console_runs.MOST_RUNNING < 10
    monkeypatch.setattr(console_runs, "MOST_RUNNING", 1)
    with refuses("too-many-runs", kind=OutputError):
        start(later, table)
    (began,) = run.told("began")
    os.kill(began["process"], signal.SIGKILL)
    assert ended(later, run).state == "lost"
    page = visitor.browser("ann").get(f"/runs/{run.name}")
    assert "ended without a word" in page.text


def test_runs_have_names_of_their_own_and_broken_ones_are_not_shown(runs):
    (runs.folder / "20300101000000-0badcafe").mkdir()
    (runs.folder / "20300101000000-0badcafe" / "run.json").write_text("{")
    assert runs.all() == []
    whole = put_run(SimpleNamespace(console=SimpleNamespace(runs=runs)), number=1)
    (runs.folder / whole.name).rename(runs.folder.parent / "whole")
    for name in ("20300101000000-0badcafe", "..", "../whole", "", "x" * 500):
        with pytest.raises(DataError):
            runs.named(name)


# -- the command


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--data", "t.csv", "--party", "k"), 3),
        (("--data", "t.csv", "--tables", "t"), 3),
        (("--party", "no-such-party"), 7),
        (("--data", "t.csv", "--tls-cert", "c.pem"), 3),
        (("--data", "t.csv", "--oidc", "https://login.example.org"), 3),
        (("--data", "t.csv", "--proxy-header", "X-User", "--proxy-address", "::1"), 3),
        (("--data", "t.csv", "--proxy-header", "X-User", "--oidc", "https://a.example"), 3),
    ],
)
def test_what_cannot_be_served_is_refused(words, status, tmp_path):
    with refuses(status, kind=SystemExit):
        main(["console", *words, "--state", str(tmp_path / "state")])
