"""Every option of every task, declared once: names, values, defaults, help.

Scikit-learn's constraints, the checks of plans and studies, the fields of a study file, and the
command line's options and their help all follow from :data:`OPTIONS`. To add a parameter, add a
line here, the argument of the constructors that take it, and its use.

This module is read for ``eigenveil --help``, so it imports no numerical library.
"""

from __future__ import annotations

import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from types import MappingProxyType
from typing import Any, Literal

from eigenveil.checks import LARGEST, MOST_WHOLE, SMALLEST, is_number
from eigenveil.errors import EigenveilError

Path = Literal["table", "sites", "stream", "tracking"]
"""Where rows come from: one table, several sites, blocks of a private stream, or of one tracked."""

MOST_EPSILON = 1e15
LEAST_FRACTION = 1e-6
"""Of a budget split: fractions are from this to one over it, so that none is next to nothing."""
# Each is a release of its own; long before so many, none shows anything above its noise.
MOST_POWER_ROUNDS = 1000
MOST_ROWS_OF_UNIT = 1 << 24
MOST_COMPONENTS = 32
"""Where their number follows from what is released."""
DEFAULT_SPECTRUM = "power:1.0"
"""What is expected of rows where nothing is said."""


# -- what values there are


class Domain(ABC):
    """A set of values."""

    text: str  # After "must be"
    kind: str  # As a docstring has it

    @abstractmethod
    def has(self, value: object) -> bool:
        """Whether a value is one of them."""

    def schema(self) -> dict[str, Any]:
        """The values as JSON schema."""
        return {}

    def plain(self, value: Any) -> Any:
        """A value as a study file has it."""
        return value


@dataclass(frozen=True)
class Whole(Domain):
    """Whole numbers from ``least`` to ``most``; no truth values."""

    least: int = 1
    most: int = MOST_WHOLE
    kind = "int"

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"an int in the range [{self.least}, {self.most}]"

    def has(self, value: object) -> bool:
        return (
            isinstance(value, Integral)
            and not isinstance(value, bool)
            and self.least <= int(value) <= self.most
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def plain(self, value: Any) -> Any:
        return int(value)


@dataclass(frozen=True)
class Number(Domain):
    """Finite numbers; ``open_low`` and ``open_high`` leave a bound out, ``zero`` adds 0."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    zero: bool = False
    kind = "float"

    @property
    def text(self) -> str:  # type: ignore[override]
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        zero = "0 or " if self.zero else ""
        return f"{zero}a float in the range {left}{self.low:g}, {self.high:g}{right}"

    def has(self, value: object) -> bool:
        if not is_number(value):
            return False
        number: Any = value
        if self.zero and number == 0:
            return True
        above = number > self.low if self.open_low else number >= self.low
        return bool(above and (number < self.high if self.open_high else number <= self.high))

    def schema(self) -> dict[str, Any]:
        return {
            "type": "number",
            "exclusiveMinimum" if self.open_low else "minimum": 0 if self.zero else self.low,
            "exclusiveMaximum" if self.open_high else "maximum": self.high,
        }

    def plain(self, value: Any) -> Any:
        return float(value)


@dataclass(frozen=True)
class Choice(Domain):
    """Some texts."""

    names: tuple[str, ...]

    @property
    def text(self) -> str:  # type: ignore[override]
        among = ", ".join(repr(name) for name in self.names)
        return among if len(self.names) == 1 else f"a str among {{{among}}}"

    @property
    def kind(self) -> str:  # type: ignore[override]
        among = ", ".join(f'"{name}"' for name in self.names)
        return among if len(self.names) == 1 else f"{{{among}}}"

    def has(self, value: object) -> bool:
        return isinstance(value, str) and value in self.names

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


@dataclass(frozen=True)
class Text(Domain):
    """A text that can be shown on a terminal, such as a column's name."""

    most: int = 128
    text = "a str of 1 to 128 characters, all printable"
    kind = "str"

    def has(self, value: object) -> bool:
        return isinstance(value, str) and 0 < len(value) <= self.most and value.isprintable()

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.most}

    def plain(self, value: Any) -> Any:
        return str(value)


@dataclass(frozen=True)
class Name(Text):
    """What a data set is called."""

    most: int = 200
    text = "a str of 1 to 200 printable characters"


@dataclass(frozen=True)
class Flag(Domain):
    """True and False, or one of them; numpy's too."""

    only: bool | None = None

    @property
    def text(self) -> str:  # type: ignore[override]
        return "a bool" if self.only is None else str(self.only)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "bool" if self.only is None else str(self.only)

    def has(self, value: object) -> bool:
        # numpy's truth values are no bool, but equal one and are of their own type
        kind = isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
        return kind and (self.only is None or bool(value) is self.only)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def plain(self, value: Any) -> Any:
        return bool(value)


class Nothing(Domain):
    """None."""

    text, kind = "None", ""

    def has(self, value: object) -> bool:
        return value is None

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


class Vector(Domain):
    """An array of one number a feature; that it fits the rows is checked with them."""

    text, kind = "an array of one number a feature", "array of shape (n_features,)"

    def has(self, value: object) -> bool:
        if isinstance(value, list | tuple):  # ones of Python's must hold numbers
            return all(map(is_number, value))
        return _is_array(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "number"}}

    def plain(self, value: Any) -> Any:
        return tuple(float(number) for number in value)


class Ranges(Domain):
    """Two arrays of one number a feature; that they fit the rows is checked with them."""

    text = "two arrays, the smallest and the largest number of each feature"
    kind = "array of shape (2, n_features)"

    def has(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return len(value) == 2 and all(_VECTOR.has(each) for each in value)
        shape = getattr(value, "shape", ())
        return isinstance(shape, tuple) and len(shape) == 2 and shape[0] == 2

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": _VECTOR.schema(), "minItems": 2, "maxItems": 2}

    def plain(self, value: Any) -> Any:
        return tuple(_VECTOR.plain(each) for each in value)


class Columns(Domain):
    """Some columns: their numbers from 0, or their names; none twice."""

    text = "a list of columns' numbers from 0, or their names, each once"
    kind = "list of int or str"

    def has(self, value: object) -> bool:
        if not isinstance(value, list | tuple) or not value:
            return False
        named = all(_TEXT.has(each) for each in value)
        return (named or all(_PLACE.has(each) for each in value)) and len(set(value)) == len(value)

    def schema(self) -> dict[str, Any]:
        kinds = [{"type": "array", "items": each.schema()} for each in (_PLACE, _TEXT)]
        return {"anyOf": [kind | {"minItems": 1, "uniqueItems": True} for kind in kinds]}

    def plain(self, value: Any) -> Any:
        return tuple((_TEXT if isinstance(each, str) else _PLACE).plain(each) for each in value)


class Pair(Domain):
    """Two percentages, the first below the second."""

    text = "a pair (alpha, beta) of percentages, 0 <= alpha < beta <= 100"
    kind = "(alpha, beta)"

    def has(self, value: object) -> bool:
        if not _is_array(value):
            return False
        pair = tuple(value)  # type: ignore[arg-type, var-annotated]
        return len(pair) == 2 and all(map(is_number, pair)) and 0 <= pair[0] < pair[1] <= 100

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}

    def plain(self, value: Any) -> Any:
        return tuple(float(number) for number in value)


@dataclass(frozen=True)
class Shares(Domain):
    """Relative fractions of steps: a mapping of some of the steps to numbers, or to 0."""

    steps: tuple[str, ...]
    kind = "dict of step to float"

    @property
    def text(self) -> str:  # type: ignore[override]
        steps = ", ".join(repr(step) for step in self.steps)
        return (
            f"a dict of the steps {steps} and their fractions of the budget, each 0 or "
            f"from {LEAST_FRACTION:g} to {1 / LEAST_FRACTION:g}"
        )

    def has(self, value: object) -> bool:
        return isinstance(value, Mapping) and not self.wrong_part(value)

    def wrong_part(self, value: Mapping[object, object]) -> dict[object, object]:
        """What of a mapping is not allowed."""
        fraction = Number(LEAST_FRACTION, 1 / LEAST_FRACTION, zero=True)
        return {
            step: each
            for step, each in value.items()
            if not (isinstance(step, str) and step in self.steps and fraction.has(each))
        }

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {step: {"type": "number", "minimum": 0} for step in self.steps},
            "additionalProperties": False,
        }

    def plain(self, value: Any) -> Any:
        return {step: float(fraction) for step, fraction in value.items()}


class OfSites(Domain):
    """A mapping of sites' names to numbers above 0."""

    text = "a dict of sites and their smaller epsilon, each above 0"
    kind = "dict of site to float"

    def has(self, value: object) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and _EPSILON.has(each) for name, each in value.items()
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": _EPSILON.schema()}

    def plain(self, value: Any) -> Any:
        return {name: float(each) for name, each in value.items()}


class Generator(Domain):
    """A random generator of numpy's."""

    text, kind = "a numpy.random.Generator or RandomState", "Generator or RandomState"

    def has(self, value: object) -> bool:
        return _is_a(value, "numpy.random", "Generator", "RandomState")


class LedgerPlace(Domain):
    """Where a ledger is: a path or URL, or the ledger itself."""

    text = "a path or URL of a ledger, an eigenveil.Ledger"
    kind = "path, URL or eigenveil.Ledger"

    def has(self, value: object) -> bool:
        if isinstance(value, str | os.PathLike):
            return isinstance(os.fspath(value), str) and str(value) != ""
        return _is_a(value, "eigenveil.", "Ledger")

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


def _is_array(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping | Set)


def _is_a(value: object, module: str, *names: str) -> bool:
    """Checked by name, so that no numerical library and no database need be loaded."""
    kinds = type(value).__mro__
    return any(kind.__module__.startswith(module) and kind.__name__ in names for kind in kinds)


# -- the options


@dataclass(frozen=True)
class Option:
    """One option of some tasks."""

    name: str  # The constructor's parameter
    values: tuple[Domain, ...]  # A value is in one of them
    default: Any
    help: str  # One sentence, for the command line and the study file
    tasks: tuple[str, ...]  # The tasks that have it
    paths: tuple[Path, ...]  # How their rows may come
    unit: str = ""  # Of the number, where it has one
    examples: tuple[Any, ...] = ()  # For a study file
    # Whether it is a part of the guarantee: a value that cannot be is a PrivacyError then, and a
    # DataError otherwise
    privacy: bool = False
    local: bool = False  # Whether it is for whoever fits only: it is never written with a result
    more: str = ""  # What the estimators' docstrings say beside the help

    @property
    def text(self) -> str:
        """What a value must be."""
        parts = [domain.text for domain in self.values]
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"

    @property
    def documented(self) -> str:
        """Its paragraph in a docstring's section of parameters, as numpydoc has it."""
        kinds = [domain.kind for domain in self.values if domain.kind]
        kind = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        default = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        about = textwrap.fill(f"{self.help} {self.more}", 92, break_on_hyphens=False)
        return f"{self.name} : {kind}, default={default}\n{textwrap.indent(about, '    ')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it may be."""
        return tuple(
            name for domain in self.values if isinstance(domain, Choice) for name in domain.names
        )

    def has(self, value: object) -> bool:
        """Whether a value is allowed."""
        return any(domain.has(value) for domain in self.values)

    def schema(self) -> dict[str, Any]:
        """The values as JSON schema."""
        parts = [domain.schema() for domain in self.values]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def plain(self, value: object) -> Any:
        """An allowed value as a study file has it: no type of numpy's."""
        return next(domain for domain in self.values if domain.has(value)).plain(value)

    def check(self, value: object, *, owner: str = "") -> None:
        """Raise unless a value is allowed."""
        if not self.has(value):
            shares = [each for each in self.values if isinstance(each, Shares)]
            if shares and isinstance(value, Mapping):
                value = shares[0].wrong_part(value)
            # without an owner it is a field of a file, or an option of a command
            raise refused(
                self,
                "bad-parameter" if owner else "bad-option",
                owner=owner,
                wanted=self.text,
                given=_short(value),
            )


def refused(option: Option, code: str, /, *, owner: str = "", **facts: Any) -> EigenveilError:
    """The error of an option that cannot be what it is, of its kind, for scikit-learn too."""
    # scikit-learn takes a moment to load, and only its class of error is wanted here
    from eigenveil.models.constraints import InvalidParameter, InvalidPrivacyParameter

    facts["option"] = f"The {option.name!r} parameter of {owner}" if owner else option.name
    facts["help"] = f"{option.name}: {option.help}"
    return (InvalidPrivacyParameter if option.privacy else InvalidParameter)(code, **facts)


# Of several sites, what a study has in fields of its own, or not at all.
_LEFT_OUT = ("n_components", "site_epsilon", "random_state")
OF_SKETCH = "sketch_size"
"""The option that gives the number of columns of a sketch, for those who only pass it on."""
PCA, MIXTURE, TOPICS, COVARIANCE = "pca", "gaussian-mixture", "topic-model", "covariance"
_ALL = (PCA, MIXTURE, TOPICS, COVARIANCE)
_IN_SPACE, _TENSORS = (PCA, MIXTURE, COVARIANCE), (MIXTURE, TOPICS)
_FITS: tuple[Path, ...] = ("table", "sites")
_PRIVATE: tuple[Path, ...] = ("table", "sites", "stream")
_ONE: tuple[Path, ...] = ("table", "stream")
_SITES: tuple[Path, ...] = ("sites",)

_EPSILON = Number(0.0, MOST_EPSILON, open_low=True)
_DELTA = Number(0.0, 1.0, open_high=True)
_SHARE = Number(0.0, 1.0, open_low=True, open_high=True)
_BOUND = Number(SMALLEST, LARGEST)
_NONE, _VECTOR = Nothing(), Vector()
_PLACE, _TEXT = Whole(0), Text()

OPTIONS: tuple[Option, ...] = (
    Option(
        "n_components", (Whole(), _SHARE, Choice(("auto",))), 2,
        "Number of components, from 1 to the number of columns; or, as 0.95 does, the share of the "
        "variance that the fewest shall explain; or 'auto': as many as stand above the noise. Of "
        "these there are 32 at most, and none is below the noise.",
        (PCA,), _PRIVATE,
        more="Either of these is chosen from what was released, at no cost; not with mechanisms "
        "'bingham' and 'power', which release so many and no more.",
    ),
    Option(
        "n_components", (Whole(),), 2,
        "Number of components, from 1 to the number of columns.",
        (PCA,), ("tracking",),
    ),
    Option(
        "n_components", (Whole(), Choice(("auto",))), "auto",
        "Number of components (means, topics), or 'auto': as many as stand above the noise, at "
        "most 32.",
        _TENSORS, _FITS,
    ),
    Option(
        "epsilon", (_EPSILON,), 1.0,
        "Privacy target: a number above 0. Smaller is more private; 0.1 to 4 are usual. Beyond 40 "
        "the noise gets no smaller: the guarantee is that of 40.",
        _ALL, _PRIVATE, privacy=True,
        more="Of several sites it holds against the aggregator together with ``collusion`` sites; "
        "of a stream, for all of it.",
    ),
    Option(
        "delta", (_DELTA,), 1e-6,
        "Privacy target: a number in [0, 1), well below one over the number of rows. 0 means "
        "pure epsilon.",
        _ALL, _PRIVATE, privacy=True,
    ),
    Option(
        "adjacency", (Choice(("add-remove", "replace-one")),), "add-remove",
        "Whose presence is protected: 'add-remove' (one row more or less) or 'replace-one' (one "
        "row changed, row counts public).",
        _ALL, _PRIVATE,
    ),
    Option(
        "unit", (Text(), _NONE), None,
        "The column that says whose each row is, such as patient_id: all rows of one person are "
        "then protected together. Left out, each row is protected by itself.",
        _ALL, _PRIVATE, examples=("patient_id",),
        more="``fit(X, groups=ids)`` gives the units beside the rows instead.",
    ),
    Option(
        "max_rows_per_unit", (Whole(1, MOST_ROWS_OF_UNIT),), 1,
        "Rows of a unit that count alike: each counts 1 over this, and those of a unit with more "
        "count as much as this many. With 1 every unit counts the same.",
        _ALL, _PRIVATE, unit="rows",
        more="Of a stream the first so many rows of a unit count, and those beyond are left out.",
    ),
    Option(
        "sites_per_unit", (Whole(),), 1,
        "Sites at which one unit may have rows. With 1, persons whose rows are at several sites "
        "are protected less; with more, the noise is so many times larger.",
        _ALL, _SITES, unit="sites",
    ),
    Option(
        "protocol", (Choice(("auto", "cape", "sketch", "dpdispca", "full", "local")),), "auto",
        "What the sites send: 'cape' (masked sums of D x D), 'sketch' (masked sums of D x R), "
        "'dpdispca' (each its own noisy D x R factor), 'full' (each its own noisy D x D), 'local' "
        "(the first site alone), or 'auto'.",
        (PCA,), _SITES,
        more="'cape' has the noise of one curator in all; the factor of 'dpdispca' is that of the "
        "leading part of the site's own noisy second moment (paper 000). 'auto' chooses, and "
        "``choice_`` gives the reason.",
    ),
    Option(
        "protocol", (Choice(("auto", "cape", "sketch", "local")),), "auto",
        "What the sites send: 'cape' (masked sums of D x D), 'sketch' (masked sums of D x R), "
        "'local' (the first site alone), or 'auto'.",
        _TENSORS, _SITES,
        more="'auto' is 'cape' up to 1000 features (4000 words) and without ``sketch_size``, else "
        "'sketch'; ``choice_`` gives the reason. The third moment takes K (K + 1) (K + 2) / "
        "6 numbers a site.",
    ),
    Option(
        "protocol", (Choice(("auto", "cape", "local")),), "auto",
        "What the sites send: 'cape' (hidden sums of D x D), 'local' (the first site alone), or "
        "'auto': 'cape'.",
        (COVARIANCE,), _SITES,
    ),
    Option(
        "masks", (Choice(("modular", "pairwise", "helper")),), "modular",
        "The masks of a site's sums: 'modular' (keys of pairs of sites, uniform; allows "
        "dropouts), 'pairwise' (the same, but Gaussian) or 'helper' (trusted).",
        _ALL, _SITES,
        more="With 'modular' the aggregator learns sums exactly and nothing else; the helper's "
        "are Gaussian and add up to zero (paper 001).",
    ),
    Option(
        "collusion", (Whole(0),), 0,
        "Sites that may tell the aggregator everything they know, and the others are still "
        "protected.",
        _ALL, _SITES,
    ),
    Option(
        "dropouts", (Whole(0),), 0,
        "Sites that may be missing from a round without ending the run.",
        _ALL, _SITES,
        more="Needs ``masks='modular'``.",
    ),
    Option(
        "neighbours", (Whole(), _NONE), None,
        "Other sites with which each site shares masks: a whole number; left out, all of up to 16 "
        "sites, else as many as are needed.",
        _ALL, _SITES, examples=(16,),
    ),
    Option(
        "site_epsilon", (OfSites(), _NONE), None,
        "Smaller targets of single sites; their rows then count with a smaller weight.",
        _ALL, _SITES, privacy=True,
    ),
    Option(
        "expected_rows", (Whole(), _NONE), None,
        "A public guess of the rows of all sites together, used only to predict and to choose a "
        "protocol.",
        _ALL, _SITES, examples=(100000,),
    ),
    Option(
        "mechanism",
        (
            Choice(
                (
                    *("auto", "adaptive", "gaussian", "wishart", "vector"),
                    *("bingham", "power", "sketch"),
                )
            ),
        ),
        "auto",
        "How the second moment is released: 'adaptive' (twice, with Gaussian noise), by its noise "
        "'gaussian', 'wishart', 'vector' or 'bingham', by less than all of it 'power' or 'sketch', "
        "or 'auto': 'wishart' if delta = 0, else 'adaptive'.",
        (PCA,), ("table",),
        more="'gaussian': isometric Gaussian noise. 'adaptive': two such releases that cost as "
        "much as one, the second of rows in which the directions that matter are more even; "
        "where that is predicted to lose, of the same rows, which is one release; 'auto' "
        "takes 'gaussian' with ``covariates``, a ``missing`` that corrects the moment, or as "
        "many components as features. 'wishart': the difference of two Wishart matrices, "
        "pure epsilon. 'vector': noise of density ``exp(-epsilon |E|_F)``, pure epsilon. "
        "'bingham': the exponential mechanism, sampled exactly, pure epsilon. 'power': the "
        "noisy power method. 'sketch': D x ``sketch_size`` numbers in place of D x D, and "
        "then the moment inside the range that they show (not of pure epsilon).",
    ),
    Option(
        "mechanism", (Choice(("auto", "adaptive", "gaussian")),), "auto",
        "How protocols 'cape' and 'local' release the second moment: 'adaptive' (twice, one round "
        "more), 'gaussian' (once), or 'auto': 'adaptive' unless delta = 0.",
        (PCA,), _SITES,
    ),
    Option(
        "mechanism", (Choice(("auto", "gaussian", "vector")),), "auto",
        "Noise of the third moment: 'gaussian', 'vector' (pure epsilon), or 'auto': 'vector' if "
        "delta = 0.",
        _TENSORS, _FITS,
        more="'gaussian' is isometric (AGN of paper 001), 'vector' has density ``exp(-epsilon "
        "|E|_F)`` (AVN); with ``delta=0`` all other releases are pure too. Of several sites "
        "vector noise, and so ``delta=0``, needs ``masks='modular'``.",
    ),
    Option(
        "mechanism", (Choice(("auto", "gaussian", "wishart", "vector")),), "auto",
        "Noise of the second moment: 'gaussian', 'wishart', 'vector', or 'auto': 'wishart' if "
        "delta = 0, else 'gaussian'.",
        (COVARIANCE,), ("table",),
    ),
    Option(
        "row_norm", (Choice(("unit", "auto", "max")), _BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), 'auto', a public bound on "
        "the norm of a centred row, or 'max' (reproductions only).",
        (PCA,), ("table",), unit="the data's",
        more="'auto' clips rows at a quantile chosen from the released norms, or divides them by "
        "their norm where that captures more; 'max' divides by the largest norm found, and "
        "is never certified.",
    ),
    Option(
        "row_norm", (Choice(("unit", "auto")), _BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), 'auto', or a public "
        "bound on "
        "the norm of a centred row.",
        (PCA,), _SITES, unit="the data's", examples=("unit",),
    ),
    Option(
        "row_norm", (Choice(("unit",)), _BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), or a public number that "
        "they "
        "are shortened to.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "row_bound", (_BOUND, _NONE), None,
        "A public bound on the norm of rows, in the data's units; skips releasing their norms.",
        _IN_SPACE, _FITS, unit="the data's", examples=(10.0,),
        more="Longer rows are shortened. In scales, where columns have some.",
    ),
    Option(
        "center", (Flag(), Vector()), True,
        "Whether the mean is subtracted: true (found privately), false, or a public centre, one "
        "number a column.",
        _IN_SPACE, _FITS, unit="the data's", examples=(True,),
        more="Of mixtures rows are taken about a point beside the mean; about none, the means "
        "must be linearly independent.",
    ),
    Option(
        "center", (Flag(only=False), Vector()), False,
        "Nothing, or a public centre, one number a column, is subtracted: a stream's one pass "
        "cannot subtract a mean that is not known yet.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "center", (Flag(),), False,
        "Whether the mean is tracked as well.",
        (PCA,), ("tracking",),
    ),
    Option(
        "scale", (Choice(("private",)), Vector(), _NONE), None,
        "What columns are divided by: 'private' (each by its deviation, found privately, so that "
        "the components are those of the correlation matrix), public scales, one number a column "
        "(not on the command line), or nothing.",
        (PCA, COVARIANCE), _FITS, unit="the data's", examples=("private",),
        more="Three rounds of noisy histograms of all columns find middles and scales, entries "
        "are clipped at 6 scales, and of PCA the second moment's own diagonal refines the "
        "scales for nothing. Public scales cost nothing; 0 leaves a column out. (A scaler of "
        "the rows before the fit would void the guarantee.)",
    ),
    Option(
        "ranges", (Ranges(), _NONE), None,
        "Public ranges of columns, their smallest and their largest numbers: entries are clipped "
        "to them, and scales cost nothing.",
        (PCA, COVARIANCE), _PRIVATE, unit="the data's", examples=(((0.0, 0.0), (120.0, 300.0)),),
        more="Columns have half their width as scale; with ``scale='private'`` the deviations are "
        "then found within them, and no histograms are needed. For few rows.",
    ),
    Option(
        "winsorize", (Number(1e-3, 0.25), _NONE), None,
        "With scale 'private', the share of a column's entries at either end that are moved to "
        "the column's quantile there, as the private histograms of the columns show it.",
        (PCA, COVARIANCE), _FITS, examples=(0.01,),
        more="A robust fit for columns with long tails, at no cost. Means, scales and components "
        "are those of the clipped columns; a category's columns are left as they are. Quantiles "
        "that are publicly known are ``ranges``.",
    ),
    Option(
        "scale", (Vector(), _NONE), None,
        "What columns are divided by: public scales, one number a column, or nothing: a stream's "
        "one pass cannot use scales that are not known yet.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "covariates", (Columns(), _NONE), None,
        "Columns, such as age or a site's indicator, whose linear effects on the others are "
        "released and taken off every row before the components are found: numbers from 0, or "
        "names.",
        (PCA,), _FITS, examples=(("age",),),
        more="Only where the whole second moment is released, and beside no ``missing`` and no "
        "``row_norm='max'``.",
    ),
    Option(
        "covariance_type", (Choice(("spherical", "diag", "full", "tied")),), "spherical",
        "What each component has: one variance ('spherical'), one for each column ('diag'), a "
        "matrix ('full'), or all the same matrix ('tied').",
        (MIXTURE,), _FITS,
        more="Spherical components are found by the third moment, others by sums about candidates "
        "that are drawn from the second moment (docs/tensors.md).",
    ),
    Option(
        "noise_variance", (Number(SMALLEST, LARGEST, zero=True), _NONE), None,
        "A public variance of every column within a component, in the data's units squared; left "
        "out, it is found from what is released.",
        (MIXTURE,), _FITS, unit="the data's, squared", examples=(1.0,),
        more="For spherical components only.",
    ),
    Option(
        "pair", (Choice(("auto", "full", "sketch")),), "auto",
        "How the second moment is released: 'full' (D x D), as a 'sketch', or 'auto': a sketch "
        "beyond 1000 columns (4000 words), or where its columns are given.",
        _TENSORS, ("table",),
    ),
    Option(
        "alpha0", (Number(1e-3, 1e3, zero=True), Choice(("auto",))), 0.0,
        "How mixed the topics of a document are: the sum of a Dirichlet law's concentrations; 0 "
        "for one topic a document, 1 for a few, more for many; 'auto': found from what is "
        "released.",
        (TOPICS,), _FITS, examples=(1.0,),
        more="Above 0, how frequent words are is released as well. 'auto' is the largest, of 16 "
        "from 0.03 to 50, that the released moments allow (1 where noise hides which; not "
        "with a sketch): measured at epsilon = 1, within a factor of 2 of the true one.",
    ),
    Option(
        "clip_documents", (Flag(),), True,
        "Whether what documents contribute is clipped at a released quantile of its norms: far "
        "less noise for documents of more than a few words.",
        (TOPICS,), _FITS,
        more="Without it nothing is released before the pairs.",
    ),
    Option(
        "budget_split",
        (
            Shares(
                ("missing", "columns", "scale", "center", "covariates", "moment", "variance")
            ),
            _NONE,
        ),
        None,
        "Fractions of the budget for the steps missing, columns, scale, center, covariates, moment "
        "and variance: those that the fit takes, and no others.",
        (PCA,), _FITS,
        examples=({"scale": 0.02, "center": 0.08, "moment": 0.88, "variance": 0.02},),
        privacy=True,
        more="By default 4, 14, 78 and 4 per cent of mu squared for scale, center, moment and "
        "variance; 8, 20, 69 and 3 per cent of epsilon with ``delta=0``. Before these come "
        "30 per cent for covariates, and with ``scale='private'`` without ranges 30 (40 of "
        "epsilon) for columns. 'variance' may be left out, but not of mechanism 'bingham'.",
    ),
    Option(
        "budget_split", (Shares(("scale", "center", "moment", "tensor", "sums")), _NONE), None,
        "Fractions of the budget for the steps scale, center, moment, tensor and sums: those that "
        "the fit takes, and no others.",
        (MIXTURE,), _FITS,
        examples=({"scale": 0.08, "center": 0.05, "moment": 0.3, "tensor": 0.15, "sums": 0.42},),
        privacy=True,
        more="'center' is taken if it is private, 'tensor' with spherical components.",
    ),
    Option(
        "budget_split", (Shares(("scale", "center", "moment", "tensor")), _NONE), None,
        "Fractions of the budget for the steps scale (if documents are clipped), center (the "
        "words' frequencies, if alpha0 is above 0), moment and tensor.",
        (TOPICS,), _FITS,
        examples=({"scale": 0.05, "moment": 0.55, "tensor": 0.4},),
        privacy=True,
    ),
    Option(
        "budget_split",
        (Shares(("missing", "columns", "scale", "center", "moment")), _NONE),
        None,
        "Fractions of the budget for the steps missing, columns, scale, center and moment: those "
        "that the fit takes, and no others.",
        (COVARIANCE,), _FITS,
        examples=({"scale": 0.08, "center": 0.1, "moment": 0.82},),
        privacy=True,
        more="By default 8, 10 and 82 per cent of mu squared for scale, center and moment; 12, 16 "
        "and 72 per cent of epsilon with ``delta=0``. With ``scale='private'`` and no ranges "
        "columns take 30 per cent (40 of epsilon) first.",
    ),
    Option(
        OF_SKETCH, (Whole(), _NONE), None,
        "Columns of the sketch, at least the components; left out, 4 times as many (2 times of "
        "'dpdispca').",
        (PCA, *_TENSORS), _PRIVATE, examples=(20,),
        more="Only of what is sketched: by mechanism, pair or protocol 'sketch', or a stream, "
        "which is beyond 1447 features if nothing is given.",
    ),
    Option(
        "whiten", (Flag(),), False,
        "Whether transform divides each score by the square root of its component's explained "
        "variance, so that all have variance 1.",
        (PCA,), _PRIVATE,
        more="A score along a component of no variance is 0.",
    ),
    Option(
        "power_rounds", (Whole(1, MOST_POWER_ROUNDS), _NONE), None,
        "Rounds of mechanism 'power', 1000 at most; 4 by default.",
        (PCA,), ("table",),
    ),
    Option(
        "publish", (Choice(("end", "continual", "blocks")),), "end",
        "When a stream is released: once, at its end; after every block up to a horizon; or after "
        "every block without end, each with noise of its own.",
        (PCA,), ("stream",),
    ),
    Option(
        "horizon", (Whole(), _NONE), None,
        "The most blocks of a continual stream.",
        (PCA,), ("stream",), unit="blocks",
        more="Each call of :meth:`partial_fit` is one.",
    ),
    Option(
        "block_size", (Whole(), _NONE), None,
        "Rows folded in at a time.",
        (PCA,), ("tracking",), unit="rows",
        more="Larger blocks are truncated less often and so track a little better, for memory; by "
        "default the paper's 25, or ``n_components`` where that is more.",
    ),
    Option(
        "adaptive_rank", (Pair(), _NONE), None,
        "One component more or less after a block whose last one's share of the strengths is above "
        "beta or below alpha.",
        (PCA,), ("tracking",), unit="per cent",
        more="The paper takes 1 and 10. Left out, the rank stays ``n_components``.",
    ),
    Option(
        "forgetting", (Number(0.0, 1.0, open_low=True),), 1.0,
        "What the old singular values are multiplied by at every block.",
        (PCA,), ("tracking",),
    ),
    Option(
        "forgetting", (Number(0.0, 1.0, open_low=True),), 1.0,
        "What the released sums of earlier blocks are multiplied by at every block.",
        (PCA,), ("stream",),
        more="Of ``publish='blocks'``; ``n_samples_`` then counts old rows as little as they "
        "weigh.",
    ),
    Option(
        "n_oversamples", (Whole(0),), 10,
        "Directions tracked beyond those of the result.",
        (PCA,), ("tracking",),
        more="Each fold loses what lies outside the directions it keeps, so a few more bring the "
        "result 2 to 200 times nearer to the exact subspace (measured on the paper's data), "
        "for O(D) memory each. 0 is the paper's SSVD_r with rank r.",
    ),
    Option(
        "missing", (Choice(("leave-out", "zero", "independent", "pairs")),), "leave-out",
        "What becomes of rows with missing entries: they are left out ('leave-out'), or kept. Then "
        "a missing entry is taken for the mean ('zero'), and corrected for by released counts of "
        "each column's entries ('independent') or of each pair's ('pairs', for few columns).",
        (PCA, COVARIANCE), _FITS,
        more="Rows that are left out are not counted: the result is of complete rows. A row with "
        "an infinite entry is always left out.",
    ),
    Option(
        "precision", (Choice(("double", "single")),), "double",
        "The arithmetic in which rows are prepared, however they are stored: 'double', or "
        "'single', which is faster and used where its rounding does not show above the noise.",
        _IN_SPACE, _PRIVATE,
    ),
    Option(
        "noise", (Choice(("secure",)),), "secure",
        "Noise from a cryptographic generator keyed by the operating system.",
        _ALL, _ONE,
    ),
    Option(
        "random_state", (Whole(0, 2**128 - 1), Generator(), _NONE), None,
        "Reproducible noise, for tests: the result is not certified.",
        _ALL, _PRIVATE, local=True,
    ),
    Option(
        "ledger", (LedgerPlace(), _NONE), None,
        "The ledger that the fit is charged to, a file or a database's URL: more than its budget "
        "is refused before any row is read.",
        _ALL, _ONE, local=True,
        more="Without one it is charged nowhere, and the certificate says that fits of the same "
        "rows are not counted together. A stream's whole target is reserved before its first "
        "block is read.",
    ),
    Option(
        "data_set", (Name(), _NONE), None,
        "What the rows are called in the ledger; by default the account that their files have "
        "there, or a new one, called by the first file's path.",
        _ALL, _ONE, local=True,
    ),
)  # fmt: skip


@cache
def options_of(task: str, path: Path) -> Mapping[str, Option]:
    """The options of a task whose rows come in some way, by name, in the order of declaration."""
    return MappingProxyType(
        {one.name: one for one in OPTIONS if task in one.tasks and path in one.paths}
    )


@cache
def study_options(task: str) -> Mapping[str, Option]:
    """The options of a task that are fields of a study, by name."""
    return MappingProxyType(
        {name: one for name, one in options_of(task, "sites").items() if name not in _LEFT_OUT}
    )


def tasks_with(name: str, *paths: Path) -> tuple[str, ...]:
    """The tasks that have an option, on one of some paths."""
    return tuple(
        task
        for task in _ALL
        if any(
            one.name == name and task in one.tasks and set(paths) & set(one.paths)
            for one in OPTIONS
        )
    )


class Options(Mapping[str, Any]):
    """Checked values of a task's options, also as attributes."""

    def __init__(
        self, task: str, path: Path, values: Mapping[str, Any] | None = None, *, owner: str = ""
    ) -> None:
        given = dict(values or {})
        self.task, self.path, self.owner = task, path, owner
        self.declared = options_of(task, path)
        if unknown := [name for name in given if name not in self.declared]:
            raise TypeError(f"{unknown[0]!r} is no option of {task} ({path})")
        self._values = {name: given.get(name, o.default) for name, o in self.declared.items()}
        for name, option in self.declared.items():
            option.check(self._values[name], owner=owner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def given_columns(self) -> int | None:
        """Columns of a sketch, where they were given."""
        columns: int | None = self._values[OF_SKETCH]
        return columns

    def on(self, path: Path, **values: Any) -> Options:
        """The options that another path has too, with its own values of some."""
        theirs = options_of(self.task, path)
        shared = {name: value for name, value in self._values.items() if name in theirs}
        return Options(self.task, path, shared | values, owner=self.owner)

    def changed(self, **values: Any) -> Options:
        """The options with other values of some."""
        return Options(self.task, self.path, self._values | values, owner=self.owner)

    def refused(self, name: str, code: str, /, **facts: Any) -> EigenveilError:
        """The error of an option that cannot be what it is beside the others, or for the data."""
        return refused(self.declared[name], code, owner=self.owner, **facts)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # a whole number of too many digits, or an object that cannot be shown
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
