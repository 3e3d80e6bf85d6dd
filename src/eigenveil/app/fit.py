"""A private fit of one table, or of several sites in one process, written to a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.app.events import Advanced, Tell, Told, nobody, telling
from eigenveil.app.ledger_place import usual_ledger
from eigenveil.app.parts import Part, TablePart, bytes_text, strongly, whole
from eigenveil.app.presenters.pca import draw_rows
from eigenveil.app.results import (
    check_free,
    check_place,
    new_folder,
    result_parts,
    result_values,
    site_parts,
    view_parts,
    write_result,
)
from eigenveil.app.rows import Files, WantedColumns, open_sites
from eigenveil.errors import DataError, OutputError, WrongOption, of_system
from eigenveil.federated.running import check_sites, requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.placing import budget_left_text
from eigenveil.federation.protocol.certificates import CheckedSignatures
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.file import read_study as read_study
from eigenveil.federation.study.file import write_toml
from eigenveil.federation.study.study import Study
from eigenveil.io.formats.images import write_maps
from eigenveil.models.task import TASKS, task_named

_NO_LEDGER = (
    "this fit is charged nowhere. What several fits of the same rows cost together is not counted, "
    "and no budget stops them; the certificate says so."
)


@dataclass(frozen=True)
class Account:
    """What a fit is charged to: by default the account of its files in this user's ledger."""

    ledger: str | None = None
    data_set: str | None = None
    charged: bool = True

    def open(self, stack: ExitStack, tell: Tell) -> dict[str, Any]:
        """The parameters of an estimator that is charged; what is open at the end is ended."""
        if not self.charged:
            tell(Told("no ledger", _NO_LEDGER))
            return {}
        return {"ledger": stack.enter_context(Ledger(self.place)), "data_set": self.data_set}

    @property
    def place(self) -> str:
        return usual_ledger(make_folder=True) if self.ledger is None else self.ledger


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What every fit is asked with; ``values`` are of declared options, by their names."""

    out: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    columns: WantedColumns = field(default_factory=WantedColumns)
    figures: bool = True
    overwrite: bool = False


@dataclass(frozen=True)
class TableRequest(FitRequest):
    """A fit of one table."""

    files: Files
    task: str = "pca"
    account: Account = field(default_factory=Account)
    projection: Path | None = None  # A folder, or a file, in which rows are drawn for their owner


@dataclass(frozen=True)
class SitesRequest(FitRequest):
    """A fit of several sites; a ``study`` that all agree on states all options."""

    sites: Mapping[str, Files]
    task: str | None = None
    study: Study | None = None
    ledgers: Path | None = None


@dataclass(frozen=True)
class Fitted:
    """A fitted model, and what was written of it: files, and what each is."""

    model: Any
    out: Path
    written: Sequence[tuple[str, str]]
    picture: Path | None = None

    def as_json(self) -> dict[str, Any]:
        of_sites = {} if self._alone else federation_values(self.model)
        return {**result_values(self.model), **of_sites, "out": self.out}

    def parts(self) -> Iterable[Part]:
        of_sites = [] if self._alone else federation_parts(self.model)
        return [*result_parts(self.model), *of_sites]

    @property
    def _alone(self) -> bool:
        return getattr(self.model, "study_", None) is None


@dataclass(frozen=True)
class FittedStudy(Fitted):
    """The model of a study between organisations, and who has signed its certificate."""

    signed: CheckedSignatures | None = None
    run: str = ""

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"signed": self.signed, "run": self.run}

    def parts(self) -> Iterable[Part]:
        yield from super().parts()
        yield whole(f"certificate: {self.signed}")


def fit_table(asked: TableRequest, tell: Tell = nobody) -> Fitted:
    """Fit to all rows of one table; the folder is made before anything is spent."""
    check_free(asked.out, overwrite=asked.overwrite)
    picture = None
    if asked.projection is not None:
        picture = _picture(asked.projection, asked.out, overwrite=asked.overwrite)
        if asked.columns.cluster is not None:
            raise WrongOption("projection-of-cluster")
    task = task_named(asked.task)
    wanted, values = _with_unit(asked, "table")
    with telling(tell):
        rows = wanted.rows(asked.files)
        with ExitStack() as stack:
            folder = stack.enter_context(new_folder(asked.out))
            charged = asked.account.open(stack, tell)
            model: Any = task.estimator("table")(**values, **charged)
            model.fit_rows(rows, progress=lambda what, count: tell(Advanced(what, count)))
            written = write_result(model, folder, figures=asked.figures)
            written += _maps(asked, model, folder)
        if asked.account.charged:
            _tell_left(asked.account.place, model, tell)
        if picture is not None:  # when the result is safe
            draw_rows(model, rows, picture)
    return Fitted(model, asked.out, written, picture)


def fit_sites(asked: SitesRequest, tell: Tell = nobody) -> Fitted:
    """Run a study over sites in this process, each with its own rows and ledger."""
    check_free(asked.out, overwrite=asked.overwrite)
    task = task_named(asked.task or "pca") if asked.study is None else TASKS[asked.study.task]
    estimator = task.estimator("sites")
    if asked.study is None:
        wanted, values = _with_unit(asked, "sites")
    else:
        if asked.task not in (None, task.name):
            raise set_by_study("task")
        wanted, values = WantedColumns.of_study(asked.study, asked.columns), dict(asked.values)
        usual = {n: v for n, v in estimator().get_params().items() if n != "random_state"}
        for name, value in usual.items():
            if not np.array_equal(values.get(name, value), value):
                raise set_by_study(name)
    model: Any = estimator(**values)
    with telling(tell):
        rows = open_sites(asked.sites, wanted)
        study = model.study_of(rows) if asked.study is None else asked.study
        check_sites(study, rows)  # before ledgers are made
        with new_folder(asked.out) as folder:
            books = None if asked.ledgers is None else open_ledgers(asked.ledgers, study, tell)
            model.fit_study(
                study,
                rows,
                ledgers=books,
                progress=lambda step, count: tell(Advanced(step, count, len(rows))),
            )
            written = write_study_result(model, folder, figures=asked.figures)
            written += _maps(asked, model, folder)
    return Fitted(model, asked.out, written)


def _maps(asked: FitRequest, model: Any, folder: Path) -> list[tuple[str, str]]:
    """What a result of images says of each voxel, as images on the grid of their mask."""
    mask = asked.columns.read.mask
    if mask is None:
        return []
    with suppress(DataError):  # some results have no such numbers, some masks no place
        return [(", ".join(write_maps(model, mask, folder)), "the maps, on the grid of the mask")]
    return []


def write_study_result(model: Any, folder: Path, *, figures: bool) -> list[tuple[str, str]]:
    written = write_result(model, folder, figures=figures)
    write_toml(model.study_, folder / "study.toml")
    return [*written, ("study.toml", "the study that was run, for 'eigenveil study check'")]


def _with_unit(
    asked: TableRequest | SitesRequest, path: Any
) -> tuple[WantedColumns, dict[str, Any]]:
    """The columns, and the options, with the unit that the schema or an option names."""
    values = dict(asked.values)
    wanted = asked.columns.with_unit(values.get("unit"))
    own = None if wanted.schema is None else wanted.schema.unit
    if own is not None and task_named(asked.task or "pca").has("unit", path):
        values["unit"] = own
    return wanted, values


def _tell_left(place: str, model: Any, tell: Tell) -> None:
    """What is left of the accounts that a fit was charged to, for their owner."""
    books, plan_hash = Ledger(place).books(), model.plan_.hash
    mine = [each for each in books.sessions.values() if each.terms.note.endswith(plan_hash)]
    names = {each.terms.data_set for each in mine if each.key.study == mine[-1].key.study}
    for standing in books.standings():
        if standing.budget.data_set in names:
            budget, left = standing.budget, budget_left_text(standing)
            tell(Told("ledger", f"{budget.data_set}: of {budget.bound}, {left}"))


def _picture(place: Path, out: Path, *, overwrite: bool) -> Path:
    """The file to draw rows in, which is not to be published: not in the result's folder."""

    def check_outside(file: Path) -> None:
        if file.resolve().is_relative_to(out.resolve()):
            raise WrongOption("rows-in-result", place=place, out=out)

    check_outside(place)  # before its folder is made
    check_place(place, overwrite=True)
    file = place / "projection.png" if place.is_dir() else place
    if file.suffix.lower() not in (".png", ".svg"):
        raise WrongOption("bad-projection", path=place)
    check_place(file, overwrite=overwrite)
    check_outside(file)
    return file


def set_by_study(name: str) -> DataError:
    """The error of an option that a study states for all its sites."""
    return DataError("set-by-study", name=name)


# -- Ledgers of sites in one process, a file each.


def ledger_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Where each site's ledger is, ``NAME.ledger`` in a folder that is made if absent."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError("cannot-write", path=folder, reason=of_system(error)) from None
    return {name: folder / f"{name}.ledger" for name in names}


def open_ledgers(folder: Path, study: Study, tell: Tell) -> dict[str, Ledger]:
    """Each site's ledger; one that is new gets the study's target as its budget."""
    terms = settle(study)
    found, budget = {}, requested_budget(terms)
    for name, place in ledger_files(folder, terms.names).items():
        ledger = found[name] = Ledger(place)
        if not place.exists() or ledger.budget(budget.data_set) is None:
            ledger.set_budget(budget)
            text = (
                f"{place}: new, with a budget of {budget.bound}, which this study uses up "
                "('eigenveil ledger budget' sets it)."
            )
            tell(Told("ledger", text))
    return found


# -- What is said of a study's run.


def federation_values(model: Any) -> dict[str, Any]:
    return {
        "protocol": model.study_.protocol,
        "choice": model.choice_,
        "study_hash": model.study_.hash,
        "views": {name: view.as_dict() for name, view in model.views_.items()},
        "traffic": {
            name: {
                "messages": traffic.messages,
                "received": traffic.received,
                "sent": traffic.sent,
                "sent_by_step": traffic.sent_by_step,
            }
            for name, traffic in model.traffic_.items()
        },
        "sites": {name: each.as_dict() for name, each in model.site_guarantees_.items()},
        "missing": model.missing_,
    }


def federation_parts(model: Any) -> Iterable[Part]:
    study, rows = model.study_, []
    for name, traffic in model.traffic_.items():
        sent = traffic.sent_by_step
        largest = max(sent, key=lambda step: sent[step], default="")
        rows.append(
            (
                name,
                str(traffic.messages),
                bytes_text(traffic.received),
                bytes_text(traffic.sent),
                f"{largest}: {bytes_text(sent[largest])}" if largest else "none",
            )
        )
    title = f"protocol {study.protocol}, masks {model.certificate_.federation.masks}"
    numbers = ("messages", "received", "sent", "largest message")
    yield TablePart(title, ("site", *numbers), rows, right=numbers)
    if model.choice_:
        yield f"protocol {study.protocol} was chosen: {model.choice_}"
    for name, why in model.missing_.items():
        yield strongly("missing:", f"site {name}: {why}")
    yield from view_parts(model.views_)
    yield from site_parts(model.site_guarantees_)
