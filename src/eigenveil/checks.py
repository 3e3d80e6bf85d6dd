"""Checks of numbers and choices that callers give, made before anything is released."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType
from typing import TypeVar

from pydantic import GetPydanticSchema, WithJsonSchema
from pydantic_core import core_schema

from eigenveil.errors import DataError

LARGEST, SMALLEST = 1e100, 1e-100
"""Bounds of numbers in the data's units: beyond them squares or cubes overflow."""
MOST_WHOLE = 2**31 - 1
LARGEST_EPSILON = 40.0
"""A larger target is met with this one's noise, a small part of a single row: nothing is gained
beyond, and the sampler's own error could no longer be covered."""
_Name = TypeVar("_Name", bound=Hashable)


def first_twice(names: Iterable[_Name]) -> _Name | None:
    """The first name that is there more than once; ``None`` where each is there once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; a truth value or a text is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def check_whole(name: str, value: object, *, least: int = 1, most: int = MOST_WHOLE) -> None:
    """Raise unless a value is a whole number from ``least`` to ``most``."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        raise DataError("bad-number", name=name, value=_short(value), least=least, most=most)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_of(names: Collection[str]) -> tuple[GetPydanticSchema, WithJsonSchema]:
    """What a model's field needs that is the name of something in a registry."""
    known = core_schema.custom_error_schema(
        core_schema.literal_schema(list(names)),
        custom_error_type="unknown_name",
        custom_error_message=f"it is not one of {', '.join(names)}",
    )
    schema = WithJsonSchema({"enum": list(names), "type": "string"})
    return GetPydanticSchema(lambda _source, _handler: known), schema


def library(name: str, *, extra: str, what: str) -> ModuleType:
    """Import a library that only some installations have."""
    try:
        return import_module(name)
    except ImportError:
        raise DataError(
            "extra-missing", what=what, library=name.partition(".")[0], extra=extra
        ) from None
