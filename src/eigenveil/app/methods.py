"""What was done, as a paper's methods say it, and what they cite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.app.presenters.base import in_sentence
from eigenveil.app.results import presenter_of
from eigenveil.errors import listed, number_text
from eigenveil.federation.protocol.certificates import Checked
from eigenveil.models.covariance.plan import WholeMomentPlan
from eigenveil.privacy.certificate import CUMULANTS, Certificate
from eigenveil.privacy.guarantee import UNNAMED_UNIT
from eigenveil.privacy.releases import ReleaseRecord


def methods(model: Any, verdict: Checked) -> str:
    """A paragraph for a paper's methods section, of what the certificate records."""
    return " ".join(_sentences(model, verdict))


def _sentences(model: Any, verdict: Checked) -> Iterator[str]:
    presenter = presenter_of(model)
    fitted = presenter.fitted(model)
    certificate, guarantee = model.certificate_, verdict.guarantee
    assert guarantee is not None
    yield (
        f"We fitted {in_sentence(presenter_of(fitted).title(fitted))} to {size_in_words(fitted)} "
        f"with {certificate.software}."
    )
    yield in_words_of_data(certificate)
    yield from preparation(fitted.plan_)
    yield (
        f"The released result is ({guarantee.epsilon:.4g}, "
        f"{number_text(guarantee.delta, 3)})-differentially "
        f"private"
        + ("" if guarantee.mu is None else f" (mu = {guarantee.mu:.4g} in Gaussian terms)")
        + f" [{', '.join(keys_of(certificate.releases, presenter.cites))}] for "
        f"{guarantee.neighbours}."
        + ("" if guarantee.certified else " This guarantee is NOT certified.")
    )
    yield (
        "All of it was computed from noisy sums over the rows: "
        + "; ".join(releases_in_words(certificate.releases))
        + f". The guarantee follows from their noise by {guarantee.calculation}."
    )
    usable = getattr(fitted, "usable_", None)
    if usable is not None:
        yield f"{int(np.sum(usable))} of {np.size(usable)} {presenter_of(fitted).clear}."
    if certificate.stopped:
        yield f"The fit ended early: {certificate.stopped}."
    if derived := presenter.method(model):
        yield derived
    yield (
        f"The certificate of the result (SHA-256 {certificate.digest[:16]}...) lists the noise of "
        "every sum, from which anybody can compute the guarantee again; it rests on the software's "
        f"proofs {listed(name.removesuffix('.md') for name in certificate.proofs)}."
    )


_SCALES = {
    "private": "Columns were divided by scales that were found within the budget.",
    "public": "Columns were divided by public scales.",
    "no": "Columns were not scaled.",
}
_CENTERS = {
    "private": "Rows were centred at a mean that was found within the budget.",
    "public": "Rows were centred at a public point.",
    "no": "Rows were not centred.",
}
_SITES = "Rows were centred at their site's mean, which was found within the budget."
_CLIPPED = "Columns were clipped to public ranges, and divided by half of their widths."
_NORM = "Each row was divided by its norm, so that all have the same weight."
_WHOLE = "Rows kept their lengths up to a bound that was chosen from noisy counts."
_EITHER = "Rows were divided by their norms, or kept their lengths, by what the releases showed."
_MISSING = {
    "leave-out": "Rows with a missing or infinite entry were left out and not counted.",
    "zero": "Missing entries were taken for their column's mean.",
    "independent": "Missing entries were corrected for by noisy counts of each column's entries.",
    "pairs": "Missing entries were corrected for by noisy counts of each pair of columns.",
}
_DOCUMENTS = (
    "Documents with fewer than 3 words, or with other counts than whole numbers from 0, were left "
    "out and not counted."
)
_IN_WORDS = {
    "norm-histogram": "counts of rows by length",
    "column-histogram": "counts of rows by the values of each column",
    "row-sum": "sums of rows",
    "second-moment": "second moments",
    "score-histogram": "counts of rows by their scores",
    "sketch": "sketched second moments",
    "component-energy": "variances along components",
    "column-counts": "counts of entries by column",
    "pair-counts": "counts of entries by pair of columns",
    "bingham-vectors": "directions drawn by second moments",
    "third-moment": "third moments",
    "em-sums": "sums of the rows of each component",
    "document-pairs": "counts of pairs of words",
    "word-shares": "shares of words",
    "document-sketch": "sketched counts of pairs of words",
    "document-triples": "counts of triples of words",
}


def size_in_words(fitted: Any) -> str:
    """How much was fitted to, as far as noise shows it."""
    features, count = f"{fitted.n_features_in_:,} features", getattr(fitted, "n_samples_", None)
    what = "rows" if fitted.plan_.unit is None else "units"
    return (
        features if count is None else f"about {max(0.0, float(count)):,.0f} {what} of {features}"
    )


def in_words_of_data(certificate: Certificate) -> str:
    """Who held the rows, and what they sent."""
    if (of := certificate.federation) is not None:
        return (
            f"The rows were held by {of.sites} site{'' if of.sites == 1 else 's'}, which computed "
            f"masked sums (protocol {of.protocol!r}, {of.masks} masks); up to {of.collusion} "
            f"of them may collude with the aggregator, and {of.taking_part} took part."
        )
    if (tree := certificate.tree) is not None:
        return (
            f"The rows were held by {tree.leaves} sites, whose noisy sums were merged "
            f"up a tree; those of {tree.arrived} arrived."
        )
    return "The rows were held in one place."


def preparation(plan: Any) -> Iterator[str]:
    """What was done to rows and columns before anything was added up."""
    if (unit := plan.unit) is not None:
        told = "" if unit == UNNAMED_UNIT else f", told apart by column {unit!r},"
        yield f"In each table all rows of a unit{told} together count as one row at most."
    yield _DOCUMENTS if plan.of_documents else _MISSING[plan.missing]
    norm = getattr(plan, "row_norm", None)
    if norm is None:
        return
    yield _SITES if plan.sites else _CENTERS[plan.centered]
    yield _CLIPPED if plan.ranged else _SCALES[plan.scaled]
    if norm == "auto":
        yield _WHOLE if isinstance(plan, WholeMomentPlan) else _EITHER
    elif norm == "unit":
        yield _NORM
    elif norm == "max":
        yield "Rows were divided by the largest norm."
    else:
        yield f"Rows were shortened at a public norm of {norm:g}."


def releases_in_words(records: tuple[ReleaseRecord, ...]) -> Iterator[str]:
    """What was released, by its kind of noise, and how often."""
    kinds: dict[str, Counter[str]] = {}
    for each in records:
        name = CUMULANTS if each.name == CUMULANTS else _IN_WORDS[each.statistic]
        kinds.setdefault(each.noise.kind, Counter())[name] += 1
    for kind, names in kinds.items():
        counted = (name + f" ({n} times)" * (n > 1) for name, n in names.items())
        yield f"{listed(counted)} with {kind.capitalize()} noise"


# -- What is cited, as BibTeX.


_SOFTWARE = """@software{{eigenveil,
  author  = {{{{The eigenveil authors}}}},
  title   = {{eigenveil: differentially private {{PCA}} and tensor decomposition for data that
             cannot be pooled}},
  version = {{{version}}}
}}"""
_CITED = Path(__file__).with_name("methods.bib").read_text(encoding="utf-8")
_BY_KEY = {
    entry.partition("{")[2].partition(",")[0]: entry for entry in _CITED.strip().split("\n\n")
}
_MOMENTS = ("second-moment", "sketch")
_THIRD = ("third-moment", "document-triples")


def keys_of(records: Iterable[ReleaseRecord], also: Sequence[str] = ()) -> tuple[str, ...]:
    """Keys of what the releases of a fit rest on, in the order in which they are cited."""
    found = ["dwork2006calibrating", *also]
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


def bibtex(certificate: Any, also: Sequence[str] = ()) -> str:
    """The software's entry, of the version that fitted, and those of what is cited."""
    return "\n\n".join(_entries(certificate, also)) + "\n"


def _entries(certificate: Any, also: Sequence[str]) -> Iterator[str]:
    fitted = certificate.software.partition(" ")[2].partition(" (")[0] or version("eigenveil")
    # the text is a file's: what could close the entry is left out
    yield _SOFTWARE.format(version="".join(c for c in fitted if c.isalnum() or c in ".+-"))
    for key in keys_of(certificate.releases, also):
        yield _BY_KEY[key]
