"""Studies in TOML files that people read: every field that the task has, with its comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eigenveil.errors import OutputError
from eigenveil.federation.study.options import StudyOptions
from eigenveil.federation.study.study import Study, StudySite, parse_study
from eigenveil.files import read_toml, replacing, toml_comment, toml_value
from eigenveil.models.options import OF_SITES, options_of, study_options
from eigenveil.models.task import TASKS
from eigenveil.tables.schema import schema_lines


def read_study(path: str | Path) -> Study:
    fields = read_toml(path, hint="'eigenveil study new' writes a study")
    return parse_study(fields, origin=str(path))


def template(study: Study) -> str:
    """The study as a commented TOML file; :func:`read_study` makes the same study of it."""
    lines = [
        "# A study for eigenveil: what its sites agree on before anything is computed.",
        "# Every site holds the same file. 'eigenveil study check FILE' explains it.",
        "",
    ]
    for field, help_text, examples in _fields(study):
        value = getattr(study, field)
        if field == "table_schema":
            continue  # last, as TOML has it
        lines += toml_comment(help_text)
        if value is None:
            example = f"# {field} = {toml_value(examples[0])}" if examples else ""
            lines += [example, ""]
        else:
            lines += [f"{field} = {toml_value(value)}", ""]
    lines += toml_comment(Study.model_fields["sites"].description or "")
    for site in study.sites:
        given = site.model_dump(exclude_none=True).items()
        lines += ["[[sites]]", *(f"{field} = {toml_value(value)}" for field, value in given), ""]
    for field in OF_SITES.values():
        about = StudySite.model_fields[field].description
        lines += toml_comment(f"A site may add: {field}. {about}")
    lines += ["", *toml_comment(Study.model_fields["table_schema"].description or "")]
    if study.table_schema is None:
        lines += ["# [table_schema]"]
    else:
        lines += ["[table_schema]", *schema_lines(study.table_schema, "table_schema.columns")]
    return "\n".join(lines) + "\n"


def write_toml(study: Study, path: Path, *, overwrite: bool = False) -> None:
    """Write the study as :func:`template` has it, whole or not at all."""
    if path.exists() and not overwrite:
        raise OutputError("output-exists", path=path)
    with replacing(path) as scratch:
        scratch.write_text(template(study), encoding="utf-8")
        scratch.chmod(0o644)  # made to be passed around, unlike what shows rows


def schema() -> dict[str, Any]:
    found = Study.model_json_schema()
    found["required"].remove("components")  # a model need not have any
    counted = [name for name, task in TASKS.items() if task.counted]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "if": {"properties": {"task": {"enum": counted}}},
        "then": {"required": ["components"]},
    }


def _fields(study: Study) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Fields with what they mean and examples: the study's own first, then the task's options."""
    options = study_options(study.task)
    for field, info in Study.model_fields.items():
        if field == "components":
            if TASKS[study.task].counted:
                option = options_of(study.task, "sites")["n_components"]
                yield field, option.help, option.examples
        elif field != "sites" and field not in StudyOptions.model_fields:
            yield field, info.description or "", info.examples or ()
    for field, option in options.items():
        yield field, option.help, option.examples
