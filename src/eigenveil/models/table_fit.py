"""The base of every estimator of one table: check its parameters, make a plan, run it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.models.callers import warn_of_callers
from eigenveil.models.constraints import Configured
from eigenveil.models.domains import Path
from eigenveil.models.driver import (
    RoundProgress,
    begin_charges,
    certified_fit,
    current_progress,
    rows_for,
    told_to,
)
from eigenveil.models.options import Options
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import EstimatorSpec
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.stored import StoredModel
from eigenveil.models.task import task_named
from eigenveil.moments.histograms import count_variables
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import noise_source
from eigenveil.privacy.guarantee import UNNAMED_UNIT
from eigenveil.tables.adapters import rows_of
from eigenveil.tables.adapters.texts import counted, named
from eigenveil.tables.names import check_features
from eigenveil.tables.scales import public_center, public_preparation
from eigenveil.tables.units import unit_of


class TableFit(Configured):
    """Fitting to one table; stands before a fitted model's class."""

    _PATH: ClassVar[Path] = "table"

    def fit(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, **others: object
    ) -> Self:
        """Fit to the rows of ``X``, shape (n_samples, n_features), dense or sparse.

        Of topics a row is a document: word counts, whole numbers, or with ``vocabulary`` a text.
        That there is at least one row is taken for public.

        Parameters
        ----------
        X : array, sparse matrix, frame (in memory or of Dask), anndata.AnnData, or path
            Dask's workers read their partitions where they are. Of an ``AnnData`` its
            ``X``, whose genes are the columns; a backed one is read a block at a time.
            :func:`eigenveil.io.read_cells` reads another layer. The file or folder of a path is
            read as :func:`eigenveil.io.open_rows` does, which has options.
        y : ignored
        groups : array of shape (n_samples,) or str, optional
            Each row's unit, such as a patient: all rows of one are protected together; or the name
            of the column that says it. By default the column ``unit`` of a frame or of ``obs``, or
            none.
        **others
            Refused, such as ``sample_weight``: all rows count alike.

        Raises
        ------
        DataError
            When a parameter is not what it may be (then it is scikit-learn's
            ``InvalidParameterError`` too), or there is no row; nothing was released.
        PrivacyError
            When the target cannot be met; nothing was released. Rows that are too few for what was
            requested raise nothing: ``usable_`` is all False then, and a NoisyResultWarning says
            what would do. Whatever else stops a fit has ``spent``, the guarantee of what was
            released before, or ``None``.
        """
        del y
        self._refuse_others(others)
        options = self._options()
        if isinstance(groups, str) and options.get("unit") is None:
            options, groups = options.changed(unit=groups), None
        if groups is not None and options.get("unit") is None:
            options = options.changed(unit=UNNAMED_UNIT)
        warn_of_callers(of_units=options.get("unit") is not None)
        words = options.get("vocabulary")
        X = X if words is None else counted(X, words)
        rows = rows_of(X, unit=options.get("unit"), groups=groups, estimator=self)
        rows = rows if words is None else named(rows, words)
        check_features("The frame", rows, of_words=task_named(self._TASK).takes_documents)
        return self._fit_rows(options, rows)

    def fit_rows(self, rows: RowSource, *, progress: RoundProgress | None = None) -> Self:
        """Fit to rows read a block at a time, as often as the plan has rounds.

        Parameters
        ----------
        rows : RowSource
            For example ``eigenveil.io.open_rows(["a.parquet", "b.csv"])``; never held in memory.
            Of topics a row is a document. Its ``paths``, if it has any, are the files by which a
            ledger knows the data set.
        progress : callable, optional
            Called with ``(release, n)`` after every n rows of a pass.
        """
        options, task = self._options(), task_named(self._TASK)
        check_features(
            "The schema of the rows",
            rows,
            of_words=task.takes_documents,
            targets=task.takes_targets,
        )
        given = options.get("unit")
        unit = unit_of(rows, given, taken=task.has("unit", self._PATH))
        if unit != given:
            options = options.changed(unit=unit)
        with told_to(progress or current_progress()):
            return self._fit_rows(options, rows)

    @property
    def partial_fit(self) -> Any:
        """Not there: a fit reads all rows, and ``hasattr`` says so."""
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: a fit reads all rows at once. fit_rows "
            "reads files a block at a time; PrivateStreamingPCA takes rows as they come."
        )

    def _fit_rows(self, options: Options, rows: RowSource) -> Self:
        task, model = task_named(self._TASK), self
        assert isinstance(model, StoredModel)
        if "ranges" in options:
            options = options.changed(ranges=known_ranges(options, rows))
        # what came with the rows belongs to the parameters, as if it had been given with them
        came = {name: options[name] for name in ("unit", "ranges") if name in options}
        spec = EstimatorSpec.by(model, **came)
        options = numbered(options, rows.names, rows.schema)
        public, context = public_columns(options, rows.features, rows.names, rows.variables)
        source = noise_source(options.random_state)
        if rows.schema is not None and rows.schema.groups:
            context["groups"] = rows.schema.groups
        plan = task.make_plan(options, features=rows.features, **context)
        plan = plan.drawn_from(secure=source.secure)
        charges, outcome = begin_charges(options, plan, files=rows.paths), "stopped"
        try:
            rows = rows_for(plan, rows)
            certified_fit(
                plan,
                self._rounds(plan, rows, public),
                rows,
                source,
                spec=spec,
                keep=model._take_over,
                charges=charges,
            )
            outcome = "finished"
        finally:
            charges.end(outcome)
        return self

    def _rounds(
        self, plan: BasePlan, rows: RowSource, public: Mapping[str, Any]
    ) -> Generator[Round, Answers, Any]:
        del rows  # nothing of them but sums decides anything
        task = task_named(self._TASK)
        rounds: Generator[Round, Answers, Any]
        rounds = task.rounds(plan, **public)
        return rounds


def known_ranges(options: Options, rows: RowSource) -> Any:
    """Public ranges of columns: those given, or those of the rows' schema where scales are found.

    The schema's, if it has one of each column.
    """
    if options.ranges is not None or rows.schema is None or not isinstance(options.scale, str):
        return options.ranges
    ranges = rows.schema.public_ranges()
    return ranges if np.isfinite(ranges).all() else None


def public_columns(
    options: Options,
    features: int,
    names: Sequence[str] | None,
    variables: NDArray[np.float64] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is public about columns, as rounds take it, and as plans do.

    ``variables``, of shape (n_features,), are those that columns belong to: a category has several.
    """
    public: dict[str, Any] = {
        "public_center": public_center(options.get("center", False), features)
    }
    if "scale" not in options:
        return public, {}
    public["preparation"] = public_preparation(options.scale, options.ranges, features, names)
    if not (isinstance(options.scale, str) and options.ranges is None):
        return public, {}
    public["variables"] = variables
    return public, {"variables": count_variables(features, variables)}
