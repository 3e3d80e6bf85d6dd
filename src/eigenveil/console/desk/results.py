"""Results' folders, as pages show them; nothing of it shows a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.app.parts import as_nodes
from eigenveil.app.results import CERTIFICATE, MODEL, load_model, presenter_of, release_values
from eigenveil.console.desk.ways import title_of
from eigenveil.errors import DataError
from eigenveil.federation.protocol.certificates import check
from eigenveil.markup import html_of
from eigenveil.models.task import TASKS
from eigenveil.privacy.certificate import read_certificate


def read_result(folder: str) -> dict[str, Any]:
    """What was released, what is guaranteed to whom, and whether that holds.

    ``said`` is what the commands print of it, as HTML that was made of escaped texts.
    """
    place = Path(folder)
    model: Any = load_model(place / MODEL)
    certificate = read_certificate(place / CERTIFICATE)
    verdict = check(certificate)
    unsigned = certificate.federation is not None and certificate.signatures is None
    nobody = "nobody has signed it" if unsigned else None
    guarantee, presenter = model.guarantee_, presenter_of(model)
    charts = [each.as_json() for each in presenter.charts(model)]
    usable = getattr(model, "usable_", None)
    return {
        "title": title_of(TASKS[presenter.task]),
        "said": "".join(map(html_of, as_nodes(presenter.parts(model)))),
        "charts": charts,
        "figures": [] if charts else _figures(place, presenter, model),
        "above": None if usable is None else f"{int(usable.sum())} of {usable.size}",
        "stopped": model.certificate_.stopped,
        "releases": [release_values(record) for record in model.certificate_.releases],
        "guarantee": guarantee.as_dict(),
        "holds": verdict.holds,
        "word": verdict.word,
        "explanation": verdict.explanation,
        "signed": nobody if verdict.signed is None else str(verdict.signed),
        "sentence": str(guarantee).rstrip(".") + ".",
        "assumptions": list(guarantee.assumptions),
        "caveats": list(guarantee.caveats),
        "views": {
            name: {"epsilon": view.epsilon, "delta": view.delta, "certified": view.certified}
            for name, view in verdict.views.items()
        },
        "downloads": sorted(file.name for file in place.iterdir() if file.is_file()),
    }


def _figures(place: Path, presenter: Any, model: Any) -> list[dict[str, str]]:
    """The figures in the folder that a page can show."""
    return [
        {"file": name, "about": f"{drawing.what[:1].upper()}{drawing.what[1:]}."}
        for drawing in presenter.drawings(model)
        for name in drawing.files
        if name.endswith(".svg") and (place / name).is_file()
    ]


def compare_results(folders: list[str]) -> dict[str, Any]:
    """How two results differ."""
    one, other = (load_model(Path(folder) / MODEL) for folder in folders)
    presenter = presenter_of(one)
    if presenter_of(other).task != presenter.task:
        raise _not_comparable("They are of different tasks.")
    if list(_columns(one)) != list(_columns(other)):
        raise _not_comparable("They have other columns.")
    found = presenter.compare(one, other)
    if found is None:
        raise _not_comparable("How results of this kind differ is not worked out.")
    return {
        "about": found.about,
        "headings": list(found.headings),
        "lines": [list(line) for line in found.lines],
    }


def _columns(model: Any) -> Any:
    return getattr(model, "feature_names_in_", range(model.n_features_in_))


def _not_comparable(why: str) -> DataError:
    return DataError(why, hint="Choose two of the same study or table.", code="not-comparable")
