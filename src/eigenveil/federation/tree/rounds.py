"""A tree of merges over time: leaves that send again and again, and a result that is refreshed.

In every round each leaf that is there sends the sum of the rows that it has not sent yet, with its
part of the noise; leaves and nodes may come and go from round to round. A row is in one message of
one round, so that any number of rounds costs what one does (docs/proofs/tree.md, claim 7). The root
adds up what each round releases, older rounds counting less: that is free.
"""

from __future__ import annotations

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.tree.contents import Totals
from eigenveil.federation.tree.nodes import (
    Merged,
    TreeOutcome,
    outcome_of,
    release_sums,
    run_of,
)
from eigenveil.federation.tree.private import TreeStudy, check_rounds
from eigenveil.moments.stream_sums import Discounted
from eigenveil.privacy.tree_views import TreeRun


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
        )


def worst(first: TreeRun, second: TreeRun) -> TreeRun:
    """The run of fewest leaves, level by level: what holds of it holds of both."""
    return TreeRun(
        leaves=first.leaves,
        fan_out=first.fan_out,
        arrived=min(first.arrived, second.arrived),
        least=tuple(map(min, first.least, second.least)),
    )
