"""Collecting measured numbers beside the wanted ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """Lines of a Markdown table a section."""

    sections: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

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
        """The page of all sections, or that page with these sections in place of its own."""
        texts: dict[str, str] = {}
        if not whole and page.exists():
            for text in page.read_text(encoding="utf-8").split("\n## ")[1:]:
                texts[text.partition("\n")[0]] = text.strip()
        for section, lines in self.sections.items():
            rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            head = "| what | measured | wanted | met |\n|---|---|---|---|"
            texts[section] = f"{section}\n\n{head}\n{rows}"
        texts.update({section: f"{section}\n\n{text}" for section, text in self.texts.items()})
        page.parent.mkdir(exist_ok=True)
        said = "".join(f"\n## {text}\n" for text in texts.values())
        page.write_text(f"# Measured by `make bench`\n{said}", encoding="utf-8")
        print(f"written to {page}")
