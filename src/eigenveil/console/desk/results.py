"""Results' folders, as pages show them; nothing of it shows a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eigenveil.app.derive import covariance_in, derived_from
from eigenveil.app.parts import Part, Sentence, Strong, TablePart, plain
from eigenveil.app.results import CERTIFICATE, MODEL, load_model, presenter_of, release_values
from eigenveil.console.desk.forms import fields_of, read_values, said_of
from eigenveil.errors import DataError, short_name
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.derived.options import TITLES, options_of_kind
from eigenveil.privacy.certificate import read_certificate

_KINDS = [{"name": name, "title": title} for name, title in TITLES.items()]


class Results:
    _registrar: str | None = None  # Of the federation whose signatures results must have

    def result(self, folder: str) -> dict[str, Any]:
        """What was released, what is guaranteed to whom, and whether that holds."""
        place = Path(folder)
        model: Any = load_model(place / MODEL)
        certificate = read_certificate(place / CERTIFICATE)
        signed_by = None if certificate.signatures is None else self._registrar
        verdict = check(certificate, registrar=signed_by)
        signed = None if verdict.signed is None else str(verdict.signed)
        if certificate.federation is not None and certificate.signatures is None:
            signed = "nobody has signed it"
        guarantee, presenter = model.guarantee_, presenter_of(model)
        usable = getattr(model, "usable_", None)
        return {
            "title": presenter.title(model),
            "follows": _follows(model),
            "parts": list(_plain(presenter.parts(model))),
            "figures": _figures(place, presenter, model),
            "above": None if usable is None else f"{int(usable.sum())} of {usable.size}",
            "stopped": model.certificate_.stopped,
            "releases": [release_values(record) for record in model.certificate_.releases],
            "guarantee": guarantee.as_dict(),
            "holds": verdict.holds,
            "word": verdict.word,
            "explanation": verdict.explanation,
            "signed": signed,
            "sentence": str(guarantee).rstrip(".") + ".",
            "assumptions": list(guarantee.assumptions),
            "caveats": list(guarantee.caveats),
            "views": {
                name: {"epsilon": view.epsilon, "delta": view.delta, "certified": view.certified}
                for name, view in verdict.views.items()
            },
            "downloads": sorted(file.name for file in place.iterdir() if file.is_file()),
        }

    def compare(self, folders: list[str]) -> dict[str, Any]:
        one, other = (load_model(Path(folder) / MODEL) for folder in folders)
        presenter = presenter_of(one)
        if presenter.title(one) != presenter_of(other).title(other):
            raise DataError("not-comparable", why="they are of different tasks")
        if list(_columns(one)) != list(_columns(other)):
            raise DataError("not-comparable", why="they have other columns")
        if (found := presenter.compare(one, other)) is None:
            why = "how results of this kind differ is not worked out"
            raise DataError("not-comparable", why=why)
        return asdict(found)

    def derived_form(self, folder: str, kind: str) -> dict[str, Any]:
        return derived_form(kind, covariance_in(Path(folder))._check_fitted().labels)

    def check_derived(self, folder: str, kind: str, given: dict[str, str]) -> str:
        """What would follow, in a line; refused where it cannot."""
        values = read_values(options_of_kind(kind), given)
        derived_from(Path(folder), kind, values)
        said = [said_of(name, given[name]) for name in values]
        return short_name(", ".join([TITLES[kind], *said]))


def derived_form(kind: str, columns: Iterable[str]) -> dict[str, Any]:
    """All that follows from a covariance, the fields of one kind, and the columns to name."""
    if kind not in TITLES:
        raise DataError("unknown-choice", option="kind", given=kind, known=", ".join(TITLES))
    return {
        "kinds": _KINDS,
        "form": {
            "name": kind,
            "title": TITLES[kind],
            "options": fields_of(options_of_kind(kind), first=True),
            "columns": [short_name(name) for name in columns],
        },
    }


def _follows(model: Any) -> list[dict[str, str]]:
    """The kinds of models that follow from a released covariance, and from nothing else."""
    released = isinstance(model, FittedCovariance) and model.certificate_.stopped is None
    return _KINDS if released else []


def _plain(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    """What is said of a result, as a template takes it."""
    for part in parts:
        if isinstance(part, TablePart):
            yield {
                "title": part.title,
                "headings": list(part.headings),
                "right": [heading in part.right for heading in part.headings],
                "rows": part.plain_rows(),
            }
        else:
            words = part.words if isinstance(part, Sentence) else (part,)
            texts = [plain(each) if isinstance(each, Strong) else str(each) for each in words]
            yield {"title": "", "sentence": " ".join(texts)}


def _figures(place: Path, presenter: Any, model: Any) -> list[dict[str, str]]:
    return [
        {"file": name, "about": f"{drawing.what[:1].upper()}{drawing.what[1:]}."}
        for drawing in presenter.drawings(model)
        for name in drawing.files
        if name.endswith(".svg") and (place / name).is_file()
    ]


def _columns(model: Any) -> Any:
    return getattr(model, "feature_names_in_", range(model.n_features_in_))
