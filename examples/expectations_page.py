"""Writes docs/expectations.md of tests/first_use/expectations.toml (python examples/...)."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "first_use" / "expectations.toml"
PAGE = ROOT / "docs" / "expectations.md"

_HEAD = """# What you may expect

People bring habits from other software. Five sorts of users tried {count} of them: an analyst,
a steward with a browser, a biostatistician, an engineer of machine learning, and an operator of
three sites. {works} work, {partly} work in part, {not} do not. The last column names the tests that
show it, or what was tried, and when.
"""


def expectations() -> dict[str, dict[str, dict[str, Any]]]:
    """What is expected, by group: its state, why, and what shows it."""
    return tomllib.loads(KEPT.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    groups = expectations()
    states = Counter(each["state"] for group in groups.values() for each in group.values())
    counts = {state: states[state] for state in ("works", "partly", "not")}
    head = _HEAD.format(count=states.total(), **counts)
    return head + "".join("\n" + "\n".join(_table(*group)) + "\n" for group in groups.items())


def _table(title: str, group: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield from (f"## {title}", "", "| expected | today | shown by |", "|---|---|---|")
    for wanted, each in group.items():
        today = f"{each['state']}: {each['why']}" if "why" in each else each["state"]
        tests = (f"`{test}`" for test in each.get("tests", ()))
        tried = [f"tried on {each['tried']}"] if "tried" in each else []
        yield f"| {wanted} | {today} | {'; '.join((*tests, *tried))} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
