"""Blocks of a released second moment: in units in which its noise is alike everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigenveil.errors import DataError, listed, short_name
from eigenveil.models.intervals.bars import Array, Flags
from eigenveil.models.intervals.moment import SINGULAR, NoisyMoment
from eigenveil.models.pca.intervals import moment_of
from eigenveil.models.result import Result, reciprocal
from eigenveil.tables.schema import levels_among

# An inverse has intervals where its smallest eigenvalue is so many edges of the noise: in simulated
# blocks of 2 to 25 columns .902 to .968 of the coefficients and .916 to .961 of the partial
# correlations were held from 1.5 on.
_FAR = 2.0
# A variance is seen that exceeds so many deviations of its own noise.
_SURE = 4.0
Places = tuple[int, ...]


@dataclass(frozen=True)
class CovarianceFacts:
    """A covariance as it was released, before it was freed of noise.

    Attributes
    ----------
    facts : NoisyMoment or str
        The released matrix and its noise; or why it is not kept. The published covariance stands in
        for it then, and nothing has intervals.
    matrix : array of shape (D, D)
        In prepared units: times ``unit`` on both sides, over the number of rows, it is a
        covariance.
    unit : array of shape (D,)
        0 of columns that were left out.
    """

    result: Result
    facts: NoisyMoment | str
    matrix: Array
    unit: Array

    @classmethod
    def of(cls, result: Result) -> CovarianceFacts:
        """
        Raises
        ------
        DataError
            ``derive-of-nothing`` where the fit ended before a covariance was released.
        """
        factors: Any = result.factors
        if not factors.row_bound > 0 or not factors.rows > 0:
            raise DataError("derive-of-nothing")
        unit = factors.row_bound * factors.scale
        facts = moment_of(result)
        if not isinstance(facts, str):
            return cls(result, facts, facts.matrix, unit)
        inverse = reciprocal(unit)
        matrix = factors.covariance * np.multiply.outer(inverse, inverse) * factors.rows
        return cls(result, facts, matrix, unit)

    @property
    def names(self) -> tuple[str, ...]:
        return self.result.labels

    @cached_property
    def targets(self) -> dict[str, Places]:
        """The schema's targets: by name of the table's column, the places that it became."""
        schema = self.result.schema
        return {
            column.name: tuple(self.names.index(name) for name in column.encoded_names)
            for column in (() if schema is None else schema.targets)
        }

    @property
    def mean(self) -> Array:
        return np.asarray(self.result.factors.mean)

    @property
    def rows(self) -> float:
        return float(self.result.factors.rows)

    def across(self, groups: Places, inputs: Places) -> Array | None:
        """Mean of rows about the centre in each group, in prepared units; of levels apart alone.

        From the moment itself, which knows how many rows and what sum of them each level has.
        """
        apart = self.result.plan.apart
        if apart is None or not set(groups) <= set(apart.columns) or isinstance(self.facts, str):
            return None
        left = self.facts.left
        whole = self.matrix if left is None else self.matrix + left.outer()
        counts = np.maximum(np.diag(whole)[list(groups)], np.finfo(float).tiny)
        return np.asarray(whole[np.ix_(groups, inputs)] / counts[:, None] * apart.length)

    def edge(self, size: int) -> float:
        """Largest eigenvalue that noise alone shows in a block of so many columns."""
        if isinstance(self.facts, str):
            factors = self.result.factors
            return float(factors.noise_floor * factors.rows / factors.row_bound**2)
        return self.facts.edge * math.sqrt(size / self.facts.size)

    def block(self, places: Places) -> Array:
        """Of these columns alone, made positive semidefinite."""
        values, vectors = np.linalg.eigh(self.matrix[np.ix_(places, places)])
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def invertible(self, places: Places) -> bool:
        """Whether the inverse of these columns' block is far from what noise makes of it."""
        block = self.matrix[np.ix_(places, places)]
        return bool(np.linalg.eigvalsh(block)[0] > _FAR * self.edge(len(places)))

    def no_intervals(self, places: Places) -> str:
        """Why what rests on the inverse of these columns' block has no intervals, or nothing."""
        if isinstance(self.facts, str):
            return self.facts
        return "" if self.invertible(places) else SINGULAR

    @cached_property
    def hidden(self) -> Flags:
        """Columns whose variance is within four standard errors of zero, or that were left out."""
        if isinstance(self.facts, str):
            return np.asarray(self.result.factors.hidden)
        least = _SURE * np.sqrt(np.diag(self.facts.of_entries))
        return np.asarray((np.diag(self.matrix) <= least) | (self.unit == 0))

    def places(self, option: str, given: Any, *, but: Places = (), seen: bool = False) -> Places:
        """Columns by name or place, in the order given; all others but targets where nothing is.

        The name of a category stands for the columns of its levels, but as a ``target``.

        Columns that the fit left out are refused; ``seen``: those, too, whose variance noise hides,
        which nothing may be divided by.

        Raises
        ------
        DataError
            ``derive-no-column``, ``derive-column-twice``, ``derive-hidden``.
        """
        refused = self.hidden if seen else self.unit == 0
        if given is None:
            left = {*but, *(place for own in self.targets.values() for place in own)}
            found = tuple(
                place
                for place in range(len(self.names))
                if place not in left and not refused[place]
            )
            if not found:
                raise DataError("derive-no-columns", option=option)
            return found
        wanted = [given] if isinstance(given, str | int | np.integer) else list(given)
        if not wanted:
            raise DataError("derive-no-columns", option=option)
        found = tuple(place for each in wanted for place in self._places(option, each))
        twice = [place for place in found if place in but or found.count(place) > 1]
        if twice:
            raise DataError("derive-column-twice", option=option, column=self.names[twice[0]])
        hidden = [self.names[place] for place in found if refused[place]]
        if hidden:
            raise DataError("derive-hidden", option=option, columns=_listed(hidden))
        return found

    def _places(self, option: str, wanted: object) -> Places:
        names, count = self.names, len(self.names)
        if isinstance(wanted, str) and wanted in names:
            return (names.index(wanted),)
        levels = levels_among(wanted, names)
        if isinstance(wanted, str) and levels and option != "target":
            return levels
        number = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
        if number and 0 <= (place := int(wanted)) < count:  # type: ignore[call-overload]
            return (int(place),)
        raise DataError("derive-no-column", option=option, column=wanted, known=_listed(names))


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = [repr(short_name(name)) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return listed(shown)
