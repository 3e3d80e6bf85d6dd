"""Write docs/errors.md: every error code, from its declaration and from the code that raises it."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import eigenveil
import eigenveil_papers
from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    OutputError,
    PrivacyError,
    ProtocolError,
    error_codes,
)
from eigenveil.network import channel

# Those of the papers' package are in the same table: programs meet them by the same attribute.
PACKAGES = [Path(package.__path__[0]) for package in (eigenveil, eigenveil_papers)]
FAMILY = (EigenveilError, DataError, PrivacyError, BudgetExceeded, ProtocolError, OutputError)
_HEAD = """\
# Error codes

Every error of eigenveil has a code, for programs: `error.code` in Python. The command line says
what is wrong and what to do, and ends with the exit status. A code can have several of these: the
same thing may be wrong with rows and with a message. What stands in braces is of the case at hand:
`error.facts` has it by these names.

| exit status | is |
|---|---|
{statuses}
| 2 | a wrong use of the command line |
| 8 | `certify`: the guarantee does not hold; `audit`: a claim of this package is refuted |
| 70 | a defect of eigenveil: run again with `--debug`, and report what it prints |
| 130 | stopped from the keyboard |

Where a message names a row or a column:

| what was given | row | column |
|---|---|---|
| a text file (CSV, TSV) | `line 7`, as an editor shows it | its name, or `column 3`, from 1 |
| any other file, a query | `row 6`, from 1 | its name, or `column 3`, from 1 |
| an array or frame in Python | `row index 5 (from 0)` | its name, or `column index 2 (from 0)` |

`python examples/error_page.py` makes this page from the code and `src/eigenveil/error_codes.toml`.

| code | exit status | what is wrong | what to do |
|---|---|---|---|
"""


@functools.cache
def _nodes() -> list[tuple[Path, ast.AST]]:
    """All nodes of the kinds that are looked at, with their files."""
    kinds = (ast.Call, ast.Tuple, ast.ClassDef, ast.FunctionDef)
    return [
        (file, node)
        for file in sorted(file for package in PACKAGES for file in package.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    ]


def uses() -> Iterator[tuple[str, str]]:
    """Every code that the package raises, with the class that is raised."""
    for _, node in _nodes():
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Tuple):
            yield from _of_row(node)
        elif isinstance(node, ast.ClassDef):
            yield from _of_class(node)
        elif isinstance(node, ast.FunctionDef) and node.name == "_public_text":
            for each in ast.walk(node):  # what a site says to the aggregator
                if isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple):
                    for code in _texts(each.value.elts[0]):
                        yield code, "ProtocolError"
    for code in channel.CODES:  # what parties say to the aggregator
        yield code, "ProtocolError"


def constructions() -> Iterator[tuple[str, str, set[str], bool]]:
    """Each error that is made of a code: where, the code, the facts, and whether that is all."""
    for file, node in _nodes():
        if not isinstance(node, ast.Call):
            continue
        of_option = _called(node) == "refused" and len(node.args) == 2
        if not of_option and _called(node) not in _classes():
            continue
        given = {word.arg for word in node.keywords if word.arg is not None}
        whole = len(given) == len(node.keywords)
        if of_option:
            given = (given - {"owner"}) | {"option"}
        for code in _codes(node.args[of_option : of_option + 1]):
            yield f"{file.name}:{node.lineno}", code, given, whole


def statuses() -> dict[str, list[int]]:
    """Exit statuses by code, of all codes that are raised."""
    classes = _classes()
    found: dict[str, set[int]] = {}
    for code, name in uses():
        found.setdefault(code, set()).add(classes[name])
    return {code: sorted(each) for code, each in found.items()}


def page() -> str:
    """The page's text."""
    own = "\n".join(
        f"| {kind.exit_status} | `{kind.__name__}`: {' '.join((kind.__doc__ or '').split())} |"
        if kind is not EigenveilError
        else f"| {kind.exit_status} | `{kind.__name__}`: any other error |"
        for kind in FAMILY
    )
    known = statuses()
    lines = [
        f"| `{code}` | {', '.join(map(str, known.get(code, [])))} | {when} | {then} |"
        for code, (when, then) in error_codes().items()
    ]
    return _HEAD.format(statuses=own) + "\n".join(lines) + "\n"


@functools.cache
def _classes() -> dict[str, int]:
    """Exit status of each class of errors, as its source says."""
    bases: dict[str, list[str]] = {}
    stated: dict[str, int] = {}
    for _, node in _nodes():
        if not isinstance(node, ast.ClassDef):
            continue
        bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        for line in node.body:
            target = line.targets[0] if isinstance(line, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id == "exit_status":
                stated[node.name] = ast.literal_eval(line.value)  # type: ignore[attr-defined]
    stated["EigenveilError"] = EigenveilError.exit_status

    def of(name: str) -> int | None:
        if name in stated:
            return stated[name]
        return next((s for base in bases.get(name, ()) if (s := of(base)) is not None), None)

    return {name: status for name in bases if (status := of(name)) is not None}


def _of_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = _called(node)
    if name == "refused":  # of an option: its privacy decides which of the two
        yield from product(_codes(node.args[1:2]), ("DataError", "PrivacyError"))
    elif name == "relayed" and isinstance(node.func, ast.Attribute):
        given = [word.value for word in node.keywords if word.arg == "code"]
        yield from product(_codes(given), (getattr(node.func.value, "id", ""),))
    elif name in _classes():
        yield from product(_codes(node.args[:1]), (name,))


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The code of a class of errors that has one of its own."""
    for each in ast.walk(node) if node.name in _classes() else ():
        if isinstance(each, ast.Call) and _called(each) == "__init__":
            yield from product(_codes(each.args[:1]), (node.name,))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _codes(given: Iterable[ast.expr]) -> list[str]:
    return [text for value in given for text in _texts(value) if " " not in text]


def _of_row(node: ast.Tuple) -> Iterator[tuple[str, str]]:
    """A row of a table of errors: class and code."""
    if len(node.elts) == 2 and isinstance(node.elts[0], ast.Name):
        last = node.elts[-1]
        if node.elts[0].id in {kind.__name__ for kind in FAMILY} and isinstance(last, ast.Constant):
            yield str(last.value), node.elts[0].id


def _texts(value: ast.expr) -> list[str]:
    """The texts that an expression can be, as far as they are in it."""
    if isinstance(value, ast.Constant):
        return [value.value] if isinstance(value.value, str) and value.value else []
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body), *_texts(value.orelse)]
    return []


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/errors.md")
    target.write_text(page(), encoding="utf-8")
