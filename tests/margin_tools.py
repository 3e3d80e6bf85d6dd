"""How much room comparisons of noisy numbers have in the tests: a part of ``make nightly``.

As a plugin of pytest it notes, of each ``assert a < b`` of two numbers that holds and of each
``assert_allclose``, how far it was from failing. :func:`with_little_room` reads the notes of
several runs, and lists the comparisons whose margin varies and is less than six of its standard
deviations: chance makes them fail sooner or later. Those with a stated false-alarm rate, and bounds
that always hold, may be among them.
"""

import json
import math
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

_FEW = 6.0
_PLAIN = re.compile(r"np\.float\d+\(([^()]*)\)")
_ARITHMETIC = re.compile(r"[\d\s.()+\-*/e]*")
_ORDER = re.compile(r" (<=|>=|<|>) ")


def margins_of(shown):
    """How far each comparison of a chain is from failing, as pytest shows it; none of others."""
    parts = _ORDER.split(_PLAIN.sub(r"\1", shown.split("\n")[0]))
    if len(parts) < 3 or not all(_ARITHMETIC.fullmatch(each) for each in parts[::2]):
        return []
    try:
        values = [float(eval(each, {"__builtins__": {}})) for each in parts[::2]]
    except (SyntaxError, TypeError, ArithmeticError):
        return []
    pairs = zip(values, values[1:], parts[1::2], strict=False)
    return [right - left if order[0] == "<" else left - right for left, right, order in pairs]


class Notes:
    """Of one run, in a file for each process."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._test, self._times = "", Counter()

    def begin(self, test):
        self._test, self._times = test, Counter()

    def add(self, place, text, margins):
        """The margins of a comparison that a test makes for the n-th time."""
        if self._test and margins and all(map(math.isfinite, margins)):
            self._times[place] += 1
            line = [self._test, place, self._times[place], text, margins]
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self):
        self._file.close()


_NOTES = pytest.StashKey()


def pytest_configure(config):
    folder = os.environ.get("EIGENVEIL_MARGINS")
    if folder is None or (config.getoption("numprocesses", None) and not _is_worker()):
        return
    config.stash[_NOTES] = notes = Notes(Path(folder))
    compared = np.testing.assert_allclose

    def spied(actual, desired, rtol=1e-7, atol=0, **more):
        compared(actual, desired, rtol, atol, **more)
        if rtol >= 1e-4 or atol >= 1e-6:  # else it is no noise that is compared
            room = atol + rtol * np.abs(np.asarray(desired, float))
            used = np.abs(np.asarray(actual, float) - desired) / np.where(room > 0, room, 1.0)
            caller = sys._getframe(1).f_lineno
            notes.add(caller, "assert_allclose", [1.0 - float(np.nanmax(used, initial=0.0))])

    np.testing.assert_allclose = spied


def _is_worker():
    return "PYTEST_XDIST_WORKER" in os.environ


def pytest_unconfigure(config):
    if (notes := config.stash.get(_NOTES, None)) is not None:
        notes.close()


def pytest_runtest_setup(item):
    """Examples of hypothesis differ from run to run by themselves."""
    if (notes := item.config.stash.get(_NOTES, None)) is not None:
        drawn = getattr(item.function, "is_hypothesis_test", False)
        notes.begin("" if drawn else item.nodeid)


def pytest_assertion_pass(item, lineno, orig, expl):
    if (notes := item.config.stash.get(_NOTES, None)) is not None:
        notes.add(lineno, orig, margins_of(expl))


def with_little_room(folder):
    """(deviations, runs, test, line, comparison), the least room first; a line once."""
    seen = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            test, place, time, text, margins = json.loads(line)
            for number, margin in enumerate(margins):
                seen[test, place, time, number, text].append(margin)
    found = {}
    for (test, place, _, _, text), margins in seen.items():
        if len(margins) > 2 and (deviation := float(np.std(margins, ddof=1))) > 0:
            room = float(np.mean(margins)) / deviation
            key = (test.partition("[")[0], place)
            if room < min(_FEW, found.get(key, (_FEW,))[0]):
                found[key] = (room, len(margins), test, place, text)
    return sorted(found.values())
