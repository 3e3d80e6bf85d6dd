"""What follows from a covariance, and with which options: declared once for commands and pages.

Read for ``eigenveil --help``, so it imports no numerical library.
"""

from __future__ import annotations

from collections.abc import Mapping

from eigenveil.models.domains import Flag, NamedColumns, Number, OneOf, Option, Path, WholeNumber

TITLES: Mapping[str, str] = {
    "pca": "Principal components of a covariance",
    "factors": "Factors of a covariance",
    "partial-correlation": "Partial correlations",
    "regression": "Linear regression",
    "cca": "Canonical correlations",
    "discriminant": "Linear discriminant",
}
"""What each kind of derived model is called."""
PCA, FACTORS, PARTIAL, REGRESSION, CCA, DISCRIMINANT = TITLES
_COLUMNS, _COUNT = (NamedColumns(),), (WholeNumber(),)
_EVERYWHERE: tuple[Path, ...] = ("table",)

DERIVED_OPTIONS: tuple[Option, ...] = (
    Option(
        "target", _COLUMNS, None, "Columns to explain; by default the schema's targets.",
        (REGRESSION,), _EVERYWHERE,
    ),
    Option(
        "group", _COLUMNS, None,
        "A category, or columns with commas between; by default the schema's target.",
        (DISCRIMINANT,), _EVERYWHERE,
    ),
    Option(
        "left", _COLUMNS, None, "Columns of one side, with commas between.", (CCA,), _EVERYWHERE,
    ),
    Option(
        "right", _COLUMNS, None, "Columns of the other side, with commas between.",
        (CCA,), _EVERYWHERE,
    ),
    Option(
        "n_components", _COUNT, None, "How many: at most the columns, of factors one less.",
        (PCA, FACTORS), _EVERYWHERE,
    ),
    Option(
        "n_components", _COUNT, 1, "How many; at most the columns of the smaller side.",
        (CCA,), _EVERYWHERE,
    ),
    Option(
        "on", _COLUMNS, None, "Columns to use; by default all that are no targets.",
        (PCA, FACTORS, PARTIAL, REGRESSION, DISCRIMINANT), _EVERYWHERE,
    ),
    Option(
        "correlations", (Flag(),), False, "Whether every column is divided by its deviation.",
        (PCA,), _EVERYWHERE,
    ),
    Option(
        "rotation", (OneOf(("varimax", "none")),), "varimax",
        "How factors are turned: so that each has few large loadings, or not.",
        (FACTORS,), _EVERYWHERE,
    ),
    Option(
        "ridge", (Number(0.0, 1e9),), 1.0,
        "In units of the noise's largest eigenvalue in these columns; 0 for none.",
        (PARTIAL, REGRESSION, CCA, DISCRIMINANT), _EVERYWHERE,
    ),
)  # fmt: skip


def options_of_kind(kind: str) -> list[Option]:
    """The options of one kind, in the order of a form."""
    return [each for each in DERIVED_OPTIONS if kind in each.tasks]
