"""A result as one page that can be read, printed and published: of what was released alone."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil import plots
from eigenveil.app.parts import as_nodes, scrolled
from eigenveil.app.presenters.base import Drawing
from eigenveil.app.results import (
    MODEL,
    check_place,
    load_model,
    presenter_of,
    release_table,
    view_parts,
    write_text,
)
from eigenveil.errors import PrivacyError, listed, short_name
from eigenveil.federation.protocol.certificates import Verdict, check
from eigenveil.markup import Node, block, html_of, listing, node, table
from eigenveil.models.task import TASKS
from eigenveil.privacy.certificate import (
    NOT_COUNTED,
    WHAT_IT_CANNOT_SHOW,
    Certificate,
    proof_titles,
)
from eigenveil.privacy.guarantee import Guarantee
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
_CITED = Path(__file__).with_name("report.bib").read_text(encoding="utf-8")
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
    fitted = certificate.software.partition(" ")[2].partition(" (")[0] or version("eigenveil")
    # the text is a file's: what could close the entry is left out
    yield _SOFTWARE.format(version="".join(c for c in fitted if c.isalnum() or c in ".+-"))
    for key in keys_of(certificate.releases):
        yield _BY_KEY[key]


_SECTIONS = {
    "result": "Result",
    "privacy": "Privacy",
    "methods": "Methods, to paste into a paper",
    "card": "Model card",
    "plan": "What was decided before",
}


def report_page(model: Any, verdict: Verdict, *, title: str | None = None) -> str:
    """A result as one page.

    Everything in it is made of the model, which was released, and of its certificate.
    """
    task = presenter_of(model).task
    if not title:
        title = TASKS[task].title.partition(";")[0]
        title = title[:1].upper() + title[1:]
    style = node("style")
    style.text = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # nothing is fetched, and no script runs
        node(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        ),
        node("title", f"{title}: report"),
        style,
    )
    links = listing(node("a", text, href=f"#{name}") for name, text in _SECTIONS.items())
    contents: dict[str, Iterable[Node | None]] = {
        "result": _result(model),
        "privacy": _privacy(model.certificate_, verdict),
        "methods": _methods(model, task, verdict),
        "card": [_card(model_card(model, task, verdict))],
        "plan": _plan(model.certificate_),
    }
    sections = [
        node("section", node("h2", text), *contents[name], id=name)
        for name, text in _SECTIONS.items()
    ]
    body = node(
        "body",
        node("a", "To the result", href="#result", class_="skip"),
        node("header", node("h1", title), *_facts(model, verdict)),
        node("nav", links, aria_label="sections"),
        node("main", *sections),
        node("footer", node("p", f"Made of {model.certificate_.software}'s result alone.")),
    )
    return f"<!DOCTYPE html>\n{html_of(node('html', head, body, lang='en'))}\n"


def _facts(model: Any, verdict: Verdict) -> Iterator[Node]:
    guarantee = verdict.guarantee
    assert guarantee is not None
    yield node(
        "p",
        node("strong", "Certified. " if guarantee.certified else "NOT CERTIFIED. "),
        f"{verdict.explanation} Everything on this page was computed from noisy releases, and may "
        "be published."
        if guarantee.certified
        else f"{verdict.explanation} Do not publish this as private.",
        class_="good" if guarantee.certified else "bad",
    )
    usable = getattr(model, "usable_", None)
    facts = {
        "epsilon": f"{guarantee.epsilon:.4g}",
        "delta": f"{guarantee.delta:.3g}",
        "neighbours differ in": guarantee.neighbours,
        "features": f"{model.n_features_in_:,}",
    }
    if usable is not None:
        facts["above the noise"] = f"{int(usable.sum())} of {usable.size}"
    yield node(
        "dl",
        *(node("div", node("dt", name), node("dd", text)) for name, text in facts.items()),
        class_="facts",
    )


def _result(model: Any) -> Iterator[Node]:
    presenter = presenter_of(model)
    yield from as_nodes(presenter.parts(model))
    if model.certificate_.stopped is not None:
        yield node("p", node("strong", "The fit ended early: "), f"{model.certificate_.stopped}.")
    for drawing in presenter.drawings(model):
        yield _picture(drawing)


def _picture(drawing: Drawing) -> Node:
    image = base64.b64encode(plots.figure_bytes(drawing.draw(), "svg")).decode("ascii")
    what = f"{drawing.what[:1].upper()}{drawing.what[1:]}"
    picture = node("img", src=f"data:image/svg+xml;base64,{image}", alt=what)
    return node("figure", picture, node("figcaption", f"{what}."))


def _privacy(certificate: Certificate, verdict: Verdict) -> Iterator[Node]:
    guarantee = verdict.guarantee
    assert guarantee is not None
    yield node("p", str(guarantee), class_="lead")
    yield from as_nodes(view_parts(verdict.views))
    yield node("h3", "What was assumed")
    yield listing(f"{each}." for each in guarantee.assumptions)
    if guarantee.caveats:
        yield node("h3", "What to know")
        yield listing(f"{each}." for each in guarantee.caveats)
    yield from as_nodes([release_table(certificate.releases)])
    yield node("h3", "How to check it")
    yield node(
        "p",
        "With the result's folder: ",
        node("code", "eigenveil certify RESULT"),
        f". {WHAT_IT_CANNOT_SHOW[:1].upper()}{WHAT_IT_CANNOT_SHOW[1:]}.",
    )
    if verdict.signed is not None:
        yield node("p", f"Signatures: {verdict.signed}.")
    titles = proof_titles()
    names = [name.removesuffix(".md") for name in certificate.proofs]
    rows = [(node("code", f"eigenveil proofs {name}"), titles.get(name, "")) for name in names]
    yield scrolled(table(("command", "proof"), rows, caption="Proofs that it rests on"))


def _methods(model: Any, task: str, verdict: Verdict) -> Iterator[Node]:
    yield node("p", methods(model, task, verdict), most=None)
    yield node("h3", "BibTeX")
    yield block("pre", bibtex(model.certificate_), tabindex="0", aria_label="BibTeX entries")


def _card(facts: Iterable[tuple[str, str]]) -> Node:
    parts = [each for name, text in facts for each in (node("dt", name), node("dd", text))]
    return node("dl", *parts, class_="card")


def _plan(certificate: Certificate) -> Iterator[Node]:
    rows = [(name, _value(value)) for name, value in certificate.plan.items() if value is not None]
    yield scrolled(table(("field", "value"), rows, caption="Plan"))
    yield node("p", f"Hash of the plan: {certificate.plan_hash}")
    if certificate.study is not None:
        # of a study the parties know all; columns and centre are long, and in the result
        kept = {k: v for k, v in certificate.study.items() if v not in (None, [], {}, "")}
        study = [(name, _value(value)) for name, value in kept.items()]
        yield scrolled(table(("field", "value"), study, caption="Study"))
        yield node("p", f"Hash of the study: {certificate.study_hash}")


_LONGEST = 300


def _value(value: Any) -> str:
    """A field of a plan or study, as it can be shown."""
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {_value(each)}" for name, each in value.items())
    elif isinstance(value, list):
        text = ", ".join(_value(each) for each in value)
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        return short_name(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def write_report(
    result: Path, out: Path, *, title: str | None = None, overwrite: bool = False
) -> Guarantee:
    """Write a result's page, of its model and certificate alone; returns what it says."""
    check_place(out, overwrite=overwrite)
    model = load_model(result / MODEL)
    verdict = check(model.certificate_)
    if verdict.guarantee is None:
        raise PrivacyError(
            "certificate-does-not-hold",
            whose=f"The certificate of {result}",
            why=verdict.explanation,
        )
    write_text(report_page(model, verdict, title=title), out, overwrite=overwrite)
    return verdict.guarantee
