"""The process beside the console: answers one request a line, in JSON, until its input ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import IO, Any

from eigenveil.console.settings import Rows
from eigenveil.errors import EigenveilError, OutputError

_DESKS = {
    "site": "eigenveil.console.desk.site:SiteDesk",
    "lead": "eigenveil.console.desk.lead:LeadDesk",
    "table": "eigenveil.console.desk.table:TableDesk",
}
_OF_RESULTS = {"result": "read_result", "compare": "compare_results"}


class Answering:
    """Calls a desk's functions by name."""

    def __init__(self, section: str, rows: Rows) -> None:
        self._section, self._rows = section, rows
        self._desk: Any = None

    def __call__(self, method: str, arguments: dict[str, Any]) -> Any:
        """What a function returns; results' folders are read by every section."""
        if method in _OF_RESULTS:
            results = import_module("eigenveil.console.desk.results")
            return getattr(results, _OF_RESULTS[method])(**arguments)
        if self._desk is None:
            module, _, name = _DESKS[self._section].partition(":")
            self._desk = getattr(import_module(module), name)(self._rows)
        if method.startswith("_"):
            raise AttributeError(method)
        return getattr(self._desk, method)(**arguments)


def answer(call: Callable[[str, dict[str, Any]], Any], line: str) -> str:
    """The answer to one line, as a line."""
    number = None
    try:
        asked = json.loads(line)
        number = asked["number"]
        found = {"number": number, "found": call(asked["method"], asked["arguments"])}
        return json.dumps(found, allow_nan=False)
    except EigenveilError as error:
        problem = error
    except OSError as error:
        problem = OutputError(
            f"{error.filename or 'A file'}: {error.strerror or error}.",
            hint="Check who may read it.",
            code="cannot-read",
        )
    except Exception as error:
        problem = EigenveilError(
            f"Something unexpected happened: {type(error).__name__}.",
            hint="This is a defect; the console's own output has more.",
            code="unexpected",
        )
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    kind = type(problem).__name__
    fields = {"code": problem.code, "message": problem.message, "hint": problem.hint}
    return json.dumps({"number": number, "error": {"kind": kind, **fields}})


def serve(asked: IO[str], said: IO[str]) -> None:
    """Answer until the input ends; the first line says what it is about."""
    start = json.loads(asked.readline())
    rows = Rows(**(start["rows"] | {"data": tuple(start["rows"]["data"])}))
    call = Answering(start["section"], rows)
    for line in asked:
        said.write(answer(call, line) + "\n")
        said.flush()


def first_line(section: str, rows: Rows) -> str:
    """What :func:`serve` is to read first."""
    return json.dumps({"section": section, "rows": asdict(rows)})


def main() -> None:
    """Answer on standard output; what libraries print goes to standard error."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, said)


if __name__ == "__main__":
    main()
