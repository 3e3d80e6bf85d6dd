"""Studies, for their lead: drafts, what they would give, and what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.cli.commands.study_run import settled
from eigenveil.cli.presenters.study import adversaries_json, summary
from eigenveil.console.desk.curves import curve_of_study
from eigenveil.console.desk.site import fixed_values
from eigenveil.console.settings import Rows
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.federation.study.study import make_study
from eigenveil.models.task import TASKS
from eigenveil.network.kit import Kit, open_kit
from eigenveil.planning.forecast import forecast
from eigenveil.tables.schema import read_schema


class LeadDesk:
    """What the pages of a lead need.

    Parameters
    ----------
    rows : Rows
        Its kit.
    """

    def __init__(self, rows: Rows) -> None:
        assert rows.kit is not None
        self._kit: Kit = open_kit(rows.kit, role="lead")

    def health(self) -> dict[str, Any]:
        """Whose kit it is, and where its aggregator is."""
        kit = self._kit
        return {
            "name": kit.name,
            "organisation": kit.org,
            "federation": kit.project,
            "aggregator": f"{kit.host}:{kit.port}",
        }

    def draft(self, out: str, fields: dict[str, Any], schema: str | None = None) -> dict[str, Any]:
        """Write a study's file; its protocol is settled in it.

        Parameters
        ----------
        fields : dict
            Of the study.
        schema : str, optional
            A schema's file, in place of columns.
        """
        if schema is not None:
            table = read_schema(schema)
            fields = fields | {"columns": table.names, "table_schema": table}
            if table.unit is not None:
                fields["unit"] = table.unit
        study, reason = settled(make_study(**fields))
        write_toml(study, Path(out))
        return {**fixed_values(study), "reason": reason}

    def study(self, file: str) -> dict[str, Any]:
        """A study in a file: what it does, and what it sends."""
        study = read_study(Path(file))
        sizes = forecast(study, study.width, None)
        return fixed_values(study) | {
            "bytes": sizes.round_bytes,
            "memory": sizes.memory_bytes,
            "adversaries": adversaries_json(study),
            "summary": {k: v for k, v in summary(study, None).items() if k != "table_schema"},
            "predicted": TASKS[study.task].name == "pca",
        }

    def curve(self, file: str, rows: int, spectrum: str) -> dict[str, Any]:
        """Captured energy against epsilon for all sites together."""
        study = read_study(Path(file))
        if study.task != "pca":
            return {"points": [], "problem": "Only PCA's captured energy is forecast."}
        return curve_of_study(study.with_epsilon, rows, spectrum)
