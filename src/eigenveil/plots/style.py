"""What all figures share: colours, Axes, the guarantee in the title, and files.

matplotlib is imported when something is drawn, and not before.
"""

from __future__ import annotations

import io
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.errors import number_text, printable
from eigenveil.models.stored import StoredModel

_LONGEST_NAME, _LONGEST_LINE = 48, 24
BLUE, GREY, RED, INK = "#2b6cb0", "#a0aec0", "#c05621", "#2d3748"
PALETTE = (
    *(BLUE, RED, "#2f855a", "#6b46c1", "#b7791f", "#97266d"),
    *("#0987a0", "#1a202c", "#9ae6b4", "#f6ad55", "#d6bcfa", "#718096"),
)
COLOURS = PALETTE[:6]
"""Of targets, one each; the palette of groups has as many as there can be."""


def figure_of(size: tuple[float, float]) -> Any:
    """A new figure of a width and height in inches.

    In a notebook it is one of pyplot's, which the notebook then shows; elsewhere it belongs to
    nobody, so that programs that draw many figures need not close them.
    """
    if _in_notebook():
        import matplotlib.pyplot as plt

        return plt.figure(figsize=size, layout="constrained")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def axes_of(ax: Any, size: tuple[float, float]) -> Any:
    """The Axes that were given, or those of a new figure."""
    return figure_of(size).subplots() if ax is None else ax


def _in_notebook() -> bool:
    interactive = sys.modules.get("IPython")
    return interactive is not None and interactive.get_ipython() is not None


def circle(center: Any, radius: float, **style: Any) -> Any:
    """A circle, to be added to Axes."""
    from matplotlib.patches import Circle

    return Circle(center, radius, **style)


def line_of(**style: Any) -> Any:
    """A line or mark of a legend, which is drawn nowhere else."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


def whole_numbers(**how: Any) -> Any:
    """Where ticks stand on an axis of whole numbers, or of few ticks: matplotlib's locator."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(**how)


def open_frame(axes: Any) -> None:
    """No lines above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


def feature_names(model: Any) -> list[str]:
    """Names of a model's features as they can be shown.

    Features without names are numbered from 1, as everywhere.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [str(number) for number in range(1, model.n_features_in_ + 1)]
    return [label_text(name) for name in names]


def label_text(name: object) -> str:
    """A name beside an axis: in two lines where it is long, and cut beyond these."""
    return textwrap.fill(printable(name, most=_LONGEST_NAME), _LONGEST_LINE)


def promise(model: StoredModel) -> str:
    """The guarantee, for a title."""
    guarantee = model.guarantee_
    return (
        f"epsilon = {guarantee.epsilon:.3g}, delta = "
        f"{number_text(guarantee.delta, 2)}, {guarantee.adjacency}"
        + ("" if guarantee.certified else " (not certified)")
    )


_DPI = 150


def save_figure(axes: Any, path: Path) -> None:
    """Write the figure of ``axes`` (one, or an array) to a file.

    The same model gives the same bytes.
    """
    _save(axes, path, path.suffix.removeprefix("."))


def figure_bytes(axes: Any, kind: str = "svg", *, dpi: int = _DPI) -> bytes:
    """The same as the bytes of a file of a kind, such as ``svg`` or ``png``."""
    stream = io.BytesIO()
    _save(axes, stream, kind, dpi)
    return stream.getvalue()


def _save(axes: Any, target: Any, kind: str, dpi: int = _DPI) -> None:
    import matplotlib as mpl

    figure = np.ravel(axes)[0].figure
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "eigenveil"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a box shows that the font lacks a letter
        figure.savefig(target, dpi=dpi, format=kind, metadata=metadata)
