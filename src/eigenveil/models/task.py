"""The tasks, one object each, found by name in one registry.

A task states where its parts are: its options, the makers and types of its plans, its rounds and
its estimators. What presents results, predicts fits, chooses protocols or makes a plan of a study
stands in the rooms that do so, in a table by tasks. Parts are imported when they are first used, by
their names: this module is read for ``eigenveil --help``. Nothing outside of a task's own parts
reads its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any

from eigenveil.errors import DataError
from eigenveil.models.domains import Path
from eigenveil.models.model_options import COVARIANCE, ICA, MIXTURE, PCA, TOPICS
from eigenveil.models.options import Options, options_of


@dataclass(frozen=True)
class Task:
    """One task.

    Parts are texts ``module:name``, below the package.
    """

    name: str  # As `--task` and the study's field have it
    title: str  # What is computed, in a study file
    estimators: Mapping[Path, str]
    plans: Mapping[Path, str]  # Makers of plans, of options and `features`, by how rows come
    plan_types: Mapping[Path, str]  # Of what they make; that of sites is that of one table
    rounds_of: str  # The rounds of a plan
    quality: str  # What the quality of a simulated fit is, from 0 to 1
    about: str  # What is found, for whoever chooses a task
    # Another task, whose ways of planning and of sharing in a study are this one's, too
    built_on: str = ""
    drawn: str = "Gaussian rows"  # What fits are simulated of
    documents: str = ""  # What makes documents of rows, where the task takes these
    fine_weights: bool = False  # Whether sites' weights need no rounding for sums of more rows
    takes_targets: bool = False  # Whether columns with the role of targets are read
    moment: str = "second moment"  # What the second moment is called
    # Parameters of commands that no other task has, and no estimator
    command_options: frozenset[str] = frozenset()
    # A field by which a plan of that path is distinguished from that of one table
    plan_marks: Mapping[Path, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title without what is beside it, as pages have it."""
        title = self.title.partition(";")[0]
        return f"{title[:1].upper()}{title[1:]}"

    def own(self, by_task: Mapping[str, Any]) -> Any:
        """Of a table by tasks its own entry, or that of the task it is built on."""
        return by_task[self.name if self.name in by_task else self.built_on]

    # -- options

    def options(self, path: Path, **values: Any) -> Options:
        return Options(self.name, path, values)

    def has(self, option: str, path: Path) -> bool:
        return option in options_of(self.name, path)

    @property
    def usual_components(self) -> int | str | None:
        """Where nobody states how many; ``None`` of a model that has no components."""
        usual: int | str | None
        usual = options_of(self.name, "table")["n_components"].default if self.counted else None
        return usual

    @property
    def counted(self) -> bool:
        """Whether the model has a number of components."""
        return self.has("n_components", "table")

    # -- plans and rounds

    def make_plan(self, options: Options, **context: Any) -> Any:
        return part(self.plans[options.path])(options, **context)

    def plan_type(self, values: Mapping[str, Any]) -> Any:
        marked = (path for path, mark in self.plan_marks.items() if mark in values)
        return part(self.plan_types[next(marked, "table")])

    def path_of(self, plan: Any) -> Path:
        return next(path for path, name in self.plan_types.items() if type(plan) is part(name))

    def options_of_plan(self, plan: Any) -> Options:
        """The options that make a plan: each that it has as a field, and those it states otherwise.

        A public centre is zero, since a plan does not have it.
        """
        path = self.path_of(plan)
        values: dict[str, Any] = {
            name: getattr(plan, name)
            for name in options_of(self.name, path)
            if name in type(plan).model_fields
        }
        values |= plan.options_otherwise()
        return Options(
            self.name, path, {n: v for n, v in values.items() if n in options_of(self.name, path)}
        )

    def rounds(self, plan: Any, **context: Any) -> Any:
        return part(self.rounds_of)(plan, **context)

    # -- rows and results

    @property
    def takes_documents(self) -> bool:
        return bool(self.documents)

    def rows_for(self, rows: Any) -> Any:
        return part(self.documents)(rows) if self.documents else rows

    def estimator(self, path: Path) -> Any:
        return part(self.estimators[path])


def part(name: str) -> Any:
    """What a text ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"eigenveil.{module}"), attribute)


_TASKS = (
    Task(
        name=PCA,
        title="principal components",
        estimators={
            "table": "models.pca.estimator:PrivatePCA",
            "sites": "models.pca.federated:FederatedPCA",
            "stream": "models.streaming.private:PrivateStreamingPCA",
            "tracking": "models.streaming.tracker:StreamingPCA",
        },
        plans={
            "table": "models.pca.plan:make_plan",
            "stream": "models.streaming.state:make_stream_plan",
        },
        plan_types={
            "table": "models.pca.plan:Plan",
            "stream": "models.streaming.state:StreamPlan",
        },
        plan_marks={"stream": "publish"},
        rounds_of="models.pca.rounds:private_pca",
        quality="captured energy, of the exact subspace's",
        about="The few directions along which the columns vary most, and vary together.",
        fine_weights=True,
        command_options=frozenset({"projection", "spectrum", "mean_norm"}),
    ),
    Task(
        name=MIXTURE,
        title="mixtures of Gaussians",
        estimators={
            "table": "models.mixture.estimator:PrivateGaussianMixture",
            "sites": "models.mixture.federated:FederatedGaussianMixture",
        },
        plans={"table": "models.mixture.plan:make_plan"},
        plan_types={"table": "models.mixture.plan:MixturePlan"},
        rounds_of="models.mixture.rounds:private_mixture",
        quality="share of rows whose nearest mean is the right one",
        about="Groups of rows that are alike: their sizes, means and variances.",
        command_options=frozenset({"distance"}),
    ),
    Task(
        name=TOPICS,
        title="topics of documents; rows are word counts",
        estimators={
            "table": "models.topics.estimator:PrivateTopicModel",
            "sites": "models.topics.federated:FederatedTopicModel",
        },
        plans={"table": "models.topics.plan:make_plan"},
        plan_types={"table": "models.topics.plan:TopicPlan"},
        rounds_of="models.topics.rounds:private_topics",
        quality="probability that a topic has in common with the fit's",
        about="Topics of documents: columns are words, and entries how often each occurs.",
        documents="moments.documents.documents:as_documents",
        moment="pair moment",
        command_options=frozenset({"vocabulary", "document_words", "topic_words"}),
    ),
    Task(
        name=COVARIANCE,
        title="mean and covariance",
        estimators={
            "table": "models.covariance.estimator:PrivateCovariance",
            "sites": "models.covariance.federated:FederatedCovariance",
        },
        plans={"table": "models.covariance.plan:make_covariance_plan"},
        plan_types={"table": "models.covariance.plan:CovariancePlan"},
        rounds_of="models.covariance.plan:private_covariance",
        quality="1 less the covariance's relative error",
        about="Means, variances and correlations; regressions and more follow at no further cost.",
        fine_weights=True,
        takes_targets=True,
        command_options=frozenset({"spectrum"}),
    ),
    Task(
        name=ICA,
        title="independent components",
        estimators={
            "table": "models.ica.estimator:PrivateICA",
            "sites": "models.ica.federated:FederatedICA",
        },
        plans={"table": "models.ica.plan:make_ica_plan"},
        plan_types={"table": "models.ica.plan:ICAPlan"},
        rounds_of="models.ica.plan:private_ica",
        quality="1 less the Moreau-Amari index of Laplace and uniform sources",
        about="Independent sources that the columns are mixtures of.",
        built_on=COVARIANCE,
        drawn="mixed Laplace and uniform sources",
        fine_weights=True,
        command_options=frozenset({"spectrum"}),
    ),
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _TASKS})


def task_named(name: str) -> Task:
    if name not in TASKS:
        raise DataError("unknown-task", task=repr(name), known=", ".join(TASKS))
    return TASKS[name]


def task_of_plan(plan: Any) -> Task:
    return next(
        task
        for task in TASKS.values()
        if any(type(plan) is part(name) for name in task.plan_types.values())
    )
