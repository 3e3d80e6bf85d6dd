"""A study before it runs: written by its lead, checked by everybody, put before its sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.app.parts import Part, TablePart
from eigenveil.app.presenters.study import summary, summary_parts
from eigenveil.app.rows import WantedColumns
from eigenveil.app.study import open_lead, settled
from eigenveil.app.study_plan import choice_of
from eigenveil.errors import DataError, EigenveilError, nearest
from eigenveil.federation.study.file import read_study, schema, write_toml
from eigenveil.federation.study.options import sites_of
from eigenveil.federation.study.study import Study, make_study
from eigenveil.io import ReadOptions, read_vocabulary
from eigenveil.models.options import OF_SITES
from eigenveil.models.task import Task
from eigenveil.moments.source import RowSource
from eigenveil.network.channel import sentence
from eigenveil.network.orders import parties_of
from eigenveil.network.survey import NOT_A_MEMBER, NOT_CONNECTED, REVOKED, PartyReport
from eigenveil.planning.protocol import Chosen
from eigenveil.tables.common import Difference, common_schema
from eigenveil.tables.schema import Schema, read_schema

__all__ = [
    "ColumnSource",
    "NewStudy",
    "ask_sites",
    "check_study",
    "draft_study",
    "new_study",
    "read_study",
    "schema",
]


@dataclass(frozen=True)
class StudyWritten:
    study: Study
    choice: Chosen | None  # Of its protocol, where the lead left it open
    out: Path

    def as_json(self) -> dict[str, Any]:
        return {**summary(self.study, self.choice), "out": str(self.out)}

    def parts(self) -> Iterator[Part]:
        yield f"written to {self.out}: hash {self.study.hash}"
        if self.choice is not None:
            yield f"protocol {self.choice.protocol}: {self.choice.reason}"


@dataclass(frozen=True)
class ColumnSource:
    """Where a study's columns come from: one of these."""

    columns: list[str] | None = None
    features: int | None = None
    from_file: str | None = None
    vocabulary: Path | None = None
    schema: Path | None = None
    from_sites: bool = False

    def check(self) -> None:
        """Refuse several, and none."""
        given = (self.columns, self.features, self.from_file, self.vocabulary, self.schema)
        count = sum(each is not None for each in given) + self.from_sites
        if count != 1:
            raise DataError("columns-given-twice", count=count)

    def fields(self, wanted: WantedColumns) -> dict[str, Any]:
        """The fields of a study that name its columns."""
        if self.vocabulary is not None:
            return {"columns": tuple(read_vocabulary(self.vocabulary))}
        if wanted.schema is not None:
            return {"columns": wanted.schema.names, "table_schema": wanted.schema}
        if self.from_file is None:
            return {"columns": self.columns, "features": self.features}
        rows = wanted.open([self.from_file])
        return {"features": rows.features} if rows.names is None else {"columns": tuple(rows.names)}


@dataclass(frozen=True)
class NewStudy:
    """A study as its lead asks for it; ``about`` is its name, who asks for it, and why."""

    task: Task
    targets: dict[str, Any]  # Of declared options, checked
    source: ColumnSource
    sites: Sequence[str]  # Their names
    read: ReadOptions
    about: Mapping[str, Any]

    def schema(self, party: Path, notify: Callable[[str], None]) -> Schema | None:
        """That of a file, or what those of the sites have in common."""
        if self.source.from_sites:
            return schema_of_sites(self.sites, party, notify)
        return None if self.source.schema is None else read_schema(self.source.schema)


def new_study(
    asked: NewStudy,
    out: Path,
    *,
    whose: Mapping[str, bool],
    party: Path,
    overwrite: bool,
    notify: Callable[[str], None],
) -> StudyWritten:
    """Write a study file that every site can read, check and agree to."""
    targets = dict(asked.targets)
    if isinstance(targets.get("center"), np.ndarray):
        targets["center"] = targets["center"].ravel()
    asked.source.check()
    table = asked.schema(party, notify)
    wanted = WantedColumns(schema=table, read=asked.read).with_unit(targets.get("unit"))
    wanted.whose_rows(targets.get("unit"), **whose)
    own = dict(asked.about)
    if own["name"] is None:
        own["name"] = _name_of(out)
    own |= asked.source.fields(wanted)
    written = draft_study(asked.task, targets, wanted.schema, sites=asked.sites, **own)
    # settled in the file: all sites must run the same, and see what they agree to
    choice = choice_of(written)
    made = written if choice is None else written.with_protocol(choice.protocol)
    write_toml(made, out, overwrite=overwrite)
    return StudyWritten(made, choice, out)


def by_schema(values: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    """The fields of a study, with what a schema decides: whose rows they are, and their ranges."""
    found = dict(values)
    if schema is not None and schema.unit is not None:
        found["unit"] = schema.unit
    if schema is not None and found.get("scale") == "private":
        ranges = schema.public_ranges()
        if np.isfinite(ranges).all():  # as a fit of rows that are read by the schema
            found["ranges"] = ranges.tolist()
    return found


def draft_study(
    task: Task, targets: dict[str, Any], schema: Schema | None, *, sites: Sequence[str], **own: Any
) -> Study:
    """A study of checked options, and of what a schema says."""
    values = by_schema(targets, schema)
    of_sites = {name: values.pop(name, None) for name in OF_SITES}
    return make_study(
        task=task.name,
        components=values.pop("n_components", task.usual_components),
        sites=sites_of(task.options("sites", **of_sites), sites),
        **own,
        **values,
    )


def _name_of(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).lstrip("_.-")[:64] or "study"


# -- what it means, and whether files fit it


@dataclass(frozen=True)
class StudyChecked:
    study: Study
    choice: Chosen | None
    files: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return {**summary(self.study, self.choice), "files": self.files}

    def parts(self) -> Iterator[Part]:
        return summary_parts(self.study, self.choice, self.files)


def check_study(file: Path, given: Sequence[str], read: ReadOptions) -> StudyChecked:
    """What a study means, and whether sites' files (``SITE=FILE``) fit it; no row is used."""
    study = read_study(file)
    checked = _check_files(study, _site_files(study, given), read=read)
    return StudyChecked(study, choice_of(study), checked)


def _site_files(study: Study, given: Sequence[str]) -> dict[str, str]:
    names = [site.name for site in study.sites]
    files: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not (equals and file):
            raise DataError("bad-file-of-site", site=text, name=names[0])
        if name not in names:
            raise DataError("unknown-site", site=repr(name), near=nearest(name, names))
        if name in files:
            raise DataError("site-given-twice", text=text, site=name)
        files[name] = file
    return files


def _check_files(study: Study, files: Mapping[str, str], *, read: ReadOptions) -> dict[str, str]:
    """What was found of each site's file; all errors are reported at once."""
    found: dict[str, str] = {}
    wrong: list[tuple[str, EigenveilError]] = []
    wanted = WantedColumns.of_study(study, WantedColumns(read=read))
    for name, file in files.items():
        try:
            found[name] = _fits(study, wanted.open_like([file]))
        except EigenveilError as error:
            wrong.append((name, error))
    if wrong:
        found_wrong = (f"site {name!r}: {error.message.rstrip('.')}" for name, error in wrong)
        first = wrong[0][1]
        raise DataError.relayed(f"{'; '.join(found_wrong)}.", hint=first.hint, code=first.code)
    return found


def _fits(study: Study, rows: RowSource) -> str:
    if rows.features != study.width:
        raise DataError(
            "other-features", whose="its file", features=rows.features, wanted=study.width
        )
    named = study.columns is not None and rows.names is not None
    return f"all {study.width} columns are there ({'by name' if named else 'by number'})"


# -- before its sites


def ask_sites(study: Path, party: Path) -> Survey:
    """Ask the study's sites whether they have agreed to it; their owners then see it."""
    agreed, _ = settled(read_study(study))
    return Survey(_reports(parties_of(agreed), agreed, party), agreed)


def schema_of_sites(names: Sequence[str], party: Path, notify: Callable[[str], None]) -> Schema:
    """What the schemas of sites have in common; who tells none, and where they differ, is told."""
    reports = _reports(names, None, party)
    found = schemas_of(reports)
    why = "; ".join(
        f"{each.name}: {'does not tell it' if each.answer else decision_text(each)}"
        for each in reports
        if each.name not in found.told
    )
    if not found.told:
        raise DataError("no-schema-told", why=why)
    schema, differences = common_schema(found.told)
    for line in (*map(str, differences), *([f"schema not known of {why}"] if why else [])):
        notify(line)
    return schema


def _reports(names: Sequence[str], study: Study | None, party: Path) -> list[PartyReport]:
    with open_lead(party) as session:
        return session.ask(names, study)


# -- what parties answered: in words, and as plain values


_STATES = {
    "new": "not seen before; waits for its owner now",
    "waiting": "waits for its owner",
    "full": "not put before its owner: so many studies wait there already",
    "used": "was approved; its runs are used up, and it waits again",
    "expired": "was approved until a date that has passed; it waits again",
    "refused": "refused",
    "revoked": "was approved, and the approval was revoked",
    "no-part": "takes no part in this study",
    "not-told": "does not say",
    "not-asked": "-",
}
_PROBLEMS = {
    NOT_CONNECTED: "not connected",
    NOT_A_MEMBER: "unknown: not in the federation's list of members",
    REVOKED: "it was revoked",
}


def decision_text(report: PartyReport) -> str:
    """What a party decided, or why that is not known."""
    found = report.answer
    if found is None:
        return _PROBLEMS.get(report.problem) or sentence(report.problem)
    if found.state != "approved":
        return _STATES[found.state] + (f": {found.reason}" if found.reason else "")
    runs = "any number of runs"
    if found.runs is not None:
        runs = f"{found.runs} more run{'' if found.runs == 1 else 's'}"
    until = "" if found.until is None else f" until {found.until:%Y-%m-%d %H:%M} UTC"
    return f"approved: {runs}{until}"


def is_connected(report: PartyReport) -> bool:
    """Whether the party was there: it answered, or the aggregator says so."""
    return report.problem not in (NOT_CONNECTED, NOT_A_MEMBER)


@dataclass(frozen=True)
class Schemas:
    """What the schemas that parties told have in common."""

    told: dict[str, Schema]
    common: Schema | None = None  # `None` where nobody told one, or no feature is in all
    differences: tuple[Difference, ...] = ()
    problem: str = ""  # Why there is no common one


def schemas_of(reports: Sequence[PartyReport]) -> Schemas:
    told = {
        each.name: schema
        for each in reports
        if each.answer is not None and (schema := each.answer.schema_told) is not None
    }
    if not told:
        return Schemas(told, problem="no site tells its schema")
    try:
        return Schemas(told, *common_schema(told))
    except DataError as error:
        return Schemas(told, problem=error.message)


@dataclass(frozen=True)
class Survey:
    reports: Sequence[PartyReport]
    study: Study

    def as_json(self) -> dict[str, Any]:
        reports, study, schemas = self.reports, self.study, schemas_of(self.reports)
        return {
            "study_hash": study.hash,
            "agreed": bool(reports) and all(each.agreed for each in reports),
            "sites": [
                {
                    "name": each.name,
                    "agreed": each.agreed,
                    "decision": decision_text(each),
                    "connected": is_connected(each),
                    "problem": each.problem,
                    "schema": _schema_text(each, study),
                    **({} if each.answer is None else each.answer.model_dump(mode="json")),
                }
                for each in reports
            ],
            "common_schema": None if schemas.common is None else schemas.common.as_dict(),
            "differences": [asdict(each) for each in schemas.differences],
            "schema_problem": schemas.problem,
        }

    def parts(self) -> Iterator[Part]:
        study, reports = self.study, self.reports
        rows = [
            (
                each.name,
                decision_text(each),
                "yes" if is_connected(each) else "no",
                "-" if each.answer is None else each.answer.version,
                _schema_text(each, study),
            )
            for each in reports
        ]
        headings = ("site", "decision", "connected", "version", "schema")
        title = f"study {study.name}, hash {study.hash[:12]}"
        yield TablePart(title, headings, rows, overflow="fold")
        schemas = schemas_of(reports)
        yield from map(str, schemas.differences)
        if schemas.told and schemas.common is None:
            yield schemas.problem
        missing = [each.name for each in reports if not each.agreed]
        if missing:
            yield (
                f"not agreed: {', '.join(missing)}. A study that is started waits for them; this "
                "one is before the owners who are connected."
            )
        else:
            yield "All have agreed: a study that is started now begins at once."


def _schema_text(report: PartyReport, study: Study) -> str:
    """Whether a party's schema reads its table as the study does."""
    schema = None if report.answer is None else report.answer.schema_told
    if schema is None:
        return "-" if report.answer is None else "not told"
    if study.table_schema is None:
        return f"told ({len(schema.read)} of its columns are read)"
    lacking = [c.name for c in study.table_schema.read if schema.column(c.name) is None]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return f"without {', '.join(lacking[:3])}{more}"
    differs = study.table_schema.difference(schema)
    return differs or "as the study's"
