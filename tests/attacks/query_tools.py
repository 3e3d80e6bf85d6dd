"""Everything that a site accepts, drawn; and the rows that such a query must not be moved by."""

import itertools
import math
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
from pydantic import ValidationError

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, Message
from eigenveil.federation.protocol.sums import wanted_sum
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.models.driver import drive, rounds_of, rows_for
from eigenveil.moments.describe import Description, describe, rebuild
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import Block, RowWeights
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.tables.units import LabelledRows

D = 4
_USUAL = {
    "name": "t", "features": D, "components": 2, "epsilon": 35.0, "delta": 1e-5,
    "protocol": "cape", "sites": [{"name": f"s{number}"} for number in range(3)],
}  # fmt: skip
_RANGES = {"ranges": (*[(-9.0, 9.0)] * 3, (0.0, 1e-9)), "scale": "private"}
_MIXTURE, _TOPICS = {"task": "gaussian-mixture"}, {"task": "topic-model"}
_SOURCES = {"task": "ica", "precision": "single"}
_LEVELS = {"name": "g", "kind": "category", "levels": ["a", "b"], "role": "target"}
_COLUMNS = [*({"name": name, "kind": "number"} for name in "xy"), _LEVELS]
_GROUPS = {
    "task": "covariance", "components": None, "features": None, "precision": "single",
    "columns": ["x", "y", "g=a", "g=b"],
    "table_schema": {"format": "eigenveil-schema-1", "columns": _COLUMNS},
}  # fmt: skip
_PERSONS = {"format": "eigenveil-schema-1", "columns": [*_COLUMNS, {"name": "p", "role": "unit"}]}
# All that decides which queries there are, and what a site checks of them.
STUDIES = {
    "plain": {},
    "single": {"precision": "single"},
    "single, scales": {"precision": "single", "scale": "private"},
    "single, ranges": {"precision": "single", **_RANGES},
    "scales": {"scale": "private"},
    "ranges": {**_RANGES, "ranges": (*[(-9.0, 9.0)] * 3, (0.0, 1e-200))},
    "public scales": {"scale": (1.0, 0.5, 0.0, 1e-90), "center": False},
    "replaced": {"scale": "private", "adjacency": "replace-one"},
    "pure": {"delta": 0.0},
    "bounded": {"row_norm": "auto"},
    "centred": {"center": (1.0, 0.0, -1e90, 3.0), "row_norm": 2.0},
    "persons": {"unit": "p", "max_rows_per_unit": 2, "precision": "single"},
    "missing": {"missing": "zero", "precision": "single", "scale": "private"},
    "pairs": {"missing": "pairs"},
    "covariates": {"covariates": (0, 2), "precision": "single"},
    "covariates, scales": {"covariates": (1,), "scale": "private"},
    "scores by group": {"scores": True, "scores_by": (0, 2), "scale": "private"},
    "within sites": {"within_sites": True},
    "covariance within sites": {
        "within_sites": True, "task": "covariance", "components": None, "scale": "private",
    },
    "persons within sites": {"within_sites": True, "unit": "p", "adjacency": "replace-one"},
    "groups": {**_GROUPS},
    "groups of persons": {
        **_GROUPS, "table_schema": _PERSONS, "unit": "p", "adjacency": "replace-one",
    },
    "sources": {**_SOURCES},
    "sources of persons": {**_SOURCES, "unit": "p", "max_rows_per_unit": 2},
    "sketch": {"protocol": "sketch", "sketch_size": 3, "precision": "single"},
    "factors": {"protocol": "dpdispca"},
    "full": {"protocol": "full", "adjacency": "replace-one"},
    "covariance": {"task": "covariance", "missing": "independent", "components": None},
    "spheres": {**_MIXTURE},
    "spheres, sketch": {"protocol": "sketch", "sketch_size": 3, "precision": "single", **_MIXTURE},
    "tied": {"covariance_type": "tied", **_MIXTURE},
    "diagonal persons": {"covariance_type": "diag", "unit": "p", **_MIXTURE},
    "ellipses": {"covariance_type": "full", "adjacency": "replace-one", **_MIXTURE},
    "topics": {"alpha0": 1.0, **_TOPICS},
    "topics, pure": {"delta": 0.0, **_TOPICS},
    "topics, sketch": {
        "protocol": "sketch", "sketch_size": 3, "adjacency": "replace-one", **_TOPICS
    },
}  # fmt: skip


@dataclass(frozen=True)
class Honest:
    """A query that an honest aggregator makes, in its round of a study."""

    study: str
    terms: object
    planned: object
    place: int
    round_number: int
    fields: dict
    arrays: dict


def own(accumulator, terms):
    """A sum as the first site adds it up, where each has a centre of its own."""
    return rebuild(*describe(accumulator, D), place=terms.place("s0"))


@cache
def honest(name):
    """All queries of a study, as rows of two groups and no noise to speak of make them."""
    study = make_study(**(_USUAL | STUDIES[name]))
    terms = settle(study)
    source, rng = SeededSource(np.random.default_rng(0)), np.random.default_rng(1)
    if study.task == "topic-model":
        shares = np.array([[0.7, 0.3, 0.0, 0.0], [0.0, 0.1, 0.3, 0.6]])
        rows = np.array([rng.multinomial(30, shares[i % 2]) for i in range(1200)]).astype(float)
    else:
        rows = rng.standard_normal((1200, D)) * (2.0, 1.0, 0.5, 0.2) + 3.0 * (
            np.arange(1200)[:, None] % 2 * np.array([1.0, -1.0, 0.0, 0.5])
        )
    table = ArrayRows(rows)
    if terms.plan.unit is not None:
        table = LabelledRows(table, np.arange(1200) // 2)
    table, found, numbers = rows_for(terms.plan, table), [], itertools.count(1)

    def answer(queries):
        number = next(numbers)
        sums = {query.name: own(query.accumulator.empty(), terms) for query in queries}
        accumulate(table, list(sums.values()), most_workers=1)
        for place, query in enumerate(queries):
            description, arrays = describe(query.accumulator.empty(), D)
            planned = terms.plan.planned(query.name)
            found.append(
                Honest(name, terms, planned, place, number, description.model_dump(), arrays)
            )
        return {query.name: sums[query.name].release(query.record, source) for query in queries}

    drive(rounds_of(terms.plan, **study.public_columns, sharing=terms.sharings), answer)
    return found


def accepted(query, fields, arrays):
    """The sum, its record and all arrays, where a site takes these numbers; else ``None``.

    The noise is what the plan makes of the sum: whoever lies about anything else can work it out.
    """
    terms, planned = query.terms, query.planned
    try:
        description = Description.model_validate(fields)
        arrays = {
            name: np.resize(arrays.get(name, 1.0), shape)
            for name, shape in description.shapes().items()
        }
        asked = rebuild(description, arrays, place=terms.place("s0"))
        record = calibrated_record(
            asked,
            name=planned.name,
            adjacency=terms.plan.adjacency,
            kind=terms.plan.noises[planned.step].name,
            budget=terms.plan.budgets[planned.step].scaled(planned.fraction),
            draws=planned.draws,
            sharing=terms.sharing(planned.step),
        )
        noise = record.noise
        body = payloads.QueryBody(
            name=planned.name, description=description, scale=noise.scale, grid=noise.grid
        )
        message = Message(
            f"round {query.round_number}", terms.hash, "00" * 12, AGGREGATOR, {},
            {f"{name} {query.place}": array for name, array in arrays.items()},
        )  # fmt: skip
        rows = SimpleNamespace(features=D)
        found = wanted_sum(
            terms, message, (query.place, body), planned, features=rows.features, weight=1.0,
            place=terms.place("s0"),
        )  # fmt: skip
    except (ProtocolError, PrivacyError, ValidationError, ValueError, KeyError):
        return None
    return found.accumulator, found.record, arrays


# What an aggregator that lies puts in the place of a number, beside those that rows have.
NUMBERS = (
    0.0, -0.0, 5e-324, 1e-320, 5.6e-309, 1e-300, 1e-151, 1e-150, 1e-100, 1e-45, 1e-39, 1e-30,
    2.0**-21, 2.0**-20, 1e-12, 0.1, 0.25, 0.5, 1.0, 1.0005, 1.01, 2.0, 6.0, 8.0, 1e6, 2.0**40, 1e20,
    1e25, 1e30, 1e31, 1e38, 8e37, 3.4e38, 1e39, 1e100, 1e150, 1e151, 1e250, 1e300, 4.4e307, 1.7e308,
    math.inf, math.nan, -1e-320, -1.0, -1e30, -1e150, -1.7e308,
)  # fmt: skip
_CHOICES = {
    "precision": ("single", "double"),
    "extra_bits": tuple(range(-17, 3)),
    "with_count": (False, True),
    "centers": (0, 1, 3, 4),
    "blocks": (0, 1, 3, 4),
    "weighted": (False, True),
    "nuclear": (False, True),
    "holes": (False, True),
    "limit": (None, *NUMBERS),
    "covariates": ((), (0,), (3, 1), (0, 1, 2), (0, 0), (9,)),
    "apart": ((), ((2, 3),), ((3,),), ((2,), (3,)), ((2, 2),), ((2, 9),), ((),)),
    "products": (False, True),
    "groups": ((), (0,), (0, 2), (2, 0), (0, 0), (9,)),
    "cells": (0, 1, 2, 4, 512, 513),
    "columns": (0, 1, 2, 3, D, 5),
    "kind": ("norm-histogram", "row-sum", "second-moment", "column-histogram", "em-sums"),
    "mixture": (
        None,
        *(
            {"components": count, "squares": squares, "form": form}
            for count in (1, 2, 3)
            for squares in ("none", "trace", "diag", "full", "tied")
            for form in ("spherical", "diag", "full")
        ),
    ),
}
_NUMBERS_OF = ("bound", "level", "count_weight", "clip", "variance")
_THERE = {"centered": "center", "offset": "offset", "scaled": "scale"}


def places(query):
    """What of a query can be changed: names of fields, and of arrays."""
    return [*_CHOICES, *_NUMBERS_OF, *_THERE, *(f"[{name}]" for name in query.arrays)]


def changed(fields, arrays, place, how, number, rng):
    """The same query with one thing of it changed: an array's entry, its column, or all of it."""
    fields, arrays = dict(fields), {name: np.array(array) for name, array in arrays.items()}
    if place in _CHOICES:
        choices = _CHOICES[place]
        fields[place] = choices[NUMBERS.index(number) % len(choices)]
    elif place in _NUMBERS_OF:
        fields[place] = number
    elif place in _THERE:
        fields[place] = not fields[place]
    else:
        array = arrays[place[1:-1]]
        with np.errstate(all="ignore"):
            match how:
                case 0:
                    array.flat[rng.integers(array.size)] = number
                case 1:
                    array[...] = number
                case 2:
                    array[..., rng.integers(array.shape[-1])] = number
                case 3:
                    array *= number
    return fields, arrays


# -- Persons who may be the worst of all: made of the query's own numbers.

EXTREMES = (
    0.0, -0.0, 1.0, -1.0, 5e-324, -1e-310, 1e-160, 1e-45, 1e-38, 1e-20, 1e20, -1e30, 3.4e38, 1e39,
    -8.6e37, 1e150, -1e200, 1e308, -1.7e308, 1.797e308, math.nan, math.inf, -math.inf,
)  # fmt: skip


def persons(query, asked, fields, arrays, rng, count=36):
    """Rows of so many persons, each of shape (rows, D): several where persons are units."""
    if query.terms.study.task == "topic-model":
        rows = _documents(rng, count)
    else:
        rows = _rows(asked, fields, arrays, rng, count)
    if query.terms.plan.unit is None:
        return list(rows[:, None])
    sizes = rng.integers(1, 5, len(rows))
    return [rows[rng.integers(len(rows), size=size)] for size in sizes]


def _rows(asked, fields, arrays, rng, count):
    zero = np.zeros(D)
    offset = np.nan_to_num(arrays.get("offset", zero)) + zero
    scale = np.nan_to_num(arrays.get("scale", np.ones(D))) + zero
    center = np.atleast_2d(np.nan_to_num(arrays.get("center", zero)))[0] + zero  # the site's own
    middle = offset + scale * center
    limit = fields.get("limit") or 1.0
    values = [middle, offset, scale, -scale, center, -center, middle + scale * limit]
    values += [np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), middle - scale * limit]
    values += [np.full(D, extreme) for extreme in EXTREMES]
    if "basis" in arrays:
        values += [middle + scale * size * column for column in np.nan_to_num(arrays["basis"].T)
                   for size in (1.0, -1e3)]  # fmt: skip
    pool = np.array(values)
    rows = [middle, np.full(D, 1e39), *(middle + step for step in 1e3 * np.eye(D))]
    if "means" in arrays:  # rows that are prepared to be a component's mean
        margin = asked.rule._margin(D, asked.rule.limits(Block(middle[None]), "none"))
        rows += [
            middle + mean * fields["bound"] / margin for mean in np.nan_to_num(arrays["means"])
        ]
    whole = rng.integers(len(pool), size=count)
    for number in range(count - len(rows)):
        kind = number % 3
        if kind == 0:  # all entries of one kind
            rows.append(pool[whole[number]])
        elif kind == 1:  # one entry beside a row that is nothing but middle
            row, place = middle.copy(), rng.integers(D)
            row[place] = pool[whole[number], place]
            rows.append(row)
        else:
            rows.append(pool[rng.integers(len(pool), size=D), np.arange(D)])
    found = np.array(rows)
    apart = fields.get("apart", ())
    if levels := [*fields.get("groups", ()), *(column for own in apart for column in own)]:
        some = rng.random(len(found)) < 0.5  # of one level, of none, or of all at once
        found[np.ix_(some, levels)] = rng.choice([0.0, 1.0], (int(some.sum()), len(levels)))
    return found


def _documents(rng, count):
    rows = np.zeros((count, D))
    for number, row in enumerate(rows):
        kind = number % 6
        if kind < 3:  # few words, one or two of them many times
            chosen = rng.choice(D, size=kind + 1, replace=False)
            row[chosen] = rng.choice([1, 2, 3, 1000, 2.0**20, 2.0**40], size=kind + 1)
        elif kind == 3:
            row[:] = rng.integers(0, 4, D)
        else:
            row[:] = rng.choice([0.0, 1.0, 3.0, *EXTREMES], D)
    return rows


def added(query, asked, rows_of_persons):
    """What persons add to a sum together, as Python's integers, in units of its grid."""
    total = asked.empty()
    rows = np.concatenate(rows_of_persons)
    weights = None
    if query.terms.plan.unit is not None:
        most = query.terms.plan.max_rows_per_unit
        sizes = [len(each) for each in rows_of_persons]
        weights = RowWeights(
            np.concatenate([np.full(size, max(most, size)) for size in sizes]),
            np.concatenate([np.arange(size) for size in sizes]),
        )
    with np.errstate(all="ignore"):
        total.update(Block(rows, weights=weights))
        total.flush()
    return total.integers().astype(object)


def moved(change, record, grid):
    """How far a change of the integers is, in the norm of the record's noise."""
    norm = record.mechanism.norm
    values = np.asarray(change, dtype=np.float64) * 2.0**grid
    if norm == "l1":
        return float(np.abs(values).sum())
    if norm in ("nuclear", "score"):
        return float(np.abs(np.linalg.eigvalsh(values)).sum())
    return float(np.sqrt((values * values).sum()))


LEEWAY = 1.0 + 1e-9


def worst(query, fields, asked, record, arrays, rng):
    """The largest shift over the recorded sensitivity that a search finds; infinite for a failure.

    Of one person more beside others, or in another's place. A row that stops the sum, or that
    another's presence changes, is a failure.
    """
    everybody = persons(query, asked, fields, arrays, rng)
    most = record.sensitivity() * LEEWAY
    try:
        alone = [added(query, asked, [each]) for each in everybody]
        together = added(query, asked, everybody)
    except (AssertionError, ArithmeticError, ValueError, IndexError):
        return math.inf
    if (sum(alone) != together).any():
        return math.inf
    replaced = record.adjacency == "replace-one"
    pairs = itertools.combinations(alone, 2) if replaced else ((each, 0) for each in alone)
    return max(moved(one - other, record, asked.grid) / most for one, other in pairs)
