"""Draw who sends what to whom: the papers' networks beside this package's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from eigenveil import plots

INK, BLUE, RED, GREY = "#222222", "#0072B2", "#D55E00", "#8c8c8c"
Place = tuple[float, float]
SITES: tuple[Place, ...] = ((0.12, 0.3), (0.5, 0.3), (0.88, 0.3))
LEAVES: tuple[Place, ...] = ((0.1, 0.3), (0.37, 0.3), (0.63, 0.3), (0.9, 0.3))
MIDDLE: tuple[Place, ...] = ((0.235, 0.62), (0.765, 0.62))


def party(axes: Any, at: Place, name: str, colour: str = INK, line: str = "-") -> None:
    box = {"boxstyle": "round,pad=0.35", "fc": "white", "ec": colour, "ls": line, "lw": 1.2}
    axes.text(*at, name, ha="center", va="center", fontsize=8, color=INK, bbox=box, zorder=3)


def sends(
    axes: Any,
    start: Place,
    end: Place,
    *,
    look: tuple[str, str] = (INK, "-"),
    arrow: str = "-|>",
    bend: float = 0.0,
) -> None:
    """An arrow between two parties, straight or bent."""
    style = {"arrowstyle": arrow, "color": look[0], "ls": look[1], "lw": 1.2, "mutation_scale": 9}
    style |= {"shrinkA": 11, "shrinkB": 11, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", end, start, arrowprops=style, zorder=2)


def panels(titles: Sequence[str], notes: Sequence[str]) -> list[Any]:
    """Empty panels side by side, as wide as the text, with what is sent written below."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    places = list(figure.subplots(1, len(titles)))
    for axes, title, note in zip(places, titles, notes, strict=True):
        axes.set_title(title, fontsize=9, color=INK)
        axes.text(0.5, 0.16, note, ha="center", va="top", fontsize=7.5, color=INK, linespacing=1.4)
        axes.set_xlim(0.0, 1.0)
        axes.set_ylim(-0.13, 1.0)
        axes.set_axis_off()
    return places


def network() -> Any:
    """Figure 1 of paper 001, conventional and CAPE, and sites under masks."""
    places = panels(
        ("conventional (001, figure 1, left)", "CAPE (001, figure 1, right)", "Eigenveil"),
        (
            "site s sends a_s + its own noise;\n"
            "the mean of S sites has S times\n"
            "the variance of pooled rows",
            "site s sends a_s + e_s + f_s + g_s;\n"
            "the helper's e_s add up to 0, the\n"
            "aggregator takes its f_s off again;\n"
            "what is left is the noise of pooled rows",
            "site s sends a_s + its share of the noise\n"
            "+ masks, as integers; the masks of two\n"
            "sites cancel, and nobody deals them;\n"
            "what is left is one curator's noise",
        ),
    )
    for axes, aggregator in zip(places, ((0.5, 0.85), (0.27, 0.85), (0.5, 0.85)), strict=True):
        party(axes, aggregator, "aggregator")
        for at, name in zip(SITES, ("site 1", "site s", "site S"), strict=True):
            party(axes, at, name, BLUE)
            sends(axes, at, aggregator)
    cape, ours = places[1:]
    party(cape, (0.82, 0.85), "helper", RED)
    for at in SITES:
        sends(cape, (0.82, 0.85), at, look=(RED, "--"))
        sends(cape, (0.27, 0.85), at, look=(GREY, ":"), bend=0.25)
    cape.text(0.93, 0.62, "e_s", fontsize=8, color=RED, ha="center")
    cape.text(0.03, 0.6, "f_s", fontsize=8, color=GREY, ha="center")
    for (one, other), bend in (((0, 1), 0.0), ((1, 2), 0.0), ((0, 2), 0.35)):
        sends(ours, SITES[one], SITES[other], look=(RED, "--"), arrow="<|-|>", bend=bend)
    ours.text(0.31, 0.345, "masks", fontsize=8, color=RED, ha="center")
    return places[0]


def tree() -> Any:
    """Figure 1 of paper 002, and a tree of this package with a leaf that is lost."""
    places = panels(
        ("Federated-PCA (002, figure 1)", "Eigenveil: federate-tree"),
        (
            "a leaf L keeps (U, Σ) of its stream, with a mask for each batch;\n"
            "an aggregator A merges two: SVD_r of [λ U_1 Σ_1, U_2 Σ_2];\nthe root has the estimate",
            "a leaf sends sums over its rows with its share of the noise, signed;\n"
            "a node adds what has come, late messages later;\n"
            "so many leaves may be lost; the root publishes once, with a certificate",
        ),
    )
    for axes, message in zip(places, ("(U, Σ)", "sums"), strict=True):
        party(axes, (0.5, 0.9), "root")
        for number, at in enumerate(LEAVES):
            lost = axes is places[1] and number == 1
            party(axes, at, "lost" if lost else "L", GREY if lost else BLUE, ":" if lost else "-")
            if not lost:
                sends(axes, at, MIDDLE[number // 2])
        for at in MIDDLE:
            party(axes, at, "A")
            sends(axes, at, (0.5, 0.9))
        axes.text(0.06, 0.47, message, fontsize=8, color=INK, ha="center")
        axes.text(0.27, 0.79, message, fontsize=8, color=INK, ha="center")
    return places[0]


def main(folder: Path) -> None:
    """Write both drawings."""
    folder.mkdir(parents=True, exist_ok=True)
    plots.save_figure(network(), folder / "network.svg")
    plots.save_figure(tree(), folder / "tree.svg")
    print(f"wrote {folder}/network.svg and {folder}/tree.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
