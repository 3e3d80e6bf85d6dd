"""Columns that look like identifiers, by their names and types; values are never looked at.

A component that is ``patient_id`` is of no use, and an identifier is the last thing to publish
(tables.md, section 5). Names are split into words at blanks, signs and changes of case, so that
``patient_id`` and ``PatientID`` are found, ``humidity``, ``acid``, ``width`` and the genes ID1 and
IDH1 are not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from eigenveil.errors import DataError, listed, short_name

_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^0-9A-Za-z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# as any word of a name
_ANYWHERE = _words("mrn ssn uuid guid nino bsn cpf dni personnummer pseudonym")
# as the first or the last word
_OUTSIDE = _words("id ids uid")
# as the whole name
_WHOLE = _words("eid iid pid index seqn subject patient participant respondent user rownames")
# of whom or what a number, key or code tells which one it is
_OF = _words(
    """
    patient subject person participant respondent user customer client member employee student
    staff record case chart account admission encounter visit sample specimen household device
    insurance licence license passport security nhs hospital phone telephone mobile fax row order
    transaction
    """
)
_NUMBER = _words("no nr num number nbr key code hash")
# of columns of text only: numbers of e-mails are features
_NAMES = _words(
    "name names email mail surname firstname lastname forename fullname username address"
)
_COUNTED = re.compile(r"Unnamed: \d+|level_\d+|__index_level_\d+__")


def looks_like_identifier(name: str, *, is_text: bool = False) -> bool:
    """Whether a column of this name tells which person, or which row, it is about."""
    if _COUNTED.fullmatch(name):
        return True
    words = [word.lower() for word in _BREAK.split(name) if word]
    if not words:
        return False
    last = words[-1]
    if _ANYWHERE & set(words) or {words[0], last} & _OUTSIDE:
        return True
    if len(words) == 1:
        joined = re.fullmatch(r"(\w+?)(id|ids|number|no)", last)
        return (
            last in _WHOLE
            or (joined is not None and joined[1] in _OF)
            or (is_text and last in _NAMES)
        )
    if last in _NUMBER and words[-2] in _OF:
        return True
    return is_text and last in _NAMES


def check_identifiers(
    whose: str, names: Sequence[str] | None, *, text: Collection[str] = ()
) -> None:
    """Refuse columns that look like identifiers, where no schema says what they are."""
    found = [name for name in names or () if looks_like_identifier(name, is_text=name in text)]
    if not found:
        return
    shown = [repr(short_name(name)) for name in found[:5]]
    if len(found) > 5:
        shown.append(f"{len(found) - 5} more")
    more = f", as does {listed(shown[1:])}" if shown[1:] else ""
    raise DataError("identifier-column", whose=whose, column=shown[0], more=more)
