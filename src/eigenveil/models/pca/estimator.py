"""``PrivatePCA``, and what every fitted PCA can do: transform, save, load."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eigenveil.errors import DataError
from eigenveil.models.holes import scores_of_observed
from eigenveil.models.inputs import validated
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.rounds import Factors, private_pca
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import View, of_factors
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.stored import StoredModel
from eigenveil.models.streaming.plan import StreamPlan
from eigenveil.models.table_fit import TableFit
from eigenveil.moments.source import RowSource


class FittedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released components and what belongs to them.

    ``FittedPCA.load`` reads a model that any of the estimators saved; ``PrivatePCA.load`` and
    ``FederatedPCA.load`` also give back the options of the fit.
    """

    _FAMILY = ("PrivatePCA", "FederatedPCA", "PrivateStreamingPCA")
    _PLAN = Plan
    _FACTORS = Factors

    components_: View[NDArray[np.float64]] = of_factors("components")
    mean_: View[NDArray[np.float64]] = of_factors("mean")
    explained_variance_: View[NDArray[np.float64]] = of_factors("explained_variance")
    explained_variance_ratio_: View[NDArray[np.float64]] = of_factors("explained_variance_ratio")
    usable_: View[NDArray[np.bool_]] = of_factors("usable")
    n_samples_: View[float] = of_factors("rows")
    noise_floor_: View[float] = of_factors("noise_floor")
    total_variance_: View[float] = of_factors("total_variance")
    row_bound_: View[float] = of_factors("row_bound")

    @classmethod
    def _read_plan(cls, plan: Mapping[str, Any]) -> Plan:
        return (StreamPlan if "publish" in plan else Plan).model_validate(plan)

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Scores of the rows of ``X`` along the components, shape (n_samples, n_components).

        Of a row with NaN: NaN, or least squares on the columns that it has, where the fit had a
        ``missing`` other than "error".
        """
        self._check_fitted()
        array = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=False,
        )
        components = self.components_.astype(array.dtype, copy=False)
        offset = (self.mean_ @ self.components_.T).astype(array.dtype, copy=False)
        scores = np.asarray(array @ components.T - offset)
        if self._check_fitted().plan.holes and not scipy.sparse.issparse(array):
            holed = np.isnan(array).any(axis=1)
            residuals = array[holed].astype(np.float64) - self.mean_
            scores[holed] = scores_of_observed(residuals, self.components_)
        return scores

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows in the original space of scores ``X``, shape (n_samples, n_features)."""
        self._check_fitted()
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.components_.shape[0]:
            raise DataError(
                f"Scores of shape {scores.shape} do not have {self.components_.shape[0]} columns.",
                hint="Give what transform returned.",
            )
        return np.asarray(scores @ self.components_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


# -- PrivatePCA: the scikit-learn estimator of one data set.


class PrivatePCA(TableFit, FittedPCA):
    """Differentially private principal component analysis.

    Nothing about the rows has to be known beforehand, and everything the fitted estimator holds may
    be published: scale, centre, second moment and explained variance are four noisy releases that
    share the budget (the design's section 8).

    Parameters
    ----------
    n_components : int, default=2
        Number of components, at most the number of features.
    epsilon : float, default=1.0
        Privacy target, > 0.
    delta : float, default=1e-6
        Privacy target, 0 <= delta < 1; 0 means pure epsilon.
    mechanism : {"auto", "gaussian", "wishart", "vector", "bingham", "power", "sketch"}
        "auto": "gaussian", or "wishart" when ``delta=0``. "gaussian": isometric Gaussian noise on
        the second moment. "wishart": the difference of two Wishart matrices, pure epsilon.
        "vector": noise of density exp(-epsilon |E|_F), pure epsilon. "bingham": the exponential
        mechanism, sampled exactly, pure epsilon. "power": the noisy power method. "sketch": one
        pass with D x ``sketch_size`` memory.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Which data sets are neighbours: one row more or less, or one row changed (the number of rows
        then being public).
    unit : str, default=None
        The column of a frame with each row's unit, such as a patient: all rows of one are then
        protected together. ``fit(X, groups=ids)`` gives the units beside the rows instead.
    max_rows_per_unit : int, default=1
        Rows of a unit that count alike, each 1 over this; those of a unit with more count as much
        as this many. With 1 every unit counts the same.
    row_norm : {"unit", "auto", "max"} or float, default="unit"
        How rows are bounded in the second moment: divided by their norm; clipped at a quantile
        chosen from the released norms; divided by the largest norm found (reproductions only,
        never certified); clipped at a public number.
    row_bound : float, default=None
        A public bound on the norm of rows, in the data's units. When given, the release of the
        norms is skipped.
    center : bool or array of shape (n_features,), default=True
        True: subtract a privately released mean. False: do not. An array: a public centre.
    budget_split : dict, default=None
        Shares of the steps "scale", "center", "moment" and "variance". By default 4, 14, 78 and 4
        per cent of mu squared; 8, 20, 69 and 3 per cent of epsilon when ``delta=0``. Every step
        that the fit takes needs a share, but "variance", which it can do without (not for
        "bingham"); a step that it does not take ("center" without a private one, "scale" where no
        norms are released) must have none.
    invalid : {"zero", "error"}, default="zero"
        What becomes of a row that is not valid, with an entry that is not a finite number. "zero":
        a zero row, which is counted and adds nothing to any other sum; a warning gives their
        number and the first to whoever fits. "error": a DataError names it before anything is
        released; it then shows that all rows are valid, as the certificate states.
    noise : {"secure"}, default="secure"
        Noise from a cryptographic generator keyed by the operating system.
    random_state : int, Generator or RandomState, default=None
        For tests and reproductions: the noise is reproducible and the guarantee is not certified.
    sketch_size : int, default=None
        Columns of the sketch; by default 4 times ``n_components``. With ``mechanism="sketch"``
        only.
    power_rounds : int, default=None
        Rounds of ``mechanism="power"`` only, 1000 at most; 4 by default.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows; the entry of largest magnitude of each is positive.
    mean_ : ndarray of shape (n_features,)
        What :meth:`transform` subtracts: the released mean, the public centre, or zero.
    explained_variance_ : ndarray of shape (n_components,)
        Released variance along each component, made non-negative and non-increasing.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as a share of the released total variance.
    noise_floor_ : float
        Explained variance that noise alone would show.
    usable_ : ndarray of bool, shape (n_components,)
        Which components stand above the noise.
    n_samples_ : float
        Released (noisy) number of rows; exact where the number is public.
    guarantee_ : Guarantee
        What was promised, to whom, and how it is computed.
    certificate_ : Certificate
        The recorded releases, from which the guarantee can be recomputed.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import PrivatePCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = PrivatePCA(n_components=5, epsilon=2.0, delta=1e-5).fit(X)
    >>> pca.transform(X).shape
    (1797, 5)
    >>> pca.guarantee_.certified
    True
    """

    _TASK = "pca"

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        row_norm: str | float = "unit",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
        missing: str = "error",
        invalid: str = "zero",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        sketch_size: int | None = None,
        power_rounds: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.adjacency = adjacency
        self.unit = unit
        self.max_rows_per_unit = max_rows_per_unit
        self.row_norm = row_norm
        self.row_bound = row_bound
        self.center = center
        self.budget_split = budget_split
        self.missing = missing
        self.invalid = invalid
        self.noise = noise
        self.random_state = random_state
        self.sketch_size = sketch_size
        self.power_rounds = power_rounds

    def _rounds(
        self, plan: BasePlan, rows: RowSource, center: NDArray[np.float64] | None
    ) -> Generator[Round, Answers, Any]:
        assert isinstance(plan, Plan)
        return private_pca(
            plan,
            public_center=center,
            stored_single=rows.single,
            max_norm=_largest_norm(rows, center) if plan.row_norm == "max" else None,
        )


def _largest_norm(rows: RowSource, center: NDArray[np.float64] | None) -> float:
    largest = 0.0
    for block in rows.blocks():
        norms = block.residuals(center, "single" if rows.single else "double")[1]
        largest = max(largest, float(np.max(norms, initial=0.0)))
    return largest or 1.0
