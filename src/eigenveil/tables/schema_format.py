"""The JSON schema of a schema's file, for editors and other programs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eigenveil.tables.kinds import KINDS
from eigenveil.tables.reading import Dialect
from eigenveil.tables.schema import FORMAT, OF_READING, PLAIN_FIELDS, ROLES


def json_schema(*, reading: bool = True) -> dict[str, Any]:
    """The JSON schema of a schema's file; without ``reading`` of what sites agree on."""
    limit = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]}
    text = {"type": "string"}
    codes = {"type": "array", "items": {"type": ["string", "number"]}}
    of_type = {bool: {"type": "boolean"}, tuple: codes}
    said = {f.name: of_type.get(type(f.default), text) for f in fields(Dialect)} if reading else {}
    column = {
        "name": text | {"minLength": 1},
        "kind": {"enum": list(KINDS)},
        "role": {"enum": list(ROLES), "default": "feature"},
        "range": {"type": "array", "items": limit, "minItems": 2, "maxItems": 2},
        "levels": {"type": "array", "items": text, "minItems": 1, "uniqueItems": True},
        **dict.fromkeys(PLAIN_FIELDS, text),
        "origin": text | {"format": "date"},
        "confirmed": {"type": "boolean", "default": True},
    } | {name: said[name] for name in OF_READING if reading}
    of_keys = {"type": "object", "additionalProperties": False}
    each = of_keys | {"required": ["name"], "properties": column}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "eigenveil schema",
        **of_keys,
        "required": ["format", "columns"],
        "properties": {
            "format": {"const": FORMAT},
            **({"reading": of_keys | {"properties": said}} if reading else {}),
            "columns": {"type": "array", "minItems": 1, "items": each},
        },
    }
