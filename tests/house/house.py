"""How large the house is: numbers that may only fall, beside their budgets in pyproject.toml.

``python tests/house/house.py`` prints those that are above their budgets (``--all``: all of them,
with where they are) and ends with status 1 then. ``--write`` makes today's numbers the budgets:
after what was made smaller, or, where a rise is meant, in the commit that says why. With
``--write 1.2`` they are a fifth above them.
"""

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import crossings

from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS
from eigenveil.privacy.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
SECTION = "[tool.eigenveil.house.{}]\n"
LONG_FILE, LONG_FUNCTION, MANY_ARGUMENTS = 450, 60, 7
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
LOOKED_AT = (*FUNCTIONS, *IMPORTS, ast.ClassDef, ast.Compare, ast.Match, ast.Constant)
REGISTERED = re.compile(r"(eigenveil\.)?([a-z_]\w*(?:\.[a-z_]\w*)*):[A-Za-z_]\w*")
# whose names are compared: the words that such a comparison has, and the folders of the thing
_OF_SITES, _OF_TABLE = options_of("pca", "sites"), options_of("pca", "table")
NAMED = {
    "protocols": (
        {*_OF_SITES["protocol"].choices} - {"auto"},
        "protocol",
        ("federation.protocols",),
    ),
    "masks": ({*_OF_SITES["masks"].choices}, "mask", ("federation.masks",)),
    "tasks": ({*TASKS}, "task", ("models.model_options", "models.task")),
    "mechanisms": (
        {*MECHANISMS, *_OF_TABLE["mechanism"].choices} - {"auto"},
        "mechanism|kind",
        ("privacy.mechanisms", "noise"),
    ),
}


# -- the files


@cache
def modules():
    """Parsed source files of the packages, by the module's full name."""
    found = {}
    for base in (ROOT / "src", ROOT / "papers" / "src"):
        for path in sorted(base.rglob("*.py")):
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = (path, ast.parse(path.read_text()))
    return found


def lines_of(path):
    return path.read_bytes().count(b"\n")


def room_of(path):
    """The folder that a file counts to: two of the packages' own, one of the tests'."""
    parts = path.relative_to(ROOT).parts[:-1]
    start = {"src": 1, "papers": 2}.get(parts[0], 0)
    return "/".join(parts[start : start + 2])


@cache
def everything():
    """All nodes of all modules that a count looks at, with the module that each is in."""
    return [
        (module, node)
        for module, (_, tree) in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, LOOKED_AT)
    ]


def nodes(*kinds):
    return (each for each in everything() if isinstance(each[1], kinds))


# -- what is counted: each as a list of where it is


def rooms():
    """Lines of each room, tests among them."""
    found = Counter()
    for base in ("src", "papers/src", "tests"):
        for path in (ROOT / base).rglob("*.py"):
            found[room_of(path)] += lines_of(path)
    return found


def long_files():
    paths = [
        path for base in ("src", "papers/src", "tests") for path in (ROOT / base).rglob("*.py")
    ]
    return [str(path.relative_to(ROOT)) for path in paths if lines_of(path) > LONG_FILE]


def long_functions():
    for module, node in nodes(*FUNCTIONS):
        if node.end_lineno - node.lineno + 1 > LONG_FUNCTION:
            yield f"{module}.{node.name}"


def functions_of_many_arguments():
    """Constructors and commands may have as many as they have options."""
    for module, node in nodes(*FUNCTIONS):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given = [each for each in given if each.arg not in ("self", "cls")]
        free = node.name == "__init__" or re.search(r"\bcommands?\b", module)
        if len(given) > MANY_ARGUMENTS and not free:
            yield f"{module}.{node.name}"


def names_of_two_classes():
    found = defaultdict(set)
    for module, node in nodes(ast.ClassDef):
        found[node.name].add(module)
    return [
        f"{name}: {', '.join(sorted(places))}" for name, places in found.items() if len(places) > 1
    ]


def imports_in_functions():
    within = {
        (module, inner.lineno)
        for module, node in nodes(*FUNCTIONS)
        for inner in ast.walk(node)
        if isinstance(inner, IMPORTS)
    }
    return [f"{module}:{line}" for module, line in sorted(within)]


def modules_of_one_sibling():
    """Modules that nothing imports but one beside them."""
    importers = defaultdict(set)
    for module, node in nodes(*IMPORTS):
        names = [each.name for each in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        for name in set(names) & modules().keys() - {module}:
            importers[name].add(module)
    for name, (path, _) in modules().items():
        beside = {each.rpartition(".")[0] for each in importers[name]}
        if (
            len(importers[name]) == 1
            and beside == {name.rpartition(".")[0]}
            and path.stem[0] != "_"
        ):
            yield name


def comparisons_with_names(of):
    """Where the name of one of several things is compared with, outside of their own folder."""
    names, words, homes = NAMED[of]
    homes = tuple(f"eigenveil.{home}" for home in homes)
    for module, node in nodes(ast.Compare, ast.Match):
        if module.startswith(homes):
            continue
        compared, parts = node, [node]
        if isinstance(node, ast.Match):
            compared, parts = node.subject, [case.pattern for case in node.cases]
        texts = {
            each.value
            for part in parts
            for each in ast.walk(part)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
        if texts & names and re.search(words, ast.unparse(compared)):
            yield f"{module}:{node.lineno}"


def layers():
    """How high each room is, by import-linter's list; of one beside others, their common height."""
    contract = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"][0]
    return {
        room.strip(" ()"): height
        for height, line in enumerate(reversed(contract["layers"]))
        for room in re.split("[|:]", line)
    }


def texts_against_layers():
    """Texts "room.module:name" of a room that is above the module's, which imports it unseen."""
    height = layers()

    def of(module):
        return next((height[room] for room in height if f"{module}.".startswith(f"{room}.")), None)

    for module, node in nodes(ast.Constant):
        match = isinstance(node.value, str) and REGISTERED.fullmatch(node.value)
        named = match and f"eigenveil.{match[2]}"
        known = named and named in modules() and None not in (of(module), of(named))
        if known and of(named) > of(module):
            yield f"{module}:{node.lineno} {node.value}"


COUNTED = {
    each.__name__: each
    for each in (
        *(long_files, long_functions, functions_of_many_arguments, names_of_two_classes),
        *(imports_in_functions, modules_of_one_sibling, texts_against_layers),
    )
} | {f"comparisons_with_{of}": lambda of=of: comparisons_with_names(of) for of in NAMED}


# -- beside their budgets


def numbers():
    """Today's numbers, by section of the budgets and name."""
    return {
        "counts": {name: len(list(found())) for name, found in COUNTED.items()},
        "lines": dict(sorted(rooms().items())),
    }


def budgets():
    return tomllib.loads(PROJECT.read_text())["tool"]["eigenveil"]["house"]


def too_many(found, most):
    """Sentences of what is above its budget."""
    advice = "make it smaller, or, where that is meant: python tests/house/house.py --write"
    for section, values in found.items():
        for name, number in values.items():
            budget = most[section].get(name, 0)
            if number > budget:
                yield f"{section} {name}: {number}, above its budget of {budget}: {advice}"


def write(found, slack=1.0):
    """Today's numbers, or so many times as much, as the budgets."""
    text = PROJECT.read_text()
    for section, values in found.items():
        start = SECTION.format(section)
        kept = "".join(f'"{name}" = {int(n * slack)}\n' for name, n in values.items())
        before, _, rest = text.partition(start)
        after = re.sub(r'\A("[^"]+" = \d+\n)*', "", rest)
        text = f"{before}{start}{kept}{after}"
    PROJECT.write_text(text)


if __name__ == "__main__":
    if "--write" in sys.argv:
        walks = {"crossings": {name: crossings.a_release(name) for name in crossings.WALKS}}
        write(numbers() | walks, slack=float((*sys.argv, 1)[2]))
    if "--all" in sys.argv:
        for name, found in COUNTED.items():
            print(name, *found(), sep="\n    ")
    wrong = list(too_many(numbers(), budgets()))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(bool(wrong))
