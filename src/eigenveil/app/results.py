"""A fitted model as commands and pages tell it, and the folder that it is written to."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import eigenveil
from eigenveil import plots
from eigenveil.app.parts import Part, TablePart, strongly
from eigenveil.app.presenters.base import Presenter
from eigenveil.app.presenters.pca import PCAPresenter
from eigenveil.app.presenters.tensors import MixturePresenter, TopicPresenter
from eigenveil.errors import (
    LONGEST_NAME,
    DataError,
    OutputError,
    WrongOption,
    all_printable,
    number_text,
    of_system,
    short_name,
)
from eigenveil.export import FORMATS, ExportFormat
from eigenveil.files import hold, replacing
from eigenveil.models.covariance.estimator import load_derived
from eigenveil.models.covariance.presenter import CovariancePresenter
from eigenveil.models.derived.base import RECIPE
from eigenveil.models.derived.presenter import DerivedPresenter
from eigenveil.models.ica.presenter import ICAPresenter
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.model_file import estimator_of
from eigenveil.models.stored import StoredModel
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import RELEASES, ReleaseRecord, release_cells
from eigenveil.tables.schema import write_schema

PRESENTERS: Mapping[str, type[Presenter]] = {
    kind.task: kind
    for kind in (PCAPresenter, MixturePresenter, TopicPresenter, CovariancePresenter, ICAPresenter)
}
_EVERY: tuple[type[Presenter], ...] = (*PRESENTERS.values(), DerivedPresenter)


def presenter_of(model: StoredModel) -> Presenter:
    return next(presenter for presenter in presenters() if isinstance(model, presenter.stored))


def presenters() -> Iterator[Presenter]:
    return (kind() for kind in _EVERY)


def load_model(path: Path) -> StoredModel:
    if (path.parent / RECIPE).exists():
        return load_derived(path.parent)
    name = estimator_of(path)
    if any(name in kind.stored._FAMILY for kind in PRESENTERS.values()):
        kind: type[StoredModel] = getattr(eigenveil, name)
        return kind.load(path)
    raise DataError("unknown-estimator", path=path, name=name)


def result_values(model: StoredModel) -> dict[str, Any]:
    presenter, found = presenter_of(model), intervals_of(model)
    return {
        "task": presenter.task,
        **presenter.values(model),
        "intervals": {"why": found} if isinstance(found, str) else found.as_dict(),
        "releases": [release_values(record) for record in model.certificate_.releases],
        "guarantee": guarantee_values(model.guarantee_),
        "plan_hash": model.certificate_.plan_hash,
    }


def guarantee_values(guarantee: Guarantee) -> dict[str, Any]:
    return {**guarantee.as_dict(), "sentence": str(guarantee)}


def release_values(record: ReleaseRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "values": record.noise.size,
        "sensitivity": record.sensitivity(),
        "noise": record.noise.kind,
        "scale": record.noise.scale,
        "mu": None if record.pure else record.mu(),
        "epsilon": record.epsilon() if record.pure else None,
    }


# -- What is said of it.


def result_parts(model: StoredModel) -> Iterator[Part]:
    certificate, guarantee = model.certificate_, model.guarantee_
    yield from presenter_of(model).parts(model)
    if certificate.stopped is not None:
        yield strongly("the fit ended early:", f"{certificate.stopped}.")
    yield release_table(certificate.releases)
    yield from _worst_view(getattr(model, "views_", {}), guarantee)
    yield strongly("guarantee:", guarantee)
    yield from assumptions(guarantee)


def _worst_view(views: Mapping[str, Guarantee], target: Guarantee) -> Iterator[Part]:
    """Who could learn most, where that is more than the target: before the target itself."""
    name = max(views, key=lambda each: views[each].epsilon, default=None)
    if name is None or views[name].epsilon <= target.epsilon * (1.0 + 1e-9):
        return
    worst = views[name]
    text = (
        f"against {'another site' if name == 'site' else short_name(name)} the guarantee is "
        f"epsilon = {worst.epsilon:.4g} at delta = "
        f"{number_text(worst.delta)}, not {target.epsilon:g}"
    )
    if name == "site":
        text += (
            ": it knows its own share of the noise. With --collusion 1 (in a study: collusion = 1) "
            "the target holds against it as well"
        )
    yield strongly("worst view:", f"{text}.")


def assumptions(guarantee: Guarantee) -> Iterator[Part]:
    """What must be true of the rows for a guarantee to mean what it says, and what else to know.

    Of one that is not certified its sentence says that.
    """
    for each in guarantee.assumptions:
        yield f"  assumes: {each}."
    for each in guarantee.caveats if guarantee.certified else ():
        yield f"  note: {each}."


def release_table(
    records: Sequence[ReleaseRecord], *, title: str = "releases: all that is computed from rows"
) -> Part:
    """What left the rows, with which noise, at which cost."""
    cells = release_cells(records)
    names = all_printable([name for name, *_ in cells], most=LONGEST_NAME)
    rows = [(name, *others) for name, (_, *others) in zip(names, cells, strict=True)]
    return TablePart(title, RELEASES, rows, right=("values", "sensitivity", "loss"))


def view_parts(views: Mapping[str, Guarantee]) -> Iterator[Part]:
    """What each adversary is held to, the worst first."""
    rows = [
        (
            short_name(name),
            f"{guarantee.epsilon:.4g}",
            number_text(guarantee.delta, 3),
            "-" if guarantee.mu is None else f"{guarantee.mu:.4g}",
            "yes" if guarantee.certified else "NO",
        )
        for name, guarantee in sorted(views.items(), key=lambda item: -item[1].epsilon)
    ]
    numbers = ("epsilon", "delta", "mu", "certified")
    title = "the guarantee against each adversary"
    yield TablePart(title, ("adversary", *numbers), rows, right=numbers)
    for guarantee in views.values():
        if not guarantee.certified:
            yield f"  {guarantee}"


def site_parts(sites: Mapping[str, Guarantee]) -> Iterator[Part]:
    """What each site's rows are held to, where they do not all count alike."""
    if len({each.epsilon for each in sites.values()}) < 2:
        return
    rows = [
        (name, f"{each.epsilon:.4g}", "-" if each.mu is None else f"{each.mu:.4g}")
        for name, each in sites.items()
    ]
    numbers = ("epsilon", "mu")
    yield TablePart("guarantee, by site", ("site", *numbers), rows, right=numbers)


# -- The result folder: written whole or not at all.


MODEL, CERTIFICATE, SCHEMA = "model.npz", "certificate.json", "schema.toml"
# A scratch folder, and the file in it that names its owner, locked while its process lives.
_SCRATCH, _OWNER = ".eigenveil-", "being-written.json"


def check_place(path: Path, *, overwrite: bool) -> bool:
    """Refuse a place where nothing can be written, before anything is read or spent.

    Its folder is made where it is missing, so that what is wrong with it is seen now, and taken
    away again: nothing is left behind where what follows is refused.
    """
    try:
        there, folder = path.exists(), path.absolute().parent
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
    except (OSError, ValueError) as error:
        raise OutputError("cannot-write", path=path, reason=of_system(error)) from None
    if there and not overwrite:
        raise OutputError("output-exists", path=path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError("no-such-folder", folder=folder, reason=of_system(error)) from None
    finally:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()
    return there


def write_text(text: str | bytes, out: Path, *, overwrite: bool) -> None:
    """Write a file whole or not at all."""
    check_place(out, overwrite=overwrite)
    with replacing(out) as scratch:
        scratch.write_bytes(text if isinstance(text, bytes) else text.encode())


def write_format(schema: object, out: Path, *, overwrite: bool) -> None:
    """Write the JSON schema of a file, for editors and other programs."""
    write_text(json.dumps(schema, indent=2) + "\n", out, overwrite=overwrite)


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that exists, before anything is read or spent; a result may be replaced."""
    if check_place(folder, overwrite=overwrite) and not (folder / CERTIFICATE).exists():
        raise OutputError("not-overwritten", folder=folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder beside ``folder`` that becomes it when all went well.

    Those that killed processes have left there are removed first.
    """
    target = folder.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
        mark = _mark(scratch)
    except OSError as error:
        raise OutputError("cannot-write", path=target.parent, reason=of_system(error)) from None
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        (scratch / _OWNER).unlink()
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        mark.close()


def _mark(scratch: Path) -> IO[str]:
    """Say in a scratch folder whose it is, and hold the lock that ends with the process."""
    mark = (scratch / _OWNER).open("w", encoding="utf-8")
    hold(mark, wait=True)
    json.dump({"host": platform.node(), "process": os.getpid()}, mark)
    mark.flush()
    return mark


def sweep(folder: Path) -> None:
    """Remove the scratch folders in ``folder`` whose processes were killed.

    Only those with this package's mark, of this host, whose lock nobody holds.  They hold what was
    released at most, never rows.
    """
    for scratch in folder.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if scratch.is_symlink():
                continue
            with (scratch / _OWNER).open("r+", encoding="utf-8") as mark:
                if hold(mark) and json.load(mark)["host"] == platform.node():
                    shutil.rmtree(scratch)


def write_result(model: StoredModel, folder: Path, *, figures: bool) -> list[tuple[str, str]]:
    """Write everything that is released; returns (file, what it is). Nothing of it shows a row."""
    presenter = presenter_of(model)
    model.save(folder / MODEL)
    model.certificate_.write(folder / CERTIFICATE)
    files = [
        (MODEL, f"the model, for 'eigenveil transform' and {type(model).__name__}.load"),
        (CERTIFICATE, "the recorded noise, for 'eigenveil certify'"),
        *presenter.write(model, folder),
    ]
    if model.schema_ is not None:
        write_schema(model.schema_, folder / SCHEMA)
        files.append((SCHEMA, "what the columns are"))
    return files + (write_figures(presenter, model, folder) if figures else [])


def write_figures(presenter: Presenter, model: Any, folder: Path) -> list[tuple[str, str]]:
    files = []
    for drawing in presenter.drawings(model):
        axes = drawing.draw()
        for name in drawing.files:
            plots.save_figure(axes, folder / name)
        files.append((", ".join(drawing.files), drawing.what))
    return files


def export(
    result: Path, to: str, out: Path | None = None, *, overwrite: bool = False
) -> tuple[ExportFormat, Path]:
    """Write a result's model for other programs; returns the format, and where it is."""
    if to not in FORMATS:
        raise WrongOption("unknown-choice", option="--to", given=to, known=", ".join(FORMATS))
    chosen = FORMATS[to]
    place = result / f"model{chosen.ending}" if out is None else out
    check_place(place, overwrite=overwrite)
    chosen.write(load_model(result / MODEL), place)
    return chosen, place
