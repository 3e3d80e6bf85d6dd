"""What holds of every page: who may open it, whose forms it takes, and what it never holds."""

import re

import pytest
from console_tools import ADDRESS, PEOPLE, STUDY, Visitor, put_result, recording
from starlette.routing import Route

DRAFT = {"study": STUDY, "name": "heart", "file": "model.npz"}
EVERYBODY = set(PEOPLE.values())
# Who may open a page, where that is not everybody; of a form, who may send it.
ROLES = {
    "site": {"": EVERYBODY - {"lead"}, "/log": {"owner"},
             "/ledger/budget": {"owner", "approver"}, "POST": {"owner", "approver"}},
    "lead": {key: {"owner", "lead"} for key in ("/drafts/new", "/runs/{name}/derive", "POST")},
    "table": {"/runs/{name}/derive": EVERYBODY - {"viewer"}, "POST": EVERYBODY - {"viewer"}}
    | {key: {"owner"} for key in ("/ledger/budget", "POST /ledger/budget", "POST /ledger/end",
                                  "POST /table/upload", "POST /table/delete", "POST /columns")},
}  # fmt: skip


@pytest.fixture(params=list(ROLES))
def visitor(request, tmp_path):
    found = Visitor(tmp_path, request.param)
    found.started = recording(found)
    studies = found.settings.state / "studies"
    studies.mkdir()
    (studies / "heart.toml").touch()
    put_result(found)
    return found


def routes(visitor, method):
    """The paths of a section's pages, and where each is here."""
    run = visitor.console.runs.all()[0].name
    for route in visitor.app._app.routes:
        if isinstance(route, Route) and method in route.methods and route.path not in OUTSIDE:
            names = DRAFT | ({"name": run} if route.path.startswith("/runs") else {})
            yield route.path, re.sub(r"\{(\w+)\}", lambda found, n=names: n[found[1]], route.path)


OUTSIDE = {"/", "/sign-in", "/alive"}
ELSEWHERE = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": ADDRESS.replace("https", "http")},
    {"origin": ADDRESS + ":8443"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
)


def allowed(visitor, method, path):
    known = ROLES[visitor.settings.section]
    if path == "/sign-out":
        return EVERYBODY
    if method == "POST":
        return known.get(f"POST {path}", known.get("POST"))
    return known.get(path, known.get("", EVERYBODY))


def test_every_page_is_for_its_roles_and_for_nobody_outside(visitor):
    outside = visitor.browser(None)
    outside.headers["x-remote-user"] = "ann"  # known, and not in a session
    for name, role in PEOPLE.items():
        browser = visitor.browser(name)
        for path, place in routes(visitor, "GET"):
            assert outside.get(place).headers["location"] == "/sign-in", place
            answer = browser.get(place)
            may = role in allowed(visitor, "GET", path)
            assert answer.status_code == (200 if may else 403), (place, role)
            text = answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
            for never in (" style=", "<style", "javascript:", "onclick", '="http', "url(http"):
                assert never not in text, (place, never)
            if answer.headers["content-type"].startswith("text/html"):
                assert answer.text.count("<script") == 1, place


def csrf_of(visitor, browser):
    return visitor.console.sessions.find(browser.cookies.get(visitor.console.cookie)).csrf


def test_every_form_is_of_ones_own_session_and_role(visitor):
    """What would be done is not: each is refused before it is looked at."""
    another = csrf_of(visitor, visitor.browser("ann"))
    for name, role in PEOPLE.items():
        browser = visitor.browser(name)
        csrf = csrf_of(visitor, browser)
        for path, place in routes(visitor, "POST"):
            may = role in allowed(visitor, "POST", path)
            asked = len(visitor.desk.asked)
            tokens = ({}, {"csrf": ""}, {"csrf": csrf + "x"}, {"csrf": another})
            sent = [({"csrf": csrf}, header) for header in ELSEWHERE]
            for form, header in [*((form, {}) for form in tokens), *sent]:
                answer = browser.post(place, data=form, headers=header)
                assert answer.status_code == 403, (place, form, header)
            assert (len(visitor.desk.asked), visitor.started) == (asked, [])
            if not may:
                assert browser.post(place, data={"csrf": csrf}).status_code == 403, place


def test_every_control_has_a_button_without_scripts(visitor):
    browser = visitor.browser("ann")
    for _, place in routes(visitor, "GET"):
        text = browser.get(place).text
        for form in re.findall(r"<form.*?</form>", text, re.DOTALL):
            assert "<button" in form, place
            assert ('method="post"' in form) == ('name="csrf"' in form), place
        for polled in re.findall(r'hx-trigger="(?:every|load)[^>]*>.*?</p>', text, re.DOTALL):
            assert "Look again" in polled, place
