"""A study: what several sites agree on before anything is computed, in one file that all hold.

Whatever cannot be promised is refused here, in words, before any row is touched: the same checks
run in every site's own software. Noise of a sum over sites is drawn in shares: the ``honest`` sites
that certainly take part and tell nobody (all, less the colluding and the lost) suffice for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from eigenveil.checks import MOST_WHOLE
from eigenveil.errors import DataError, EigenveilError, listed, short_name
from eigenveil.federation.masks import MASKS
from eigenveil.federation.protocols import PROTOCOLS, Protocol
from eigenveil.federation.secagg.consistency import even, threshold
from eigenveil.federation.study.checks import (
    bad_field,
    check_study,
    coarse_weights,
    in_proportion,
    site_weight,
    urgency,
)
from eigenveil.federation.study.options import OF_ONE_TABLE, StudyOptions, declared
from eigenveil.models.model_options import MOST_COMPONENTS, OF_SKETCH, PCA
from eigenveil.models.options import (
    Options,
    study_options,
)
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.plan import BasePlan
from eigenveil.models.schedule import SITE_MEANS
from eigenveil.models.task import TASKS
from eigenveil.moments.histograms import count_variables
from eigenveil.planning.protocol import choose_protocol
from eigenveil.privacy.certificate import plan_hash
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import Settled
from eigenveil.tables.scales import public_preparation
from eigenveil.tables.schema import Schema, parse_schema
from eigenveil.tables.schema_format import json_schema

FORMAT = "eigenveil-study-1"
# Weights of sites with smaller targets are multiples of 2**-10.
WEIGHT_BITS = 10
# Up to so many sites every two share a mask; beyond, each shares masks with as many others.
_COMPLETE_UP_TO = 16

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Column = Annotated[str, Field(min_length=1)]
Sentence = Annotated[str, Field(max_length=1000)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST_WHOLE)]
Target = Annotated[float, Field(strict=True)]  # what is no number at all is refused as a target


class StudySite(Settled):
    """One site."""

    name: Name = Field(
        description="The site's name: letters, digits and _ . - (64 at most), the first a letter "
        "or digit."
    )
    epsilon: Target | None = Field(
        default=None,
        description="The site's own, smaller target at the study's delta; its rows then count with "
        "a smaller weight.",
        json_schema_extra={"exclusiveMinimum": 0},
        examples=[0.5],
    )
    weight: Target | None = Field(
        default=None,
        description="How much a row of the site counts beside one of another, such as the quality "
        "of its measurements. Give it for every site or for none; only proportions matter.",
        json_schema_extra={"exclusiveMinimum": 0},
        examples=[2.0],
    )


def _schema_of(value: Any) -> Schema | None:
    """A schema less how a file is written, which is a site's own matter and no study's."""
    if value is None:
        return None
    found = parse_schema(value, origin="table_schema")
    if found is not value and found != found.agreed():
        what = "how a file is written is in each site's own schema, and not in a study's"
        raise DataError("bad-schema", where="table_schema", what=what)
    return found.agreed()


class Study(StudyOptions):
    """What the sites agree on; made by :func:`make_study`, :func:`read_study`, :func:`parse_study`.

    A study that exists can be run: every combination of fields that cannot is refused.
    """

    model_config = ConfigDict(title="eigenveil study", arbitrary_types_allowed=True)

    format: Literal["eigenveil-study-1"] = Field(description="The format of this file.")
    name: Name = Field(
        description="Names the study: letters, digits and _ . - (64 at most), the first a letter "
        "or digit."
    )
    requested_by: Sentence = Field(
        default="",
        description="Who asks for the study: a name, an organisation. Shown to every owner.",
        examples=["Dr. A. Example, University Hospital North"],
    )
    purpose: Sentence = Field(
        default="",
        description="What the result is for. Shown to every owner who decides about the study.",
        examples=["which laboratory values vary together after surgery"],
    )
    task: str = Field(
        default=PCA,
        description="What is computed: "
        + ", ".join(f"{name!r} ({task.title})" for name, task in TASKS.items())
        + ".",
        json_schema_extra={"enum": list(TASKS)},
    )
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Names of the columns that every site's files have, in the order of the "
        "result. Give either columns or features.",
        examples=[["age", "weight"]],
    )
    features: Count | None = Field(
        default=None,
        description="Number of columns, where files have no names for them. Give either columns "
        "or features.",
        examples=[64],
    )
    table_schema: Annotated[
        Schema | None,
        BeforeValidator(_schema_of),
        PlainSerializer(lambda schema: None if schema is None else schema.as_dict()),
        WithJsonSchema({"anyOf": [json_schema(reading=False), {"type": "null"}]}),
    ] = Field(
        default=None,
        description="The schema of the sites' tables ('eigenveil schema new' writes one): all "
        "sites read their files with it. Columns are then its encoded ones.",
    )
    sites: Annotated[tuple[StudySite, ...], Field(min_length=1)] = Field(
        description="The sites: at least one, each with a name of its own."
    )

    if TYPE_CHECKING:  # declared: see StudyOptions
        components: int | float | Literal["auto"] | None
        epsilon: float
        delta: float
        adjacency: Adjacency
        protocol: str
        masks: str
        collusion: int
        dropouts: int
        neighbours: int | None
        within_sites: bool
        expected_rows: int | None

    @model_validator(mode="before")
    @classmethod
    def _declared(cls, values: Any) -> Any:
        return declared(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        check_study(self)
        self.public_columns  # noqa: B018 - refused here, before any row is touched
        self.plan(self.width).check_budget()
        self.weights()

    @property
    def hash(self) -> str:
        """SHA-256 of the study's canonical JSON: two sites hold the same study if these agree."""
        return plan_hash(self.model_dump(mode="json"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    @cached_property
    def active(self) -> tuple[str, ...]:
        """Names of the sites that take part."""
        return self.names[:1] if PROTOCOLS[self.protocol].first_site_only else self.names

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.features if self.features is not None else len(self.columns or ())

    @property
    def honest(self) -> int:
        """Sites whose shares of noise suffice: all, less the colluding and the lost."""
        return len(self.sites) - self.collusion - self.dropouts

    @property
    def fewest_sites(self) -> int:
        """Sites with which a run still ends well."""
        return len(self.sites) - self.dropouts

    @property
    def degree(self) -> int:
        """Number of other sites with which each site shares masks."""
        others = len(self.sites) - 1
        requested = self.neighbours
        if requested is None:
            requested = default_neighbours(len(self.sites), self.collusion, self.dropouts)
        return min(others, even(requested))  # a ring has as many on either side

    @property
    def threshold(self) -> int:
        """Shares that give a secret back, of those that a site and its neighbours hold.

        So many that an aggregator that makes two different statements, and the colluding sites,
        which answer both, cannot have both of a site's secrets.
        """
        return threshold(self.degree + 1, self.collusion)

    @property
    def signatures(self) -> int:
        """Sites that must sign who took part in a round before its sum is unmasked.

        Only where sites may be lost. T, so many that colluding sites, who sign anything, cannot
        make two sets pass: 2 T - sites > collusion. At most sites - dropouts, so that no more are
        waited for than there are: a study whose lost sites' secrets can be given back has this, as
        a site and its neighbours are some of all sites (docs/proofs/views.md, claim 8).
        """
        return threshold(len(self.sites), self.collusion)

    @property
    def most_components(self) -> int:
        """How many components there can be: so many, or, where they are counted, the most."""
        if isinstance(self.components, int):
            return self.components
        return self.plan(self.width).n_components

    @property
    def sketch_columns(self) -> int:
        """R of a sketch, or of DPdisPCA's factors; at most the number of columns."""
        usual = PROTOCOLS[self.protocol].columns_a_component
        count = self.components
        most = count if isinstance(count, int) else min(self.width, MOST_COMPONENTS)
        return min(self.width, self.given_columns or usual * most)

    @property
    def given_columns(self) -> int | None:
        """R, where the study gives it."""
        columns: int | None = getattr(self, OF_SKETCH)
        return columns

    @property
    def likely_protocol(self) -> Protocol:
        """The protocol; a sketch where one is to be chosen and the sketch's columns are given."""
        return PROTOCOLS[self.protocol].likely(columns_given=self.given_columns is not None)

    def is_given(self, option: str) -> bool:
        """Whether the study says of an option what it would not be otherwise."""
        return bool(getattr(self, option) != study_options(self.task)[option].default)

    @property
    def public_center(self) -> NDArray[np.float64] | None:
        """The public centre, shape (D,), if there is one."""
        return np.array(self.center) if isinstance(self.center, tuple) else None

    @property
    def public_columns(self) -> dict[str, Any]:
        """What is public about columns, as the task's rounds take it."""
        found: dict[str, Any] = {"public_center": self.public_center}
        if TASKS[self.task].has("scale", "sites"):
            found["preparation"] = public_preparation(
                self.scale, self.ranges, self.width, self.columns
            )
        if self._finds_scales:
            found["variables"] = self._variables
        return found

    @property
    def _finds_scales(self) -> bool:
        return self.scale == "private" and self.ranges is None

    @property
    def _variables(self) -> NDArray[np.float64] | None:
        """The variable that each column belongs to, where the schema says it."""
        return None if self.table_schema is None else self.table_schema.variable_numbers()

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever agrees to the study should know, in sentences."""
        found, protocol = [], PROTOCOLS[self.protocol]
        count = len(self.sites)
        if count > 1 and self.honest == 1 and not protocol.whole_noise:
            found.append(
                "Honest sites = 1: nobody is left to hide among, so every site draws the whole "
                "noise and the result is as noisy as if each released by itself."
            )
        if protocol.note and (count > 1 or protocol.own_moment):
            found.append(protocol.note.format(first=self.sites[0].name))
        if MASKS[self.masks].note and count > 1:
            found.append(MASKS[self.masks].note)
        if len(self.active) == 1 and self.sites[0].weight is not None:
            found.append("Weights change nothing where one site takes part.")
        if self.within_sites:
            found.append(
                "Each site's mean and number of rows, with noise, are part of the result: "
                f"{self._part_of_means:.0%} of the budget."
                if len(self.active) > 1
                else "within_sites changes nothing where one site takes part."
            )
        if self.table_schema is not None and self.table_schema.groups:
            own = [short_name(column.name) for column in self.table_schema.categories]
            found.append(
                f"Rows of each level of {listed([repr(name) for name in own])} are counted apart "
                "from the features: the result has their numbers, exact but for noise."
            )
        return tuple(found)

    @property
    def _part_of_means(self) -> float:
        """What the sites' means take of mu squared (of epsilon, if delta = 0)."""
        plan = self.plan(self.width)
        planned = plan.planned(SITE_MEANS)
        return planned.fraction * plan.fractions[planned.step]

    def weights(self) -> dict[str, int]:
        """Weight of each site's rows, in units of ``2**-WEIGHT_BITS``.

        A site with a smaller target has the share of the study's mu (of epsilon, if delta = 0) that
        it targets, rounded down: the common noise then gives it what it targets (privacy.md, 5). In
        mixtures and topics it is rounded further, for sums of more rows. Weights that the study
        gives keep their proportions: the largest such that no site has more than its target allows.
        """
        whole = 1 << WEIGHT_BITS
        targets = {site.name: site.epsilon for site in self.sites if site.epsilon is not None}
        weights = dict.fromkeys(self.names, whole)
        if targets:
            plan = self.plan(self.width)
            for name, epsilon in targets.items():
                weights[name] = site_weight(plan, name, epsilon, whole=whole)
        if len(self.active) > 1:
            weights = in_proportion(weights, self.sites, whole=whole)
        if TASKS[self.task].fine_weights:
            return weights
        return coarse_weights(weights, bits=WEIGHT_BITS)

    def row_weights(self) -> dict[str, float]:
        """Factor on every row of each site: 1 where it has no smaller target."""
        return {name: math.ldexp(weight, -WEIGHT_BITS) for name, weight in self.weights().items()}

    @property
    def is_settled(self) -> bool:
        """Whether it says with which protocol it is run."""
        return PROTOCOLS[self.protocol].settled

    def settled(self) -> Study:
        """The study with a protocol in place of 'auto'.

        One party does this and all hold what it made: see :func:`choose_protocol`.
        """
        if self.is_settled:
            return self
        return self.with_protocol(choose_protocol(self, self.width).protocol)

    def with_protocol(self, protocol: str) -> Study:
        """The study with another protocol, without columns of a sketch that it does not have."""
        kept = PROTOCOLS[protocol].keeps_columns(TASKS[self.task])
        update = {"protocol": protocol} | ({} if kept else {OF_SKETCH: None})
        changed = self.model_copy(update=update)
        changed._check()
        return changed

    def changed(self, **fields: Any) -> Study:
        """The study with other values of some fields, checked again."""
        return parse_study(self.model_dump() | fields)

    def with_epsilon(self, epsilon: float) -> Study:
        """The study with another target; sites keep smaller ones of their own."""
        sites = [
            site.model_dump() | {"epsilon": site.epsilon and min(site.epsilon, epsilon)}
            for site in self.sites
        ]
        return self.changed(epsilon=epsilon, sites=sites)

    def plan(self, features: int) -> BasePlan:
        """The fit that the sites run together."""
        if features == self.width:
            return self._usual_plan
        return self._made_plan(features)

    @cached_property
    def _usual_plan(self) -> BasePlan:
        """The plan of the study as it stands: a study and its plan are frozen, so made once."""
        return self._made_plan(self.width)

    def _made_plan(self, features: int) -> BasePlan:
        task = TASKS[self.task]
        values, context = task.own(OF_ONE_TABLE)(self)
        if self._finds_scales:
            context = context | {"variables": count_variables(self.width, self._variables)}
        if self.table_schema is not None and self.table_schema.groups:
            context = context | {"groups": self.table_schema.groups}
        if self.within_sites and len(self.active) > 1:
            context = context | {"sites": len(self.active)}
        declared = {name: getattr(self, name) for name in study_options(self.task)}
        if task.counted:
            declared["n_components"] = self.components
        sites = numbered(Options(self.task, "sites", declared), self.columns, self.table_schema)
        plan: BasePlan = task.make_plan(
            sites.on("table", **values),
            features=features,
            noise_draws=self._draws(),
            **context,
        )
        return plan

    def _draws(self) -> int:
        """At most so many draws of lattice noise make up a released value."""
        if PROTOCOLS[self.protocol].first_site_only:
            return 1
        return MASKS[self.masks].draws(len(self.sites), self.degree)


def make_study(**fields: Any) -> Study:
    return parse_study({"format": FORMAT} | fields)


def parse_study(fields: Mapping[str, Any], *, origin: str = "") -> Study:
    """A study from plain values; ``origin`` is named in messages."""
    where = f"{origin}: " if origin else ""
    try:
        return Study.model_validate(dict(fields))
    except ValidationError as problem:
        first = min(problem.errors(), key=urgency)
        error = first.get("ctx", {}).get("error")
        if isinstance(error, EigenveilError):
            error = type(error).relayed(where + error.message, hint=error.hint, code=error.code)
        else:
            error = bad_field(where, fields, first, study=Study, each_site=StudySite)
    raise error


def default_neighbours(sites: int, collusion: int, dropouts: int) -> int:
    """Other sites with which each site shares masks, where the study does not say."""
    if sites <= _COMPLETE_UP_TO:
        return sites - 1
    wanted = max(collusion + dropouts + 2, collusion + 2 * dropouts)
    return min(sites - 1, max(_COMPLETE_UP_TO, even(wanted)))
