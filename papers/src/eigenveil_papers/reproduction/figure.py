"""How each series is called and drawn, the same in every figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from eigenveil.files import replacing
from eigenveil.plots import save_figure
from eigenveil_papers.reproduction.numbers import Numbers

Role = Literal[
    "ours",
    "ours-curator",
    "ours-pure",
    "ours-sketch",
    "ours-2",
    "paper",
    "paper-2",
    "repaired",
    "repaired-2",
    "level-1",
    "level-2",
    "level-3",
    "level-4",
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


class SeriesStyle(NamedTuple):
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
_WINE, _TEAL = "#882255", "#44AA99"
_BLACK, _DARK, _GREY, _BROWN = "#000000", "#4d4d4d", "#8c8c8c", "#7a5c2e"

STYLES: Mapping[Role, Style] = {
    "ours": Style(_BLUE, "o", "-", 2.2, 5.5),
    "ours-curator": Style(_SKY, "D", "-", 2.0, 4.5),
    "ours-pure": Style(_GREEN, "o", (0, (6, 1.5)), 2.0, 5.0, hollow=True),
    "ours-sketch": Style(_BLUE, "X", (0, (3, 1)), 1.8, 5.5),
    "ours-2": Style(_GREEN, "P", "-", 1.8, 5.5),
    "paper": Style(_RED, "s", "-", 1.6, 4.5),
    "paper-2": Style(_ORANGE, "^", (0, (5, 1.5)), 1.6, 5.0),
    "repaired": Style(_WINE, "s", (0, (5, 1.5)), 1.6, 4.5, hollow=True),
    "repaired-2": Style(_TEAL, "p", (0, (3, 1)), 1.6, 5.0),
    "level-1": Style("#b9a6d9", "o", (0, (1, 1)), 1.4, 4.5),
    "level-2": Style("#8f6cc4", "s", (0, (3, 1)), 1.4, 4.5, hollow=True),
    "level-3": Style("#6236a8", "^", (0, (6, 1.5)), 1.5, 5.0),
    "level-4": Style("#35106b", "D", "-", 1.6, 4.5, hollow=True),
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

SERIES_STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil", "ours"),
    "eigenveil-curator": SeriesStyle("Eigenveil: one curator", "ours-curator"),
    "eigenveil-pure": SeriesStyle("Eigenveil, delta = 0", "ours-pure"),
    "eigenveil-sketch": SeriesStyle("Eigenveil, sketch", "ours-sketch"),
    "eigenveil-all": SeriesStyle("Eigenveil, centre and scale private too", "ours-2"),
    "analyze-gauss": SeriesStyle("Analyze Gauss", "baseline"),
    "wishart-sn": SeriesStyle("SN (symmetric noise, Wishart)", "paper"),
    "wishart-repaired": SeriesStyle("SN repaired: difference of Wisharts", "repaired"),
    "private-power": SeriesStyle("private power method", "baseline-3"),
    "private-power-pure": SeriesStyle("private power method, delta = 0", "baseline-4"),
    "ppca": SeriesStyle("PPCA (Gibbs sampling)", "baseline-2"),
    "ppca-exact": SeriesStyle("PPCA, sampled exactly", "repaired-2"),
    "mod-sulq": SeriesStyle("MOD-SuLQ", "baseline"),
    "sulq": SeriesStyle("SuLQ", "baseline-5"),
    "dpdispca": SeriesStyle("DPdisPCA", "paper"),
    "full": SeriesStyle("sites send D x D", "paper-2"),
    "local": SeriesStyle("one site alone, private", "baseline-4"),
    "pooled": SeriesStyle("pooled rows, private", "baseline"),
    "dispca": SeriesStyle("disPCA, not private", "exact-2"),
    "local-exact": SeriesStyle("one site alone, not private", "exact-3"),
    "djica": SeriesStyle("DJICA", "baseline-2"),
    "capepca": SeriesStyle("capePCA", "paper"),
    "conv": SeriesStyle("conventional (each site all noise)", "baseline-3"),
    "capeagn": SeriesStyle("capeAGN", "paper"),
    "agn": SeriesStyle("AGN", "paper"),
    "avn": SeriesStyle("AVN", "paper-2"),
    "random": SeriesStyle("random", "random"),
    "exact": SeriesStyle("not private", "exact"),
    "fpca": SeriesStyle("FPCA", "paper"),
    "fpca-open": SeriesStyle("FPCA without mask", "paper-2"),
    "spirit": SeriesStyle("SPIRIT", "baseline"),
    "grouse": SeriesStyle("GROUSE", "baseline-3"),
    "frequent-directions": SeriesStyle("frequent directions", "baseline-4"),
    "block-power": SeriesStyle("block power method", "baseline-2"),
    "incremental": SeriesStyle("incremental PCA", "baseline-5"),
}
"""The common series, by key; an experiment may add its own or say other labels."""


# -- One style for all figures: curves with error bars, scatter plots and tables.
#
# Colours are told apart by colour-blind readers, and every series has a marker and a line of its
# own, so that grey print can be read. No pyplot: figures are plain objects without global state.


AxisScale = Literal["linear", "log"]
_WIDTH = {1: 5.2, 2: 8.2, 3: 10.4, 4: 12.0}
_PANEL_HEIGHT = 2.75
_INK = "#222222"
_OTHERS = SeriesStyle("", "baseline-4")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A set of axes."""

    key: str  # Of the panel in :class:`Numbers`
    title: str  # Long titles are broken into lines
    xlabel: str
    ylabel: str
    # Under which the paper, and the claims about it, name the panel; empty where it has none
    letter: str = ""
    xscale: AxisScale = "log"
    yscale: AxisScale = "linear"
    # Ends of the vertical axis, either may be None; None leaves room about what is drawn
    ylim: tuple[float | None, float | None] | None = None
    # By series: the curves of the paper's authors, drawn thin
    authors: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None


def panel_grid(
    numbers: Numbers,
    panels: Sequence[Panel],
    series_styles: Mapping[str, SeriesStyle],
    *,
    columns: int = 3,
    title: str = "",
) -> Figure:
    """Means over the runs with their standard errors, one panel each, one legend below.

    Panels that have no numbers are left out. ``series_styles`` decides the order of the legend.
    """
    figure, places = grid([p for p in panels if p.key in numbers.panels], columns, title=title)
    authors = False
    for panel, axes in places:
        for series in _in_order(numbers.series(panel.key), series_styles):
            style = _style(series, series_styles)
            curve = numbers.curve(panel.key, series)
            axes.errorbar(
                curve.x,
                curve.mean,
                yerr=curve.error,
                elinewidth=0.8,
                capsize=1.8,
                zorder=4 if style.width >= _THICK else 3,
                **_line(style),
            )
        for series, (x, values) in (panel.authors or {}).items():
            style = _style(series, series_styles)
            axes.plot(x, values, color=style.colour, ls=style.dashes, lw=0.7, alpha=0.9, zorder=2)
            authors = True
        _finish(axes, panel, _positions(numbers, panel.key))
    used = [s for panel, _ in places for s in numbers.series(panel.key)]
    legend(figure, _in_order(used, series_styles), series_styles, authors=authors)
    return figure


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
    strong: Sequence[tuple[int, int]] = (),
) -> Figure:
    """A table as a picture: first column left, others centred."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [
        max(len(line) for row in cells for line in row[c].split("\n")) for c in range(len(head))
    ]
    total = sum(widths) + 2 * len(widths)
    lines = [1 + max(cell.count("\n") for cell in row) for row in cells]
    below = 0.25 * (note.count("\n") + 1) if note else 0.0
    above = 0.35 * (title.count("\n") + 1) if title else 0.1
    height = above + below + 0.26 * sum(lines) + 0.12 * len(lines)
    figure = Figure(figsize=(max(5.0, 0.085 * total + 0.4), height))
    axes = figure.add_axes((0.02, below / height, 0.96, 1.0 - (above + below) / height))
    axes.set_axis_off()
    drawn = axes.table(
        cellText=cells,
        colWidths=[(width + 2) / total for width in widths],
        bbox=Bbox.unit(),
        edges="horizontal",
    )
    drawn.auto_set_font_size(False)
    share = sum(0.26 * n + 0.12 for n in lines)
    for (row, column), cell in drawn.get_celld().items():
        cell.set_height((0.26 * lines[row] + 0.12) / share)
        cell.set_edgecolor("#b0b0b0")
        cell.set_linewidth(1.2 if row == 0 else 0.5)
        text = cell.get_text()
        text.set_fontsize(9)
        text.set_color(_INK)
        text.set_horizontalalignment("left" if column == 0 else "center")
        if row == 0 or (row - 1, column) in strong:
            text.set_fontweight("bold")
    if title:
        figure.text(0.02, 1.0 - 0.08 / height, title, fontsize=10.5, va="top", color=_INK)
    if note:
        figure.text(0.02, 0.06 / height, note, fontsize=8, va="bottom", color="#555555")
    return figure


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``; the same numbers give the same bytes."""
    paths = (stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg"))
    for path in paths:
        with replacing(path) as scratch:
            save_figure(figure.axes[0], scratch)
        path.chmod(0o644)
    return paths


def grid(
    panels: Sequence[Panel], columns: int, *, title: str = ""
) -> tuple[Figure, list[tuple[Panel, Any]]]:
    """A figure with axes for each panel, row by row, for those who draw in them themselves."""
    columns = max(1, min(columns, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    width = _WIDTH.get(columns, 3.0 * columns)
    figure = Figure(figsize=(width, _PANEL_HEIGHT * rows + 0.9), layout="constrained")
    places = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    if not panels:
        places[0].set_visible(False)
        figure.text(0.5, 0.5, "nothing was measured", ha="center", color=_INK)
    if title:
        lines = [
            part for line in title.split("\n") for part in textwrap.wrap(line, int(width / 0.085))
        ]
        figure.suptitle("\n".join(lines), fontsize=11, color=_INK)
    return figure, list(zip(panels, places, strict=False))


def legend(
    figure: Figure,
    series: Sequence[str],
    series_styles: Mapping[str, SeriesStyle],
    *,
    authors: bool = False,
) -> None:
    """One legend below all panels, each label once; a line for the authors' curves if drawn."""
    handles: dict[str, Line2D] = {}
    looks: dict[Style, str] = {}
    for key in (key for key in series if key in series_styles):
        label = series_styles[key].label
        if looks.setdefault(_style(key, series_styles), label) != label:
            raise ValueError(f"{label!r} looks like {looks[_style(key, series_styles)]!r}")
    for key in series:
        line = _line(_style(key, series_styles))
        handles.setdefault(
            series_styles[key].label if key in series_styles else key, Line2D([], [], **line)
        )
    if authors:
        handles["thin lines: the authors' own"] = Line2D([], [], color="#555555", lw=0.7)
    if not handles:
        return
    longest = max(len(label) for label in handles)
    width = figure.get_size_inches()[0]
    fits = max(1, min(4, int(width / (0.068 * longest + 0.6)), len(handles)))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=fits,
        frameon=False,
        fontsize=8.5,
        handlelength=3.2,
    )


_THICK = 1.8


def _style(series: str, series_styles: Mapping[str, SeriesStyle]) -> Style:
    return STYLES[series_styles.get(series, _OTHERS).role]


def _line(style: Style) -> dict[str, Any]:
    return {
        "color": style.colour,
        "marker": style.marker,
        "ls": style.dashes,
        "lw": style.width,
        "ms": style.size,
        "mfc": "white" if style.hollow else style.colour,
        "mew": 1.0 if style.hollow else 0.0,
    }


def _in_order(series: Sequence[str], series_styles: Mapping[str, SeriesStyle]) -> list[str]:
    found = list(dict.fromkeys(series))
    return [key for key in series_styles if key in found] + [
        key for key in found if key not in series_styles
    ]


def _positions(numbers: Numbers, panel: str) -> NDArray[np.float64]:
    found = [numbers.curve(panel, series).x for series in numbers.series(panel)]
    return np.unique(np.concatenate(found)) if found else np.zeros(0)


def broken(title: str, axes: Any) -> str:
    """The title in lines that are not wider than its panel."""
    columns = axes.get_subplotspec().get_gridspec().ncols
    fits = int(axes.figure.get_size_inches()[0] / columns / 0.078)
    return "\n".join(part for line in title.split("\n") for part in textwrap.wrap(line, fits))


def _finish(axes: Any, panel: Panel, x: NDArray[np.float64]) -> None:
    """Scales, ticks, labels and the frame."""
    title = f"({panel.letter}) {panel.title}" if panel.letter else panel.title
    axes.set_title(broken(title, axes), fontsize=9.5, color=_INK)
    axes.set_xlabel(panel.xlabel, fontsize=9)
    axes.set_ylabel(panel.ylabel, fontsize=9)
    if panel.yscale == "log":
        axes.set_yscale("log")
        _log_ticks(axes.yaxis, np.array(axes.get_ylim()))
    if panel.xscale == "log" and x.size and x.min() > 0:
        axes.set_xscale("log")
        _log_ticks(axes.xaxis, x)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, lw=0.4, color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


_FEW_DECADES = 1.7


def _log_ticks(axis: Any, x: NDArray[np.float64]) -> None:
    """Powers of ten as plain numbers; over less than two decades the measured positions."""
    decades = math.log10(float(x.max()) / float(x.min()))
    if axis.axis_name == "x" and decades < _FEW_DECADES and x.size <= _MOST_TICKS:
        axis.set_major_locator(FixedLocator(x.tolist()))
    elif decades < 2.0:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axis.set_major_locator(LogLocator(numticks=8))
    axis.set_major_formatter(FuncFormatter(_number))
    axis.set_minor_formatter(NullFormatter())


_MOST_TICKS = 7


def _number(value: float, _: object = None) -> str:
    """A short plain number: 0.001, 0.5, 10, 20k; powers of ten beyond."""
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        exponent = math.floor(math.log10(size) + 1e-9)
        part = value / 10.0**exponent
        lead = "" if abs(part - 1.0) < 1e-9 else rf"{part:g}\times"
        return rf"${lead}10^{{{exponent}}}$"
    if size >= 1e4:
        return f"{value / 1000:g}k"
    return f"{value:.3g}" if size < 100.0 else f"{value:g}"
