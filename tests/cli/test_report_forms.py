"""What else is made of a result: the checklist, an entry of a registry, a PDF."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml

from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.app.checklist import GUARANTEE, checklist
from eigenveil.app.deployment import TO_FILL_IN, entry, entry_text
from eigenveil.app.report import report_page, report_pdf
from eigenveil.errors import DataError, OutputError, PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.privacy.releases import ReleaseRecord

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
EVIL = '#panic("out") *x* $y$ <script> "]\\'
FRAME = pd.DataFrame(
    np.random.default_rng(0).normal(size=(600, 4)) * [9.0, 6.0, 1.0, 1.0],
    columns=[EVIL, "b: c", "- d", "{e}"],
)
# Of schemas/deployments-schema.yaml in opendp/deployments-registry-data, commit 057e5d8, by level:
# what must be there, and what may be beside it
REGISTRY = {
    "basic": (
        "name data_curators description intended_use data_product_type data_product_region "
        "publication_date",
        "data_product_sector",
    ),
    "dp_variant": ("", "variant_name data_domain unprotected_quantities"),
    "privacy_loss": (
        "",
        "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
        "privacy_parameters_details",
    ),
    "deployment_model": (
        "",
        "model_name model_name_details trust_assumptions actors release_type release_type_details "
        "data_source_type data_source_type_details access_type access_type_details",
    ),
    "implementation": (
        "",
        "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing "
        "justification utility additional_information",
    ),
    "administrative": ("status registry_authors tier", "evidence_sources"),
}


def fitted(**options):
    model = PrivatePCA(2, epsilon=4.0, **options).fit(FRAME)
    return model, check(model.certificate_)


def answers(model, verdict, word):
    found = [each for each in checklist(model.certificate_, verdict) if word in each.question]
    assert len(found) == 1
    return str(found[0])


def test_a_checklist_answers_from_the_certificate_and_names_who_answers_the_rest():
    model, verdict = fitted()
    found = checklist(model.certificate_, verdict)
    assert all(each.answer or each.by for each in found)
    assert [each.level for each in found] == sorted((each.level for each in found), reverse=True)
    assert found[0].level == GUARANTEE
    said = answers(model, verdict, "Epsilon, delta")
    assert f"epsilon = {verdict.guarantee.epsilon:.4g}, delta = 1e-6" in said
    assert "Certified:" in said
    assert answers(model, verdict, "neighbours").startswith("adding or removing one row (unbounded")
    assert "charged to no ledger" in answers(model, verdict, "other releases")
    assert "ChaCha20" in answers(model, verdict, "Random numbers")
    assert "central" in answers(model, verdict, "Trust model")
    for word in ("Why this epsilon", "side channels", "access control", "Data collection"):
        assert answers(model, verdict, word).startswith("Not answered by a certificate: ")
    page = report_page(model, verdict)
    assert all(each.question in page for each in found)


def test_a_checklist_says_no_where_the_certificate_does():
    seeded = fitted(random_state=0)
    assert "NOT certified" in answers(*seeded, "Epsilon, delta")
    assert "can remove the noise" in answers(*seeded, "Random numbers")
    pure, verdict = fitted(delta=0.0, mechanism="bingham", center=False)
    assert "pure (epsilon)" in answers(pure, verdict, "Which definition")
    floats = answers(pure, verdict, "Floating point")
    assert "the proof is for ideal arithmetic" in floats
    assert "noise is drawn on a grid" not in floats
    certificate = pure.certificate_.model_copy(update={"dependent": True})
    assert "depends on its neighbours" in str(checklist(certificate, verdict))


def test_noise_of_which_nothing_is_proved_is_said_to_be_so(monkeypatch):
    from eigenveil.privacy.mechanisms.base import UNPROVED

    model, verdict = fitted()
    monkeypatch.setattr(ReleaseRecord, "sampling_error", lambda self: UNPROVED)
    assert "Nothing is proved" in answers(model, verdict, "Floating point")


def test_certify_has_the_checklist_as_json(run, tmp_path):
    model, _ = fitted()
    model.certificate_.write(tmp_path / "certificate.json")
    model.save(tmp_path / "model.npz")
    found = json.loads(run("certify", tmp_path, "--json")[1])["checklist"]
    assert {"level", "question", "answer", "by"} == set(found[0])


def test_an_entry_has_the_registrys_fields_and_is_yaml():
    owners = FRAME.assign(**{'# "w": x\\': np.arange(600) // 2})
    for model in (
        PrivatePCA(2, epsilon=4.0, unit=owners.columns[-1]).fit(owners),
        FederatedPCA(2, epsilon=4.0).fit({"north": FRAME, "south": FRAME + 1.0}),
    ):
        verdict = check(model.certificate_)
        made = entry(model, verdict)
        text = entry_text(model, verdict)
        # PyYAML reads YAML 1.1, as the registry does: 1e-06 would be a text there
        assert yaml.safe_load(text) == made
        assert set(made) == {"url_slug", "deployment"}
        assert list(made["deployment"]) == list(REGISTRY)
        for name, (needed, more) in REGISTRY.items():
            assert set(needed.split()) <= set(made["deployment"][name]), name
            assert set(made["deployment"][name]) <= {*needed.split(), *more.split()}, name
        parts = made["deployment"]
        assert parts["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0, "delta": 1e-6}
        count = parts["privacy_loss"]["number_of_privacy_units"]
        assert count == max(0, round(model.n_samples_))
        assert parts["dp_variant"]["variant_name"] == "Approximate DP"
        federated = isinstance(model, FederatedPCA)
        assert parts["deployment_model"]["model_name"] == ("Federated" if federated else "Central")
        assert parts["administrative"]["status"] == "Draft"
        for name in ("name", "intended_use", "publication_date", "data_product_sector"):
            assert parts["basic"][name].startswith(TO_FILL_IN)


def test_what_every_task_released_has_answers_and_an_entry():
    from test_report import MADE, made

    for name in MADE:
        model = made(name)[0]
        verdict = check(model.certificate_)
        assert all(map(str, checklist(model.certificate_, verdict)))
        parts = entry(model, verdict)["deployment"]
        assert yaml.safe_load(entry_text(model, verdict))["deployment"] == parts
        sites = name in ("sites", "tree")
        assert parts["deployment_model"]["model_name"] == ("Federated" if sites else "Central")
        many = parts["deployment_model"]["release_type"] == "Many releases"
        assert many == (name == "stream")
        learned = parts["basic"]["data_product_type"] == "Machine learning model"
        assert learned == (name != "covariance")


def test_a_result_that_is_not_certified_is_no_entry():
    with pytest.raises(PrivacyError) as refused:
        entry(*fitted(random_state=0))
    assert refused.value.code == "entry-not-certified"


def test_a_pdf_has_the_pages_sections_and_its_names_are_no_markup(monkeypatch):
    typst = pytest.importorskip("typst")
    model, verdict = fitted()
    found = report_pdf(model, verdict, "A title <of> #mine")
    assert found.startswith(b"%PDF-")
    assert b"<pdfuaid:part>1</pdfuaid:part>" in found
    seen = {}

    def query(template, *, sys_inputs, **_):
        kept = typst.query(template, "heading", sys_inputs=sys_inputs)
        figures = typst.query(template, "image", sys_inputs=sys_inputs)
        seen.update(headings=json.loads(kept), figures=json.loads(figures))

    with monkeypatch.context() as patch:
        patch.setattr(typst, "compile", query)
        report_pdf(model, verdict, "A title <of> #mine")
    titles = [str(each["body"]) for each in seen["headings"]]
    page = report_page(model, verdict, "A title <of> #mine")
    assert "A title <of> #mine" in titles[0]
    for heading in ("Result", "Privacy", "Methods, to paste into a paper", "Model card"):
        assert f">{heading}</h2>" in page
        assert any(heading in title for title in titles)
    assert len(seen["figures"]) == page.count("<img ")
    assert all(each["alt"] for each in seen["figures"])


def test_a_pdf_of_one_result_is_always_the_same(tmp_path):
    pytest.importorskip("typst")
    model, verdict = fitted()
    model.save(tmp_path / "model.npz")
    code = (
        "import sys, pathlib; from eigenveil.app.report import write_report; "
        "write_report(pathlib.Path(sys.argv[1]), form='pdf')"
    )
    here = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LANG": "C"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=here)
    assert (tmp_path / "report.pdf").read_bytes() == report_pdf(model, verdict)


def test_a_name_that_no_font_has_is_refused_and_named(monkeypatch):
    typst = pytest.importorskip("typst")
    compile_it = typst.compile
    # with no fonts but those that come with it, as on a bare machine
    monkeypatch.setattr(
        typst,
        "compile",
        lambda template, **how: compile_it(template, ignore_system_fonts=True, **how),
    )
    with pytest.raises(OutputError, match="No font on this machine has '\u5e74'"):
        report_pdf(*fitted(), "\u5e74")
    assert report_pdf(*fitted(), "Łąka größe ηλικία")


def test_without_typst_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(DataError, match=r"typst.*eigenveil\[pdf\]"):
        report_pdf(*fitted())


def test_the_command_writes_each_form_to_a_file_of_its_own(run, tmp_path):
    pytest.importorskip("typst")
    fitted()[0].save(tmp_path / "model.npz")
    for option, name, begin in (
        (["--pdf"], "report.pdf", b"%PDF-"),
        (["--registry"], "deployment.yaml", b"# For https://"),
        ([], "report.html", b"<!DOCTYPE html>"),
    ):
        status, out, err = run("report", tmp_path, *option)
        assert (status, err) == (0, "")
        assert name in out
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert "are two files" in run.fails("report", tmp_path, "--pdf", "--registry", status=2)
    fitted(random_state=0)[0].save(tmp_path / "model.npz")
    again = ("--registry", "--overwrite")
    assert "not certified" in run.fails("report", tmp_path, *again, status=4)
