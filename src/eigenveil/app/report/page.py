"""The page of a result: self-contained HTML, the same bytes for the same result."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from eigenveil import plots
from eigenveil.app.parts import as_nodes, scrolled
from eigenveil.app.presenters.base import Drawing
from eigenveil.app.report.methods import bibtex, methods, model_card
from eigenveil.app.results import presenter_of, release_table, view_parts
from eigenveil.errors import short_name
from eigenveil.federation.protocol.certificates import Verdict
from eigenveil.markup import Node, block, html_of, listing, node, table
from eigenveil.models.task import TASKS
from eigenveil.privacy.certificate import WHAT_IT_CANNOT_SHOW, Certificate, proof_titles

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
    style.text = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
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
