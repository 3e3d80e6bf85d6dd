"""``eigenveil study ask``: which sites have agreed to a study, before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eigenveil.app.study import open_lead, settled
from eigenveil.cli import options
from eigenveil.cli.commands.study import LEAD, LeadFolder, StudyFile, study_app
from eigenveil.cli.commands.study_run import end, fetch, run, status
from eigenveil.cli.presenters.screen import Screen, notify
from eigenveil.errors import DataError
from eigenveil.federation.study.file import read_study

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study
    from eigenveil.network.survey import PartyReport
    from eigenveil.tables.schema import Schema


@study_app.command()
def ask(
    study: StudyFile,
    party: LeadFolder = LEAD,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Ask the study's sites whether they have agreed to it; their owners then see it.

    Nothing runs and nothing is charged. Each site signs its answer.
    """
    from eigenveil.cli.presenters.survey import print_survey, survey_json
    from eigenveil.network.orders import parties_of

    agreed, _ = settled(read_study(study))
    reports = _reports(parties_of(agreed), agreed, party)
    if json:
        options.print_json(survey_json(reports, agreed))
    elif not quiet:
        print_survey(reports, agreed, Screen())


def schema_of_sites(names: Sequence[str], party: Path, *, quiet: bool) -> Schema:
    """What the schemas of sites have in common; who tells none, and where they differ, is noted."""
    from eigenveil.cli.presenters.survey import decision_text, schemas_of
    from eigenveil.tables.common import common_schema

    reports = _reports(names, None, party)
    found = schemas_of(reports)
    silent = [each for each in reports if each.name not in found.told]
    why = "; ".join(
        f"{each.name}: {'does not tell it' if each.answer else decision_text(each)}"
        for each in silent
    )
    if not found.told:
        raise DataError("no-schema-told", why=why)
    schema, differences = common_schema(found.told)
    if not quiet:
        for line in (*map(str, differences), *([f"schema not known of {why}"] if why else [])):
            notify(line)
    return schema


def _reports(names: Sequence[str], study: Study | None, party: Path) -> list[PartyReport]:
    with open_lead(party) as session:
        return session.ask(names, study)


for _of_study in (run, status, end, fetch):
    study_app.command()(_of_study)
