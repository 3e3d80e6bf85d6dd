"""Options as forms call them: a label, a short help, and words for choices.

What has none here is called by its name, helped by its declaration, and its choices by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Words:
    label: str
    help: str = ""  # In place of the declared help; by default that
    choices: Mapping[str, str] = field(default_factory=dict)


OPTION_WORDS: Mapping[str, Words] = {
    "epsilon": Words(
        "Epsilon",
        "How strongly persons are protected: smaller protects more, and is noisier. 0.1 to 4 are "
        "usual.",
    ),
    "delta": Words(
        "Delta",
        "What epsilon may leave uncovered: well below one over the number of persons. 0 for none.",
    ),
    "adjacency": Words(
        "What the guarantee compares",
        "With the second, how many rows there are is taken as public.",
        {"add-remove": "A table with and without somebody",
         "replace-one": "A table with somebody else instead"},
    ),
    "unit": Words(
        "Column that says whose each row is",
        "Such as patient_id: all rows of one person are then protected together.",
    ),
    "max_rows_per_unit": Words(
        "Most rows of a person that count",
        "A person with more counts as much as one with so many. With 1 all persons count alike.",
    ),
    "sites_per_unit": Words("Sites at which one person may have rows"),
    "protocol": Words(
        "What the sites send",
        "The sums of all sites together carry the least noise.",
        {"auto": "Chosen by the other options", "cape": "Sums, hidden until added up",
         "sketch": "Short sums, for many columns", "dpdispca": "Each its own noisy factor",
         "full": "Each its own noisy matrix", "local": "Only the first site fits"},
    ),
    "masks": Words(
        "How a site's sums are hidden",
        "With the first, sites may drop out.",
        {"modular": "By keys of pairs of sites", "pairwise": "The same, with Gaussian masks",
         "helper": "By a helper who is trusted"},
    ),
    "collusion": Words("Sites that may collude"),
    "dropouts": Words("Sites that may drop out"),
    "neighbours": Words("Sites that share keys with each"),
    "site_epsilon": Words(
        "Smaller epsilons of single sites",
        "Such as north=0.5, south=1. Their rows count with a smaller weight.",
    ),
    "weights": Words(
        "Weights of sites",
        "Such as north=2, south=1: how much a row counts. Public; left out, all count alike.",
    ),
    "expected_rows": Words(
        "Rows expected", "About how many all sites have together. For forecasts alone."
    ),
    "mechanism": Words(
        "Kind of noise",
        "Those for delta 0 have no delta in their guarantee. Most fits leave the choice open.",
        {"auto": "Chosen by the other options", "adaptive": "Gaussian, in two steps",
         "gaussian": "Gaussian", "wishart": "Wishart, for delta 0",
         "vector": "By the norm, for delta 0", "bingham": "Bingham, for delta 0",
         "power": "Power method", "sketch": "Sketch, for many columns"},
    ),
    "row_norm": Words("How long rows may be"),
    "row_bound": Words(
        "Longest that rows are",
        "A public bound on their norm, if one is known: then it need not be found.",
    ),
    "row_quantile": Words("Share of rows not shortened"),
    "center": Words(
        "Subtract the mean", "It is found privately, for a part of the budget."
    ),
    "scale": Words(
        "Scale of columns",
        "Choose a common scale where columns have different units; otherwise those of large "
        "numbers decide the result. It takes a part of the budget.",
        {"": "As they are", "private": "A common scale"},
    ),
    "winsorize": Words("Share of extreme values to move in"),
    "covariates": Words(
        "Columns whose effect is taken off",
        "Such as age: with commas between. Their linear effects on the others are released.",
    ),
    "within_sites": Words(
        "Centre each site by its own mean", "It publishes each site's noisy mean and size."
    ),
    "covariance_type": Words(
        "Shape of the groups",
        "Round groups need the fewest rows.",
        {"spherical": "Round: one variance each", "diag": "A variance for each column",
                 "full": "A covariance each", "tied": "The same covariance for all"},
    ),
    "noise_variance": Words("Variance within a group"),
    "pair": Words(
        "How pairs of columns are summed",
        choices={"auto": "Chosen by their number", "full": "All pairs", "sketch": "A sketch"},
    ),
    "alpha0": Words(
        "How mixed documents are",
        "0: one topic each. 1: a few. More: many. auto: found from what is released.",
    ),
    "clip_documents": Words("Shorten long documents", "It makes the noise far smaller."),
    "budget_split": Words("Shares of the budget"),
    "sketch_size": Words("Columns of the sketch"),
    "whiten": Words("Scores of variance 1"),
    "scores": Words(
        "Release a plot of scores", "A private picture of the rows, for a tenth of the budget."
    ),
    "power_rounds": Words("Rounds of the power method"),
    "publish": Words(
        "When it is released",
        choices={"end": "Once, at the end", "continual": "After each block, up to a horizon",
                 "blocks": "After each block, without end"},
    ),
    "missing": Words(
        "Rows with missing values",
        "Rows that are left out do not count: the result is then of complete rows.",
        {"leave-out": "Leave them out", "zero": "Fill gaps with the mean",
         "independent": "Correct by column", "pairs": "Correct by pair of columns"},
    ),
    "precision": Words(
        "Arithmetic",
        "The faster is used where its rounding is below the noise.",
        {"double": "Usual", "single": "Faster"},
    ),
    "one_row_per_person": Words(
        "Nobody has more than one row", "Yes in place of a column, where nobody has."
    ),
}  # fmt: skip


_NONE = Words("")


def words_of(name: str) -> Words:
    """What a form says of an option."""
    return OPTION_WORDS.get(name, _NONE)


def label_of(name: str) -> str:
    """An option as forms call it."""
    plain = words_of(name).label or name.removeprefix("n_").replace("_", " ")
    return plain[:1].upper() + plain[1:]


def choice_text(name: str, value: str) -> str:
    """What an option was set to, as forms show it."""
    return words_of(name).choices.get(value, value)
