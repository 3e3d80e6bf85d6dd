"""Doing an experiment's tasks in several processes, so that it can be stopped and gone on with."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from eigenveil.errors import DataError, EigenveilError, OutputError, of_system
from eigenveil_papers.reproduction.experiment import Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.journal import ENDING, RunJournal, header
from eigenveil_papers.reproduction.numbers import Measured, Numbers


class RunProgress(NamedTuple):
    done: int  # Tasks, those of an earlier run among the done ones
    total: int
    note: str = ""  # What a person should know now, or empty


Progress = Callable[[RunProgress], None]


class TaskError(RuntimeError):
    """A task raised what is no error of the package: a defect of the experiment."""


def run(
    experiment: Experiment,
    settings: RunSettings,
    *,
    out: Path,
    jobs: int = 1,
    progress: Progress | None = None,
    restart: bool = False,
) -> Numbers:
    """Measure an experiment: the same settings give the same numbers, whatever the ``jobs``.

    Every finished task is written to ``out/NAME.journal.jsonl`` at once; those found there are not
    done again. When the run is stopped or a task fails, what is done stays there.
    """
    check_data(experiment, settings)
    tasks = list(experiment.tasks(settings))
    keys = [task.key for task in tasks]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{experiment.name}: two tasks have the same arguments and run")
    path = journal_path(experiment.name, out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if restart:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError("cannot-write", path=out, reason=of_system(error)) from None
    with RunJournal(path, header(experiment, settings, tasks)) as journal:
        found = {key: journal.found[key] for key in keys if key in journal.found}
        tell = progress or (lambda _: None)
        tell(RunProgress(len(found), len(keys), journal.note))
        left = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in found]
        # long ones first, lest one of them is alone at the end
        left.sort(key=lambda each: -each[1].cost)
        beside = [each for each in left if not each[1].alone]
        alone = [each for each in left if each[1].alone]
        do = _in_processes if jobs > 1 and len(beside) > 1 else _here
        for key, points, seconds in itertools.chain(do(beside, jobs), _here(alone, 1)):
            journal.add(key, points, seconds=seconds)
            found[key] = points
            tell(RunProgress(len(found), len(keys)))
    return Numbers(
        Measured(*point, task.run)
        for key, task in zip(keys, tasks, strict=True)
        for point in found[key]
    )


def journal_path(name: str, out: Path) -> Path:
    return out / f"{name}{ENDING}"


def check_data(experiment: Experiment, settings: RunSettings) -> None:
    if settings.data is not None and settings.data not in experiment.datasets:
        raise DataError(
            "unknown-data-set",
            whose=experiment.name,
            name=settings.data,
            known=", ".join(experiment.datasets),
        )


def do_task(task: RunTask) -> list[Point]:
    """The points of one task, with its own random numbers and one thread for linear algebra."""
    rng = np.random.default_rng(int(task.key, 16))
    arguments = json.loads(json.dumps(dict(task.arguments)))  # as the key was made from
    with threadpool_limits(limits=1):
        return [
            Point(str(panel), str(series), float(x), float(value))
            for panel, series, x, value in task.work(rng, **arguments)
        ]


_Result = tuple[str, list[Point], float]


def _here(left: Sequence[tuple[str, RunTask]], jobs: int) -> Iterator[_Result]:
    del jobs
    for key, task in left:
        yield key, *_timed(task)


def _in_processes(left: Sequence[tuple[str, RunTask]], jobs: int) -> Iterator[_Result]:
    with processes(min(jobs, len(left))) as pool:
        waiting = {pool.submit(_timed, task): key for key, task in left}
        try:
            for future in as_completed(waiting):
                yield waiting[future], *future.result()
        except BrokenProcessPool:
            raise TaskError(
                "a process that did tasks was ended from outside, perhaps for want of memory; "
                "with fewer --jobs less of it is needed"
            ) from None


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it ends by an error or is interrupted.

    Each has one thread for linear algebra.
    """
    # a fork would copy threads' locks; a process that starts afresh does not have any
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start)
    try:
        yield pool
    except BaseException:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(5.0)
        raise
    pool.shutdown()


def _start() -> None:
    """In each process, before its first task."""
    # libraries that are loaded later look at these
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    threadpool_limits(limits=1)  # those that came with this module
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's business
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Do not outlive the process that wanted the numbers, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _timed(task: RunTask) -> tuple[list[Point], float]:
    start = time.perf_counter()
    try:
        points = do_task(task)
    except EigenveilError as error:
        error.add_note(_named(task))
        raise
    except Exception as error:
        failed = TaskError(f"{_named(task)}: {type(error).__name__}: {error}")
        failed.add_note("".join(traceback.format_exception(error)))  # it stays in that process
        raise failed from None
    return points, time.perf_counter() - start


def _named(task: RunTask) -> str:
    return f"{task.work.__qualname__}({json.dumps(dict(task.arguments))}), run {task.run}"
