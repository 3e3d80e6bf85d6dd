"""How each series is called and drawn, the same in every figure."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from eigenveil.files import replacing
from eigenveil.plots import figure_bytes
from eigenveil_papers.reproduction.numbers import Numbers

Role = str
"""A key of :data:`STYLES`."""


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
    "level-2": Style("#8f6cc4", "s", (0, (3, 1, 1, 1)), 1.4, 4.5, hollow=True),
    "level-3": Style("#6236a8", "^", (0, (6, 1.5, 1, 1.5)), 1.5, 5.0),
    "level-4": Style("#35106b", "D", "-", 1.6, 4.5, hollow=True),
    "baseline": Style(_PURPLE, "v", (0, (4, 1.5)), 1.2, 5.0),
    "baseline-2": Style(_ORANGE, "d", (0, (1, 1)), 1.2, 5.0, hollow=True),
    "baseline-3": Style(_BROWN, "<", (0, (4, 1.5, 1, 1.5)), 1.2, 5.0),
    "baseline-4": Style(_GREY, ">", "-", 1.2, 5.0, hollow=True),
    "baseline-5": Style(_DARK, "*", (0, (2, 2)), 1.2, 6.5),
    "exact": Style(_BLACK, "", (0, (6, 3)), 1.2),
    "exact-2": Style(_DARK, "", (0, (1.5, 1.5)), 1.2),
    "exact-3": Style(_GREY, "", (0, (6, 2, 1, 2)), 1.2),
    "random": Style(_GREY, "", (0, (1, 4)), 1.4),
}

SERIES_STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil", "ours"),
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


# -- One style for all figures: curves with error bars, and points.
#
# Colours are told apart by colour-blind readers, and every series has a marker and a line of its
# own, so that grey print can be read. A figure is as wide as the text, on a page and in print. No
# pyplot: figures are plain objects without global state.


AxisScale = Literal["linear", "log"]
WIDTH = 7.2  # Inches
TALLEST = 10.4  # Inches: what a sheet of paper has room for, where that width becomes 6.5
DPI = 250  # Two pixels for each that a wide page has for it
_HEIGHTS = {1: 2.6, 2: 1.8, 3: 1.65}  # Inches of a panel without its title, by panels a row
_SIZE, _SMALL, _LARGE = 8.0, 7.5, 9.5  # Points: of text, of ticks, of the title
_CHARACTER = 0.066  # Inches of one of them, of text, about
_LINE = 0.155  # Inches of a line of text
_INK = "#222222"
_OTHERS = SeriesStyle("", "baseline-4")
_PLAIN = Style(_DARK, ".", "-")  # Of points of which no kinds are told


@dataclass(frozen=True)
class Panel:
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
    points: bool = False  # Each measured number by itself, not means
    # Names of horizontal positions, in place of numbers
    ticks: Mapping[float, str] | None = None


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
    At most three panels stand beside each other; a label that the panel to the left, or the one
    below, has too is written there only.
    """
    panels = [panel for panel in panels if panel.key in numbers.panels]
    figure, places = _grid(panels, columns, title)
    for panel, axes in zip(panels, places, strict=True):
        _drawn(axes, numbers, panel, series_styles)
        _scales(axes, panel, _positions(numbers, panel))
    _legend(figure, numbers, panels, series_styles)
    figure.set_figheight(min(figure.get_figheight(), TALLEST))
    return figure


def _drawn(
    axes: Any, numbers: Numbers, panel: Panel, series_styles: Mapping[str, SeriesStyle]
) -> None:
    """Curves with bars, or points."""
    series = _in_order(numbers.series(panel.key), series_styles)
    for each in series:
        style = _style(each, series_styles)
        if panel.points:
            look = _line(style if len(series) > 1 else _PLAIN)
            look |= {"ls": "none", "ms": 0.55 * look["ms"], "mew": 0.4, "alpha": 0.6}
            axes.plot(*numbers.points(panel.key, each).T, **look, rasterized=True)
            continue
        curve = numbers.curve(panel.key, each)
        axes.errorbar(
            curve.x,
            curve.mean,
            yerr=curve.error,
            elinewidth=0.8,
            capsize=1.8,
            zorder=4 if style.width >= _THICK else 3,
            **_line(style),
        )
    for each, (x, values) in (panel.authors or {}).items():
        style = _style(each, series_styles)
        axes.plot(x, values, color=style.colour, ls=style.dashes, lw=0.7, alpha=0.9, zorder=2)


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``; the same numbers give the same bytes."""
    pictures = (stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg"))
    for path in pictures:
        drawn = figure_bytes(figure.axes[0], path.suffix[1:], dpi=DPI)
        with replacing(path) as scratch:
            if path.suffix == ".png":
                image = Image.open(BytesIO(drawn)).convert("RGB")
                # A palette of 256 colours takes a third of the bytes
                method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
                image = image.quantize(method=method, dither=dither)
                image.save(scratch, "png", optimize=True, dpi=(DPI, DPI))
            else:
                scratch.write_bytes(drawn)
        path.chmod(0o644)
    return pictures


def _grid(panels: Sequence[Panel], columns: int, title: str) -> tuple[Figure, list[Any]]:
    """A figure with titled and labelled axes for each panel, row by row."""
    columns = max(1, min(columns, len(panels), max(_HEIGHTS)))
    rows = max(1, math.ceil(len(panels) / columns))
    above = _broken(title, int(WIDTH / _CHARACTER * _SIZE / _LARGE))
    alike = len({(panel.ylabel, panel.ylim) for panel in panels}) == 1
    fits = int((WIDTH - (0.5 if alike else 0.4 * columns)) / columns / _CHARACTER)
    titles = [_broken(f"({p.letter}) {p.title}" if p.letter else p.title, fits) for p in panels]
    lines = [title.count("\n") + 1 for title in titles] or [1]
    inches = [
        _HEIGHTS[columns] + _LINE * max(lines[i : i + columns])
        for i in range(0, len(lines), columns)
    ]
    figure = Figure(
        figsize=(WIDTH, sum(inches) + _LINE * (2 + above.count("\n"))), layout="constrained"
    )
    places = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    if not panels:
        figure.text(0.5, 0.5, "nothing was measured", ha="center", color=_INK)
    figure.suptitle(above, fontsize=_LARGE, color=_INK)
    tall = int(min(_HEIGHTS[columns], TALLEST / rows - 0.5) / _CHARACTER)
    for place, (panel, axes) in enumerate(zip(panels, places, strict=False)):
        axes.set_title(titles[place], fontsize=_SIZE, color=_INK)
        axes.tick_params(labelsize=_SMALL)
        left = panels[place - 1] if place % columns else None
        below = panels[place + columns] if place + columns < len(panels) else None
        if left is None or left.ylabel != panel.ylabel:
            axes.set_ylabel(_broken(panel.ylabel, tall), fontsize=_SIZE)
        if below is None or below.xlabel != panel.xlabel:
            axes.set_xlabel(_broken(panel.xlabel, fits), fontsize=_SIZE)
        if left and panel.ylim and None not in panel.ylim and left.ylim == panel.ylim:
            axes.tick_params(labelleft=False)
    return figure, list(places[: len(panels)])


def _broken(text: str, fits: int) -> str:
    """In lines of so many characters."""
    lines = _symbols(text).split("\n")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, fits))


_SYMBOLS = {
    "epsilon": "ε",
    "delta": "δ",
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "lambda": "λ",
    "omega_0": "ω₀",
}


def _symbols(text: str) -> str:
    """The papers' letters for their names."""
    return re.sub(rf"\b({'|'.join(_SYMBOLS)})\b", lambda found: _SYMBOLS[found[0]], text)


def _legend(
    figure: Figure,
    numbers: Numbers,
    panels: Sequence[Panel],
    series_styles: Mapping[str, SeriesStyle],
) -> None:
    """One legend below all panels, each label once; a line for the authors' curves if drawn."""
    handles: dict[str, Line2D] = {}
    looks: dict[Style, str] = {}
    told = [p for p in panels if not p.points or len(numbers.series(p.key)) > 1]
    for key in _in_order([s for panel in told for s in numbers.series(panel.key)], series_styles):
        style = _style(key, series_styles)
        label = _symbols(series_styles[key].label if key in series_styles else key)
        if key in series_styles and looks.setdefault(style, label) != label:
            raise ValueError(f"{label!r} looks like {looks[style]!r}")
        look = _line(style) | ({"ls": "none"} if any(panel.points for panel in told) else {})
        handles.setdefault(label, Line2D([], [], **look))
    if any(panel.authors for panel in panels):
        handles["thin lines: the authors' own"] = Line2D([], [], color="#555555", lw=0.7)
    if not handles:
        return
    each = _CHARACTER * max(map(len, handles)) + 0.65  # Inches of a label and its line
    hidden = [axes for axes in figure.axes if not axes.get_visible()]
    places: Any = figure.axes[0].get_gridspec()
    across = places.ncols
    free = int(WIDTH / across * len(hidden) / each)
    plain: dict[str, Any] = {"frameon": False, "fontsize": _SIZE, "handlelength": 3.2}
    titled = figure.axes[len(panels) - 1].get_title().count("\n") + 1
    if free and math.ceil(len(handles) / free) * _LINE < _HEIGHTS[across] + _LINE * titled:
        room = figure.add_subplot(places[-1, across - len(hidden) :])
        room.set_axis_off()
        for axes in hidden:
            axes.remove()
        room.legend(list(handles.values()), list(handles), loc="center", ncols=free, **plain)
        return
    columns = max(1, min(int(WIDTH / each), len(handles)))
    lines = 1 + math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + _LINE * lines)
    plain |= {"loc": "outside lower center", "ncols": columns}
    figure.legend(list(handles.values()), list(handles), **plain)


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


def _positions(numbers: Numbers, panel: Panel) -> NDArray[np.float64]:
    """Ours and the authors'."""
    found = [numbers.curve(panel.key, series).x for series in numbers.series(panel.key)]
    found += [np.asarray(x) for x, _ in (panel.authors or {}).values()]
    return np.unique(np.concatenate(found)) if found else np.zeros(0)


def _scales(axes: Any, panel: Panel, x: NDArray[np.float64]) -> None:
    if panel.yscale == "log":
        axes.set_yscale("log")
        _log_ticks(axes.yaxis, np.array(axes.get_ylim()))
    if panel.ticks is not None:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    elif panel.xscale == "log" and x.size and x.min() > 0:
        axes.set_xscale("log")
        _log_ticks(axes.xaxis, x)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
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
        axis.set_major_locator(LogLocator(numticks=8 if axis.axis_name == "x" else 6))
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
