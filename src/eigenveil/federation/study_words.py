"""What is wrong with a field of a study, in the package's words rather than pydantic's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from eigenveil.errors import DataError


def urgency(error: Any) -> int:
    """A misspelt field also looks like a missing one: say the spelling first."""
    return {"extra_forbidden": 0, "missing": 1}.get(error["type"], 2)


def bad_field(
    where: str,
    fields: Mapping[str, Any],
    error: Any,
    *,
    study: type[BaseModel],
    each_site: type[BaseModel],
) -> DataError:
    """The error of a field, naming it and what it may be; the nearest name where it is unknown."""
    path = error["loc"]
    in_site = len(path) > 2 and path[0] == "sites"
    model: type[BaseModel] = each_site if in_site else study
    field = str(path[2] if in_site else path[0]) if path else "the study"
    site: Any = None
    if in_site:
        site = fields["sites"][path[1]]
        name = site.get("name") if isinstance(site, Mapping) else None
        where += f"site {name!r}: " if name is not None and field != "name" else _place(path[1])
    if error["type"] == "extra_forbidden":
        return _unknown_field(where, field, list(model.model_fields))
    info = model.model_fields.get(field)
    hint = (info.description or "") if info is not None else ""
    if error["type"] == "missing":
        return DataError(f"{where}{field} is missing.", hint=hint, code="missing-field")
    value = error["input"]
    if len(path) == 1 or (in_site and len(path) == 3):
        shown = field
    elif isinstance(path[1], int):
        shown = f"{field}[{path[1]}]"
    else:  # inside a choice of types: what was given for the whole field
        shown, value = field, (site if in_site else fields)[field]
    return DataError(f"{where}{shown} = {_short(value)} is not valid.", hint=hint, code="bad-field")


def _place(index: int) -> str:
    return f"sites[{index}]: "


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _unknown_field(where: str, field: str, known: list[str]) -> DataError:
    near = difflib.get_close_matches(field, known, n=1, cutoff=0.5)
    return DataError(
        f"{where}there is no field {field!r}.",
        hint=f"Did you mean {near[0]!r}?" if near else f"Its fields are {', '.join(known)}.",
        code="unknown-field",
    )
