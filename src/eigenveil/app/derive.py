"""What follows from a released covariance, without more of the budget: a folder from a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.parts import Part
from eigenveil.app.results import (
    CERTIFICATE,
    MODEL,
    SCHEMA,
    check_free,
    load_model,
    new_folder,
    presenter_of,
    result_parts,
    result_values,
    write_figures,
)
from eigenveil.errors import DataError
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.kinds import derive as derive_model

_OF_ONE = ("target", "group")


@dataclass(frozen=True)
class DerivedResult:
    model: DerivedModel
    out: Path

    def as_json(self) -> dict[str, Any]:
        return {"out": self.out, **result_values(self.model)}

    def parts(self) -> Iterator[Part]:
        yield from result_parts(self.model)
        yield f"written to {self.out}: nothing was charged, for no row was read."


def covariance_in(result: Path) -> FittedCovariance:
    """The covariance of a folder; other results are refused."""
    source = load_model(result / MODEL)
    if not isinstance(source, FittedCovariance):
        raise DataError("derive-from-other", path=result, name=type(source).__name__)
    return source


def derived_from(result: Path, kind: str, options: Mapping[str, Any]) -> DerivedModel:
    """What follows from a covariance's folder; one target or group is a name, not a list."""
    source = covariance_in(result)
    given = {
        name: value[0] if name in _OF_ONE and len(value) == 1 else value
        for name, value in options.items()
    }
    return derive_model(source, kind, **given)


def derive(
    result: Path,
    kind: str,
    out: Path,
    options: Mapping[str, Any],
    *,
    figures: bool = True,
    overwrite: bool = False,
) -> DerivedResult:
    """Derive a model from a covariance's folder, and write a folder of its own."""
    check_free(out, overwrite=overwrite)
    model = derived_from(result, kind, options)
    presenter = presenter_of(model)
    with new_folder(out) as folder:
        model.save(folder)
        presenter.write(model, folder)
        for name in (CERTIFICATE, SCHEMA):
            if (result / name).exists():
                shutil.copyfile(result / name, folder / name)
        if figures:
            write_figures(presenter, model, folder)
    return DerivedResult(model, out)
