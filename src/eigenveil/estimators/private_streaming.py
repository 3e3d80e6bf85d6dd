"""PrivateStreamingPCA: rows arrive in blocks and are forgotten; what is kept is a sum."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from eigenveil.errors import DataError
from eigenveil.estimators.driver import certificate_of
from eigenveil.estimators.fitted import FittedPCA
from eigenveil.estimators.inputs import check_noise
from eigenveil.estimators.stored import noise_source, public_centre
from eigenveil.estimators.stream_plan import make_stream_plan
from eigenveil.estimators.stream_state import StreamState
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.moments.sparse import SparseRows
from eigenveil.privacy.certificate import Certificate


class PrivateStreamingPCA(FittedPCA):
    """Differentially private principal components of rows that arrive in blocks.

    Every row is read once, counts once and is forgotten: what is kept is a sum of rows of norm at
    most 1, so it does not depend on the order of the rows or on how they were cut into blocks, and
    sums of several devices merge exactly. ``publish="end"`` releases the sum once. With
    ``publish="continual"`` there is a basis after every block, and all of them together cost the
    wish: noise is spread over the blocks by a matrix mechanism whose error grows with the
    logarithm of their number (docs/proofs/streams.md).

    Parameters
    ----------
    n_components : int, default=2
        Number of components, at most the number of features.
    epsilon : float, default=1.0
        Privacy wish, > 0, for the whole stream.
    delta : float, default=1e-6
        Privacy wish, 0 <= delta < 1; 0 asks for pure epsilon, which only "end" can give.
    sketch_size : int, default=None
        Columns of the D x R sketch that stands for the second moment. ``None``: the whole second
        moment up to 1447 features, beyond a sketch with 4 times ``n_components``.
    publish : {"end", "continual"}, default="end"
    horizon : int, default=None
        The most blocks of a continual stream; each call of :meth:`partial_fit` is one.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Which streams are neighbours: one row more or less in a block, or one row changed (the
        number of rows then being public).
    row_norm : "unit" or float, default="unit"
        Rows are divided by their norm, or shortened to a public number in the data's units.
    center : False or array of shape (n_features,), default=False
        Nothing, or a public centre, is subtracted first. One pass cannot subtract a mean that is
        not known yet.
    noise : {"secure"}, default="secure"
        Noise from a cryptographic generator keyed by the operating system.
    random_state : int, Generator or RandomState, default=None
        For tests and reproductions: the noise is reproducible and the guarantee is not certified.

    Attributes
    ----------
    components_, mean_, explained_variance_, explained_variance_ratio_, noise_floor_, usable_, \
n_samples_, guarantee_, certificate_
        As of :class:`eigenveil.PrivatePCA`; there once something was released. The variances of
        unit rows are in the data's units by the released norms.
    blocks_ : int
        Calls of :meth:`partial_fit` so far.

    Notes
    -----
    Until it is released the object holds exact sums: it is as private as the rows. Under continual
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

    _stream: StreamState
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        sketch_size: int | None = None,
        publish: str = "end",
        horizon: int | None = None,
        adjacency: str = "add-remove",
        row_norm: str | float = "unit",
        center: bool | ArrayLike = False,
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.sketch_size = sketch_size
        self.publish = publish
        self.horizon = horizon
        self.adjacency = adjacency
        self.row_norm = row_norm
        self.center = center
        self.noise = noise
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """A new stream of one block, the rows of ``X``, released.

        Raises
        ------
        DataError, PrivacyError
            As :meth:`partial_fit` and :meth:`release`.
        """
        del y
        self._forget()
        return self.partial_fit(X).release()

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Add a block of rows, shape (n, n_features); under continual release, and release it.

        Raises
        ------
        DataError
            When the rows cannot be used, naming row and column; nothing was added.
        PrivacyError
            When the wish cannot be met, the stream was released, or its horizon is over.
        """
        del y
        first = not hasattr(self, "_stream")
        rows, count = _block(self, X, first=first)
        stream = self._started(rows.features) if first else self._stream
        stream.add(rows, count)
        self._stream = stream
        self.blocks_ = stream.blocks
        if stream.factors is not None:
            self._keep(stream.plan, stream.factors, self._certified(stream))
        return self

    def merge(self, other: PrivateStreamingPCA) -> Self:
        """Add the rows that another stream has seen, exactly; ``other`` is left unchanged.

        Raises
        ------
        DataError, PrivacyError
            When they have different parameters or features, or one was released already.
        """
        if not isinstance(other, PrivateStreamingPCA):
            raise DataError(
                f"A {type(other).__name__} cannot be merged into a PrivateStreamingPCA.",
                hint="Merge streams of one kind.",
                code="merge-mismatch",
            )
        if not hasattr(other, "_stream"):
            return self
        if not hasattr(self, "_stream"):
            self.n_features_in_ = other.n_features_in_
            if hasattr(other, "feature_names_in_"):
                self.feature_names_in_ = other.feature_names_in_
            mine = self._started(other.n_features_in_)
        else:
            mine = self._stream
        _check_names(self, other)
        mine.merge(other._stream)
        self._stream = mine
        self.blocks_ = mine.blocks
        return self

    def release(self) -> Self:
        """Release the sums with their noise, once: asked again, nothing changes.

        Under continual release every block has been released already.

        Raises
        ------
        DataError
            When there are no rows, or fewer than components; nothing was released.
        """
        if not hasattr(self, "_stream"):
            raise DataError(
                "The stream has no rows yet.", hint="Call partial_fit first.", code="no-rows"
            )
        if not hasattr(self, "certificate_"):
            self._stream.end()
            factors = self._stream.factors
            assert factors is not None
            self._keep(self._stream.plan, factors, self._certified(self._stream))
        return self

    def _started(self, features: int) -> StreamState:
        check_noise(self.noise)
        centre = public_centre(self.center, features)
        plan = make_stream_plan(
            features=features,
            n_components=self.n_components,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            row_norm=self.row_norm,
            center=centre if centre is not None else bool(self.center),
            sketch_size=self.sketch_size,
            publish=self.publish,
            horizon=self.horizon,
        )
        source = noise_source(self.random_state)
        self._secure = source.secure
        return StreamState(plan.drawn_from(secure=source.secure), centre, source)

    def _certified(self, stream: StreamState) -> Certificate:
        if hasattr(self, "certificate_"):  # of the whole stream, from its first block on
            return self.certificate_
        return certificate_of(stream.plan, stream.records, secure=self._secure)

    def _forget(self) -> None:
        for name in ("_stream", "certificate_", "blocks_", *self._ARRAYS):
            if hasattr(self, name):
                delattr(self, name)


def _block(estimator: Any, X: ArrayLike, *, first: bool) -> tuple[RowSource, int]:
    """The rows of a block and their number; all are checked before any is added."""
    array = validate_data(
        estimator,
        X,
        reset=first,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_min_samples=0,
        ensure_all_finite=False,  # below, with row and column
    )
    if array.shape[0] == 0:
        raise DataError(
            "The block has no rows.", hint="Give at least one row a block.", code="empty-block"
        )
    sparse = scipy.sparse.issparse(array)
    if not np.isfinite(array.data if sparse else array).all():
        entries = array.toarray() if sparse else array
        row, column = (int(place) for place in np.argwhere(~np.isfinite(entries))[0])
        names = getattr(estimator, "feature_names_in_", None)
        raise DataError(
            f"row {row}, column {str(column if names is None else names[column])!r} of the block "
            f"is {entries[row, column]}.",
            hint="Input contains NaN or infinity; remove or fill such entries first. "
            "Nothing of the block was added.",
            code="not-finite",
        )
    return (SparseRows(array) if sparse else ArrayRows(array)), int(array.shape[0])


def _check_names(first: PrivateStreamingPCA, second: PrivateStreamingPCA) -> None:
    mine = getattr(first, "feature_names_in_", None)
    theirs = getattr(second, "feature_names_in_", None)
    if mine is not None and theirs is not None and list(mine) != list(theirs):
        raise DataError(
            "The streams have different columns.",
            hint="Merge streams of the same columns, in the same order.",
            code="other-columns",
        )
