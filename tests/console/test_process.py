"""The console as a process: what it loads, how it starts, and what its command refuses."""

import json
import os
import subprocess
import sys

import pytest
from console_tools import Visitor

from eigenveil.cli.app import main
from eigenveil.console.desk.serve import first_line
from eigenveil.console.settings import Rows


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main(["console", *words])
    return ended.value.code


def test_its_own_process_loads_no_numerical_library():
    code = (
        "import sys, eigenveil.console.app, eigenveil.console.serving, eigenveil.console.command\n"
        "import eigenveil.console.desk.serve\n"
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'sqlalchemy', 'authlib') "
        "if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.strip() == "[]"


def test_the_process_beside_it_answers_lines(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    rows = Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger"))
    asked = [first_line("table", rows)]
    asked += [json.dumps({"number": 1, "method": "table", "arguments": {}})]
    asked += [json.dumps({"number": 2, "method": "result", "arguments": {"folder": "none"}})]
    found = subprocess.run(
        [sys.executable, "-m", "eigenveil.console.desk.serve"],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    first, second = (json.loads(line) for line in found.stdout.splitlines())
    assert first["found"]["columns"] == ["a", "b"]
    assert second["error"]["kind"] == "OutputError"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 3),
        (("--data", "t.csv", "--party", "k"), 3),
        (("--party", "no-such-party"), 7),
        (("--data", "t.csv", "--host", "0.0.0.0"), 3),
        (("--data", "t.csv", "--tls-cert", "c.pem"), 3),
        (("--data", "t.csv", "--oidc", "https://login.example.org"), 3),
        (("--data", "t.csv", "--proxy-header", "X-User"), 3),
        (("--data", "t.csv", "--proxy-header", "X-User", "--proxy-address", "::1"), 3),
        (("--data", "t.csv", "--proxy-header", "X-User", "--oidc", "https://a.example"), 3),
    ],
)
def test_what_cannot_be_served_is_refused(words, status, tmp_path):
    assert command(*words, "--state", str(tmp_path / "state")) == status


def test_a_stopped_run_is_not_taken_for_one_that_goes_on(tmp_path):
    found = Visitor(tmp_path)
    place = found.console.jobs.folder / "20300101000000-0badcafe"
    place.mkdir()
    fields = {"name": place.name, "kind": "fit", "title": "t", "words": [], "who": "ann",
              "begun": 0.0, "process": 2**22 + 1}  # fmt: skip
    (place / "job.json").write_text(json.dumps(fields))
    assert found.console.jobs.named(place.name).state == "lost"
    (place / "result").mkdir()  # it ended well while no console was there
    assert found.console.jobs.named(place.name).state == "finished"
