"""What a use case tells while it goes on; whoever shows it chooses how."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from eigenveil.errors import (
    FileDialectWarning,
    InvalidRowsWarning,
    LedgerWarning,
    NoisyResultWarning,
    VariantsWarning,
    WeakPrivacyWarning,
)

Kind: TypeAlias = Literal["note", "warning", "ledger", "no ledger"]
_KINDS: dict[type[Warning], Kind] = {
    FileDialectWarning: "note",
    VariantsWarning: "note",
    InvalidRowsWarning: "warning",
    NoisyResultWarning: "warning",
    WeakPrivacyWarning: "warning",
    LedgerWarning: "ledger",
}


@dataclass(frozen=True)
class Advanced:
    """So many more rows, or of ``sites`` in all so many more, are done with a step."""

    what: str
    count: int
    sites: int | None = None


@dataclass(frozen=True)
class Told:
    """A sentence for the owner of the rows only."""

    kind: Kind
    text: str


FitEvent: TypeAlias = Advanced | Told
Tell: TypeAlias = Callable[[FitEvent], None]


def nobody(event: object) -> None:
    del event


@contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Tell the package's own warnings of the block, each time; those of others go as always."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def shown(
            message: Warning | str, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            kind = next((k for own, k in _KINDS.items() if issubclass(category, own)), None)
            if kind is None:
                usual(message, category, *place, **more)
            else:
                tell(Told(kind, str(message)))

        warnings.showwarning = shown
        for own in _KINDS:
            warnings.simplefilter("always", own)
        yield
