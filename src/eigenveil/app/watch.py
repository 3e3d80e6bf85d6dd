"""The leading directions of rows as they come, followed block by block, and how far they drift."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eigenveil.app.events import FitEvent, telling
from eigenveil.app.fit import Account
from eigenveil.app.parts import Part, TablePart, strongly
from eigenveil.app.presenters.base import name_of
from eigenveil.app.results import (
    check_free,
    check_place,
    guarantee_values,
    new_folder,
    write_result,
)
from eigenveil.app.rows import WantedColumns
from eigenveil.errors import DataError, OutputError, WrongOption, short_name
from eigenveil.io.formats.registry import writers
from eigenveil.io.stopping import Stop as Stop
from eigenveil.io.text_stream import StreamedRows
from eigenveil.io.write import write_columns
from eigenveil.linalg.subspace import subspace_distance
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil.moments.rows import Block

_MODEL = ".npz"
_COMPONENTS = 2
ENDS = {
    "rows": "there are no more rows",
    "limit": "the limit of rows is reached",
    "horizon": "the horizon is used up, nothing more of this stream can be published",
    "stopped": "stopped",
    "error": "an error in the rows",
}
NOT_PRIVATE = "This output is not private: show it only to those who may see the rows."


@dataclass(frozen=True)
class Watch:
    """Rows to be watched; ``values`` are of declared options: privately, where epsilon is one."""

    file: Path | None  # `None`: standard input
    values: Mapping[str, Any] = field(default_factory=dict)
    columns: WantedColumns = field(default_factory=WantedColumns)
    account: Account = field(default_factory=Account)
    block: int = 100  # Rows of one
    every: int = 1  # Blocks between two moments
    limit: int | None = None  # Of rows
    out: Path | None = None
    overwrite: bool = False

    @property
    def private(self) -> bool:
        return "epsilon" in self.values


@dataclass(frozen=True)
class TrackedSubspace:
    """Where a tracked subspace is."""

    rows: int  # Rows and blocks until now
    block: int
    rows_per_second: float  # Since the moment before
    rank: int | None  # Directions; `None` while none are published
    # Their share of the rows' energy, in [0, 1]; of a private stream that of the components that
    # stand above the noise, and `None` while none does
    captured: float | None
    # Sine of the largest angle to the subspace of the moment before, and of the first block
    drift: float | None
    drift_from_start: float | None
    blocks_left: int | None  # Blocks that a private stream's horizon still has room for


@dataclass(frozen=True)
class Unpublished:
    """Rows were read, of which nothing is published yet: for their owner only."""

    moment: TrackedSubspace


WatchEvent: TypeAlias = TrackedSubspace | Unpublished | FitEvent


@dataclass(frozen=True)
class Watched:
    """How it ended, and where the subspace was then; ``end`` is a key of ``ENDS``."""

    end: str
    model: Any
    names: Sequence[str] | None
    rows: int  # That may be published with the result
    seconds: float
    last: TrackedSubspace
    out: Path | None
    problem: DataError | None = None

    @property
    def guarantee(self) -> Any:
        """Of what was published, if anything was, and privately."""
        return None if self.last.rank is None else getattr(self.model, "guarantee_", None)

    def as_json(self) -> dict[str, Any]:
        return {
            "end": self.end,
            "rows": self.rows,
            "seconds": self.seconds,
            "rank": self.last.rank,
            "captured": self.last.captured,
            "drift_from_start": self.last.drift_from_start,
            "blocks_left": self.last.blocks_left,
            "guarantee": None if self.guarantee is None else guarantee_values(self.guarantee),
            "out": self.out,
        }

    def parts(self) -> Iterator[Part]:
        guarantee = self.guarantee
        yield self._summary()
        if self.last.rank is not None:
            yield component_table(self.model, self.names)
            yield NOT_PRIVATE if guarantee is None else strongly("guarantee:", guarantee)
        for caveat in guarantee.caveats if guarantee is not None and guarantee.certified else ():
            yield f"  note: {caveat}."
        if self.out is not None:
            yield f"written to {self.out}"

    def _summary(self) -> Part:
        last = self.last
        rows = [
            ("rows", f"{self.rows:,}"),
            ("time", f"{self.seconds:,.1f} s"),
            ("rows per second", f"{self.rows / max(self.seconds, 1e-9):,.0f}"),
        ]
        if last.rank is not None:
            rows.append(("rank", str(last.rank)))
            rows.append(("captured", percent(last.captured)))
            rows.append(("drift from start", sine(last.drift_from_start)))
        if last.blocks_left is not None:
            rows.append(("blocks left of the horizon", f"{last.blocks_left:,}"))
        title = f"ended: {ENDS[self.end]}"
        return TablePart(title, ("what", "value"), rows, right=("value",), headed=False)


def component_table(model: Any, names: Sequence[str] | None) -> Part:
    rows = []
    usable = getattr(model, "usable_", None)  # of a private stream
    for index, component in enumerate(model.components_):
        top = int(abs(component).argmax())
        shown = usable is None or usable[index]
        share = percent(float(model.explained_variance_ratio_[index])) if shown else "not usable"
        loading = f"{short_name(name_of(names, top))} ({component[top]:+.2f})"
        rows.append((f"PC{index + 1}", share, loading))
    headings = ("component", "captured", "largest loading")
    return TablePart(f"{len(rows)} components", headings, rows, right=("captured",))


def moment_text(moment: TrackedSubspace) -> str:
    parts = [f"{moment.rows:>11,} rows {moment.rows_per_second:>9,.0f}/s"]
    if moment.rank is not None:
        parts.append(f"rank {moment.rank}")
        parts.append(f"captured {percent(moment.captured)}")
        parts.append(f"drift {sine(moment.drift)} (from start {sine(moment.drift_from_start)})")
    if moment.blocks_left is not None:
        parts.append(f"{moment.blocks_left:,} blocks left")
    return "  ".join(parts)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def sine(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


# -- What is tracked.


class Tracking:
    """One estimator of a stream, and where its subspace was."""

    def __init__(self, model: Any, *, publishes: bool = True, horizon: int | None = None) -> None:
        self.model = model
        self.rows = self.blocks = 0
        self.publishes, self._horizon = publishes, horizon
        self._at_end = not publishes
        self._private = hasattr(model, "release")
        self._began = self._reported = time.monotonic()
        self._reported_rows = 0
        self._first: NDArray[np.float64] | None = None
        self._last: NDArray[np.float64] | None = None

    @property
    def blocks_left(self) -> int | None:
        return None if self._horizon is None else self._horizon - self.blocks

    @property
    def known_rows(self) -> int:
        """Rows that may be published with the result: released, where the number is not public."""
        released = self._at_end and self.publishes
        return max(0, round(self.model.n_samples_)) if released else self.rows

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def take(self, block: Block, names: Sequence[str] | None) -> None:
        rows = block.values
        if self._private:
            self.model._add(rows, names, origin=block.origin)
        else:
            self.model.partial_fit(rows)
        self.rows += rows.shape[0]
        self.blocks += 1
        if self.publishes and self._first is None:
            self._first = self._basis()

    def finish(self, names: Sequence[str] | None) -> None:
        """Release what is published at the end only, and name the features."""
        if not self.publishes:
            self.model.release()
            self.publishes = True
        if names is not None and not self._private:  # a private stream knew them from the start
            self.model.feature_names_in_ = np.array(names, dtype=object)

    def moment(self) -> TrackedSubspace:
        now = time.monotonic()
        rate = (self.rows - self._reported_rows) / max(now - self._reported, 1e-9)
        self._reported, self._reported_rows = now, self.rows
        basis = self._basis() if self.publishes and self.rows else None
        before, self._last = self._last, basis
        return TrackedSubspace(
            rows=self.rows,
            block=self.blocks,
            rows_per_second=rate,
            rank=None if basis is None else basis.shape[1],
            captured=None if basis is None else self._captured(),
            drift=_distance(before, basis),
            drift_from_start=_distance(self._first, basis),
            blocks_left=self.blocks_left,
        )

    def _basis(self) -> NDArray[np.float64] | None:
        # a private stream has none before the rows that it counts are as many as its components
        found = getattr(self.model, "components_", None)
        return None if found is None or not found.size else np.array(found.T)

    def _captured(self) -> float | None:
        ratio = self.model.explained_variance_ratio_
        if not self._private:
            return float(np.sum(ratio))
        usable = self.model.usable_  # of noise alone, all of the energy would seem captured
        return float(np.sum(ratio[usable])) if np.any(usable) else None


def _distance(
    first: NDArray[np.float64] | None, second: NDArray[np.float64] | None
) -> float | None:
    return None if first is None or second is None else subspace_distance(first, second)


def stream_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """A private stream's options, with what is chosen where nothing is said."""
    horizon, forgetting = values.get("horizon"), values.get("forgetting", 1.0)
    usual = "continual" if horizon is not None else "end" if forgetting == 1.0 else "blocks"
    publish, adjacency = values.get("publish") or usual, values.get("adjacency")
    if publish != "end" and adjacency == "add-remove":
        raise WrongOption("fixed-blocks")
    usual = "add-remove" if publish == "end" else "replace-one"
    return {**values, "publish": publish, "adjacency": adjacency or usual}


def _tracking(asked: Watch) -> Tracking:
    values = {"n_components": _COMPONENTS, **asked.values}
    if not asked.private:
        return Tracking(StreamingPCA(block_size=asked.block, **values))
    values = stream_values(values)
    model = PrivateStreamingPCA(**values)
    return Tracking(model, publishes=values["publish"] != "end", horizon=values.get("horizon"))


# -- Watching.


def watch(asked: Watch, tell: Callable[[WatchEvent], None], stop: Stop) -> Watched:
    place = None if asked.out is None else _Out(asked.out, asked)
    tracking = _tracking(asked)
    rows = StreamedRows(
        asked.file,
        columns=asked.columns.columns,
        exclude=asked.columns.exclude,
        dialect=asked.columns.read.dialect,
        stop=stop,
        strict=not asked.private and asked.values.get("missing", "refuse") == "refuse",
    )
    with telling(tell), ExitStack() as stack:
        if asked.private:
            tracking.model.set_params(**asked.account.open(stack, tell))
            tracking.model._files = None if asked.file is None else [asked.file]
        problem = _learn(tracking, rows, asked, tell, stop)
        names = rows.names
        if not tracking.publishes and not tracking.blocks and names is not None:
            # no rows: what is released does not say so
            tracking.take(Block(np.empty((0, len(names)))), names)
        if not tracking.blocks and not stop.requested:
            raise DataError("no-rows", path=rows.path)
        end = _end(tracking, asked, stop, problem)
        if tracking.blocks:
            tracking.finish(names)
            if place is not None:
                place.write(tracking.model, names)
        return Watched(
            end,
            tracking.model,
            names,
            tracking.known_rows,
            tracking.seconds,
            tracking.moment(),
            asked.out if tracking.blocks else None,
            problem,
        )


def _learn(
    tracking: Tracking,
    rows: StreamedRows,
    asked: Watch,
    tell: Callable[[WatchEvent], None],
    stop: Stop,
) -> DataError | None:
    """Take all blocks; returns what ended them early, after which what was learnt is as good."""
    try:
        with contextlib.closing(rows.blocks(asked.block, limit=asked.limit)) as blocks:
            for block in blocks:
                tracking.take(block, rows.names)
                if tracking.blocks % asked.every == 0:
                    moment = tracking.moment()
                    tell(moment if tracking.publishes else Unpublished(moment))
                if tracking.blocks_left == 0 or stop.requested:
                    break
    except DataError as error:
        # a release at the end would cost what it costs
        if not tracking.blocks or not tracking.publishes:
            raise
        return error
    return None


def _end(tracking: Tracking, asked: Watch, stop: Stop, problem: DataError | None) -> str:
    if problem is not None:
        return "error"
    if tracking.blocks_left == 0:
        return "horizon"
    if tracking.rows == asked.limit:
        return "limit"
    return "stopped" if stop.requested else "rows"


class _Out:
    """A file or folder that can be written; checked before any row is read."""

    def __init__(self, path: Path, asked: Watch) -> None:
        self.path = path
        kind = path.suffix.lower()
        self._folder = asked.private and not kind
        if self._folder:
            check_free(path, overwrite=asked.overwrite)
            return
        tables = [ending for ending, each in writers().items() if not each.labels]
        known = (*tables, _MODEL) if asked.private else tuple(tables)
        if kind not in known:
            raise OutputError("unknown-output-format", path=path, endings=", ".join(known))
        check_place(path, overwrite=asked.overwrite)

    def write(self, model: Any, names: Sequence[str] | None) -> None:
        """Write the whole result, the model, or a line of loadings a feature."""
        if self._folder:
            with new_folder(self.path) as folder:
                write_result(model, folder, figures=True)
        elif self.path.suffix.lower() == _MODEL:
            model.save(self.path)
        else:
            columns: list[tuple[str, Any]] = [
                (f"PC{index + 1}", component) for index, component in enumerate(model.components_)
            ]
            if names is not None and self.path.suffix.lower() != ".npy":
                columns.insert(0, ("feature", np.array(names, dtype=object)))
            write_columns(self.path, columns)
