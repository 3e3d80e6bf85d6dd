"""Figures: what is drawn in them, that print tells series apart, and that they are repeatable."""

import itertools

import numpy as np
import pytest

from eigenveil.errors import OutputError
from eigenveil_papers.reproduction import authors, figure
from eigenveil_papers.reproduction.figure import SERIES_STYLES, STYLES, Panel, SeriesStyle
from eigenveil_papers.reproduction.numbers import Measured, Numbers

AUTHORS = {"capepca": ([0.1, 1.0, 10.0], [0.1, 0.2, 0.3])}


def panel(key="a", **options):
    words = {"title": key, "xlabel": "epsilon", "ylabel": "energy", **options}
    return Panel(key=key, **words)


def numbers(panels=("a", "b"), x=(0.001, 0.1, 10.0), runs=3):
    return Numbers(
        Measured(key, series, at, 0.1 * run + np.log10(at) / 10.0 + 0.5, run)
        for key in panels
        for series in ("capepca", "eigenveil", "mine")
        for at in x
        for run in range(runs)
    )


def labels(drawn):
    return [text.get_text() for text in drawn.legends[0].get_texts()]


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


def test_print_without_colour_tells_all_roles_apart():
    shapes = {role: (s.marker, s.dashes, s.width, s.hollow) for role, s in STYLES.items()}
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


def test_a_table_shows_its_cells():
    drawn = figure.table(
        ["data", "ours"], [["a\nb", "1"], ["c", "2"]], title="T", note="n", strong=[(1, 1)]
    )
    cells = drawn.axes[0].tables[0].get_celld()
    assert cells[2, 1].get_text().get_text() == "2"
    assert cells[2, 1].get_text().get_fontweight() == "bold"
    assert cells[1, 1].get_text().get_fontweight() != "bold"
    assert cells[1, 0].get_height() > cells[2, 0].get_height()


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


def test_the_authors_curves_have_our_names(tmp_path, monkeypatch):
    import json

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
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "published.json").write_text(json.dumps(stored))
    monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path))
    authors._stored.cache_clear()
    try:
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
        monkeypatch.setenv("EIGENVEIL_SHARED", str(tmp_path / "none"))
        authors._stored.cache_clear()
        assert authors.authors("captured_energy", "mnist_vs_epsilon") == {}
    finally:
        authors._stored.cache_clear()


def test_letters_stand_before_titles_and_long_ones_are_broken_to_the_width_of_a_panel():
    words = "breast cancer, in place of COVTYPE, epsilon = 0.1, delta = 0.02 and more"
    panels = [panel(title=words, letter="c"), panel("b", title="short", letter="d")]
    drawn = figure.panel_grid(numbers(), panels, SERIES_STYLES, columns=4, title=words * 4)
    drawn.draw_without_rendering()
    whole = drawn.bbox.width
    titles = [axes.title for axes in drawn.axes if axes.get_visible()]
    assert titles[0].get_text().replace("\n", " ") == f"(c) {words}"
    assert titles[1].get_text() == "(d) short"
    for title in (*titles, drawn._suptitle):
        box = title.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= whole
    assert titles[0].get_window_extent().x1 < titles[1].get_window_extent().x0


def test_two_series_of_one_look_are_a_defect():
    styles = {"capepca": SeriesStyle("one", "paper"), "eigenveil": SeriesStyle("other", "paper")}
    with pytest.raises(ValueError, match="'other' looks like 'one'"):
        figure.panel_grid(numbers(), [panel()], styles)
