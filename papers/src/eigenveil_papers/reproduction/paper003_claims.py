"""What paper 003's figures 1 and 2 say, and this project beside them, held against the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eigenveil_papers.reproduction.experiment import Claim, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper003_methods import ADD_REMOVE, DATA
from eigenveil_papers.reproduction.rule import (
    OURS,
    TIMES,
    ClaimPart,
    Effect,
    Measure,
    Scope,
    decide,
    effects,
    ratios,
)

ENERGY = Measure(unit="points of the exact energy", margin=0.5, digits=".1f", most=100.0)
"""Captured energy in per cent of the exact directions'."""
ERRORS = Measure(unit="points of error", margin=0.25, less=True, digits=".2f", most=100.0)
"""Per cent of wrong answers; an effect is positive where the first errs less."""
LEVEL = 90.0
"""Per cent of the exact subspace's energy at which epsilons are compared."""
_PUBLISHED = ("analyze-gauss", "private-power", "wishart-sn", "private-power-pure", "ppca")
_TARGET = 10.0  # the project's: this many times more epsilon for the published method


def present(numbers: Numbers, axis: str) -> list[str]:
    """The panels of an axis that were measured, one for each data set."""
    return [panel for name in DATA if (panel := f"{name}-{axis}") in numbers.panels]


def figure1_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    """Claims about captured energy against epsilon, and about privacy."""
    del settings
    panels = present(numbers, "epsilon")
    where = "Section 4, figure 1"

    return [
        Scope(numbers, where, panels, ENERGY).rises(
            "For all data sets the captured energy increases with epsilon.", _PUBLISHED
        ),
        _vastly(numbers, panels),
        Scope(numbers, where, panels, ENERGY).better(
            "SN outperforms the private power method and PPCA.",
            "wishart-sn",
            ("private-power", "private-power-pure", "ppca"),
        ),
        _matches(numbers, panels),
        _theorem1(numbers),
        _nine_tenths(numbers),
        *(
            Scope(numbers, OURS, panels).epsilon_ratios(
                statement, first, second, least=least, most=most, level=LEVEL
            )
            for statement, first, second, least, most in _TIMES_EPSILON
        ),
        *_ours_beside(numbers, panels),
    ]


# statement, the two methods, and how many times the first's epsilon the second needs: at least, at
# most
_TIMES_EPSILON = (
    (
        "What the repair of SN costs: at most 4 times its epsilon for the same energy, where"
        " neighbours have one row changed (of which 2 for halving epsilon).",
        "wishart-sn",
        "wishart-repaired",
        None,
        4.0,
    ),
    (
        "What the repair of SN costs: at most 1.5 times its epsilon for the same energy, where"
        " neighbours have one row more or less.",
        "wishart-sn",
        ADD_REMOVE,
        None,
        1.5,
    ),
    (
        "Analyze Gauss as published needs at least 10 times our epsilon for the same energy"
        " and delta (unit rows; isometric, exactly calibrated noise).",
        "eigenveil",
        "analyze-gauss",
        _TARGET,
        None,
    ),
    (
        "With delta = 1e-6 ours still needs no more epsilon than Analyze Gauss with the paper's"
        " delta.",
        "eigenveil-strict",
        "analyze-gauss",
        1.0,
        None,
    ),
    (
        "Pure epsilon, sound: PPCA as published needs at least 10 times our epsilon for the"
        " same energy.",
        "eigenveil-pure",
        "ppca",
        _TARGET,
        None,
    ),
    (
        "Pure epsilon, sound: the private power method with Laplace noise needs at least 10"
        " times our epsilon for the same energy.",
        "eigenveil-pure",
        "private-power-pure",
        _TARGET,
        None,
    ),
)


def figure2_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    """Claims about captured energy against the number of rows."""
    del settings
    panels = present(numbers, "rows")
    where = "Section 4, figure 2"
    return [
        Scope(numbers, where, panels, ENERGY).rises(
            "The captured energy increases with the number of rows.", _PUBLISHED
        ),
        _in_pairs(
            "Analyze Gauss is the best with delta > 0, SN the best with delta = 0.",
            where,
            numbers,
            panels,
            [
                ("analyze-gauss", "private-power"),
                ("wishart-sn", "private-power-pure"),
                ("wishart-sn", "ppca"),
            ],
        ),
        _in_pairs(
            "The private power method suffers from too much noise: every other method captures"
            " more.",
            where,
            numbers,
            panels,
            [
                ("analyze-gauss", "private-power"),
                ("wishart-sn", "private-power-pure"),
                ("ppca", "private-power-pure"),
            ],
        ),
        _steep(numbers, panels),
        _rows_saved(numbers, panels),
        *_ours_beside(numbers, panels),
    ]


def _in_pairs(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Iterable[str],
    pairs: Sequence[tuple[str, str]],
) -> Claim:
    """The first of each pair captures more than the second."""
    parts = [
        ClaimPart(
            name=f"{_name_of(panel)}, {first} beside {second}",
            effects=effects(numbers, panel, first, second, ENERGY),
            asks="better",
        )
        for panel in panels
        for first, second in pairs
    ]
    return decide(statement, where, parts, ENERGY)


def _name_of(panel: str) -> str:
    """The data set of a panel."""
    return panel.rsplit("-", 1)[0]


# Claims of the paper


def _vastly(numbers: Numbers, panels: Sequence[str]) -> Claim:
    parts = [
        ClaimPart(
            name=f"{_name_of(panel)}, beside {other}",
            effects=effects(numbers, panel, "analyze-gauss", other, ENERGY),
            asks="somewhere",
            level=20.0,
        )
        for panel in panels
        for other in ("private-power", "private-power-pure")
    ]
    return decide(
        "Analyze Gauss vastly outperforms the private power method (here: by 20 points of energy"
        " somewhere).",
        "Section 4, figure 1",
        parts,
        ENERGY,
    )


def _matches(numbers: Numbers, panels: Sequence[str]) -> Claim:
    parts = []
    for panel in panels:
        found = effects(numbers, panel, "wishart-sn", "analyze-gauss", ENERGY)
        parts.append(ClaimPart(name=_name_of(panel), effects=found[-1:], asks="not worse"))
    return decide(
        "For large enough epsilon SN matches Analyze Gauss, which promises less (here: at the"
        " largest).",
        "Section 4, figure 1",
        parts,
        ENERGY,
    )


def _theorem1(numbers: Numbers) -> Claim:
    """An event of chance 0 with one of two neighbours has at most chance 0 with the other."""
    return Scope(numbers, "Theorem 1", (), Measure(unit="frequency", margin=0.0)).holds_for(
        "Theorem 1: SN is epsilon-differentially private. (An event that one of two neighbours"
        " never shows has then no chance with the other; here: at most 0.001. It is seen with about"
        " 1 - exp(-epsilon), so SN is (epsilon, 1 - exp(-epsilon))-private at best.)",
        [("frequency of the event", "witness", "wishart-sn")],
        most=1e-3,
    )


def _nine_tenths(numbers: Numbers) -> Claim:
    parts = []
    for name in DATA:
        wanted = 50.0 if name == "mnist" else 10.0
        for series in ("centred", "as they are"):
            share = numbers.at(f"{name}-share", series, wanted)
            if not np.isnan(share):
                effect = Effect(f"k = {wanted:g}", share, 0.0)
                parts.append(
                    ClaimPart(
                        name=f"{name}, {series}", effects=(effect,), asks="at least", level=LEVEL
                    )
                )
    return decide(
        "k is such that the leading subspace holds at least 90 % of the energy (of MNIST the text's"
        " 500 is taken for 50).",
        "Section 4",
        parts,
        Measure(unit="per cent of the energy", margin=0.0, digits=".1f"),
    )


def _steep(numbers: Numbers, panels: Sequence[str]) -> Claim:
    parts = []
    for panel in panels:
        for series in ("analyze-gauss", "wishart-sn", "ppca"):
            found = numbers.by_run(panel, series)
            x = sorted(found)
            if len(x) > 1 and (runs := sorted(found[x[0]].keys() & found[x[-1]].keys())):
                rise = np.array([found[x[-1]][run] - found[x[0]][run] for run in runs])
                effect = Effect.of(f"{x[0]:g} to {x[-1]:g} rows", rise)
                parts.append(
                    ClaimPart(
                        name=f"{_name_of(panel)}, {series}",
                        effects=(effect,),
                        asks="at least",
                        level=20.0,
                    )
                )
    return decide(
        "Analyze Gauss, SN and PPCA improve steeply with the number of rows (here: by 20 points).",
        "Section 4, figure 2",
        parts,
        ENERGY,
    )


# Claims of this project


def _rows_saved(numbers: Numbers, panels: Sequence[str]) -> Claim:
    parts = [
        ClaimPart(
            name=f"{_name_of(panel)}, {worse} over {ours}",
            effects=ratios(numbers, panel, ours, worse, None, LEVEL),
            asks="at least",
        )
        for panel in panels
        for ours, worse in (("eigenveil", "analyze-gauss"), ("eigenveil-pure", "ppca"))
    ]
    return decide(
        "The published methods need more rows for 90 % of the energy than the sound ones.",
        OURS,
        parts,
        TIMES,
    )


def _ours_beside(numbers: Numbers, panels: Sequence[str]) -> list[Claim]:
    return [
        _in_pairs(
            "At the same promise the sound methods capture more than every published one beside"
            " them (SN apart, which promises falsely).",
            OURS,
            numbers,
            panels,
            [
                ("eigenveil", "analyze-gauss"),
                ("eigenveil", "private-power"),
                ("eigenveil-pure", "ppca"),
                ("eigenveil-pure", "private-power-pure"),
            ],
        ),
        Scope(numbers, OURS, panels, ENERGY).no_worse(
            "The sound methods of pure epsilon capture as much as SN, whose promise is false.",
            ("wishart-repaired", ADD_REMOVE, "eigenveil-pure"),
            "wishart-sn",
        ),
        Scope(numbers, OURS, panels, ENERGY).no_worse(
            "The exponential mechanism sampled exactly, one vector after the other with the epsilon"
            " divided among them, captures as much as PPCA's chain, which draws all at once and"
            " proves nothing.",
            "ppca-exact",
            "ppca",
        ),
    ]


# Table 1


STANDARDISED = "-standardised"
"""Ends the panels whose coordinates are standardised, as the paper's svmtrain does by default."""


def table_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    """Claims about the errors: the paper's on standardised rows, as svmtrain trains; ours on both.

    What is claimed of COVTYPE and MNIST is asked of every pair of their classes that is measured;
    Fashion-MNIST is another data set, and decides our own claims only.
    """
    del settings
    named = ("covtype", "covtype-1-2", "mnist")
    real = [name + STANDARDISED for name in named if name + STANDARDISED in numbers.panels]
    plain = [panel for panel in numbers.panels if not panel.endswith(STANDARDISED)]
    standardised = [panel for panel in numbers.panels if panel.endswith(STANDARDISED)]
    every = [*standardised, *plain]
    where = "Section 4, table 1"
    return [
        _well(numbers, standardised),
        Scope(numbers, where, real, ERRORS).better(
            "On COVTYPE and MNIST SN errs less than all other private methods, even those with"
            " delta > 0.",
            "wishart-sn",
            ("analyze-gauss", "private-power", "ppca"),
        ),
        _better_than_exact(numbers, standardised),
        _harder(numbers),
        Scope(numbers, OURS, every, ERRORS).better(
            "Eigenveil errs less than Analyze Gauss and the private power method at the same"
            " promise.",
            "eigenveil",
            ("analyze-gauss", "private-power"),
        ),
        Scope(numbers, OURS, every, ERRORS).better(
            "With delta = 0 Eigenveil errs less than PPCA.", "eigenveil-pure", "ppca"
        ),
        Scope(numbers, OURS, every, ERRORS).no_worse(
            "The sound methods with delta = 0 err no more than SN, whose promise is false.",
            ("eigenveil-pure", "wishart-repaired"),
            "wishart-sn",
        ),
        _scale_only(numbers, plain),
    ]


_NEAR = 3.5  # points over the exact subspace: the paper's own on MNIST are 2.9


def _well(numbers: Numbers, names: Sequence[str]) -> Claim:
    parts = [
        ClaimPart(
            name=name,
            effects=effects(numbers, name, "exact", "analyze-gauss", ERRORS)[-1:],
            asks="at most",
            level=_NEAR,
        )
        for name in names
    ]
    return decide(
        "With enough training rows Analyze Gauss is consistently good (here: it errs at most 3.5"
        " points more than the exact subspace, at the largest number).",
        "Section 4, table 1",
        parts,
        ERRORS,
    )


def _better_than_exact(numbers: Numbers, names: Sequence[str]) -> Claim:
    """For one data set: the parts are one, with all positions of all sets."""
    found = tuple(
        effect.named(f"{effect.at} ({name})")
        for name in names
        for effect in effects(numbers, name, "wishart-sn", "exact", ERRORS)
    )
    part = ClaimPart(name="", effects=found, asks="somewhere", level=ERRORS.margin)
    return decide(
        "SN even outperforms non-private SVD for one data set. (In the paper's own table it errs"
        " more than SVD in all six columns.)",
        "Section 5",
        [part],
        ERRORS,
    )


def _harder(numbers: Numbers) -> Claim:
    """Errors without privacy, averaged over the sizes; the data sets' runs are independent."""
    hard, *others = (name + STANDARDISED for name in DATA)
    parts = []
    for name in others:
        both = Numbers(
            row._replace(panel="both", series=row.panel)
            for row in numbers.measured
            if row.series == "exact" and row.panel in (hard, name)
        )
        parts.append(
            ClaimPart(name=name, effects=effects(both, "both", name, hard, ERRORS), asks="better")
        )
    return decide(
        "The synthetic data are more difficult than COVTYPE and MNIST (they are made so here).",
        "Section 4, table 1",
        parts,
        ERRORS,
    )


_LITTLE = Measure(unit="points of error", margin=2.0, less=True, digits=".2f")


def _scale_only(numbers: Numbers, names: Sequence[str]) -> Claim:
    parts = []
    for name in names:
        both = Numbers(
            row._replace(panel=row.series, series=row.panel)
            for row in numbers.measured
            if row.panel in (name, name + STANDARDISED)
        )
        found = tuple(
            effect.named(f"{effect.at} rows ({of})")
            for of in both.panels
            for effect in effects(both, of, name + STANDARDISED, name, _LITTLE)
        )
        parts.append(ClaimPart(name=name, effects=found, asks="same"))
    return decide(
        "The errors measure how good the subspace is: standardising the coordinates before training"
        " changes no error by more than two points.",
        OURS,
        parts,
        _LITTLE,
    )
