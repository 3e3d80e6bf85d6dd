"""What had been released when something stopped: told by the error that passes, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.releases import ReleaseRecord


def tell_spent(
    error: BaseException,
    released: Sequence[ReleaseRecord],
    *,
    delta: float,
    adjacency: Adjacency,
    reasons_not_certified: Sequence[str] = (),
) -> None:
    """Attach ``released`` and ``spent`` to any exception, and a note that says it in words.

    Nothing happens where nothing was released, or where the error says so already.

    Parameters
    ----------
    error : BaseException
        What passes: an error of the package, or ``KeyboardInterrupt``, ``MemoryError``, ...
    released : sequence of ReleaseRecord
        What was released before.
    """
    if not released or getattr(error, "released", None):
        return
    known: Any = error  # every exception takes attributes
    known.released = tuple(released)
    names = ", ".join(record.name for record in released)
    try:
        known.spent = compose(
            released, delta=delta, adjacency=adjacency, reasons_not_certified=reasons_not_certified
        )
    except PrivacyError as trouble:  # what passes is more important
        error.add_note(f"Already released when it stopped: {names}. Its cost: {trouble}")
        return
    error.add_note(f"Already released when it stopped: {names}. {known.spent}")


def spent_of(error: BaseException) -> Guarantee | None:
    """What an exception says was spent before it; ``None`` where nothing was."""
    found = getattr(error, "spent", None)
    return found if isinstance(found, Guarantee) else None


def same_spent(error: BaseException, instead: BaseException) -> None:
    """Let an exception that takes another's place say what that one said was spent."""
    released = getattr(error, "released", ())
    if not released or error is instead:
        return
    known: Any = instead
    known.released, known.spent = released, spent_of(error)
    for note in getattr(error, "__notes__", ()):
        instead.add_note(note)
