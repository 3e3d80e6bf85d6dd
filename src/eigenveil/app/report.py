"""A result as one page that can be read, printed and published: of what was released alone."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as Tree
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil import plots
from eigenveil.app.checklist import checklist, checklist_parts
from eigenveil.app.deployment import entry_text
from eigenveil.app.methods import bibtex, methods, size_in_words
from eigenveil.app.parts import as_nodes, scrolled
from eigenveil.app.presenters.base import Drawing
from eigenveil.app.results import (
    MODEL,
    check_place,
    load_model,
    presenter_of,
    release_table,
    site_parts,
    view_parts,
    write_text,
)
from eigenveil.checks import library
from eigenveil.errors import OutputError, PrivacyError, listed, number_text, short_name
from eigenveil.federation.protocol.certificates import Checked, check
from eigenveil.markup import Node, block, html_of, listing, node, table
from eigenveil.privacy.certificate import (
    NOT_COUNTED,
    WHAT_IT_CANNOT_SHOW,
    Certificate,
    proof_titles,
)
from eigenveil.privacy.guarantee import Guarantee


def model_card(model: Any, verdict: Checked) -> list[tuple[str, str]]:
    presenter = presenter_of(model)
    certificate, guarantee = model.certificate_, verdict.guarantee
    assert guarantee is not None
    fitted = presenter.fitted(model)
    usable = getattr(fitted, "usable_", None)
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
        ("Model", f"{presenter.title(model)}; {type(model).__name__}, {certificate.software}"),
        (
            "Intended use",
            "to describe a population, and to transform new rows with the same columns; it may be "
            "published. It is not made to decide about single persons.",
        ),
        ("Data", f"{size_in_words(fitted)}, held {held}"),
        (
            "Privacy",
            f"{guarantee.neighbours}: epsilon = {guarantee.epsilon:.4g}, delta = "
            f"{number_text(guarantee.delta, 3)}; "
            f"certified: {'yes' if guarantee.certified else 'NO'}; counted in a ledger: {counted}",
        ),
        (
            "Quality",
            "not stated"
            if usable is None
            else f"{int(np.sum(usable))} of {np.size(usable)} {presenter_of(fitted).clear}; noise "
            f"alone shows up to {float(fitted.noise_floor_):.4g}",
        ),
        ("Limits", listed(limits) + "."),
        ("To use it", presenter.to_use(model)),
    ]


_SECTIONS = {
    "result": "Result",
    "privacy": "Privacy",
    "methods": "Methods, to paste into a paper",
    "card": "Model card",
    "checklist": "Checklist for an evaluation",
    "plan": "What was decided before",
}


def report_page(model: Any, verdict: Checked, title: str | None = None) -> str:
    """A result as one page.

    Everything in it is made of the model, which was released, and of its certificate.
    """
    return f"<!DOCTYPE html>\n{html_of(_page(model, verdict, title))}\n"


def report_pdf(model: Any, verdict: Checked, title: str | None = None) -> bytes:
    """The same as PDF, which readers for the blind can read (PDF/UA-1)."""
    typst = library("typst", extra="pdf", what="A report as PDF")
    page, files = _page(model, verdict, title), {}
    for number, image in enumerate(page.iter("img")):
        svg = base64.b64decode(image.get("src", "").partition(",")[2])
        files[f"figure {number}"] = svg.decode()
        image.set("src", f"figure {number}")
    files["page"] = Tree.tostring(page, encoding="unicode")
    template = Path(__file__).with_name("report.typ").read_bytes()
    try:
        made: bytes = typst.compile(template, sys_inputs=files, pdf_standards=["ua-1"])
    except typst.TypstError as error:
        if (found := re.search(r'the text `"(.+)"` could not be displayed', str(error))) is None:
            raise
        raise OutputError("no-font", text=found[1]) from None
    return made


def _page(model: Any, verdict: Checked, title: str | None) -> Node:
    title = title or presenter_of(model).title(model)
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
        "methods": _methods(model, verdict),
        "card": [_card(model_card(model, verdict))],
        "checklist": _checklist(model.certificate_, verdict),
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
    return node("html", head, body, lang="en")


def _facts(model: Any, verdict: Checked) -> Iterator[Node]:
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
        "delta": number_text(guarantee.delta, 3),
        "hides": guarantee.neighbours,
        "features": f"{model.n_features_in_:,}",
    }
    if usable is not None:
        facts[presenter_of(model).clear] = f"{int(usable.sum())} of {usable.size}"
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


def _privacy(certificate: Certificate, verdict: Checked) -> Iterator[Node]:
    guarantee = verdict.guarantee
    assert guarantee is not None
    yield node("p", str(guarantee), class_="lead")
    yield from as_nodes(view_parts(verdict.views))
    yield from as_nodes(site_parts(verdict.sites))
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
    names = certificate.proof_names
    rows = [(node("code", f"eigenveil proofs {name}"), titles.get(name, "")) for name in names]
    yield scrolled(table(("command", "proof"), rows, caption="Proofs that it rests on"))


def _methods(model: Any, verdict: Checked) -> Iterator[Node]:
    yield node("p", methods(model, verdict), most=None)
    yield node("h3", "BibTeX")
    yield block(
        "pre",
        bibtex(model.certificate_, presenter_of(model).cites),
        tabindex="0",
        aria_label="BibTeX entries",
    )


def _card(facts: Iterable[tuple[str, str]]) -> Node:
    parts = [each for name, text in facts for each in (node("dt", name), node("dd", text))]
    return node("dl", *parts, class_="card")


def _checklist(certificate: Certificate, verdict: Checked) -> Iterator[Node]:
    link = "https://doi.org/10.6028/NIST.SP.800-226"
    yield node(
        "p",
        "After NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees "
        f"({link}), in our words. What a certificate cannot answer, people must.",
    )
    yield from as_nodes(checklist_parts(checklist(certificate, verdict)))


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
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {_value(each)}" for name, each in value.items())
    elif isinstance(value, list):
        text = ", ".join(_value(each) for each in value)
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        return short_name(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


FORMS: Mapping[str, tuple[str, Callable[[Any, Checked, str | None], str | bytes]]] = {
    "html": ("report.html", report_page),
    "pdf": ("report.pdf", report_pdf),
    "registry": ("deployment.yaml", lambda model, verdict, _: entry_text(model, verdict)),
}
"""By name: the file that is usual, and what makes it."""


def write_report(
    result: Path,
    out: Path | None = None,
    *,
    form: str = "html",
    title: str | None = None,
    overwrite: bool = False,
) -> tuple[Guarantee, Path]:
    """Write a result's page, of its model and certificate alone; returns what it says, and where.

    A form other than a page is one of :data:`FORMS`.
    """
    usual, make = FORMS[form]
    place = result / usual if out is None else out
    check_place(place, overwrite=overwrite)
    model = load_model(result / MODEL)
    verdict = check(model.certificate_)
    if verdict.guarantee is None:
        raise PrivacyError(
            "certificate-does-not-hold",
            whose=f"The certificate of {result}",
            why=verdict.explanation,
        )
    write_text(make(model, verdict, title), place, overwrite=overwrite)
    return verdict.guarantee, place
