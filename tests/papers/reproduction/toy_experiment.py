"""A small experiment whose tasks can be told to wait, to fail, or to end their process."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from eigenveil.errors import PrivacyError
from eigenveil_papers.reproduction.experiment import (
    Claim,
    Experiment,
    Point,
    RunSettings,
    RunTask,
    Verdict,
)

EPSILONS = (0.1, 1.0, 10.0)
TRACE = "TOY_TRACE"  # a file to which each task that is really done adds a line
LATER = "TOY_LATER"  # after two tasks the others take seconds
TROUBLE = "TOY_TROUBLE"  # what run 1 does instead of giving its points


def work(rng, *, data, scale):
    if path := os.environ.get(TRACE):
        with Path(path).open("a") as file:
            file.write(f"{data} {os.getpid()}\n")
        if os.environ.get(LATER) and len(Path(path).read_text().splitlines()) > 2:
            time.sleep(4.0)
    for x in EPSILONS:
        utility = 1.0 - np.exp(-x)
        yield Point(data, "eigenveil", x, min(1.0, scale * utility) + 0.01 * rng.standard_normal())
        yield Point(data, "capepca", x, utility / 2.0 + 0.01 * rng.standard_normal())
    if data == "bad":
        yield Point(data, "eigenveil", 20.0, float("nan"))


def threads_of_linear_algebra():
    """The most threads that a library for linear algebra would take in this process."""
    import scipy.linalg  # noqa: F401  loads its own
    from threadpoolctl import threadpool_info

    return max(each["num_threads"] for each in threadpool_info())


def awkward(rng, *, data):
    problem = os.environ.get(TROUBLE)
    if problem == "defect":
        raise ZeroDivisionError("of the toy")
    if problem == "error":
        raise PrivacyError.relayed("Not so.", hint="Otherwise.", code="hopeless-noise")
    if problem == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    yield Point(data, "eigenveil", 1.0, 0.5)


def tasks(settings: RunSettings):
    names = [settings.data] if settings.data else ["good", "bad"]
    made = [
        RunTask(work, {"data": name, "scale": 2.0}, run, 1.0 + run)
        for name in names
        for run in settings.repetitions(20, 6, 2)
    ]
    if os.environ.get(TROUBLE):
        made.insert(1, RunTask(awkward, {"data": "good"}, cost=0.5))
    return made


def draw(numbers, settings):
    # not in the processes of a run, which start sooner without
    from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid

    series_styles = {
        "eigenveil": SeriesStyle("ours", "ours"),
        "capepca": SeriesStyle("theirs", "paper"),
    }
    panels = [
        Panel(key, key, "epsilon", "utility", authors={"capepca": (EPSILONS, (0.1, 0.2, 0.3))})
        for key in numbers.panels
    ]
    return panel_grid(numbers, panels, series_styles, columns=2, title=f"Toy, {settings.scale}")


def claims(numbers, settings):
    ours = numbers.at("good", "eigenveil", 1.0)
    theirs = numbers.at("good", "capepca", 1.0)
    said = f"{ours:.3f} | {theirs:.3f}"
    verdict = "not tested" if np.isnan(ours) else "shown" if ours > theirs else "contradicted"
    return [
        Claim(
            statement=what,
            where=where,
            measured=said,
            verdict=Verdict.of([of]),
            compared="By hand.",
        )
        for what, where, of in (
            ("theirs is best", "Fig. 1", "contradicted"),
            ("ours is better", "eigenveil", verdict),
        )
    ]


TOY = Experiment(
    name="000-toy",
    title="Utility of a toy",
    about="A toy.",
    datasets=("good", "bad"),
    tasks=tasks,
    draw=draw,
    claims=claims,
    differences="Theirs are invented.",
)
