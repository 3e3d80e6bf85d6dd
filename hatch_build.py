"""Compiles the loops over rows (src/eigenveil/moments/_loops.c) where there is a C compiler.

Without one, or with ``EIGENVEIL_BUILD_LOOPS=no``, the package is built without them: it is slower
and gives the same results. With ``EIGENVEIL_BUILD_LOOPS=yes`` a failure ends the build.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = Path("src", "eigenveil", "moments", "_loops")
# rounding is a rule of the row: nothing that changes a value
FLAGS = ("-O3", "-std=c11", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")


class Loops(BuildHookInterface):
    """Adds the compiled loops to a wheel, or puts them beside their source for an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        """Compile, or say why not and go on."""
        del version
        wanted = os.environ.get("EIGENVEIL_BUILD_LOOPS", "")
        if self.target_name != "wheel" or wanted == "no":
            return
        made = Path(self.root, MODULE.with_suffix(".abi3.so"))
        made.unlink(missing_ok=True)  # of another version
        try:
            compile_to(Path(self.root, MODULE.with_suffix(".c")), made)
        except (OSError, subprocess.CalledProcessError) as error:
            if wanted == "yes":
                raise
            told = getattr(error, "stderr", "") or error
            self.app.display_warning(f"built without compiled loops, fits are slower: {told}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = False
        build_data["tag"] = f"cp311-abi3-{_platform()}"
        build_data["artifacts"].append(f"/{made.relative_to(self.root)}")


def compile_to(source, made):
    """One file, by the compiler that Python was built with or that CC names: all of it or none."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    shared = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        part = Path(folder, made.name)
        include = f"-I{sysconfig.get_path('include')}"
        words = [*compiler, *FLAGS, *shared, include, str(source), "-o", str(part), "-lm"]
        subprocess.run(words, check=True, capture_output=True, text=True)
        part.replace(made)


def _platform():
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
