"""Every proof that is cited anywhere is shipped, and an installed user can read it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import eigenveil
from eigenveil.errors import DataError
from eigenveil.privacy import proof_files
from eigenveil.privacy.certificate import proofs_of
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.proof_files import proof_titles, read_proof
from eigenveil.privacy.statistics import STATISTICS

PACKAGE = Path(eigenveil.__file__).parent
ROOT = Path(__file__).parents[2]


def cited():
    """Names of proofs: of the registries, of certificates, and in any text of the package."""
    always = [
        each
        for kind in ("units", "federation", "tree")
        for each in proofs_of(
            (), **({"units": False, "federation": False, "tree": False} | {kind: True})
        )
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
    status, out, _ = run("proofs")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(proof_titles())
    status, out, _ = run("proofs", "gaussian.md")
    assert (status, out) == (0, read_proof("gaussian"))
    status, out, _ = run("proofs", "gaussian", "--json")
    assert json.loads(out) == {"name": "gaussian", "text": read_proof("gaussian")}
    status, out, err = run("proofs", "gausian")
    assert (status, out) == (3, "")
    assert "Did you mean 'gaussian'?" in err
