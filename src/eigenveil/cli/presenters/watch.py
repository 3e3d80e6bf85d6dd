"""A subspace that is tracked block by block, and how far it has moved."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.status import Status
from rich.table import Table

from eigenveil.app.presenters.base import name_of
from eigenveil.cli.presenters.screen import Screen, bold, notify, say
from eigenveil.errors import short_name
from eigenveil.io.stopping import Stop
from eigenveil.linalg.subspace import subspace_distance
from eigenveil.moments.rows import Block


@dataclass(frozen=True)
class Moment:
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
        """What is left of the horizon, if there is one."""
        return None if self._horizon is None else self._horizon - self.blocks

    @property
    def known_rows(self) -> int:
        """Rows that may be published with the result: released, where the number is not public."""
        return (
            max(0, round(self.model.n_samples_)) if self._at_end and self.publishes else self.rows
        )

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def take(self, block: Block, names: Sequence[str] | None) -> None:
        """Learn from a block of rows, shape (b, D), of columns with these names."""
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

    def moment(self) -> Moment:
        """Where the subspace is, and how far it moved since the last call."""
        now = time.monotonic()
        rate = (self.rows - self._reported_rows) / max(now - self._reported, 1e-9)
        self._reported, self._reported_rows = now, self.rows
        basis = self._basis() if self.publishes and self.rows else None
        before, self._last = self._last, basis
        return Moment(
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
        return None if found is None else np.array(found.T)

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


# -- What ``eigenveil watch`` prints, to people and to programs.


ENDS = {
    "rows": "there are no more rows",
    "limit": "the limit of rows is reached",
    "horizon": "the horizon is used up, nothing more of this stream can be published",
    "stopped": "stopped",
    "error": "an error in the rows",
}
NOT_PRIVATE = "This output is not private: show it only to those who may see the rows."


class Report:
    """Where a watch is shown: lines, JSON, a live line on a terminal, or nothing."""

    def __init__(self, stop: Stop, *, json: bool, quiet: bool) -> None:
        self._stop, self._json, self._quiet = stop, json, quiet
        self._status: Status | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """On a terminal, one line that changes while this lasts."""
        if self._json or self._quiet or not sys.stdout.isatty():
            yield
            return
        with Screen().status("waiting for rows") as self._status:
            yield
        self._status = None

    def moment(self, moment: Moment, *, published: bool) -> None:
        """Tell where the subspace is; before anything is published, that rows are read."""
        if self._quiet:
            return
        if self._status is not None:
            self._status.update(moment_text(moment))
        elif not published:  # not of the result: for the owner of the rows, as progress is
            if not self._json:
                notify(moment_text(moment))
        elif self._json:
            self._print(json.dumps(asdict(moment)))
        else:
            self._print(moment_text(moment))

    def end(
        self, tracking: Tracking, names: Sequence[str] | None, why: str, written: Path | None
    ) -> None:
        """Tell how it ended; ``why`` is a key of ``ENDS``."""
        if self._quiet:
            return
        last = tracking.moment()
        guarantee = None if last.rank is None else getattr(tracking.model, "guarantee_", None)
        if self._json:
            reported = (
                {} if guarantee is None else guarantee.as_dict() | {"sentence": str(guarantee)}
            )
            summary = {
                "end": why,
                "rows": tracking.known_rows,
                "seconds": tracking.seconds,
                "rank": last.rank,
                "captured": last.captured,
                "drift_from_start": last.drift_from_start,
                "blocks_left": last.blocks_left,
                "guarantee": reported or None,
                "out": None if written is None else str(written),
            }
            self._print(json.dumps(summary))
            return
        out = Screen()
        out.print(_summary(tracking, last, why))
        if last.rank is not None:
            out.print(_components(tracking.model, names))
            private = guarantee is not None
            out.print(*((bold("guarantee:"), guarantee) if private else (NOT_PRIVATE,)))
        for caveat in guarantee.caveats if guarantee is not None and guarantee.certified else ():
            out.print(f"  note: {caveat}.")
        if written is not None:
            out.print(f"written to {written}")

    def _print(self, text: str) -> None:
        try:
            say(text, most=None)
        except BrokenPipeError:  # such as after "| head": as good as Ctrl-C
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._stop.requested = True


def moment_text(moment: Moment) -> str:
    """One line for people."""
    parts = [f"{moment.rows:>11,} rows {moment.rows_per_second:>9,.0f}/s"]
    if moment.rank is not None:
        parts.append(f"rank {moment.rank}")
        parts.append(f"captured {_percent(moment.captured)}")
        parts.append(f"drift {_sine(moment.drift)} (from start {_sine(moment.drift_from_start)})")
    if moment.blocks_left is not None:
        parts.append(f"{moment.blocks_left:,} blocks left")
    return "  ".join(parts)


def _summary(tracking: Tracking, last: Moment, why: str) -> Table:
    table = Table(title=f"ended: {ENDS[why]}", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    rows, seconds = tracking.known_rows, tracking.seconds
    table.add_row("rows", f"{rows:,}")
    table.add_row("time", f"{seconds:,.1f} s")
    table.add_row("rows per second", f"{rows / max(seconds, 1e-9):,.0f}")
    if last.rank is not None:
        table.add_row("rank", str(last.rank))
        table.add_row("captured", _percent(last.captured))
        table.add_row("drift from start", _sine(last.drift_from_start))
    if last.blocks_left is not None:
        table.add_row("blocks left of the horizon", f"{last.blocks_left:,}")
    return table


def _components(model: Any, names: Sequence[str] | None) -> Table:
    table = Table(title=f"{model.components_.shape[0]} components")
    table.add_column("component")
    table.add_column("captured", justify="right")
    table.add_column("largest loading")
    usable = getattr(model, "usable_", None)  # of a private stream
    for index, component in enumerate(model.components_):
        top = int(abs(component).argmax())
        shown = usable is None or usable[index]
        table.add_row(
            f"PC{index + 1}",
            _percent(float(model.explained_variance_ratio_[index])) if shown else "not usable",
            f"{short_name(name_of(names, top))} ({component[top]:+.2f})",
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _sine(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
