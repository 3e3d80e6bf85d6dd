"""The relay as a job of NVIDIA FLARE 2.6 to 2.9: its public Controller and Executor."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from .spool import Peer, Spool, SpoolError, answer

TASK, BODY = "eigenveil", "pieces"
SILENT = 30  # seconds after which a message without an answer is sent again


def spool_here(fl_ctx: FLContext) -> Spool:
    """The folder that EIGENVEIL_SPOOL names, or else local/eigenveil.spool of this startup kit."""
    named = os.environ.get("EIGENVEIL_SPOOL")
    if not named:
        root = fl_ctx.get_engine().get_workspace().get_root_dir()
        file = Path(root, "local", "eigenveil.spool")
        if not file.is_file():
            raise SpoolError(f"no spool: neither EIGENVEIL_SPOOL nor {file} names its folder")
        named = file.read_text().strip()
    return Spool(named)


class Server(Controller):
    """Beside the aggregator: moves files until the job is aborted.

    ``members`` maps names of FLARE's clients to names in the federation where they differ.
    """

    def __init__(self, members: dict[str, str] | None = None, patience: float = 1.0) -> None:
        super().__init__(task_check_period=0.05)
        self.members, self.patience = members or {}, patience

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Opens the spool; without one the job ends with the reason."""
        try:
            self.spool = spool_here(fl_ctx)
        except SpoolError as error:
            self.system_panic(str(error), fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to end."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """A late answer: its files come again."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """One message at a time to each client of the job."""
        desks = {
            client.name: Peer(
                self.spool,
                client.name,
                self.patience,
                0.5,
                self.members.get(client.name, client.name),
            )
            for client in fl_ctx.get_engine().get_clients()
        }
        self.log_info(fl_ctx, f"eigenveil: relay between {', '.join(sorted(desks))}")
        tasks: dict[str, Task] = {}
        while not abort_signal.triggered:
            for name, desk in desks.items():
                if name in tasks and tasks[name].completion_status is None:
                    continue
                if (message := desk.due()) is not None:
                    tasks[name] = self._send(name, desk, message, fl_ctx)
            time.sleep(0.02)

    def _send(self, name: str, desk: Peer, message: bytes, fl_ctx: FLContext) -> Task:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result, client_task.result = client_task.result, None
            try:
                if result.get_return_code() == ReturnCode.OK:
                    desk.answered(result.get(BODY))
                else:
                    said = result.get("eigenveil", result.get_return_code())
                    self.log_error(fl_ctx, f"eigenveil: {name}: {said}")
                    desk.next = time.monotonic() + 5
            except (SpoolError, OSError) as error:
                self.log_error(fl_ctx, f"eigenveil: from {name}: {error}")
                desk.next = time.monotonic() + 5

        data = Shareable()
        data[BODY] = message
        task = Task(name=TASK, data=data, timeout=SILENT, result_received_cb=received)
        self.send(task=task, fl_ctx=fl_ctx, targets=[name])
        return task


class PartyEnd(Executor):
    """Beside a party."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Keeps what came, sends what waits."""
        del task_name  # there is one
        try:
            body = answer(
                spool_here(fl_ctx), shareable.get(BODY), stopped=lambda: abort_signal.triggered
            )
        except (SpoolError, OSError) as error:
            self.log_error(fl_ctx, f"eigenveil: {error}")
            reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            reply["eigenveil"] = str(error)
            return reply
        reply = make_reply(ReturnCode.OK)
        reply[BODY] = body
        return reply
