"""What an option is: its name, the values that it may have, its default and help.

Read for ``eigenveil --help``, so it imports no numerical library.
"""

from __future__ import annotations

import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from eigenveil.checks import MOST_WHOLE, is_number
from eigenveil.errors import EigenveilError

Path = Literal["table", "sites", "stream", "tracking"]
"""Where rows come from: one table, several sites, blocks of a private stream, or of one tracked."""

MOST_EPSILON = 1e15
MOST_WEIGHT = 1e15
LEAST_FRACTION = 1e-6
"""Of a budget split: fractions are from this to one over it, so that none is next to nothing."""


class Domain(ABC):
    """A set of values."""

    text: str  # After "must be"
    kind: str  # As a docstring has it

    @abstractmethod
    def has(self, value: object) -> bool:
        """Whether a value is one of them."""

    def schema(self) -> dict[str, Any]:
        """The values as JSON schema."""
        return {}

    def plain(self, value: Any) -> Any:
        """A value as a study file has it."""
        return value


@dataclass(frozen=True)
class WholeNumber(Domain):
    """Whole numbers from ``least`` to ``most``; no truth values."""

    least: int = 1
    most: int = MOST_WHOLE
    kind = "int"

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"an int in the range [{self.least}, {self.most}]"

    def has(self, value: object) -> bool:
        return (
            isinstance(value, Integral)
            and not isinstance(value, bool)
            and self.least <= int(value) <= self.most
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def plain(self, value: Any) -> Any:
        return int(value)


@dataclass(frozen=True)
class Number(Domain):
    """Finite numbers; ``open_low`` and ``open_high`` leave a bound out, ``zero`` adds 0."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    zero: bool = False
    kind = "float"

    @property
    def text(self) -> str:  # type: ignore[override]
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        zero = "0 or " if self.zero else ""
        return f"{zero}a float in the range {left}{self.low:g}, {self.high:g}{right}"

    def has(self, value: object) -> bool:
        if not is_number(value):
            return False
        number: Any = value
        if self.zero and number == 0:
            return True
        above = number > self.low if self.open_low else number >= self.low
        return bool(above and (number < self.high if self.open_high else number <= self.high))

    def schema(self) -> dict[str, Any]:
        return {
            "type": "number",
            "exclusiveMinimum" if self.open_low else "minimum": 0 if self.zero else self.low,
            "exclusiveMaximum" if self.open_high else "maximum": self.high,
        }

    def plain(self, value: Any) -> Any:
        return float(value)


@dataclass(frozen=True)
class OneOf(Domain):
    names: tuple[str, ...]

    @property
    def text(self) -> str:  # type: ignore[override]
        among = ", ".join(repr(name) for name in self.names)
        return among if len(self.names) == 1 else f"a str among {{{among}}}"

    @property
    def kind(self) -> str:  # type: ignore[override]
        among = ", ".join(f'"{name}"' for name in self.names)
        return among if len(self.names) == 1 else f"{{{among}}}"

    def has(self, value: object) -> bool:
        return isinstance(value, str) and value in self.names

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


@dataclass(frozen=True)
class Text(Domain):
    """A text that can be shown on a terminal, such as a column's name."""

    most: int = 128
    text = "a str of 1 to 128 characters, all printable"
    kind = "str"

    def has(self, value: object) -> bool:
        return isinstance(value, str) and 0 < len(value) <= self.most and value.isprintable()

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.most}

    def plain(self, value: Any) -> Any:
        return str(value)


@dataclass(frozen=True)
class Name(Text):
    """What a data set is called."""

    most: int = 200
    text = "a str of 1 to 200 printable characters"


@dataclass(frozen=True)
class Flag(Domain):
    """True and False, or one of them; numpy's too."""

    only: bool | None = None

    @property
    def text(self) -> str:  # type: ignore[override]
        return "a bool" if self.only is None else str(self.only)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "bool" if self.only is None else str(self.only)

    def has(self, value: object) -> bool:
        # numpy's truth values are no bool, but equal one and are of their own type
        kind = isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
        return kind and (self.only is None or bool(value) is self.only)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def plain(self, value: Any) -> Any:
        return bool(value)


class Nothing(Domain):
    """None."""

    text, kind = "None", ""

    def has(self, value: object) -> bool:
        return value is None

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


class NumberAFeature(Domain):
    text, kind = "an array of one number a feature", "array of shape (n_features,)"

    def has(self, value: object) -> bool:
        if isinstance(value, list | tuple):  # ones of Python's must hold numbers
            return all(map(is_number, value))
        return _is_array(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "number"}}

    def plain(self, value: Any) -> Any:
        return tuple(float(number) for number in value)


class RangeAFeature(Domain):
    """A pair of numbers for each feature; that they fit the rows is checked with them."""

    text = "a pair of each feature's smallest and largest number, in order or by name"
    kind = "array of shape (n_features, 2) or dict of str to (float, float)"

    def has(self, value: object) -> bool:
        if isinstance(value, Mapping):
            return all(map(TEXT.has, value)) and self.has(list(value.values()))
        if isinstance(value, list | tuple):
            return all(VECTOR.has(each) and len(each) == 2 for each in value)
        shape = getattr(value, "shape", ())
        return isinstance(shape, tuple) and len(shape) == 2 and shape[1] == 2

    def schema(self) -> dict[str, Any]:
        pair = {**VECTOR.schema(), "minItems": 2, "maxItems": 2}
        either = {"array": {"items": pair}, "object": {"additionalProperties": pair}}
        return {"anyOf": [{"type": kind, **inside} for kind, inside in either.items()]}

    def plain(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: VECTOR.plain(each) for name, each in value.items()}
        return tuple(VECTOR.plain(each) for each in value)


class SomeColumns(Domain):
    text = "a list of columns' numbers from 0, or their names, each once"
    kind = "list of int or str"

    def has(self, value: object) -> bool:
        if not isinstance(value, list | tuple) or not value:
            return False
        named = all(TEXT.has(each) for each in value)
        return (named or all(PLACE.has(each) for each in value)) and len(set(value)) == len(value)

    def schema(self) -> dict[str, Any]:
        kinds = [{"type": "array", "items": each.schema()} for each in (PLACE, TEXT)]
        return {"anyOf": [kind | {"minItems": 1, "uniqueItems": True} for kind in kinds]}

    def plain(self, value: Any) -> Any:
        return tuple((TEXT if isinstance(each, str) else PLACE).plain(each) for each in value)


class NamedColumns(Domain):
    """Columns that a release names."""

    text, kind = "a list of columns' names", "list of str"

    def has(self, value: object) -> bool:
        return isinstance(value, list | tuple) and bool(value) and all(map(TEXT.has, value))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": TEXT.schema(), "minItems": 1}


class WordList(NamedColumns):
    """A public list of words, none of them twice."""

    text = "a list of different words"

    def has(self, value: object) -> bool:
        words: list[Any] = list(value) if _is_array(value) else []  # type: ignore[call-overload]
        return super().has(words) and len(set(words)) == len(words)


class Pair(Domain):
    """Two percentages, the first below the second."""

    text = "a pair (alpha, beta) of percentages, 0 <= alpha < beta <= 100"
    kind = "(alpha, beta)"

    def has(self, value: object) -> bool:
        if not _is_array(value):
            return False
        pair = tuple(value)  # type: ignore[arg-type, var-annotated]
        return len(pair) == 2 and all(map(is_number, pair)) and 0 <= pair[0] < pair[1] <= 100

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}

    def plain(self, value: Any) -> Any:
        return tuple(float(number) for number in value)


@dataclass(frozen=True)
class Shares(Domain):
    """Relative fractions of steps: a mapping of some of the steps to numbers, or to 0."""

    steps: tuple[str, ...]
    kind = "dict of step to float"

    @property
    def text(self) -> str:  # type: ignore[override]
        steps = ", ".join(repr(step) for step in self.steps)
        return (
            f"a dict of the steps {steps} and their fractions of the budget, each 0 or "
            f"from {LEAST_FRACTION:g} to {1 / LEAST_FRACTION:g}"
        )

    def has(self, value: object) -> bool:
        return isinstance(value, Mapping) and not self.wrong_part(value)

    def wrong_part(self, value: Mapping[object, object]) -> dict[object, object]:
        fraction = Number(LEAST_FRACTION, 1 / LEAST_FRACTION, zero=True)
        return {
            step: each
            for step, each in value.items()
            if not (isinstance(step, str) and step in self.steps and fraction.has(each))
        }

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {step: {"type": "number", "minimum": 0} for step in self.steps},
            "additionalProperties": False,
        }

    def plain(self, value: Any) -> Any:
        return {step: float(fraction) for step, fraction in value.items()}


@dataclass(frozen=True)
class OfSites(Domain):
    """A mapping of some sites' names to numbers."""

    what: str  # What the numbers are
    each: Number
    kind = "dict of site to float"

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"a dict of sites and their {self.what}, each {self.each.text}"

    def has(self, value: object) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and self.each.has(number) for name, number in value.items()
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.each.schema()}

    def plain(self, value: Any) -> Any:
        return {name: float(each) for name, each in value.items()}


class Generator(Domain):
    text, kind = "a numpy.random.Generator or RandomState", "Generator or RandomState"

    def has(self, value: object) -> bool:
        return _is_a(value, "numpy.random", "Generator", "RandomState")


class LedgerPlace(Domain):
    """Where a ledger is: a path or URL, or the ledger itself."""

    text = "a path or URL of a ledger, an eigenveil.Ledger"
    kind = "path, URL or eigenveil.Ledger"

    def has(self, value: object) -> bool:
        if isinstance(value, str | os.PathLike):
            return isinstance(os.fspath(value), str) and str(value) != ""
        return _is_a(value, "eigenveil.", "Ledger")

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


def _is_array(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping | Set)


def _is_a(value: object, module: str, *names: str) -> bool:
    """Checked by name, so that no numerical library and no database need be loaded."""
    kinds = type(value).__mro__
    return any(kind.__module__.startswith(module) and kind.__name__ in names for kind in kinds)


@dataclass(frozen=True)
class Option:
    """One option of some tasks."""

    name: str  # The constructor's parameter
    values: tuple[Domain, ...]  # A value is in one of them
    default: Any
    help: str  # One sentence, for the command line and the study file
    tasks: tuple[str, ...]  # The tasks that have it
    paths: tuple[Path, ...]  # How their rows may come
    unit: str = ""  # Of the number, where it has one
    examples: tuple[Any, ...] = ()  # For a study file
    # Whether it is a part of the guarantee: a value that cannot be is a PrivacyError then, and a
    # DataError otherwise
    privacy: bool = False
    local: bool = False  # Whether it is for whoever fits only: it is never written with a result
    more: str = ""  # What the estimators' docstrings say beside the help

    @property
    def text(self) -> str:
        parts = [domain.text for domain in self.values]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"

    @property
    def documented(self) -> str:
        """Its paragraph in a docstring's section of parameters, as numpydoc has it."""
        kinds = [domain.kind for domain in self.values if domain.kind]
        kind = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        default = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        about = textwrap.fill(f"{self.help} {self.more}", 92, break_on_hyphens=False)
        return f"{self.name} : {kind}, default={default}\n{textwrap.indent(about, '    ')}"

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(
            name for domain in self.values if isinstance(domain, OneOf) for name in domain.names
        )

    def has(self, value: object) -> bool:
        return any(domain.has(value) for domain in self.values)

    def schema(self) -> dict[str, Any]:
        """The values as JSON schema."""
        parts = [domain.schema() for domain in self.values]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def plain(self, value: object) -> Any:
        """An allowed value as a study file has it: no type of numpy's."""
        return next(domain for domain in self.values if domain.has(value)).plain(value)

    def check(self, value: object, *, owner: str = "") -> None:
        if not self.has(value):
            shares = [each for each in self.values if isinstance(each, Shares)]
            if shares and isinstance(value, Mapping):
                value = shares[0].wrong_part(value)
            # without an owner it is a field of a file, or an option of a command
            raise refused(
                self,
                "bad-parameter" if owner else "bad-option",
                owner=owner,
                wanted=self.text,
                given=_short(value),
            )


def refused(option: Option, code: str, /, *, owner: str = "", **facts: Any) -> EigenveilError:
    """The error of an option that cannot be what it is, of its kind, for scikit-learn too."""
    # scikit-learn takes a moment to load, and only its class of error is wanted here
    from eigenveil.models.constraints import InvalidParameter, InvalidPrivacyParameter

    facts["option"] = f"The {option.name!r} parameter of {owner}" if owner else option.name
    facts["help"] = f"{option.name}: {option.help}"
    return (InvalidPrivacyParameter if option.privacy else InvalidParameter)(code, **facts)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # a whole number of too many digits, or an object that cannot be shown
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


EPSILON = Number(0.0, MOST_EPSILON, open_low=True)
WEIGHT = Number(0.0, MOST_WEIGHT, open_low=True)
NONE, VECTOR = Nothing(), NumberAFeature()
PLACE, TEXT = WholeNumber(0), Text()
