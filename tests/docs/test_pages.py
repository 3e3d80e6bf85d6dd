"""What the pages print: commands and options that exist, and snippets that run."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eigenveil.cli.app import all_commands

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/[cst]*/*.md")),  # concepts, start, tutorials
]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@functools.cache
def _options() -> dict[tuple[str, ...], frozenset[str]]:
    """The options of each command, by the words that call it."""
    found: dict[tuple[str, ...], frozenset[str]] = {}

    def walk(words: tuple[str, ...], command: object) -> None:
        children = getattr(command, "commands", None)
        for name, child in (children or {}).items():
            walk((*words, name), child)
        if children and not command.invoke_without_command:
            return
        flags = {"--help", "--debug"}
        for each in command.params:
            flags.update(each.opts, each.secondary_opts)
        found[words] = frozenset(flags)

    for name, command in all_commands().items():
        walk((name,), command.load(name))
    return found


def _commands(text: str) -> list[list[str]]:
    """The calls of eigenveil in a page's blocks, as words without comments."""
    calls = []
    for language, body in BLOCK.findall(text):
        if language in ("python", "toml", "json", "csv"):
            continue
        for line in body.replace("\\\n", " ").splitlines():
            line = re.sub(r"^\$ ", "", line.strip())
            if re.match(r"eigenveil [a-z][a-z-]*( |$)", line) and ": error" not in line:
                try:
                    calls.append(shlex.split(line, comments=True)[1:])
                except ValueError:
                    continue  # output that has a quote of its own
    return calls


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist_with_their_options(page):
    known = _options()
    for words in _commands(page.read_text("utf-8")):
        name = next((tuple(words[:n]) for n in (3, 2, 1) if tuple(words[:n]) in known), None)
        group = any(each[: len(words)] == tuple(words[: len(each)]) for each in known)
        if name is None and group:
            continue  # a group by itself
        assert name is not None, f"eigenveil {shlex.join(words)}"
        for word in words:
            flag = word.partition("=")[0]
            if re.fullmatch(r"--[a-z][a-z-]*", flag):
                assert flag in known[name], f"{flag} of eigenveil {shlex.join(words)}"


def test_a_command_that_does_not_exist_is_found():
    block = "```\neigenveil fit x.csv --epsilom 1\n```\n"
    [words] = _commands(block)
    assert "--epsilom" not in _options()["fit",]
    assert words == ["fit", "x.csv", "--epsilom", "1"]


def test_the_readme_runs_as_it_is_printed(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    snippet = next(body for language, body in BLOCK.findall(text) if language == "python")
    ended = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "differentially private" in ended.stdout
    assert (tmp_path / "model.npz").exists()
