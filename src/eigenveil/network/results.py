"""The files of a finished study: written by the aggregator, read where the lead fetched them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.federated.base import FederatedFit, fitted_of
from eigenveil.federated.running import StudyRun, Traffic
from eigenveil.federation.study.study import parse_study
from eigenveil.files import replacing
from eigenveil.models.result import changed
from eigenveil.models.task import TASKS
from eigenveil.network.folder import write_json
from eigenveil.privacy.certificate import Certificate, read_certificate

MODEL, CERTIFICATE, SUMMARY = "model.npz", "certificate.json", "summary.json"
FILES = (MODEL, CERTIFICATE, SUMMARY)
# Of a file that a lead takes from the aggregator: 2**27 numbers of a model; texts are read whole.
MOST_BYTES = {MODEL: 1 << 30, CERTIFICATE: 1 << 26, SUMMARY: 1 << 26}


def write_result_files(
    run: StudyRun,
    folder: Path,
    *,
    session: str,
    seconds: float,
    seconds_by_step: Mapping[str, float],
) -> None:
    """Write model, certificate and summary, each whole or not at all."""
    model = fitted_of(run)
    model.save(folder / MODEL)
    with replacing(folder / CERTIFICATE) as scratch:
        run.certificate.write(scratch)
    write_json(
        folder / SUMMARY,
        {
            "study": run.study.model_dump(mode="json"),
            "study_hash": run.study.hash,
            "session": session,
            "seconds": seconds,
            "seconds_by_step": dict(seconds_by_step),
            "missing": dict(run.outcome.missing),
            "views": {name: view.as_dict() for name, view in model.views_.items()},
            "traffic": {name: vars(traffic) for name, traffic in run.traffic.items()},
        },
    )


def read_result_files(folder: Path, *, choice: str = "") -> Any:
    """The fitted estimator with everything that a fit in one process would have left in it."""
    summary = _summary(folder / SUMMARY)
    try:
        study = parse_study(summary["study"])
        traffic = {str(name): Traffic(**each) for name, each in summary["traffic"].items()}
        missing = {str(name): str(why) for name, why in summary["missing"].items()}
    except (KeyError, TypeError, AttributeError):
        raise _broken(folder / SUMMARY) from None
    model = TASKS[study.task].estimator("sites").load(folder / MODEL)
    certificate: Certificate = model.certificate_
    if read_certificate(folder / CERTIFICATE) != certificate:
        raise changed(f"{folder / CERTIFICATE} is not the certificate of the model beside it.")
    if study.model_dump(mode="json") != certificate.study:
        raise changed(f"{folder / SUMMARY} is not of the study that the certificate records.")
    assert isinstance(model, FederatedFit)
    assert model._result is not None
    model._result = replace(
        model._result,
        details={"study": study, "choice": choice, "traffic": traffic, "missing": missing},
    )
    return model


def _summary(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise OutputError("no-result", file=file, reason=of_system(problem)) from None
    except (ValueError, RecursionError):
        raise _broken(file) from None
    if not isinstance(found, dict):
        raise _broken(file)
    return found


def _broken(file: Path) -> DataError:
    return DataError("bad-result", file=file)
