"""Showing a fit to people and programs, and writing its result folder."""

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

from rich.table import Table

from eigenveil import plots
from eigenveil.cli.presenters.registry import presenter_of
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.errors import OutputError, short_name
from eigenveil.files import hold
from eigenveil.models.display import RELEASES, release_cells
from eigenveil.models.stored import StoredModel
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.tables.schema import Schema, write_schema


def as_json(model: StoredModel) -> dict[str, Any]:
    """The released result as plain values."""
    presenter = presenter_of(model)
    return {
        "task": presenter.task,
        **presenter.values(model),
        "releases": [release_as_json(record) for record in model.certificate_.releases],
        "guarantee": {**model.guarantee_.as_dict(), "sentence": str(model.guarantee_)},
        "plan_hash": model.certificate_.plan_hash,
    }


def print_model(model: StoredModel, out: Screen) -> None:
    """The components, the guarantee, and what each release spent."""
    presenter_of(model).show(model, out)
    if model.certificate_.stopped is not None:
        out.print(bold("the fit ended early:"), f"{model.certificate_.stopped}.")
    print_releases(model.certificate_.releases, out)
    _print_worst_view(getattr(model, "views_", {}), model.guarantee_, out)
    out.print(bold("guarantee:"), model.guarantee_)
    print_assumptions(model.guarantee_, out)


def _print_worst_view(views: Mapping[str, Guarantee], target: Guarantee, out: Screen) -> None:
    """Who could learn most, where that is more than the target: before the target itself."""
    name = max(views, key=lambda each: views[each].epsilon, default=None)
    if name is None or views[name].epsilon <= target.epsilon * (1.0 + 1e-9):
        return
    worst = views[name]
    text = (
        f"{'another site' if name == 'site' else short_name(name)} is held to epsilon = "
        f"{worst.epsilon:.4g} at delta = {worst.delta:g}, not to {target.epsilon:g}"
    )
    if name == "site":
        text += (
            ": it knows its own share of the noise. With --collusion 1 (in a study: collusion = 1) "
            "it is held to the target as well"
        )
    out.print(bold("worst view:"), f"{text}.")


def print_assumptions(guarantee: Guarantee, out: Screen) -> None:
    """What must be true of the rows for a guarantee to mean what it says, and what else to know.

    Of one that is not certified its sentence says that.
    """
    for each in guarantee.assumptions:
        out.print(f"  assumes: {each}.")
    for each in guarantee.caveats if guarantee.certified else ():
        out.print(f"  note: {each}.")


def print_releases(
    records: Sequence[ReleaseRecord],
    out: Screen,
    *,
    title: str = "releases: all that is computed from rows",
) -> None:
    """What left the rows, with which noise, at which cost."""
    table = Table(title=title)
    for name in RELEASES:
        table.add_column(name, justify="left" if name in ("release", "noise") else "right")
    for record in records:
        name, *others = release_cells(record)
        table.add_row(short_name(name), *others)
    out.print(table)


def release_as_json(record: ReleaseRecord) -> dict[str, Any]:
    """The same of one release as plain values."""
    return {
        "name": record.name,
        "values": record.noise.size,
        "sensitivity": record.sensitivity(),
        "noise": record.noise.kind,
        "scale": record.noise.scale,
        "mu": None if record.pure else record.mu(),
        "epsilon": record.epsilon() if record.pure else None,
    }


def print_views(views: Mapping[str, Guarantee], out: Screen) -> None:
    """What each adversary is held to, the worst first."""
    table = Table(title="what each adversary is held to")
    for name in ("adversary", "epsilon", "delta", "mu", "certified"):
        table.add_column(name, justify="left" if name == "adversary" else "right")
    for name, guarantee in sorted(views.items(), key=lambda item: -item[1].epsilon):
        table.add_row(
            short_name(name),
            f"{guarantee.epsilon:.4g}",
            f"{guarantee.delta:.3g}",
            "-" if guarantee.mu is None else f"{guarantee.mu:.4g}",
            "yes" if guarantee.certified else "NO",
        )
    out.print(table)
    for guarantee in views.values():
        if not guarantee.certified:
            out.print(f"  {guarantee}")


# -- The result folder: written whole or not at all.


MODEL, CERTIFICATE, SCHEMA = "model.npz", "certificate.json", "schema.toml"
# A scratch folder, and the file in it that names its owner, locked while its process lives.
_SCRATCH, _OWNER = ".eigenveil-", "being-written.json"


def check_place(path: Path, *, overwrite: bool) -> bool:
    """Refuse a place where nothing can be written, before anything is read or spent.

    Its folder is made where it is missing, so that what is wrong with it is seen now.
    """
    try:
        there, folder = path.exists(), path.absolute().parent
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.",
            hint="Choose another name.",
            code="cannot-write",
        ) from None
    if there and not overwrite:
        raise OutputError(
            f"{path} exists.",
            hint="Choose another --out, or use --overwrite.",
            code="output-exists",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be made a folder: {error.strerror or error}.",
            hint="Choose another place.",
            code="no-such-folder",
        ) from None
    return there


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that exists, before anything is read or spent; a result may be replaced."""
    if check_place(folder, overwrite=overwrite) and not (folder / CERTIFICATE).exists():
        raise OutputError(
            f"{folder} exists and is not a result of eigenveil; it is not overwritten.",
            hint="Choose another --out.",
            code="output-exists",
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder beside ``folder`` that becomes it when all went well.

    Those that killed processes have left there are removed first.
    """
    target = folder.absolute()
    try:
        sweep(target.parent)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
        mark = _mark(scratch)
    except OSError as error:
        raise OutputError(
            f"{target.parent} cannot be written: {error.strerror}.", hint="Choose another --out."
        ) from None
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


def write_result(
    model: StoredModel, folder: Path, *, figures: bool, schema: Schema | None = None
) -> list[tuple[str, str]]:
    """Write everything that is released; returns (file, what it is). Nothing of it shows a row."""
    presenter = presenter_of(model)
    model.save(folder / MODEL)
    model.certificate_.write(folder / CERTIFICATE)
    files = [
        (MODEL, f"the model, for 'eigenveil transform' and {type(model).__name__}.load"),
        (CERTIFICATE, "the recorded noise, for 'eigenveil certify'"),
        *presenter.write(model, folder),
    ]
    if schema is not None:
        write_schema(schema, folder / SCHEMA)
        files.append((SCHEMA, "what the columns are, for 'eigenveil transform'"))
    for drawing in presenter.drawings(model) if figures else ():
        axes = drawing.draw()
        for name in drawing.files:
            plots.save_figure(axes, folder / name)
        files.append((", ".join(drawing.files), drawing.what))
    return files
