"""What paper 003's table 1 says, and this project beside it, held against the numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenveil.experiments.experiment import Claim, Settings
from eigenveil.experiments.numbers import Numbers
from eigenveil.experiments.paper003_compare import claim_of, compare
from eigenveil.experiments.paper003_methods import DATA

SIZES = (4000, 6000)
"""Training rows in the paper."""
_NEAR = 3.5  # points over the exact subspace: the paper's own on MNIST are 2.9
_LITTLE = 2.0


def table_claims(numbers: Numbers, settings: Settings) -> list[Claim]:
    """Claims about the errors, on the rows as they are scaled in the paper."""
    del settings
    return [
        _well(numbers),
        _fewer(
            "On COVTYPE and MNIST SN errs less than all other private methods, even those with"
            " delta > 0.",
            "Section 4, table 1",
            numbers,
            [("wishart-sn", of) for of in ("analyze-gauss", "private-power", "ppca")],
            names=("covtype", "mnist"),
        ),
        _better_than_exact(numbers),
        _harder(numbers),
        _fewer(
            "Eigenveil errs no more than Analyze Gauss and the private power method at the same"
            " promise, and with delta = 0 no more than PPCA.",
            "eigenveil",
            numbers,
            [
                ("eigenveil", "analyze-gauss"),
                ("eigenveil", "private-power"),
                ("eigenveil-pure", "ppca"),
            ],
        ),
        _fewer(
            "The sound methods with delta = 0 err no more than SN, whose promise is false.",
            "eigenveil",
            numbers,
            [("eigenveil-pure", "wishart-sn"), ("wishart-repaired", "wishart-sn")],
        ),
        _scale_only(numbers),
    ]


def _fewer(
    says: str,
    where: str,
    numbers: Numbers,
    pairs: Sequence[tuple[str, str]],
    *,
    names: Sequence[str] = DATA,
) -> Claim:
    """The first of each pair is nowhere clearly worse; one that claims more must be ahead once."""
    found, good = [], []
    for name in names:
        for first, second in pairs:
            seen = compare(numbers, name, first, second)
            if not seen.x.size:
                continue
            gains = ", ".join(f"{gain:+.2f}" for gain in seen.gains)
            found.append(f"{name}, {first} less {second}: {gains} points")
            worse = int(np.sum(seen.clear & (seen.gains > 0)))
            ahead = int(np.sum(seen.clear & (seen.gains < 0)))
            good.append(worse == 0 and (where == "eigenveil" or ahead > 0))
    return claim_of(says, where, found, good)


def _well(numbers: Numbers) -> Claim:
    """Within three and a half points of the error without privacy, as in the paper's MNIST."""
    found, good = [], []
    for name in DATA:
        seen = compare(numbers, name, "analyze-gauss", "exact")
        if seen.x.size and seen.x[-1] == SIZES[-1]:
            found.append(f"{name}: {seen.gains[-1]:+.2f} points over the exact subspace")
            good.append(bool(seen.gains[-1] <= _NEAR))
    says = "With enough training rows Analyze Gauss is consistently good (within 3.5 points)."
    return claim_of(says, "Section 4, table 1", found, good)


def _better_than_exact(numbers: Numbers) -> Claim:
    found, good = [], []
    for name in DATA:
        seen = compare(numbers, name, "wishart-sn", "exact")
        if seen.x.size:
            gains = ", ".join(f"{gain:+.2f}" for gain in seen.gains)
            found.append(f"{name}: SN less the exact subspace {gains} points")
            good.append(bool(np.any(seen.clear & (seen.gains < 0))))
    if not found:
        return claim_of(_BETTER, "Section 5", [], [])
    found.append("in the paper's own table SN errs more than SVD in all six columns")
    return claim_of(_BETTER, "Section 5", found, [any(good)])


_BETTER = "SN even outperforms non-private SVD for one data set."


def _harder(numbers: Numbers) -> Claim:
    found, good = [], []
    errors = {name: numbers.curve(name, "exact") for name in DATA}
    if errors["synthetic"].x.size:
        for name in DATA[1:]:
            if errors[name].x.size:
                gap = float(np.mean(errors["synthetic"].mean) - np.mean(errors[name].mean))
                found.append(f"synthetic less {name} without privacy: {gap:+.2f} points")
                good.append(gap > 0)
    says = "The synthetic data are more difficult than COVTYPE and MNIST (they are made so here)."
    return claim_of(says, "Section 4, table 1", found, good)


def _scale_only(numbers: Numbers) -> Claim:
    says = (
        "The errors measure how good the subspace is: standardising the coordinates before training"
        " changes no error by more than two points."
    )
    found, good = [], []
    for name in DATA:
        changes = []
        for series in numbers.series(name):
            plain = numbers.curve(name, series)
            other = numbers.curve(f"{name}-standardised", series)
            if plain.x.size and other.x.size:
                at = int(np.argmax(np.abs(plain.mean - other.mean)))
                changes.append((abs(plain.mean[at] - other.mean[at]), series, at))
        if changes:
            most, series, at = max(changes)
            plain = numbers.curve(name, series)
            other = numbers.curve(f"{name}-standardised", series)
            found.append(
                f"{name}: at most {most:.2f} points ({series} with {plain.x[at]:.0f} rows, from"
                f" {plain.mean[at]:.2f} % to {other.mean[at]:.2f} %)"
            )
            good.append(bool(most <= _LITTLE))
    return claim_of(says, "eigenveil", found, good)
