"""FederatedICA: independent components of several sites that keep their rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.federated.base import FederatedFit
from eigenveil.models.ica.estimator import FittedICA


class FederatedICA(FederatedFit, FittedICA):
    """Differentially private independent components of several sites that keep their rows.

    What one curator would release, the sites release together: norms, centre, second and fourth
    moments are sums over all sites that only ever appear masked and noisy. The software of sites
    and aggregator and their messages are those of a real study, run in one process.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_, mixing_, mean_, scale_, kurtosis_, kurtosis_error_, usable_, n_components_, \
noise_floor_, row_bound_, n_samples_, guarantee_, certificate_
        As of :class:`eigenveil.PrivateICA`.
    views_, site_guarantees_, traffic_, study_, choice_, missing_
        As of :class:`eigenveil.FederatedPCA`.
    """

    _TASK = "ica"
    _FOR_ONE = "PrivateICA"

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        protocol: str = "auto",
        collusion: int = 0,
        dropouts: int = 0,
        masks: str = "modular",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        sites_per_unit: int = 1,
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        winsorize: float | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self._take(locals())
