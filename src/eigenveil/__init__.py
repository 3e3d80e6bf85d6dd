"""Differentially private PCA, mixtures and topics for data that cannot be pooled.

>>> from eigenveil import FederatedPCA, PrivatePCA
>>> one = PrivatePCA(n_components=10, epsilon=1.0, delta=1e-6)
>>> many = FederatedPCA(n_components=10, epsilon=1.0, delta=1e-6)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from eigenveil.runtime.pca import FederatedPCA
    from eigenveil.runtime.tensors import FederatedGaussianMixture, FederatedTopicModel

# Each is imported when it is first used: the command line's help needs none of the libraries.
_MODULES = {
    "FederatedGaussianMixture": "runtime.tensors",
    "FederatedPCA": "runtime.pca",
    "FederatedTopicModel": "runtime.tensors",
    "Guarantee": "privacy.guarantee",
    "PrivateGaussianMixture": "estimators.mixture",
    "PrivatePCA": "estimators.pca",
    "PrivateStreamingPCA": "estimators.private_streaming",
    "PrivateTopicModel": "estimators.topics",
    "StreamingPCA": "estimators.streaming",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


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
