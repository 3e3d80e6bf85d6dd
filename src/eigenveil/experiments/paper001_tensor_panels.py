"""What the panels of paper 001's figures 3 to 5 sweep over, and the tasks that measure them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from eigenveil.experiments.experiment import Settings, Task
from eigenveil.experiments.paper001_tensor_work import Model, component_errors

Over = Literal["epsilon", "rows", "delta"]
DELTA = 0.01

_EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_DELTAS = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
# Model size (D, K): the epsilons of the panels over rows, and the one of those over delta.
_Sizes = dict[tuple[int, int], tuple[tuple[float, ...], float]]
_SIZES: _Sizes = {(10, 5): ((0.5, 2.0), 0.1), (50, 10): ((1.0, 5.0), 2.0)}
_TOY_SIZES: _Sizes = {(20, 3): ((1.0,), 1.0)}


class Setting(NamedTuple):
    """Rows, epsilon and delta of one point."""

    rows: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Sweep:
    """A panel of component errors: one of rows, epsilon and delta varies."""

    model: Model
    size: int
    count: int
    over: Over
    values: tuple[float, ...]
    rows: int = 0
    epsilon: float = 0.0
    delta: float = DELTA

    @property
    def panel(self) -> str:
        """The panel's name."""
        fixed = f"eps{self.epsilon:g}" if self.over == "rows" else f"n{self.rows}"
        return f"{self.model}-d{self.size}-{fixed}-{self.over}"

    @property
    def says(self) -> str:
        """What is fixed, for a person."""
        given = [f"D={self.size}, K={self.count}"]
        if self.over != "rows":
            given.append(f"N={short(self.rows)}")
        if self.over != "epsilon":
            given.append(f"ε={self.epsilon:g}")
        return ", ".join(given)

    @property
    def authors(self) -> str:
        """The name of the authors' stored curves, should there be any."""
        model = {"mixture": "MOG", "topics": "STM"}[self.model]
        over = "samples" if self.over == "rows" else self.over
        name = f"{model}_vs_{over}_K_{self.count}_D_{self.size}"
        if self.over != "rows":
            name += f"_N_{short(self.rows)}"
        if self.over != "epsilon":
            name += f"_eps_{self.epsilon:g}".replace(".", "_")
        return name

    def at(self, x: float) -> Setting:
        """The setting of the point at a horizontal position."""
        given = {"rows": self.rows, "epsilon": self.epsilon, "delta": self.delta, self.over: x}
        return Setting(int(given["rows"]), float(given["epsilon"]), float(given["delta"]))


def short(rows: int) -> str:
    """A number of rows as the paper writes it."""
    return f"{rows // 1000}k" if rows % 1000 == 0 else str(rows)


def error_sweeps(model: Model, settings: Settings) -> list[Sweep]:
    """Figures 3 and 4: over epsilon for two numbers of rows, then over rows."""
    few = settings.pick((100_000, 800_000), (100_000, 200_000), (10_000, 40_000))
    epsilons: tuple[float, ...] = settings.pick(
        _EPSILONS, (0.01, 0.1, 0.5, 1.0, 5.0, 10.0), (0.5, 10.0)
    )
    many = settings.pick(
        (50_000, 100_000, 200_000, 500_000, 800_000),
        (20_000, 50_000, 100_000, 200_000),
        (10_000, 40_000),
    )
    sizes = settings.pick(_SIZES, _SIZES, _TOY_SIZES)
    over_epsilon = [
        Sweep(model, size, count, "epsilon", epsilons, rows=rows)
        for size, count in sizes
        for rows in few
    ]
    over_rows = [
        Sweep(model, size, count, "rows", tuple(map(float, many)), epsilon=epsilon)
        for (size, count), (wished, _) in sizes.items()
        for epsilon in wished
    ]
    return [*over_epsilon, *over_rows]


def delta_sweeps(settings: Settings) -> list[Sweep]:
    """Figure 5: over delta, of mixtures and then of topics."""
    few = settings.pick((100_000, 800_000), (100_000, 200_000), (40_000,))
    deltas = settings.pick(_DELTAS, (1e-4, 1e-3, 1e-2, 5e-2), (1e-4, 5e-2))
    models: tuple[Model, ...] = ("mixture", "topics")
    return [
        Sweep(model, size, count, "delta", deltas, rows=rows, epsilon=epsilon)
        for model in models
        for (size, count), (_, epsilon) in settings.pick(_SIZES, _SIZES, _TOY_SIZES).items()
        for rows in few
    ]


def error_tasks(
    sweeps: Iterable[Sweep], runs: Sequence[int], *, repeated: bool = False
) -> list[Task]:
    """One task for each run of each data set: all panels that show it share its moments."""
    wishes: dict[tuple[Model, int, int, int], list[list[object]]] = defaultdict(list)
    for sweep in sweeps:
        for x in sweep.values:
            rows, epsilon, delta = sweep.at(x)
            of = (sweep.model, sweep.size, sweep.count, rows)
            wishes[of].append([sweep.panel, x, epsilon, delta])
    return [
        Task(
            work=component_errors,
            arguments={
                "model": model,
                "size": size,
                "count": count,
                "rows": rows,
                "wishes": wished,
                "repeated": repeated,
            },
            run=run,
            cost=_cost(model, size, rows, len(wished)),
        )
        for (model, size, count, rows), wished in wishes.items()
        for run in runs
    ]


def _cost(model: Model, size: int, rows: int, wishes: int) -> float:
    """Seconds: the moments of mixtures take D^2 a row, a fit of ours D or so."""
    moments = 6e-9 * rows * size**2 if model == "mixture" else 0.0
    return moments + wishes * (0.1 + rows * (1e-6 if size > 20 else 5e-7))
