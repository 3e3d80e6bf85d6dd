"""The sites' answers on a lead's pages: asked for, shown beside the start, and made a new draft."""

import json

import pytest
from console_tools import STUDY, Visitor, hidden, study
from test_lead_pages import draft

from eigenveil.console.jobs import Job

COMMON = {"format": "eigenveil-schema-1", "columns": [{"name": "age", "kind": "number"}]}
ANSWERS = {
    "study_hash": STUDY,
    "agreed": False,
    "sites": [
        {"name": "north", "agreed": True, "decision": "approved: 2 more runs", "connected": True,
         "problem": "", "schema": "told (1 of its columns are read)", "version": "0.1.0"},
        {"name": "<b>south</b>", "agreed": False, "decision": "not connected", "connected": False,
         "problem": "not-connected", "schema": "-"},
    ],
    "common_schema": COMMON,
    "differences": [{"column": "bmi", "field": "column",
                     "values": {"north": "there", "west": "not there"}, "taken": "left out"}],
    "schema_problem": "",
}  # fmt: skip


@pytest.fixture
def visitor(tmp_path, monkeypatch):
    found = Visitor(tmp_path, "lead")
    found.client = found.browser("lea")
    draft(found)
    found.status, found.printed, found.started = 0, json.dumps(ANSWERS), []

    async def start(kind, title, words, *, who, about=""):
        """As the command, which has ended by now."""
        name = f"2030010100000{len(found.started)}-0badcafe"
        found.started.append(words)
        place = found.console.jobs.folder / name
        place.mkdir()
        (place / "said.txt").write_text(found.printed)
        (place / "errors.txt").write_text("The aggregator cannot be reached.\n")
        job = Job(name, kind, title, tuple(words), who, 1.9e9, 1.9e9, found.status, about)
        found.console.jobs._write(job)
        return job

    monkeypatch.setattr(found.console.jobs, "start", start)
    return found


def ask(visitor):
    form = {"csrf": hidden(visitor.client.get("/drafts/heart").text, "csrf")}
    return visitor.client.post("/drafts/heart/ask", data=form)


def test_who_has_not_agreed_is_said_beside_the_start(visitor):
    assert "not asked yet" in visitor.client.get("/drafts/heart").text
    assert ask(visitor).headers["location"] == "/drafts/heart/sites"
    (words,) = visitor.started
    assert words[:2] == ["study", "ask"]
    assert words[-1] == "--json"
    page = visitor.client.get("/drafts/heart").text
    assert "Not agreed so far: &lt;b&gt;south&lt;/b&gt;." in page
    assert "not connected" in page
    assert "<b>south" not in page
    page = visitor.client.get("/drafts/heart/sites").text
    for words in ("approved: 2 more runs", "there; west: not there", "left out", "0.1.0"):
        assert words in page
    assert "Question about" not in visitor.client.get("/runs").text  # it is no run
    ask(visitor)  # the old answers make room
    assert len(list(visitor.console.jobs.folder.glob("*-0badcafe"))) == 1
    # answers are about the text that was asked about, and no other
    visitor.desk.answers["study"] = lambda file: study(hash="b" * 64, memory=1, bytes=1)
    assert "not asked yet" in visitor.client.get("/drafts/heart").text


def test_the_sites_schema_makes_another_draft(visitor):
    made = []
    visitor.desk.answers["redraft"] = lambda **fields: made.append(fields)
    ask(visitor)
    page = visitor.client.get("/drafts/heart/sites").text
    form = {name: hidden(page, name) for name in ("csrf", "number")}
    # a schema that the browser sends is not looked at
    form |= {"name": "heart-2", "schema": "{}"}
    answer = visitor.client.post("/drafts/heart/sites", data=form)
    assert answer.headers["location"] == "/drafts/heart-2"
    assert (made[0]["name"], made[0]["schema"]) == ("heart-2", COMMON)
    assert visitor.client.post("/drafts/heart/sites", data=form).status_code == 409
    page = visitor.client.get("/drafts/heart/sites").text
    form |= {"number": hidden(page, "number"), "name": "heart"}
    assert visitor.client.post("/drafts/heart/sites", data=form).status_code == 400
    assert len(made) == 1


def test_a_question_that_failed_says_why_and_a_viewer_cannot_ask(visitor):
    visitor.status, visitor.printed = 6, ""
    ask(visitor)
    assert "cannot be reached" in visitor.client.get("/drafts/heart/sites").text
    other = visitor.browser("vic")
    page = other.get("/drafts/heart/sites")
    assert page.status_code == 200
    assert "Ask the sites" not in page.text
    form = {"csrf": hidden(page.text, "csrf")}
    assert other.post("/drafts/heart/ask", data=form).status_code == 403
    assert len(visitor.started) == 1
