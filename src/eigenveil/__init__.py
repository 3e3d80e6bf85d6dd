"""Differentially private PCA for data that cannot be pooled.

>>> from eigenveil import PrivatePCA
>>> pca = PrivatePCA(n_components=10, epsilon=1.0, delta=1e-6)
"""

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

__all__ = [
    "BudgetExceeded",
    "DataError",
    "EigenveilError",
    "Guarantee",
    "OutputError",
    "PrivacyError",
    "PrivatePCA",
    "ProtocolError",
]
