"""The curves that the papers' authors stored beside their code, in authors.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["captured_energy", "component_error"]
AuthorsCurve = tuple[NDArray[np.float64], NDArray[np.float64]]

# the names under which the authors stored their series, and ours
_SERIES = {
    "pooled_dp": "pooled",
    "dpdispca": "dpdispca",
    "full_dp": "full",
    "local_dp": "local",
    "dispca_nonprivate": "dispca",
    "local_nonprivate": "local-exact",
    "djica_dp": "djica",
    "nonprivate": "exact",
    "capeAGN": "capeagn",
    "conv": "conv",
    "local": "local",
}


def authors(kind: Kind, figure: str) -> dict[str, AuthorsCurve]:
    """What the authors stored beside their code, by our names of the series."""
    found = _stored().get(kind, {}).get(figure)
    if not found or "values" not in found:
        return {}
    x = np.array(found["values"], dtype=np.float64)
    curves: dict[str, AuthorsCurve] = {}
    for name, series in _SERIES.items():
        if name not in found:
            continue
        values = np.array(found[name], dtype=np.float64).ravel()
        if values.size != x.size:  # one for all positions, or one a run
            values = np.full(x.size, values.mean())
        if np.any(values != 0.0):
            curves[series] = (x, values)
    random = _stored().get(kind, {}).get(_random_of(figure), {}).get("random_vectors")
    if random is not None:
        curves["random"] = (x, np.full(x.size, float(random)))
    return curves


def _random_of(figure: str) -> str:
    found = re.match(r"(MOG|STM)_.*K_(\d+)_D_(\d+)", figure)
    return "random_comp_error_{}_K_{}_N_{}".format(*found.groups()) if found else ""


@cache
def _stored() -> Mapping[str, Any]:
    stored: dict[str, Any] = json.loads(Path(__file__).with_name("authors.json").read_text("utf-8"))
    return stored
