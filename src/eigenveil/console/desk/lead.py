"""Studies, for their lead: drafts, what they would give, and what is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eigenveil.app.rows import WantedColumns
from eigenveil.app.study import settled
from eigenveil.app.study_draft import by_schema, draft_study
from eigenveil.console.desk.forms import fields_of, read_values
from eigenveil.console.desk.results import Results
from eigenveil.console.desk.site import fixed_values
from eigenveil.console.desk.ways import ONE_ROW, expected_of, point_of_study
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, EigenveilError, nearest
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.federation.study.study import make_study
from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS, task_named
from eigenveil.network.folder import PartyFolder, open_party
from eigenveil.planning.forecast import forecast
from eigenveil.tables.schema import parse_schema, read_schema


class LeadDesk(Results):
    def __init__(self, rows: Rows) -> None:
        assert rows.party is not None
        self._party: PartyFolder = open_party(Path(rows.party), role="lead")
        self._registrar = self._party.origin
        self._drafts: dict[str, dict[str, Any]] = {}

    def health(self) -> dict[str, Any]:
        """Whose folder it is, where its mailbox is, and who else is in the federation."""
        party, members = self._party, self._party.known.current()
        now = datetime.now(UTC)
        there = {e.name for e in members.entries if e.role == "site" and e.is_in(now)}
        return {
            "name": party.name,
            "organisation": party.organisation,
            "federation": members.head.name,
            "address": party.mailbox_address(),
            "sites": sorted(there),
        }

    @staticmethod
    def kinds() -> list[dict[str, str]]:
        return [{"name": task.name, "title": task.heading} for task in TASKS.values()]

    @staticmethod
    def form(kind: str) -> dict[str, Any]:
        task = task_named(kind)
        return {
            "name": task.name,
            "title": task.heading,
            "options": fields_of(options_of(task.name, "sites").values()),
            "own": fields_of((ONE_ROW,), first=True),
        }

    def draft(
        self,
        out: str,
        kind: str,
        given: dict[str, str],
        fields: dict[str, Any],
        schema: str | None = None,
    ) -> str:
        """Write a study's file, in which its protocol is settled; its hash."""
        task = task_named(kind)
        table = None if schema is None else read_schema(schema)
        if table is not None:
            fields = fields | {"columns": table.names, "table_schema": table}
        values = read_values(options_of(task.name, "sites").values(), given)
        one = read_values((ONE_ROW,), given).get(ONE_ROW.name, False)
        WantedColumns(schema=table).whose_rows(values.get("unit"), one=one)
        known = self.health()["sites"]
        for name in fields["sites"]:
            if name not in known:
                raise DataError("no-such-member", site=name, near=nearest(name, known))
        study, _ = settled(draft_study(task, values, table, **fields))
        write_toml(study, Path(out))
        return study.hash

    def drafts(self, folder: str) -> list[dict[str, Any]]:
        """The studies in a folder, by their files; one that cannot be read says why."""
        found = {}
        for file in sorted(Path(folder).glob("*.toml")):
            state = file.stat()
            mark = f"{file} {state.st_mtime_ns} {state.st_size}"
            found[mark] = self._drafts.get(mark) or _in_short(file)
        self._drafts = found
        return list(found.values())

    def redraft(self, file: str, out: str, name: str, schema: dict[str, Any]) -> str:
        """Write another study like one in a file, with the columns of a schema; its hash."""
        table = parse_schema(schema, origin="The sites' schema")
        fields = read_study(Path(file)).model_dump(mode="json") | {"name": name, "features": None}
        fields |= {"columns": table.names, "table_schema": table.as_dict()}
        study = make_study(**by_schema(fields, table))
        write_toml(study, Path(out))
        return study.hash

    def study(self, file: str) -> dict[str, Any]:
        """A study in a file: what it does, and what it sends."""
        study = read_study(Path(file))
        task = TASKS[study.task]
        sizes = forecast(study, study.width, None)
        return fixed_values(study) | {
            "bytes": sizes.round_bytes,
            "memory": sizes.memory_bytes,
            "expected_rows": study.expected_rows,
            "quality": task.quality,
            "expected": fields_of(expected_of(task), first=True),
        }

    def point(self, file: str, given: dict[str, str], rows: int, epsilon: float) -> dict[str, Any]:
        """What all sites together would give at an epsilon, simulated without any row."""
        return point_of_study(read_study(Path(file)), given, rows, epsilon)


def _in_short(file: Path) -> dict[str, Any]:
    try:
        study = read_study(file)
    except EigenveilError as error:
        return {"file": file.stem, "problem": error.message}
    return {
        "file": file.stem,
        "problem": "",
        "title": TASKS[study.task].heading,
        "features": study.width,
        "sites": list(study.names),
        "epsilon": study.epsilon,
        "protocol": study.protocol,
    }
