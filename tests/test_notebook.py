"""What a notebook shows: escaped, of released numbers only, beside scikit-learn's own box."""

import sys
import types
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from eigenveil import Budget, FederatedPCA, Ledger, PrivatePCA
from eigenveil.markup import html_of, node, table
from eigenveil.planning.predict import predict
from eigenveil.progress import show_progress

EVIL = "<script>alert(1)</script>"
ROWS = np.random.default_rng(0).normal(size=(400, 4)) * [5.0, 3.0, 1.0, 1.0]


@pytest.fixture(scope="module")
def model():
    return PrivatePCA(2, epsilon=3.0).fit(pd.DataFrame(ROWS, columns=[EVIL, "b&b", "c", "d"]))


def test_an_estimator_keeps_scikit_learns_box_and_adds_the_guarantee(model):
    before = PrivatePCA(2)
    assert "Privacy guarantee" not in before._repr_html_()
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "Parameters" in html
        assert "Privacy guarantee: certified" in html
        assert "adding or removing one row" in html
        assert "Releases: all that was computed from rows" in html
        assert EVIL not in html
    with config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(model, "_repr_html_")


def test_a_plan_a_prediction_and_a_guarantee_show_their_fields(model):
    html = model.plan_._repr_html_()
    assert "adaptive" in html
    assert "moment: " in html
    html = model.guarantee_._repr_html_()
    assert "<td" in html
    assert "assumes: " in html
    html = model.certificate_._repr_html_()
    assert "Privacy guarantee: certified" in html
    assert f"Certificate {model.certificate_.digest[:16]}" in html
    assert all(f">{each.name}<" in html for each in model.certificate_.releases)
    html = predict(model.plan_, np.array([9.0, 4.0, 1.0, 1.0]), rows=400, fits=5)._repr_html_()
    assert "Prediction from 5 simulated fits" in html
    assert "(0 of 5)" in html
    seeded = PrivatePCA(2, epsilon=3.0, random_state=0).fit(ROWS)
    assert "NOT CERTIFIED" in seeded.guarantee_._repr_html_()


def test_a_ledger_shows_its_accounts_and_escapes_their_names(tmp_path):
    place = tmp_path / "one.ledger"
    assert "there is no ledger" in Ledger(place)._repr_html_()
    assert not place.exists()
    ledger = Ledger(place)
    ledger.set_budget(Budget(EVIL, "add-remove", 2.0, 1e-6))
    html = ledger._repr_html_()
    assert EVIL not in html
    assert "&lt;script&gt;" in html
    assert "left: epsilon 2 for Gaussian studies" in html


def test_no_text_becomes_markup():
    made = table([EVIL], [[f'"{EVIL}\x1b[31m\n&']], caption=EVIL)
    html = html_of(node("div", made, title=f'">{EVIL}'))
    assert "\x1b" not in html
    tags, texts = [], []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attributes: tags.append((tag, attributes))
    reader.handle_data = texts.append
    reader.feed(html)
    assert "script" not in [tag for tag, _ in tags]
    assert tags[0] == ("div", [("title", f'">{EVIL}')])
    assert texts[:2] == [EVIL, EVIL]


def test_progress_in_a_terminal_or_a_file_is_told_of_every_pass(capfd):
    with show_progress():
        PrivatePCA(2, epsilon=3.0).fit(ROWS)
    err = capfd.readouterr().err
    assert "400 rows" in err
    with show_progress():
        FederatedPCA(2, epsilon=3.0).fit({"north": ROWS, "south": ROWS + 1.0})
    assert "2 rows" not in capfd.readouterr().out
    PrivatePCA(2, epsilon=3.0).fit(ROWS)
    assert capfd.readouterr().err == ""


def test_progress_in_a_notebook_is_taken_away_at_the_end(monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html.data)

    html = type("HTML", (), {"__init__": lambda self, data: setattr(self, "data", data)})
    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=True)
    display = types.ModuleType("IPython.display")
    display.HTML, display.display = html, lambda first, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with show_progress():
        PrivatePCA(2, epsilon=3.0).fit(ROWS)
    assert any("400" in each and "<progress" in each for each in shown)
    assert "400" not in shown[-1]
