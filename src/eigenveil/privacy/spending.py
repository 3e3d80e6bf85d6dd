"""What had been released when something stopped: reported by any exception that passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord


@dataclass
class Spending:
    """What a run has released so far; as a context it is reported by any exception that passes."""

    delta: float
    adjacency: Adjacency
    unit: str | None = None  # Whose rows are protected together
    reasons_not_certified: Sequence[str] = ()
    # Each is added before its noise is drawn
    records: list[ReleaseRecord] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.notify(error)

    def notify(self, error: BaseException) -> None:
        """Attach ``released``, ``spent`` and a note in words to an exception without them."""
        if not self.records or getattr(error, "released", None):
            return
        known: Any = error  # every exception takes attributes
        known.released = tuple(self.records)
        names = ", ".join(record.name for record in self.records)
        try:
            spent = compose(
                self.records,
                delta=self.delta,
                adjacency=self.adjacency,
                reasons_not_certified=self.reasons_not_certified,
            )
            known.spent = replace(spent, unit=self.unit)
        except PrivacyError as problem:  # what passes is more important
            error.add_note(f"Already released when it stopped: {names}. Its cost: {problem}")
            return
        error.add_note(f"Already released when it stopped: {names}. {known.spent}")
