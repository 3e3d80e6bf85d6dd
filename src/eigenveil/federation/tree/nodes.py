"""Roles that merge states up a tree: message in, message out; no clock, no thread, no network.

A node sends when its driver requires it, with what it has: a child that is late goes up in a
supplement, a child that is lost is missing from the leaves that the root names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.tree.messages import Leaves, Totals, TreeCodec, TreeMessage, Value
from eigenveil.federation.tree.private import TreeStudy, check_rounds
from eigenveil.federation.tree.tree import TreePlace
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.result import certificate_of, frozen
from eigenveil.models.rounds import Answers
from eigenveil.models.streaming.state import stream_factors
from eigenveil.moments.release import Release, release_of
from eigenveil.moments.stream_sums import Discounted
from eigenveil.noise.entries import from_coordinates
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.tree_views import TreeRun, check_arrived
from eigenveil.privacy.views import with_noise_parts


@dataclass(frozen=True)
class Merged(Generic[Value]):
    """What the root has when it closes."""

    value: Value  # The merged state
    arrived: Leaves  # Whose states are in it
    # For each level from 1 to the root's: the fewest leaves in any message that a party of that
    # level took, of those whose leaves arrived
    least: tuple[int, ...]


class Node(Generic[Value]):
    """An inner aggregator, or the root."""

    def __init__(self, codec: TreeCodec[Value], place: TreePlace) -> None:
        self.codec, self.place = codec, place
        self._first = codec.tree.under(place).start
        count = len(codec.tree.under(place))
        if place.level < 1:
            raise ProtocolError("a-leaf", name=place.name)
        self.leaves: Leaves = np.zeros(count, dtype=bool)
        self._heard: dict[tuple[TreePlace, int], bytes] = {}
        self._serial = 0
        self._closed: Merged[Value] | None = None
        self._forget()

    def _forget(self) -> None:
        """Nothing is waiting to be sent."""
        self._value: Value | None = None
        self._new: Leaves = np.zeros_like(self.leaves)
        self._least: tuple[int, ...] = ()

    @property
    def is_root(self) -> bool:
        return self.place == self.codec.tree.root

    @property
    def waiting(self) -> int:
        """Leaves that it has taken and not sent on."""
        return int(np.count_nonzero(self._new))

    def take(self, data: bytes) -> bool:
        """Merge a child's message."""
        message = self.codec.read(data, receiver=self.place)
        key, digest = (message.sender, message.serial), hashlib.sha256(data).digest()
        sender = message.sender.name
        if key in self._heard:
            if self._heard[key] == digest:
                return False
            raise ProtocolError("message-differs", sender=sender, number=message.serial)
        if self._closed is not None:
            raise ProtocolError("too-late", sender=sender)
        here = self._own(message)
        if np.any(self.leaves[here] & message.leaves):
            which = int(np.flatnonzero(self.leaves[here] & message.leaves)[0])
            leaf = self._first + here.start + which
            raise ProtocolError("leaf-twice", sender=sender, leaf=leaf)
        self._value = self.codec.content.merged(self._value, message.value)
        self.leaves[here] |= message.leaves
        self._new[here] |= message.leaves
        came = (*message.least, int(np.count_nonzero(message.leaves)))
        self._least = tuple(map(min, self._least, came)) if self._least else came
        self._heard[key] = digest
        return True

    def send(self) -> bytes | None:
        """A message with everything since the last one; ``None`` where nothing is new.

        The driver keeps the bytes until they have arrived: a repeated call returns nothing new.
        """
        if self.is_root:
            raise ProtocolError("the-root")
        if self._value is None:
            return None
        message = TreeMessage(self.place, self._serial, self._new, self._least, self._value)
        data = self.codec.write(message)
        self._serial += 1
        self._forget()
        return data

    def result(self) -> Merged[Value]:
        """What has arrived at the root, which closes; a repeated call returns the same."""
        if not self.is_root:
            raise ProtocolError("not-the-root", name=self.place.name)
        if self._closed is None:
            if self._value is None:
                raise ProtocolError("nothing-arrived")
            self._closed = Merged(self._value, self.leaves.copy(), self._least)
        return self._closed

    def _own(self, message: TreeMessage[Value]) -> slice:
        """Where the sender's leaves are among this node's."""
        start = self.codec.tree.under(message.sender).start - self._first
        return slice(start, start + message.leaves.size)


# -- Private PCA up a tree: what the root may publish of what arrived, and what is promised of it.


@dataclass(frozen=True, eq=False)
class TreeOutcome:
    """What the root may publish."""

    # Components, variances, what is usable; the certificate is theirs, and arrays cannot be written
    factors: PCAFactors
    certificate: Certificate  # Of the result, for those who see nothing else
    guarantees_: dict[str, Guarantee]  # One per adversary, by its view
    arrived: Leaves  # Leaves whose rows are in the result
    # For each level from 1 on, the fewest leaves in any message that its parties took
    least: tuple[int, ...]

    @property
    def guarantee_(self) -> Guarantee:
        """Against those who see the result."""
        return self.guarantees_["outsider"]


def release_sums(study: TreeStudy, totals: Totals, leaves: int) -> dict[str, Release]:
    """Sums of so many leaves' messages as releases, with the noise that they really carry."""
    answers = {}
    for query, total in zip(study.queries, totals, strict=True):
        sums = query.accumulator
        whole = from_coordinates(sums.layout, sums.shape, total.view(np.int64))
        answers[query.name] = release_of(with_noise_parts(query.record, leaves), whole)
    return answers


def publish(
    study: TreeStudy, merged: Merged[Totals], *, secure: bool, **of_certificate: Any
) -> TreeOutcome:
    """The result of what arrived at the root, and what is promised of it."""
    run = run_of(study, merged)
    answers = release_sums(study, merged.value, run.arrived)
    return outcome_of(study, answers, run, merged.arrived, secure=secure, **of_certificate)


def run_of(study: TreeStudy, merged: Merged[Totals]) -> TreeRun:
    """What arrived at the root, as guarantees depend on it."""
    arrived = int(np.count_nonzero(merged.arrived))
    for query in study.queries:
        check_arrived(query.record, arrived)
    tree = study.tree
    return TreeRun(
        leaves=tree.leaf_count, fan_out=tree.fan_out, arrived=arrived, least=merged.least
    )


def outcome_of(
    study: TreeStudy, answers: Answers, run: TreeRun, arrived: Leaves, **of_certificate: Any
) -> TreeOutcome:
    """What the root may publish of these releases, made in such a run."""
    plan = study.plan
    records = [query.record for query in study.queries]
    factors = frozen(stream_factors(plan, answers, public_center=study.center))
    certificate = certificate_of(
        plan,
        factors,
        [with_noise_parts(record, run.arrived) for record in records],
        view="outsider" if study.protect == "outsider" else "aggregator at level 1",
        tree=run,
        **{"names": None, "dependent": False, **of_certificate},
    )
    return TreeOutcome(
        factors=factors,
        certificate=certificate,
        guarantees_=certificate.guarantees(),
        arrived=arrived,
        least=run.least,
    )


# -- A tree of merges over time: leaves that send again and again, and a result that is refreshed.
#
# In every round each leaf that is there sends the sum of the rows that it has not sent yet, with
# its part of the noise; leaves and nodes may come and go from round to round. A row is in one
# message of one round, so that any number of rounds costs what one does (docs/proofs/tree.md,
# claim 7). The root adds up what each round releases, older rounds counting less: that is free.


class TreeRounds:
    """The root over many rounds: a global subspace that each of them refreshes."""

    def __init__(self, study: TreeStudy) -> None:
        check_rounds(study)
        self.study = study
        self.rounds: tuple[str, ...] = ()
        self._sums = {query.name: Discounted(study.plan.forgetting) for query in study.queries}
        self._run: TreeRun | None = None
        self._refused = 0
        self._secure, self._dependent = True, False

    def add(
        self,
        session: str,
        merged: Merged[Totals],
        *,
        secure: bool,
        dependent: bool = False,
        **of_certificate: Any,
    ) -> TreeOutcome:
        """The result with one more round: components of the discounted sums of all.

        Its guarantees are for a row of any round until now: they follow from the fewest leaves
        that arrived in a round, and for each level from the smallest message of any round.
        """
        if session in self.rounds:
            raise ProtocolError("round-twice", session=session)
        try:
            run = run_of(self.study, merged)
        except PrivacyError:
            self._refused += 1  # its rows were seen by the nodes, and are in no result
            raise
        self._secure, self._dependent = self._secure and secure, self._dependent or dependent
        poorest = run if self._run is None else worst(self._run, run)
        self._run = poorest.model_copy(update={"refused": self._refused})
        self.rounds = (*self.rounds, session)
        of_round = release_sums(self.study, merged.value, run.arrived)
        answers = {name: self._sums[name].add(release) for name, release in of_round.items()}
        return outcome_of(
            self.study,
            answers,
            self._run,
            merged.arrived,
            secure=self._secure,
            dependent=self._dependent,
            **of_certificate,
        )


def worst(first: TreeRun, second: TreeRun) -> TreeRun:
    """The run of fewest leaves, level by level: what holds of it holds of both."""
    return TreeRun(
        leaves=first.leaves,
        fan_out=first.fan_out,
        arrived=min(first.arrived, second.arrived),
        least=tuple(map(min, first.least, second.least)),
    )
