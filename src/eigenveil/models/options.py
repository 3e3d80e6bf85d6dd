"""Every option of every task, declared once: names, values, defaults, help.

Scikit-learn's constraints, the checks of plans and studies, the fields of a study file, and the
command line's options and their help all follow from :data:`OPTIONS`. To add a parameter, add a
line here or to :mod:`eigenveil.models.model_options`, the argument of the constructors that take
it, and its use.

This module is read for ``eigenveil --help``, so it imports no numerical library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from eigenveil.errors import EigenveilError
from eigenveil.models.domains import (
    EPSILON,
    NONE,
    WEIGHT,
    Generator,
    LedgerPlace,
    Name,
    OfSites,
    OneOf,
    Option,
    Path,
    Text,
    WholeNumber,
    refused,
)
from eigenveil.models.model_options import (
    ALL,
    DELTA,
    MOST_ROWS_OF_UNIT,
    OF_COUNTS,
    OF_MODELS,
    OF_SKETCH,
    ONE,
    PCA,
    PRIVATE,
    SITES,
    TENSORS,
    WHOLE_MOMENT,
)

# Of several sites, what a study has in fields of its own, or not at all.
OF_SITES = {"site_epsilon": "epsilon", "weights": "weight"}  # Options, as fields of a study's sites
_LEFT_OUT = ("n_components", *OF_SITES, "random_state")

OPTIONS: tuple[Option, ...] = (
    *OF_COUNTS,
    Option(
        "epsilon", (EPSILON,), 1.0,
        "Privacy target: a number above 0. Smaller is more private; 0.1 to 4 are usual. Beyond 40 "
        "the noise gets no smaller: the guarantee is that of 40.",
        ALL, PRIVATE, privacy=True,
        more="Of several sites it holds against the aggregator together with ``collusion`` sites; "
        "of a stream, for all of it.",
    ),
    Option(
        "delta", (DELTA,), 1e-6,
        "Privacy target: a number in [0, 1), well below one over the number of rows. 0 means "
        "pure epsilon.",
        ALL, PRIVATE, privacy=True,
    ),
    Option(
        "adjacency", (OneOf(("add-remove", "replace-one")),), "add-remove",
        "Whose presence is protected: 'add-remove' (adding or removing one row) or 'replace-one' "
        "(changing one row; row counts are public).",
        ALL, PRIVATE,
    ),
    Option(
        "unit", (Text(), NONE), None,
        "The column that says whose each row is, such as patient_id: all rows of one person are "
        "then protected together. Left out, each row is protected by itself.",
        ALL, PRIVATE, examples=("patient_id",),
        more="``fit(X, groups=ids)`` gives the units beside the rows instead.",
    ),
    Option(
        "max_rows_per_unit", (WholeNumber(1, MOST_ROWS_OF_UNIT),), 1,
        "Rows of a unit that count alike: each counts 1 over this, and those of a unit with more "
        "count as much as this many. With 1 every unit counts the same.",
        ALL, PRIVATE, unit="rows",
        more="Of a stream the first so many rows of a unit count, and those beyond are left out.",
    ),
    Option(
        "sites_per_unit", (WholeNumber(),), 1,
        "Sites at which one unit may have rows. With 1, persons whose rows are at several sites "
        "are protected less; with more, the noise is so many times larger.",
        ALL, SITES, unit="sites",
    ),
    Option(
        "protocol", (OneOf(("auto", "cape", "sketch", "dpdispca", "full", "local")),), "auto",
        "What the sites send: 'cape' (masked sums of D x D), 'sketch' (masked sums of D x R), "
        "'dpdispca' (each its own noisy D x R factor), 'full' (each its own noisy D x D), 'local' "
        "(the first site alone), or 'auto'.",
        (PCA,), SITES,
        more="'cape' has the noise of one curator in all; the factor of 'dpdispca' is that of the "
        "leading part of the site's own noisy second moment (paper 000). 'auto' chooses, and "
        "``choice_`` gives the reason.",
    ),
    Option(
        "protocol", (OneOf(("auto", "cape", "sketch", "local")),), "auto",
        "What the sites send: 'cape' (masked sums of D x D), 'sketch' (masked sums of D x R), "
        "'local' (the first site alone), or 'auto'.",
        TENSORS, SITES,
        more="'auto' is 'cape' up to 1000 features (4000 words) and without ``sketch_size``, else "
        "'sketch'; ``choice_`` gives the reason. The third moment takes K (K + 1) (K + 2) / "
        "6 numbers a site.",
    ),
    Option(
        "protocol", (OneOf(("auto", "cape", "local")),), "auto",
        "What the sites send: 'cape' (hidden sums of D x D), 'local' (the first site alone), or "
        "'auto': 'cape'.",
        WHOLE_MOMENT, SITES,
    ),
    Option(
        "masks", (OneOf(("modular", "pairwise", "helper")),), "modular",
        "The masks of a site's sums: 'modular' (keys of pairs of sites, uniform; allows "
        "dropouts), 'pairwise' (the same, but Gaussian) or 'helper' (trusted).",
        ALL, SITES,
        more="With 'modular' the aggregator learns sums exactly and nothing else; the helper's "
        "are Gaussian and add up to zero (paper 001).",
    ),
    Option(
        "collusion", (WholeNumber(0),), 0,
        "Sites that may tell the aggregator everything they know, and the others are still "
        "protected.",
        ALL, SITES,
    ),
    Option(
        "dropouts", (WholeNumber(0),), 0,
        "Sites that may be missing from a round without ending the run.",
        ALL, SITES,
        more="Needs ``masks='modular'``.",
    ),
    Option(
        "neighbours", (WholeNumber(), NONE), None,
        "Other sites with which each site shares masks: a whole number; left out, all of up to 16 "
        "sites, else as many as are needed.",
        ALL, SITES, examples=(16,),
    ),
    Option(
        "site_epsilon", (OfSites("smaller epsilon", EPSILON), NONE), None,
        "Smaller targets of single sites; their rows then count with a smaller weight.",
        ALL, SITES, privacy=True,
    ),
    Option(
        "weights", (OfSites("weights", WEIGHT), NONE), None,
        "How much a row of each site counts beside one of another: public numbers above 0, such "
        "as the quality of their measurements; left out, all rows count alike.",
        ALL, SITES,
        more="Give one for every site; only their proportions matter. The heaviest site has the "
        "study's guarantee, or its own of ``site_epsilon``, and the others a stronger one: "
        "``site_guarantees_``.",
    ),
    Option(
        "expected_rows", (WholeNumber(), NONE), None,
        "A public guess of the rows of all sites together, used only to predict and to choose a "
        "protocol.",
        ALL, SITES, examples=(100000,),
    ),
    *OF_MODELS,
    Option(
        "noise", (OneOf(("secure",)),), "secure",
        "Noise from a cryptographic generator keyed by the operating system.",
        ALL, ONE,
    ),
    Option(
        "random_state", (WholeNumber(0, 2**128 - 1), Generator(), NONE), None,
        "Reproducible noise, for tests: the result is not certified.",
        ALL, PRIVATE, local=True,
    ),
    Option(
        "ledger", (LedgerPlace(), NONE), None,
        "The ledger that the fit is charged to, a file or a database's URL: more than its budget "
        "is refused before any row is read.",
        ALL, ONE, local=True,
        more="Without one it is charged nowhere, and the certificate says that fits of the same "
        "rows are not counted together. A stream's whole target is reserved before its first "
        "block is read.",
    ),
    Option(
        "data_set", (Name(), NONE), None,
        "What the rows are called in the ledger; by default the account that their files have "
        "there, or a new one, called by the first file's path.",
        ALL, ONE, local=True,
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


def of_sites(sites: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float] | None]:
    """The options that say something of single sites, as a study has them."""
    found = list(sites)
    return {
        option: {one["name"]: one[field] for one in found if one[field] is not None} or None
        for option, field in OF_SITES.items()
    }


def tasks_with(name: str, *paths: Path) -> tuple[str, ...]:
    """The tasks that have an option, on one of some paths."""
    return tuple(
        task
        for task in ALL
        if any(
            one.name == name and task in one.tasks and set(paths) & set(one.paths)
            for one in OPTIONS
        )
    )


def plain_values(options: Mapping[str, Option], given: Mapping[str, object]) -> dict[str, Any]:
    """Those values that are of the options, checked, and plain as a study file has them."""
    found = {name: given[name] for name in options if name in given}
    for name, value in found.items():
        options[name].check(value)
    return {name: options[name].plain(value) for name, value in found.items()}


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

    def some(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of some of them."""
        return {name: self._values[name] for name in names}

    @property
    def given_columns(self) -> int | None:
        columns: int | None = self._values[OF_SKETCH]
        return columns

    def on(self, path: Path, **values: Any) -> Options:
        """The options that another path has too, with its own values of some."""
        theirs = options_of(self.task, path)
        shared = {name: value for name, value in self._values.items() if name in theirs}
        return Options(self.task, path, shared | values, owner=self.owner)

    def changed(self, **values: Any) -> Options:
        return Options(self.task, self.path, self._values | values, owner=self.owner)

    def refused(self, name: str, code: str, /, **facts: Any) -> EigenveilError:
        """The error of an option that cannot be what it is beside the others, or for the data."""
        return refused(self.declared[name], code, owner=self.owner, **facts)
