"""Parts of rows as tasks of Spark: each is read on an executor, and sums are merged up a tree.

A pass is one query of two exchanges: of a part, and of 64 parts that follow each other, one sum
goes on. Sums travel in pieces, so that neither Spark nor a worker holds many whole ones.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from eigenveil.checks import library
from eigenveil.errors import DataError, EigenveilError, first_line
from eigenveil.moments.cluster_rows import (
    Partial,
    given_to,
    merge_parts,
    not_once,
    read_part,
    workers_died,
)

# Parts whose sums are first merged with each other, in tasks as many as Spark finds right; sums
# that one of them merges at once.
_GROUP, _FAN_IN = 64, 4
# Bytes of a piece; Spark hands on 10,000 of them at a time by default.
_PIECE, _PIECES_A_BATCH = 1 << 12, 1 << 10
_PIECES = "number long, place int, piece binary"
_ARROW = pa.schema([("number", pa.int64()), ("place", pa.int32()), ("piece", pa.binary())])
_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception))\b", re.MULTILINE)


class SparkTasks:
    """The executors of a session of Spark: one that there is, or one by its master's address."""

    def __init__(self, where: Any) -> None:
        self._where = where

    @cached_property
    def session(self) -> Any:
        return _started(self._where) if isinstance(self._where, str) else self._where

    def check(self) -> None:
        """Refuse a master with which no session starts."""
        _ = self.session

    def fold(self, code: str, job: bytes, parts: Any, own: Sequence[bytes]) -> Partial[Any]:
        """``parts``: values, or a ``DataFrame``, each partition's batches of which are one."""
        listed = parts if isinstance(parts, Sequence) else None
        with explained(), self._lots(own) as lots:
            frame = parts if listed is None else self.session.range(0, len(parts), 1, len(parts))
            sums = frame.mapInArrow(partial(read_sums, code, job, lots, listed), _PIECES)
            group = import_module("pyspark.sql.functions").expr(f"number div {_GROUP}")
            for size, places in {_GROUP: (group,), sys.maxsize: (1,)}.items():
                sums = sums.repartition(*places).sortWithinPartitions("number", "place")
                sums = sums.mapInArrow(partial(merge_sums, code, job, size), _PIECES)
            whole = next(_wholes(sums.toArrow().to_batches()), None)
        # where a frame has no partition at all, nothing came
        found: Partial[Any] = merge_parts(code, job, []) if whole is None else whole[1]
        if isinstance(found, EigenveilError):
            raise found
        return found

    @contextmanager
    def _lots(self, own: Sequence[bytes]) -> Iterator[Sequence[Any]]:
        """What readers are given, a group of parts each: an executor loads those of its parts."""
        context = self.session.sparkContext
        lots = [context.broadcast(own[at : at + _GROUP]) for at in range(0, len(own), _GROUP)]
        try:
            yield lots
        finally:
            for each in lots:
                each.destroy()


def read_sums(
    code: str, job: bytes, lots: Sequence[Any], listed: Sequence[Any] | None, batches: Iterable[Any]
) -> Iterator[Any]:
    """On an executor: what a pass makes of one partition, in pieces."""
    number = import_module("pyspark").TaskContext.get().partitionId()
    value = batches if listed is None else listed[number]
    own = given_to(number % _GROUP, lots[min(number // _GROUP, len(lots) - 1)].value)
    yield from _pieces(number, _tried(read_part, code, job, number, value, own))


def merge_sums(code: str, job: bytes, group: int, batches: Iterable[Any]) -> Iterator[Any]:
    """On an executor: the sums of each group of partitions that follow each other, merged."""
    for place, parts in groupby(_wholes(batches), key=lambda part: part[0] // group):
        waiting: list[Any] = []
        for _, found in parts:
            waiting.append(found)
            if len(waiting) == _FAN_IN:
                waiting = [_merged(code, job, waiting)]
        yield from _pieces(place * group, _merged(code, job, waiting))


def _merged(code: str, job: bytes, found: Sequence[Any]) -> Any:
    wrong = next((each for each in found if isinstance(each, EigenveilError)), None)
    return wrong or _tried(merge_parts, code, job, found)


def _tried(work: Callable[..., Any], *given: Any) -> Any:
    """What comes of it, or why nothing does: Spark would try again, and log what failed."""
    try:
        return work(*given)
    except EigenveilError as error:
        return error


# -- Sums on their way.


def _pieces(number: int, found: Any) -> Iterator[Any]:
    whole = pickle.dumps(found)
    starts = range(0, len(whole), _PIECE)
    for place in range(0, len(starts), _PIECES_A_BATCH):
        these = starts[place : place + _PIECES_A_BATCH]
        columns = [
            [number] * len(these),
            range(place, place + len(these)),
            [whole[start : start + _PIECE] for start in these],
        ]
        arrays = [pa.array(cells, field.type) for cells, field in zip(columns, _ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _wholes(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """What pieces make that come in order, and by which number each goes."""
    rows = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch), strict=True))
    for number, pieces in groupby(rows, key=lambda row: row[0]):
        found: list[bytes] = []
        for _, place, piece in pieces:
            if place != len(found):
                raise not_once(number, "counted twice")
            found.append(piece)
        yield number, pickle.loads(b"".join(found))


# -- Sessions, and what goes wrong in them.


def _started(master: str) -> Any:
    """A session: the one of this process, or a new one, whose page of tasks nobody needs."""
    sessions = library("pyspark.sql", extra="spark", what="A Spark cluster").SparkSession
    if not java_found():
        raise DataError("no-java")
    own = sessions.builder.appName("eigenveil").config("spark.ui.enabled", "false")
    try:
        return own.master(master).getOrCreate()
    except Exception as error:
        java = getattr(error, "java_exception", None)
        said = first_line(java or error, most=300, empty="no message")
        raise DataError("no-spark", master=master, reason=said) from None


def java_found() -> bool:
    """Whether Spark can start Java: that of JAVA_HOME, or of PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java" if home is None else str(Path(home) / "bin" / "java")) is not None


@contextmanager
def explained() -> Iterator[None]:
    """What Spark says of a query may quote cells: only what kind of error it is goes on."""
    try:
        yield
    except EigenveilError:
        raise
    except Exception as error:
        text = str(error)
        if isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError":
            raise DataError("cluster-lost") from error
        if "ExecutorLostFailure" in text:
            raise workers_died() from error
        what = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        if "Traceback (most recent call last)" in text:  # of Python, on an executor
            what = next(iter(_ERROR.findall(text)[-1:]), what)
        hint = "Try the DataFrame's own count(); the log of the executors says more."
        if "No module named 'eigenveil" in text:
            hint = "Install the same eigenveil for the Python of the driver and of all executors."
        raise DataError("cluster-failed", what=what, way_out=hint) from error
