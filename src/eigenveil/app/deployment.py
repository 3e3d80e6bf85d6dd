"""An entry of the registry of deployments of differential privacy, as far as a result knows it.

The registry's schema (github.com/opendp/deployments-registry-data, commit 057e5d8, read in November
2026) has the fields of :func:`entry`. What only people know begins with :data:`TO_FILL_IN`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eigenveil.app.checklist import floats_in_words
from eigenveil.app.methods import in_words_of_data, preparation, releases_in_words, size_in_words
from eigenveil.app.results import presenter_of
from eigenveil.errors import PrivacyError, printable
from eigenveil.federation.protocol.certificates import Checked

TO_FILL_IN = "TO FILL IN: "
_HEAD = (
    "# For https://github.com/opendp/deployments-registry-data: its folder 'deployments'.\n"
    f"# Written from a certificate. Fill in what begins with {TO_FILL_IN.strip()!r}, then read all."
)


def entry(model: Any, verdict: Checked) -> dict[str, Any]:
    """The entry's fields by the registry's names."""
    presenter, certificate, guarantee = presenter_of(model), model.certificate_, verdict.guarantee
    assert guarantee is not None
    fitted = presenter.fitted(model)
    title = presenter.title(model)
    if not guarantee.certified:
        raise PrivacyError("entry-not-certified", why="; ".join(guarantee.caveats))
    losses = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    parameters = {name: float(f"{loss:.6g}") for name, loss in losses.items() if loss}
    count = getattr(fitted, "n_samples_", None)
    counted = {} if count is None else {"number_of_privacy_units": max(0, round(float(count)))}
    stream = any(each.stream is not None or each.disjoint for each in certificate.releases)
    in_one_place = certificate.federation is None and certificate.tree is None
    proofs = ", ".join(certificate.proof_names)
    ask = TO_FILL_IN + "{}"
    return {
        "url_slug": ask.format("short name, year"),
        "deployment": {
            "basic": {
                "name": ask.format("name of what is published"),
                "data_curators": [
                    {
                        "data_curator_name": ask.format("who publishes it"),
                        "data_curator_type": ask.format("Government, Industry or Nonprofit"),
                    }
                ],
                "description": f"{title}, fitted to {size_in_words(fitted)}. "
                + ask.format("of what, from when"),
                "intended_use": ask.format("for what it is used"),
                "data_product_type": "Machine learning model"
                if hasattr(model, "transform") or hasattr(model, "predict")
                else "Summary statistics",
                "data_product_region": ask.format("region of the data, or of its law"),
                "data_product_sector": ask.format(
                    "Technology, Healthcare, Education, Government, Energy or Finance"
                ),
                "publication_date": ask.format("YYYY-MM-DD"),
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if guarantee.delta else "Pure DP",
                "data_domain": ask.format("which tables it could have been"),
                "unprotected_quantities": f"Assumed: {'; '.join(guarantee.assumptions)}. Names of "
                "columns are public. " + ask.format("all else that was not protected, or none"),
            },
            "privacy_loss": {
                "privacy_unit": "One row" if guarantee.unit is None else f"One {guarantee.unit!r}",
                "privacy_unit_details": f"Neighbouring data sets differ by {guarantee.neighbours}.",
                **counted,
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"{guarantee}",
            },
            "deployment_model": {
                "model_name": "Central" if in_one_place else "Federated",
                "trust_assumptions": " ".join(f"{view}" for view in verdict.views.values())
                + " "
                + ask.format("who they are, and why they are trusted"),
                "actors": f"{in_words_of_data(certificate)} {ask.format('by name')}",
                "release_type": "Many releases" if stream else "One release",
                "release_type_details": ask.format("what else is planned with the same rows"),
                "data_source_type": "Dynamic" if stream else "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": " ".join(preparation(fitted.plan_))
                + " "
                + ask.format("what was looked at before, and whether it was counted"),
                "mechanisms": f"{'; '.join(releases_in_words(certificate.releases))}, by "
                f"{certificate.software}. {floats_in_words(certificate)} Proofs: {proofs}. "
                + ask.format("who can read the rows"),
                "composition": f"{guarantee.calculation}. To know: {'; '.join(guarantee.caveats)}.",
                "post_processing": "All that is published was computed from the noisy sums alone.",
                "justification": ask.format("why this epsilon, and who decided it"),
                "utility": ask.format("what the result is good for; its report has numbers"),
                "additional_information": f"SHA-256 of the certificate: {certificate.digest}. "
                "'eigenveil certify' computes the guarantee again from it.",
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [ask.format("who filled this in")],
                "tier": 3,
            },
        },
    }


def entry_text(model: Any, verdict: Checked) -> str:
    """The entry as YAML, whose quoted texts are those of JSON."""
    return "\n".join([_HEAD, *_lines(entry(model, verdict))]) + "\n"


def _lines(values: Mapping[str, Any], pad: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"{pad}{name}:"
            yield from _lines(value, pad + "  ")
        elif isinstance(value, list):
            yield f"{pad}{name}:"
            for each in value:
                first, *others = (
                    _lines(each, pad + "    ")
                    if isinstance(each, Mapping)
                    else [f"{pad}    {_scalar(each)}"]
                )
                yield f"{pad}  - {first.strip()}"
                yield from others
        else:
            yield f"{pad}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(printable(value, most=None), ensure_ascii=False)
    text = json.dumps(value)
    return text.replace("e", ".0e") if "e-" in text and "." not in text else text  # 1e-6: a text
