"""Differentially private PCA, mixtures and topics for data that cannot be pooled.

>>> from eigenveil import FederatedPCA, PrivatePCA
>>> one = PrivatePCA(n_components=10, epsilon=1.0, delta=1e-6)
>>> many = FederatedPCA(n_components=10, epsilon=1.0, delta=1e-6)
"""

import importlib
from typing import TYPE_CHECKING, Any

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    InvalidRowsWarning,
    NoisyResultWarning,
    OutputError,
    PrivacyError,
    ProtocolError,
)
from eigenveil.estimators.mixture import PrivateGaussianMixture
from eigenveil.estimators.pca import PrivatePCA
from eigenveil.estimators.private_streaming import PrivateStreamingPCA
from eigenveil.estimators.streaming import StreamingPCA
from eigenveil.estimators.topics import PrivateTopicModel
from eigenveil.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from eigenveil.runtime.pca import FederatedPCA
    from eigenveil.runtime.tensors import FederatedGaussianMixture, FederatedTopicModel

# Not imported with the package: their ledger's database library takes a third of a second.
_MODULES = {
    "FederatedPCA": "eigenveil.runtime.pca",
    "FederatedGaussianMixture": "eigenveil.runtime.tensors",
    "FederatedTopicModel": "eigenveil.runtime.tensors",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BudgetExceeded",
    "DataError",
    "EigenveilError",
    "FederatedGaussianMixture",
    "FederatedPCA",
    "FederatedTopicModel",
    "Guarantee",
    "InvalidRowsWarning",
    "NoisyResultWarning",
    "OutputError",
    "PrivacyError",
    "PrivateGaussianMixture",
    "PrivatePCA",
    "PrivateStreamingPCA",
    "PrivateTopicModel",
    "ProtocolError",
    "StreamingPCA",
]
