"""Results in MLflow: parameters, what was promised, and the result's files.

Only what was released is logged.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.app.report import report_page
from eigenveil.checks import library
from eigenveil.errors import PrivacyError, printable
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.stored import StoredModel


def log_result(model: StoredModel, *, files: bool = True) -> None:
    """Log a fitted model to the active run of MLflow, or to a new one.

    Parameters are those of the fit. Metrics are epsilon, delta, mu, the number of features, and of
    a model with components how many there are and how many are usable. Tags say whether the
    guarantee is certified, and the guarantee in words.
    """
    result = model._check_fitted()
    mlflow: Any = library("mlflow", extra="mlflow", what="Logging a result")
    guarantee = result.guarantee
    parameters = {n: v for n, v in result.spec.parameters.items() if v is not None}
    mlflow.log_params({name: printable(value, most=250) for name, value in parameters.items()})
    usable = getattr(model, "usable_", None)
    metrics = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "features": float(result.features),
    }
    if guarantee.mu is not None:
        metrics["mu"] = guarantee.mu
    if usable is not None:
        metrics |= {"components": float(np.size(usable)), "usable": float(np.sum(usable))}
    mlflow.log_metrics(metrics)
    tags = {
        "estimator": result.spec.estimator,
        "software": result.certificate.software,
        "certified": str(guarantee.certified).lower(),
        "guarantee": str(guarantee),
    }
    mlflow.set_tags({f"eigenveil.{name}": value for name, value in tags.items()})
    if files:
        _log_files(model, mlflow)


def _log_files(model: StoredModel, mlflow: Any) -> None:
    verdict = check(model.certificate_)
    if verdict.guarantee is None:
        raise PrivacyError(
            "certificate-does-not-hold", whose="The certificate", why=verdict.explanation
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "model.npz")
        model.certificate_.write(folder / "certificate.json")
        page = report_page(model, verdict)
        (folder / "report.html").write_text(page, encoding="utf-8")
        mlflow.log_artifacts(str(folder))
