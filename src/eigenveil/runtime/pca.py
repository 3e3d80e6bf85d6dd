"""FederatedPCA: private PCA of several sites that keep their rows, run in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.utils.validation import _get_feature_names, check_array

from eigenveil.errors import BudgetExceeded, DataError, EigenveilError, PrivacyError
from eigenveil.estimators.fitted import FittedPCA, noise_source, public_centre
from eigenveil.federation.aggregator import Aggregator, Outcome
from eigenveil.federation.choosing import choose_protocol
from eigenveil.federation.helper import Helper
from eigenveil.federation.ledger import Budget, Ledger
from eigenveil.federation.messages import HELPER
from eigenveil.federation.site import Site
from eigenveil.federation.study import Study, make_study
from eigenveil.federation.sums import Terms, active_sites
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.moments.sparse import SparseRows
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import Certificate, Claim, make_certificate
from eigenveil.runtime.inprocess import InProcess, Party, carry

DATA_SET = "default"


class FederatedPCA(FittedPCA):
    """Differentially private PCA of several sites that keep their rows.

    The sites' software, the aggregator's and the messages between them are those of a real study;
    here they run in one process. Nothing about the data has to be known: scale, centre, second
    moment and explained variance are sums over all sites that only ever appear masked and noisy.

    Parameters
    ----------
    n_components : int, default=2
    epsilon, delta : float
        Privacy wish against the aggregator together with ``collusion`` sites; 0 < epsilon,
        0 <= delta < 1. ``delta=0`` asks for pure epsilon (protocols "cape" and "local").
    protocol : {"auto", "cape", "sketch", "dpdispca", "full", "local"}, default="auto"
        "cape": masked sums of D x D, noise of one curator in all. "sketch": the same with D x R
        messages. "dpdispca": each site releases its own second moment and sends the D x R factor of
        its leading part (paper 000). "full": each sends its own noisy D x D. "local": the first
        site alone. "auto" chooses, and ``choice_`` says why.
    collusion : int, default=0
        Sites that may tell the aggregator everything they know, and the others stay protected.
    dropouts : int, default=0
        Sites that may be missing from a round; needs ``masks="modular"``.
    masks : {"modular", "pairwise", "helper"}, default="modular"
        "modular": uniform masks from keys of pairs of sites; the aggregator learns sums exactly and
        nothing else. "pairwise": the same with Gaussian masks. "helper": zero-sum Gaussian masks of
        a trusted helper (paper 001).
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
    row_norm : {"unit", "auto"} or float, default="unit"
    row_bound : float, default=None
    center : bool or array of shape (n_features,), default=True
    budget_split : dict, default=None
        As for :class:`eigenveil.PrivatePCA`.
    sketch_size : int, default=None
        R of "sketch" (4 K by default) and "dpdispca" (2 K).
    neighbours : int, default=None
        Other sites with which each site shares masks; all of up to 16 sites, else 16 or more.
    site_epsilon : mapping of site to float, default=None
        Smaller wishes of single sites; their rows then count with a smaller weight.
    expected_rows : int, default=None
        A public guess of all sites' rows, with which "auto" predicts the protocols' results.
    random_state : int, Generator or RandomState, default=None
        For tests: reproducible noise, and a result that is not certified.

    Attributes
    ----------
    components_, mean_, explained_variance_, explained_variance_ratio_, noise_floor_, usable_, \
n_samples_, guarantee_, certificate_
        As of :class:`eigenveil.PrivatePCA`; ``guarantee_`` is the one that was wished for.
    views_ : dict of str to Guarantee
        What each adversary is held to: "outsider", "site", "aggregator", and with colluding sites.
    traffic_ : dict of str to Traffic
        Messages and bytes of each site.
    study_ : Study
        What was run, with the protocol that "auto" chose.
    choice_ : str
        Why that protocol.
    missing_ : dict of str to str
        Sites that were lost on the way, and why.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import FederatedPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = FederatedPCA(n_components=5, epsilon=2.0, delta=1e-5)
    >>> pca.fit({"north": X[:600], "south": X[600:1000], "west": X[1000:]}).transform(X).shape
    (1797, 5)
    >>> list(pca.views_)
    ['outsider', 'site', 'aggregator']
    """

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
        row_norm: str | float = "unit",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
        sketch_size: int | None = None,
        neighbours: int | None = None,
        site_epsilon: Mapping[str, float] | None = None,
        expected_rows: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.protocol = protocol
        self.collusion = collusion
        self.dropouts = dropouts
        self.masks = masks
        self.adjacency = adjacency
        self.row_norm = row_norm
        self.row_bound = row_bound
        self.center = center
        self.budget_split = budget_split
        self.sketch_size = sketch_size
        self.neighbours = neighbours
        self.site_epsilon = site_epsilon
        self.expected_rows = expected_rows
        self.random_state = random_state

    def fit(self, X: Sequence[ArrayLike] | Mapping[str, ArrayLike], y: object = None) -> Self:
        """Fit to the rows of several sites.

        Parameters
        ----------
        X : sequence of arrays, or mapping of site name to array
            Each of shape (n_s, n_features), dense, sparse or a frame; any row counts.

        Raises
        ------
        DataError
            Naming the site whose rows cannot be used.
        PrivacyError
            When the wish cannot be met, or the data are too few for it.
        ProtocolError
            When too few sites are left.
        """
        del y
        return self.fit_rows(_sources(X))

    def fit_rows(
        self,
        rows: Mapping[str, RowSource],
        *,
        ledgers: Mapping[str, Ledger] | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Self:
        """Fit to sites' rows read a block at a time.

        Parameters
        ----------
        rows : mapping of site name to RowSource
        ledgers : mapping of site name to Ledger, optional
            Each site's own, with a budget for the data set "default"; by default each site has a
            new one with just this budget, thrown away afterwards.
        progress : callable, optional
            Told ``(step, sites)`` after every answer.
        """
        study = self.study_of(rows)
        return self.fit_study(study, rows, ledgers=ledgers, progress=progress)

    def study_of(self, rows: Mapping[str, RowSource]) -> Study:
        """The study that the constructor's parameters say, over these sites' rows."""
        first = next(iter(rows.values()), None)
        if first is None:
            raise DataError("There is no site.", hint="Give the rows of at least one site.")
        centre = public_centre(self.center, first.features)
        own = self.site_epsilon or {}
        if unknown := set(own) - set(rows):
            raise DataError(
                f"site_epsilon names {sorted(unknown)[0]!r}, which is no site.",
                hint=f"The sites are {', '.join(rows)}.",
            )
        return make_study(
            name="fit",
            features=first.features if first.names is None else None,
            columns=None if first.names is None else list(first.names),
            components=self.n_components,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            adjacency=self.adjacency,
            protocol=self.protocol,
            masks=self.masks,
            collusion=self.collusion,
            dropouts=self.dropouts,
            neighbours=self.neighbours,
            row_norm=self.row_norm if isinstance(self.row_norm, str) else float(self.row_norm),
            row_bound=None if self.row_bound is None else float(self.row_bound),
            center=bool(self.center) if centre is None else tuple(float(c) for c in centre),
            budget_split=self.budget_split,
            sketch_size=self.sketch_size,
            expected_rows=self.expected_rows,
            sites=tuple({"name": name, "epsilon": own.get(name)} for name in rows),
        )

    def fit_study(
        self,
        study: Study,
        rows: Mapping[str, RowSource],
        *,
        ledgers: Mapping[str, Ledger] | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Self:
        """Run a study over its sites' rows; the study, not the constructor, says what is done."""
        _check_rows(study, rows)
        choice = choose_protocol(study, study.width) if study.protocol == "auto" else None
        settled = study if choice is None else study.changed(protocol=choice.protocol)
        for name in ("feature_names_in_", "n_features_in_"):
            if hasattr(self, name):
                delattr(self, name)
        with _Ledgers(settled, ledgers) as books:
            run = self._run(settled, rows, books, progress)
        names = run.outcome.columns
        self.n_features_in_ = settled.width
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.study_ = settled
        self.choice_ = "" if choice is None else choice.reason
        self.traffic_ = run.transport.traffic
        self.missing_ = dict(run.outcome.missing)
        certificate = _certificate(settled, run)
        self.views_ = certificate.guarantees()
        self._keep(run.outcome.plan, run.outcome.factors, certificate)
        return self

    def _run(
        self,
        study: Study,
        rows: Mapping[str, RowSource],
        ledgers: Mapping[str, Ledger],
        progress: Callable[[str, int], None] | None,
    ) -> _Run:
        source = noise_source(self.random_state)
        sites = {
            name: Site(name=name, study=study, rows=rows[name], ledger=ledgers[name], source=source)
            for name in active_sites(study)
        }
        parties: dict[str, Party] = dict(sites)
        terms = Terms(study, study.plan(study.width, None))
        if terms.mask_kind == "helper":
            parties[HELPER] = Helper(study)
        transport = InProcess(parties)
        aggregator = Aggregator(study, progress=progress)
        try:
            outcome = carry(aggregator.run(), transport)
        except EigenveilError as error:
            raise _for_the_owner(error, sites, study) from None
        return _Run(terms, outcome, transport, source.secure)


@dataclass(frozen=True)
class _Run:
    terms: Terms
    outcome: Outcome
    transport: InProcess
    secure: bool


class _Ledgers:
    """The sites' ledgers: their own, or new ones that are thrown away."""

    def __init__(self, study: Study, given: Mapping[str, Ledger] | None) -> None:
        self._study, self._given = study, given
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Mapping[str, Ledger]:
        if self._given is not None:
            return self._given
        self._folder = tempfile.TemporaryDirectory(prefix="eigenveil-")
        folder = Path(self._folder.name)
        made = {}
        for number, name in enumerate(active_sites(self._study)):
            made[name] = Ledger(folder / f"{number}.ledger", durable=False)
            made[name].set_budget(wished_budget(self._study))
        return made

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def wished_budget(study: Study) -> Budget:
    """The budget that just covers a study."""
    return Budget(
        data_set=DATA_SET,
        adjacency=study.adjacency,
        epsilon=study.epsilon,
        delta=study.delta,
    )


def _sources(X: Sequence[ArrayLike] | Mapping[str, ArrayLike]) -> dict[str, RowSource]:
    """Rows of each site, checked; columns of frames are matched by name."""
    if isinstance(X, Mapping):
        named = {str(name): array for name, array in X.items()}
    elif isinstance(X, np.ndarray) and X.ndim != 3:
        raise DataError(
            "X is one array, not one for each site.",
            hint="Give a list of arrays, or a mapping of site names to arrays; for one data set "
            "use PrivatePCA.",
        )
    else:
        named = {f"site{number}": array for number, array in enumerate(X, start=1)}
    found: dict[str, RowSource] = {}
    wanted: list[str] | None = None
    for name, array in named.items():
        columns = _get_feature_names(array)
        if columns is not None and wanted is not None and set(columns) == set(wanted):
            array = array[wanted]  # type: ignore[index]
            columns = wanted
        found[name] = _source(name, array, None if columns is None else [str(c) for c in columns])
        wanted = wanted or (None if columns is None else list(columns))
    return found


def _source(name: str, array: Any, columns: list[str] | None) -> RowSource:
    try:
        checked = check_array(
            array, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
        )
    except (ValueError, TypeError) as error:
        raise DataError(f"site {name}: {error}", hint="Mend that site's rows.") from None
    if scipy.sparse.issparse(checked):
        return SparseRows(checked, names=columns)
    return ArrayRows(checked, names=columns, origin=f"site {name}")


def _check_rows(study: Study, rows: Mapping[str, RowSource]) -> None:
    names = {site.name for site in study.sites}
    if missing := names - set(rows):
        raise DataError(
            f"There are no rows for site {sorted(missing)[0]!r} of the study.",
            hint="Give rows for every site of the study.",
            code="no-rows-for-site",
        )
    if strange := set(rows) - names:
        raise DataError(
            f"site {sorted(strange)[0]!r} is not in the study.",
            hint=f"The study's sites are {', '.join(sorted(names))}.",
            code="unknown-site",
        )


def _for_the_owner(
    error: EigenveilError, sites: Mapping[str, Site], study: Study
) -> EigenveilError:
    """In one process the caller owns all rows: it may know what the aggregator must not."""
    if isinstance(error, PrivacyError) and error.released:
        error.spent = compose(error.released, delta=study.delta, adjacency=study.adjacency)
    for name, site in sites.items():
        trouble = site.trouble
        if isinstance(trouble, DataError | BudgetExceeded):
            message = trouble.message
            if f"site {name}" not in message:
                message = f"site {name}: {message}"
            return type(trouble)(message, hint=trouble.hint, code=trouble.code)
    return error


def _certificate(study: Study, run: _Run) -> Certificate:
    plan = run.outcome.plan
    federation = run.terms.federation(run.outcome.taking_part)
    return make_certificate(
        software=f"eigenveil {version('eigenveil')}",
        plan=plan.model_dump(mode="json"),
        plan_hash=plan.hash,
        secure=run.secure,
        wish=Claim(
            epsilon=study.epsilon,
            delta=study.delta,
            adjacency=study.adjacency,
            view=federation.wished_view,
        ),
        releases=list(run.outcome.records),
        reasons_not_certified=[],
        federation=federation,
        study=study.model_dump(mode="json"),
    )
