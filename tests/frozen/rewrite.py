"""Writes the record of what is frozen anew, from the fits and commands of today."""

import tempfile
from pathlib import Path

from frozen_commands import printed
from frozen_tools import CASES, PRINTED, RELEASED, recomputed, write

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(RELEASED, {name: recomputed(name, Path(folder)) for name in CASES})
    with tempfile.TemporaryDirectory() as folder:
        write(PRINTED, printed(Path(folder)))
