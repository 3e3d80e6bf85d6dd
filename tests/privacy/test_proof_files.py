"""Every proof that is cited anywhere is shipped, and an installed user can read it."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

import eigenveil
from eigenveil.errors import DataError
from eigenveil.privacy import certificate as proof_files
from eigenveil.privacy.certificate import proof_titles, proofs_of, read_proof
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.statistics import STATISTICS

PACKAGE = Path(eigenveil.__file__).parent
ROOT = Path(__file__).parents[2]
KINDS = ("units", "federation", "tree", "groups")


def cited():
    """Names of proofs: of the registries, of certificates, and in any text of the package."""
    always = [
        each
        for kind in KINDS
        for each in proofs_of((), **(dict.fromkeys(KINDS, False) | {kind: True}))
    ]
    stated = {each.proof for each in (*MECHANISMS.values(), *STATISTICS.values())}
    names = {*stated, *always} - {None}
    for file in PACKAGE.rglob("*.py"):
        text = re.sub(r"\s+", "", file.read_text(encoding="utf-8"))
        names.update(re.findall(r"proofs/([\w-]+\.md)", text))
        if file.parent.name == "privacy":
            names.update(re.findall(r'"([\w-]+\.md)"', text))
    return sorted(names)


def test_enough_is_cited_that_the_search_is_seen_to_work():
    assert {"views.md", "tree.md", "streams.md", "gaussian.md", "documents.md"} <= set(cited())


@pytest.mark.parametrize("name", cited())
def test_cited_proofs_can_be_read(name):
    text = read_proof(name)
    assert text == read_proof(name.removesuffix(".md"))
    assert text.startswith("# ")
    assert text == (ROOT / "docs" / "proofs" / name).read_text(encoding="utf-8")


def test_the_wheel_has_the_folder_that_an_installed_package_reads():
    reported = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = reported["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["docs/proofs"] == "eigenveil/proofs"
    assert proof_files._FOLDERS[0] == PACKAGE / "proofs"
    assert (PACKAGE / "py.typed").exists()


def test_an_installed_package_reads_its_own_folder(tmp_path, monkeypatch):
    (tmp_path / "own.md").write_text("# A title\n\ntext\n", encoding="utf-8")
    monkeypatch.setattr(proof_files, "_FOLDERS", (tmp_path, *proof_files._FOLDERS))
    assert proof_titles() == {"own": "A title"}


@pytest.mark.parametrize("name", ["gausian", "../../README", "", "gaussian.md.md", "a\x1b[2J"])
def test_another_name_is_refused_with_what_there_is(name):
    with pytest.raises(DataError, match="no proof") as raised:
        read_proof(name)
    assert raised.value.code == "unknown-proof"
    assert raised.value.message.isprintable()


def test_the_command_line_lists_and_prints_them(run):
    out = run.done("proofs")
    assert [line.split()[0] for line in out.splitlines()] == list(proof_titles())
    status, out, _ = run("proofs", "gaussian.md")
    assert (status, out) == (0, read_proof("gaussian"))
    status, out, _ = run("proofs", "gaussian", "--json")
    assert json.loads(out) == {"name": "gaussian", "text": read_proof("gaussian")}
    status, out, err = run("proofs", "gausian")
    assert (status, out) == (3, "")
    assert "Did you mean 'gaussian'?" in err


# -- the code that a proof is about, by its names


def names_in(file):
    """Everything that a file defines, at any depth, and the attributes that it sets."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield getattr(node, "id", None) or node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.fixture(scope="module")
def code():
    """Names by module of the package (below it, with dots), and by file of the tests."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = list(file.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(part for part in parts if part != "__init__")] = set(names_in(file))
    for file in (ROOT / "tests").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found[str(file.relative_to(ROOT))] = set(re.findall(r"^(?:def |class )?(\w+)", text, re.M))
    return found


def is_there(name, code):
    """Whether a name is of the code: a module, something in it, or a name of any module."""
    if name.endswith(".py"):
        return name in code or name.removesuffix(".py").replace("/", ".") in code
    parts = name.removeprefix("eigenveil.").split(".")
    for cut in range(len(parts), 0, -1):
        inside = code.get(".".join(parts[:cut]))
        if inside is not None:
            return all(part in inside for part in parts[cut:])
    if any(module.startswith(name + ".") for module in code):
        return True
    return any(inside.issuperset(parts) for inside in code.values())


# functions of mathematics, of Python, and variables of formulas
OTHERS = {"numpy.linalg.eigh", "x_o", "repr"}
NAME = re.compile(r"(\w[\w/]*\.py|_?[A-Za-z]\w*(?:\.\w+)+|test_\w+|_?[a-zA-Z]+_\w+)(?:\(.*\))?")


def named(text):
    """The names of code in a proof: between backquotes, with a dot or an underscore; test files."""
    code = {NAME.fullmatch(each) for each in re.findall(r"`([^`\n]+)`", text)}
    found = {each[1] for each in code if each} | set(re.findall(r"tests/[\w/]+\.py", text))
    return {each for each in found if not re.search(r"\.(md|toml|json|npz)$", each)} - OTHERS


def test_what_is_not_there_is_seen(code):
    assert is_there("privacy.accountant.Loss", code)
    assert is_there("Loss.total", code)
    assert is_there("tests/privacy/test_views.py", code)
    for name in ("privacy.accounts.caps_of", "federation.tree_private.Leaf", "Loss.sum_of_all",
                 "test_every_record_is_paid", "privacy/sensitivity.py"):  # fmt: skip
        assert not is_there(name, code)


@pytest.mark.parametrize("proof", proof_titles())
def test_a_proof_names_code_that_is_there(proof, code):
    wrong = {name for name in named(read_proof(proof)) if not is_there(name, code)}
    assert not wrong
