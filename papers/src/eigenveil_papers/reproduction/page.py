"""All experiments by name."""

from __future__ import annotations

import difflib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, get_args

from eigenveil.errors import DataError, OutputError
from eigenveil.files import replacing
from eigenveil_papers.reproduction import (
    paper000,
    paper001_pca,
    paper001_tensors,
    paper002_computing,
    paper002_projections,
    paper002_utility,
    paper003,
    paper003_table,
    theory_bounds,
    theory_costs,
    theory_streams,
)
from eigenveil_papers.reproduction.experiment import Experiment, Settings, Verdict
from eigenveil_papers.reproduction.results import CLAIMS, OURS

_ALL: tuple[Experiment, ...] = (
    paper000.FIG1,
    paper000.FIG2,
    theory_costs.ORDERS,
    paper001_pca.FIG2,
    paper001_tensors.FIG3,
    paper001_tensors.FIG4,
    paper001_tensors.FIG5,
    theory_bounds.BOUNDS,
    theory_costs.COSTS,
    theory_costs.UNEQUAL,
    paper002_projections.FIG2,
    paper002_utility.FIG3,
    paper002_computing.FIG4,
    theory_streams.LEMMA2,
    paper003.FIG1,
    paper003.FIG2,
    paper003_table.TABLE1,
    theory_bounds.THEOREM2,
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""By the names of the command line, in the order of the papers."""

PAPERS = {
    "000": "Differentially private distributed principal component analysis",
    "001": "Distributed differentially private algorithms for matrix and tensor factorization",
    "002": "Federated principal component analysis",
    "003": "Symmetric matrix perturbation for differentially private principal component analysis",
}
"""Their titles."""


class UnknownExperiment(DataError):
    """There is no experiment of this name."""

    exit_status = 2


def choose(names: Sequence[str], settings: Settings) -> list[Experiment]:
    """Experiments by their names, each once; ``all`` are those that have ``settings.data``.

    Raises
    ------
    UnknownExperiment
        With the names that are like it.
    DataError
        When none of all has the data set.
    """
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name == "all":
            having = {
                key: experiment
                for key, experiment in EXPERIMENTS.items()
                if settings.data is None or settings.data in experiment.datasets
            }
            if not having:
                known = dict.fromkeys(d for e in EXPERIMENTS.values() for d in e.datasets)
                raise DataError(
                    f"No experiment has a data set {settings.data!r}.",
                    hint=f"Those known are {', '.join(known)}.",
                    code="unknown-data-set",
                )
            chosen |= having
        elif name in EXPERIMENTS:
            chosen[name] = EXPERIMENTS[name]
        else:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.5)
            raise UnknownExperiment(
                f"There is no experiment {name!r}.",
                hint=(f"Did you mean {' or '.join(near)}? " if near else "")
                + "'eigenveil reproduce list' names them all.",
                code="unknown-experiment",
            )
    return list(chosen.values())


# -- The page about all claims of the papers, from what runs left in a folder.


_SCALES = {
    "full": "the papers' scale",
    "fast": "a smaller scale than the papers' (`--fast`)",
    "toy": "a scale for tests only",
}
_HEAD = """\
# The papers, measured again

Written by `eigenveil reproduce`; do not edit. Every figure and table of the papers, with the
algorithms as they are published beside the sound ones of this package, and what that says about
each claim. Error bars are standard errors over runs. The numbers lie beside the pictures, as do
the same pictures for print (SVG).
"""
_MEANING = """\
*holds*: as said. *in part*: for some of the settings, or less than said. *does not hold*: the
opposite was measured. *not tested*: the run had not the points for it.
"""


def write_page(folder: Path, page: Path) -> None:
    """Write the page from the claims in a folder; the same claims give the same bytes.

    Raises
    ------
    OutputError
        When there are none, or the page cannot be written.
    """
    found = _read(folder)
    pictures = PurePath(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()
    with replacing(page) as scratch:
        scratch.write_text("\n".join(_lines(found, pictures)) + "\n", encoding="utf-8")
    page.chmod(0o644)


def _read(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob(f"*{CLAIMS}")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OutputError(
                f"{path} cannot be read ({error}).",
                hint="Run its experiment again.",
                code="no-claims",
            ) from None
        if isinstance(values, dict) and values.get("paper") in PAPERS:
            found.append(values)
    if not found:
        raise OutputError(
            f"{folder} has no claims of experiments.",
            hint="'eigenveil reproduce' writes them.",
            code="no-claims",
        )
    return found


def _lines(found: list[dict[str, Any]], pictures: str) -> Iterator[str]:
    yield _HEAD
    scales = dict.fromkeys(_SCALES[each["scale"]] for each in found)
    yield f"Measured at {' and '.join(scales)}.\n"
    yield "## Verdicts\n"
    verdicts = get_args(Verdict)
    yield f"| paper | {' | '.join(verdicts)} |"
    yield "|---|" + "---:|" * len(verdicts)
    papers = {key: list(group) for key, group in groupby(found, lambda each: each["paper"])}
    for paper, experiments in papers.items():
        counts = Counter(
            claim["verdict"]
            for each in experiments
            for claim in each["claims"]
            if claim["where"] != OURS
        )
        yield f"| {paper} | {' | '.join(str(counts[verdict]) for verdict in verdicts)} |"
    ours = [(each, claim) for each in found for claim in each["claims"] if claim["where"] == OURS]
    if ours:
        counts = Counter(claim["verdict"] for _, claim in ours)
        yield f"| this package's | {' | '.join(str(counts[verdict]) for verdict in verdicts)} |"
    yield "\n" + _MEANING
    if ours:
        yield "## What this package claims beside them\n"
        yield "| figure | claim | measured | |"
        yield "|---|---|---|---|"
        for each, claim in ours:
            statement, measured = _cell(claim["statement"]), _cell(claim["measured"])
            link = f"[{each['name']}](#{each['name']})"
            yield f"| {link} | {statement} | {measured} | {_bold(claim)} |"
        yield ""
    for paper, experiments in papers.items():
        yield f"## Paper {paper}: {PAPERS[paper]}\n"
        for each in experiments:
            yield from _of_experiment(each, pictures)


def _of_experiment(each: Mapping[str, Any], pictures: str) -> Iterator[str]:
    name = each["name"]
    yield f"### {name}\n"
    yield f"**{each['title']}.**\n"
    yield f"[![{each['title']}]({pictures}/{name}.png)]({pictures}/{name}.svg)\n"
    if each["about"]:
        yield each["about"].strip() + "\n"
    if each.get("differences"):
        yield f"**Beside the authors' own curves.** {each['differences'].strip()}\n"
    if each["claims"]:
        yield "| where | what it says | measured here | |"
        yield "|---|---|---|---|"
        for claim in each["claims"]:
            cells = (_cell(claim[key]) for key in ("where", "statement", "measured"))
            yield f"| {' | '.join(cells)} | {_bold(claim)} |"
        yield ""
    yield f"Numbers: [{name}.csv]({pictures}/{name}.csv).\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _bold(claim: Mapping[str, Any]) -> str:
    verdict = claim["verdict"]
    return f"**{verdict}**" if verdict == "does not hold" else str(verdict)
