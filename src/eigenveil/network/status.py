"""How far a study is, in a file that is whole at any time; FLARE's own status does not say it."""

from __future__ import annotations

import json
import threading
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
from eigenveil.network.kit import Kit, write_json
from eigenveil.privacy.guarantee import Guarantee

State = Literal["waiting", "running", "finished", "failed", "aborted", "lost"]
STATES: tuple[State, ...] = get_args(State)
STATUS = "status.json"
GOING_ON = ("waiting", "running")
# Of this process, if it is an aggregator's: it can be reached.
AGGREGATOR_STARTED = threading.Event()
_KINDS: dict[str, type[EigenveilError]] = {
    kind.__name__: kind
    for kind in (DataError, PrivacyError, BudgetExceeded, ProtocolError, OutputError)
}


@dataclass
class Progress:
    """A study's status as the aggregator writes it.

    Attributes
    ----------
    file : Path
    study : str
        The study's name.
    study_hash, session : str
    state : State
    step : str
        Of the protocol.
    answered : int
        Parties that have answered it.
    missing : dict
        Parties that are missing, and why.
    error : dict or None
        What ended the study: kind, code, message and hint, and ``spent``.
    restarts : int
        How often the aggregator was killed, or stopped, and went on.
    """

    file: Path
    study: str
    study_hash: str
    session: str
    state: State = "waiting"
    step: str = ""
    answered: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    restarts: int = 0

    def notify(self, step: str, parties: int) -> None:
        """Note answers to a step."""
        self.answered = self.answered + parties if step == self.step else parties
        self.step = step
        self.write()

    def write(self) -> None:
        """Write it, whole or not at all."""
        found = {name: value for name, value in vars(self).items() if name != "file"}
        write_json(self.file, found | {"time": time.time()})


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What was written for a job, or ``None``."""
    try:
        found = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("state") in STATES else None


def goes_on(kit: Kit, job: str) -> bool:
    """Whether a study goes on, or will: it has a journal, and its status has no end yet."""
    found = read_progress(kit.results / job)
    going = found is None or found["state"] in GOING_ON
    return going and (kit.journals / job).exists()


def mark_lost(kit: Kit) -> tuple[int, int]:
    """Note which studies cannot go on where the aggregator stopped: they have no journal.

    Returns
    -------
    lost, resumed : int
        How many are over, and how many go on.
    """
    lost = resumed = 0
    for file in kit.results.glob(f"*/{STATUS}"):
        found = read_progress(file.parent)
        if found is None or found["state"] not in GOING_ON:
            continue
        if goes_on(kit, file.parent.name):
            resumed += 1
            continue
        write_json(file, found | {"state": "lost"})
        lost += 1
    return lost, resumed


def error_fields(error: EigenveilError) -> dict[str, Any]:
    """An error as plain values."""
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
    error = kind(
        str(fields.get("message", "The study failed.")),
        hint=str(fields.get("hint", "")),
        code=received_code(str(fields.get("code", ""))),
    )
    spent = fields.get("spent")
    if isinstance(spent, Mapping):
        lists = {name: tuple(spent.get(name, ())) for name in ("caveats", "assumptions")}
        error.spent = Guarantee(**{**spent, **lists})
    return error
