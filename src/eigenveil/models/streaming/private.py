"""PrivateStreamingPCA: rows arrive in blocks and are forgotten; what is kept is a sum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError, PrivacyError
from eigenveil.models.callers import warn_of_callers
from eigenveil.models.constraints import Configured
from eigenveil.models.driver import LedgerPlace, begin_charges, warn_owner
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.result import EstimatorSpec
from eigenveil.models.streaming.state import StreamState, make_stream_plan
from eigenveil.models.table_fit import public_columns
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import noise_source
from eigenveil.origins import Origin
from eigenveil.tables.adapters import adapter
from eigenveil.tables.adapters.base import FLOATS, Adapter, array_rows
from eigenveil.tables.names import check_identifiers

_HERE = Origin()


class PrivateStreamingPCA(Configured, FittedPCA):
    """Differentially private principal components of rows that arrive in blocks.

    Every row is read once, counts once and is forgotten: what is kept is a sum of rows of norm at
    most 1, so it does not depend on the order of the rows or on how they were cut into blocks, and
    sums of several devices merge exactly. ``publish="end"`` releases the sum once, when
    :meth:`release` is called: until then there are no components. With
    ``publish="continual"`` there is a basis after every block, and all of them together cost the
    target: noise is spread over the blocks by a matrix mechanism whose error grows with the
    logarithm of their number (docs/proofs/streams.md). With ``publish="blocks"`` there is no last
    block: each is released by itself, for the whole target, since no row is in two of them; what is
    made of the released sums, forgetting old ones and choosing the rank anew, costs nothing.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_, mean_, explained_variance_, explained_variance_ratio_, noise_floor_, usable_, \
n_samples_, guarantee_, certificate_
        As of :class:`eigenveil.PrivatePCA`; there once something was released. The variances of
        unit rows are in the data's units by the released norms.
    blocks_ : int
        Calls of :meth:`partial_fit` so far: what its caller did, not something that was released.

    Notes
    -----
    Until it is released the object holds exact sums, and the number of rows: it is as private as
    the rows. It cannot be pickled or copied, and belongs to the process that made it. Once a stream
    with ``publish="end"`` is released, or a continual one has had all of its blocks, it holds
    nothing of the rows but what was released. Parameters that are set later change nothing of a
    stream that was begun. Under continual
    release neighbouring streams have the same blocks but for one row in one of them, so that a
    block ended must not depend on the rows.

    References
    ----------
    Grammenos, Mendoza-Smith, Crowcroft and Mascolo, Federated PCA (2020), for the setting.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateStreamingPCA
    >>> rows = np.random.default_rng(0).normal(size=(6000, 8)) * [9, 6, 1, 1, 1, 1, 1, 1]
    >>> stream = PrivateStreamingPCA(2, epsilon=1.0, delta=1e-6, publish="continual", horizon=60)
    >>> for block in np.split(rows, 60):
    ...     _ = stream.partial_fit(block)
    >>> stream.components_.shape, stream.guarantee_.certified
    ((2, 8), True)
    """

    _TASK, _PATH = "pca", "stream"
    _stream: StreamState | None = None
    _files: Sequence[Path] | None = None  # that the blocks are read from, where they are

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        sketch_size: int | None = None,
        publish: str = "end",
        horizon: int | None = None,
        forgetting: float = 1.0,
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        row_norm: str | float = "unit",
        center: bool | ArrayLike = False,
        scale: ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        precision: str = "double",
        whiten: bool = False,
        missing: str = "leave-out",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())

    @property
    def blocks_(self) -> int:
        """Calls of :meth:`partial_fit` so far, also of the streams that were merged."""
        if self._stream is None:
            raise AttributeError("blocks_: there is no stream yet")
        return self._stream.blocks

    def fit(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, **others: object
    ) -> Self:
        """A new stream of one block, the rows of ``X``, released; ``groups`` are their units.

        That there is at least one row is taken for public.

        Raises
        ------
        DataError, PrivacyError
            As :meth:`partial_fit` and :meth:`release`; an older result is left as it was.
        """
        del y
        self._refuse_others(others)
        warn_of_callers(of_units=not (self.unit is None and groups is None))
        table, ids = self._without_units(X, groups)
        array, names = table.checked(self)
        rows = array_rows(array, names, ids)
        stream = self._started(rows)
        try:
            invalid = stream.add(rows, keep=lambda _: None)
            result = stream.end()
            if self._stream is not None:
                self._stream.abandon()
            self._stream, self._result = stream, None
            self._take_over(result)
        except BaseException as error:
            if stream.result is not None:
                stream.attach_spent(error)
            stream.abandon()
            raise
        warn_owner(invalid, stream.plan)
        return self

    def partial_fit(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, **others: object
    ) -> Self:
        """Add a block of rows, shape (n, n_features); under continual release, and release it.

        A block may have no rows. ``groups``, shape (n,), are their units, where ``unit`` names no
        column of a frame: the first ``max_rows_per_unit`` rows of each unit count.

        Whatever stops it, Ctrl-C too, either leaves the stream as it was or tears it: then
        ``PrivacyError`` of code ``torn`` refuses everything that follows, for no row may count
        twice.

        Raises
        ------
        DataError
            When the columns cannot be used; nothing was added.
        PrivacyError
            When the target cannot be met, the stream was released, merged, torn or loaded from a
            file, belongs to another process, or its horizon is over.
        """
        del y
        self._refuse_others(others)
        return self._add(X, groups=groups)

    def _without_units(self, X: ArrayLike, groups: ArrayLike | None) -> tuple[Adapter, Any]:
        """Rows, and their units where the stream has some."""
        options = self._options()
        if groups is not None and self.unit is None:
            raise options.refused("unit", "no-name-of-unit")
        return adapter(X).split(self.unit, groups)

    def _add(
        self,
        X: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        groups: ArrayLike | None = None,
        origin: Origin = _HERE,
    ) -> Self:
        """Add a block; ``names`` are those of the columns where ``X`` cannot say them."""
        self._check_not_loaded()
        stream = self._stream
        table, ids = self._without_units(X, groups)
        if stream is None:
            rows = _first_block(self, table, names, ids, origin)
            stream = self._started(rows)
        else:
            stream.check_process()
            rows = _next_block(self, table, names, ids, origin)
        begun, before = self._stream, stream.blocks
        try:
            self._stream = stream
            invalid = stream.add(rows, keep=self._take_over)
        except BaseException as error:
            if stream.torn or stream.blocks != before:  # counted, but the caller sees a failure
                stream.stop(error, noise_drawn=stream.result is not None)
            else:
                self._stream = begun
                if begun is None:
                    stream.abandon()
            raise
        warn_owner(invalid, stream.plan)
        return self

    def merge(self, other: PrivateStreamingPCA) -> Self:
        """Add the rows that another stream has seen, exactly.

        ``other`` is spent by it: it takes no more rows, is not merged again and not released.

        Raises
        ------
        DataError, PrivacyError
            When they have different parameters or features, are one stream, or one was released,
            merged, torn or loaded. Nothing was added.
        """
        if not isinstance(other, PrivateStreamingPCA):
            raise DataError("merge-kind", kind=type(other).__name__, own="PrivateStreamingPCA")
        self._check_not_loaded()
        other._check_not_loaded()
        theirs = other._stream
        if theirs is None:
            return self
        mine = self._stream or self._begun(theirs.plan.features, theirs.names)
        if mine.names is not None and theirs.names is not None and mine.names != theirs.names:
            raise DataError("streams-differ")
        before = mine.blocks
        try:
            mine.merge(theirs)
            self._stream = mine
        except BaseException as error:
            if self._stream is None:
                mine.abandon()
            for stream in (mine, theirs):
                if stream.torn or mine.blocks != before:
                    stream.stop(error, noise_drawn=False)
            raise
        return self

    @property
    def _unfitted(self) -> str:
        if self._stream is None:
            return "is not fitted yet: call partial_fit and then release, or fit"
        return "has rows, of which nothing is released yet: call release()"

    def release(self) -> Self:
        """Release the sums with their noise and forget them; a repeated call changes nothing.

        Under continual release every block has been released already.

        Raises
        ------
        DataError
            When there was no block yet; nothing was released.
        PrivacyError
            When the stream was merged, torn or loaded, or belongs to another process.
        """
        self._check_not_loaded()
        stream = self._stream
        if stream is None:
            raise DataError("no-block")
        try:
            result = stream.end()
            if self._result is not result:
                self._take_over(result)
        except BaseException as error:
            if stream.result is not None:
                stream.attach_spent(error)
            raise
        return self

    def _columns(self, wanted: str) -> tuple[int, tuple[str, ...] | None]:
        if self._stream is None:
            return super()._columns(wanted)
        return self._stream.plan.features, self._stream.names

    def _check_not_loaded(self) -> None:
        if self._stream is None and self._result is not None:
            raise PrivacyError("loaded-model")

    def _started(self, rows: RowSource) -> StreamState:
        check_identifiers("The frame", rows.names)
        return self._begun(rows.features, None if rows.names is None else tuple(rows.names))

    def _begun(self, features: int, names: tuple[str, ...] | None) -> StreamState:
        options = self._options()
        spec = EstimatorSpec.by(self)
        public, _ = public_columns(options, features, names)
        plan = make_stream_plan(options, features=features)
        source = noise_source(options.random_state)
        plan = plan.drawn_from(secure=source.secure)
        charges = begin_charges(options, plan, files=self._files)
        try:
            return StreamState(plan, public, source, spec=spec, names=names, charges=charges)
        except BaseException:
            charges.end("stopped")
            raise


def _first_block(
    estimator: PrivateStreamingPCA,
    table: Adapter,
    names: Sequence[str] | None,
    ids: Any,
    origin: Origin,
) -> RowSource:
    """The rows of a stream's first block."""
    array, found = table.checked(estimator, fewest=0)
    return array_rows(array, found if names is None else names, ids, origin=origin)


def _next_block(
    estimator: PrivateStreamingPCA,
    table: Adapter,
    names: Sequence[str] | None,
    ids: Any,
    origin: Origin,
) -> RowSource:
    """The same for a further block, with the columns of the first."""
    if names is not None:
        rows = _first_block(estimator, table, names, ids, origin)
        if (rows.features, tuple(names)) != estimator._columns("n_features_in_"):
            raise DataError("streams-differ")
        return rows
    genes = None if estimator._result is None else estimator._result.names
    array = table.numbers().matrix(
        estimator,
        genes=genes,
        reset=False,
        accept_sparse="csr",
        dtype=list(FLOATS),
        ensure_min_samples=0,
        ensure_all_finite=False,
    )
    found = getattr(estimator, "feature_names_in_", None)
    columns = None if found is None else [str(name) for name in found]
    return array_rows(array, columns, ids, origin=origin)
