"""The pages of a lead: a draft, its forecast, and a start of what was shown."""

import pytest
from console_tools import STUDY, Visitor, hidden, study


@pytest.fixture
def visitor(tmp_path, monkeypatch):
    found = Visitor(tmp_path, "lead")
    found.client = found.browser("lea")
    started = found.started = []

    async def start(kind, title, words, *, who, about=""):
        started.append((kind, words, who, about))
        return type("Job", (), {"name": "20300101000000-0badcafe"})

    monkeypatch.setattr(found.console.jobs, "start", start)
    return found


def draft(visitor, **fields):
    page = visitor.client.get("/drafts/new?kind=gaussian-mixture")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"name": "heart", "components": "2", "epsilon": "0.5", "delta": "1e-6",
             "sites": "north\nsouth:0.5", "columns": "age, bmi"}  # fmt: skip
    return visitor.client.post("/drafts/new", data=form | fields)


def test_a_draft_is_written_by_the_fields_of_a_study(visitor):
    assert draft(visitor).headers["location"] == "/drafts/heart"
    (made,) = [fields for method, fields in visitor.desk.asked if method == "draft"]
    assert made["kind"] == "gaussian-mixture"
    assert made["fields"]["sites"] == ["north", "south:0.5"]
    assert made["fields"]["columns"] == ["age", "bmi"]
    assert (made["given"]["epsilon"], made["given"]["components"]) == ("0.5", "2")
    assert draft(visitor).status_code == 400  # there is one of this name
    assert "heart" in visitor.client.get("/drafts").text


@pytest.mark.parametrize(
    "wrong", [{"name": "../x"}, {"name": ""}, {"epsilon": "much"}, {"masks": "none"}]
)
def test_a_draft_that_cannot_be_is_refused_with_what_was_typed(visitor, wrong):
    page = draft(visitor, **wrong)
    assert page.status_code == 400
    assert not list((visitor.settings.state / "studies").glob("*"))
    assert "Nothing was done." in page.text
    assert "north\nsouth:0.5</textarea>" in page.text
    assert all(f'value="{text}"' in page.text for name, text in wrong.items() if name != "masks")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"name": "heart", "sites": "north", "columns": "age"}
    assert visitor.client.post("/drafts/new", data=form).status_code == 303  # corrected


def test_what_is_started_is_what_was_shown(visitor):
    draft(visitor)
    page = visitor.client.get("/drafts/heart?rows=1000&slide=20")
    assert "<svg" in page.text
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    visitor.desk.answers["study"] = lambda file: study(hash="b" * 64)
    assert visitor.client.post("/drafts/heart/start", data=form).status_code == 409
    assert visitor.started == []
    visitor.desk.answers["study"] = lambda file: study()
    page = visitor.client.get("/drafts/heart")
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    assert visitor.client.post("/drafts/heart/start", data=form).status_code == 303
    ((kind, words, who, about),) = visitor.started
    assert (kind, words[:2], who, about) == ("study", ["study", "run"], "lea", STUDY)


def test_a_study_that_is_not_there_and_a_viewer_are_refused(visitor):
    for name in ("none", "..%2F..%2Fetc"):
        assert visitor.client.get(f"/drafts/{name}").status_code == 404
    other = visitor.browser("vic")
    assert other.get("/drafts").status_code == 200
    assert other.get("/drafts/new").status_code == 403
