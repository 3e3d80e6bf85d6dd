"""Figures of a fitted model: each takes the model and ``ax=None``, and returns the Axes.

All show released numbers only and may be shared, but for :func:`plot_scores`, which shows rows: it
is for the owner of the rows, and says so across the picture.
"""

from eigenveil.plots.components import (
    plot_biplot,
    plot_correlations,
    plot_energy,
    plot_loadings,
    plot_maps,
    plot_score_density,
    plot_scores,
    plot_scree,
)
from eigenveil.plots.derived import plot_derived
from eigenveil.plots.mixtures import (
    plot_mixture,
    plot_mixture_strengths,
    plot_topic_strengths,
    plot_topics,
)
from eigenveil.plots.style import figure_bytes, save_figure

__all__ = [
    "figure_bytes",
    "plot_biplot",
    "plot_correlations",
    "plot_derived",
    "plot_energy",
    "plot_loadings",
    "plot_maps",
    "plot_mixture",
    "plot_mixture_strengths",
    "plot_score_density",
    "plot_scores",
    "plot_scree",
    "plot_topic_strengths",
    "plot_topics",
    "save_figure",
]
