"""Forms of tasks, as their options are declared: fields, and what was typed in them.

Nothing here knows a task by its name: what can be typed follows from an option's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from eigenveil.errors import DataError, number_text
from eigenveil.models.domains import Option
from eigenveil.models.option_words import choice_text, label_of, words_of

# What stands in a form's first part, where a task has it; the rest is folded away.
_FIRST = (
    "n_components", "epsilon", "delta", "unit", "scale", "missing", "covariance_type", "alpha0",
    "expected_rows", "collusion", "dropouts",
)  # fmt: skip
_YES, _NO = "yes", "no"
_FLAGS = {_YES: True, _NO: False}
_NUMBERS = {"integer": int, "number": float}


def fields_of(options: Iterable[Option], *, first: bool = False) -> list[dict[str, Any]]:
    """The fields of options that can be chosen, those first that most fits set."""
    found = [_field(each, first=first) for each in options if _can_be_chosen(each)]
    return sorted(found, key=lambda each: not each["first"])


def read_values(options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Checked values of what was typed, without what is as by default."""
    return {
        each.name: read(each, text)
        for each in options
        if _can_be_chosen(each)
        and (text := given.get(each.name, "").strip()) not in ("", typed(each.default))
    }


def read(option: Option, text: str) -> Any:
    """A checked value of what was typed for an option."""
    candidates = [value for part in _parts(option) for value in _read(part, text)]
    for value in candidates:
        if option.has(value):
            return value
    point = text.replace(",", ".")
    if point != text and any(option.has(each) for each in _read({"type": "number"}, point)):
        raise DataError("decimal-comma", field=label_of(option.name), text=text, point=point)
    numbers = [each for each in candidates if isinstance(each, int | float)]
    option.check(numbers[-1] if numbers else text)  # raises, in the option's words
    raise AssertionError(option.name)


def typed(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return _YES if value else _NO
    if isinstance(value, tuple):
        return ", ".join(map(typed, value))
    return number_text(value) if isinstance(value, float) else str(value)


def said_of(name: str, text: str) -> str:
    """What was set, in the form's words, as a part of a line."""
    label = label_of(name)
    return f"{label[:1].lower()}{label[1:]} {choice_text(name, text).lower() if text else text}"


def _field(option: Option, *, first: bool) -> dict[str, Any]:
    choices = _choices(option)
    return {
        "name": option.name,
        "label": label_of(option.name),
        "help": words_of(option.name).help or option.help,
        "default": typed(option.default),
        # an empty text for nothing; none where a value is typed
        "choices": {each: choice_text(option.name, each) for each in choices},
        "unit": "" if choices else option.unit.replace("the data's", "in the data's units"),
        "first": first or option.name in _FIRST,  # whether it is shown at once
    }


def _can_be_chosen(option: Option) -> bool:
    """Whether there is more than one value, and it is not of one machine alone."""
    return not option.local and bool(_parts(option)) and len(_choices(option)) != 1


def _parts(option: Option) -> list[dict[str, Any]]:
    """What can be typed of an option's values, as JSON schema: arrays of numbers cannot."""
    return [each for each in _alternatives(option.schema()) if _is_typed(each)]


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Any]:
    if "anyOf" not in schema:
        yield schema
    for each in schema.get("anyOf", ()):
        yield from _alternatives(each)


def _is_typed(part: Mapping[str, Any]) -> bool:
    match part.get("type"):
        case "array":
            return bool(part["items"].get("type") == "string")
        case "object" if "additionalProperties" in part and "properties" not in part:
            return bool(part["additionalProperties"].get("type") == "number")
        case _:
            return "enum" in part or "type" in part


def _choices(option: Option) -> list[str]:
    """The texts of which the form offers one; none where a value is typed."""
    found = []
    for part in _parts(option):
        match part:
            case {"enum": names}:
                found += names
            case {"type": "boolean"}:
                found += [text for text, value in _FLAGS.items() if option.has(value)]
            case {"type": "null"}:
                found.insert(0, "")
            case _:
                return []
    return found


def _read(part: Mapping[str, Any], text: str) -> Iterator[Any]:
    """What a text may mean, by one alternative of the values."""
    match part:
        case {"enum": names} if text in names:
            yield text
        case {"type": "boolean"} if text in _FLAGS:
            yield _FLAGS[text]
        case {"type": "null"} if not text:
            yield None
        case {"type": "string"} if text:
            yield text
        case {"type": "array"} if text:
            yield tuple(each.strip() for each in text.split(","))
        case {"type": "object"} if text:
            pairs = [each.partition("=") for each in text.split(",")]
            with suppress(ValueError):
                yield {name.strip(): float(number) for name, _, number in pairs}
        case {"type": "integer" | "number" as kind}:
            with suppress(ValueError):
                yield _NUMBERS[kind](text)
