"""What plans release, what of it shows above the noise, and what simulated fits come to.

Of plans of one table and of studies; worked out without any row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eigenveil.app.events import Tell, Told
from eigenveil.app.parts import Part, TablePart, bytes_text
from eigenveil.app.results import release_table, release_values
from eigenveil.errors import WrongOption
from eigenveil.models.explained import strength_floor
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.pca.plan import Plan
from eigenveil.models.task import Task
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.planning.predict import parse_spectrum
from eigenveil.planning.quality import (
    LARGEST_ROWS,
    SOUGHT,
    Sought,
    WhatItTakes,
    check_quality,
    epsilons,
    row_counts,
    smallest,
)
from eigenveil.planning.simulated import components_drawn
from eigenveil.planning.tensors import Expected
from eigenveil.planning.trials import Scenario, Trials
from eigenveil.privacy.releases import ReleaseRecord

# How a probability and its error are computed.
OF_FITS = (
    "Simulated: the part of the fits in brackets, ± its standard error (of (k + 1) / (n + 2), so "
    "that it is not 0 where none of the fits is)."
)


def trials_values(trials: Trials) -> dict[str, Any]:
    return {
        "quality": trials.quality,
        "quality_error": trials.quality_error,
        "shows_nothing": trials.as_json(),
        "simulation_note": trials.note,
    }


def trials_text(trials: Trials, task: Task, scene: str) -> str:
    """Simulated fits in sentences; ``scene`` is the data that they are of."""
    if not trials.fits:
        return f"no fits were simulated: {trials.note}."
    note = f" ({trials.note})" if trials.note else ""
    return (
        f"a fit shows nothing with probability {trials.text()}{note}; {task.quality}: "
        f"{_with_error(trials)}. Of {scene}. {OF_FITS}"
    )


def _with_error(trials: Trials) -> str:
    if trials.quality is None:
        return f"not predicted ({trials.note})" if trials.note else "not predicted"
    error = "" if trials.quality_error is None else f" ± {trials.quality_error:.1g}"
    return f"{trials.quality:.4f}{error}"


# -- What it takes to reach a quality.


def sought_of(quality: float, named: str | None) -> Sought:
    """What is to be found, by its name; of a quality that can be."""
    check_quality(quality)
    sought: Sought | None = next((one for one in SOUGHT if one == (named or SOUGHT[0])), None)
    if sought is None:
        raise WrongOption("unknown-choice", option="--find", given=named, known=", ".join(SOUGHT))
    return sought


def find_quality(
    quality: float, sought: Sought, try_at: Any, *, fewest: int, tell: Tell
) -> WhatItTakes:
    """What it takes to reach a quality, of one table or of a study; each trial is told."""

    def tried(value: float, trials: Trials) -> None:
        tell(Told("note", f"tried {sought} = {_value(sought, value)}: {_with_error(trials)}"))

    of_epsilon = sought == "epsilon"
    return smallest(
        quality,
        sought,
        epsilons() if of_epsilon else row_counts(fewest),
        try_at,
        with_more_rows=partial(try_at, rows=LARGEST_ROWS) if of_epsilon else None,
        progress=tried,
    )


def answer_values(answer: WhatItTakes, task: Task) -> dict[str, Any]:
    verified, whole = answer.verified, answer.sought == "rows"

    def number(value: float | None) -> float | int | None:
        return int(value) if whole and value is not None else value

    return {
        "quality": answer.wanted,
        "quality_is": task.quality,
        "find": answer.sought,
        "reached": answer.value is not None,
        answer.sought: number(answer.value),
        "reason": answer.reason,
        "predicted": trials_values(answer.trials),
        "verified": None if verified is None else trials_values(verified),
        "tried": [
            {answer.sought: number(value), "quality": found} for value, found in answer.tried
        ],
    }


def answer_parts(answer: WhatItTakes, task: Task) -> Iterator[Part]:
    wanted = f"quality {answer.wanted:g} ({task.quality})"
    if answer.value is None:
        yield f"{wanted}: {answer.reason}"
        return
    yield f"{wanted}: {answer.sought} = {_value(answer.sought, answer.value)}"
    if answer.reason:
        yield f"  note: {answer.reason}"
    assert answer.verified is not None
    yield (
        f"predicted there: {_with_error(answer.trials)}; with other rows and noise "
        f"{_with_error(answer.verified)}. A fit shows nothing with probability "
        f"{answer.trials.text()}. {OF_FITS} Candidates are 5 % apart."
    )


def _value(sought: Sought, value: float) -> str:
    return f"{value:g}" if sought == "epsilon" else f"{value:,.0f}"


# -- Mixtures and topics: what components need to stand above the noise.


# Weights of components that are looked at, beside an equal share.
_WEIGHTS = (0.5, 0.2, 0.1, 0.05, 0.02)


def tensor_scene(plan: TensorPlan, data: Scenario) -> str:
    count = components_drawn(plan)
    if isinstance(plan, MixturePlan):
        return f"{count} equal spheres at distance {data.distance:g}"
    return (
        f"{count} equal topics of {data.topic_words} words each, in documents of "
        f"{data.document_words}"
    )


def needs(found: Expected, rows: int) -> list[dict[str, float | None]]:
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


@dataclass(frozen=True)
class TensorOutlook:
    """What a plan of mixtures or topics releases of so many rows, and what is seen then."""

    found: Expected
    rows: int

    @property
    def records(self) -> Sequence[ReleaseRecord]:
        return self.found.records

    def as_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "rounds": [[record.name for record in together] for together in found.rounds],
            "releases": [release_values(record) for record in found.records],
            "released_values": sum(record.noise.size for record in found.records),
            "needs": needs(found, self.rows),
            "document_words": found.document_words,
        }

    def parts(self) -> Iterator[Part]:
        count = len(self.found.rounds)
        yield release_table(self.records, title=f"releases, in {count} passes")
        yield f"together {bytes_text(8 * sum(record.noise.size for record in self.records))}."
        yield from needs_parts(self.found, self.rows)


def needs_parts(found: Expected, rows: int) -> Iterator[Part]:
    mixture, lines = isinstance(found.plan, MixturePlan), []
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
        lines.append((f"{weight:.3g}", f"{weight * rows:,.0f}", text))
    if mixture:
        headings = ("weight", "rows", "distance at least")
        yield TablePart("what a component needs, to be seen", headings, lines, right=headings)
        yield (
            "distance: of its mean from that of all rows, in standard deviations of a feature "
            "within a component. There it stands just above the noise; at twice that its mean is "
            "off by about a fifth of the distance."
        )
    else:
        headings = ("weight", "documents", "words at most")
        yield TablePart("what a topic needs, to be seen", headings, lines, right=headings)
        yield (
            "words: over how many its probability may be spread evenly, in documents of "
            f"{found.document_words} words, not counting what it has in common with other topics. "
            "There it stands just above the noise; at half that its likeliest words are the right "
            "ones."
        )
    yield "worked out of the expected moments, without any data: about right, not promised."


# -- A whole second moment: what of a spectrum shows above its noise. Nothing here draws a row.


@dataclass(frozen=True)
class Outlook:
    """What a plan releases of so many rows, if known, and what shows above its noise."""

    plan: Plan
    records: list[ReleaseRecord]
    rows: int | None
    spectrum: str
    louder: float = 1.0

    @property
    def share(self) -> float | None:
        """The part of the variance that a direction needs to stand above the noise.

        Where all rows are as long.
        """
        noise = next(r for r in self.records if r.name == "second moment").noise
        size = self.plan.features
        edge = self.louder * noise.edge(size, size)
        return None if self.rows is None else strength_floor(edge, 0.0, size=size) / self.rows

    def above(self) -> int | None:
        """How many directions of the expected spectrum have it."""
        values = parse_spectrum(self.spectrum, self.plan.features)
        return None if self.share is None else int(np.sum(values / values.sum() > self.share))

    def as_json(self) -> dict[str, Any]:
        return {
            "releases": [release_values(record) for record in self.records],
            "needed_share": self.share,
            "directions_above_noise": self.above(),
            "spectrum": self.spectrum,
        }

    def parts(self) -> Iterator[Part]:
        yield release_table(self.records, title=f"releases, in {len(self.plan.rounds)} passes")
        if self.share is None:
            yield "note: give --rows to have said what shows above the noise."
            return
        yield (
            f"a direction needs {100 * self.share:.3g} % of the variance to stand above the noise: "
            f"{self.above()} of {self.plan.features} at {self.spectrum}. Worked out without any "
            "data, for rows that are all as long: about right, not promised."
        )
