"""What each figure was measured with, beside the paper's, and where the paper's is from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Sequence
from functools import partial

from eigenveil_papers.reproduction.data import find, load, title_of
from eigenveil_papers.reproduction.data_files import TITLES
from eigenveil_papers.reproduction.experiment import Given, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.tables import read_tables

TEXT, SCRIPT, OURS = "text", "authors' script", "chosen here"


NONE_PRINTED = "not printed"
NO_RUNS = "none: it is proved"
"""In place of a number of runs, of a theorem."""


LANGUAGE = {
    "000": "MATLAB",
    "001": "MATLAB",
    "002": "MATLAB, 16 processors",
    "003": "MATLAB (its svmtrain)",
    "1910.12913": "not readable here; djICA's code is MATLAB",
}
"""What the papers computed with."""


def this_machine() -> str:
    """What is computed with here, which times and memory are of."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy", "scikit-learn")
    )
    return (
        f"Python {platform.python_version()}, {versions}; one thread of linear algebra; "
        f"{os.cpu_count()} processors ({platform.machine()})"
    )


def chosen(what: str, here: str) -> Given:
    """A setting under which a theorem is tried, which has none of its own."""
    return Given(what, here, "any", OURS)


def rows_of(
    name: str, theirs: int | str, settings: RunSettings, *, most: int | None = None
) -> Given:
    """How many rows of a data set there are, or how many of them are taken."""
    source = find(name, settings)
    count = len(load(source).X)
    here = f"{count:,}" if count <= (most or count) else f"{most:,} of {count:,}"
    if source.stand_in_for or source.file:
        here += f" of {title_of(source)}"
    paper = theirs if isinstance(theirs, str) else f"{theirs:,}"
    return Given(f"rows of {TITLES.get(name, name)}", here, paper)


def runs_of(numbers: Numbers, theirs: str) -> Given:
    """The runs of most panels, and those of which there are fewer or more."""
    found = {}
    for panel in numbers.panels:
        counts = [int(numbers.curve(panel, of).runs.max(initial=0)) for of in numbers.series(panel)]
        found[panel] = max(counts, default=0)
    if not found:
        return Given("runs", "none", theirs)
    usual = Counter(found.values()).most_common(1)[0][0]
    others: dict[int, list[str]] = {}
    for panel, count in found.items():
        if count != usual:
            others.setdefault(count, []).append(panel)
    parts = [str(usual)] + [
        f"{count} of {', '.join(names[:4])}" + (f" and {len(names) - 4} more" * (len(names) > 4))
        for count, names in sorted(others.items())
    ]
    return Given("runs", "; ".join(parts), theirs)


def given_of(figure: str, settings: RunSettings, *, without: str = "") -> list[Given]:
    """What given.md has of a figure, at a scale and with a run's data sets, but ``without`` one."""
    found = []
    for what, here, theirs, whence in read_tables("given.md")[figure]:
        if without and without in what.lower():
            continue
        scales = here.split(" // ")
        here = settings.pick(*scales) if len(scales) > 1 else here
        name = what.removeprefix("rows of ")
        if name not in TITLES or name == what:
            found.append(Given(what, here, theirs, whence))
        elif settings.data == name or (settings.data is None and name != "fashion-mnist"):
            found.append(rows_of(name, theirs, settings, most=int(here.replace(",", ""))))
    return found


pca_of_sites = partial(given_of, "pca_of_sites")
tensors = partial(given_of, "tensors")
projections = partial(given_of, "projections")
power_laws = partial(given_of, "power_laws")
symmetric_noise = partial(given_of, "symmetric_noise")
symmetric_noise_over_rows = partial(given_of, "symmetric_noise", without="mnist")
changing = partial(given_of, "changing")
ica = partial(given_of, "ica")
tracker_costs = partial(given_of, "tracker_costs")
trees = partial(given_of, "trees")


def trackers(settings: RunSettings, names: Sequence[str]) -> Sequence[Given]:
    """Of paper 002's figure 4 a and b, with the data sets of a run."""
    most = settings.pick(None, 2000, 1000)
    rows = [rows_of(name, NONE_PRINTED, settings, most=most) for name in names]
    return [*rows, *given_of("trackers", settings)]
