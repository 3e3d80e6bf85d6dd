"""The list of commands comes without any of the libraries, and says what the commands say."""

import subprocess
import sys

import pytest

from eigenveil.cli.app import COMMANDS

HEAVY = ("numpy", "scipy", "sklearn", "matplotlib", "sqlalchemy", "pyarrow", "nvflare")


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
    status, out, _ = run(name, "--help")
    assert status == 0
    assert f"eigenveil {name}" in out
    assert "completion" not in out


def test_nothing_at_all_shows_the_help_and_no_error(run):
    status, out, err = run()
    assert status == 2
    assert "simulate-tree" in out
    assert err == ""


def test_every_public_name_is_there():
    import eigenveil

    for name in eigenveil.__all__:
        assert getattr(eigenveil, name).__name__ == name
    assert set(eigenveil.__all__) <= set(dir(eigenveil))
    with pytest.raises(AttributeError, match="no attribute"):
        eigenveil.PrivateICA  # noqa: B018
