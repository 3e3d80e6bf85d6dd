"""The package's own errors: what is wrong, where, and the way out.

An error is raised with its code and its facts: ``DataError("bad-center", features=3, given=2)``.
``error_codes.toml`` beside this file has the sentence and the hint of each code.  The command line
prints the two and exits with ``exit_status``; it never shows a traceback unless --debug is given.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import string
import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eigenveil.privacy.guarantee import Guarantee
    from eigenveil.privacy.releases import ReleaseRecord

LONGEST_TEXT = 2000
"""Characters of a text that is shown; of a name, ``LONGEST_NAME``."""
LONGEST_NAME = 80


def first_line(text: object, *, most: int = 200, empty: str) -> str:
    """The first line of another library's words, for a sentence; ``empty`` if it has none."""
    lines = str(text).strip().splitlines() or [empty]
    return lines[0][:most].rstrip(". ")


def printable(text: object, *, most: int | None = LONGEST_TEXT) -> str:
    """A text as it can be shown: one line, nothing that moves or hides what stands beside it.

    Names of columns, sites, studies, releases and files, and what other parties say, may hold
    escape sequences that rewrite a terminal, marks that turn the direction of writing, newlines or
    characters that no encoding has.  Each is shown as its escape, as Python writes it; all else
    stands as it is.
    """
    reported = str(text)
    if most is not None and len(reported) > most:
        reported = reported[: most - 3] + "..."
    if reported.isprintable():
        return reported
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in reported
    )
    return shown if most is None or len(shown) <= most else shown[: most - 3] + "..."


def number_text(value: float, digits: int = 6) -> str:
    """A number as people write it, to so many digits: ``1e-6``, not ``1e-06``."""
    return _as_written(f"{value:.{digits}g}")


def _as_written(text: str) -> str:
    """A formatted number without the plus and the zeros of its exponent."""
    return re.sub(r"(?<=\d)e(-?)\+?0*(?=\d)", r"e\1", text)


class _Sentences(string.Formatter):
    """Fills in the catalogue's sentences, their numbers as people write them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return _as_written(text) if isinstance(value, float) else text


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names as a sentence has them: ``a, b and c``."""
    *first, final = names
    return f"{', '.join(first)} {last} {final}" if first else final


def all_printable(texts: Iterable[object], *, most: int | None = LONGEST_TEXT) -> list[str]:
    """The same of several."""
    return [printable(each, most=most) for each in texts]


def short_name(name: object) -> str:
    """A name as it can be shown, cut where it is too long to be one."""
    return printable(name, most=LONGEST_NAME)


def nearest(name: object, known: Iterable[str]) -> str:
    """What a wrong name may have meant, to stand before a question mark: ``'epsilon'``."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    return repr(near[0]) if near else f"one of {', '.join(names)}"


def of_system(error: BaseException) -> str:
    """What an exception of the system says, to stand before a full stop."""
    return str(getattr(error, "strerror", None) or error)


@functools.cache
def error_codes() -> Mapping[str, tuple[str, str]]:
    """Every code there is: its sentence and its hint, with the names of facts in braces."""
    text = Path(__file__).with_name("error_codes.toml").read_text(encoding="utf-8")
    return {code: (sentence, hint) for code, (sentence, hint) in tomllib.loads(text).items()}


def received_code(code: str) -> str:
    """A code that another party sent; ``"problem"`` where it is none that there is."""
    return code if code in error_codes() else "problem"


class EigenveilError(Exception):
    """Base of the family.

    Parameters
    ----------
    code : str
        One of :func:`error_codes`: stable, for programs.
    **facts : object
        What the sentence and the hint of that code name in braces.

    Attributes
    ----------
    message : str
        What is wrong, naming the file, column, site or number.
    hint : str
        What to do about it.
    facts : mapping
        What was given as facts.
    released : tuple of ReleaseRecord
        What had already been released when the error was raised; often nothing.
    spent : Guarantee or None
        The guarantee of what had already been released; ``None`` when nothing was.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, code: str, /, **facts: object) -> None:
        sentence, hint = error_codes()[code]
        # the catalogue's braces only are read: a fact that has some is shown as it is
        message, way_out = (_Sentences().vformat(text, (), facts) for text in (sentence, hint))
        self._tell(message, way_out, code, facts)

    @classmethod
    def relayed(cls, message: str, *, hint: str = "", code: str) -> Self:
        """An error in the words of another: of a party, a process, or an error that it follows."""
        error = cls.__new__(cls)
        error._tell(message, hint, code, {})
        return error

    def _tell(self, message: str, hint: str, code: str, facts: Mapping[str, object]) -> None:
        self.args = (message,)
        self.message = message
        self.hint = hint
        self.code = code
        self.facts = MappingProxyType(facts)
        self.released: tuple[ReleaseRecord, ...] = ()
        self.spent: Guarantee | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # facts are what a program can look at here; between processes the words go
        state = {name: value for name, value in vars(self).items() if name != "facts"}
        return _unpickled, (type(self), self.message), state

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def _unpickled(kind: type[EigenveilError], message: str) -> EigenveilError:
    return kind.relayed(message, code=kind.__name__)


class DataError(EigenveilError, ValueError):
    """The rows, files or columns cannot be used as they are."""

    exit_status = 3


class PrivacyError(EigenveilError, ValueError):
    """The requested guarantee cannot be given, or a release cannot be useful under it."""

    exit_status = 4


class BudgetExceeded(PrivacyError):
    """A ledger refuses a charge."""

    exit_status = 5


class ProtocolError(EigenveilError, RuntimeError):
    """A message or a party does not follow the protocol."""

    exit_status = 6


class DecisionRefused(DataError):
    """A decision about a study, or about who decides, cannot be recorded."""


class OutputError(EigenveilError, OSError):
    """A result cannot be written or read at the given place."""

    exit_status = 7


class WrongOption(EigenveilError):
    """An option that cannot be what it is, or that has no meaning beside another one."""

    exit_status = 2


class InvalidRowsWarning(UserWarning):
    """Rows are not valid and were left out: how many, where the first is, and by which rule.

    For the owner of the rows only: it depends on them, and no noise was added to it.
    """


class FileDialectWarning(UserWarning):
    """How a text file was read, where its first lines said it and nobody else."""


class VariantsWarning(UserWarning):
    """Variants of a manifest that a file of genotypes has not, or has otherwise."""


class LedgerWarning(UserWarning):
    """What a ledger's owner should know of a fit: an account that was opened, rows that changed.

    For the owner of the rows only.
    """


class NoisyResultWarning(UserWarning):
    """The result shows nothing above its noise."""


class WeakPrivacyWarning(UserWarning):
    """The guarantee promises little, or less than it seems to."""


_OWN = ("eigenveil.", "sklearn.", "joblib.")


def callers_level() -> int:
    """How far up the call is from which the package was entered, for a warning's place.

    Past scikit-learn, which wraps ``transform`` and calls the steps of a pipeline and of a search.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        level, frame = level + 1, frame.f_back
    return level - 1


def spent_of(error: BaseException) -> Guarantee | None:
    """What was spent before an exception; ``None`` where nothing was."""
    found: Guarantee | None = getattr(error, "spent", None)
    return found


def same_spent(error: BaseException, instead: BaseException) -> None:
    """Let an exception that takes another's place carry what that one reported as spent."""
    released = getattr(error, "released", ())
    if not released or error is instead:
        return
    known: Any = instead
    known.released, known.spent = released, spent_of(error)
    for note in getattr(error, "__notes__", ()):
        instead.add_note(note)
