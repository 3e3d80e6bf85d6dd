"""The process of a job at the aggregator: FLARE's program, hardened."""

from __future__ import annotations

import os
import sys
import threading
import time
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
    arguments = runner_process.parse_arguments()
    kit = open_kit(Path(arguments.workspace), role="aggregator")
    harden_job(kit, lambda: max(MOST_OF_FLARE, signed_job_limit()))
    status = MainProcessMonitor.run(
        main_func=runner_process.main, run_dir=str(kit.runs / arguments.job_id), args=arguments
    )
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
