"""What a study of mixtures or topics would send and release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.expected import Expected, Parties, expect
from eigenveil.cli.plan_tensors import needs_json, print_needs
from eigenveil.cli.screen import Screen
from eigenveil.estimators.tensor_settings import TensorPlan
from eigenveil.federation.forecast import noise_factors
from eigenveil.federation.study import Study
from eigenveil.federation.sums import settle

# Where nobody says how many rows there are: what is sent does not depend on it.
_SOME_ROWS = 1_000_000


@dataclass(frozen=True)
class ExpectedStudy:
    """What a study would release of so many rows of full weight; ``None``: rows were not given.

    ``hidden`` is whether there are other sites to hide among.
    """

    found: Expected
    rows: int | None
    hidden: bool

    def as_json(self) -> dict[str, Any]:
        """Rounds, releases and what stands above their noise, as plain values."""
        said = needs_json(self.found, self.rows or _SOME_ROWS)
        if self.rows is None:
            said["needs"] = None
        said["round_bytes"] = [
            8 * sum(record.noise.size for record in together) for together in self.found.rounds
        ]
        return said

    def show(self, out: Screen) -> None:
        """Tables of what every site sends in each round, and of what is seen of the sum."""
        what = "every site sends, hidden among the others" if self.hidden else "one site sends"
        table = Table(title=f"what {what}")
        for name in ("round", "a sum of", "values", "bytes", "noise of the total"):
            table.add_column(name, justify="right" if name in ("values", "bytes") else "left")
        for number, together in enumerate(self.found.rounds, start=1):
            for record in together:
                size, noise = record.noise.size, record.noise
                table.add_row(
                    str(number),
                    record.name,
                    f"{size:,}",
                    options.bytes_text(8 * size),
                    f"{noise.kind}, scale {noise.scale:.4g}",
                )
        out.print(table)
        if self.rows is None:
            out.print("note: give --rows to have said what components need to be seen.")
        else:
            print_needs(self.found, self.rows, out)


def expect_study(
    study: Study, rows: int | None, document_words: int, spectrum: str = ""
) -> ExpectedStudy:
    """What a study with a protocol would release of so many rows of all sites together.

    Raises
    ------
    PrivacyError
        When so many rows are too few.
    """
    del spectrum
    terms = settle(study)
    plan = terms.plan
    assert isinstance(plan, TensorPlan)
    parties = Parties(
        sharing=terms.sharings,
        louder={} if study.protocol == "local" else noise_factors(study, plan),
    )
    counted = None
    if rows is not None:
        weights = study.row_weights()
        parts = [weights[name] for name in terms.names]
        counted = max(1, round(rows * math.fsum(parts) / len(weights)))
    found = expect(plan, counted or _SOME_ROWS, parties, document_words=document_words)
    return ExpectedStudy(found, counted, hidden=len(terms.names) > 1)
