"""The base of all estimators of many sites: make a study, run it, keep what it released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, nearest
from eigenveil.federated.running import StudyProgress, StudyRun, Traffic, run_study, site_rows
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.certificates import site_guarantees
from eigenveil.federation.study.options import sites_of
from eigenveil.federation.study.study import Study, make_study, parse_study
from eigenveil.models.constraints import Configured
from eigenveil.models.domains import Path
from eigenveil.models.driver import current_progress, warn_owner
from eigenveil.models.options import of_sites, study_options
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.pca.plan import all_components
from eigenveil.models.result import EstimatorSpec, Result, View
from eigenveil.models.table_fit import known_ranges
from eigenveil.models.task import TASKS
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import noise_source
from eigenveil.privacy.guarantee import UNNAMED_UNIT
from eigenveil.tables.scales import public_center, public_preparation
from eigenveil.tables.units import unit_of


class FederatedFit(Configured):
    """Fitting to several sites that keep their rows; stands before a fitted model's class.

    Attributes
    ----------
    views_, site_guarantees_, traffic_, study_, choice_, missing_
        As each estimator describes them.
    """

    _PATH: ClassVar[Path] = "sites"
    _FOR_ONE: ClassVar[str]

    _result: Result | None
    _take_over: Callable[[Result], None]

    views_ = View(lambda result: dict(result.views))
    site_guarantees_ = View(lambda result: site_guarantees(result.certificate))
    site_means_: View[dict[str, NDArray[np.float64]] | None] = View(lambda result: _means(result))
    traffic_: View[dict[str, Traffic]] = View(lambda result: deepcopy(result.details["traffic"]))
    study_: View[Study] = View(lambda result: result.details["study"])
    choice_: View[str] = View(lambda result: result.details["choice"])
    missing_: View[dict[str, str]] = View(lambda result: dict(result.details["missing"]))

    def fit(
        self,
        X: Sequence[ArrayLike] | Mapping[str, ArrayLike],
        y: object = None,
        *,
        groups: Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None,
        **others: object,
    ) -> Self:
        """Fit to the rows (of a topic model: the documents' word counts) of several sites.

        Parameters
        ----------
        X : sequence of arrays, or mapping of site name to array
            Each of shape (n_s, n_features), dense, sparse, a frame, of Dask, or an
            ``anndata.AnnData``, whose genes are matched by name; any row counts, 0 too. Or the
            path of a file or folder.
        groups : sequence or mapping of arrays of shape (n_s,), optional
            Each row's unit, such as a patient; by default the column ``unit`` of frames or of
            ``obs``, or none.
        **others
            Refused, such as ``sample_weight``: see ``weights``.

        Raises
        ------
        DataError
            Naming the site whose columns cannot be used; nothing was charged.
        PrivacyError
            When the target cannot be met, or the data are too few for it; ``spent`` is the
            guarantee of what was released before that was known, or ``None``.
        ProtocolError
            When too few sites are left.
        """
        del y
        self._refuse_others(others)
        unit = self._options().get("unit")
        rows = site_rows(X, for_one=self._FOR_ONE, unit=unit, groups=groups)
        given = {} if groups is None or unit is not None else {"unit": UNNAMED_UNIT}
        return self._fit(self.study_of(rows, **given), rows, None, ledgers=None, progress=None)

    def fit_rows(
        self,
        rows: Mapping[str, RowSource],
        *,
        ledgers: Mapping[str, Ledger] | None = None,
        progress: StudyProgress | None = None,
    ) -> Self:
        """Fit to sites' rows read a block at a time.

        Parameters
        ----------
        rows : mapping of site name to RowSource
        ledgers : mapping of site name to Ledger, optional
            Each site's own, with a budget for the data set "default"; by default each site has a
            new one with just this budget, thrown away afterwards.
        progress : callable, optional
            Called with ``(step, sites)`` after every answer.
        """
        return self._fit(self.study_of(rows), rows, None, ledgers=ledgers, progress=progress)

    def study_of(self, rows: Mapping[str, RowSource], **instead: Any) -> Study:
        """The study that the constructor's parameters say, over these sites' rows.

        With values of some options ``instead`` of the constructor's.
        """
        first = next(iter(rows.values()), None)
        if first is None:
            raise DataError("no-sites")
        options = self._options()
        sites = sites_of(options, rows)
        values = options.some(study_options(self._TASK)) | instead
        for each in rows.values():
            unit = unit_of(each, values.get("unit"), taken="unit" in values)
            values |= {} if unit is None else {"unit": unit}
        components = options.get("n_components")
        if "n_components" in options and components is None:
            components = all_components(
                numbered(options, first.names, first.schema), first.features
            )
        if "center" in values:
            values["center"] = study_center(options.center, first.features)
        if "scale" in values:
            values["ranges"] = known_ranges(options, first)
            # named as here
            public_preparation(options.scale, values["ranges"], first.features, first.names)
        return make_study(
            name="fit",
            task=self._TASK,
            features=first.features if first.names is None else None,
            columns=None if first.names is None else list(first.names),
            components=components,
            table_schema=first.schema,
            sites=sites,
            **values,
        )

    def fit_study(
        self,
        study: Study,
        rows: Mapping[str, RowSource],
        *,
        ledgers: Mapping[str, Ledger] | None = None,
        progress: StudyProgress | None = None,
    ) -> Self:
        """Run a study over its sites' rows, with the study's options, not the constructor's."""
        if TASKS.get(study.task) is not TASKS[self._TASK]:
            raise DataError(
                "other-task", task=study.task, estimator=type(self).__name__, own=self._TASK
            )
        return self._fit(study, rows, self._spec(study), ledgers=ledgers, progress=progress)

    def _fit(
        self,
        study: Study,
        rows: Mapping[str, RowSource],
        spec: EstimatorSpec | None,
        *,
        ledgers: Mapping[str, Ledger] | None,
        progress: StudyProgress | None,
    ) -> Self:
        asked = spec or EstimatorSpec.by(self, unit=study.unit)

        def keep(run: StudyRun) -> None:
            self._take_over(result_of(run, asked))
            for name, invalid in run.invalid.items():
                warn_owner(invalid, run.outcome.plan, where=f"site {name}: ")

        run_study(
            study,
            rows,
            source=noise_source(self._options().random_state),
            ledgers=ledgers,
            progress=progress or current_progress(),
            keep=keep,
        )
        return self

    def without_site(self, X: ArrayLike, site: str) -> NDArray[np.float64]:
        """Rows of a site as they would be without what its mean has beyond the common one.

        For studies with ``within_sites``, before ``transform`` or anything else that a fitted model
        does with rows; new sites' rows are given as they are.

        Parameters
        ----------
        X : array of shape (n, n_features)
        site : str
            The name that the site has in the study.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        DataError
            Where the study has no such site, or was not of ``within_sites``.
        ValueError
            Where the rows are not of the fit's columns.
        """
        means = self.site_means_
        if means is None:
            raise DataError("no-site-means")
        if site not in means:
            raise DataError("unknown-site", site=repr(site), near=nearest(site, means))
        fitted: Any = self  # whose rows are read as its other methods read them
        checks = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "reset": False}
        rows = fitted._validated(X, **checks)
        return np.asarray(rows - (means[site] - fitted._result.factors.mean))

    def keep_run(self, run: StudyRun) -> Self:
        """Take over what a finished study of the estimator's task released."""
        self._take_over(result_of(run, self._spec(run.study)))
        return self

    def _spec(self, study: Study) -> EstimatorSpec:
        """A study's values, as the constructor's parameters."""
        given: Any = self
        values = {name: getattr(study, name) for name in given.get_params() if hasattr(study, name)}
        if TASKS[study.task].counted:
            values["n_components"] = study.components
        return EstimatorSpec.by(
            self, **values | of_sites(site.model_dump() for site in study.sites)
        )


def result_of(run: StudyRun, spec: EstimatorSpec) -> Result:
    return Result(
        spec,
        run.outcome.plan,
        run.outcome.factors,
        run.study.width,
        run.outcome.columns,
        run.certificate,
        details={
            "study": run.study,
            "choice": run.choice,
            "traffic": run.traffic,
            "missing": dict(run.outcome.missing),
        },
        schema=run.study.table_schema,
    )


def _means(result: Result) -> dict[str, NDArray[np.float64]] | None:
    found = getattr(result.factors, "site_means", None)
    if found is None:
        return None
    names = parse_study(result.certificate.study or {}).active
    return dict(zip(names, np.array(found), strict=True))


def study_center(center: object, features: int) -> bool | tuple[float, ...]:
    """A constructor's ``center`` as a study has it."""
    public = public_center(center, features)
    return bool(center) if public is None else tuple(float(number) for number in public)


def fitted_of(run: StudyRun) -> Any:
    """The fitted estimator of a finished study's task, such as ``FederatedPCA``."""
    return TASKS[run.study.task].estimator("sites")().keep_run(run)
