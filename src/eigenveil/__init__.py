"""Differentially private PCA for data that cannot be pooled.

>>> from eigenveil import FederatedPCA, PrivatePCA
>>> one = PrivatePCA(n_components=10, epsilon=1.0, delta=1e-6)
>>> many = FederatedPCA(n_components=10, epsilon=1.0, delta=1e-6)
"""

from typing import TYPE_CHECKING, Any

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    OutputError,
    PrivacyError,
    ProtocolError,
)
from eigenveil.estimators.pca import PrivatePCA
from eigenveil.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from eigenveil.runtime.pca import FederatedPCA


def __getattr__(name: str) -> Any:
    # not imported with the package: its ledger's database library takes a third of a second
    if name == "FederatedPCA":
        from eigenveil.runtime.pca import FederatedPCA

        return FederatedPCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BudgetExceeded",
    "DataError",
    "EigenveilError",
    "FederatedPCA",
    "Guarantee",
    "OutputError",
    "PrivacyError",
    "PrivatePCA",
    "ProtocolError",
]
