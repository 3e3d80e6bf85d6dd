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
from eigenveil.app.presenters.base import Presenter
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
    fitted = presenter.fitted(model)
    assert guarantee is not None
    if not guarantee.certified:
        raise PrivacyError("entry-not-certified", why="; ".join(guarantee.caveats))
    losses = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    count = getattr(fitted, "n_samples_", None)
    counted = {} if count is None else {"number_of_privacy_units": max(0, round(float(count)))}
    stream = any(each.stream is not None or each.disjoint for each in certificate.releases)
    several = certificate.federation or certificate.tree
    return {
        "url_slug": _ask("short name, year"),
        "deployment": {
            "basic": _basic(model, presenter),
            "dp_variant": {
                "variant_name": "Approximate DP" if guarantee.delta else "Pure DP",
                "data_domain": _ask("which tables it could have been"),
                "unprotected_quantities": f"Assumed: {'; '.join(guarantee.assumptions)}. Names of "
                f"columns are public. {_ask('all else that was not protected, or none')}",
            },
            "privacy_loss": {
                "privacy_unit": "One row" if guarantee.unit is None else f"One {guarantee.unit!r}",
                "privacy_unit_details": f"Neighbouring data sets differ by {guarantee.neighbours}.",
                **counted,
                "privacy_parameters": {n: float(f"{x:.6g}") for n, x in losses.items() if x},
                "privacy_parameters_details": f"{guarantee}",
            },
            "deployment_model": {
                "model_name": "Federated" if several else "Central",
                "trust_assumptions": f"{' '.join(map(str, verdict.views.values()))} "
                f"{_ask('who they are, and why they are trusted')}",
                "actors": f"{in_words_of_data(certificate)} {_ask('by name')}",
                "release_type": "Many releases" if stream else "One release",
                "release_type_details": _ask("what else is planned with the same rows"),
                "data_source_type": "Dynamic" if stream else "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{' '.join(preparation(fitted.plan_))} "
                f"{_ask('what was looked at before, and whether it was counted')}",
                "mechanisms": f"{'; '.join(releases_in_words(certificate.releases))}, by "
                f"{certificate.software}. {floats_in_words(certificate)} Proofs: "
                f"{', '.join(certificate.proof_names)}. {_ask('who can read the rows')}",
                "composition": f"{guarantee.calculation}. To know: {'; '.join(guarantee.caveats)}.",
                "post_processing": "All that is published was computed from the noisy sums alone.",
                "justification": _ask("why this epsilon, and who decided it"),
                "utility": _ask("what the result is good for; its report has numbers"),
                "additional_information": f"SHA-256 of the certificate: {certificate.digest}. "
                "'eigenveil certify' computes the guarantee again from it.",
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [_ask("who filled this in")],
                "tier": 3,
            },
        },
    }


_ask = (TO_FILL_IN + "{}").format


def _basic(model: Any, presenter: Presenter) -> dict[str, Any]:
    fits = hasattr(model, "transform") or hasattr(model, "predict")
    title, size = presenter.title(model), size_in_words(presenter.fitted(model))
    curator = {
        "data_curator_name": _ask("who publishes it"),
        "data_curator_type": _ask("Government, Industry or Nonprofit"),
    }
    return {
        "name": _ask("name of what is published"),
        "data_curators": [curator],
        "description": f"{title}, fitted to {size}. {_ask('of what, from when')}",
        "intended_use": _ask("for what it is used"),
        "data_product_type": "Machine learning model" if fits else "Summary statistics",
        "data_product_region": _ask("region of the data, or of its law"),
        "data_product_sector": _ask(
            "Technology, Healthcare, Education, Government, Energy or Finance"
        ),
        "publication_date": _ask("YYYY-MM-DD"),
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
