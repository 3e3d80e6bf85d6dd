"""``eigenveil plan``: what a fit would give, predicted before any data is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from eigenveil.checks import check_whole
from eigenveil.cli import options
from eigenveil.cli.presenters.quality import (
    OF_FITS,
    answer_json,
    notify_tried,
    print_answer,
    shown_text,
    tensor_scene,
    trials_json,
)
from eigenveil.cli.presenters.registry import estimator_options
from eigenveil.app.results import print_releases, release_as_json
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import DataError, EigenveilError, PrivacyError
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.options import options_of
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.ways import way_of
from eigenveil.models.task import Task, part
from eigenveil.planning.forecast import DEFAULT_SPECTRUM
from eigenveil.planning.predict import Prediction, parse_spectrum, predict
from eigenveil.planning.quality import LARGEST_ROWS, Answer, Sought, epsilons, row_counts, smallest
from eigenveil.planning.tensors import Expected, expect
from eigenveil.planning.trials import Scenario, Trials
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Guarantee, neighbours_text
from eigenveil.tables.names import MOST_SPARSE_COLUMNS, check_width


@dataclass(frozen=True)
class EstimatorSpec:
    """A task, the values of its options, and the data that are expected.

    ``spectrum``, ``mean_norm``, ``distance``, ``topic_words`` and ``document_words`` describe the
    expected rows or documents; ``fits`` is how many fits are simulated, ``None``: by their size;
    ``names`` are those of the columns, where they are known.
    """

    task: Task
    targets: dict[str, Any]
    features: int
    rows: int
    spectrum: str = DEFAULT_SPECTRUM
    mean_norm: float = 0.0
    distance: float = 3.0
    topic_words: int = 20
    document_words: int = 20
    fits: int | None = None
    json: bool = False
    quiet: bool = False
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be expected of data, before anything is simulated."""
        check_whole("features", self.features)
        check_width("The plan", self.features, most=MOST_SPARSE_COLUMNS)
        check_whole("topic-words", self.topic_words)
        if self.fits is not None:
            check_whole("fits", self.fits)
        check_whole("rows", self.rows, most=2**53)
        components = self.components
        if isinstance(components, int) and self.rows < components:
            raise DataError(
                f"rows = {self.rows} is fewer than components = {components}.",
                hint="Give more rows.",
            )
        if not (np.isfinite(self.mean_norm) and self.mean_norm >= 0):
            raise DataError(f"mean-norm = {self.mean_norm} is negative.", hint="Give 0 or more.")
        options.check_distance(self.distance)
        options.check_document_words(self.document_words)

    @property
    def components(self) -> Any:
        """How many components there are to be, or how they are counted."""
        return self.targets.get("n_components", self.task.usual_components)

    def scenario(self) -> Scenario:
        """The data that are expected."""
        return Scenario(
            rows=self.rows,
            spectrum=parse_spectrum(self.spectrum, self.features),
            mean_norm=self.mean_norm,
            distance=self.distance,
            topic_words=self.topic_words,
            document_words=self.document_words,
        )

    def simulated(self, plan: Any, *, seed: int = 0) -> Trials:
        """Simulated fits of a plan."""
        simulate = part(self.task.simulator)
        trials: Trials = simulate(plan, self.scenario(), fits=self.fits, seed=seed)
        return trials

    def plan(self, **instead: Any) -> Any:
        """The plan of one table, with other values of some options.

        Where no columns have names, covariates by name are the first ones.
        """
        values = self.targets | instead
        named = values.get("covariates")
        if self.names is None and named is not None and isinstance(named[0], str):
            values["covariates"] = tuple(range(len(named)))
        options = numbered(self.task.options("table", **values), self.names)
        return self.task.make_plan(options, features=self.features)

    def print_next(self, screen: Screen) -> None:
        """The command that runs what was planned."""
        usual: dict[str, Any] = {"task": self.task.name}
        if self.task.counted:
            usual["n_components"] = self.task.usual_components
        declared = options_of(self.task.name, "table")
        targets = {name: declared[name].default for name in ("epsilon", "delta")} | self.targets
        screen.next("fit FILES", options.as_typed(usual | targets), "--out result/")


# -- ``eigenveil plan`` of mixtures and topics: what is released, at which cost, and what it shows.


# Weights of components that are looked at, beside an equal share.
_WEIGHTS = (0.5, 0.2, 0.1, 0.05, 0.02)


def needs(found: Expected, rows: int) -> list[dict[str, float | None]]:
    """What a component of some weights needs to stand above the noise."""
    plan, weights = found.plan, set(_WEIGHTS)
    if not plan.auto_components:
        weights.add(1.0 / plan.n_components)
    lines: list[dict[str, float | None]] = []
    for weight in sorted(weights, reverse=True):
        if isinstance(plan, MixturePlan):
            lines.append({"weight": weight, "distance": found.distance(weight)})
        else:
            words = found.words(weight, rows)
            lines.append({"weight": weight, "words": words if words >= 1.0 else None})
    return lines


def guarantee_of(found: Expected) -> Guarantee:
    """What the releases promise together."""
    plan = found.plan
    return compose(found.records, delta=plan.delta, adjacency=plan.adjacency)


def needs_json(found: Expected, rows: int) -> dict[str, Any]:
    """The releases, and what stands above their noise, as plain values."""
    return {
        "rounds": [[record.name for record in together] for together in found.rounds],
        "releases": [release_as_json(record) for record in found.records],
        "released_values": sum(record.noise.size for record in found.records),
        "needs": needs(found, rows),
        "document_words": found.document_words,
    }


def plan_tensors(spec: EstimatorSpec) -> None:
    """Say what a plan would release of so many rows."""
    plan, task, rows = spec.plan(), spec.task.name, spec.rows
    found = expect(plan, rows, document_words=spec.document_words)
    guarantee, trials = guarantee_of(found), spec.simulated(plan)
    if spec.json:
        options.print_json(
            {
                "task": task,
                "rows": rows,
                **needs_json(found, rows),
                **trials_json(trials),
                "guarantee": {**guarantee.as_dict(), "sentence": str(guarantee)},
                "plan_hash": plan.hash,
                "plan": plan.model_dump(mode="json"),
            }
        )
    elif not spec.quiet:
        screen = Screen()
        _print_tensors(found, guarantee, spec, screen)
        screen.print(shown_text(trials, spec.task, tensor_scene(plan, spec.scenario())))
        spec.print_next(screen)


def _print_tensors(
    found: Expected, guarantee: Guarantee, spec: EstimatorSpec, screen: Screen
) -> None:
    plan, rows = found.plan, spec.rows
    many = f"at most {plan.n_components}" if plan.auto_components else str(plan.n_components)
    things = "components" if isinstance(plan, MixturePlan) else "topics"
    kind = "features" if isinstance(plan, MixturePlan) else "words"
    screen.print(f"{spec.task.name}: {rows:,} rows x {plan.features:,} {kind}, {many} {things}.")
    print_releases(found.records, screen, title=f"releases, in {len(found.rounds)} passes")
    values = 8 * sum(record.noise.size for record in found.records)
    screen.print(f"together {options.bytes_text(values)}.")
    print_needs(found, rows, screen)
    screen.print(f"guarantee: {guarantee}")


def print_needs(found: Expected, rows: int, out: Screen) -> None:
    """A table of what components need to stand above the noise."""
    mixture = isinstance(found.plan, MixturePlan)
    table = Table(title=f"what a {'component' if mixture else 'topic'} needs, to be seen")
    table.add_column("weight", justify="right")
    table.add_column("rows" if mixture else "documents", justify="right")
    table.add_column("distance at least" if mixture else "words at most", justify="right")
    for line in needs(found, rows):
        weight = line["weight"]
        assert weight is not None
        value = line["distance" if mixture else "words"]
        if value is None:
            text = "never"
        elif mixture:
            text = f"{value:.3g}"
        else:
            text = "all" if value >= found.plan.features else f"{value:,.0f}"
        table.add_row(f"{weight:.3g}", f"{weight * rows:,.0f}", text)
    out.print(table)
    if mixture:
        out.print(
            "distance: of its mean from that of all rows, in standard deviations of a feature "
            "within a component. There it stands just above the noise; at twice that its mean is "
            "off by about a fifth of the distance."
        )
    else:
        out.print(
            "words: over how many its probability may be spread evenly, in documents of "
            f"{found.document_words} words, not counting what it has in common with other topics. "
            "There it stands just above the noise; at half that its likeliest words are the right "
            "ones."
        )
    out.print("worked out of the expected moments, without any data: about right, not promised.")


# -- ``eigenveil plan``: what a fit would give, before any data is touched.


_ALL = "all"
FloatVector = NDArray[np.float64]


@options.declared("table", without=("random_state",))
def plan(
    context: typer.Context,
    features: Annotated[int, typer.Option(help="Number of columns.")],
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows expected; of units, with --unit. Not with --find rows."),
    ] = None,
    task: options.TaskName = "pca",
    spectrum: Annotated[
        str,
        typer.Option(
            help="Expected eigenvalues: power:1.0, exponential:20, spike:5:0.8, or numbers."
        ),
    ] = DEFAULT_SPECTRUM,
    mean_norm: Annotated[
        float,
        typer.Option(help="Norm of the mean, divided by the root mean square of centred rows."),
    ] = 0.0,
    mechanism: Annotated[
        str, typer.Option(help="One mechanism, or 'all' mechanisms that support this delta.")
    ] = _ALL,
    center: Annotated[str, typer.Option(help="private, none or public.")] = "private",
    distance: options.Distance = 3.0,
    topic_words: options.TopicWords = 20,
    document_words: options.DocumentWords = 20,
    fits: options.Fits = None,
    quality: options.Quality = None,
    find: options.Find = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
) -> None:
    """Predict what a fit would give, before any data is touched."""
    chosen = options.read_task(task)
    if mechanism != _ALL:
        option_values["mechanism"] = mechanism
    if "center" in options.given(context):
        option_values["center"] = center
    targets = estimator_options(chosen, _centered(option_values, features), context, sites=False)
    components = targets.get("n_components", chosen.usual_components)
    sought = options.read_find(context, quality, find)
    if rows is None and sought != "rows":
        raise options.WrongOption(
            "--rows is missing.", hint="Give the number of rows that are expected."
        )
    if rows is None:
        rows = max(2, components) if isinstance(components, int) else 2
    spec = EstimatorSpec(
        chosen,
        targets,
        features=features,
        rows=rows,
        spectrum=spectrum,
        mean_norm=mean_norm,
        distance=distance,
        topic_words=topic_words,
        document_words=document_words,
        fits=fits,
        json=json,
        quiet=quiet,
    )
    if sought is None:
        part(chosen.predictor)(spec)
    else:
        assert quality is not None
        plan_quality(spec, quality, sought)


def plan_quality(spec: EstimatorSpec, quality: float, sought: Sought) -> None:
    """Say what it takes to reach a quality."""

    def at(value: float, rows: int = spec.rows) -> tuple[EstimatorSpec, Any]:
        """What is planned with another epsilon, or other rows."""
        there = replace(spec, rows=int(value) if sought == "rows" else rows)
        return there, there.plan() if sought == "rows" else there.plan(epsilon=value)

    def try_at(value: float, seed: int = 0, rows: int = spec.rows) -> Trials:
        there, made = at(value, rows)
        return there.simulated(made, seed=seed)

    told = not (spec.json or spec.quiet)
    answer = find_quality(quality, sought, try_at, fewest=spec.rows, told=told)
    there, made = (spec, None) if answer.value is None else at(answer.value)
    if spec.json:
        values: dict[str, Any] = {"task": spec.task.name, **answer_json(answer, spec.task)}
        if made is not None:
            values |= {"plan_hash": made.hash, "plan": made.model_dump(mode="json")}
        options.print_json(values)
    elif not spec.quiet:
        screen = Screen()
        print_answer(answer, spec.task, screen)
        if answer.value is not None:
            found = {"epsilon": answer.value} if sought == "epsilon" else {}
            replace(there, targets=there.targets | found).print_next(screen)


def find_quality(quality: float, sought: Sought, try_at: Any, *, fewest: int, told: bool) -> Answer:
    """What it takes to reach a quality, of one table or of a study."""
    of_epsilon = sought == "epsilon"
    return smallest(
        quality,
        sought,
        epsilons() if of_epsilon else row_counts(fewest),
        try_at,
        with_more_rows=partial(try_at, rows=LARGEST_ROWS) if of_epsilon else None,
        progress=notify_tried(sought) if told else None,
    )


def _centered(option_values: dict[str, Any], features: int) -> dict[str, Any]:
    """The given values, with the centre as an estimator has it."""
    text = option_values.get("center")
    if text is None:
        return option_values
    if text not in ("private", "none", "public"):
        raise DataError(
            f"center = {text!r} is not private, none or public.", hint="Choose one of these."
        )
    return option_values | {"center": np.zeros(features) if text == "public" else text == "private"}


def plan_pca(spec: EstimatorSpec) -> None:
    """Say what each mechanism would give."""
    results = _predictions(spec, parse_spectrum(spec.spectrum, spec.features))
    if spec.json:
        options.print_json([_as_json(*result) for result in results])
    elif not spec.quiet:
        _print(results, spec)


_Result = tuple[str, Plan | None, Prediction | str]


def _predictions(spec: EstimatorSpec, eigenvalues: FloatVector) -> list[_Result]:
    """What each mechanism would give, or why it cannot be."""
    results: list[_Result] = []
    one = spec.targets.get("mechanism")
    every = list(options_of(spec.task.name, "table")["mechanism"].choices)
    every.remove("auto")
    for name in every if one is None else [one]:
        try:
            made = spec.plan(mechanism=name)
            found = predict(
                made, eigenvalues, rows=spec.rows, mean_norm=spec.mean_norm, fits=spec.fits
            )
            results.append((made.mechanism, made, found))
        except EigenveilError as error:
            # refused for what this one cannot do, not for what no mechanism can
            own = isinstance(error, PrivacyError) or not way_of(name).counts
            if one is not None or not own:
                raise
            results.append((name, None, error.message))
    return results


def _as_json(name: str, made: Plan | None, found: Prediction | str) -> dict[str, Any]:
    if made is None or isinstance(found, str):
        return {"mechanism": name, "captured_energy": None, "note": found}
    return {
        "mechanism": name,
        "captured_energy": found.captured_energy,
        "captured_energy_error": found.trials.quality_error,
        "shows_nothing": found.trials.as_json(),
        "note": found.note,
        "noise_rows": found.noise_rows,
        "released_values": found.released_values,
        "message_bytes": 8 * found.released_values,
        "memory_bytes": found.memory_bytes,
        "plan_hash": made.hash,
        "plan": made.model_dump(mode="json"),
    }


def _print(
    results: list[_Result],
    spec: EstimatorSpec,
) -> None:
    screen = Screen()
    components = spec.components
    many = (
        f"components = {components}"
        if isinstance(components, float | str)
        else (f"{components} components")
    )
    table = Table(title=f"{spec.rows:,} rows x {spec.features:,} features, {many}, {spec.spectrum}")
    table.add_column("mechanism")
    table.add_column("captured energy", justify="right")
    table.add_column("shows nothing", justify="right")
    table.add_column("noise (rows)", justify="right")
    table.add_column("message", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("note")
    for name, _, found in results:
        if isinstance(found, str):
            table.add_row(name, "-", "-", "-", "-", "-", found)
            continue
        energy = "-" if found.captured_energy is None else f"{found.captured_energy:.3f}"
        table.add_row(
            name,
            energy,
            found.trials.text(),
            f"{found.noise_rows:.3g}",
            options.bytes_text(8 * found.released_values),
            options.bytes_text(found.memory_bytes),
            found.note,
        )
    screen.print(table)
    made = next((m for _, m, _ in results if m is not None), None)
    if made is not None:
        screen.print(
            f"guarantee of each: ({made.epsilon:g}, {made.delta:g})-differential privacy, "
            f"for {neighbours_text(made.adjacency, made.unit)}, against anyone who sees the result."
        )
    screen.print(
        "captured energy: of the exact subspace's, simulated on Gaussian rows with this spectrum. "
        f"shows nothing: the probability that no component is usable. {OF_FITS} "
        "noise: its scale in the largest contribution a row can make."
    )
    if made is not None:
        spec.print_next(screen)
