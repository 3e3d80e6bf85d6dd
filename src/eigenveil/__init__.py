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
        FileDialectWarning,
        InvalidRowsWarning,
        LedgerWarning,
        NoisyResultWarning,
        OutputError,
        PrivacyError,
        ProtocolError,
        VariantsWarning,
        WeakPrivacyWarning,
    )
    from eigenveil.federation.ledger.entries import Budget
    from eigenveil.federation.ledger.fits import begin_fit as begin_fit
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.federation.ledger.share import share_budget
    from eigenveil.io.open import open_rows as open_rows
    from eigenveil.models.covariance.estimator import PrivateCovariance, load_derived
    from eigenveil.models.covariance.federated import FederatedCovariance
    from eigenveil.models.ica.estimator import PrivateICA
    from eigenveil.models.ica.federated import FederatedICA
    from eigenveil.models.mixture.estimator import PrivateGaussianMixture
    from eigenveil.models.mixture.federated import FederatedGaussianMixture
    from eigenveil.models.pca.estimator import PrivatePCA
    from eigenveil.models.pca.federated import FederatedPCA
    from eigenveil.models.streaming.private import PrivateStreamingPCA
    from eigenveil.models.streaming.tracker import StreamingPCA
    from eigenveil.models.topics.estimator import PrivateTopicModel
    from eigenveil.models.topics.federated import FederatedTopicModel
    from eigenveil.privacy.guarantee import Guarantee

# Each is imported when it is first used: the command line's help needs none of the libraries.
_MODULES = {
    "Budget": "federation.ledger.entries",
    "FederatedCovariance": "models.covariance.federated",
    "FederatedICA": "models.ica.federated",
    "FederatedGaussianMixture": "models.mixture.federated",
    "FederatedPCA": "models.pca.federated",
    "FederatedTopicModel": "models.topics.federated",
    "Guarantee": "privacy.guarantee",
    "Ledger": "federation.ledger.ledger",
    "PrivateCovariance": "models.covariance.estimator",
    "PrivateICA": "models.ica.estimator",
    "PrivateGaussianMixture": "models.mixture.estimator",
    "PrivatePCA": "models.pca.estimator",
    "PrivateStreamingPCA": "models.streaming.private",
    "PrivateTopicModel": "models.topics.estimator",
    "StreamingPCA": "models.streaming.tracker",
    "load_derived": "models.covariance.estimator",
    "share_budget": "federation.ledger.share",
}

# What rooms are given of higher ones, which they neither import nor name.
_GIVEN = {"begin_fit": "federation.ledger.fits", "open_rows": "io.open"}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _GIVEN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{(_MODULES | _GIVEN).get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Budget",
    "BudgetExceeded",
    "DataError",
    "EigenveilError",
    "FederatedCovariance",
    "FederatedGaussianMixture",
    "FederatedICA",
    "FederatedPCA",
    "FederatedTopicModel",
    "FileDialectWarning",
    "Guarantee",
    "InvalidRowsWarning",
    "Ledger",
    "LedgerWarning",
    "NoisyResultWarning",
    "OutputError",
    "PrivacyError",
    "PrivateCovariance",
    "PrivateGaussianMixture",
    "PrivateICA",
    "PrivatePCA",
    "PrivateStreamingPCA",
    "PrivateTopicModel",
    "ProtocolError",
    "StreamingPCA",
    "VariantsWarning",
    "WeakPrivacyWarning",
    "load_derived",
    "share_budget",
]
