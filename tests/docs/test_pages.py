"""What the pages print: commands and options that exist; `make docs` runs it (tests/site)."""

from __future__ import annotations

import ast
import functools
import importlib
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from eigenveil import PrivatePCA
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
        if language.partition(" ")[0] in ("python", "toml", "json", "csv"):
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


def _missing(words: list[str]) -> str:
    """Why the parser refuses a call as it is printed; empty where it does not."""
    name = next((tuple(words[:n]) for n in (3, 2, 1) if tuple(words[:n]) in _options()), ())
    command = all_commands()[name[0]].load(name[0])
    for word in name[1:]:
        command = command.commands[word]
    printed = {"...", "[OPTIONS]"} & set(words) or any(word.endswith("...") for word in words)
    needed = {
        each.opts[0]
        for each in command.params
        if each.required and each.param_type_name == "option"
    }
    given = {word.partition("=")[0] for word in words}
    return "" if printed else ", ".join(sorted(needed - given))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_have_the_options_that_they_need(page):
    for words in _commands(page.read_text("utf-8")):
        if any(tuple(words[:n]) in _options() for n in (1, 2, 3)):
            assert not _missing(words), f"eigenveil {shlex.join(words)}: {_missing(words)}"


NAMED = re.compile(r"`(?:eigenveil\.)?((?:plots|io|eigenveil)\.\w+)[(`]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_of_python_on_a_page_exist(page):
    text = page.read_text("utf-8")
    for name in NAMED.findall(text):
        module, _, attribute = name.partition(".")
        found = importlib.import_module(f"eigenveil.{module}" if module != "eigenveil" else module)
        file = attribute in ("py", "md", "toml", "commands", "audits")
        assert file or hasattr(found, attribute), name
    for name in re.findall(r"from (eigenveil[\w.]*) import \(?([\w, ]+)", text):
        for each in name[1].split(","):
            if each.strip():
                assert hasattr(importlib.import_module(name[0]), each.strip().split()[0]), name


def test_no_error_names_a_file_that_an_installed_package_does_not_have():
    pages = re.compile(r"docs/[a-z-]+\.md|README|CONTRIBUTING")
    wrong = []
    for file in ROOT.glob("src/eigenveil/**/*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if pages.search(text) else ():
            if isinstance(node, ast.keyword) and node.arg in ("hint", "help"):
                wrong += pages.findall(ast.unparse(node.value))
    assert wrong == []
    assert not pages.search(
        (ROOT / "src/eigenveil/error_codes.toml").read_text().split("\n\n", 1)[1]
    )


def test_a_command_that_does_not_exist_is_found():
    block = "```\neigenveil fit x.csv --epsilom 1\n```\n"
    [words] = _commands(block)
    assert "--epsilom" not in _options()["fit",]
    assert words == ["fit", "x.csv", "--epsilom", "1"]


def test_the_page_of_formats_names_each_and_no_other():
    written = re.compile(r"eigenveil-[a-z]+-\d+|eigenveil envelope \d+")
    source = "".join(file.read_text("utf-8") for file in ROOT.glob("src/eigenveil/**/*.py"))
    page = (ROOT / "docs" / "reference" / "support.md").read_text("utf-8")
    assert set(written.findall(page)) == set(written.findall(source))


READ_FIRST = [
    "start",
    *re.findall(r"^[a-z-]+$", (ROOT / "docs/guides.md").read_text(), re.MULTILINE),
]


@pytest.mark.parametrize("name", READ_FIRST)
def test_the_sentences_of_a_guide_are_easy(name):
    """Flesch-Kincaid's grade, of text without code, tables and headings, is 11 at most."""
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    text = re.sub(r"^(---|```|:::).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|!).*", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " name ", text)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    sentences = [each for each in re.split(r"[.!?]\s|\n\s*\n", text) if re.search("[a-z]{2}", each)]
    words = re.findall(r"[A-Za-z][A-Za-z'-]*", text)
    syllables = sum(
        len(re.findall("[aeiouy]+", word.lower().removesuffix("e"))) or 1 for word in words
    )
    assert 0.39 * len(words) / len(sentences) + 11.8 * syllables / len(words) - 15.59 <= 11


@pytest.mark.parametrize("page", [ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "SECURITY")])
def test_what_a_page_outside_of_the_site_links_to_exists(page):
    places = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_a_committees_page_shows_no_code_and_two_numbers_of_the_same_bets():
    """Of a test with false alarms a and misses b the best bet at even odds wins 1 - (a + b) / 2."""
    text = (ROOT / "docs" / "tutorials" / "committee.md").read_text("utf-8")
    cells = [body for language, body in BLOCK.findall(text) if language == "{code-cell}"]
    assert len(cells) == len(BLOCK.findall(text)) == 2
    assert all("remove-input" in body.partition("\n")[0] for body in cells)
    page: dict[str, list[tuple[str, ...]]] = {}
    exec(cells[0].partition("\n")[2].partition("\nfrom IPython")[0], page)  # it is not in dev
    alarms = np.linspace(0, 1, 200_001)
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    for epsilon, alone, here in page["lines"]:
        grown = math.exp(float(epsilon))
        least = np.maximum(1 - 1e-6 - grown * alarms, (1 - 1e-6 - alarms) / grown)
        assert float(alone) == pytest.approx(100 * (1 - (alarms + least).min() / 2), abs=0.11)
        mu = PrivatePCA(1, epsilon=float(epsilon), delta=1e-6).fit(rows).guarantee_.mu
        misses = norm.cdf(norm.isf(alarms) - mu)
        assert float(here) == pytest.approx(100 * (1 - (alarms + misses).min() / 2), abs=0.11)
