"""Attacks on mechanisms: lower bounds on what they leak, beside what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.parts import Part, Strong, TablePart, strongly
from eigenveil.app.results import check_place, new_folder
from eigenveil.audit import run
from eigenveil.audit.report import (
    as_values,
    bound_text,
    claim_text,
    summary,
    witness_text,
    write_findings,
)
from eigenveil.audit.run import Finding
from eigenveil.errors import WrongOption

# Up to so many audits are shown in full.
_EXPLAINED = 8
_OF_CASE = ("name", "title", "group", "adjacency", "view", "test")


@dataclass(frozen=True)
class AuditList:
    mechanisms: Mapping[str, Sequence[Any]]

    def as_json(self) -> dict[str, Any]:
        return {
            name: [{each: getattr(case, each) for each in _OF_CASE} for case in cases]
            for name, cases in self.mechanisms.items()
        }

    def parts(self) -> Iterator[Part]:
        rows = [
            ("" if index else name, case.name, case.adjacency, case.view)
            for name, cases in self.mechanisms.items()
            for index, case in enumerate(cases)
        ]
        headings = ("mechanism", "audit", "adjacency", "view")
        yield TablePart("mechanisms, and the audits of each", headings, rows, overflow="fold")


def list_audits() -> AuditList:
    return AuditList(run.mechanisms())


@dataclass(frozen=True)
class Audited:
    """What was found; all bounds hold together with a confidence."""

    findings: Sequence[Finding]
    confidence: float
    out: Path | None

    @property
    def broken(self) -> bool:
        """Whether a claim of this package is refuted."""
        return any(each.case.group == "sound" and not each.holds for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        audits = [as_values(finding) for finding in self.findings]
        return {"confidence": self.confidence, "audits": audits, "out": self.out}

    def parts(self) -> Iterator[Part]:
        yield TablePart(
            f"lower bounds, all together at confidence {self.confidence:g}",
            ("audit", "claim", "at least", "ratio", "verdict"),
            [
                (
                    each.case.name,
                    claim_text(each),
                    bound_text(each),
                    f"{each.tightness:.2f}",
                    each.verdict if each.holds else Strong(each.verdict, "red"),
                )
                for each in self.findings
            ],
            right=("ratio",),
            overflow="fold",
        )
        for each in self.findings if len(self.findings) <= _EXPLAINED else ():
            case = each.case
            yield strongly(f"{case.name}:", case.title)
            yield f"  neighbours: {case.adjacency}; adversary: {case.view}."
            yield f"  test: {case.test}."
            yield f"  outputs: {each.trials:,} on each data set, by {case.sampling}."
            yield f"  claim: {case.claim.whence}."
        for each in self.findings:
            if (text := witness_text(each)) is not None:
                yield f"{each.case.name}: {text}"
        yield summary(self.findings, confidence=self.confidence)
        if self.out is not None:
            yield f"written to {self.out}: the table (audit.csv, .json, .md) and the figure."


def audit(
    words: Sequence[str],
    *,
    trials: int,
    confidence: float,
    jobs: int,
    seed: int | None = None,
    out: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audited:
    cases = run.chosen(words)
    if seed is not None and seed < 0:
        raise WrongOption("out-of-range", name="--seed", value=seed, wanted="0 or more")
    if out is not None:  # before minutes are spent
        check_place(out, overwrite=False)
    findings = run.audit(
        cases, trials=trials, confidence=confidence, jobs=jobs, seed=seed, progress=progress
    )
    if out is not None:
        with new_folder(out) as folder:
            write_findings(findings, folder, confidence=confidence)
    return Audited(findings, confidence, out)
