"""The pages of a lead: a draft, its forecast, the sites' answers, and a start of what was shown."""

import pytest
from console_tools import STUDY, Visitor, hidden, put_run, recording, study

from eigenveil.errors import WrongOption

COMMON = {"format": "eigenveil-schema-1", "columns": [{"name": "age", "kind": "number"}]}
ANSWERS = {
    "event": "answered",
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
def visitor(tmp_path):
    found = Visitor(tmp_path, "lead")
    found.client = found.browser("lea")
    found.started = recording(found)
    return found


def draft(visitor, **fields):
    page = visitor.client.get("/drafts/new?kind=gaussian-mixture")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"name": "heart", "n_components": "2", "epsilon": "0.5", "delta": "1e-6",
             "sites": "north\nsouth", "columns": "age, bmi"}  # fmt: skip
    return visitor.client.post("/drafts/new", data=form | fields)


def test_a_draft_is_written_by_the_fields_of_a_study(visitor):
    assert draft(visitor).headers["location"] == "/drafts/heart"
    (made,) = [fields for method, fields in visitor.desk.asked if method == "draft"]
    assert made["kind"] == "gaussian-mixture"
    assert made["fields"]["sites"] == ["north", "south"]
    assert made["fields"]["columns"] == ["age", "bmi"]
    assert (made["given"]["epsilon"], made["given"]["n_components"]) == ("0.5", "2")
    assert draft(visitor).status_code == 400  # there is one of this name
    assert "heart" in visitor.client.get("/drafts").text
    for name in ("none", "..%2F..%2Fetc"):
        assert visitor.client.get(f"/drafts/{name}").status_code == 404


@pytest.mark.parametrize(
    "wrong", [{"name": "../x"}, {"name": ""}, {"epsilon": "much"}, {"masks": "none"}]
)
def test_a_draft_that_cannot_be_is_refused_with_what_was_typed(visitor, wrong):
    page = draft(visitor, **wrong)
    assert page.status_code == 400
    assert not list((visitor.settings.state / "studies").glob("*"))
    assert "Nothing was done." in page.text
    assert "north\nsouth</textarea>" in page.text
    assert all(f'value="{text}"' in page.text for name, text in wrong.items() if name != "masks")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"name": "heart", "sites": "north", "columns": "age"}
    assert visitor.client.post("/drafts/new", data=form).status_code == 303  # corrected


def test_a_study_asks_whose_rows_first_and_has_the_rest_for_experts(visitor):
    answer = visitor.client.get("/drafts/new")
    page = answer.text
    assert answer.status_code == 200, page
    whose = page.index("<h2>Whose each row is</h2>"), page.index("<h2>What is computed</h2>")
    for name in ("unit", "one_row_per_person"):
        assert whose[0] < page.index(f'id="{name}"') < whose[1]
    assert page.index("For experts (") < page.index('name="schema"')
    assert 'value="1e-6"' in page
    assert "eigenveil schema" not in page


def test_a_refusal_names_the_fields_of_the_form_and_no_options_of_a_command(visitor):
    def refuse(**_):
        raise WrongOption("whose-rows")

    visitor.desk.answers["draft"] = refuse
    page = draft(visitor).text
    assert "Give &#34;Column that says whose each row is&#34;, which protects" in page
    assert "--" not in page.split('role="alert"')[1].split("</div>")[0]


def test_what_is_started_is_what_was_shown(visitor):
    draft(visitor)
    page = visitor.client.get("/drafts/heart?rows=1000&slide=20")
    assert "<meter" in page.text
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    visitor.desk.answers["study"] = lambda file: study(hash="b" * 64)
    assert visitor.client.post("/drafts/heart/start", data=form).status_code == 409
    assert visitor.started == []
    visitor.desk.answers["study"] = lambda file: study()
    page = visitor.client.get("/drafts/heart")
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    assert visitor.client.post("/drafts/heart/start", data=form).status_code == 303
    (started,) = visitor.started
    assert (started["kind"], started["who"], started["about"]) == ("study", "lea", STUDY)
    assert started["asked"]["file"].endswith("heart.toml")


def test_progress_of_a_study_is_who_answered_and_who_is_missing(visitor):
    told = [
        {"event": "began", "process": 1},
        {"event": "moved", "text": "x", "step": "", "answered": 0, "missing": {"<b>": "waits"}},
        {"event": "moved", "text": "x", "step": "round 1", "answered": 1, "missing": {}},
        {"event": "moved", "text": "x", "step": "round 1", "answered": 3, "missing": {}},
    ]
    run = put_run(visitor, "Study", kind="study", told=told)
    page = visitor.client.get(f"/runs/{run.name}").text
    assert '<th scope="row">round 1</th><td class="num">all that it takes</td>' in page
    failed = {"event": "failed", "code": "x", "message": "<i>No</i>.", "hint": "Y.", "spent": ""}
    run = put_run(visitor, "Study", kind="study", told=told, end=failed)
    page = visitor.client.get(f"/runs/{run.name}").text
    assert '<th scope="row">round 1</th><td class="num">3</td>' in page  # as far as was seen
    assert "<p>&lt;i&gt;No&lt;/i&gt;.</p><p>Y.</p>" in visitor.client.get(f"/runs/{run.name}").text


# -- what the sites say


def ask(visitor, *told, end="finished"):
    form = {"csrf": hidden(visitor.client.get("/drafts/heart").text, "csrf")}
    answer = visitor.client.post("/drafts/heart/ask", data=form)
    number = len(visitor.started)
    put_run(visitor, kind="ask", about=STUDY, told=told, end=end, number=number)
    return answer


def test_who_has_not_agreed_is_said_beside_the_start(visitor):
    draft(visitor)
    assert "not asked yet" in visitor.client.get("/drafts/heart").text
    assert ask(visitor, ANSWERS).headers["location"] == "/drafts/heart/sites"
    assert visitor.started[0]["kind"] == "ask"
    page = visitor.client.get("/drafts/heart").text
    assert "Not agreed so far: &lt;b&gt;south&lt;/b&gt;." in page
    assert "not connected" in page
    assert "<b>south" not in page
    page = visitor.client.get("/drafts/heart/sites").text
    for words in ("approved: 2 more runs", "there; west: not there", "left out", "0.1.0"):
        assert words in page
    assert "Question about" not in visitor.client.get("/runs").text  # it is no run
    ask(visitor, ANSWERS)  # the old answers make room
    assert len(list(visitor.console.runs.folder.glob("*-0badcafe"))) == 1
    # answers are about the text that was asked about, and no other
    visitor.desk.answers["study"] = lambda file: study(hash="b" * 64, memory=1, bytes=1)
    assert "not asked yet" in visitor.client.get("/drafts/heart").text


def test_the_sites_schema_makes_another_draft(visitor):
    draft(visitor)
    made = []
    visitor.desk.answers["redraft"] = lambda **fields: made.append(fields)
    ask(visitor, ANSWERS)
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


def test_a_question_that_failed_says_why(visitor):
    draft(visitor)
    failed = {"event": "failed", "code": "x", "message": "It cannot be reached.", "hint": ""}
    ask(visitor, end=failed)
    assert "cannot be reached" in visitor.client.get("/drafts/heart/sites").text
