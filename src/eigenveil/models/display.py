"""A fitted model and a plan in a notebook: what was released, and what is promised."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from eigenveil.markup import fragment, html_of, node, table
from eigenveil.privacy.releases import releases_node


def fitted_html(model: Any) -> str:
    """What a fitted model adds to scikit-learn's own box: nothing before the fit."""
    result = model._result
    if result is None:
        return ""
    usable = getattr(result.factors, "usable", None)
    lines = [f"{result.features:,} features"]
    if usable is not None:
        lines.append(f"{int(usable.sum())} of {usable.size} usable (above the noise)")
    if result.certificate.stopped:
        lines.append(f"the fit ended early: {result.certificate.stopped}")
    return html_of(
        fragment(
            f"{type(model).__name__}: fitted",
            node("div", "; ".join(lines)),
            result.guarantee.as_node(),
            releases_node(result.certificate.releases),
        )
    )


def plan_html(plan: BaseModel) -> str:
    """A plan as a table of its fields; those that are ``None`` are left out."""
    values = plan.model_dump(mode="json")
    rows = [
        (name, ", ".join(f"{k}: {v:.4g}" for k, v in value.items()))
        if isinstance(value, dict) and all(isinstance(v, int | float) for v in value.values())
        else (name, str(value))
        for name, value in values.items()
        if value is not None
    ]
    title = f"{type(plan).__name__}: decided before any row is read"
    return html_of(fragment(title, table(("field", "value"), rows, style=True)))
