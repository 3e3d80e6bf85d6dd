"""All experiments by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from eigenveil.errors import DataError
from eigenveil.experiments import (
    paper000,
    paper001_pca,
    paper001_tensors,
    paper002_computing,
    paper002_projections,
    paper002_utility,
    paper003,
    paper003_table,
)
from eigenveil.experiments.experiment import Experiment, Settings

_ALL: tuple[Experiment, ...] = (
    paper000.FIG1,
    paper000.FIG2,
    paper001_pca.FIG2,
    paper001_tensors.FIG3,
    paper001_tensors.FIG4,
    paper001_tensors.FIG5,
    paper002_projections.FIG2,
    paper002_utility.FIG3,
    paper002_computing.FIG4,
    paper003.FIG1,
    paper003.FIG2,
    paper003_table.TABLE1,
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
