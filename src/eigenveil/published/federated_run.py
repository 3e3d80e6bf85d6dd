"""Federated-PCA on rows at hand: one client, or a client for each site and the tree above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.linalg.subspace import Subspace
from eigenveil.published.federated_pca import FPCA, EdgeOptions, merge_up_tree
from eigenveil.published.moments import finite_rows
from eigenveil.published.result import FloatArray, PublishedPCA
from eigenveil.published.sulq import omega
from eigenveil.published.trackers import as_components


def fpca(
    X: ArrayLike | Sequence[ArrayLike],
    *,
    n_components: int,
    block: int = 25,
    omega_0: float | None = None,
    leaves: int = 2,
    **options: Unpack[EdgeOptions],
) -> PublishedPCA:
    """Federated-PCA (paper 002, algorithms 1 to 3) on one stream of rows, or on one for each site.

    ``strengths`` are singular values: of the rows without a mask, of the blocks' bases with one.
    ``deviation`` is that of the mask of a block (lemma 2, n = ``block``); there is no ``released``
    matrix. With sites, ``messages`` holds what each sends up the tree, ``U S`` of shape (D, r).
    Rows of a last block that is not full are left, as in algorithm 1, unless it is the only one.

    Parameters
    ----------
    X : array of shape (n, D), or sequence of arrays of shape (n_s, D)
        Rows in the order they come, or a list or tuple of them, one for each site.
    n_components : int
        r, the rank to start from: with ``adapt`` one stream may end with another, up to ``most``.
        A tree's nodes have this rank.
    block : int
        B, the rows of each block after the first.
    omega_0 : float or None
        The deviation wanted of the first mask; by default the first block, too, has B rows.
    leaves : int
        Children of a node, with sites.
    **options
        epsilon and delta (both, or neither for no mask and no claim), adapt, alpha, beta, most,
        columns, forgetting, row_bound and random_state of
        :class:`~eigenveil.published.federated_pca.FPCAEdge`.

    Raises
    ------
    DataError
        When rows are no finite matrix or break the bound, sites have other features, or an option
        is out of range.
    PrivacyError
        When epsilon or delta is out of range.
    """
    sites = _sites(X)
    options["random_state"] = np.random.default_rng(options.get("random_state"))
    clients = [
        _client(FPCA(n_components=n_components, block=block, omega_0=omega_0, **options), rows)
        for rows in sites
    ]
    subspaces = [client.subspace for client in clients]
    several = len(clients) > 1
    found = merge_up_tree(subspaces, rank=n_components, leaves=leaves) if several else subspaces[0]
    epsilon, delta = clients[0].edge.epsilon, clients[0].edge.delta
    deviation = None
    if epsilon is not None and delta is not None:
        deviation = omega(epsilon, delta, len(found.basis), block)
    return PublishedPCA(
        components=as_components(found.basis),
        strengths=found.strengths,
        deviation=deviation,
        row_bound=options.get("row_bound"),
        claim=clients[0].claim,
        messages=tuple(map(_message, subspaces)) if several else None,
    )


def _sites(X: Any) -> list[FloatArray]:
    """The sites of a list or tuple of matrices; anything else is one site's rows."""
    if isinstance(X, list | tuple) and X and all(np.ndim(each) == 2 for each in X):
        return [finite_rows(each) for each in X]
    return [finite_rows(X)]


def _client(client: FPCA, rows: FloatArray) -> FPCA:
    client.partial_fit(rows)
    return client if client.blocks_folded else client.finish()


def _message(subspace: Subspace) -> FloatArray:
    return np.asarray(subspace.basis * subspace.strengths)
