"""Parts of rows as tasks of Dask: each is read where it is, and sums are merged up a tree."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from eigenveil.checks import library
from eigenveil.errors import DataError, EigenveilError, first_line
from eigenveil.moments.cluster_rows import Partial, given_to, merge_parts, read_part, workers_died

# Sums that are merged at once: a worker holds so many, and one more.
_FAN_IN = 4
# Seconds without any worker after which a pass ends, and between two looks at it.
_PATIENCE, _LOOK = 60.0, 5.0
_LOST = frozenset(
    ["CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError"]
)


class DaskTasks(ABC):
    """Where tasks run."""

    @abstractmethod
    def compute(self, task: Any) -> Any:
        """The value of a ``dask.delayed`` object."""

    def check(self) -> None:  # noqa: B027 - tasks that run here need nobody's answer
        """Refuse a cluster that does not answer."""

    def fold(
        self, code: str, job: bytes, parts: Sequence[Any], own: Sequence[bytes]
    ) -> Partial[Any]:
        from dask.delayed import delayed

        what = delayed(job, pure=False)
        read, merge = delayed(read_part, pure=False), delayed(merge_parts, pure=False)
        level = [
            read(code, what, number, part, given_to(number, own))
            for number, part in enumerate(parts)
        ]
        while len(level) > 1:
            level = [
                merge(code, what, level[start : start + _FAN_IN])
                for start in range(0, len(level), _FAN_IN)
            ]
        with _explained():
            found: Partial[Any] = self.compute(level[0])
        return found


class CurrentCluster(DaskTasks):
    """The client that the caller has made; without one, Dask's threads or processes here."""

    def compute(self, task: Any) -> Any:
        distributed = sys.modules.get("distributed")
        try:
            client = None if distributed is None else distributed.default_client()
        except ValueError:  # there is none
            client = None
        return task.compute() if client is None else _result(client, task)


@dataclass(frozen=True)
class SchedulerAt(DaskTasks):
    """A scheduler by its address; connected to for each pass."""

    address: str  # Such as `tcp://scheduler:8786`

    def compute(self, task: Any) -> Any:
        with self.connected() as client:
            return _result(client, task)

    def check(self) -> None:
        library("distributed", extra="dask", what="A Dask cluster")
        with self.connected():
            pass

    @contextmanager
    def connected(self) -> Iterator[Any]:
        distributed = import_module("distributed")
        try:
            distributed.comm.get_address_host(self.address)  # a client that began cannot be closed
            client = distributed.Client(self.address, set_as_default=False)
        except (OSError, ValueError, TimeoutError, RuntimeError) as error:
            raise DataError("no-scheduler", address=self.address, reason=_said(error)) from None
        with client:
            yield client


def _result(client: Any, task: Any) -> Any:
    """The value of a delayed object, as long as there are workers."""
    wait = import_module("distributed").wait
    future, idle = client.compute(task), 0.0
    while not future.done():
        try:
            with client.as_current():
                wait(future, timeout=_LOOK)
        except TimeoutError:
            idle = 0.0 if client.nthreads() else idle + _LOOK
        if idle >= _PATIENCE:
            raise DataError("no-worker", seconds=idle)
    return future.result()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except EigenveilError:
        raise
    except Exception as error:
        name = type(error).__name__
        if name in _LOST:
            raise DataError("cluster-lost") from error
        if name == "KilledWorker":
            raise workers_died() from error
        what = f"{name}: {_said(error)}"
        hint = "Check the collection with its own compute(), and that all workers can read it."
        raise DataError("cluster-failed", what=what, way_out=hint) from error


def _said(error: BaseException) -> str:
    return first_line(error, most=300, empty="no message")
