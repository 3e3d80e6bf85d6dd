"""How far a study is, in a file that is whole at any time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    OutputError,
    PrivacyError,
    ProtocolError,
    received_code,
)
from eigenveil.network.folder import write_json
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
    """The error of :func:`error_fields`."""
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
