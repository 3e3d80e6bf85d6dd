"""Keeps the relay's run going: ``python flower_keep.py SPOOL APP [SUPERLINK]``.

A run ends with the process of its ServerApp. On the SuperLink's machine, with Flower's ``flwr``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

QUIET, STARTING = 15, 30  # seconds without a sign of the ServerApp: a run is begun, has begun


def keep(spool: str, *words: str) -> None:
    """Begins a run whenever none moves files."""
    alive = Path(spool, ".relay", "alive")
    begun = -float(STARTING)
    while True:
        old = time.time() - alive.stat().st_mtime if alive.exists() else QUIET + 1
        if old > QUIET and time.monotonic() > begun + STARTING:
            flwr = Path(sys.executable).with_name("flwr")
            done = subprocess.run([flwr, "run", *words], capture_output=True, text=True)
            said = (done.stdout + done.stderr).strip().splitlines()[-1:]
            print(time.strftime("%FT%T"), *said, flush=True)
            begun = time.monotonic() if not done.returncode else begun
        time.sleep(2)


if __name__ == "__main__":
    keep(*sys.argv[1:4])
