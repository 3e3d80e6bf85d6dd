"""The files of a release agree with one another."""

import importlib.util
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = WHOLE["project"]
CITED = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)[1]


def test_the_conda_recipe_needs_what_pyproject_needs():
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    host, _, listed = recipe.partition("test:")[0].partition("  run:\n")
    found = set(re.findall(r"- (\S+ >=\S+)", listed))
    building = {each.replace(">=", " >=") for each in WHOLE["build-system"]["requires"]}
    assert set(re.findall(r"- (hatch\S+ >=\S+)", host)) == building
    wanted = {each.lower().replace(">=", " >=") for each in PROJECT["dependencies"]}
    wanted = {each.replace("matplotlib ", "matplotlib-base ") for each in wanted}
    assert found == wanted | {f"python {PROJECT['requires-python']}"}
    assert f'set version = "{CITED}"' in recipe


def test_files_that_state_a_version_state_the_same():
    """The version itself is git's tag; `make release-check` compares it with what it built."""
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text("utf-8"))
    for each in (WHOLE, papers):
        assert each["project"]["dynamic"] == ["version"]
        assert each["tool"]["hatch"]["version"]["fallback-version"] == f"{CITED}.dev0"
    [needed] = [Requirement(each) for each in papers["project"]["dependencies"]]
    assert needed.specifier.contains(CITED)
    assert needed.specifier.contains(f"{CITED}.dev7+g1234567")
    assert f"\nVersion: {CITED}\n" in (ROOT / "packaging/r/DESCRIPTION").read_text("utf-8")
    assert f"## {CITED}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_workflow_runs_what_a_person_runs():
    [check, release] = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for workflow in (check, release):
        assert set(re.findall(r"make ([a-z-]+)", workflow.read_text("utf-8"))) <= targets
    assert ".ci/run" in check.read_text("utf-8")


def test_the_paper_for_joss_has_its_format():
    """Sections and length that the journal asks for; every reference is cited, and the reverse."""
    text, listed = (
        (ROOT / "packaging/joss" / f"paper.{kind}").read_text("utf-8") for kind in ("md", "bib")
    )
    assert re.findall(r"^# (.+)$", text, re.MULTILINE) == [
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Research impact statement",
        "AI usage disclosure",
        "Acknowledgements",
        "References",
    ]
    assert 750 <= len(text.partition("# Summary")[2].split()) <= 1750
    assert set(re.findall(r"@(\w+)", text)) == set(
        re.findall(r"^@\w+\{(\w+),", listed, re.MULTILINE)
    )


def test_only_the_job_that_publishes_may_sign():
    """Whoever can change a build's job must not get an identity that others trust."""
    jobs = re.split(
        r"^  (?=\w+:$)", (ROOT / ".github/workflows/release.yml").read_text("utf-8"), flags=re.M
    )
    [signing] = [job for job in jobs if "id-token" in job or "attestations: write" in job]
    assert signing.startswith("publish:")
    assert "make " not in signing
    assert "pip" not in signing.replace("pypi", "")


def loaded(path, **stubs):
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, stubs):
        spec.loader.exec_module(module)
    return module


RELEASE_CHECK = loaded(ROOT / "packaging" / "release_check.py")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_the_loops_are_compiled_to_the_same_bytes_anywhere(tmp_path):
    interface = ModuleType("interface")
    interface.BuildHookInterface = object
    build = loaded(
        ROOT / "hatch_build.py", **{"hatchling.builders.hooks.plugin.interface": interface}
    )
    made = []
    for folder in (tmp_path / "a", tmp_path / "another" / "folder"):
        folder.mkdir(parents=True)
        source = shutil.copy(ROOT / build.MODULE.with_suffix(".c"), folder)
        build.compile_to(Path(source), folder / "_loops.abi3.so")
        made.append((folder / "_loops.abi3.so").read_bytes())
    assert made[0] == made[1]


def test_what_differs_between_two_builds_is_named(tmp_path):
    """Content, mode, and the order or date that members are stored with."""

    def wheel(name, *members):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            for member, text, date in members:
                packed.writestr(zipfile.ZipInfo(member, (date, 1, 1, 0, 0, 0)), text)
        return tmp_path / name

    one = wheel("1.whl", ("a", "x", 2020), ("b", "y", 2020))
    again = wheel("2.whl", ("a", "x", 2020), ("b", "y", 2020))
    assert RELEASE_CHECK.differing(one, again) == []
    changed = wheel("3.whl", ("a", "z", 2020), ("b", "y", 2020), ("c", "", 2020))
    assert RELEASE_CHECK.differing(one, changed) == ["a", "c"]
    later = wheel("4.whl", ("a", "x", 2021), ("b", "y", 2020))
    assert RELEASE_CHECK.differing(one, later) == ["how members are stored"]
    for mode in (0o644, 0o755):
        (tmp_path / "file").write_text("x")
        (tmp_path / "file").chmod(mode)
        with tarfile.open(tmp_path / f"{mode}.tar.gz", "w:gz") as packed:
            packed.add(tmp_path / "file", "file")
    assert RELEASE_CHECK.differing(tmp_path / "420.tar.gz", tmp_path / "493.tar.gz") == ["file"]
