"""A study's folder at the aggregator: how far it is, and the files of its result.

Each file is whole at any time. A lead fetches those of the result, and reads them where they lie.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    OutputError,
    PrivacyError,
    ProtocolError,
    of_system,
    received_code,
)
from eigenveil.federated.base import FederatedFit, fitted_of
from eigenveil.federated.running import StudyRun, Traffic
from eigenveil.federation.study.study import parse_study
from eigenveil.files import replacing
from eigenveil.models.result import changed
from eigenveil.models.task import TASKS
from eigenveil.network.folder import write_json
from eigenveil.privacy.certificate import Certificate, read_certificate
from eigenveil.privacy.guarantee import Guarantee

State = Literal["waiting", "running", "finished", "failed", "aborted"]
STATES: tuple[State, ...] = get_args(State)
STATUS = "status.json"
GOING_ON = ("waiting", "running")
_SELDOM = 0.1
_NOT_WRITTEN = ("file", "_written")
_KINDS: dict[str, type[EigenveilError]] = {
    kind.__name__: kind
    for kind in (DataError, PrivacyError, BudgetExceeded, ProtocolError, OutputError)
}
MODEL, CERTIFICATE, SUMMARY = "model.npz", "certificate.json", "summary.json"
FILES = (MODEL, CERTIFICATE, SUMMARY)
# Of a file that a lead takes from the aggregator: 2**27 numbers of a model; texts are read whole.
MOST_BYTES = {MODEL: 1 << 30, CERTIFICATE: 1 << 26, SUMMARY: 1 << 26}


@dataclass
class Progress:
    """A study's status as the aggregator writes it; ``missing`` says who, and why.

    ``error`` is what ended the study, of :func:`error_fields`; ``restarts`` counts how often the
    aggregator was stopped and went on.
    """

    file: Path
    study: str
    study_hash: str
    session: str
    lead: str = ""
    state: State = "waiting"
    step: str = ""
    answered: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    restarts: int = 0
    _written: float = 0.0

    def notify(self, step: str, parties: int) -> None:
        self.answered = self.answered + parties if step == self.step else parties
        if step != self.step or time.monotonic() > self._written + _SELDOM:
            self.step = step
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        found = {name: value for name, value in vars(self).items() if name not in _NOT_WRITTEN}
        write_json(self.file, found | {"time": time.time()})


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What was written for a run, or ``None``."""
    try:
        found = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("state") in STATES else None


def error_fields(error: EigenveilError) -> dict[str, Any]:
    spent = error.spent
    return {
        "kind": next((name for name, kind in _KINDS.items() if type(error) is kind), ""),
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "spent": None if spent is None else spent.as_dict(),
    }


def error_from(fields: Mapping[str, Any]) -> EigenveilError:
    kind = _KINDS.get(str(fields.get("kind")), ProtocolError)
    error = kind.relayed(
        str(fields.get("message", "The study failed.")),
        hint=str(fields.get("hint", "")),
        code=received_code(str(fields.get("code", ""))),
    )
    spent = fields.get("spent")
    if isinstance(spent, Mapping):
        lists = {name: tuple(spent.get(name, ())) for name in ("caveats", "assumptions")}
        error.spent = Guarantee(**{**spent, **lists})
    return error


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
