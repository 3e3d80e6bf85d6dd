"""Errors of parameters: the package's own, with code and hint, and scikit-learn's own kind too."""

from __future__ import annotations

from sklearn.utils._param_validation import InvalidParameterError

from eigenveil.errors import DataError, PrivacyError


class InvalidParameter(DataError, InvalidParameterError):  # type: ignore[misc]
    """A parameter is not what it may be; nothing was charged or released."""


class InvalidPrivacyParameter(PrivacyError, InvalidParameterError):  # type: ignore[misc]
    """The same of a parameter that says what is promised."""
