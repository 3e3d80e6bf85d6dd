"""Collecting measured numbers beside the wanted ones."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What numbers may follow from: not what only prints, draws or carries messages.
ROOMS = (
    "federated", "federation", "io", "linalg", "models", "moments", "noise", "planning", "privacy",
    "tables",
)  # fmt: skip
_MEASURED = re.compile(r"^Measured on [^\n]*, code ([0-9a-f]{12})\.\n", re.MULTILINE)
# Empty fields of a syntax tree, which versions of Python show or leave out.
_EMPTY = re.compile(r"(?:, )?\b\w+=\[\]")
_STALE = re.compile(r"^\*\*Stale:[^\n]*\n\n?", re.MULTILINE)


def digest(source: Path = ROOT / "src" / "eigenveil") -> str:
    """State of the code that numbers may follow from: comments and docstrings are no part of it."""
    found = hashlib.sha256()
    for file in sorted(each for room in ROOMS for each in (source / room).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
        plain = _EMPTY.sub("", ast.dump(tree)).replace("(, ", "(")
        found.update(f"{file.relative_to(source).as_posix()}\n{plain}\n".encode())
    found.update(b"".join(file.read_bytes() for file in sorted(source.rglob("*.c"))))
    return found.hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def state(code: str) -> str:
    """The line under a section's heading: when it was measured, and of which code."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = ""
    if shutil.which("git") is not None:
        said = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
        commit = said.stdout.strip()
    commit = commit or "unknown"
    return f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit}, code {code}.\n"


def marked(text: str, code: str) -> str:
    """A section, marked as stale under its heading where it is not of this code."""
    heading, _, rest = _STALE.sub("", text).partition("\n")
    found = _MEASURED.search(rest)
    if found is not None and found[1] == code:
        return f"{heading}\n{rest}"
    of = "it does not say of which" if found is None else f"it was {found[1]}, and is {code}"
    return f"{heading}\n\n**Stale: measured of other code ({of}).**\n\n{rest.lstrip()}"


@dataclass
class Report:
    """Lines of a Markdown table a section."""

    sections: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)  # Of sections measured before: when

    def add(
        self, section: str, what: str, measured: float, wanted: float, *, at_most: bool = False
    ) -> None:
        """One number; ``at_most`` for times and ratios, else it must be at least the wanted one."""
        met = measured <= wanted if at_most else measured >= wanted
        sign = "<=" if at_most else ">="
        line = (what, f"{measured:.4g}", f"{sign} {wanted:g}", "yes" if met else "NO")
        self.sections.setdefault(section, []).append(line)
        print(f"{section}: {what}: {line[1]} (wanted {line[2]}: {line[3]})", flush=True)

    def note(self, section: str, what: str, text: str) -> None:
        """One number that nothing is wanted of."""
        self.sections.setdefault(section, []).append((what, text, "", ""))
        print(f"{section}: {what}: {text}", flush=True)

    def text(self, section: str, text: str) -> None:
        """A section of tables of its own, in Markdown."""
        self.texts[section] = text

    def write(self, page: Path, *, whole: bool) -> None:
        """The page of all sections, or that page with these sections in place of its own.

        Each says when it was measured and of which code; one of other code is marked as stale.
        """
        texts: dict[str, str] = {}
        if not whole and page.exists():
            for text in page.read_text(encoding="utf-8").split("\n## ")[1:]:
                texts[text.partition("\n")[0]] = text.strip()
        code = digest()
        now = state(code)
        for section, lines in self.sections.items():
            rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            head = "| what | measured | wanted | met |\n|---|---|---|---|"
            texts[section] = f"{section}\n\n{self.measured.get(section, now)}\n{head}\n{rows}"
        for section, text in self.texts.items():
            texts[section] = f"{section}\n\n{now}\n{text}"
        page.parent.mkdir(exist_ok=True)
        said = "".join(f"\n## {marked(text, code)}\n" for text in texts.values())
        page.write_text(f"# Measured by `make bench`\n{said}", encoding="utf-8")
        print(f"written to {page}")
