"""What a fit did, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from eigenveil.cli.options import terminal_width
from eigenveil.estimators.fitted import FittedPCA
from eigenveil.privacy.guarantee import Guarantee


def console(*, quiet: bool = False) -> Console:
    """Standard output."""
    return Console(width=terminal_width(), quiet=quiet, highlight=False)


def as_json(model: FittedPCA) -> dict[str, Any]:
    """The released result as plain values."""
    names = getattr(model, "feature_names_in_", None)
    return {
        "components": model.components_.tolist(),
        "features": None if names is None else [str(name) for name in names],
        "mean": model.mean_.tolist(),
        "explained_variance": model.explained_variance_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
        "usable": model.usable_.tolist(),
        "noise_floor": model.noise_floor_,
        "rows": model.n_samples_,
        "guarantee": {**model.guarantee_.as_dict(), "sentence": str(model.guarantee_)},
        "plan_hash": model.certificate_.plan_hash,
    }


def print_model(model: FittedPCA, out: Console) -> None:
    """The components, the guarantee, and what each release spent."""
    table = Table(title=f"{model.n_components_} components of {model.n_features_in_} features")
    table.add_column("component")
    table.add_column("explained variance", justify="right")
    table.add_column("% of total", justify="right")
    table.add_column("cumulative %", justify="right")
    table.add_column("largest loading")
    table.add_column("above noise")
    total = 0.0
    names = getattr(model, "feature_names_in_", None)
    for index, component in enumerate(model.components_):
        share = 100 * float(model.explained_variance_ratio_[index])
        total += share
        top = int(abs(component).argmax())
        table.add_row(
            f"PC{index + 1}",
            f"{model.explained_variance_[index]:.5g}",
            f"{share:.1f}",
            f"{total:.1f}",
            f"{names[top] if names is not None else top} ({component[top]:+.2f})",
            "yes" if model.usable_[index] else "NO: not usable",
        )
    out.print(table)
    print_releases(model, out)
    out.print(f"[bold]guarantee:[/bold] {model.guarantee_}")
    for caveat in model.guarantee_.caveats if model.guarantee_.certified else ():
        out.print(f"  note: {caveat}.")


def print_releases(model: FittedPCA, out: Console) -> None:
    """What left the rows, with which noise, at which cost."""
    table = Table(title="releases: all that is computed from rows")
    for name in ("release", "values", "sensitivity", "noise", "loss"):
        table.add_column(name, justify="left" if name in ("release", "noise") else "right")
    for record in model.certificate_.releases:
        gaussian = record.noise.kind == "gaussian"
        table.add_row(
            record.name,
            str(record.noise.size),
            f"{record.sensitivity():.4g}",
            f"{record.noise.kind}, scale {record.noise.scale:.4g}",
            f"mu = {record.mu():.4g}" if gaussian else f"epsilon = {record.epsilon():.4g}",
        )
    out.print(table)


def print_views(views: Mapping[str, Guarantee], out: Console) -> None:
    """What each adversary is held to."""
    table = Table(title="what each adversary is held to")
    for name in ("adversary", "epsilon", "delta", "mu", "certified"):
        table.add_column(name, justify="left" if name == "adversary" else "right")
    for name, guarantee in views.items():
        table.add_row(
            name,
            f"{guarantee.epsilon:.4g}",
            f"{guarantee.delta:.3g}",
            "-" if guarantee.mu is None else f"{guarantee.mu:.4g}",
            "yes" if guarantee.certified else "NO",
        )
    out.print(table)
    for guarantee in views.values():
        if not guarantee.certified:
            out.print(f"  {guarantee}")
