"""The paragraph of a report for a paper, what it cites, and the model card: of facts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.errors import listed
from eigenveil.federation.protocol.certificates import Verdict
from eigenveil.models.task import TASKS
from eigenveil.privacy.certificate import NOT_COUNTED
from eigenveil.privacy.releases import ReleaseRecord


def methods(model: Any, task: str, verdict: Verdict) -> str:
    """A paragraph for a paper's methods section, of what the certificate records."""
    return " ".join(_sentences(model, task, verdict))


def _sentences(model: Any, task: str, verdict: Verdict) -> Iterator[str]:
    certificate, guarantee = model.certificate_, verdict.guarantee
    assert guarantee is not None
    yield (
        f"We fitted {TASKS[task].title.partition(';')[0]} to {model.n_features_in_:,} features "
        f"with {certificate.software}."
    )
    if certificate.federation is not None:
        of = certificate.federation
        yield (
            f"The rows were held by {of.sites} site{'' if of.sites == 1 else 's'}, which computed "
            f"masked sums (protocol {of.protocol!r}, {of.masks} masks); up to {of.collusion} "
            f"of them may collude with the aggregator, and {of.taking_part} took part."
        )
    elif certificate.tree is not None:
        yield (
            f"The rows were held by {certificate.tree.leaves} sites, whose noisy sums were merged "
            f"up a tree; those of {certificate.tree.arrived} arrived."
        )
    else:
        yield "The rows were held in one place."
    yield (
        f"The released result is ({guarantee.epsilon:.4g}, {guarantee.delta:.3g})-differentially "
        f"private"
        + ("" if guarantee.mu is None else f" (mu = {guarantee.mu:.4g} in Gaussian terms)")
        + f" [{', '.join(keys_of(certificate.releases))}]; neighbouring data sets differ in "
        f"{guarantee.neighbours}."
        + ("" if guarantee.certified else " This guarantee is NOT certified.")
    )
    count = len(certificate.releases)
    yield (
        f"Rows were read for {count} noisy release{'' if count == 1 else 's'} ("
        + "; ".join(_releases(certificate.releases))
        + "), and all else was computed from these; the total was computed by "
        f"{guarantee.calculation}."
    )
    usable = getattr(model, "usable_", None)
    if usable is not None:
        yield f"{int(np.sum(usable))} of {np.size(usable)} directions stood above the noise."
    if certificate.stopped:
        yield f"The fit ended early: {certificate.stopped}."
    yield (
        f"The certificate of the result (SHA-256 {certificate.digest[:16]}...) lists the noise of "
        "every release, from which anybody can compute the guarantee again."
    )


def _releases(records: tuple[ReleaseRecord, ...]) -> Iterator[str]:
    """Names of the releases, by their kind of noise; one that comes again with its number."""
    kinds: dict[str, Counter[str]] = {}
    for each in records:
        kinds.setdefault(each.noise.kind, Counter())[each.name] += 1
    for kind, names in kinds.items():
        counted = (f'"{name}"' + f" ({n} times)" * (n > 1) for name, n in names.items())
        yield f"{kind} noise: {', '.join(counted)}"


def model_card(model: Any, task: str, verdict: Verdict) -> list[tuple[str, str]]:
    certificate, guarantee = model.certificate_, verdict.guarantee
    assert guarantee is not None
    rows = getattr(model, "n_samples_", None)
    usable = getattr(model, "usable_", None)
    counted = "yes" if NOT_COUNTED not in guarantee.caveats else "no: " + NOT_COUNTED
    held = "in one place"
    if certificate.federation is not None:
        held = f"at {certificate.federation.sites} sites"
    elif certificate.tree is not None:
        held = f"at {certificate.tree.leaves} sites of a tree"
    limits = [
        "every number has noise: a component, feature or topic that is not usable shows nothing of "
        "the rows",
        "the guarantee is of this result alone, and of what the ledger counts with it",
    ]
    return [
        ("Model", f"{TASKS[task].title}; {type(model).__name__}, {certificate.software}"),
        (
            "Intended use",
            "to describe a population, and to transform new rows with the same columns; it may be "
            "published. It is not made to decide about single persons.",
        ),
        (
            "Data",
            f"{model.n_features_in_:,} features"
            + ("" if rows is None else f", about {max(0.0, float(rows)):,.0f} rows")
            + f", held {held}",
        ),
        (
            "Privacy",
            f"{guarantee.neighbours}: epsilon = {guarantee.epsilon:.4g}, delta = "
            f"{guarantee.delta:.3g}; certified: {'yes' if guarantee.certified else 'NO'}; counted "
            f"in a ledger: {counted}",
        ),
        (
            "Quality",
            "not stated"
            if usable is None
            else f"{int(np.sum(usable))} of {np.size(usable)} directions stand above the noise, "
            f"which alone shows up to {float(model.noise_floor_):.4g}",
        ),
        ("Limits", listed(limits) + "."),
        (
            "To use it",
            "eigenveil transform RESULT ROWS --out FILE, or "
            f"eigenveil.{type(model).__name__}.load('RESULT/model.npz')",
        ),
    ]


# -- What is cited, as BibTeX.


_SOFTWARE = """@software{{eigenveil,
  author  = {{{{The eigenveil authors}}}},
  title   = {{eigenveil: differentially private {{PCA}} and tensor decomposition for data that
             cannot be pooled}},
  version = {{{version}}}
}}"""
_CITED = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
_BY_KEY = {
    entry.partition("{")[2].partition(",")[0]: entry for entry in _CITED.strip().split("\n\n")
}
_MOMENTS = ("second-moment", "sketch")
_THIRD = ("third-moment", "document-triples")


def keys_of(records: Iterable[ReleaseRecord]) -> tuple[str, ...]:
    """Keys of what the releases of a fit rest on, in the order in which they are cited."""
    found = ["dwork2006calibrating"]
    for record in records:
        if not record.pure:
            found.append("dong2022gaussian")
        if not record.pure and record.mechanism.added and record.statistic in _MOMENTS:
            found.append("dwork2014analyze")
        if not record.mechanism.added:
            found.append("mcsherry2007mechanism")
        if record.statistic in _THIRD:
            found.append("anandkumar2014tensor")
    return tuple(key for key in _BY_KEY if key in found)


def bibtex(certificate: Any) -> str:
    """The software's entry, of the version that fitted, and those of what is cited."""
    return "\n\n".join(_entries(certificate)) + "\n"


def _entries(certificate: Any) -> Iterator[str]:
    fitted = certificate.software.partition(" ")[2] or version("eigenveil")
    # the text is a file's: what could close the entry is left out
    yield _SOFTWARE.format(version="".join(c for c in fitted if c.isalnum() or c in ".+-"))
    for key in keys_of(certificate.releases):
        yield _BY_KEY[key]
