"""What a fit of one table would give, and what it takes to reach a quality: no row is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigenveil.app.events import Tell, nobody
from eigenveil.app.forecasts import (
    OF_FITS,
    Outlook,
    TensorOutlook,
    answer_parts,
    answer_values,
    find_quality,
    tensor_scene,
    trials_text,
    trials_values,
)
from eigenveil.app.parts import Part, TablePart, bytes_text
from eigenveil.app.results import guarantee_values
from eigenveil.checks import check_whole
from eigenveil.errors import DataError, EigenveilError, number_text
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.model_options import COVARIANCE, MIXTURE, PCA, TOPICS
from eigenveil.models.options import Options, options_of
from eigenveil.models.pca.auto import AutoChoice, choose
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.pca.score_plot import groups_expected
from eigenveil.models.shapes import rehearse
from eigenveil.models.task import Task
from eigenveil.moments.documents.documents import FEWEST_WORDS, MOST_WORDS
from eigenveil.planning.forecast import DEFAULT_SPECTRUM
from eigenveil.planning.predict import Prediction, parse_spectrum, predict
from eigenveil.planning.quality import Sought, WhatItTakes
from eigenveil.planning.simulated import SIMULATORS
from eigenveil.planning.tensors import expect
from eigenveil.planning.trials import Scenario, Simulation, Trials
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Guarantee, neighbours_text
from eigenveil.tables.names import MOST_SPARSE_COLUMNS, check_width


@dataclass(frozen=True)
class PlanRequest:
    """A task, values of its declared options, and the data that are expected."""

    task: Task
    values: Mapping[str, Any]
    features: int
    rows: int
    spectrum: str = DEFAULT_SPECTRUM
    mean_norm: float = 0.0
    distance: float = 3.0
    topic_words: int = 20
    document_words: int = 20
    fits: int | None = None  # How many are simulated; by default by their size
    names: Sequence[str] | None = None  # Of the columns, where they are known

    def __post_init__(self) -> None:
        """Refuse what cannot be expected of data, before anything is simulated."""
        check_whole("features", self.features)
        check_width("The plan", self.features, most=MOST_SPARSE_COLUMNS)
        check_expected(self.distance, self.topic_words, self.document_words, self.fits)
        check_whole("rows", self.rows, most=2**53)
        components = self.components
        if isinstance(components, int) and self.rows < components:
            raise DataError("fewer-rows-than-components", rows=self.rows, components=components)
        if not (np.isfinite(self.mean_norm) and self.mean_norm >= 0):
            wrong = {"name": "mean-norm", "value": self.mean_norm, "wanted": "0 or more"}
            raise DataError("out-of-range", **wrong)

    @property
    def components(self) -> Any:
        return self.values.get("n_components", self.task.usual_components)

    def scenario(self) -> Scenario:
        return Scenario(
            rows=self.rows,
            spectrum=parse_spectrum(self.spectrum, self.features),
            mean_norm=self.mean_norm,
            distance=self.distance,
            topic_words=self.topic_words,
            document_words=self.document_words,
        )

    def simulated(self, plan: Any, *, seed: int = 0) -> Trials:
        simulate = SIMULATORS[self.task.name]
        return simulate(plan, self.scenario(), Simulation(self.fits, seed))

    def options(self, **instead: Any) -> Options:
        """Those of one table, with other values of some.

        Where no columns have names, covariates by name are the first ones.
        """
        values = {**self.values, **instead}
        named = values.get("covariates")
        if self.names is None and named is not None and isinstance(named[0], str):
            values["covariates"] = tuple(range(len(named)))
        return numbered(self.task.options("table", **values), self.names)

    def plan(self, **instead: Any) -> Any:
        """The plan of one table, with other values of some options."""
        return self.task.make_plan(self.options(**instead), features=self.features)


def check_expected(
    distance: float, topic_words: int, document_words: int, fits: int | None
) -> None:
    """Refuse components and documents that cannot be."""
    check_whole("topic-words", topic_words)
    if fits is not None:
        check_whole("fits", fits)
    wanted = "above 0 and finite, in standard deviations"
    if not 0.0 < distance < math.inf:
        raise DataError("out-of-range", name="distance", value=distance, wanted=wanted)
    wanted = f"from {FEWEST_WORDS} to {MOST_WORDS}"
    if not FEWEST_WORDS <= document_words <= MOST_WORDS:
        raise DataError("out-of-range", name="document-words", value=document_words, wanted=wanted)


@dataclass(frozen=True)
class PlannedFit:
    """What a fit would give; of the kinds of tasks that follow."""

    request: PlanRequest

    @property
    def fit_values(self) -> Mapping[str, Any] | None:
        """The options of the fit that was planned; ``None`` where there is none."""
        return self.request.values

    def parts(self) -> Iterator[Part]:
        raise NotImplementedError


def plan_fit(request: PlanRequest) -> PlannedFit:
    found: PlannedFit = request.task.own(_PREDICTED)(request)
    return found


def plan_values(plan: Any) -> dict[str, Any]:
    return {"plan_hash": plan.hash, "plan": plan.model_dump(mode="json")}


# -- What it takes to reach a quality.


@dataclass(frozen=True)
class PlannedQuality(PlannedFit):
    """The smallest epsilon, or the fewest rows, that a quality takes."""

    answer: WhatItTakes
    plan: Any = None

    @property
    def fit_values(self) -> Mapping[str, Any] | None:
        if self.plan is None:
            return None
        found = {"epsilon": self.answer.value} if self.answer.sought == "epsilon" else {}
        return {**self.request.values, **found}

    def as_json(self) -> dict[str, Any]:
        task = self.request.task
        made = {} if self.plan is None else plan_values(self.plan)
        return {"task": task.name, **answer_values(self.answer, task), **made}

    def parts(self) -> Iterator[Part]:
        return answer_parts(self.answer, self.request.task)


def plan_quality(
    request: PlanRequest, quality: float, sought: Sought, tell: Tell = nobody
) -> PlannedQuality:
    """Find what it takes to reach a quality, by simulated fits."""

    def at(value: float, rows: int = request.rows) -> tuple[PlanRequest, Any]:
        """What is planned with another epsilon, or other rows."""
        there = replace(request, rows=int(value) if sought == "rows" else rows)
        return there, there.plan() if sought == "rows" else there.plan(epsilon=value)

    def try_at(value: float, seed: int = 0, rows: int = request.rows) -> Trials:
        there, made = at(value, rows)
        return there.simulated(made, seed=seed)

    answer = find_quality(quality, sought, try_at, fewest=request.rows, tell=tell)
    there, made = (request, None) if answer.value is None else at(answer.value)
    return PlannedQuality(there, answer, made)


# -- PCA: each mechanism.


@dataclass(frozen=True)
class PlannedMechanism:
    name: str
    plan: Any = None
    found: Prediction | None = None
    note: str = ""
    why: str = ""  # Where it is what "auto" takes, and that was requested

    def as_json(self) -> dict[str, Any]:
        if self.found is None:
            return {"mechanism": self.name, "captured_energy": None, "note": self.note}
        found = self.found
        return {
            "mechanism": self.name,
            "captured_energy": found.captured_energy,
            "captured_energy_error": found.trials.quality_error,
            "shows_nothing": found.trials.as_json(),
            "note": found.note,
            "noise_rows": found.noise_rows,
            "released_values": found.released_values,
            "message_bytes": 8 * found.released_values,
            "memory_bytes": found.memory_bytes,
            **({"why": self.why} if self.why else {}),
            **plan_values(self.plan),
        }

    def cells(self) -> tuple[str, ...]:
        if self.found is None:
            return (self.name, *["-"] * 5, self.note)
        found = self.found
        return (
            self.name,
            "-" if found.captured_energy is None else f"{found.captured_energy:.3f}",
            found.trials.text(),
            f"{found.noise_rows:.3g}",
            bytes_text(8 * found.released_values),
            bytes_text(found.memory_bytes),
            found.note,
        )


@dataclass(frozen=True)
class PlannedPCA(PlannedFit):
    mechanisms: Sequence[PlannedMechanism] = field(default_factory=tuple)
    auto: AutoChoice | None = None  # Where no mechanism is named

    @property
    def _made(self) -> Any:
        return next((each.plan for each in self.mechanisms if each.plan is not None), None)

    @property
    def fit_values(self) -> Mapping[str, Any] | None:
        return None if self._made is None else self.request.values

    def as_json(self) -> list[dict[str, Any]]:
        return [each.as_json() for each in self.mechanisms]

    def parts(self) -> Iterator[Part]:
        asked, count = self.request, self.request.components
        many = f"{count} components" if isinstance(count, int) else f"components = {count}"
        numbers = ("captured energy", "shows nothing", "noise (rows)", "message", "memory")
        yield TablePart(
            f"{asked.rows:,} rows x {asked.features:,} features, {many}, {asked.spectrum}",
            ("mechanism", *numbers, "note"),
            [each.cells() for each in self.mechanisms],
            right=numbers,
        )
        if self.auto is not None:
            yield f"auto takes {self.auto.mechanism}: {self.auto.reason}"
        made = self._made
        if made is not None and made.scores_by:
            yield groups_expected(made, asked.rows)
        if made is not None:
            yield (
                f"guarantee of each: ({made.epsilon:g}, "
                f"{number_text(made.delta)})-differential privacy, for "
                f"{neighbours_text(made.adjacency, made.unit)}, against anyone who sees the result."
            )
        yield (
            "captured energy: of the exact subspace's, simulated on Gaussian rows with this "
            f"spectrum. shows nothing: the probability that no component is usable. {OF_FITS} "
            "noise: its scale in the largest contribution a row can make."
        )


def plan_pca(request: PlanRequest) -> PlannedPCA:
    eigenvalues = parse_spectrum(request.spectrum, request.features)
    one = request.values.get("mechanism")
    every = options_of(request.task.name, "table")["mechanism"].choices
    auto = None
    if one in (None, "auto"):
        auto = choose(request.options(mechanism="auto"), request.features, whole=False)
    results: list[PlannedMechanism] = []
    problems: list[EigenveilError] = []
    for name in [name for name in every if name != "auto"] if one is None else [one]:
        taken = auto is not None and name in ("auto", auto.mechanism)
        try:
            made = request.plan(mechanism="auto" if taken else name)
            found = predict(
                made, eigenvalues, rows=request.rows, mean_norm=request.mean_norm, fits=request.fits
            )
            why = auto.reason if auto is not None and name == "auto" else ""
            results.append(PlannedMechanism(made.mechanism, made, found, why=why))
        except EigenveilError as error:
            if one is not None:
                raise
            problems.append(error)
            results.append(PlannedMechanism(name, note=error.message))
    if len(problems) == len(results):  # it is what no mechanism can
        raise problems[0]
    return PlannedPCA(request, results, auto)


# -- What one plan releases, and what shows above its noise.


@dataclass(frozen=True)
class PlannedReleases(PlannedFit):
    """The releases of a plan, with what they promise together, and simulated fits."""

    plan: Any
    trials: Trials
    outlook: Outlook | TensorOutlook
    shape: str  # Of what is planned, in words
    scene: str  # The data that fits are simulated of

    @property
    def guarantee(self) -> Guarantee:
        """What the releases promise together."""
        records = self.outlook.records
        return compose(records, delta=self.plan.delta, adjacency=self.plan.adjacency)

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.request.task.name,
            "rows": self.request.rows,
            **self.outlook.as_json(),
            **trials_values(self.trials),
            "guarantee": guarantee_values(self.guarantee),
            **plan_values(self.plan),
        }

    def parts(self) -> Iterator[Part]:
        asked = self.request
        yield f"{asked.task.name}: {asked.rows:,} rows x {self.plan.features:,} {self.shape}."
        yield from self.outlook.parts()
        yield trials_text(self.trials, asked.task, self.scene)
        yield f"guarantee: {self.guarantee}"


def plan_moment(request: PlanRequest) -> PlannedReleases:
    """Of a whole second moment."""
    plan = request.plan()
    outlook = Outlook(plan, rehearse(plan, plan.budgets, {}), request.rows, request.spectrum)
    trials, scene = request.simulated(plan), f"{request.task.drawn}, {request.spectrum}"
    return PlannedReleases(request, plan, trials, outlook, "features", scene)


def plan_tensors(request: PlanRequest) -> PlannedReleases:
    """Of a mixture or of topics."""
    plan = request.plan()
    found = expect(plan, request.rows, document_words=request.document_words)
    many = f"at most {plan.n_components}" if plan.auto_components else str(plan.n_components)
    mixture = isinstance(plan, MixturePlan)
    shape = f"features, {many} components" if mixture else f"words, {many} topics"
    trials, scene = request.simulated(plan), tensor_scene(plan, request.scenario())
    outlook = TensorOutlook(found, request.rows)
    return PlannedReleases(request, plan, trials, outlook, shape, scene)


_PREDICTED: Mapping[str, Callable[[PlanRequest], PlannedFit]] = {
    PCA: plan_pca,
    MIXTURE: plan_tensors,
    TOPICS: plan_tensors,
    COVARIANCE: plan_moment,
}
