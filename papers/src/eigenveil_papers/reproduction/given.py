"""What each figure was measured with, beside the paper's, and where the paper's is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eigenveil_papers.reproduction.data import Source, find, load, title_of
from eigenveil_papers.reproduction.data_files import TITLES
from eigenveil_papers.reproduction.experiment import Given, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers

TEXT, SCRIPT, OURS = "text", "authors' script", "chosen here"


NONE_PRINTED = "not printed"
NO_RUNS = "none: it is proved"
"""In place of a number of runs, of a theorem."""


def chosen(what: str, here: str) -> Given:
    """A setting under which a theorem is tried, which has none of its own."""
    return Given(what=what, here=here, paper="any", whence=OURS)


def rows_of(
    name: str, theirs: int | str, settings: RunSettings, *, most: int | None = None
) -> Given:
    """How many rows of a data set there are, or how many of them are taken."""
    source = find(name, settings)
    count = _count(source)
    here = f"{min(count, most or count):,}"
    if source.stand_in_for or source.file:
        here += f" of {title_of(source)}"
    paper = theirs if isinstance(theirs, str) else f"{theirs:,}"
    return Given(what=f"rows of {TITLES.get(name, name)}", here=here, paper=paper)


def _count(source: Source) -> int:
    if source.path and not Path(source.path).is_file():  # redrawn where the file is not
        return 0
    return len(load(source).X)


def runs_of(numbers: Numbers, theirs: str) -> Given:
    """The runs of most panels, and those of which there are fewer or more."""
    found = {}
    for panel in numbers.panels:
        counts = [int(numbers.curve(panel, of).runs.max(initial=0)) for of in numbers.series(panel)]
        found[panel] = max(counts, default=0)
    if not found:
        return Given(what="runs", here="none", paper=theirs)
    usual = Counter(found.values()).most_common(1)[0][0]
    others: dict[int, list[str]] = {}
    for panel, count in found.items():
        if count != usual:
            others.setdefault(count, []).append(panel)
    parts = [str(usual)] + [
        f"{count} of {', '.join(names[:4])}" + (f" and {len(names) - 4} more" * (len(names) > 4))
        for count, names in sorted(others.items())
    ]
    return Given(what="runs", here="; ".join(parts), paper=theirs)


def pca_of_sites(settings: RunSettings) -> Sequence[Given]:
    """Of paper 000's figures and paper 001's figure 2."""
    names = ("mnist", "covtype") if settings.data is None else (settings.data,)
    rows = [
        rows_of(name, 60_000, settings) for name in names if name not in ("synthetic", "digits")
    ]
    synthetic = settings.pick("60,000", "20,000", "2,000")
    return [
        *rows,
        Given(what="synthetic rows", here=synthetic, paper="60,000", whence="authors' curves"),
        Given(
            what="covariance of the synthetic rows",
            here="diagonal: K from 10 to 1, others up to 0.5",
            paper='"pre-determined"',
            whence=SCRIPT,
        ),
        Given(what="delta, where it is fixed", here="0.01", paper=NONE_PRINTED, whence=SCRIPT),
        Given(
            what="sites S", here=settings.pick("10", "10", "4"), paper=NONE_PRINTED, whence=SCRIPT
        ),
        Given(
            what="rows at each site", here="1000 (COVTYPE 500)", paper=NONE_PRINTED, whence=SCRIPT
        ),
        Given(what="R", here="2 K", paper=NONE_PRINTED, whence=SCRIPT),
        Given(
            what="K",
            here="50 (COVTYPE 10; MNIST over delta 10)",
            paper="50 (COVTYPE 10)",
            whence=f"{TEXT}; over delta {SCRIPT}",
        ),
        Given(what="centre and largest norm", here="exact", paper="exact, not private"),
    ]


def tensors(settings: RunSettings) -> Sequence[Given]:
    """Of paper 001's figures 3 to 5."""
    rows = settings.pick("100,000 and 800,000", "fewer: see the panels", "fewer: see the panels")
    return [
        Given(
            what="D and K",
            here=settings.pick("10, 5 and 50, 10", "see the panels", "see the panels"),
            paper="10, 5 and 50, 10",
        ),
        Given(what="rows over epsilon", here=rows, paper=NONE_PRINTED, whence=SCRIPT),
        Given(what="delta, where it is fixed", here="0.01", paper="0.01"),
        Given(what="sites S", here="5", paper="5"),
        Given(
            what="data",
            here="drawn anew in each run",
            paper="one set for all runs, the same rows at each site",
            whence=SCRIPT,
        ),
    ]


def projections(settings: RunSettings) -> Sequence[Given]:
    """Of paper 002's figure 2."""
    most = settings.pick(10_000, 1500, 1000)
    theirs = {"mnist": 10_000, "wine": 1599}
    names = tuple(theirs) if settings.data is None else (settings.data,)
    return [
        *(rows_of(name, theirs[name], settings, most=most) for name in names if name in theirs),
        Given(what="rank, block", here="6, 25", paper="6, 25"),
        Given(what="(epsilon, delta)", here="(0.1, 0.1)", paper="(0.1, 0.1)"),
        Given(what="rows", here="centred, largest norm 1", paper="as they are", whence=SCRIPT),
    ]


def power_laws(settings: RunSettings) -> Sequence[Given]:
    """Of paper 002's figure 3."""
    return [
        Given(
            what="rows, D",
            here=settings.pick("5000, 20", "5000, 20", "fewer"),
            paper="5000, 20",
            whence="caption",
        ),
        Given(what="delta", here="0.05", paper="0.05 (the text has 0.01)", whence="caption"),
        Given(
            what="epsilons",
            here=settings.pick("15 of them", "6 of them", "2 of them"),
            paper="40 from 0.1 to 4",
        ),
        Given(what="rank, block", here="6, 25", paper="5, 50", whence=SCRIPT),
    ]


def trackers(settings: RunSettings, names: Sequence[str], nodes: str) -> Sequence[Given]:
    """Of paper 002's figure 4: the data sets of a run, and the trees."""
    most = settings.pick(None, 2000, 1000)
    return [
        *(rows_of(name, NONE_PRINTED, settings, most=most) for name in names),
        Given(
            what="Synth(alpha): rows, D",
            here=settings.pick("4000, 400", "2000, 100", "1000, 30"),
            paper="4000, 400",
            whence=SCRIPT,
        ),
        Given(
            what="FPCA's rank and block, panels of the scripts' settings",
            here="adaptive from 10 (wine, MNIST, Synth 5), blocks of 2 r (Synth 50)",
            paper="the same",
            whence=SCRIPT,
        ),
        Given(
            what="SPIRIT's lambda, rows of the sketch, same panels",
            here="0.9 (Synth 1), r",
            paper="the same",
            whence=SCRIPT,
        ),
        Given(
            what="rank, block, rows of the sketch, even-handed panels",
            here="6, 25, 16; nothing is forgotten",
            paper="none: added here",
            whence=OURS,
        ),
        Given(
            what="trees: rows",
            here=settings.pick("640,000 to 3.2 million", "1600 to 8000", "320 to 960"),
            paper="640,000 to 3.2 million",
        ),
        Given(what="trees: D", here=settings.pick("1000", "1000", "20"), paper="1000"),
        Given(
            what="trees: nodes",
            here=f"{nodes}; real processes up to the processors at hand, beyond that simulated",
            paper="a simulated federation on one machine",
        ),
    ]


def symmetric_noise(settings: RunSettings) -> Sequence[Given]:
    """Of paper 003's figures."""
    names = ("covtype", "mnist") if settings.data is None else (settings.data,)
    theirs = {"covtype": 20_000, "mnist": 10_000}
    return [
        Given(
            what="synthetic rows, D, k",
            here=settings.pick("60,000, 100, 10", "60,000, 100, 10", "4,000, 20, 4"),
            paper="60,000, 100, 10",
        ),
        *(
            rows_of(name, theirs[name], settings, most=theirs[name])
            for name in names
            if name in theirs
        ),
        Given(
            what="covariance of the synthetic rows",
            here="ten variances from 10 to 1, others up to 0.1",
            paper='"pre-determined"',
            whence=OURS,
        ),
        Given(
            what="epsilons, numbers of rows", here="see the axes", paper=NONE_PRINTED, whence=OURS
        ),
        Given(
            what="delta",
            here="0.1; COVTYPE and MNIST 0.02",
            paper="0.1; COVTYPE 0.02",
            whence="caption",
        ),
        Given(what="k of MNIST", here="50", paper='"500", a slip of the scanner', whence=OURS),
    ]
