"""The process of a job at the aggregator: FLARE's program, hardened.

Its libraries take seconds to load, for which a study would wait. So one process is started ahead:
it has loaded them, and waits to be told which job is its own.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

MODULE = "eigenveil.network.flare.job_process"


class JobProcessLauncher(ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts this module where FLARE would start its own: what is hardened stays so."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: Any) -> str:
        """FLARE's own command with another module."""
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.apis.job_launcher_spec import JobProcessArgs

        arguments = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
        arguments[JobProcessArgs.EXE_MODULE] = ("-m", MODULE)
        return str(super().get_command(job_meta, fl_ctx))

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """Give the job to the process that waits for one; without one, as FLARE does."""
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
        from nvflare.utils.job_launcher_utils import get_credential_env

        command = shlex.split(self.get_command(job_meta, fl_ctx), True)
        settings = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
        arguments = command[command.index(MODULE) + 1 :]
        process = SPARE.take(arguments, settings)
        if process is None:
            return super().launch_job(job_meta, fl_ctx)
        return ProcessHandle(process=process)


class Spare:
    """A process that has loaded everything and waits for a job; there is one at most."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()

    def prepare(self) -> None:
        """Start one, unless one waits."""
        with self._guard:
            if self._process is not None and self._process.poll() is None:
                return
            with suppress(OSError):  # a job is then started as FLARE does
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-m", MODULE, _WAIT],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )

    def take(
        self, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | None:
        """The process that waited, which now has this job; ``None`` where none did."""
        with self._guard:
            process, self._process = self._process, None
        if process is None or process.poll() is not None or process.stdin is None:
            return None
        order = {"arguments": list(arguments), "settings": dict(settings)}
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.close()
        except OSError:
            process.kill()
            return None
        return process


SPARE = Spare()
_WAIT = "--wait-for-a-job"
# What a job needs sooner or later.
_NEEDED = (
    "nvflare.private.fed.app.server.runner_process",
    "nvflare.private.fed.server.fed_server",
    "eigenveil.network.flare.controller",
    "eigenveil.network.flare.hardening",
    "eigenveil.federated.base",
    "scipy.linalg",
)


# Seconds between two looks at whether the aggregator lives.
_LOOK = 0.5


def _end_with_the_aggregator() -> None:
    """End this process when the one that started it has ended: that goes on when it is back.

    Left alone, it would find no site any more, and end the study.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="eigenveil parent").start()


def main() -> int:
    """Be the process of a job until the study has ended; its exit status."""
    from nvflare.fuel.f3.mpm import MainProcessMonitor
    from nvflare.private.fed.app.server import runner_process

    from eigenveil.network.channel import MOST_OF_FLARE
    from eigenveil.network.flare.controller import signed_job_limit
    from eigenveil.network.flare.hardening import harden_job
    from eigenveil.network.kit import open_kit

    _end_with_the_aggregator()
    if _WAIT in sys.argv:
        for name in _NEEDED:
            import_module(name)
        order = sys.stdin.readline()
        if not order:  # the aggregator has ended
            return 0
        fields = json.loads(order)
        os.environ.update(fields["settings"])
        sys.argv = [sys.argv[0], *fields["arguments"]]
    arguments = runner_process.parse_arguments()
    kit = open_kit(Path(arguments.workspace), role="aggregator")
    harden_job(kit, lambda: max(MOST_OF_FLARE, signed_job_limit()))
    status = MainProcessMonitor.run(
        main_func=runner_process.main, run_dir=str(kit.runs / arguments.job_id), args=arguments
    )
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
