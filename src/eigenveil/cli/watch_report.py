"""What ``eigenveil watch`` says, to people and to programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.status import Status
from rich.table import Table

from eigenveil.cli.family import name_of
from eigenveil.cli.screen import Screen, bold, say, tell
from eigenveil.cli.watch_tracking import Moment, Tracking
from eigenveil.errors import short_name
from eigenveil.io.stopping import Stop

ENDS = {
    "rows": "there are no more rows",
    "limit": "the limit of rows is reached",
    "horizon": "the horizon is used up, nothing more of this stream can be published",
    "stopped": "stopped",
    "error": "an error in the rows",
}
NOT_PRIVATE = "Nothing here is private: it is for those who may see the rows."


class Report:
    """Where a watch is told: lines, JSON, a live line on a terminal, or nothing.

    Parameters
    ----------
    stop : Stop
        Asked to end when nobody reads any more.
    """

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
                tell(moment_text(moment))
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
            told = {} if guarantee is None else guarantee.as_dict() | {"sentence": str(guarantee)}
            summary = {
                "end": why,
                "rows": tracking.known_rows,
                "seconds": tracking.seconds,
                "rank": last.rank,
                "captured": last.captured,
                "drift_from_start": last.drift_from_start,
                "blocks_left": last.blocks_left,
                "guarantee": told or None,
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
    for index, component in enumerate(model.components_):
        top = int(abs(component).argmax())
        table.add_row(
            f"PC{index + 1}",
            _percent(float(model.explained_variance_ratio_[index])),
            f"{short_name(name_of(names, top))} ({component[top]:+.2f})",
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _sine(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
