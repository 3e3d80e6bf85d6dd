"""How each series is called and drawn, the same in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Role = Literal[
    "ours",
    "ours-curator",
    "ours-pure",
    "ours-sketch",
    "ours-2",
    "paper",
    "paper-2",
    "repaired",
    "baseline",
    "baseline-2",
    "baseline-3",
    "baseline-4",
    "baseline-5",
    "exact",
    "exact-2",
    "exact-3",
    "random",
]


class Look(NamedTuple):
    """A series' name in legends, and the role that decides colour, marker and line."""

    label: str
    role: Role


class Style(NamedTuple):
    """Colour (of Okabe and Ito's, or a grey), marker, dashes, width and size in points."""

    colour: str
    marker: str
    dashes: str | tuple[float, tuple[float, ...]]
    width: float = 1.4
    size: float = 4.5
    hollow: bool = False


_BLUE, _SKY, _GREEN = "#0072B2", "#56B4E9", "#009E73"
_RED, _ORANGE, _PURPLE = "#D55E00", "#E69F00", "#CC79A7"
_BLACK, _DARK, _GREY, _BROWN = "#000000", "#4d4d4d", "#8c8c8c", "#7a5c2e"

STYLES: Mapping[Role, Style] = {
    "ours": Style(_BLUE, "o", "-", 2.2, 5.5),
    "ours-curator": Style(_SKY, "D", "-", 2.0, 4.5),
    "ours-pure": Style(_GREEN, "o", (0, (6, 1.5)), 2.0, 5.0, hollow=True),
    "ours-sketch": Style(_BLUE, "X", (0, (3, 1)), 1.8, 5.5),
    "ours-2": Style(_GREEN, "P", "-", 1.8, 5.5),
    "paper": Style(_RED, "s", "-", 1.6, 4.5),
    "paper-2": Style(_ORANGE, "^", (0, (5, 1.5)), 1.6, 5.0),
    "repaired": Style(_PURPLE, "s", (0, (5, 1.5)), 1.6, 4.5, hollow=True),
    "baseline": Style(_PURPLE, "v", (0, (4, 1.5)), 1.2, 5.0),
    "baseline-2": Style(_ORANGE, "d", (0, (1, 1)), 1.2, 5.0, hollow=True),
    "baseline-3": Style(_BROWN, "<", (0, (4, 1.5, 1, 1.5)), 1.2, 5.0),
    "baseline-4": Style(_GREY, ">", "-", 1.2, 5.0, hollow=True),
    "baseline-5": Style(_DARK, "*", (0, (2, 2)), 1.2, 6.5),
    "exact": Style(_BLACK, "", (0, (6, 3)), 1.2),
    "exact-2": Style(_DARK, "", (0, (1.5, 1.5)), 1.2),
    "exact-3": Style(_GREY, "", (0, (6, 2, 1, 2)), 1.2),
    "random": Style(_GREY, "", (0, (1, 2)), 1.4),
}

LOOKS: dict[str, Look] = {
    "eigenveil": Look("Eigenveil: masked sum of sites", "ours"),
    "eigenveil-curator": Look("Eigenveil: one curator", "ours-curator"),
    "eigenveil-pure": Look("Eigenveil, delta = 0", "ours-pure"),
    "eigenveil-sketch": Look("Eigenveil, sketch", "ours-sketch"),
    "eigenveil-all": Look("Eigenveil, centre and scale private too", "ours-2"),
    "analyze-gauss": Look("Analyze Gauss", "baseline"),
    "wishart-sn": Look("SN (symmetric noise, Wishart)", "paper"),
    "wishart-repaired": Look("SN repaired: difference of Wisharts", "repaired"),
    "private-power": Look("private power method", "baseline-3"),
    "private-power-pure": Look("private power method, delta = 0", "baseline-4"),
    "ppca": Look("PPCA (Gibbs sampling)", "baseline-2"),
    "ppca-exact": Look("PPCA, sampled exactly", "ours-2"),
    "mod-sulq": Look("MOD-SuLQ", "baseline"),
    "sulq": Look("SuLQ", "baseline-5"),
    "dpdispca": Look("DPdisPCA", "paper"),
    "full": Look("sites send D x D", "paper-2"),
    "local": Look("one site alone, private", "baseline-4"),
    "pooled": Look("pooled rows, private", "baseline"),
    "dispca": Look("disPCA, not private", "exact-2"),
    "local-exact": Look("one site alone, not private", "exact-3"),
    "djica": Look("DJICA", "baseline-2"),
    "capepca": Look("capePCA", "paper"),
    "conv": Look("conventional (each site all noise)", "baseline-3"),
    "capeagn": Look("capeAGN", "paper"),
    "agn": Look("AGN", "paper"),
    "avn": Look("AVN", "paper-2"),
    "random": Look("random", "random"),
    "exact": Look("not private", "exact"),
    "fpca": Look("FPCA", "paper"),
    "fpca-open": Look("FPCA without mask", "paper-2"),
    "spirit": Look("SPIRIT", "baseline"),
    "grouse": Look("GROUSE", "baseline-3"),
    "frequent-directions": Look("frequent directions", "baseline-4"),
    "block-power": Look("block power method", "baseline-2"),
    "incremental": Look("incremental PCA", "baseline-5"),
}
"""The common series, by key; an experiment may add its own or say other labels."""
