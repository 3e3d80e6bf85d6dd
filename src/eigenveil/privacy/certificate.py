"""A certificate: the recorded releases of a run, and the claim that follows from them."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

import eigenveil
from eigenveil.errors import (
    DataError,
    OutputError,
    PrivacyError,
    nearest,
    number_text,
    of_system,
    short_name,
)
from eigenveil.markup import fragment, html_of
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import UNNAMED_UNIT, Adjacency, Guarantee
from eigenveil.privacy.releases import NoiseSource, ReleaseRecord, Settled, releases_node
from eigenveil.privacy.statistics import STATISTICS
from eigenveil.privacy.tree_views import TreeRun, tree_guarantees
from eigenveil.privacy.views import Federation, guarantees

SEEDED = "noise from a seeded generator: anyone with the seed can remove it"
LARGEST_NORM = "rows were divided by the largest norm found, which is not private"
DEPENDENT = (
    "on a processor that ran it a row's rounding depends on its neighbours or its place in memory, "
    "so that one row more could move all others"
)
WHAT_IT_CANNOT_SHOW = (
    "the certificate is computed from the recorded noise parameters; that this noise was drawn, "
    "and that plan, hash and records were not all made anew together, is the word of whoever ran "
    "the software"
)
SAME_BLOCKS = (
    "neighbouring streams have the same blocks but for one row in one of them: that a block ended "
    "must not depend on the rows"
)
ONE_BLOCK = (
    "each row is in one block of the stream: of a row that comes again in a later one, each is "
    "protected by itself"
)
NOT_COUNTED = (
    "this fit was charged to no ledger that is kept: other fits of the same rows cost on top of "
    "it, and nothing counts them together"
)
ALONE = (
    "this fit alone: together with the others charged to its account until it ended ({others}), "
    "epsilon = {epsilon:.6g} at delta = {delta}, and later ones add to that"
)
LEFT_OUT = "rows with {} are left out and not counted: the result is of all others"
DOCUMENTS_LEFT_OUT = (
    "documents with other counts than whole numbers from 0, or with fewer than 3 words, are left "
    "out and not counted: the result is of all others"
)
MISSING_LEFT_OUT = (
    "missing='leave-out' leaves out every row with a missing or infinite entry, and does not count "
    "it: the result is of complete rows. missing='independent' or 'pairs' keeps such rows and "
    "corrects for what is missing, 'zero' takes it for the mean"
)
CLOSED_QUOTES = (
    "in text files that were read with newlines_in_cells every quote is closed: one that is not "
    "takes in the rows of others"
)
NOT_PREPARED = (
    "the rows were not preprocessed with anything learned from all of them (such as a "
    "StandardScaler)"
)
ONE_ROW_EACH = "each person has one row: of a person with m rows the rows are protected one by one"
UNITS = "column {unit!r} tells units apart: rows of one person have one and the same entry there"
GROUPS = "groups tells units apart: rows of one person have one and the same entry there"
PUBLIC_COLUMNS = (
    "ranges, scales and levels of columns are public: known without looking at these rows"
)
AT_ONE_SITE = "each {} is at one site only: one at several sites is protected less"
AT_SITES = "each {} is at no more than {} sites"
ON_CLUSTER = (
    "the cluster that read the rows is their owner's: its scheduler, workers and network see exact "
    "sums, and identifiers of units"
)
PURE_SAMPLING = "a pure guarantee leaves out events of total chance below 2**-80"


# The release of products of four, of a fit of independent components.
CUMULANTS = "fourth moment"


def rule_of_rows(plan: Mapping[str, Any]) -> str:
    """Which rows a plan leaves out; of its fields, and of nothing in rows."""
    if plan.get("task") == "topic-model":
        return DOCUMENTS_LEFT_OUT
    if plan.get("missing") != "leave-out":
        return LEFT_OUT.format("an infinite entry")
    chosen = plan.get("task", "pca") in ("pca", "covariance") and "publish" not in plan
    return MISSING_LEFT_OUT if chosen else LEFT_OUT.format("a missing or infinite entry")


class RequestedGuarantee(Settled):
    """What the run promises."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: str | None = None
    view: str = "outsider"


class Together(Settled):
    """What a fit and all ``others`` that its account had been charged for cost together."""

    others: int = Field(ge=1)
    epsilon: float = Field(ge=0, allow_inf_nan=False)
    delta: float = Field(ge=0, lt=1)


class Signature(Settled):
    """Who signed a certificate, by the key that the list of members has for it."""

    role: Literal["aggregator", "site"]
    name: str = Field(min_length=1, max_length=128)
    signature: str = Field(pattern="^[0-9a-f]{128}$")


class Signatures(Settled):
    """All that signed it, in one session of its study; ``members`` shows whose keys these are."""

    session: str = Field(pattern="^[a-z0-9-]{1,64}$")
    by: tuple[Signature, ...]
    members: dict[str, Any]


class Certificate(Settled):
    """Everything from which the guarantee of a run can be computed again; no value of any row.

    ``model`` is the digest of what was made of the releases, and no other model's; ``target`` was
    requested; ``stopped`` is why a run ended early; ``dependent``: on some party's processor a
    row's rounding depended on its neighbours; ``counted``: every release was charged, before it was
    drawn, to a ledger of all fits of the same rows, where they cost ``together`` so much. All that
    is the word of whoever ran it.
    """

    format: Literal["eigenveil-certificate-1"] = "eigenveil-certificate-1"
    software: str
    plan: dict[str, Any]
    plan_hash: str
    model: str = Field(pattern="^[0-9a-f]{64}$")
    noise_source: NoiseSource
    dependent: bool = False
    counted: bool = False
    together: Together | None = Field(default=None, exclude_if=operator.not_)
    cluster: bool = False
    newlines_in_cells: bool = False
    target: RequestedGuarantee
    releases: tuple[ReleaseRecord, ...]
    stopped: str | None = None
    proofs: tuple[str, ...] = ()
    federation: Federation | None = None
    study: dict[str, Any] | None = None
    study_hash: str | None = None
    tree: TreeRun | None = None
    signatures: Signatures | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of all but the signatures, which are of it."""
        return plan_hash(self.model_dump(mode="json", exclude={"signatures"}))

    @property
    def proof_names(self) -> list[str]:
        """The proofs as ``eigenveil proofs`` names them."""
        return [name.removesuffix(".md") for name in self.proofs]

    def guarantee(self) -> Guarantee:
        """The guarantee against the adversary of the target, recomputed from the records alone."""
        found = self.guarantees()
        if self.target.view not in found:
            raise PrivacyError("no-claim-made", view=self.target.view)
        return found[self.target.view]

    @property
    def reasons_not_certified(self) -> list[str]:
        """Why the run makes no certified claim: what follows from its plan and its noise."""
        sources = {self.noise_source, self.plan.get("noise_source")}
        sources |= {record.noise_source for record in self.releases}
        plan = self.plan | ({"noise_source": "seeded"} if "seeded" in sources else {})
        return reasons_of(plan) + ([DEPENDENT] if self.dependent else [])

    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantee against each adversary, by its view."""
        reasons = self.reasons_not_certified
        stated = (caveat for record in self.releases for caveat in record.mechanism.caveats)
        caveats = list(dict.fromkeys(stated))
        if self.target.delta == 0:
            caveats.append(PURE_SAMPLING)
        if any(record.stream is not None or record.disjoint for record in self.releases):
            caveats.append(SAME_BLOCKS)
        caveats.append(self.left_out)
        if not self.counted:
            caveats.append(NOT_COUNTED)
        if (all_fits := self.together) is not None:
            said = {"delta": number_text(all_fits.delta, 3)}
            caveats.append(ALONE.format(**all_fits.model_dump() | said))
        found = self._by_view(caveats, reasons)
        unit, assumed = self.target.unit, self.assumptions
        return {view: replace(each, unit=unit, assumptions=assumed) for view, each in found.items()}

    @property
    def left_out(self) -> str:
        """The rule by which rows are left out: the same whether there is such a row or not."""
        return rule_of_rows(self.plan)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the rows for the guarantee to mean what it says (tables.md, 7)."""
        found = [NOT_PREPARED]
        unit = self.target.unit
        if unit is None:
            found.append(ONE_ROW_EACH)
        else:
            found.append(GROUPS if unit == UNNAMED_UNIT else UNITS.format(unit=unit))
        if any(record.disjoint for record in self.releases):
            found.append(ONE_BLOCK)
        schema = (self.study or {}).get("table_schema")
        public = self.plan.get("ranged") or self.plan.get("groups") or schema is not None
        if public or self.plan.get("scaled") == "public":
            found.append(PUBLIC_COLUMNS)
        if self.newlines_in_cells:
            found.append(CLOSED_QUOTES)
        if self.cluster:
            found.append(ON_CLUSTER)
        if self.federation is not None and self.federation.sites > 1:
            most = self.federation.sites_per_unit
            what = "row" if unit is None else "unit"
            found.append(AT_ONE_SITE.format(what) if most == 1 else AT_SITES.format(what, most))
        elif self.tree is not None and self.tree.leaves > 1:
            found.append(AT_ONE_SITE.format("row" if unit is None else "unit"))
        return tuple(found)

    def _by_view(self, caveats: list[str], reasons: list[str]) -> dict[str, Guarantee]:
        known: dict[str, Any] = {
            "delta": self.target.delta,
            "adjacency": self.target.adjacency,
            "caveats": caveats,
            "reasons_not_certified": reasons,
        }
        if self.federation is not None:
            return guarantees(self.releases, self.federation, **known)
        if self.tree is not None:
            return tree_guarantees(self.releases, self.tree, **known)
        return {"outsider": compose(self.releases, **known)}

    def _repr_html_(self) -> str:
        """The certificate in a notebook: the guarantee that follows, and the releases."""
        parts = (self.guarantee().as_node(), releases_node(self.releases))
        return html_of(fragment(f"Certificate {self.digest[:16]}, {self.software}", *parts))

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def make_certificate(
    *,
    plan: dict[str, Any],
    secure: bool,
    target: RequestedGuarantee,
    releases: Sequence[ReleaseRecord],
    **known: Any,
) -> Certificate:
    """The certificate of a run, of a federation's or a tree's with its run."""
    # where the noise came from is in plan and records, so that no single edit changes it
    source: NoiseSource = "operating system" if secure else "seeded"
    plan = {**plan, "noise_source": source}
    of_many = {name: known.get(name) is not None for name in ("federation", "tree")}
    return Certificate(
        plan=plan,
        plan_hash=plan_hash(plan),
        noise_source=source,
        target=target,
        releases=tuple(r.model_copy(update={"noise_source": source}) for r in releases),
        proofs=proofs_of(
            releases, units=target.unit is not None, groups=bool(plan.get("groups")), **of_many
        ),
        **known,
    )


def reasons_of(plan: Mapping[str, Any]) -> list[str]:
    """Why a run of this plan makes no certified claim."""
    reasons = [SEEDED] if plan.get("noise_source") == "seeded" else []
    return reasons + ([LARGEST_NORM] if plan.get("row_norm") == "max" else [])


def proofs_of(
    releases: Sequence[ReleaseRecord], *, units: bool, federation: bool, tree: bool, groups: bool
) -> tuple[str, ...]:
    """The proofs that a guarantee of such releases rests on."""
    proofs = {r.mechanism.proof for r in releases} | {"release-grid.md"}
    proofs |= {proof for r in releases if (proof := STATISTICS[r.statistic].proof) is not None}
    if sum(r.statistic == "second-moment" for r in releases) > 1:
        proofs |= {"adaptive.md"}  # rows of the second depend on the first
    if any(r.name == CUMULANTS for r in releases):
        proofs |= {"ica.md"}
    if groups:
        proofs |= {"groups.md"}
    if units:
        proofs |= {"units.md"}
    if federation:
        proofs |= {"views.md", "shares.md"}
    if tree:
        proofs |= {"tree.md", "shares.md"}
    if any(r.stream is not None or r.disjoint for r in releases):
        proofs |= {"streams.md"}
    return tuple(sorted(proofs))


def plan_hash(plan: dict[str, Any]) -> str:
    """SHA-256 of a plan's canonical JSON."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def certificate_from(values: Any) -> Certificate:
    """The certificate that these values of JSON are."""
    found = Certificate.model_validate(values)
    if plan_hash(found.model_dump(mode="json")) != plan_hash(values):
        raise ValueError("a field is missing, or is not written as a run writes it")
    return found


def read_certificate(path: Path) -> Certificate:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OutputError("no-certificate", path=path, reason=of_system(error)) from None
    try:
        return certificate_from(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise DataError("bad-certificate", path=path, reason=_first_line(error)) from None


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'file'}: {first['msg']}"
    return str(error)


_PACKAGE = Path(eigenveil.__file__).parent
# In an installed package, and in a checkout that is installed as editable.
_FOLDERS = (_PACKAGE / "proofs", _PACKAGE.parents[1] / "docs" / "proofs")


def proof_titles() -> dict[str, str]:
    """The title of each proof, by the name of its file without ``.md``."""
    return {
        file.stem: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for file in sorted(_folder().glob("*.md"))
    }


def read_proof(name: str) -> str:
    """The text of one proof, as Markdown, by its name with or without ``.md``."""
    known = proof_titles()
    stem = name.removesuffix(".md")
    if stem not in known:
        raise DataError("unknown-proof", proof=short_name(name), near=nearest(name, known))
    return (_folder() / f"{stem}.md").read_text(encoding="utf-8")


def _folder() -> Path:
    return next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
