"""The files of a release agree with one another."""

import re
import tomllib
from pathlib import Path

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
    assert f"## {CITED}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_workflow_runs_what_a_person_runs():
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", workflow)) <= targets
    assert ".ci/run" in workflow
