"""The package for R: its own tests, the page's lines, and its documentation."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eigenveil import PrivatePCA

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packaging" / "r"
NEEDED = "jsonlite", "testthat", "roxygen2", "pkgload"


def without():
    """Why R's tests cannot run here; empty where they can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    code = "cat(setdiff(commandArgs(TRUE), rownames(installed.packages())))"
    asked = ["Rscript", "-e", code, *NEEDED]
    missing = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return missing and f"R has no {missing}"


@pytest.fixture(scope="module")
def rscript(tmp_path_factory):
    """Runs lines of R in a folder; the program is this Python's."""
    if reason := without():
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("home")
    here = os.environ | {
        "EIGENVEIL_COMMAND": f"{sys.executable} -m eigenveil",
        "EIGENVEIL_LEDGER": str(home / "tables.ledger"),
        "EIGENVEIL_STATE": str(home / "state"),
        "TMPDIR": str(home),
    }

    def run(lines, folder):
        words = ["Rscript", "--vanilla", "-e", lines]
        return subprocess.run(
            words, cwd=folder, env=here, capture_output=True, text=True, check=False, timeout=800
        )

    return run


def test_the_package_passes_its_own_tests(rscript, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "r")
    found = rscript('testthat::test_local("r", reporter = "check")', tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    counts = re.search(r"FAIL 0 \| WARN \d+ \| SKIP 0 \| PASS (\d+)", found.stdout)
    assert counts, found.stdout  # none was skipped for want of the program
    assert int(counts[1]) > 30


def test_the_pages_of_help_are_those_of_the_code(rscript, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "r")
    other = 'read.dcf("r/DESCRIPTION")[, "RoxygenNote"] != packageVersion("roxygen2")'
    found = rscript(f'if ({other}) quit(status = 77); roxygen2::roxygenise("r")', tmp_path)
    if found.returncode == 77:
        pytest.skip("another version of roxygen2 wrote the pages")
    assert found.returncode == 0, found.stderr
    pages = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.Rd")} | {Path("NAMESPACE")}
    made = {path.relative_to(tmp_path / "r") for path in (tmp_path / "r").rglob("*.Rd")}
    assert made == {path for path in pages if path.suffix == ".Rd"}
    for path in pages:
        assert (tmp_path / "r" / path).read_text("utf-8") == (PACKAGE / path).read_text("utf-8")


def test_the_lines_of_the_page_of_files_give_the_scores(rscript, run, tmp_path):
    rows = np.random.default_rng(0).normal(size=(2000, 4)) * [9.0, 5.0, 1.0, 1.0] + 3.0
    frame = pd.DataFrame(rows, columns=["a", "b c", "d", "e"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit = ("fit", tmp_path / "rows.csv", "--epsilon", 4, "--scale", "private", "--no-ledger")
    assert run(*fit, "--no-plots", "--quiet", "--out", tmp_path / "result")[0] == 0
    page = (ROOT / "docs" / "reference" / "files.md").read_text("utf-8")
    lines = re.search(r"```r\n(.*?)```", page, re.DOTALL)[1]
    write = 'write.csv(scores, "scores.csv", row.names = FALSE)'
    found = rscript(f"{lines}\n{write}", tmp_path)
    assert found.returncode == 0, found.stderr
    model = PrivatePCA.load(tmp_path / "result" / "model.npz")
    scores = pd.read_csv(tmp_path / "scores.csv")
    with np.errstate(all="ignore"):
        wanted = np.asarray(model.transform(frame))
    np.testing.assert_allclose(scores.to_numpy(), wanted, rtol=1e-9, atol=1e-9)
