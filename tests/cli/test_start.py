"""The list of commands comes without any of the libraries, and says what the commands say."""

import os
import subprocess
import sys

import pytest

from eigenveil.cli import app
from eigenveil.cli.app import COMMANDS
from eigenveil.cli.commands import demo
from eigenveil.errors import DataError
from eigenveil.moments import compiled

HEAVY = ("numpy", "scipy", "sklearn", "matplotlib", "sqlalchemy", "pyarrow")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_need_none_of_the_libraries(word):
    code = (
        "import sys, eigenveil.cli.app as app\n"
        "try: app.main([sys.argv[1]])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_package_itself_needs_none_of_them():
    code = f"import sys, eigenveil; print([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_says_what_the_list_says(name, run):
    command = COMMANDS[name].load(name)
    assert command.help.split("\n\n")[0].replace("\n", " ").strip() == COMMANDS[name].summary
    out = run.done(name, "--help")
    assert f"eigenveil {name}" in out
    assert "completion" not in out


def test_nothing_at_all_shows_the_help_and_no_error(run):
    status, out, err = run()
    assert status == 2
    assert "federate-tree" in out
    assert err == ""


def test_every_public_name_is_there():
    import eigenveil

    for name in eigenveil.__all__:
        assert getattr(eigenveil, name).__name__ == name
    assert set(eigenveil.__all__) <= set(dir(eigenveil))
    with pytest.raises(AttributeError, match="no attribute"):
        eigenveil.PrivateNMF  # noqa: B018


# -- the version, completion of words, and the environment


def test_the_version_says_which_extras_are_here_and_which_are_missing(run, monkeypatch):
    there = {"h5py": "3.0", "eigenveil": "0.1"}

    def version(name):
        if name not in there:
            raise app.importlib.metadata.PackageNotFoundError(name)
        return there[name]

    declared = ['h5py>=3.10; extra == "cells"', "anndata>=0.12 ; extra == 'cells'", "numpy>=2.0",
                "onnx>=1.16; extra == 'onnx'", "pytest; extra == 'dev'"]  # fmt: skip
    monkeypatch.setattr(app.importlib.metadata, "version", version)
    monkeypatch.setattr(app.importlib.metadata, "requires", lambda _: declared)
    assert app.version_text().splitlines() == [
        "eigenveil 0.1",
        f"  loops        {compiled.in_use()}",
        "  cells        h5py 3.0; missing: anndata (pip install 'eigenveil[cells]')",
        "  onnx         missing: onnx (pip install 'eigenveil[onnx]')",
    ]
    status, out, _ = run("--version")
    assert (status, out.splitlines()[0]) == (0, "eigenveil 0.1")


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [("eigenveil re", 1, "report"), ("eigenveil fit --eps", 2, "--epsilon")],
)
def test_a_shell_can_complete_commands_and_options(words, number, expected):
    asked = {"_EIGENVEIL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    code = "from eigenveil.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True
    )
    assert expected in done.stdout.split(), done.stderr


def test_the_environment_stands_for_options_that_are_not_given(run, monkeypatch, tmp_path):
    plan = ("plan", "--rows", 2000, "--features", 3, "--spectrum", "power:1.0", "--fits", 2)
    monkeypatch.setenv("EIGENVEIL_PLAN_EPSILON", "none")
    assert "--epsilon" in run.fails(*plan, status=2)
    monkeypatch.setenv("EIGENVEIL_PLAN_EPSILON", "-3")
    err = run.fails(*plan, status=4)
    assert "-3" in err
    assert "note: --epsilon is set by the environment variable EIGENVEIL_PLAN_EPSILON" in err
    assert "variable" not in run(*plan, "--epsilon", -3)[2]
    monkeypatch.setenv("EIGENVEIL_VERSION", "1")  # of no command
    monkeypatch.setenv("EIGENVEIL_PROOFS_JSON", "1")
    status, out, _ = run("proofs")
    assert (status, out[0]) == (0, "{")
    assert "EIGENVEIL_" not in run("fit", "--help")[1].replace("EIGENVEIL_LEDGER", "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("fit", "rows.csv", "--out", "r"), "whose-rows"),
        (("fit", "--site", "a=rows.csv", "--out", "r"), "whose-rows"),
        (
            ("federate-tree", "--site", "a=rows.csv", "--site", "b=b.csv", "--out", "r"),
            "whose-rows",
        ),
        (("watch", "rows.csv", "--epsilon", 1), "whose-rows"),
        (("study", "new", "r", "--site", "a", "--features", 2), "whose-rows"),
        (
            ("fit", "rows.csv", "--unit", "a", "--one-row-per-person", "--out", "r"),
            "whose-rows-twice",
        ),
    ],
)
def test_a_command_asks_whose_each_row_is(words, code, run, tmp_path, monkeypatch):
    for command in ("FIT", "WATCH", "FEDERATE_TREE", "STUDY_NEW"):
        monkeypatch.delenv(f"EIGENVEIL_{command}_ONE_ROW_PER_PERSON")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    status, _, err = run(*words)
    assert (status, DataError(code, column="'a'").message in err) == (3, True)
    assert not (tmp_path / "r").exists()


def test_the_demonstration_can_be_given_again(tmp_path, monkeypatch, run):
    """Its ledgers are replaced, which heads of them in this user's folder would forbid."""
    folder = tmp_path / "demo"
    fit = ["fit", f"{folder}/rows/north.parquet", "--unit", "patient_id", "--components", "1"]
    places = ["--ledger", f"{folder}/north.ledger", "--out", f"{folder}/result"]
    monkeypatch.setattr(demo, "_commands", lambda _: [[*fit, "--epsilon", "1", *places]])
    for _ in range(2):
        assert run("demo", folder)[0] == 0
    assert (folder / "result").is_dir()
