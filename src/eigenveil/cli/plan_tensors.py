"""``eigenveil plan`` of mixtures and topics: what is released, at which cost, and what it shows."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.expected import Expected, expect
from eigenveil.cli.plan_asked import Asked
from eigenveil.cli.report import print_releases, release_as_json
from eigenveil.cli.screen import Screen
from eigenveil.estimators.tensor_settings import MixturePlan
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Guarantee

# Weights of components that are looked at, beside an equal share.
_WEIGHTS = (0.5, 0.2, 0.1, 0.05, 0.02)


def needs(found: Expected, rows: int) -> list[dict[str, float | None]]:
    """What a component of some weights needs to stand above the noise."""
    plan, weights = found.plan, set(_WEIGHTS)
    if not plan.auto_components:
        weights.add(1.0 / plan.n_components)
    lines: list[dict[str, float | None]] = []
    for weight in sorted(weights, reverse=True):
        if isinstance(plan, MixturePlan):
            lines.append({"weight": weight, "distance": found.distance(weight)})
        else:
            words = found.words(weight, rows)
            lines.append({"weight": weight, "words": words if words >= 1.0 else None})
    return lines


def guarantee_of(found: Expected) -> Guarantee:
    """What the releases promise together."""
    plan = found.plan
    return compose(found.records, delta=plan.delta, adjacency=plan.adjacency)


def needs_json(found: Expected, rows: int) -> dict[str, Any]:
    """The releases, and what stands above their noise, as plain values."""
    return {
        "rounds": [[record.name for record in together] for together in found.rounds],
        "releases": [release_as_json(record) for record in found.records],
        "released_values": sum(record.noise.size for record in found.records),
        "needs": needs(found, rows),
        "document_words": found.document_words,
    }


def plan_tensors(asked: Asked) -> None:
    """Say what a plan would release of so many rows."""
    plan, task, rows = asked.plan(), asked.task.name, asked.rows
    found = expect(plan, rows, document_words=asked.document_words)
    guarantee = guarantee_of(found)
    if asked.json:
        options.print_json(
            {
                "task": task,
                "rows": rows,
                **needs_json(found, rows),
                "guarantee": {**guarantee.as_dict(), "sentence": str(guarantee)},
                "plan_hash": plan.hash,
                "plan": plan.model_dump(mode="json"),
            }
        )
    elif not asked.quiet:
        _print(found, guarantee, task, rows)


def _print(found: Expected, guarantee: Guarantee, task: str, rows: int) -> None:
    plan, screen = found.plan, Screen()
    many = f"at most {plan.n_components}" if plan.auto_components else str(plan.n_components)
    things = "components" if isinstance(plan, MixturePlan) else "topics"
    kind = "features" if isinstance(plan, MixturePlan) else "words"
    screen.print(f"{task}: {rows:,} rows x {plan.features:,} {kind}, {many} {things}.")
    print_releases(found.records, screen, title=f"releases, in {len(found.rounds)} passes")
    values = 8 * sum(record.noise.size for record in found.records)
    screen.print(f"together {options.bytes_text(values)}.")
    print_needs(found, rows, screen)
    screen.print(f"guarantee: {guarantee}")
    wish = "auto" if plan.auto_components else plan.n_components
    screen.print(
        f"next: eigenveil fit FILES --task {task} --components {wish} --epsilon {plan.epsilon:g} "
        f"--delta {plan.delta:g} --out result/"
    )


def print_needs(found: Expected, rows: int, out: Screen) -> None:
    """A table of what components need to stand above the noise."""
    mixture = isinstance(found.plan, MixturePlan)
    table = Table(title=f"what a {'component' if mixture else 'topic'} needs, to be seen")
    table.add_column("weight", justify="right")
    table.add_column("rows" if mixture else "documents", justify="right")
    table.add_column("distance at least" if mixture else "words at most", justify="right")
    for line in needs(found, rows):
        weight = line["weight"]
        assert weight is not None
        value = line["distance" if mixture else "words"]
        if value is None:
            text = "never"
        elif mixture:
            text = f"{value:.3g}"
        else:
            text = "all" if value >= found.plan.features else f"{value:,.0f}"
        table.add_row(f"{weight:.3g}", f"{weight * rows:,.0f}", text)
    out.print(table)
    if mixture:
        out.print(
            "distance: of its mean from that of all rows, in standard deviations of a feature "
            "within a component. There it stands just above the noise; at twice that its mean is "
            "off by about a fifth of the distance."
        )
    else:
        out.print(
            "words: over how many its probability may be spread evenly, in documents of "
            f"{found.document_words} words, not counting what it has in common with other topics. "
            "There it stands just above the noise; at half that its likeliest words are the right "
            "ones."
        )
    out.print("worked out of the expected moments, without any data: about right, not promised.")
