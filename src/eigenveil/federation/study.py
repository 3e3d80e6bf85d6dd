"""A study: what several sites agree on before anything is computed, in one file that all hold.

Whatever cannot be promised is refused here, in words, before any row is touched: the same checks
run in every site's own software. Noise of a sum over sites is drawn in shares: the ``honest`` sites
that certainly take part and tell nobody (all, less the colluding and the lost) suffice for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from eigenveil.checks import MOST_WHOLE
from eigenveil.errors import EigenveilError
from eigenveil.estimators.plans import BasePlan, Invalid
from eigenveil.estimators.settings import make_plan
from eigenveil.estimators.tasks import Task
from eigenveil.estimators.tensor_settings import make_mixture_plan, make_topic_plan
from eigenveil.federation.choosing import choose_protocol
from eigenveil.federation.graph import even, threshold
from eigenveil.federation.study_checks import check_study
from eigenveil.federation.study_words import bad_field, urgency
from eigenveil.federation.wishes import coarse_weights, site_weight
from eigenveil.privacy.certificate import plan_hash
from eigenveil.privacy.guarantee import Adjacency

FORMAT = "eigenveil-study-1"
# Weights of sites with smaller wishes are multiples of 2**-10.
WEIGHT_BITS = 10
Protocol = Literal["auto", "cape", "sketch", "dpdispca", "full", "local"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
Masks = Literal["modular", "pairwise", "helper"]
# Up to so many sites every two share a mask; beyond, each shares masks with as many others.
_COMPLETE_UP_TO = 16

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Column = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(strict=True, le=MOST_WHOLE)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Wish = Annotated[float, Field(strict=True)]  # what is no number at all is refused as a wish


class StudySite(BaseModel):
    """One site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name = Field(
        description="The site's name: letters, digits and _ . - (64 at most), the first a letter "
        "or digit."
    )
    epsilon: Wish | None = Field(
        default=None,
        description="The site's own, smaller wish at the study's delta; its rows then count with "
        "a smaller weight.",
        json_schema_extra={"exclusiveMinimum": 0},
        examples=[0.5],
    )


class Study(BaseModel):
    """What the sites agree on; made by :func:`make_study`, :func:`read_study`, :func:`parse_study`.

    A study that exists can be run: every combination of fields that cannot is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="eigenveil study")

    format: Literal["eigenveil-study-1"] = Field(description="The format of this file.")
    name: Name = Field(
        description="Names the study: letters, digits and _ . - (64 at most), the first a letter "
        "or digit."
    )
    task: Task = Field(
        default="pca",
        description="What is computed: 'pca', 'gaussian-mixture' (means of spherical Gaussians) or "
        "'topic-model' (single-topic documents; rows are word counts).",
    )
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Names of the columns that every site's files have, in the order of the "
        "result. Give either columns or features.",
        examples=[["age", "weight"]],
    )
    features: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Number of columns, where files have no names for them. Give either columns "
        "or features.",
        examples=[64],
    )
    components: Annotated[Whole, Field(ge=1)] | Literal["auto"] = Field(
        description="Number of components (means, topics): a whole number from 1 to the columns; "
        "of tasks other than pca also 'auto': as many as stand above the noise, at most 32."
    )
    epsilon: Wish = Field(
        default=1.0,
        description="Privacy wish: a number above 0. Smaller is more private; 0.1 to 4 are usual.",
        json_schema_extra={"exclusiveMinimum": 0},
    )
    delta: Wish = Field(
        default=1e-6,
        description="Privacy wish: a number in [0, 1), well below one over the number of rows. 0 "
        "asks for pure epsilon.",
        json_schema_extra={"minimum": 0, "exclusiveMaximum": 1},
    )
    adjacency: Adjacency = Field(
        default="add-remove",
        description="Whose presence is protected: 'add-remove' (one row more or less) or "
        "'replace-one' (one row changed, row counts public).",
    )
    protocol: Protocol = Field(
        default="auto",
        description="What the sites send: 'cape' (hidden sums of D x D), 'sketch' (hidden sums of "
        "D x R), 'local' (the first site alone), or 'auto'; of pca also 'dpdispca' (each its own "
        "noisy D x R factor) and 'full' (each its own noisy D x D).",
    )
    masks: Masks = Field(
        default="modular",
        description="What hides a site's sums in the total: 'modular' (keys of pairs of sites, "
        "uniform; allows dropouts), 'pairwise' (the same, but Gaussian) or 'helper' (trusted).",
    )
    collusion: Annotated[Whole, Field(ge=0)] = Field(
        default=0,
        description="Sites that may tell the aggregator everything they know, and the others are "
        "still protected.",
    )
    dropouts: Annotated[Whole, Field(ge=0)] = Field(
        default=0,
        description="Sites that may be missing from a round, and the run still ends well.",
    )
    neighbours: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Other sites with which each site shares masks: a whole number; left out, all "
        "of up to 16 sites, else as many as are needed.",
        examples=[16],
    )
    row_norm: Literal["unit", "auto"] | Number = Field(
        default="unit",
        description="How rows are made to weigh at most 1: 'unit' (all the same), 'auto', or a "
        "public bound on the norm of a centred row.",
        examples=["unit"],
    )
    row_bound: Number | None = Field(
        default=None,
        description="A public bound on the norm of rows, in the data's units; skips releasing "
        "their norms.",
        examples=[10.0],
    )
    center: StrictBool | tuple[Number, ...] = Field(
        default=True,
        description="Whether the mean is subtracted: true (found privately), false, or a public "
        "centre, one number a column.",
        examples=[True],
    )
    noise_variance: Annotated[Number, Field(ge=0)] | None = Field(
        default=None,
        description="A public variance of every column within a component, in the data's units "
        "squared; left out, it is found from what is released.",
        examples=[1.0],
    )
    mechanism: Literal["auto", "gaussian", "vector"] = Field(
        default="auto",
        description="Noise of the third moment: 'gaussian', 'vector' (pure epsilon), or 'auto': "
        "'vector' if delta = 0.",
    )
    clip_documents: StrictBool = Field(
        default=True,
        description="Whether what documents contribute is clipped at a released quantile of its "
        "norms: far less noise for documents of more than a few words.",
    )
    invalid: Invalid = Field(
        default="zero",
        description="A row that is not valid (an entry that is no finite number; a document with "
        "other counts than whole numbers from 0, or fewer than 3 words) becomes a zero row "
        "('zero'), or its site does not take part ('error'), which all then see.",
    )
    budget_split: dict[str, Number] | None = Field(
        default=None,
        description="Shares of the budget for the steps: scale, centre, moment and variance (pca), "
        "scale, centre, moment and tensor (gaussian-mixture), scale, moment and tensor "
        "(topic-model; without scale if clip_documents is false).",
        examples=[  # one a task
            {"scale": 0.02, "centre": 0.08, "moment": 0.88, "variance": 0.02},
            {"scale": 0.06, "centre": 0.04, "moment": 0.6, "tensor": 0.3},
            {"scale": 0.05, "moment": 0.55, "tensor": 0.4},
        ],
    )
    sketch_size: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="R of 'sketch' and 'dpdispca', at least the components; left out, 4 times "
        "and 2 times as many.",
        examples=[20],
    )
    expected_rows: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="A public guess of the rows of all sites together, used only to predict and "
        "to choose a protocol.",
        examples=[100000],
    )
    sites: Annotated[tuple[StudySite, ...], Field(min_length=1)] = Field(
        description="The sites: at least one, each with a name of its own."
    )

    @model_validator(mode="after")
    def _can_be_run(self) -> Study:
        check_study(self)
        self.plan(self.width, None).budgets()
        self.weights()
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of the study's canonical JSON: two sites hold the same study if these agree.

        Fields that the format did not have at first are left out where they have their defaults, so
        that a study's hash does not depend on the version. Studies that differ have other JSON
        still: a field that is there never has its default, and defaults cannot change.
        """
        said = self.model_dump(mode="json")
        for field in _LATER_FIELDS:
            if said[field] == type(self).model_fields[field].default:
                del said[field]
        return plan_hash(said)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(site.name for site in self.sites)

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
        wished = self.neighbours
        if wished is None:
            wished = default_neighbours(len(self.sites), self.collusion, self.dropouts)
        return min(others, even(wished))  # a ring has as many on either side

    @property
    def threshold(self) -> int:
        """Shares that give a secret back, of those that a site and its neighbours hold.

        So many that an aggregator that tells two stories, and the colluding sites, which answer
        both, cannot have both of a site's secrets.
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
        if self.components == "auto":
            return self.plan(self.width, None).n_components
        return self.components

    @property
    def sketch_columns(self) -> int:
        """R of a sketch, or of DPdisPCA's factors; at most the number of columns."""
        usual = 2 if self.protocol == "dpdispca" else 4
        return min(self.width, self.sketch_size or usual * self.most_components)

    @property
    def public_centre(self) -> NDArray[np.float64] | None:
        """The public centre, shape (D,), if there is one."""
        return np.array(self.center) if isinstance(self.center, tuple) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever agrees to the study should know, in sentences."""
        found = []
        count = len(self.sites)
        if count > 1 and self.honest == 1 and self.protocol not in _ALONE:
            found.append(
                "Honest sites = 1: nobody is left to hide among, so every site draws the whole "
                "noise and the result is as noisy as if each released by itself."
            )
        if self.protocol == "local" and count > 1:
            found.append(f"Only the rows of the first site, {self.sites[0].name}, are used.")
        if self.protocol in ("full", "dpdispca"):
            found.append(
                "Each site releases a second moment with the whole noise: protocol 'cape' or "
                "'sketch' adds the noise of one."
            )
        if self.masks == "helper" and count > 1:
            found.append("An aggregator that sees the helper's masks is not held off.")
        return tuple(found)

    def weights(self) -> dict[str, int]:
        """Weight of each site's rows, in units of ``2**-WEIGHT_BITS``.

        A site with a smaller wish has the share of the study's mu (of epsilon, if delta = 0) that
        it wishes, rounded down: the common noise then gives it what it wishes (privacy.md, 5). In
        mixtures and topics it is rounded further, for sums of more rows.

        Raises
        ------
        PrivacyError
            Naming a site whose wish is too small for a weight.
        """
        whole = 1 << WEIGHT_BITS
        wishes = {site.name: site.epsilon for site in self.sites if site.epsilon is not None}
        weights = dict.fromkeys(self.names, whole)
        if wishes:
            plan = self.plan(self.width, None)
            for name, epsilon in wishes.items():
                weights[name] = site_weight(plan, name, epsilon, whole=whole)
        return weights if self.task == "pca" else coarse_weights(weights, bits=WEIGHT_BITS)

    def row_weights(self) -> dict[str, float]:
        """Factor on every row of each site: 1 where it has no smaller wish."""
        return {name: math.ldexp(weight, -WEIGHT_BITS) for name, weight in self.weights().items()}

    def settled(self) -> Study:
        """The study with a protocol in place of 'auto'.

        One party does this and all hold what it made: see :func:`choose_protocol`.
        """
        if self.protocol != "auto":
            return self
        return self.changed(protocol=choose_protocol(self, self.width).protocol)

    def changed(self, **fields: Any) -> Study:
        """The study with other values of some fields, checked again."""
        return parse_study(self.model_dump() | fields)

    def plan(self, features: int, rows: int | None) -> BasePlan:
        """The fit that the sites run together.

        Parameters
        ----------
        features : int
            Number of columns.
        rows : int or None
            The public number of all rows, under replace-one.
        """
        if features == self.width and rows is None:
            return self._usual_plan
        return self._made_plan(features, rows)

    @cached_property
    def _usual_plan(self) -> BasePlan:
        """The plan of the study as it stands: a study and its plan are frozen, so made once."""
        return self._made_plan(self.width, None)

    def _made_plan(self, features: int, rows: int | None) -> BasePlan:
        common: dict[str, Any] = {
            "features": features,
            "rows": rows,
            "n_components": self.components,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "budget_split": self.budget_split,
            "noise_draws": self._draws(),
            "invalid": self.invalid,
        }
        place: dict[str, Any] = {
            "row_bound": self.row_bound,
            "center": self.center if isinstance(self.center, bool) else np.array(self.center),
        }
        if self.task == "pca":
            return make_plan(
                **common,
                **place,
                mechanism="sketch" if self.protocol == "sketch" else "auto",
                row_norm=self.row_norm,
                sketch_size=self.sketch_columns,
            )
        tensors: dict[str, Any] = {
            "mechanism": self.mechanism,
            "pair": self._pair(),
            "sketch_size": self.sketch_size,
        }
        if self.task == "gaussian-mixture":
            return make_mixture_plan(
                **common, **place, **tensors, noise_variance=self.noise_variance
            )
        return make_topic_plan(**common, **tensors, clip_documents=self.clip_documents)

    def _pair(self) -> str:
        """The form of the pair moment."""
        if self.protocol == "sketch":
            return "sketch"
        # as the protocol that 'auto' will be; alone, a site does as it would in a fit of its own
        by_size = self.protocol == "local" or (self.protocol == "auto" and self.delta > 0)
        return "auto" if by_size else "full"

    def _draws(self) -> int:
        """At most so many draws of lattice noise make up a released value."""
        if self.protocol == "local":
            return 1
        count = len(self.sites)
        return count if self.masks == "modular" else count * (1 + self.degree)


# Protocols whose second moment does not count on other sites' noise.
_ALONE = ("local", "full", "dpdispca")
# Fields that came later: see Study.hash.
_LATER_FIELDS = ("noise_variance", "mechanism", "clip_documents", "invalid")


def make_study(**fields: Any) -> Study:
    """A study from its fields.

    Raises
    ------
    DataError, PrivacyError
        Naming the field that cannot be, and the way out.
    """
    return parse_study({"format": FORMAT} | fields)


def parse_study(fields: Mapping[str, Any], *, origin: str = "") -> Study:
    """A study from plain values; ``origin`` is named in messages.

    Raises
    ------
    DataError, PrivacyError
        Naming the field that cannot be, and the way out.
    """
    where = f"{origin}: " if origin else ""
    try:
        return Study.model_validate(dict(fields))
    except ValidationError as trouble:
        first = min(trouble.errors(), key=urgency)
        error = first.get("ctx", {}).get("error")
        if isinstance(error, EigenveilError):
            error = type(error)(where + error.message, hint=error.hint, code=error.code)
        else:
            error = bad_field(where, fields, first, study=Study, each_site=StudySite)
    raise error


def default_neighbours(sites: int, collusion: int, dropouts: int) -> int:
    """Other sites with which each site shares masks, where the study does not say."""
    if sites <= _COMPLETE_UP_TO:
        return sites - 1
    wanted = max(collusion + dropouts + 2, collusion + 2 * dropouts)
    return min(sites - 1, max(_COMPLETE_UP_TO, even(wanted)))
