"""What a fit did, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from eigenveil.cli.screen import Screen, bold
from eigenveil.cli.tasks import family_of
from eigenveil.errors import short_name
from eigenveil.estimators.stored import StoredModel
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import ReleaseRecord


def as_json(model: StoredModel) -> dict[str, Any]:
    """The released result as plain values."""
    family = family_of(model)
    return {
        "task": family.task,
        **family.values(model),
        "releases": [release_as_json(record) for record in model.certificate_.releases],
        "guarantee": {**model.guarantee_.as_dict(), "sentence": str(model.guarantee_)},
        "plan_hash": model.certificate_.plan_hash,
    }


def print_model(model: StoredModel, out: Screen) -> None:
    """The components, the guarantee, and what each release spent."""
    family_of(model).show(model, out)
    if model.certificate_.stopped is not None:
        out.print(bold("the fit ended early:"), f"{model.certificate_.stopped}.")
    print_releases(model.certificate_.releases, out)
    out.print(bold("guarantee:"), model.guarantee_)
    for caveat in model.guarantee_.caveats if model.guarantee_.certified else ():
        out.print(f"  note: {caveat}.")


def print_releases(
    records: Sequence[ReleaseRecord],
    out: Screen,
    *,
    title: str = "releases: all that is computed from rows",
) -> None:
    """What left the rows, with which noise, at which cost."""
    table = Table(title=title)
    for name in ("release", "values", "sensitivity", "noise", "loss"):
        table.add_column(name, justify="left" if name in ("release", "noise") else "right")
    for record in records:
        table.add_row(
            short_name(record.name),
            str(record.noise.size),
            f"{record.sensitivity():.4g}",
            f"{record.noise.kind}, scale {record.noise.scale:.4g}",
            f"epsilon = {record.epsilon():.4g}" if record.pure else f"mu = {record.mu():.4g}",
        )
    out.print(table)


def release_as_json(record: ReleaseRecord) -> dict[str, Any]:
    """The same of one release as plain values."""
    return {
        "name": record.name,
        "values": record.noise.size,
        "sensitivity": record.sensitivity(),
        "noise": record.noise.kind,
        "scale": record.noise.scale,
        "mu": None if record.pure else record.mu(),
        "epsilon": record.epsilon() if record.pure else None,
    }


def print_views(views: Mapping[str, Guarantee], out: Screen) -> None:
    """What each adversary is held to."""
    table = Table(title="what each adversary is held to")
    for name in ("adversary", "epsilon", "delta", "mu", "certified"):
        table.add_column(name, justify="left" if name == "adversary" else "right")
    for name, guarantee in views.items():
        table.add_row(
            short_name(name),
            f"{guarantee.epsilon:.4g}",
            f"{guarantee.delta:.3g}",
            "-" if guarantee.mu is None else f"{guarantee.mu:.4g}",
            "yes" if guarantee.certified else "NO",
        )
    out.print(table)
    for guarantee in views.values():
        if not guarantee.certified:
            out.print(f"  {guarantee}")
