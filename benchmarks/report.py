"""Collecting measured numbers beside the wanted ones."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """Lines of a Markdown table a section."""

    sections: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)

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

    def markdown(self) -> str:
        """All sections."""
        parts = ["# Measured by `make bench`\n"]
        for section, lines in self.sections.items():
            parts.append(f"\n## {section}\n\n| what | measured | wanted | met |\n|---|---|---|---|")
            parts.extend(f"| {' | '.join(line)} |" for line in lines)
        return "\n".join(parts) + "\n"
