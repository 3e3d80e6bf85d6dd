"""Figures: axes in, axes out, the same bytes for the same model."""

import warnings
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from eigenveil import PrivateGaussianMixture, PrivatePCA, PrivateTopicModel, plots
from eigenveil.errors import printable
from eigenveil.plots.components import _apart
from results_tools import with_factors

ROWS = load_digits().data
NO_VARIANCES = {"scale": 1.0, "center": 3.0, "moment": 12.0}  # Then a sketch shows no correlations


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 0.8, 3.0])
def test_the_band_of_the_scree_plot_and_usable_agree(epsilon):
    """What is drawn is above the band, what is hidden is NaN: whatever the noise, so no chance."""
    with warnings.catch_warnings(action="ignore"):
        model = PrivatePCA(12, epsilon=epsilon).fit(ROWS)
    axes = plots.plot_scree(model)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    hidden = int(np.count_nonzero(~model.usable_))
    assert labels[0] == "what noise alone would show" + f"; hides {hidden} of 12" * (hidden > 0)
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted()).y1
    drawn = {line.get_label(): line.get_data() for line in axes.lines}
    number, filled = drawn["component"]
    assert np.array_equal(number, 1 + np.flatnonzero(model.usable_))
    assert (filled > band * (1 - 1e-9)).all()
    assert np.array_equal(np.isnan(model.explained_variance_), ~model.usable_)
    assert np.array_equal(np.isnan(model.explained_variance_ratio_), ~model.usable_)


def test_biplot_shows_the_features_of_largest_loadings_and_marks_what_is_noise():
    names = [f"a$b_{index}$" for index in range(64)]
    frame = pd.DataFrame(ROWS, columns=names)
    model = PrivatePCA(2, epsilon=2.0).fit(frame)
    axes = plots.plot_biplot(model)
    shown = [text.get_text() for text in axes.texts if text.get_text()]
    longest = np.argsort(-np.hypot(*model.loadings_.T), kind="stable")[:20]
    assert sorted(shown) == sorted(names[index] for index in longest)
    assert len(axes.collections) == 0  # no points: rows are private
    assert not any("not usable" in label for label in (axes.get_xlabel(), axes.get_ylabel()))
    noise = with_factors(model, usable=np.array([True, False]))
    assert plots.plot_biplot(noise).get_ylabel().endswith("not usable")
    assert not plots.plot_biplot(noise).get_xlabel().endswith("not usable")


def test_long_names_are_whole_in_two_lines():
    names = [f"diastolic blood pressure of visit {number} (mmHg)" for number in range(20)]
    rows = pd.DataFrame(np.random.default_rng(1).normal(size=(300, 20)), columns=names)
    model = PrivatePCA(2, epsilon=8.0, random_state=0).fit(rows)
    axes = plots.plot_biplot(model)
    axes.figure.canvas.draw()
    texts = [text for text in axes.texts if text.get_text()]
    assert {text.get_text().replace("\n", " ") for text in texts} == set(names)
    for right in ("left", "right"):
        boxes = [each.get_window_extent() for each in texts if each.get_ha() == right]
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_biplot_of_one_component_and_of_less_than_the_moment():
    one = PrivatePCA(1, epsilon=2.0).fit(ROWS)
    assert not plots.plot_biplot(one).get_ylabel()
    two = PrivatePCA(1, epsilon=3.0, random_state=0).fit(ROWS[:, [10, 20]])  # without names
    assert {t.get_text() for t in plots.plot_biplot(two).texts if t.get_text()} == {"1", "2"}
    assert "not certified" in plots.plot_scree(two).get_title()
    axes = Figure().subplots()
    sketched = PrivatePCA(2, mechanism="sketch", epsilon=2.0, budget_split=NO_VARIANCES).fit(ROWS)
    assert plots.plot_biplot(sketched, ax=axes) is axes
    assert not axes.patches  # no circle: these are no correlations


def test_energy_adds_up_what_the_components_explain():
    model = PrivatePCA(4, epsilon=2.0).fit(ROWS)
    axes = plots.plot_energy(with_factors(model, usable=np.array([True, True, False, False])))
    drawn = {line.get_label(): line.get_data() for line in axes.lines}
    ((label, (number, share)),) = drawn.items()
    assert label == "component (noise hides 2 of 4)"
    assert list(number) == [1, 2]
    assert np.allclose(share, 100 * np.cumsum(model.explained_variance_ratio_)[:2])
    given = Figure().subplots()
    assert plots.plot_energy(model, ax=given) is given


def test_loadings_show_the_features_with_the_largest_ones_and_mark_what_is_noise():
    names = [f"a$b_{index}$" for index in range(64)]
    model = PrivatePCA(3, epsilon=2.0).fit(pd.DataFrame(ROWS, columns=names))
    noise = with_factors(model, usable=np.array([True, True, False]))
    axes = plots.plot_loadings(noise, n_features=7)
    largest = np.argsort(-np.linalg.norm(model.loadings_, axis=1), kind="stable")[:7]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [names[index] for index in np.sort(largest)]
    assert [label.get_text() for label in axes.get_xticklabels()][2] == "PC3\nnot usable"
    axes.figure.draw_without_rendering()
    sketched = PrivatePCA(2, mechanism="sketch", epsilon=2.0, budget_split=NO_VARIANCES).fit(ROWS)
    assert plots.plot_loadings(sketched).get_yticklabels()[-1].get_text().isdigit()


def test_projection_says_that_it_shows_rows():
    model = PrivatePCA(1, epsilon=2.0).fit(ROWS)
    axes = Figure().subplots()
    assert plots.plot_scores(model, model.transform(ROWS), ax=axes) is axes
    assert "not to be shared" in axes.get_title()
    assert "NOT PRIVATE" in [text.get_text() for text in axes.texts]
    assert axes.get_xlabel().startswith("PC1 (")


# -- mixtures and topics


def mixture_of(count, *, features=6, seed=0, **options):
    rng = np.random.default_rng(seed)
    means = 6.0 * rng.standard_normal((count, features))
    rows = means[np.arange(4000) % count] + rng.standard_normal((4000, features))
    return PrivateGaussianMixture(count, epsilon=2.0, **options).fit(rows)


@pytest.fixture(scope="module")
def mixture():
    return mixture_of(3)


@pytest.fixture(scope="module")
def topics():
    rng = np.random.default_rng(1)
    parts = np.repeat(np.eye(3), 4, axis=1) / 4
    return PrivateTopicModel(3).fit(rng.multinomial(15, parts[np.arange(6000) % 3]))


def stretched(model, count, **changes):
    """The model with so many components as if it had found them."""
    rng = np.random.default_rng(2)
    kind = "means" if hasattr(model, "means_") else "topics"
    old = getattr(model, f"{kind}_")
    factors = {
        kind: np.resize(old, (count, old.shape[1])),
        "weights": np.sort(rng.dirichlet(np.ones(count)))[::-1],
        "strengths": np.sort(rng.exponential(size=count))[::-1],
        "noise_floor": 0.4,
    }
    if kind == "means":
        factors["covariances"] = np.resize(model.covariances_, count)
    factors |= {name.removesuffix("_"): value for name, value in changes.items()}
    factors["usable"] = factors["strengths"] > factors["noise_floor"]
    return with_factors(model, **factors)


def boxes(axes):
    """Where texts lie, in pixels."""
    axes.figure.draw_without_rendering()
    return [text.get_window_extent() for text in axes.texts]


def test_strengths_under_the_noise_are_hollow(mixture, topics):
    for model, draw in (
        (mixture, plots.plot_mixture_strengths),
        (topics, plots.plot_topic_strengths),
    ):
        axes = draw(model)
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert "what noise alone would show" in labels
        assert "not usable" not in labels
        axes = draw(stretched(model, 32), ax=Figure().subplots())
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert "not usable" in labels
        drawn = {line.get_label(): len(line.get_xdata()) for line in axes.get_lines()}
        assert drawn["not usable"] == np.sum(stretched(model, 32).strengths_ <= 0.4)
        assert "epsilon = " in axes.get_title()


def test_strengths_far_above_the_noise_still_show_it(mixture):
    axes = plots.plot_mixture_strengths(stretched(mixture, 5, noise_floor_=1e-4))
    assert axes.get_yscale() == "symlog"
    assert plots.plot_mixture_strengths(stretched(mixture, 5)).get_yscale() == "linear"


def test_a_mixture_shows_means_and_no_row(mixture):
    axes = plots.plot_mixture(mixture)
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3"]
    assert len(axes.collections[0].get_offsets()) == 3
    radii = {patch.get_radius() for patch in axes.patches}
    assert radii == set(np.sqrt(mixture.variances_))
    assert axes.get_aspect() == 1.0
    assert "how the means differ" in axes.get_xlabel()
    assert "only" not in axes.get_title()
    kept = stretched(mixture, 3, strengths_=np.array([2.0, 1.0, 0.1]))
    assert "only 2 of 3 stand above the noise" in plots.plot_mixture(kept).get_title()


def test_numbers_of_many_components_do_not_lie_on_each_other(mixture):
    rng = np.random.default_rng(3)
    found = boxes(plots.plot_mixture(stretched(mixture, 32, means_=rng.standard_normal((32, 40)))))
    assert len(found) == 32
    for index, one in enumerate(found):
        for other in found[:index]:
            wide = min(one.x1, other.x1) - max(one.x0, other.x0)
            high = min(one.y1, other.y1) - max(one.y0, other.y0)
            assert min(wide, high) < 3  # pixels: at most their margins touch


def test_one_component_or_feature_can_be_drawn(mixture):
    for count, features in ((1, 6), (3, 1)):
        means = np.arange(float(count * features)).reshape(count, features)
        axes = plots.plot_mixture(stretched(mixture, count, means_=means))
        assert len(axes.texts) == count
    assert (
        plots.plot_mixture(stretched(mixture, 1, means_=np.ones((1, 6)))).get_xlabel()
        == "direction 1"
    )


def test_topics_have_a_panel_each(topics):
    words = [f"word{i}\x1b" for i in range(12)]
    panels = plots.plot_topics(topics, words, n_words=4)
    assert len(panels) == 3
    for index, axes in enumerate(panels):
        shown = [label.get_text() for label in axes.get_yticklabels()]
        assert shown == [printable(word) for word in topics.top_words(words, 4)[index]]
        assert axes.get_title(loc="left").startswith(f"topic {index + 1} (")
    own = Figure()
    assert plots.plot_topics(topics, fig=own)[0].figure is own


def test_long_words_and_many_topics_fit(topics):
    rng = np.random.default_rng(4)
    words = [f"$internationalisation_{i}" for i in range(50)]
    many = stretched(topics, 32, topics_=rng.dirichlet(np.full(50, 0.1), size=32))
    panels = plots.plot_topics(many, words)
    assert len(panels) == 32
    figure = panels[0].figure
    figure.draw_without_rendering()
    size = figure.bbox
    for axes in panels:
        labels = [label for label in axes.get_yticklabels() if label.get_text()]
        ends = [label.get_window_extent() for label in labels]
        assert all(len(label.get_text()) <= 22 for label in labels)
        assert all(end.x0 >= size.x0 for end in ends)
        assert all(one.y0 >= other.y1 - 1 for one, other in pairwise(ends))
        assert axes.get_window_extent().width > 40


def test_the_same_model_gives_the_same_bytes(mixture, topics):
    pca = PrivatePCA(2, epsilon=2.0).fit(ROWS)
    for draw, model in (
        (plots.plot_scree, pca),
        (plots.plot_biplot, pca),
        (plots.plot_mixture, mixture),
        (plots.plot_mixture_strengths, mixture),
        (plots.plot_topics, topics),
        (plots.plot_topic_strengths, topics),
    ):
        for kind in ("png", "svg")[draw is not plots.plot_scree :]:  # SVG has names of its own
            found = [plots.figure_bytes(draw(model), kind) for _ in range(2)]
            assert found[0] == found[1]


@given(st.lists(st.floats(-1, 1), max_size=20), st.floats(0.01, 0.2))
def test_names_beside_arrows_do_not_cover_each_other(heights, gap):
    found = _apart(np.sort(np.array(heights, dtype=float)), gap)
    assert found.shape == (len(heights),)
    assert np.all(np.diff(found) >= gap * (1 - 1e-9))


@pytest.mark.filterwarnings("error")
def test_a_letter_that_no_font_has_is_a_box_and_no_line_of_code():
    axes = Figure().subplots()
    axes.set_title("血圧")
    assert plots.style.figure_bytes(axes, "svg").startswith(b"<?xml")
