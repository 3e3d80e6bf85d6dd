"""Figures: what is drawn in them, that print tells series apart, and that they are repeatable."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from legible import faults, legends, legible
from matplotlib.colors import to_rgb
from PIL import Image

from eigenveil.errors import OutputError
from eigenveil_papers.reproduction import authors, figure
from eigenveil_papers.reproduction.figure import SERIES_STYLES, STYLES, Panel, SeriesStyle
from eigenveil_papers.reproduction.numbers import Measured, Numbers

AUTHORS = {"capepca": ([0.1, 1.0, 10.0], [0.1, 0.2, 0.3])}


def panel(key="a", **options):
    words = {"title": key, "xlabel": "epsilon", "ylabel": "energy", **options}
    return Panel(key, **words)


def numbers(panels=("a", "b"), x=(0.001, 0.1, 10.0), runs=3):
    return Numbers(
        Measured(key, series, at, 0.1 * run + np.log10(at) / 10.0 + 0.5, run)
        for key in panels
        for series in ("capepca", "eigenveil", "mine")
        for at in x
        for run in range(runs)
    )


def labels(drawn):
    (legend,) = legends(drawn)
    return [text.get_text() for text in legend.get_texts()]


def ticks(axes):
    axes.figure.draw_without_rendering()
    low, high = axes.get_xlim()
    shown = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    return [label.get_text() for at, label in shown if low <= at <= high]


def test_every_role_has_a_style_and_every_series_a_role():
    assert {series_style.role for series_style in SERIES_STYLES.values()} <= set(STYLES)
    assert len({series_style.label for series_style in SERIES_STYLES.values()}) == len(
        SERIES_STYLES
    )


def line(style):
    """What a dash pattern looks like: solid, dots near or far, dashes, dashes and dots."""
    if style.dashes == "-":
        return style.dashes
    _, pattern = style.dashes
    return len(pattern), pattern[0] < 2.0, pattern[1] > 2.5 * pattern[0]


def test_print_without_colour_tells_all_roles_apart():
    shapes = {role: (s.marker, s.hollow, line(s)) for role, s in STYLES.items()}
    for one, other in itertools.combinations(shapes, 2):
        assert shapes[one] != shapes[other], (one, other)


def test_a_grid_draws_means_errors_authors_and_one_legend():
    drawn = figure.panel_grid(
        numbers(),
        [panel(authors=AUTHORS), panel("b"), panel("none")],
        SERIES_STYLES,
        columns=3,
        title="T",
    )
    assert [axes.get_title() for axes in drawn.axes if axes.get_visible()] == ["a", "b"]
    first = drawn.axes[0]
    assert first.get_xscale() == "log"
    curves = [container.lines[0] for container in first.containers]
    np.testing.assert_allclose(curves[0].get_ydata(), [0.3, 0.5, 0.7])
    bars = first.containers[0].lines[2][0].get_segments()
    assert bars[0][1][1] - bars[0][0][1] == pytest.approx(2 * 0.1 / 3**0.5)
    thin = [
        line for line in first.lines if line.get_linewidth() < 1.0 and line.get_xdata().size > 2
    ]
    assert [line.get_ydata().tolist() for line in thin] == [AUTHORS["capepca"][1]]
    assert thin[0].get_color() == STYLES["paper"].colour
    # in the order of the looks; what has none keeps its name; the authors' last
    ours, theirs = SERIES_STYLES["eigenveil"].label, SERIES_STYLES["capepca"].label
    assert labels(drawn) == [ours, theirs, "mine", "thin lines: the authors' own"]


def test_a_grid_of_nothing_says_so():
    drawn = figure.panel_grid(Numbers(), [panel()], SERIES_STYLES)
    assert "nothing was measured" in [text.get_text() for text in drawn.texts]


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        ((0.001, 0.01, 1.0, 10.0), ["0.001", "0.01", "0.1", "1", "10"]),
        ((5.0, 10.0, 20.0, 50.0, 100.0), ["5", "10", "20", "50", "100"]),
        ((1e3, 6e4, 2e4), ["1000", "2000", "5000", "10k", "20k", "50k"]),
        ((1e-6, 1e-2), ["$10^{-6}$", "$10^{-5}$", "0.0001", "0.001", "0.01"]),
    ],
)
def test_ticks_of_logarithmic_axes_are_plain_numbers(x, shown):
    drawn = figure.panel_grid(numbers(("a",), x), [panel()], SERIES_STYLES)
    assert ticks(drawn.axes[0]) == shown


def test_axes_follow_the_panel():
    targets = panel(xscale="linear", yscale="log", ylim=(0.1, 2.0))
    axes = figure.panel_grid(numbers(("a",), (1.0, 2.0)), [targets], SERIES_STYLES).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert axes.get_ylim() == (0.1, 2.0)


def test_the_same_numbers_give_the_same_files(tmp_path):
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawn = figure.panel_grid(numbers(), [panel(), panel("b")], SERIES_STYLES)
        paths = figure.save(drawn, tmp_path / name / "000-fig1.x")
        assert [path.name for path in paths] == ["000-fig1.x.png", "000-fig1.x.svg"]
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]
    assert written[0][0].startswith(b"\x89PNG")
    assert not list((tmp_path / "one").glob(".*"))
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        figure.save(drawn, tmp_path / "file" / "figure")


def test_looks_may_be_other_ones():
    drawn = figure.panel_grid(numbers(("a",)), [panel()], {"mine": SeriesStyle("his", "ours-2")})
    assert labels(drawn)[0] == "his"


def test_the_authors_curves_have_our_names(monkeypatch):
    stored = {
        "captured_energy": {
            "mnist_vs_epsilon": {
                "values": [0.1, 1],
                "pooled_dp": [0.5, 0.6],
                "local_dp": [0.1, 0.2],
                "djica_dp": [0.0, 0.0],
                "epsilon": None,
            }
        },
        "component_error": {
            "MOG_vs_epsilon_K_5_D_10_N_100k": {
                "values": [1.0, 2.0, 3.0],
                "capeAGN": [3, 2, 1],
                "local": [4, 3, 2],
                "nonprivate": [0.25],
            },
            "random_comp_error_MOG_K_5_N_10": {"random_vectors": 1.5},
        },
    }
    monkeypatch.setattr(authors, "_stored", lambda: stored)
    energy = authors.authors("captured_energy", "mnist_vs_epsilon")
    assert {name: values.tolist() for name, (_, values) in energy.items()} == {
        "pooled": [0.5, 0.6],
        "local": [0.1, 0.2],
    }
    error = authors.authors("component_error", "MOG_vs_epsilon_K_5_D_10_N_100k")
    assert error["exact"][1].tolist() == [0.25] * 3
    assert error["random"][1].tolist() == [1.5] * 3
    assert error["capeagn"][0].tolist() == [1.0, 2.0, 3.0]
    assert set(error) == {"exact", "random", "capeagn", "local"}
    assert authors.authors("component_error", "none") == {}


def test_letters_stand_before_titles_and_long_ones_are_broken_to_the_width_of_a_panel():
    words = "breast cancer, in place of COVTYPE, epsilon = 0.1, delta = 0.02 and more"
    panels = [panel(title=words, letter="c"), panel("b", title="short", letter="d")]
    drawn = figure.panel_grid(numbers(), panels, SERIES_STYLES, columns=4, title=words * 4)
    drawn.draw_without_rendering()
    whole = drawn.bbox.width
    titles = [axes.title for axes in drawn.axes if axes.get_visible()]
    assert titles[0].get_text().replace("\n", " ") == f"(c) {words}".replace(
        "epsilon", "ε"
    ).replace("delta", "δ")
    assert titles[1].get_text() == "(d) short"
    for title in (*titles, drawn._suptitle):
        box = title.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= whole
    assert titles[0].get_window_extent().x1 < titles[1].get_window_extent().x0


def test_two_series_of_one_look_are_a_defect():
    styles = {"capepca": SeriesStyle("one", "paper"), "eigenveil": SeriesStyle("other", "paper")}
    with pytest.raises(ValueError, match="'other' looks like 'one'"):
        figure.panel_grid(numbers(), [panel()], styles)


def test_a_figure_is_as_wide_as_the_text_and_its_words_are_legible():
    for count in range(1, 8):
        keys = "abcdefg"[:count]
        drawn = figure.panel_grid(numbers(keys), [panel(key) for key in keys], SERIES_STYLES)
        assert drawn.get_size_inches()[0] == figure.WIDTH
        assert not faults(drawn)
        assert legible(drawn)
        assert len({axes.get_position().y0 for axes in drawn.axes}) >= count / 3


def test_words_that_are_small_over_others_or_cut_are_seen():
    panels = [panel(), panel("b", title="of this length a title is not broken" * 3)]
    drawn = figure.panel_grid(numbers(), panels, SERIES_STYLES)
    assert not faults(drawn)
    drawn.axes[1].set_title(panels[1].title, fontsize=5)
    assert not legible(drawn)
    assert any("is cut" in fault for fault in faults(drawn))
    drawn.axes[1].set_title("")
    drawn.axes[0].text(0.5, 0.5, "label", transform=drawn.axes[0].transAxes)
    drawn.axes[0].text(0.5, 0.5, "another", transform=drawn.axes[0].transAxes)
    assert any("'label' is over 'another'" in fault for fault in faults(drawn))


def test_what_neighbours_say_alike_is_said_once():
    panels = [panel(key, ylim=(0.0, 1.0)) for key in "abcd"]
    drawn = figure.panel_grid(numbers("abcd"), panels, SERIES_STYLES, columns=2)
    assert [axes.get_ylabel() for axes in drawn.axes] == ["energy", "", "energy", ""]
    assert [axes.get_xlabel() for axes in drawn.axes] == ["", "", "ε", "ε"]
    other = [panel(), panel("b", xlabel="rows", ylabel="error")]
    drawn = figure.panel_grid(numbers(), other, SERIES_STYLES)
    assert [axes.get_ylabel() for axes in drawn.axes] == ["energy", "error"]


def test_a_legend_stands_in_the_room_of_absent_panels():
    drawn = figure.panel_grid(numbers("abcd"), [panel(key) for key in "abcd"], SERIES_STYLES)
    assert not drawn.legends
    assert len(labels(drawn)) == 3
    assert not faults(drawn)


def test_points_are_drawn_one_by_one_and_a_single_kind_needs_no_legend():
    of_kinds = panel(points=True, xscale="linear")
    drawn = figure.panel_grid(numbers(("a",)), [of_kinds], SERIES_STYLES)
    assert sum(len(line.get_xdata()) for line in drawn.axes[0].lines) == 27
    assert len(labels(drawn)) == 3
    alone = Numbers(row for row in numbers(("a",)).measured if row.series == "mine")
    assert not legends(figure.panel_grid(alone, [of_kinds], SERIES_STYLES))


def test_the_picture_keeps_every_colour(tmp_path):
    roles = {role: SeriesStyle(role, role) for role in STYLES}
    rows = (Measured("a", role, x, 0.1 * k, 0) for k, role in enumerate(STYLES) for x in (1.0, 2.0))
    drawn = figure.panel_grid(Numbers(rows), [panel()], roles)
    png, _ = figure.save(drawn, tmp_path / "all")
    picture = Image.open(png)
    assert picture.size[0] == round(figure.WIDTH * figure.DPI)
    inside = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0).astype(float)
    for role, style in STYLES.items():
        wanted = 255.0 * np.array(to_rgb(style.colour))
        assert np.abs(inside - wanted).max(axis=1).min() <= 8.0, role


@pytest.mark.parametrize("name", ["network", "tree"])
def test_the_words_of_a_diagram_are_legible(name):
    script = runpy.run_path(str(Path(__file__).parents[3] / "examples/diagrams.py"))
    drawn = script[name]().figure
    assert drawn.get_size_inches()[0] == figure.WIDTH
    assert legible(drawn)
    assert not faults(drawn)
