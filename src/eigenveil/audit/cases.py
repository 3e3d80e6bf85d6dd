"""The registry: every mechanism that can be audited, by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache

from eigenveil.audit.case import Case
from eigenveil.audit.many_parties import many_party_cases
from eigenveil.audit.published import published_cases
from eigenveil.audit.sound import sound_cases
from eigenveil.errors import DataError

# Words that stand for many cases.
EVERYTHING = "all"
GROUPS = ("sound", "published")


@cache
def all_cases() -> dict[str, Case]:
    """Every case by its name: releases, many parties, published algorithms."""
    found: dict[str, Case] = {}
    for case in (*sound_cases(), *many_party_cases(), *published_cases()):
        if case.name in found:
            raise AssertionError(f"two cases are called {case.name!r}")
        found[case.name] = case
    return found


def mechanisms() -> dict[str, list[Case]]:
    """The cases of each mechanism."""
    found: dict[str, list[Case]] = {}
    for case in all_cases().values():
        found.setdefault(case.mechanism, []).append(case)
    return found


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases that words name: mechanisms, cases, ``sound``, ``published`` or ``all``.

    Raises
    ------
    DataError
        ``unknown-mechanism``, with the closest names.
    """
    cases, families = all_cases(), mechanisms()
    taken: dict[str, Case] = {}
    for word in words:
        if word == EVERYTHING:
            found = list(cases.values())
        elif word in GROUPS:
            found = [case for case in cases.values() if case.group == word]
        elif word in families:
            found = families[word]
        elif word in cases:
            found = [cases[word]]
        else:
            raise _unknown(word, list(dict.fromkeys([*families, *cases, *GROUPS, EVERYTHING])))
        taken.update((case.name, case) for case in found)
    return list(taken.values())


def _unknown(word: str, names: Sequence[str]) -> DataError:
    close = difflib.get_close_matches(word.lower().replace("_", "-"), names, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    return DataError(
        f"There is no mechanism {word!r}.",
        hint=f"{meant}'eigenveil audit list' shows all of them.",
        code="unknown-mechanism",
    )
