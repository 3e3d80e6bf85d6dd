"""A certificate: the recorded releases of a run, and the claim that follows from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eigenveil.errors import DataError, OutputError, PrivacyError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.releases import (
    PROOFS,
    PROOFS_OF_STATISTIC,
    ReleaseRecord,
    Statistic,
    tensor_size,
)
from eigenveil.privacy.tree_views import TreeRun, tree_guarantees
from eigenveil.privacy.views import Federation, guarantees

SEEDED = "noise from a seeded generator: anyone with the seed can remove it"
# What every fit of a task releases: one of each group, under the words it is missed by.
_RELEASED_BY: dict[str, dict[str, tuple[Statistic, ...]]] = {
    "pca": {"second moment": ("second-moment", "sketch", "bingham-vectors")},
    "gaussian-mixture": {
        "second moment": ("second-moment", "sketch"),
        "third moment": ("third-moment",),
    },
    "topic-model": {
        "pair moment of documents": ("document-pairs", "document-sketch"),
        "triple moment of documents": ("document-triples",),
    },
}
WHAT_IT_CANNOT_SHOW = (
    "the certificate is computed from the recorded noise parameters; that this noise was drawn "
    "is the word of the software that ran"
)
DOUBLE_PRECISION = (
    "directions are computed in double precision and rounded to a far coarser grid; the proof is "
    "for ideal arithmetic"
)
SAME_BLOCKS = (
    "neighbouring streams have the same blocks but for one row in one of them: that a block ended "
    "must not depend on the rows"
)
VISIBLE_VALIDITY = (
    "invalid='error' lets everybody see whether all rows are valid: where one is not, there is no "
    "result, or none with its site"
)
PURE_SAMPLING = "a pure guarantee leaves out events of total chance below 2**-80"


class Claim(BaseModel):
    """What the run promises."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float
    delta: float
    adjacency: Adjacency
    view: str = "outsider"


class Certificate(BaseModel):
    """Everything from which the guarantee of a run can be computed again; no value of any row.

    ``model`` is a SHA-256 digest of what was made of the releases (``model_digest`` in
    ``estimators/result.py``): the certificate is that model's and no other's.
    ``wish`` is what was asked for, ``reasons_not_certified`` why a run makes no certified claim.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["eigenveil-certificate-1"] = "eigenveil-certificate-1"
    software: str
    plan: dict[str, Any]
    plan_hash: str
    model: str = Field(pattern="^[0-9a-f]{64}$")
    noise_source: Literal["operating system", "seeded"]
    wish: Claim
    releases: tuple[ReleaseRecord, ...]
    reasons_not_certified: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    federation: Federation | None = None
    study: dict[str, Any] | None = None
    tree: TreeRun | None = None

    def guarantee(self) -> Guarantee:
        """The guarantee against the adversary of the wish, recomputed from the records alone.

        Raises
        ------
        PrivacyError
            When the run has no such adversary, or the records do not fit together.
        """
        found = self.guarantees()
        if self.wish.view not in found:
            raise PrivacyError(f"The run makes no claim against {self.wish.view!r}.")
        return found[self.wish.view]

    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantee against each adversary, by its view."""
        reasons = list(self.reasons_not_certified)
        if self.noise_source == "seeded" and SEEDED not in reasons:
            reasons.insert(0, SEEDED)
        kinds = {record.noise.kind for record in self.releases}
        caveats = [DOUBLE_PRECISION] if "bingham" in kinds else []
        if self.wish.delta == 0:
            caveats.append(PURE_SAMPLING)
        if any(record.stream is not None for record in self.releases):
            caveats.append(SAME_BLOCKS)
        if self.plan.get("invalid") == "error":
            caveats.append(VISIBLE_VALIDITY)
        known: dict[str, Any] = {
            "delta": self.wish.delta,
            "adjacency": self.wish.adjacency,
            "caveats": caveats,
            "reasons_not_certified": reasons,
        }
        if self.federation is not None:
            return guarantees(self.releases, self.federation, **known)
        if self.tree is not None:
            return tree_guarantees(self.releases, self.tree, **known)
        return {"outsider": compose(self.releases, **known)}

    def write(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Verdict:
    """Outcome of checking a certificate."""

    holds: bool
    word: str
    guarantee: Guarantee | None
    explanation: str
    views: Mapping[str, Guarantee] = field(default_factory=dict)


def make_certificate(
    *,
    software: str,
    plan: dict[str, Any],
    plan_hash: str,
    model: str,
    secure: bool,
    wish: Claim,
    releases: list[ReleaseRecord],
    reasons_not_certified: list[str],
    federation: Federation | None = None,
    study: dict[str, Any] | None = None,
    tree: TreeRun | None = None,
) -> Certificate:
    """The certificate of a run, of a federation's with its ``study``, of a tree's with its run.

    ``model`` is the digest of the model that was made of the releases.
    """
    proofs = {PROOFS[r.noise.kind] for r in releases} | {"release-grid.md"}
    proofs |= {
        PROOFS_OF_STATISTIC[r.statistic] for r in releases if r.statistic in PROOFS_OF_STATISTIC
    }
    if federation is not None:
        proofs |= {"views.md", "shares.md"}
    if tree is not None:
        proofs |= {"tree.md", "shares.md"}
    if any(r.stream is not None for r in releases):
        proofs |= {"streams.md"}
    return Certificate(
        software=software,
        plan=plan,
        plan_hash=plan_hash,
        model=model,
        noise_source="operating system" if secure else "seeded",
        wish=wish,
        releases=tuple(releases),
        reasons_not_certified=tuple(reasons_not_certified),
        proofs=tuple(sorted(proofs)),
        federation=federation,
        study=study,
        tree=tree,
    )


def check(certificate: Certificate) -> Verdict:
    """Recompute the guarantee and compare it with the wish.

    The records must be whole: the plan is the one that was hashed, the moments of its task were
    released in some form, and every release has as many values as a fit of that shape makes.
    """
    try:
        _check_whole(certificate)
        views = certificate.guarantees()
        guarantee = certificate.guarantee()
    except PrivacyError as error:
        return Verdict(False, "DOES NOT HOLD", None, str(error))
    word, explanation = _compared(guarantee, certificate.wish)
    return Verdict(word == "HOLDS", word, guarantee, explanation, views)


def _compared(guarantee: Guarantee, wish: Claim) -> tuple[str, str]:
    """The verdict's word and what explains it."""
    numbers = (
        f"recomputed epsilon = {guarantee.epsilon:.9g} at delta = {guarantee.delta:.3g}, "
        f"wished epsilon = {wish.epsilon:.9g} at delta = {wish.delta:.3g}"
    )
    if guarantee.epsilon > wish.epsilon or guarantee.delta > wish.delta:
        return "DOES NOT HOLD", f"The recorded noise does not give the claim: {numbers}."
    if not guarantee.certified:
        why = "; ".join(guarantee.caveats)
        return (
            "NOT CERTIFIED",
            f"The numbers hold ({numbers}), but the run is not certified: {why}.",
        )
    return "HOLDS", f"The guarantee holds: {numbers}."


def plan_hash(plan: dict[str, Any]) -> str:
    """SHA-256 of a plan's canonical JSON."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_study(certificate: Certificate) -> None:
    """What the guarantees depend on is what the sites agreed on."""
    federation, study = certificate.federation, certificate.study
    if federation is None:
        return
    if study is None:
        raise PrivacyError("No study is recorded that the sites agreed on.")
    alone = federation.sites == 1
    said = {
        "protocol": federation.protocol,
        "epsilon": certificate.wish.epsilon,
        "delta": certificate.wish.delta,
        "adjacency": certificate.wish.adjacency,
        "collusion": study.get("collusion") if alone else federation.collusion,
        "dropouts": study.get("dropouts") if alone else federation.dropouts,
        "masks": study.get("masks") if alone else federation.masks,
    }
    for name, value in said.items():
        if study.get(name) != value:
            raise PrivacyError(f"{name} = {value!r} is not what the recorded study says.")
    if not alone and len(study.get("sites", ())) != federation.sites:
        raise PrivacyError(f"{federation.sites} sites are not those of the recorded study.")


def _check_whole(certificate: Certificate) -> None:
    _check_study(certificate)
    plan = certificate.plan
    if plan_hash(plan) != certificate.plan_hash:
        raise PrivacyError("The plan is not the one whose hash is recorded.")
    task = str(plan.get("task", "pca"))
    if task not in _RELEASED_BY:
        raise PrivacyError(f"The plan's task, {task!r}, is none that this version knows.")
    released = {record.statistic for record in certificate.releases}
    for words, group in _RELEASED_BY[task].items():
        if released.isdisjoint(group):
            raise PrivacyError(
                f"No release of a {words} is recorded, which every fit of task {task!r} makes."
            )
    for record in certificate.releases:
        blocks = None if record.stream is None else record.stream.blocks
        if blocks != plan.get("horizon"):
            raise PrivacyError(
                f"Release {record.name!r} is recorded for {blocks} blocks, the plan has a horizon "
                f"of {plan.get('horizon')}."
            )
    sizes = _sizes(int(plan["features"]), int(plan["n_components"]), certain=task == "pca")
    for record in certificate.releases:
        size, found = sizes[record.statistic], record.noise.size
        if found < size.fewest:
            raise PrivacyError(
                f"Release {record.name!r} is recorded with {found} values, fewer than the "
                f"{size.fewest} that a fit of this shape releases."
            )
        if size.most is not None and found > size.most:
            raise PrivacyError(
                f"Release {record.name!r} is recorded with {found} values, more than the "
                f"{size.most} that a fit of this shape releases."
            )


class _Size(NamedTuple):
    """How many values a release may have."""

    fewest: int
    most: int | None = None


def _sizes(features: int, components: int, *, certain: bool) -> dict[Statistic, _Size]:
    """By statistic, for a fit that finds so many components, or (not ``certain``) perhaps fewer."""
    found = components if certain else 1
    triangle = _Size(features * (features + 1) // 2)
    tensor = _Size(tensor_size(found), tensor_size(components))
    return {
        "norm-histogram": _Size(2),
        "row-sum": _Size(features),
        "second-moment": triangle,
        "bingham-vectors": triangle,
        "sketch": _Size(features * found),
        "component-energy": _Size(found + 1),
        "third-moment": tensor,
        "document-pairs": triangle,
        "document-sketch": _Size(features * found),
        "document-triples": tensor,
    }


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file.

    Raises
    ------
    OutputError, DataError
        When it is absent, or not a certificate (the field is named).
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OutputError(
            f"{path}: {error.strerror or error}.",
            hint="Give the result folder that 'eigenveil fit' wrote.",
            code="no-certificate",
        ) from None
    try:
        return Certificate.model_validate_json(text)
    except (ValidationError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a certificate: {_first_line(error)}.",
            hint="It may have been edited or cut off; use the file that the fit wrote.",
            code="bad-certificate",
        ) from None


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'file'}: {first['msg']}"
    return str(error)
