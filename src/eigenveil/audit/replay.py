"""A fit replayed on neighbouring tables, with what it released the first time.

The method is Re:cord-play's (Cebere, Erb, Desfontaines, Bellet & Fitzsimons 2026, arXiv 2602.17454;
its abstract and its package's description were read, its code was not used). A fit runs on a table,
and every sum that gets noise is recorded, before and after. It runs again on a neighbour, and
whatever gets noise has the recorded noisy values. All else must then be equal: which sums are
noised, in which order, of which shapes and with which records; every message that a site sends;
warnings, refusals and results. The sums before the noise may differ by the stated sensitivity.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import joblib
import numpy as np

from eigenveil.errors import (
    FileDialectWarning,
    InvalidRowsWarning,
    LedgerWarning,
    VariantsWarning,
)
from eigenveil.federated.running import InProcess
from eigenveil.federation.tree.messages import TreeCodec
from eigenveil.moments import accumulators, release, stream_sums
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.exact import Integers, scaled_sum
from eigenveil.moments.release import Release, noise_integers, release_vectors
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import ReleaseRecord

# Told to the owner of the rows alone (errors.py), so that they may depend on them.
OF_THE_OWNER = (InvalidRowsWarning, LedgerWarning, FileDialectWarning, VariantsWarning)
# Sums are exact; their distance is computed in doubles.
_ROUNDING = 1.0 + 1e-9
_SHOWN = 160


class Draw(NamedTuple):
    """One sum that got noise."""

    told: dict[str, str]  # All that is public of it, as texts
    record: ReleaseRecord
    kind: Accumulator
    exact: Integers  # Independent entries before the noise, in multiples of `unit`
    unit: float
    given: Any  # What was released

    def moved(self, other: Draw) -> float:
        """How far its values lie from another's, in the norm that its noise is made for."""
        both = (each.exact.astype(object) for each in (self, other))
        entries = np.asarray(np.subtract(*both), dtype=np.float64) * self.unit
        whole = from_coordinates(self.kind.layout, self.kind.shape, entries)
        match self.record.mechanism.norm:
            case "l1":
                return float(np.abs(entries).sum())
            case "l2":
                return float(np.linalg.norm(whole))
            case "nuclear":
                return float(np.abs(np.linalg.eigvalsh(whole)).sum())
            case "score":  # by so much the logarithm of a density can change, with its norming
                return float(np.ptp(np.append(np.linalg.eigvalsh(whole), 0.0)))


@dataclass
class Recording:
    """All that one run of a fit drew, sent, said and found."""

    script: Recording | None = None
    draws: list[Draw] = field(default_factory=list)
    # By name: hashes of values, and the values as they are shown
    seen: dict[str, tuple[str, str]] = field(default_factory=dict)
    _asked: tuple[Accumulator, ReleaseRecord] | None = None

    def of(self, fit: Callable[[Any], Any], table: Any) -> Recording:
        """Run a fit, whose result is thrown away: its noise and its keys can be repeated."""
        bytes_of = np.random.default_rng(0).bytes
        with ExitStack() as stack:
            for module in (release, stream_sums):
                stack.enter_context(mock.patch.object(module, "noise_integers", self._noise))
                stack.enter_context(mock.patch.object(module, "scaled_sum", self._added))
            stack.enter_context(mock.patch.object(accumulators, "release_vectors", self._chosen))
            stack.enter_context(mock.patch("os.urandom", bytes_of))
            stack.enter_context(mock.patch.object(InProcess, "call", self._called(InProcess.call)))
            stack.enter_context(mock.patch.object(TreeCodec, "write", self._in_a_tree()))
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            try:
                shown = _shown(fit(table))
            except Exception as error:  # a refusal is a result: it must not depend on rows
                shown = {"raised": (type(error).__name__, str(error))}
        for name, value in shown.items():
            self._see(name, value)
        public = [each for each in caught if not issubclass(each.category, OF_THE_OWNER)]
        self._see("warnings", [(each.category.__name__, str(each.message)) for each in public])
        return self

    def _noise(self, kind: Accumulator, record: ReleaseRecord, source: RandomSource) -> Integers:
        self._asked = kind, record
        return noise_integers(kind, record, source)

    def _added(self, exact: Integers, factor: int, bits: int, noise: Integers) -> Integers:
        assert self._asked is not None
        kind, record = self._asked
        assert record.noise.grid is not None
        before, unit = exact.copy(), factor * 2.0 ** (bits + record.noise.grid)
        given = scaled_sum(exact, factor, bits, noise)
        draw = Draw(_public(kind, record, str((factor, bits))), record, kind, before, unit, given)
        found: Integers = self._noted(draw).copy()
        return found

    def _chosen(self, total: Accumulator, record: ReleaseRecord, source: RandomSource) -> Release:
        drawn = release_vectors(total, record, source)
        entries = coordinates(total.layout, total.integers())
        told, unit = _public(total, record, ""), 2.0**total.grid
        found: Release = self._noted(Draw(told, record, total.empty(), entries, unit, drawn))
        return found

    def _noted(self, draw: Draw) -> Any:
        """What is released: in a replay what the script has, where the same was asked for."""
        place = len(self.draws)
        if self.script is not None and place < len(self.script.draws):
            known = self.script.draws[place]
            draw = draw._replace(given=known.given) if known.told == draw.told else draw
        self.draws.append(draw)
        return draw.given

    def _called(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(transport: InProcess, method: str, payloads: Any, timeout: float) -> Any:
            replies, failures = call(transport, method, payloads, timeout)
            for name, reply in replies.items():
                self._see(f"message {len(self.seen)}: {method} of {name}", reply)
            for name, error in failures.items():
                self._see(f"failure {len(self.seen)}: {method} of {name}", str(error))
            return replies, failures

        return noted

    def _in_a_tree(self) -> Callable[..., Any]:
        """Its messages before they are signed, by keys that no run repeats."""
        write = TreeCodec.write

        def noted(codec: TreeCodec[Any], message: Any, *given: Any) -> Any:
            self._see(f"message {len(self.seen)}: in a tree", message)
            return write(codec, message, *given)

        return noted

    def _see(self, name: str, value: Any) -> None:
        size = f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
        self.seen[name] = joblib.hash(value), size[:_SHOWN]


def _public(kind: Accumulator, record: ReleaseRecord, how: str) -> dict[str, str]:
    """What a reader of a release may know of it, and what it was made with."""
    made = {
        "sum": type(kind).__name__,
        "shape": str(kind.shape),
        "grid": str(kind.grid),
        "how": how,
    }
    return made | {"made with": joblib.hash(kind.merge_key()), "record": record.model_dump_json()}


def _shown(model: Any) -> dict[str, Any]:
    """What a fitted estimator shows: attributes that end in an underscore; or a dictionary."""
    if isinstance(model, dict):
        return dict(model)
    names = (name for name in dir(model) if name.endswith("_") and not name.startswith("_"))
    found = {}
    for name in names:
        try:
            found[name] = getattr(model, name)
        except (AttributeError, ValueError) as error:  # what this fit has not
            found[name] = type(error).__name__
    return found


# -- comparison


@dataclass(frozen=True)
class Replayed:
    """What replays of one fit showed."""

    findings: tuple[str, ...]  # Each names the neighbour and what depends on rows
    draws: int  # Sums that got noise, in one run
    refused: str  # What was raised on the table itself; empty where nothing
    moved: float  # The largest distance of a sum from its neighbour's, over its sensitivity
    # What differs by itself, such as what is sealed for another party: its size alone is compared
    unsteady: tuple[str, ...]


def replay(fit: Callable[[Any], Any], table: Any, neighbours: Mapping[str, Any]) -> Replayed:
    """Run ``fit(table)``, and replay it on each neighbour.

    Parameters
    ----------
    fit : callable
        Takes a table, and returns a fitted estimator or a dictionary of what is published. It must
        not change its table.
    table : object
        Whatever ``fit`` takes.
    neighbours : mapping of str to object
        By name: tables that differ in one row (unit), under the adjacency that ``fit`` states.

    Returns
    -------
    replayed : Replayed
        ``findings`` is empty where nothing was found. That is no proof: other tables may show more.
    """
    first = Recording().of(fit, table)
    control = Recording(first).of(fit, table)
    unsteady = {name for name, seen in first.seen.items() if control.seen.get(name) != seen}
    findings, most = [], 0.0
    for name, neighbour in neighbours.items():
        second = Recording(first).of(fit, neighbour)
        findings += [f"{name}: {each}" for each in _differences(first, second, unsteady)]
        for what, part in _moved(first, second):
            most = max(most, part)
            if part > _ROUNDING:
                findings.append(f"{name}: {what} moves by {part:.4g} of its stated sensitivity")
    refused = first.seen.get("raised", ("", ""))[1]
    return Replayed(tuple(findings), len(first.draws), refused, most, tuple(sorted(unsteady)))


def _differences(first: Recording, second: Recording, unsteady: set[str]) -> Iterator[str]:
    """What is public and not the same."""
    if len(first.draws) != len(second.draws):
        yield f"{len(first.draws)} sums get noise, and {len(second.draws)}"
    for place, (one, two) in enumerate(zip(first.draws, second.draws, strict=False), start=1):
        for key, told in one.told.items():
            if told != two.told[key]:
                yield f"sum {place} ({one.record.name}): {key} {told}, and {two.told[key]}"
    none = ("", "none")
    for name in first.seen | second.seen:
        before, after = first.seen.get(name, none), second.seen.get(name, none)
        if before[0] != after[0] and (name not in unsteady or before[1] != after[1]):
            yield f"{name}: {before[1]}, and {after[1]}"


def _moved(first: Recording, second: Recording) -> Iterator[tuple[str, float]]:
    """How far each sum moves, over its sensitivity; a stream's releases of one sum together."""
    together: dict[str, list[float]] = {}
    for one, two in zip(first.draws, second.draws, strict=False):
        if one.told != two.told:
            return
        # of a unit at several sites, each may move by its part
        part = one.moved(two) * one.record.sites / one.record.sensitivity()
        yield f"sum {one.record.name!r}", part
        if one.record.stream is not None or one.record.disjoint:
            together.setdefault(one.told["record"], []).append(part)
    for parts in together.values():
        yield "all of a stream's releases together", float(np.linalg.norm(parts))
