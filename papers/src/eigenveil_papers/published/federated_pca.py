"""Federated-PCA as in the text of paper 002 (algorithms 1 to 3): reproduction, never certified.

A private block of b rows gives an orthonormal basis by streaming MOD-SuLQ with the mask of lemma 2
for n = b. Blocks share no row, and all that follows (folding, the rank, merging) reads the bases
only, so the claim for a block is the claim for the stream: for one row replaced by another, whoever
sees the result. It is not certified: the mask is drawn in floating point from a generator that is
not cryptographic, and without a public bound each block's rows are divided by the largest norm
found in it (the paper takes norms up to 1).

Algorithm 3 is missing from the text. Filled in here: a private block's *basis* is folded into
(U, S) with SSVD_r, a public block itself; then the rank is adjusted. So with privacy every
direction of a block weighs the same, and strengths tell how often a direction was among the
leading ones, not how strong it is. With the text's mask a block of 25 rows tells nothing at the
paper's budgets: its basis is a random one (tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.linalg.subspace import Subspace, adjust_rank, append, check_shares, merge
from eigenveil.privacy.guarantee import Guarantee
from eigenveil_papers.published.moments import check_components, finite_rows, rows_within
from eigenveil_papers.published.result import FloatArray, PublishedPCA, Seed
from eigenveil_papers.published.sulq import omega, published_claim, smallest_batch
from eigenveil_papers.published.trackers import (
    Blocks,
    Reader,
    as_components,
    checked_count,
    no_components,
)

# Streaming MOD-SuLQ


def streaming_mod_sulq(
    block: FloatArray, *, rank: int, deviation: float, columns: int, rng: np.random.Generator
) -> Subspace:
    """The leading directions of ``B'B / b + N`` without ever holding a D x D matrix (equation 7).

    Of a block (b, D) of rows of norm at most 1; ``deviation`` is that of each of the D^2
    independent entries of N: omega of lemma 2 with n = b. The matrix is made ``columns`` columns at
    a time, in memory of O(D (b + c + r)), and every slice is folded in with SSVD_r. With ``rank``
    of D that is exact; otherwise the answer depends on the slices, because every fold drops what is
    below the leading ``rank`` directions.
    """
    count, features = block.shape
    kept = Subspace(np.zeros((features, 0)), np.zeros(0))
    for start in range(0, features, columns):
        slice_ = block.T @ block[:, start : start + columns] / count
        slice_ += rng.normal(scale=deviation, size=slice_.shape)
        kept = append(kept, slice_.T, rank=rank)
    return kept


# One client


class EdgeOptions(TypedDict, total=False):
    """What :class:`FPCAEdge` takes besides the rank, and all that is made of it takes too."""

    epsilon: float | None
    delta: float | None
    adapt: bool
    alpha: float
    beta: float
    most: int | None
    columns: int
    forgetting: float
    row_bound: float | None
    random_state: Seed


class FPCAEdge:
    """FPCA-Edge (algorithm 3): what one client does with a block of rows.

    ``n_components`` is the rank to start from, adjusted after each block with ``adapt`` so that the
    last share stays between ``alpha`` and ``beta`` per cent (equation 4), up to ``most``. Without
    epsilon and delta there is no mask. ``columns`` of a block's second moment are made at a time;
    ``forgetting`` is lambda of equation 2, on what was there before each block. ``row_bound`` is a
    public bound on the norms of private rows, by which they are divided: without one it is the
    largest norm found in each block, which is not private. Public rows are not divided.
    """

    def __init__(
        self,
        *,
        n_components: int,
        epsilon: float | None = None,
        delta: float | None = None,
        adapt: bool = True,
        alpha: float = 1.0,
        beta: float = 10.0,
        most: int | None = None,
        columns: int = 16,
        forgetting: float = 1.0,
        row_bound: float | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        self.columns = checked_count("columns", columns)
        check_shares(alpha, beta)
        if not 0 < forgetting <= 1:
            raise DataError(
                "out-of-range",
                name="forgetting",
                value=repr(forgetting),
                wanted="in (0, 1], 1 to forget nothing",
            )
        if (epsilon is None) != (delta is None):
            raise DataError("epsilon-without-delta")
        if epsilon is not None and delta is not None:
            omega(epsilon, delta, max(2, n_components), 1)  # what is out of range is said at once
        self.epsilon, self.delta = epsilon, delta
        self.adapt, self.alpha, self.beta = adapt, alpha, beta
        self.most = None if most is None else checked_count("most", most)
        self.forgetting, self.row_bound = forgetting, row_bound
        self._rng = np.random.default_rng(random_state)
        self._reader = Reader()
        self._rank = n_components
        self.subspace = Subspace(np.zeros((0, 0)), np.zeros(0))

    def fold(self, block: ArrayLike) -> Self:
        """Fold one block of rows, shape (b, D), into the subspace."""
        rows = self._reader.rows(block, least_features=self.n_components)
        if len(rows) == 0:
            raise DataError("empty-block")
        if self.subspace.rank == 0:
            self.subspace = Subspace(np.zeros((rows.shape[1], 0)), np.zeros(0))
        if self.epsilon is not None and self.delta is not None:
            rows = self._private_basis(rows, self.epsilon, self.delta, self._rank)
        folded = append(self.subspace, rows, rank=self._rank, forgetting=self.forgetting)
        if self.adapt and folded.rank == self._rank:  # with fewer, too few rows have come to tell
            folded = adjust_rank(folded, alpha=self.alpha, beta=self.beta, most=self.most)
            self._rank = folded.rank
        self.subspace = folded
        return self

    def _private_basis(
        self, rows: FloatArray, epsilon: float, delta: float, rank: int
    ) -> FloatArray:
        """The leading ``rank`` directions of the block under the mask, as orthonormal rows."""
        scaled, _ = rows_within(rows, self.row_bound)
        return streaming_mod_sulq(
            scaled,
            rank=rank,
            deviation=omega(epsilon, delta, scaled.shape[1], len(scaled)),
            columns=self.columns,
            rng=self._rng,
        ).basis.T

    @property
    def claim(self) -> Guarantee | None:
        """As the paper states it, never certified; None without a mask."""
        if self.epsilon is None or self.delta is None:
            return None
        return published_claim(self.epsilon, self.delta, public_bound=self.row_bound is not None)


class FPCA:
    """Federated-PCA (algorithm 1), one client's part: gather rows into blocks and fold them.

    The first block has T rows, the fewest for which a mask has deviation ``omega_0`` (lemma 2), or
    ``block`` without one; those after it have ``block`` rows, each with the mask for as many. Rows
    of a block that is not full are not read yet; :meth:`finish` folds them. Other options are those
    of :class:`FPCAEdge`.
    """

    as_published = True

    def __init__(
        self,
        *,
        n_components: int,
        block: int = 25,
        omega_0: float | None = None,
        **options: Unpack[EdgeOptions],
    ) -> None:
        self.edge = FPCAEdge(n_components=n_components, **options)
        if omega_0 is not None and self.edge.epsilon is None:
            raise DataError("deviation-without-mask")
        self.block = block
        self.omega_0 = omega_0
        self._reader = Reader()
        self._blocks = Blocks(block)
        self.blocks_folded = 0

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D), any number of them."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.edge.n_components)
        if not started:
            self._blocks.size = self.first_block(exact.shape[1])
        for block in self._blocks.full(exact):
            self._fold(block)
        return self

    def first_block(self, features: int) -> int:
        """T, the rows of the first block, for rows of this many features."""
        epsilon, delta = self.edge.epsilon, self.edge.delta
        if self.omega_0 is None or epsilon is None or delta is None:
            return self.block
        return smallest_batch(self.omega_0, epsilon=epsilon, delta=delta, features=features)

    def finish(self) -> Self:
        """Fold the rows that wait, though their block is not full: algorithm 1 leaves them."""
        if self._blocks.waiting:
            self._fold(self._blocks.rest())
        return self

    def _fold(self, block: FloatArray) -> None:
        self.edge.fold(block)
        self._blocks.size = self.block
        self.blocks_folded += 1

    @property
    def subspace(self) -> Subspace:
        """What the client sends up the tree; of rank 0 before the first block is full."""
        return self.edge.subspace

    @property
    def components(self) -> FloatArray:
        """Directions, shape (r, D), strongest first."""
        if self.blocks_folded == 0:
            raise no_components(f"the first block is not full, {self._blocks.waiting} rows wait")
        return as_components(self.subspace.basis)

    @property
    def strengths(self) -> FloatArray:
        """Singular values, shape (r,): of the rows without a mask, of the blocks' bases with."""
        return self.subspace.strengths

    @property
    def claim(self) -> Guarantee | None:
        """As the paper states it, never certified; None without a mask."""
        return self.edge.claim


# The tree


def merge_up_tree(subspaces: Sequence[Subspace], *, rank: int, leaves: int = 2) -> Subspace:
    """Clients' subspaces merged level by level, ``leaves`` at each node (algorithm 1's last step).

    Clients that failed or have not folded a block yet (rank 0) are left out: nobody waits for them.
    When ``rank`` is at least the rank of all rows and each subspace is exact, the result is that of
    all rows together, in whatever order the clients come (lemma 1). No child is forgotten: equation
    2 discounts the previous subspace, and siblings have no order in time.
    """
    if leaves < 2 or rank < 1:
        raise DataError("tree-merges-nothing", leaves=leaves, rank=rank)
    level = [subspace for subspace in subspaces if subspace.rank > 0]
    if not level or len({subspace.basis.shape[0] for subspace in level}) > 1:
        raise DataError("subspaces-not-merged", level=len(level))
    check_components(rank, level[0].basis.shape[0])
    while len(level) > 1:
        level = [
            _merged(level[start : start + leaves], rank) for start in range(0, len(level), leaves)
        ]
    return _merged(level, rank)


def _merged(children: Sequence[Subspace], rank: int) -> Subspace:
    """The children of one node, one after the other; a single one is cut to ``rank``."""
    whole = Subspace(children[0].basis[:, :rank], children[0].strengths[:rank])
    for child in children[1:]:
        whole = merge(whole, child, rank=rank)
    return whole


# -- Federated-PCA on rows at hand: one client, or a client for each site and the tree above them.


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
        :class:`~eigenveil_papers.published.federated_pca.FPCAEdge`.
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
