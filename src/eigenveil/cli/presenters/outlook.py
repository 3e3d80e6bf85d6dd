"""What a plan of a whole second moment releases, and what of a spectrum shows above its noise.

For models that are not simulated: nothing here draws a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenveil.cli.options import print_json
from eigenveil.cli.presenters.quality import shown_text, trials_json
from eigenveil.app.results import print_releases, release_as_json
from eigenveil.cli.presenters.screen import Screen
from eigenveil.federation.protocols import PROTOCOLS
from eigenveil.models.explained import strength_floor
from eigenveil.models.pca.plan import Plan
from eigenveil.models.shapes import rehearse
from eigenveil.noise.grid import spectral_edge
from eigenveil.planning.forecast import noise_factors
from eigenveil.planning.predict import parse_spectrum
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.releases import ReleaseRecord


@dataclass(frozen=True)
class Outlook:
    """What a plan releases of so many rows, if known, and what shows above its noise.

    ``share`` is the part of the variance that a direction needs, where all rows are as long.
    """

    plan: Plan
    records: list[ReleaseRecord]
    rows: int | None
    spectrum: str
    louder: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a spectrum that is none before anything is shown."""
        parse_spectrum(self.spectrum, self.plan.features)

    @property
    def share(self) -> float | None:
        """The part of the variance that a direction needs to stand above the noise."""
        noise = next(r for r in self.records if r.name == "second moment").noise
        size = self.plan.features
        edge = self.louder * spectral_edge(noise, size, size)
        return None if self.rows is None else strength_floor(edge, 0.0, size=size) / self.rows

    def above(self) -> int | None:
        """How many directions of the expected spectrum have it."""
        values = parse_spectrum(self.spectrum, self.plan.features)
        return None if self.share is None else int(np.sum(values / values.sum() > self.share))

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "releases": [release_as_json(record) for record in self.records],
            "needed_share": self.share,
            "directions_above_noise": self.above(),
            "spectrum": self.spectrum,
        }

    def show(self, out: Screen) -> None:
        """The same for people."""
        print_releases(self.records, out, title=f"releases, in {len(self.plan.rounds)} passes")
        if self.share is None:
            out.print("note: give --rows to have said what shows above the noise.")
            return
        out.print(
            f"a direction needs {100 * self.share:.3g} % of the variance to stand above the noise: "
            f"{self.above()} of {self.plan.features} at {self.spectrum}. Worked out without any "
            "data, for rows that are all as long: about right, not promised."
        )


def plan_releases(spec: Any) -> None:
    """``eigenveil plan``: what a plan would release of so many rows."""
    plan = spec.plan()
    found = Outlook(plan, rehearse(plan, plan.budgets, {}), spec.rows, spec.spectrum)
    trials = spec.simulated(plan)
    guarantee = compose(found.records, delta=plan.delta, adjacency=plan.adjacency)
    if spec.json:
        said = {"task": spec.task.name, "rows": spec.rows, **found.as_json(), **trials_json(trials)}
        said["guarantee"] = {**guarantee.as_dict(), "sentence": str(guarantee)}
        print_json({**said, "plan_hash": plan.hash, "plan": plan.model_dump(mode="json")})
    elif not spec.quiet:
        out = Screen()
        out.print(f"{spec.task.name}: {spec.rows:,} rows x {plan.features:,} features.")
        found.show(out)
        out.print(shown_text(trials, spec.task, f"Gaussian rows, {spec.spectrum}"))
        out.print(f"guarantee: {guarantee}")
        spec.print_next(out)


def outlook_of_study(study: Any, rows: int | None, words: int, spectrum: str) -> Outlook:
    """``eigenveil study plan``: the same of a study's sum, of rows of full weight."""
    del words
    plan, alone = study.plan(study.width), PROTOCOLS[study.protocol].first_site_only
    louder = noise_factors(study, plan).get("moment", 1.0)
    weights = list(study.row_weights().values())
    parts = math.fsum(weights[:1] if alone else weights) / len(weights)
    counted = None if rows is None else max(1, round(rows * parts))
    return Outlook(plan, rehearse(plan, plan.budgets, {}), counted, spectrum, louder)
