"""PrivatePCA: the scikit-learn estimator of one data set."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.estimators.fitted import FittedPCA
from eigenveil.estimators.pipeline import private_pca
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.rounds import Answers, Round
from eigenveil.estimators.settings import Plan
from eigenveil.estimators.table_fit import TableFit
from eigenveil.moments.source import RowSource


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
        Privacy wish, > 0.
    delta : float, default=1e-6
        Privacy wish, 0 <= delta < 1; 0 asks for pure epsilon.
    mechanism : {"auto", "gaussian", "wishart", "vector", "bingham", "power", "sketch"}
        "auto": "gaussian", or "wishart" when ``delta=0``. "gaussian": isometric Gaussian noise on
        the second moment. "wishart": the difference of two Wishart matrices, pure epsilon.
        "vector": noise of density exp(-epsilon |E|_F), pure epsilon. "bingham": the exponential
        mechanism, sampled exactly, pure epsilon. "power": the noisy power method. "sketch": one
        pass with D x ``sketch_size`` memory.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Which data sets are neighbours: one row more or less, or one row changed (the number of rows
        then being public).
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
        a zero row, which is counted and adds nothing to any other sum; a warning tells their
        number and the first to whoever fits. "error": a DataError names it before anything is
        released; that all rows are valid then shows, which the certificate says.
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
        row_norm: str | float = "unit",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
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
        self.row_norm = row_norm
        self.row_bound = row_bound
        self.center = center
        self.budget_split = budget_split
        self.invalid = invalid
        self.noise = noise
        self.random_state = random_state
        self.sketch_size = sketch_size
        self.power_rounds = power_rounds

    def _rounds(
        self, plan: BasePlan, rows: RowSource, centre: NDArray[np.float64] | None
    ) -> Generator[Round, Answers, Any]:
        assert isinstance(plan, Plan)
        return private_pca(
            plan,
            public_centre=centre,
            stored_single=rows.single,
            max_norm=_largest_norm(rows, centre) if plan.row_norm == "max" else None,
        )


def _largest_norm(rows: RowSource, centre: NDArray[np.float64] | None) -> float:
    largest = 0.0
    for block in rows.blocks():
        norms = block.residuals(centre, "single" if rows.single else "double")[1]
        largest = max(largest, float(np.max(norms, initial=0.0)))
    return largest or 1.0
