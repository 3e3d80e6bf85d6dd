"""The questions of NIST SP 800-226, answered as far as a certificate can.

The publication puts what a guarantee rests on into a pyramid, each level on those below it:
https://doi.org/10.6028/NIST.SP.800-226. The questions are in our words, and their number is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from eigenveil.app.methods import releases_in_words
from eigenveil.app.parts import TablePart
from eigenveil.errors import number_text
from eigenveil.federation.protocol.certificates import Checked
from eigenveil.privacy.certificate import DEPENDENT, NOT_COUNTED, SEEDED, Certificate
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.mechanisms.base import UNPROVED

GUARANTEE, AROUND, BELOW = (
    "top, the guarantee",
    "middle, what can undermine it",
    "bottom, the collection of the data",
)
_OWNER, _OPERATOR = "the owner of the rows", "whoever runs the machines"
_USER = "whoever uses the result"


@dataclass(frozen=True)
class Answer:
    """A question, and what a certificate says; ``by`` is who must answer (the rest of) it."""

    level: str
    question: str
    answer: str | None
    by: str | None = None

    def __str__(self) -> str:
        asked = "Not answered by a certificate" if self.answer is None else "The rest"
        rest = "" if self.by is None else f"{asked}: {self.by} must answer."
        return " ".join(filter(None, (self.answer, rest)))


def checklist(certificate: Certificate, verdict: Checked) -> list[Answer]:
    """The answers to all questions, from the top of the pyramid; of a certificate that holds."""
    assert verdict.guarantee is not None
    return [
        *_of_guarantee(certificate, verdict.guarantee),
        *_of_software(certificate),
        *_of_people(certificate, verdict),
        Answer(
            BELOW,
            "Data collection: who collected and keeps the rows, for how long, with which consent?",
            None,
            _OWNER,
        ),
    ]


def checklist_parts(answers: list[Answer]) -> Iterator[TablePart]:
    """A table a level."""
    for level, of_level in groupby(answers, key=lambda each: each.level):
        rows = [(each.question, str(each)) for each in of_level]
        yield TablePart(f"Level of the pyramid: {level}", ("question", "answer"), rows)


def _of_guarantee(certificate: Certificate, guarantee: Guarantee) -> Iterator[Answer]:
    mu = "" if guarantee.mu is None else f", mu = {guarantee.mu:.4g}"
    yield Answer(
        GUARANTEE,
        "Epsilon, delta: how large, and is it proved?",
        f"epsilon = {guarantee.epsilon:.4g}, delta = {number_text(guarantee.delta, 3)}{mu}. "
        + (
            f"Certified: it follows from the recorded noise by {guarantee.calculation}."
            if guarantee.certified
            else f"NOT certified: {'; '.join(guarantee.caveats)}."
        ),
    )
    yield Answer(GUARANTEE, "Why this epsilon, and who decided it?", None, _OWNER)
    kind = "pure (epsilon)" if guarantee.delta == 0 else "approximate (epsilon, delta)"
    gaussian = "" if guarantee.mu is None else "; mu states it as Gaussian differential privacy"
    yield Answer(GUARANTEE, "Which definition?", f"{kind} differential privacy{gaussian}.")
    unit = "one row" if guarantee.unit is None else f"all rows of a unit ({guarantee.unit!r})"
    assumed = "; ".join(guarantee.assumptions)
    yield Answer(GUARANTEE, "What is the unit of privacy?", f"{unit}. Assumed: {assumed}.", _OWNER)
    bounded = "unbounded" if guarantee.adjacency == "add-remove" else "bounded"
    yield Answer(
        GUARANTEE, "Which data sets are neighbours?", f"{guarantee.neighbours} ({bounded})."
    )
    yield Answer(
        GUARANTEE,
        "What do other releases of the same rows cost?",
        "Every release was charged, before it was drawn, to a ledger, whose total counts."
        if certificate.counted
        else f"Not known: {NOT_COUNTED}.",
        _OWNER,
    )


def floats_in_words(certificate: Certificate) -> str:
    """What is proved of the rounding of numbers."""
    records = certificate.releases
    notes = dict.fromkeys(caveat for each in records for caveat in each.mechanism.caveats)
    first = "Sums are integers and noise is drawn on a grid; what is left is in epsilon and delta"
    if any(each.sampling_error() == UNPROVED for each in records):
        first = "Nothing is proved of the floating point of some release"
    elif not all(each.mechanism.added for each in records):
        first = "Not all releases are integer sums with noise on a grid"
    return ". ".join([first, *notes, *[DEPENDENT] * certificate.dependent]) + "."


def _of_software(certificate: Certificate) -> Iterator[Answer]:
    records = certificate.releases
    proofs = ", ".join(certificate.proof_names)
    yield Answer(
        AROUND,
        "Which mechanisms, with which sensitivities?",
        f"{'; '.join(releases_in_words(records))}. Sensitivities and scales: the list of releases. "
        f"Proofs: {proofs}.",
    )
    yield Answer(
        AROUND, "Floating point: can rounding tell of a row?", floats_in_words(certificate)
    )
    seeded = SEEDED in certificate.reasons_not_certified
    yield Answer(
        AROUND,
        "Random numbers: from where?",
        "a seed: whoever knows it can remove the noise."
        if seeded
        else "ChaCha20 under keys of the operating system. That this noise was drawn is the word "
        "of whoever ran the software.",
        None if seeded else _OPERATOR,
    )
    yield Answer(
        AROUND,
        "Can rows decide whether there is a result?",
        "No: only names, types and ranges that are public refuse a fit.",
    )
    yield Answer(AROUND, "Other side channels: running time, memory, logs?", None, _OPERATOR)


def _of_people(certificate: Certificate, verdict: Checked) -> Iterator[Answer]:
    if (of := certificate.federation) is not None:
        held = (
            f"{of.sites} sites keep their rows and send sums under masks ({of.masks}); up to "
            f"{of.collusion} may collude with the aggregator"
        )
    elif certificate.tree is not None:
        held = f"{certificate.tree.leaves} sites keep their rows and send noisy sums up a tree"
    else:
        held = "central: whoever ran the fit sees all rows"
    views = (f"{name}: epsilon = {view.epsilon:.4g}" for name, view in verdict.views.items())
    yield Answer(
        AROUND, "Trust model: who sees rows, or what else?", f"{held}. {'; '.join(views)}."
    )
    yield Answer(
        AROUND, "Security and access control: who can read the rows and the machine?", None, _OWNER
    )
    yield Answer(
        AROUND,
        "Utility: is the result good enough?",
        "The result says what stands above the noise.",
        _USER,
    )
    yield Answer(
        AROUND,
        "Bias: who is left out, or hidden by noise?",
        f"By rule: {certificate.left_out}.",
        _USER,
    )
