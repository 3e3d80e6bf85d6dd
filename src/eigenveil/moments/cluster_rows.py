"""Rows that the workers of a cluster read: a pass comes back as one merged sum.

No row and no noise travels. A cluster reads a part again where a worker was lost: so that each
counts once, what is merged says which parts it is of. What runs on workers are two functions of
this module, and an opener of the package: nothing that a caller wrote.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, Protocol

from eigenveil.errors import DataError
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import FoundT, PartitionedRows, Reading, RowSource


class Cluster(Protocol):
    """Where parts are read and their sums merged."""

    def fold(self, code: str, job: bytes, parts: Any, own: Sequence[bytes]) -> Partial[Any]:
        """Run :func:`read_part` on each part, and :func:`merge_parts` on what comes of them."""
        ...


class ClusterRows(PartitionedRows):
    """Rows in parts, each opened on a worker by a pickled ``opener`` of its value and number.

    ``parts`` are values, or what only the cluster can number, such as a frame of Spark.
    """

    def __init__(
        self,
        parts: Any,
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

    def read_by(
        self, reader: Callable[..., RowSource], own: Sequence[Any] | None = None
    ) -> ClusterRows:
        found = copy(self)
        found._readers, found._own = (*self._readers, reader), (*self._own, own)
        return found

    def fold(self, reading: Reading[FoundT]) -> FoundT:
        """What a pass makes of all rows."""
        job = pickle.dumps(_Job(self._opener, self._readers, reading))
        found: Partial[FoundT] = self._cluster.fold(code_digest(), job, self._parts, self._beside())
        self._check(found.rows)
        return found.found

    def _beside(self) -> list[bytes]:
        """What readers are given of each part; of all parts the same where that is nothing."""
        count = max((len(each) for each in self._own if each is not None), default=1)
        return [
            pickle.dumps([None if each is None else each[number] for each in self._own])
            for number in range(count)
        ]

    def _check(self, rows: Mapping[int, int]) -> None:
        """Each part was read once, and has the rows that it had before."""
        listed = isinstance(self._parts, Sequence)
        count = len(self._parts) if listed else max(rows, default=-1) + 1
        missing = set(range(count)) - set(rows)
        if missing and (listed or not self._rows):
            raise not_once(min(missing), "did not count")
        if not self._rows:
            self._rows.update(rows)
        for number in sorted(self._rows.keys() | rows.keys()):
            before, now = self._rows.get(number, 0), rows.get(number, 0)
            if before != now:
                raise DataError("rows-changed", number=number, before=before, count=now)


@dataclass(frozen=True)
class _Job(Generic[FoundT]):
    """What is done to each part."""

    opener: Callable[[Any, int], RowSource]
    readers: tuple[Callable[..., RowSource], ...]
    reading: Reading[FoundT]


@dataclass(frozen=True)
class Partial(Generic[FoundT]):
    """What a pass made of some parts, and how many rows each of them has."""

    rows: Mapping[int, int] = field(repr=False)
    found: FoundT = field(repr=False)


def read_part(code: str, job: bytes, number: int, value: Any, own: bytes) -> Partial[Any]:
    """On a worker: what a pass makes of one part."""
    _check_worker(code)
    what: _Job[Any] = pickle.loads(job)
    rows = what.opener(value, number)
    for reader, given in zip(what.readers, pickle.loads(own), strict=True):
        rows = rows.read_by(reader) if given is None else reader(rows, given)
    found = what.reading.read(rows)
    return Partial({number: found.rows}, found)


def given_to(number: int, own: Sequence[bytes]) -> bytes:
    """What readers are given of a part; anything of a new one, with which no pass is accepted."""
    return own[min(number, len(own) - 1)]


def merge_parts(code: str, job: bytes, parts: Sequence[Partial[Any]]) -> Partial[Any]:
    """On a worker: what a pass made of several parts. None of them is changed: Dask keeps them."""
    _check_worker(code)
    what: _Job[Any] = pickle.loads(job)
    rows: dict[int, int] = {}
    for part in parts:
        if twice := rows.keys() & part.rows.keys():
            raise not_once(min(twice), "counted twice")
        rows |= part.rows
    return Partial(rows, what.reading.merge([part.found for part in parts]))


def not_once(number: int, what: str) -> DataError:
    return DataError("parts-not-once", number=number, what=what)


def workers_died() -> DataError:
    return DataError(
        "cluster-failed",
        what="workers died, again and again, while they read the same part",
        way_out="Give workers more memory, or the rows smaller partitions; see the workers' log.",
    )


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
