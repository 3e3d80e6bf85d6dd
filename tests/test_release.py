"""The files of a release agree with one another."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_conda_recipe_needs_what_pyproject_needs():
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    listed = recipe.partition("  run:\n")[2].partition("test:")[0]
    found = set(re.findall(r"- (\S+ >=\S+)", listed))
    wanted = {each.lower().replace(">=", " >=") for each in PROJECT["dependencies"]}
    wanted = {each.replace("matplotlib ", "matplotlib-base ") for each in wanted}
    assert found == wanted | {f"python {PROJECT['requires-python']}"}
    assert f'version: "{PROJECT["version"]}"' in recipe


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text("utf-8"))["project"]
    assert papers["version"] == version
    assert f"eigenveil=={version}" in papers["dependencies"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_workflow_runs_what_a_person_runs():
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", workflow)) <= targets
    assert ".ci/run" in workflow
