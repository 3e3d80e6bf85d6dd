"""Rows that the workers of a Dask cluster read: a pass comes back as one merged sum.

No row and no noise travels. Dask runs a part again where a worker was lost: so that each counts
once, what is merged says which parts it is of.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, Protocol

from eigenveil.errors import DataError, EigenveilError, first_line
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import FoundT, PartitionedRows, Reading, RowSource

# Sums that are merged at once: a worker holds so many, and one more.
_FAN_IN = 4
# Seconds without any worker after which a pass ends, and between two looks at it.
_PATIENCE, _LOOK = 60.0, 5.0
_LOST = frozenset(
    ["CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError"]
)


class Cluster(Protocol):
    """Where tasks run."""

    def compute(self, task: Any) -> Any:
        """The value of a ``dask.delayed`` object."""
        ...


class DaskRows(PartitionedRows):
    """Rows in parts, each opened on a worker by a pickled ``opener`` of its value and number."""

    def __init__(
        self,
        parts: Sequence[Any],
        opener: Callable[[Any, int], RowSource],
        *,
        features: int,
        names: Sequence[str] | None,
        cluster: Cluster,
    ) -> None:
        self.features, self.names = features, names
        self._parts, self._opener, self._cluster = parts, opener, cluster
        self._readers: tuple[Callable[..., RowSource], ...] = ()
        self._own: tuple[Sequence[Any] | None, ...] = ()
        self._rows: dict[int, int] = {}  # of each part, as the first pass found them

    @property
    def partitions(self) -> int:
        return len(self._parts)

    def read_by(
        self, reader: Callable[..., RowSource], own: Sequence[Any] | None = None
    ) -> DaskRows:
        found = copy(self)
        found._readers, found._own = (*self._readers, reader), (*self._own, own)
        return found

    def fold(self, reading: Reading[FoundT]) -> FoundT:
        """What a pass makes of all rows."""
        from dask.delayed import delayed

        job = delayed(pickle.dumps(_Job(self._opener, self._readers, reading)), pure=False)
        read, merge = delayed(read_part, pure=False), delayed(merge_parts, pure=False)
        level = [
            read(code_digest(), job, number, part, self._own_of(number))
            for number, part in enumerate(self._parts)
        ]
        while len(level) > 1:
            level = [
                merge(code_digest(), job, level[start : start + _FAN_IN])
                for start in range(0, len(level), _FAN_IN)
            ]
        with _explained():
            found: _Partial[FoundT] = self._cluster.compute(level[0])
        self._check(found.rows)
        return found.found

    def _own_of(self, number: int) -> bytes:
        return pickle.dumps([None if each is None else each[number] for each in self._own])

    def _check(self, rows: Mapping[int, int]) -> None:
        """Each part was read once, and has the rows that it had before."""
        if missing := set(range(self.partitions)) - set(rows):
            raise _not_once(min(missing), "did not count")
        for number, count in rows.items():
            if (before := self._rows.setdefault(number, count)) != count:
                raise DataError("rows-changed", number=number, before=before, count=count)


@dataclass(frozen=True)
class _Job(Generic[FoundT]):
    """What is done to each part."""

    opener: Callable[[Any, int], RowSource]
    readers: tuple[Callable[..., RowSource], ...]
    reading: Reading[FoundT]


@dataclass(frozen=True)
class _Partial(Generic[FoundT]):
    """What a pass made of some parts, and how many rows each of them has."""

    rows: Mapping[int, int] = field(repr=False)
    found: FoundT = field(repr=False)


def read_part(code: str, job: bytes, number: int, value: Any, own: bytes) -> _Partial[Any]:
    """On a worker: what a pass makes of one part."""
    _check_worker(code)
    what: _Job[Any] = pickle.loads(job)
    rows = what.opener(value, number)
    for reader, given in zip(what.readers, pickle.loads(own), strict=True):
        rows = rows.read_by(reader) if given is None else reader(rows, given)
    found = what.reading.read(rows)
    return _Partial({number: found.rows}, found)


def merge_parts(code: str, job: bytes, parts: Sequence[_Partial[Any]]) -> _Partial[Any]:
    """On a worker: what a pass made of several parts. None of them is changed: Dask keeps them."""
    _check_worker(code)
    what: _Job[Any] = pickle.loads(job)
    rows: dict[int, int] = {}
    for part in parts:
        if twice := rows.keys() & part.rows.keys():
            raise _not_once(min(twice), "counted twice")
        rows |= part.rows
    return _Partial(rows, what.reading.merge([part.found for part in parts]))


def _not_once(number: int, what: str) -> DataError:
    return DataError("parts-not-once", number=number, what=what)


# -- Workers must run the same code, on processors that keep its promises.


@cache
def code_digest() -> str:
    """A digest of the package's source, which processes that add up together have in common."""
    package, found = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        found.update(file.relative_to(package).as_posix().encode() + b"\0")
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return f"{_version()}, code {found.hexdigest()[:16]}"


def _version() -> str:
    try:
        return version("eigenveil")
    except PackageNotFoundError:  # run from its source
        return "not installed"


def _check_worker(code: str) -> None:
    """Refuse to work with a process whose code is another."""
    if code != code_digest():
        raise DataError("cluster-version", worker=_here(), other=code_digest(), own=code)
    if dependence():
        raise DataError("cluster-processor", worker=_here())


def _here() -> str:
    distributed = sys.modules.get("distributed")
    try:
        return f"Worker {distributed.get_worker().address}" if distributed else _process()
    except ValueError:
        return _process()


def _process() -> str:
    return f"A process on {socket.gethostname()}"


# -- Where tasks run, and what goes wrong there.


class CurrentCluster:
    """The client that the caller has made; without one, Dask's threads or processes here."""

    def compute(self, task: Any) -> Any:
        distributed = sys.modules.get("distributed")
        try:
            client = None if distributed is None else distributed.default_client()
        except ValueError:  # there is none
            client = None
        return task.compute() if client is None else _result(client, task)


@dataclass(frozen=True)
class SchedulerAt:
    """A scheduler by its address; connected to for each pass."""

    address: str  # Such as `tcp://scheduler:8786`

    def compute(self, task: Any) -> Any:
        with self.connected() as client:
            return _result(client, task)

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
        what = f"{name}: {_said(error)}"
        hint = "Check the collection with its own compute(), and that all workers can read it."
        if name == "KilledWorker":
            what = "workers died, again and again, while they read the same part"
            hint = "Give workers more memory, or the rows smaller partitions; see the workers' log."
        raise DataError("cluster-failed", what=what, way_out=hint) from error


def _said(error: BaseException) -> str:
    return first_line(error, most=300, empty="no message")
