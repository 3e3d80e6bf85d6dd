"""The adversaries of a tree of merges: what each sees, and its guarantee (docs/proofs/tree.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pydantic import Field, model_validator

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import BELOW_RESOLUTION, compose
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.releases import ReleaseRecord, Settled
from eigenveil.privacy.views import with_noise_parts

ROUTES = "which leaves are in which message, and when it is sent, is taken not to depend on rows"
NO_MASKS = (
    "there are no masks in the tree: an aggregator sees messages whose noise is that of the leaves "
    "in them alone"
)

NOTHING_CLAIMED = (
    "nothing is claimed against this view: {}; at this delta its messages have too little noise "
    "for a finite epsilon"
)
OF_ARRIVED = (
    "against aggregators above level 1 the rows in the result are meant; a row of the {} leaves "
    "that are not in it is held to the guarantee of a leaf that did not arrive"
)


class TreeRun(Settled):
    """What happened in a tree, as its guarantees depend on it: see :func:`tree_guarantees`."""

    leaves: int = Field(ge=1)
    fan_out: int = Field(ge=2)
    arrived: int = Field(ge=1)
    least: tuple[int, ...] = Field(min_length=1)
    refused: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _counts_fit(self) -> TreeRun:
        # messages of one level are about disjoint leaves, so many each at the most (claim 3)
        widths = [min(self.fan_out**below, self.arrived) for below in range(len(self.least))]
        most = [self.arrived // -(-self.arrived // width) for width in widths]
        steps = (1, *self.least)
        fits = all(m <= up for m, up in zip(self.least, most, strict=True))
        if (
            not self.arrived <= self.leaves <= self.fan_out ** len(self.least)
            or not fits
            or any(below > above for below, above in pairwise(steps))
        ):
            raise ValueError(
                f"{self.arrived} of {self.leaves} leaves, {self.fan_out} a node, in messages of "
                f"{self.least} and more"
            )
        return self


def tree_guarantees(
    records: Sequence[ReleaseRecord],
    run: TreeRun,
    *,
    delta: float,
    adjacency: Adjacency,
    caveats: Sequence[str] = (),
    reasons_not_certified: Sequence[str] = (),
) -> dict[str, Guarantee]:
    """One guarantee per adversary, by the name of its view (docs/proofs/tree.md)."""
    # a view whose noise gives no finite epsilon is left out, and a caveat of the others states it
    leaves, arrived = run.leaves, run.arrived
    for record in records:
        check_arrived(record, arrived)
    seen: dict[str, tuple[int, tuple[str, ...]]] = {"outsider": (arrived, ())}
    if arrived > 1:
        seen["leaf"] = (arrived - 1, ())
    for level, count in enumerate(run.least, start=1):
        whose = (OF_ARRIVED.format(leaves - arrived),) if arrived < leaves and level > 1 else ()
        seen[f"aggregator at level {level}"] = (count, (NO_MASKS, *whose))
    if arrived < leaves or run.refused:
        seen["aggregators, of a leaf that did not arrive"] = (1, (NO_MASKS,))
    found: dict[str, Guarantee] = {}
    silent: list[str] = []
    for view, (parts, further) in seen.items():
        try:
            found[view] = compose(
                [with_noise_parts(record, parts) for record in records],
                delta=delta,
                adjacency=adjacency,
                view=view,
                caveats=(*caveats, ROUTES, *further),
                reasons_not_certified=reasons_not_certified,
            )
        except PrivacyError as error:
            if view == "outsider" or error.code not in BELOW_RESOLUTION:
                raise
            silent.append(view)
    nothing = [NOTHING_CLAIMED.format(view) for view in silent]
    return {view: replace(g, caveats=(*g.caveats, *nothing)) for view, g in found.items()}


def check_arrived(record: ReleaseRecord, arrived: int) -> None:
    """Raise where so many leaves' noise is not what was promised to those who see the result."""
    noise = record.noise
    if record.pure and noise.noise_parts > 1:
        raise PrivacyError(
            "tree-needs-gaussian", release=record.name, noise=noise.kind, parts=noise.noise_parts
        )
    if arrived < noise.noise_parts:
        raise PrivacyError(
            "too-many-lost", arrived=arrived, release=record.name, parts=noise.noise_parts
        )
