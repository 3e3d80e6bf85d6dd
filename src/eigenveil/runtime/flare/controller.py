"""The one class that a job may name at the aggregator: it conducts a study."""

from __future__ import annotations

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from eigenveil.errors import EigenveilError
from eigenveil.federation.envelope import MOST_BESIDE
from eigenveil.runtime.flare.abort import Word
from eigenveil.runtime.flare.bounds import largest_message
from eigenveil.runtime.flare.conduct import Conductor
from eigenveil.runtime.flare.job import Order, read_order
from eigenveil.runtime.flare.kit import Kit, open_kit
from eigenveil.runtime.flare.signed import SignedWire, identity_of
from eigenveil.runtime.flare.status import STATUS, Progress, error_fields
from eigenveil.runtime.flare.wire import CellCarrier

# Of the study of this process; a job's process has one.
_limit = 0


def order_limit() -> int:
    """Most bytes of an answer in the study of this process; 0 before it is known."""
    return _limit


class StudyController(Controller):  # type: ignore[misc]
    """Conducts a study in its own process at the aggregator; FLARE's tasks are not used.

    Parameters
    ----------
    study : dict
        The study's fields.
    session : str
        The run's name.
    timeout : float
        Seconds that a site has for an answer.
    """

    def __init__(self, study: dict[str, Any], session: str, timeout: float) -> None:
        super().__init__()
        del study, session, timeout  # FLARE's copies; the signed ones are read when it begins

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The study; that FLARE says it is to stop ends nothing, only what its lead has signed."""
        global _limit
        del abort_signal
        engine = fl_ctx.get_engine()
        try:
            kit = open_kit(engine.get_workspace().get_root_dir(), role="aggregator")
            job, identity = str(fl_ctx.get_job_id()), identity_of(kit)
            folder = kit.results / job
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            order = _signed_order(kit, job)
            limit = largest_message(order.study)
            _limit = MOST_BESIDE + limit
            identity = identity_of(kit)
            trouble = Conductor(
                order=order,
                wire=SignedWire(
                    CellCarrier(engine.get_cell()),
                    identity,
                    study=order.study.hash,
                    session=order.session,
                    limit=limit,
                ),
                present=[client.name for client in engine.get_clients()],
                aborted=Word(folder, identity, order.lead, order.study.hash, order.session).is_said,
                folder=folder,
                identity=identity,
            ).run()
        except EigenveilError as error:
            trouble = error
        if trouble is not None:
            # without it FLARE would call the job completed
            self.system_panic(f"the study ended without a result: {trouble.code}", fl_ctx)


def _signed_order(kit: Kit, job: str) -> Order:
    """What the lead has signed; that there is nothing of the kind is said where it is looked for.

    Raises
    ------
    ProtocolError
    """
    try:
        return read_order(kit.runs / job / "app_server", kit.root_certificate)
    except EigenveilError as error:
        status = Progress(kit.results / job / STATUS, study="", study_hash="", session="")
        status.state, status.error = "failed", error_fields(error)
        status.write()
        raise
