"""What the pages print runs, in its order, each page in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
    if re.search(r"^```\w+ run$", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_prints_runs_in_its_order(page):
    """And once more in its folder. The site's build runs cells, tests/carriers organisations."""
    ended = subprocess.run(
        [sys.executable, ROOT / "packaging" / "follow_page.py", "--twice", page],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
