"""Figures: axes in, axes out, the same bytes for the same model."""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from eigenveil import PrivatePCA, plots

ROWS = load_digits().data


def test_scree_marks_components_under_the_noise(tmp_path):
    model = PrivatePCA(12, epsilon=0.8).fit(ROWS)
    axes = plots.scree(model)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert ("not usable" in labels) == (not model.usable_.all())
    assert "what noise alone would show" in labels
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        plots.save_figure(plots.scree(model), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_projection_says_that_it_shows_rows():
    model = PrivatePCA(1, epsilon=2.0).fit(ROWS)
    axes = Figure().subplots()
    assert plots.projection(model, model.transform(ROWS), ax=axes) is axes
    assert "not to be shared" in axes.get_title()
    assert axes.get_xlabel().startswith("PC1 (")


def test_a_seeded_result_is_marked():
    model = PrivatePCA(2, random_state=np.random.default_rng(1)).fit(ROWS)
    assert "not certified" in plots.scree(model).get_title()
