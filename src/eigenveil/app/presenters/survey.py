"""What parties answered a lead before a study: in words, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.app.parts import Part, TablePart
from eigenveil.errors import DataError
from eigenveil.network.channel import sentence
from eigenveil.network.survey import NOT_A_MEMBER, NOT_CONNECTED, REVOKED, PartyReport
from eigenveil.tables.common import Difference, common_schema
from eigenveil.tables.schema import Schema

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study

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
