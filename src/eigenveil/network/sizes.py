"""How large each step's messages are made: bounds that follow from the settled study alone.

Questions, answers and refusals of a step are padded to its bound, so that what carries them, and
who owns its stores, sees sizes that everybody with the study knows. A message that does not fit is
an error of ours, before it is sent; nothing is cut.
"""

from __future__ import annotations

from functools import cached_property

from eigenveil.federation.masks import MASKS
from eigenveil.federation.protocols import PROTOCOLS
from eigenveil.federation.sealing import SEALED_MORE, SEALING_BYTES
from eigenveil.federation.study.study import Study
from eigenveil.models.plan import BasePlan
from eigenveil.models.schedule import Planned
from eigenveil.models.shapes import planned_sizes
from eigenveil.privacy.statistics import STATISTICS

SMALL = 1 << 13
"""Of a message without numbers, keys or texts of the study."""
# In JSON: a key of a party with its proof, a release of a certificate, a name of a column or site.
_KEY, _RELEASE, _NAME = 2 * SEALING_BYTES + 512, 2048, 128
# A letter between sites, and a round's packet, with keys or shares of this size for each partner.
_LETTER, _SHARES = SEALED_MORE + 1024, 128
_SIGNATURE = 128
# A round's masks of so many bytes are asked of the helper at once.
_HELD = 1 << 25


class Sizes:
    """The bounds of one study's steps, beyond what is small."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._sites, self._partners = len(study.sites), study.degree

    def bound(self, step: str, *, answer: bool = False) -> int:
        """Most bytes of a step's questions, or of its answers, in runs of this study."""
        return SMALL + self._of(step, answer=answer)

    def largest(self) -> int:
        rounds = range(1, len(self._rounds) + 1)
        steps = [f"{kind} {n}" for kind in ("round", "masks", "unmask") for n in rounds]
        return max(map(self.bound, ["join", "keys", "shares", "end", *steps]))

    def _of(self, step: str, *, answer: bool) -> int:
        kind, _, number = step.partition(" ")
        letters = self._partners * _LETTER
        match kind, answer:
            case "join", False:
                return 2 * self._text
            case "join", True:
                return _KEY + self._names
            case "keys", False:
                return (self._partners + 1) * _KEY + self._sites * _NAME
            case ("keys", True) | ("shares", False):
                return letters + self._partners * _NAME
            case "shares", True:
                return len(self._rounds) * (self._partners + 1) * _SHARES
            case "round", False:
                mask = 8 * self._values(int(number)) if MASKS[self.study.masks].needs_helper else 0
                packets = letters if number == "1" else 0
                return 8 * self._asked(int(number)) + mask + packets + self._sites
            case "round", True:
                return 8 * self._values(int(number))
            case "survivors", False:
                return self._sites
            case "unmask", False:
                return self._sites * (_SIGNATURE + 1) + (self._partners + 1) * _SHARES
            case "unmask", True:
                return (self._partners + 1) * (_SHARES + _NAME)
            case "masks", False:
                return self._batch(number) * (_KEY + _LETTER)
            case "masks", True:
                return self._batch(number) * (8 * self._values(int(number)) + _NAME)
            case "end", False:
                return self._text + len(self._plan.schedule) * _RELEASE
        return 0

    @cached_property
    def _plan(self) -> BasePlan:
        return self.study.plan(self.study.width)

    @cached_property
    def _text(self) -> int:
        """Of the study, with its plan, in JSON within JSON."""
        return 2 * len(self.study.model_dump_json()) + len(self._plan.model_dump_json())

    @cached_property
    def _names(self) -> int:
        """Of the columns, in JSON."""
        if self.study.columns is None:
            return _NAME * self.study.width
        return sum(len(ascii(name)) * 2 + 4 for name in self.study.columns)

    @cached_property
    def _rounds(self) -> tuple[tuple[Planned, ...], ...]:
        return self._plan.rounds

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return planned_sizes(self._plan)

    def _round(self, number: int) -> tuple[Planned, ...]:
        return self._rounds[number - 1] if 1 <= number <= len(self._rounds) else ()

    def _values(self, number: int) -> int:
        """Numbers that a site answers."""
        sizes = [self._sizes[each.name] for each in self._round(number)]
        if PROTOCOLS[self.study.protocol].sends_factors:
            sizes.append(self._plan.features * self._plan.sketch_columns)
        return sum(sizes)

    def _asked(self, number: int) -> int:
        """Numbers in a question: few, until rows may be seen through what was released."""
        plan, found = self._plan, 0
        before = [each for one in self._rounds[: number - 1] for each in one]
        is_known = any(STATISTICS[each.statistic].layout != "vector" for each in before)
        beside = plan.features * (4 + plan.sites + len(self.study.covariates or ()))
        for each in self._round(number):
            kind = STATISTICS[each.statistic]
            if kind.needs_basis:
                columns = (
                    plan.sketch_columns if kind.layout == "matrix" else max(2, plan.n_components)
                )
                found += beside + plan.features * columns
            else:
                found += beside + (plan.requested_values() if is_known else 0)
        return found

    def _batch(self, number: str) -> int:
        each = 8 * self._values(int(number))
        return min(self._sites, max(1, _HELD // max(1, each)))
