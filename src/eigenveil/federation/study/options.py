"""A study's options: its fields, of their declarations, and those of one table that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from eigenveil.errors import DataError, listed, nearest
from eigenveil.models.domains import NONE, refused
from eigenveil.models.model_options import COVARIANCE, MIXTURE, OF_SKETCH, PCA, TOPICS
from eigenveil.models.options import (
    OF_SITES,
    OPTIONS,
    Options,
    options_of,
    plain_values,
    study_options,
    tasks_with,
)
from eigenveil.models.task import TASKS
from eigenveil.privacy.releases import Settled
from eigenveil.privacy.statistics import STATISTICS

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study


def _field_of(name: str, *, required: bool = False) -> Any:
    """A study's field, from the option's declarations."""
    declared = [one for one in OPTIONS if one.name == name and "sites" in one.paths]
    helps = [
        one.help if len(one.tasks) == len(TASKS) else f"Of {listed(one.tasks)}: {one.help}"
        for one in declared
    ]
    schemas: list[Any] = [one.schema() for one in declared]
    return Field(
        default=... if required else declared[0].default,
        description=" ".join(helps),
        examples=[example for one in declared for example in one.examples] or None,
        json_schema_extra=schemas[0] if len(schemas) == 1 else {"anyOf": schemas},
    )


def declared(values: Mapping[str, Any]) -> dict[str, Any]:
    """A study's fields, those that are options of its task checked and plain."""
    task, found = values.get("task", PCA), dict(values)
    if task not in tuple(TASKS):
        known = ", ".join(map(repr, TASKS))
        raise DataError("unknown-task", task=f"task = {task!r:.60}", known=known)
    options = study_options(task)
    if TASKS[task].counted:
        count = options_of(task, "sites")["n_components"]
        some = tuple(each for each in count.values if each is not NONE)
        options = {**options, "components": replace(count, name="components", values=some)}
    else:
        found.setdefault("components", None)
    for name, field in StudyOptions.model_fields.items():
        usual = field.default if name != "components" else None
        if name in found and name not in options and found[name] != usual:
            tasks = tuple(each for each, of in TASKS.items() if of.counted)
            if name != "components":
                tasks = tasks_with(name, "sites")
            raise DataError(
                "field-of-other-task",
                field=name,
                value=f"{found[name]!r:.40}",
                tasks=listed(map(repr, tasks), "or"),
                task=task,
            )
    return found | plain_values(options, found)


def sites_of(options: Options, names: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """A study's sites, with what options say of single ones."""
    found: dict[str, dict[str, Any]] = {name: {"name": name} for name in names}
    for option, field in OF_SITES.items():
        for name, number in (options[option] or {}).items():
            if name not in found:
                raise options.refused(option, "not-a-site", name=name, near=nearest(name, found))
            found[name][field] = float(number)
    return tuple(found.values())


if TYPE_CHECKING:

    class StudyOptions(Settled):
        """The options of all tasks, as fields of a study."""

        def __getattr__(self, name: str) -> Any: ...

else:
    StudyOptions = create_model(
        "StudyOptions",
        __base__=Settled,
        **{
            one.name: (Any, _field_of(one.name))
            for task in TASKS
            for one in study_options(task).values()
        },
        components=(Any, _field_of("n_components", required=True)),
    )


def pca_of_study(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of one table that follow from a study's protocol, and what else its plan needs."""
    protocol = study.likely_protocol
    if study.given_columns is not None and not protocol.takes_columns:
        option = study_options(study.task)[OF_SKETCH]
        columns = study.given_columns
        raise refused(option, "sketch-not-sent", columns=columns, protocol=protocol.name)
    once = protocol.sketches or protocol.own_moment  # what a site sends is released at once
    if once and study.is_given("mechanism"):
        option = study_options(study.task)["mechanism"]
        raise refused(
            option, "no-joint-mechanism", mechanism=study.mechanism, protocol=protocol.name
        )
    if protocol.sketches:
        return {"mechanism": "sketch"}, {}
    for name in ("covariates", "scores_by") if protocol.own_moment else ():
        if (columns := getattr(study, name)) is not None:
            option = study_options(study.task)[name]
            raise refused(option, "no-joint-covariates", columns=columns, protocol=protocol.name)
    values = whole_of_study(study)[0] if once else {}
    # one site's fit is that of a table, which may be of a sketch; others send whole moments
    sent = {} if protocol.first_site_only else {"sketch_columns": study.sketch_columns}
    return values | {OF_SKETCH: None}, sent


def whole_of_study(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of a model that needs the whole second moment: the noise that sites can share."""
    return {"mechanism": STATISTICS["second-moment"].usual(pure=study.delta == 0).name}, {}


def tensors_of_study(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of mixtures and topics: the form of the pair moment."""
    protocol = study.likely_protocol
    if protocol.sketches:
        return {"pair": "sketch"}, {}
    by_size = protocol.sketches_by_size(pure=study.delta == 0)
    return {"pair": "auto" if by_size else "full"}, {}


# What a study makes of the options of one table, by its task.
OF_ONE_TABLE = {
    PCA: pca_of_study,
    MIXTURE: tensors_of_study,
    TOPICS: tensors_of_study,
    COVARIANCE: whole_of_study,
}
