"""Follow pages of the documentation: run what they print, in that order, in an empty folder each.

    python packaging/follow_page.py docs/start.md README.md

Run are the cells of notebook pages that a reader sees, and blocks whose first line says "run"
(```bash run, ```python run); one that names a file (```toml schema.toml) becomes that file.
Python is one session for each page; the shell finds `eigenveil`
beside the Python that runs this. A bare environment will do: nothing else is imported here.
With --twice first, each page is run a second time in its folder: a shell's block may then end
where it would have overwritten a result, and Python's run as before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"^```([^\n`]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HIDDEN = ("remove-cell", "remove-input")


def steps(page: str) -> Iterator[tuple[str, str]]:
    """What each block is for ("bash", "python", or a file's name), and its text."""
    for kind, text in _BLOCK.findall(page):
        words = kind.split()
        if words[0] == "{code-cell}":
            options, code = re.fullmatch(r"((?::[^\n]*\n)*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
            if any(hidden in options for hidden in _HIDDEN):
                continue
            shell, _, rest = code.partition("\n")
            yield ("bash", rest) if shell == "%%bash" else ("python", code)
        elif len(words) == 2:
            yield words[words[1] != "run"], text


def in_shell(code: str, second: bool) -> None:
    """Run a block of commands; one that ran before may refuse to overwrite what it made."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", code], stderr=subprocess.PIPE, text=True, check=False
    )
    sys.stderr.write(done.stderr)
    refused = done.returncode == 7 and re.search(r"^error: .* exists", done.stderr, re.MULTILINE)
    if not (second and refused):
        done.check_returncode()


def follow(page: Path, second: bool = False) -> None:
    """Run a page's blocks in this process and the folder that it is in."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, (language, code) in enumerate(steps(page.read_text(encoding="utf-8")), 1):
        started = time.monotonic()
        try:
            if language == "bash":
                in_shell(code, second)
            elif language != "python":
                Path(language).write_text(code, encoding="utf-8")
            else:
                exec(compile(code, f"{page.name}, block {number}", "exec"), names)
        except Exception:
            traceback.print_exc()
            sys.exit(f"{page}: block {number} failed:\n\n{code}")
        print(f"{page.name}, block {number}: {time.monotonic() - started:.1f} s", flush=True)


def main(pages: list[str]) -> None:
    """Follow each page in a process and an empty folder of its own, with an empty home."""
    if pages[:1] == ["--here"]:
        follow(Path(pages[-1]))
        if pages[1] == "--twice":
            follow(Path(pages[-1]), second=True)
        return
    twice = [page for page in pages[:1] if page == "--twice"]
    for page in pages[len(twice) :]:
        with tempfile.TemporaryDirectory() as folder:
            home, work = Path(folder, "home"), Path(folder, "work")
            home.mkdir()
            work.mkdir()
            places = {"HOME": str(home), "XDG_DATA_HOME": str(home), "MPLBACKEND": "Agg"}
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            kept = {name: at for name, at in os.environ.items() if name != "EIGENVEIL_LEDGER"}
            itself = [sys.executable, str(Path(__file__).absolute())]
            done = subprocess.run(
                [*itself, "--here", *twice, str(Path(page).absolute())],
                cwd=work, env=kept | places | {"PATH": path}, check=False,
            )  # fmt: skip
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
