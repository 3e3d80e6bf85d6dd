"""Studies in TOML files that people read: every field that the task has, with its comment."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.study.study import Study, StudyOptions, StudySite, parse_study
from eigenveil.files import replacing
from eigenveil.models.options import options_of, study_options
from eigenveil.models.task import TASKS


def read_study(path: str | Path) -> Study:
    """The study in a TOML file.

    Raises
    ------
    DataError, PrivacyError
        Naming the file, and its line or field.
    """
    try:
        with Path(path).open("rb") as file:
            fields = tomllib.load(file)
    except OSError as problem:
        raise DataError(
            f"{path} cannot be read: {problem.strerror or problem}.",
            hint="Check the path; 'eigenveil study new' writes a study.",
            code="no-such-file",
        ) from None
    except (ValueError, RecursionError) as problem:  # TOMLDecodeError, and text that is not UTF-8
        raise DataError(
            f"{path} is not TOML: {str(problem).rstrip('.')}.",
            hint="Correct that line; 'eigenveil study new' writes a study to start from.",
            code="bad-toml",
        ) from None
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
        lines += _comment(help_text)
        if value is None:
            example = f"# {field} = {_toml(examples[0])}" if examples else ""
            lines += [example, ""]
        else:
            lines += [f"{field} = {_toml(value)}", ""]
    lines += _comment(Study.model_fields["sites"].description or "")
    for site in study.sites:
        lines += ["[[sites]]", f"name = {_toml(site.name)}"]
        if site.epsilon is not None:
            lines += [f"epsilon = {_toml(site.epsilon)}"]
        lines += [""]
    lines += _comment(
        "A site may add: epsilon. " + str(StudySite.model_fields["epsilon"].description)
    )
    return "\n".join(lines) + "\n"


def write_toml(study: Study, path: Path, *, overwrite: bool = False) -> None:
    """Write the study as :func:`template` has it, whole or not at all.

    Raises
    ------
    OutputError
        When the file exists and is not to be replaced, or cannot be written.
    """
    if path.exists() and not overwrite:
        raise OutputError(
            f"{path} exists.", hint="Choose another name, or use --overwrite.", code="output-exists"
        )
    with replacing(path) as scratch:
        scratch.write_text(template(study), encoding="utf-8")
        scratch.chmod(0o644)  # made to be passed around, unlike what shows rows


def schema() -> dict[str, Any]:
    """The JSON schema of a study."""
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


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="# ", subsequent_indent="# ")


def _toml(value: Any) -> str:
    """A value as TOML; long arrays take several lines."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _toml_text(value)
        case dict():
            return f"{{ {', '.join(f'{_toml_key(k)} = {_toml(v)}' for k, v in value.items())} }}"
        case _:
            parts = ", ".join(_toml(part) for part in value)
            return f"[{parts}]" if len(parts) < 80 else f"[\n{_packed(value)}]"


def _packed(values: Iterable[Any]) -> str:
    """Entries of an array, as many on a line as fit."""
    lines = [""]
    for part in map(_toml, values):
        if lines[-1] and len(lines[-1]) + len(part) > 90:
            lines.append("")
        lines[-1] += f" {part}," if lines[-1] else f"    {part},"
    return "".join(f"{line}\n" for line in lines)


def _toml_text(text: str) -> str:
    """A basic string: as in JSON, but that one more control character must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)
