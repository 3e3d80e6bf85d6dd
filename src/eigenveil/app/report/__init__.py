"""A result as one page that can be read, printed and published."""

from __future__ import annotations

from pathlib import Path

from eigenveil.app.report.page import report_page as report_page
from eigenveil.app.results import MODEL, check_place, load_model, write_text
from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.privacy.guarantee import Guarantee


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
