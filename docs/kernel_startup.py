"""What each tutorial's kernel begins with while the site is built: commands print as in a file.

``%%bash`` of IPython shows output in the pieces in which it came, and tells programs to use
colours. Here a cell's output is one text without colours; a command that fails fails the build.
"""

import os
import subprocess
import sys

from IPython import get_ipython

for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
    os.environ.pop(name, None)


def bash(line: str, cell: str) -> None:
    """Run a cell in bash."""
    del line
    done = subprocess.run(["bash", "-e", "-c", cell], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    done.check_returncode()


get_ipython().register_magic_function(bash, "cell", "bash")
