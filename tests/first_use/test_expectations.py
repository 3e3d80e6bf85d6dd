"""The page of expectations is what its file says, and what it names is there."""

import ast

import pytest
from examples import expectations_page as tool

FOUND = {wanted: each for group in tool.expectations().values() for wanted, each in group.items()}


def test_the_page_is_what_the_file_says():
    assert tool.PAGE.read_text("utf-8") == tool.page(), "python examples/expectations_page.py"
    assert len(FOUND) == 104


@pytest.mark.parametrize("wanted", FOUND)
def test_an_expectation_is_shown_by_a_test_that_exists_or_a_trial(wanted):
    each = FOUND[wanted]
    assert each["state"] in ("works", "partly", "not")
    assert ("why" in each) == (each["state"] != "works")
    assert each.get("tests") or each.get("tried")
    for name in each.get("tests", ()):
        file, _, test = name.partition("::")
        tree = ast.parse((tool.ROOT / file).read_text("utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
