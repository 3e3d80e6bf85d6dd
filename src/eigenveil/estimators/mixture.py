"""PrivateGaussianMixture: the scikit-learn estimator of one data set."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.estimators.fitted_mixture import FittedMixture
from eigenveil.estimators.table_fit import TableFit


class PrivateGaussianMixture(TableFit, FittedMixture):
    """Differentially private mixture of spherical Gaussians, by orthogonal tensor decomposition.

    The rows' second moment and their third moment, seen through the span of its leading
    eigenvectors, are released with noise; whitening and tensor power iteration find the means. No
    start, no number of iterations and nothing about the rows has to be known.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Components, at most the number of features; "auto": as many as stand above the noise, at
        most 32.
    epsilon : float, default=1.0
        Privacy wish, > 0.
    delta : float, default=1e-6
        Privacy wish, 0 <= delta < 1; 0 asks for pure epsilon.
    noise_variance : float, default=None
        Public variance of every feature within a component, in the data's units squared; by default
        it is found from the released second moment.
    mechanism : {"auto", "gaussian", "vector"}, default="auto"
        Noise of the third moment. "gaussian": isometric Gaussian noise (AGN of paper 001).
        "vector": density exp(-epsilon |E|_F) (AVN), pure epsilon; with ``delta=0`` all other
        releases are pure too. "auto": "vector" if ``delta=0``, else "gaussian".
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        Which data sets are neighbours: one row more or less, or one row changed (the number of rows
        then being public).
    pair : {"auto", "full", "sketch"}, default="auto"
        How the second moment is released: D x D, or as a sketch of D x ``sketch_size``. "auto":
        a sketch beyond 1000 features, or where ``sketch_size`` is given.
    row_bound : float, default=None
        A public bound on the norm of (centred) rows, in the data's units; longer rows are
        shortened. By default the bound is found from released norms.
    center : bool or array of shape (n_features,), default=True
        True: rows are taken about a point beside a privately released mean. An array: beside that
        public point. False: as they are; the means must then be linearly independent.
    budget_split : dict, default=None
        Shares of the steps "scale", "center" (if it is private), "moment" and "tensor": of all
        that the fit takes, and of no other.
    sketch_size : int, default=None
        Columns of the sketch; by default 4 times ``n_components``. Not with ``pair="full"``.
    invalid : {"zero", "error"}, default="zero"
        What becomes of a row that is not valid, with an entry that is not a finite number. "zero":
        a zero row, which is counted and adds nothing to any other sum; a warning tells their
        number and the first to whoever fits. "error": a DataError names it before anything is
        released; that all rows are valid then shows, which the certificate says.
    noise : {"secure"}, default="secure"
        Noise from a cryptographic generator keyed by the operating system.
    random_state : int, Generator or RandomState, default=None
        For tests and reproductions: the noise is reproducible and the guarantee is not certified.

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
    weights_ : ndarray of shape (n_components,)
        The largest first; they add up to 1.
    noise_variance_ : float
        Variance of every feature within a component.
    covariances_ : ndarray of shape (n_components,)
        The same for each component.
    n_components_ : int
    n_samples_ : float
        Released (noisy) number of rows; exact where the number is public.
    strengths_ : ndarray
        Leading eigenvalues of the second moment above the noise variance; singular values of a
        sketch.
    noise_floor_ : float
        What of the last component noise alone would show, about once in a hundred times.
    usable_ : ndarray of bool, shape (n_components,)
        Which components can be told from the others in spite of the noise. Where none stood above
        it, one stands in, the fit ended early, and ``certificate_.stopped`` says why.
    converged_ : bool
        Whether every power iteration converged.
    guarantee_ : Guarantee
        What was promised, to whom, and how it is computed.
    certificate_ : Certificate
        The recorded releases, from which the guarantee can be recomputed.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky (2014), JMLR 15. Hsu, Kakade (2013),
    doi:10.1145/2422436.2422439. Paper 001, algorithms 4 and 5; the design's privacy.md, sections 2
    to 4.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> means = 4.0 * np.eye(3, 6)
    >>> X = means[rng.integers(3, size=20000)] + rng.standard_normal((20000, 6))
    >>> mixture = PrivateGaussianMixture(n_components=3, epsilon=1.0, delta=1e-6).fit(X)
    >>> mixture.means_.shape
    (3, 6)
    >>> bool(abs(mixture.noise_variance_ - 1.0) < 0.2)
    True
    """

    _TASK = "gaussian-mixture"

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        noise_variance: float | None = None,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        pair: str = "auto",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
        sketch_size: int | None = None,
        invalid: str = "zero",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.noise_variance = noise_variance
        self.mechanism = mechanism
        self.adjacency = adjacency
        self.pair = pair
        self.row_bound = row_bound
        self.center = center
        self.budget_split = budget_split
        self.sketch_size = sketch_size
        self.invalid = invalid
        self.noise = noise
        self.random_state = random_state
