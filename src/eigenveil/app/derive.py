"""What follows from a released covariance, without more of the budget: a folder from a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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
)
from eigenveil.errors import DataError
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.derived.kinds import derive as derive_model


@dataclass(frozen=True)
class DerivedResult:
    model: Any
    out: Path

    def as_json(self) -> dict[str, Any]:
        return {"out": self.out, **result_values(self.model)}

    def parts(self) -> Iterator[Part]:
        yield from result_parts(self.model)
        yield f"written to {self.out}: nothing was charged, for no row was read."


def derive(
    result: Path, kind: str, out: Path, *, overwrite: bool = False, **options: Any
) -> DerivedResult:
    """Derive a model from a covariance's folder, and write a folder of its own."""
    check_free(out, overwrite=overwrite)
    source = load_model(result / MODEL)
    if not isinstance(source, FittedCovariance):
        raise DataError("derive-from-other", path=result, name=type(source).__name__)
    given = {name: value for name, value in options.items() if value is not None}
    model = derive_model(source, kind, **given)
    presenter = presenter_of(model)
    with new_folder(out) as folder:
        model.save(folder)
        presenter.write(model, folder)
        for name in (CERTIFICATE, SCHEMA):
            if (result / name).exists():
                shutil.copyfile(result / name, folder / name)
    return DerivedResult(model, out)
