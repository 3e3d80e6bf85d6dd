"""The package's own errors: what is wrong, where, and the way out.

Every error has a stable ``code`` (for programs), a message (what is wrong and where) and a ``hint``
(what to do).  The command line prints the two sentences and exits with ``exit_status``; it never
shows a traceback unless asked to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from eigenveil.privacy.guarantee import Guarantee
    from eigenveil.privacy.releases import ReleaseRecord


class EigenveilError(Exception):
    """Base of the family.

    Parameters
    ----------
    message : str
        What is wrong, naming the file, column, site or number.
    hint : str
        What to do about it.
    code : str
        Stable identifier, for programs.

    Attributes
    ----------
    released : tuple of ReleaseRecord
        What had already been released when the error was raised; often nothing.
    spent : Guarantee or None
        The guarantee of what had already been released; ``None`` when nothing was.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or type(self).__name__
        self.released: tuple[ReleaseRecord, ...] = ()
        self.spent: Guarantee | None = None

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class DataError(EigenveilError, ValueError):
    """The rows, files or columns cannot be used as they are."""

    exit_status = 3


class PrivacyError(EigenveilError, ValueError):
    """The wished guarantee cannot be given, or a release cannot be useful under it."""

    exit_status = 4


class BudgetExceeded(PrivacyError):
    """A ledger refuses a charge."""

    exit_status = 5


class ProtocolError(EigenveilError, RuntimeError):
    """A message or a party does not follow the protocol."""

    exit_status = 6


class OutputError(EigenveilError, OSError):
    """A result cannot be written or read where it was asked for."""

    exit_status = 7


class NoisyResultWarning(UserWarning):
    """The result shows nothing above its noise."""
