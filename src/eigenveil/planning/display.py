"""A prediction in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eigenveil.markup import fragment, html_of, node, table

if TYPE_CHECKING:
    from eigenveil.planning.predict import Prediction

_NUMBERS = ("captured energy", "shows nothing", "noise (rows)", "message", "memory")
_MEANING = (
    "Simulated on Gaussian rows: no row of yours was read. Captured energy is of the exact "
    "subspace's, ± its standard error; shows nothing is the probability that no component is "
    "usable; noise is its scale in the largest contribution a row can make."
)


def prediction_html(found: Prediction) -> str:
    """What a fit would give, as 'eigenveil plan' says it."""
    trials, energy = found.trials, "-"
    if found.captured_energy is not None:
        error = trials.quality_error
        energy = f"{found.captured_energy:.3f}" + ("" if error is None else f" ± {error:.1g}")
    sizes = (8 * found.released_values, found.memory_bytes)
    cells = (
        energy,
        trials.text(),
        f"{found.noise_rows:.3g}",
        *map(size_text, sizes),
    )
    title = f"Prediction from {trials.fits} simulated fits"
    numbers = table(_NUMBERS, [cells], right=(True,) * len(_NUMBERS), style=True)
    note = node("div", f"note: {found.note}") if found.note else None
    return html_of(fragment(title, numbers, note, node("div", _MEANING)))


def size_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} GiB"
