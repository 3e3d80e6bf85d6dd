"""All experiments by name."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, get_args

from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.files import replacing
from eigenveil_papers.reproduction import (
    paper000,
    paper001_pca,
    paper001_tensors,
    paper002_changing,
    paper002_costs,
    paper002_projections,
    paper002_trackers,
    paper002_trees,
    paper002_utility,
    paper003,
    paper003_table,
    paper1910,
    theory_bounds,
    theory_costs,
    theory_merge,
    theory_open,
    theory_streams,
    theory_unequal,
)
from eigenveil_papers.reproduction.experiment import Experiment, Outcome, RunSettings, Verdict
from eigenveil_papers.reproduction.results import CLAIMS, MEANS, RUNS
from eigenveil_papers.reproduction.rule import OURS
from eigenveil_papers.reproduction.tables import read_texts

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
    theory_open.OPEN,
    theory_unequal.UNEQUAL,
    paper002_projections.FIG2,
    paper002_utility.FIG3,
    paper002_trackers.FIG4AB,
    paper002_costs.FIG4C,
    paper002_trees.FIG4DF,
    paper002_changing.CHANGING,
    theory_streams.LEMMA2,
    theory_merge.MERGE,
    paper003.FIG1,
    paper003.FIG2,
    paper003_table.TABLE1,
    theory_bounds.THEOREM2,
    paper1910.GAIN,
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""By the names of the command line, in the order of the papers."""

PAPERS = {
    "000": "Differentially private distributed principal component analysis",
    "001": "Distributed differentially private algorithms for matrix and tensor factorization",
    "002": "Federated principal component analysis",
    "003": "Symmetric matrix perturbation for differentially private principal component analysis",
    "1910.12913": "Improved differentially private decentralized source separation for fMRI data",
}
"""Their titles."""


class UnknownExperiment(DataError):
    exit_status = 2


def choose(names: Sequence[str], settings: RunSettings) -> list[Experiment]:
    """Experiments by their names, each once; ``all`` are those that have ``settings.data``."""
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
                    "unknown-data-set",
                    whose="An experiment",
                    name=settings.data,
                    known=", ".join(known),
                )
            chosen |= having
        elif name in EXPERIMENTS:
            chosen[name] = EXPERIMENTS[name]
        else:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.5)
            raise UnknownExperiment(
                "unknown-experiment", name=name, near=" or ".join(near) or "another"
            )
    return list(chosen.values())


# -- The pages about all claims of the papers, from what runs left in a folder: a first one with the
# pictures and a sentence each, and one for each figure with its settings and verdicts.


_SCALES = {
    "full": "the largest scale",
    "fast": "a small scale (`--fast`), with few runs",
    "toy": "a scale for tests only",
}
_HEAD = """\
# The papers, measured again

Every figure and table of the papers with the algorithms as they are published, beside the sound
ones of this package. Below each picture is what was measured; its page has the settings beside the
paper's, every claim and its verdict. Error bars are standard errors over runs. Their
privacy theorems are attacked, not drawn: see the audit.
"""
_WRITTEN = "Written by `eigenveil reproduce`; do not edit."
_MEANING = """\
A claim is asked at each position of each of its panels. It is *shown* there when the interval of
what was measured lies wholly on its side of the stated margin, *contradicted* when it lies wholly
on the other (no difference contradicts "better"), else *undecided*; the intervals of a claim miss
the truth with a chance of 5 % together. It is *not tested* where it could not have failed, or where
the settings do not reach what is claimed. Beside it stands the smallest difference that could have
been shown. One rule judges the papers' claims and this package's.
"""
_CLAIMS_BY = (
    "shown at all positions",
    "contradicted at some",
    "undecided at some, contradicted at none",
    "not tested",
)
_OWN = "eigenveil.md"


def write_page(folder: Path, page: Path) -> None:
    """Write the pages from the claims in a folder; the same claims give the same bytes."""
    found = _read(folder)
    behind = page.with_suffix("")
    if behind == page:
        behind = page.with_name(f"{page.name}-figures")
    try:
        behind.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError("cannot-write", path=behind, reason=of_system(error)) from None
    _write(page, _first(found, _to(folder, page), behind.name))
    back = f"../{page.name}"
    for each in found:
        path = behind / f"{each['name']}.md"
        _write(path, _of_experiment(each, _to(folder, path), back))
    _write(behind / _OWN, _of_own(found, back))


def _to(folder: Path, page: Path) -> str:
    return PurePath(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()


def _write(path: Path, lines: Iterable[str]) -> None:
    with replacing(path) as scratch:
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o644)


def _read(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob(f"*{CLAIMS}")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OutputError("claims-unreadable", path=path, reason=error) from None
        if isinstance(values, dict) and values.get("paper") in PAPERS:
            if not all(isinstance(claim["verdict"], dict) for claim in values["claims"]):
                reason = "its verdicts do not count positions; measure it again"
                raise OutputError("claims-unreadable", path=path, reason=reason)
            found.append(values)
    if not found:
        raise OutputError("no-claims", folder=folder)
    return found


def _first(found: list[dict[str, Any]], pictures: str, behind: str) -> Iterator[str]:
    yield _HEAD
    scales = dict.fromkeys(_SCALES[each["scale"]] for each in found)
    yield f"Measured at {' and '.join(scales)}; each figure's page says with how many"
    yield "rows and runs, of how many in the paper.\n"
    papers = {key: list(group) for key, group in groupby(found, lambda each: each["paper"])}
    for paper, experiments in papers.items():
        yield f"## Paper {paper}: {PAPERS[paper]}\n"
        for each in experiments:
            name, title = each["name"], each["title"]
            yield f"### {name}\n"
            yield f"[![{title}]({pictures}/{name}.png)]({behind}/{name}.md)\n"
            yield f"{each['headline']} [{title}: settings and verdicts]({behind}/{name}.md).\n"
    yield "## Verdicts\n"
    outcomes = get_args(Outcome)
    yield f"| claims of | claims | {' | '.join(_CLAIMS_BY)} | positions {' | '.join(outcomes)} |"
    yield "|---|" + "---:|" * (1 + 2 * len(outcomes))
    for paper, experiments in papers.items():
        theirs = [claim for each in experiments for claim in each["claims"] if not _is_own(claim)]
        yield f"| paper {paper} | {_counts(theirs)} |"
    own = [claim for each in found for claim in each["claims"] if _is_own(claim)]
    if own:
        yield f"| [this package]({behind}/{_OWN}) | {_counts(own)} |"
    yield f"\n{_MEANING}"
    yield _WRITTEN


def _counts(claims: Sequence[Mapping[str, Any]]) -> str:
    verdicts = [Verdict(**claim["verdict"]) for claim in claims]
    counts = Counter(verdict.outcome for verdict in verdicts)
    numbers = [len(verdicts), *(counts[outcome] for outcome in get_args(Outcome))]
    numbers += [sum(v.count(outcome) for v in verdicts) for outcome in get_args(Outcome)]
    return " | ".join(str(number) for number in numbers)


def _is_own(claim: Mapping[str, Any]) -> bool:
    return bool(claim["where"] == OURS)


def _of_own(found: list[dict[str, Any]], back: str) -> Iterator[str]:
    yield "# What this package claims beside the papers\n"
    yield f"[All figures]({back})\n"
    yield "| figure | claim | measured | verdict |"
    yield "|---|---|---|---|"
    for each in found:
        for claim in filter(_is_own, each["claims"]):
            link = f"[{each['name']}]({each['name']}.md)"
            yield f"| {link} | {_cell(claim['statement'])} | {_measured(claim)} | {_bold(claim)} |"
    yield f"\n{_MEANING}"
    yield _WRITTEN


def _of_experiment(each: Mapping[str, Any], pictures: str, back: str) -> Iterator[str]:
    name = each["name"]
    yield f"# {name}: {each['title']}\n"
    yield f"[All figures]({back})\n"
    yield f"[![{each['title']}]({pictures}/{name}.png)]({pictures}/{name}.svg)\n"
    if name in captions():
        yield f"**The picture.** {_caption(name, each['given'])}\n"
    yield f"{each['headline']}\n"
    if each.get("tables"):
        yield f"{each['tables']}\n"
    yield "## What it was measured with\n"
    yield f"At {_SCALES[each['scale']]}.\n"
    yield "| setting | here | in the paper | from its |"
    yield "|---|---|---|---|"
    for given in each["given"]:
        yield f"| {' | '.join(_cell(given[key]) for key in ('what', 'here', 'paper', 'whence'))} |"
    if each["about"]:
        yield f"\n{each['about'].strip()}"
    if each.get("differences"):
        yield f"\n**Beside the authors' own curves.** {each['differences'].strip()}"
    yield "\n## Verdicts\n"
    yield "| where | what it says | measured here | verdict |"
    yield "|---|---|---|---|"
    for claim in each["claims"]:
        cells = (_cell(claim["where"]), _cell(claim["statement"]), _measured(claim))
        yield f"| {' | '.join(cells)} | {_bold(claim)} |"
    yield f"\n{_MEANING}"
    links = f"[means]({pictures}/{name}{MEANS}), [every run]({pictures}/{name}{RUNS})"
    yield f"Numbers: {links}. {_WRITTEN}"


def captions() -> dict[str, str]:
    """What the pictures show, in the papers' letters, by experiment."""
    return read_texts("captions.md")


def _caption(name: str, given: Sequence[Mapping[str, str]]) -> str:
    """With the number of runs that bars are of; one run has none."""
    runs = "; ".join(each["here"] for each in given if each["what"] == "runs")
    counts = sorted({int(count) for count in re.findall(r"(?:^|; )(\d+)", runs)} - {1}) or [1]
    ends = dict.fromkeys((counts[0], counts[-1]))
    return captions()[name].replace("{runs}", " to ".join(map(str, ends)))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _measured(claim: Mapping[str, Any]) -> str:
    return _cell(f"{claim['measured']} {claim['compared']}")


def _bold(claim: Mapping[str, Any]) -> str:
    verdict = Verdict(**claim["verdict"])
    return f"**{verdict}**" if verdict.contradicted else str(verdict)
