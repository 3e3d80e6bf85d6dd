"""The pages in a real browser: sign-in, approval, the picture, and axe-core over all of it."""

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn
from console_tools import (
    PASSWORD,
    STUDY,
    Asked,
    Visitor,
    free_port,
    put_result,
    put_run,
    serving,
    site_with_key,
)

pytest.importorskip("selenium")
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import WebDriverWait

import soak_tools
from browser_tools import check, cut_labels, look, needs_browser, picture, wait, write
from eigenveil.console.desk.site import SiteDesk
from eigenveil.console.settings import Link, Rows
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.models.derived.options import TITLES
from eigenveil.models.task import TASKS
from federation_tools import study_of

pytestmark = needs_browser


OTHERWISE = "b" * 64  # a study that protects another unit than the budget counts


class Server:
    """A console on a port of its own, in a thread."""

    def __init__(self, tmp_path, section):
        port = free_port()
        self.visitor = Visitor(
            tmp_path, section, settings_door=Link("token", "ann"), people={}, address=None
        )
        self.address = f"http://127.0.0.1:{port}"
        self.config = uvicorn.Config(
            self.visitor.app, port=port, log_level="error", lifespan="off", ws="none"
        )


@pytest.fixture(params=["table", "site", "lead"])
def server(request, tmp_path):
    found = Server(tmp_path, request.param)
    with serving(found.config):
        yield found


def sign_in(browser, server):
    browser.delete_all_cookies()
    browser.get(server.address + "/sign-in")
    check(browser)
    browser.get(server.address + "/sign-in?token=token")
    wait(browser, "nav a")


def test_every_page_is_accessible_at_both_widths_and_in_the_dark(browser, server):
    look(browser, width=1280, dark=False)
    sign_in(browser, server)
    studies = server.visitor.settings.state / "studies"
    studies.mkdir(exist_ok=True)
    (studies / "heart.toml").touch()
    runs = [put_result(server.visitor, number).name for number in range(2)]
    end = {"event": "failed", "code": "over-budget", "message": "The budget is used up: 3 of 3 "
           "spent.", "hint": "eigenveil ledger budget", "spent": ""}  # fmt: skip
    spent = put_run(server.visitor, end=end, number=2).name
    account = {"data_set": "default by patient_id", "adjacency": "add-remove", "epsilon": 5.0,
               "delta": 1e-6, "unit": "patient_id", "is_new": True}  # fmt: skip
    if server.visitor.settings.section == "site":
        usual = server.visitor.desk.answers["study"]
        server.visitor.desk.answers["study"] = lambda study, by: (
            usual(study=study, by=by) | ({"account": account} if study == OTHERWISE else {})
        )
    follows = [{"name": name, "title": title} for name, title in TITLES.items()]
    server.visitor.desk.answers.get("result", {})["follows"] = follows
    compare = "/runs/compare?run=" + "&run=".join(runs)
    tasks = [*TASKS][: soak_tools.times(len(TASKS))]
    paths = {
        "lead": (
            "/drafts",
            *(f"/drafts/new?kind={task}" for task in tasks),
            "/drafts/heart?rows=1000",
            "/runs",
            f"/runs/{runs[0]}",
            compare,
        ),
        "table": (
            "/table",
            "/plan?rows=1000&slide=40&kind=gaussian-mixture",
            *(f"/fit?kind={task}" for task in (*tasks, "pca:stream")),
            "/runs",
            f"/runs/{runs[0]}",
            *(f"/runs/{runs[0]}/derive?kind={kind}" for kind in TITLES),
            compare,
            f"/runs/{spent}",
            "/ledger",
            "/ledger/budget?data_set=default",
            "/ledger/verify",
        ),
        "site": (
            "/studies",
            f"/studies/{STUDY}",
            f"/studies/{OTHERWISE}",
            "/ledger",
            "/ledger/budget?data_set=default&unit=patient_id",
            "/health",
            "/log",
        ),
    }[server.visitor.settings.section]
    for width, dark in ((1280, False), (390, True)):
        look(browser, width=width, dark=dark)
        for path in (*paths, "/no-such-page"):
            browser.get(server.address + path)
            for folded in browser.find_elements(By.CSS_SELECTOR, "summary"):
                folded.click()  # all of its fields
            check(browser)
            assert cut_labels(browser) == [], browser.current_url
            if folder := os.environ.get("EIGENVEIL_SCREENSHOTS"):
                name = re.sub(r"\W+", "-", f"{server.visitor.settings.section}{path[:40]}-{width}")
                picture(browser, Path(folder) / f"{name}.png")


@pytest.mark.parametrize("server", ["table"], indirect=True)
def test_no_request_goes_to_another_host(browser, server):
    browser.get_log("performance")
    sign_in(browser, server)
    browser.get(server.address + "/plan?rows=1000&slide=50")
    before = wait(browser, ".measure").text
    browser.execute_script(
        "const slide = document.getElementById('slide'); slide.value = 10; "
        "slide.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    until = time.monotonic() + 20
    after = before
    while after == before:
        assert time.monotonic() < until  # what is said follows the slider
        time.sleep(0.05)
        with suppress(StaleElementReferenceException):  # it is being replaced
            after = wait(browser, ".measure").text
    asked = [
        message["params"]["request"]["url"]
        for line in browser.get_log("performance")
        if (message := json.loads(line["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    ]
    assert asked
    assert [url for url in asked if not url.startswith((server.address, "data:", "chrome:"))] == []


@pytest.fixture
def no_scripts(browser):
    """A browser that runs no script of a page."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield browser
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def press(browser, text):
    """Press the first button or link of this text, and wait until its page is gone."""
    xpath = f"//button[normalize-space()='{text}'] | //a[normalize-space()='{text}']"
    found = WebDriverWait(browser, 20).until(lambda each: each.find_element(By.XPATH, xpath))
    found.click()
    # a driver that is asked while the page goes may say so in other words: it is asked again
    WebDriverWait(browser, 20, ignored_exceptions=[WebDriverException]).until(staleness_of(found))


def give_password(browser, action):
    wait(browser, f"#password-{action}")
    write(browser, **{f"password-{action}": PASSWORD})


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("server", ["site"], indirect=True)
def test_a_steward_sets_a_budget_and_approves_without_scripts_or_a_terminal(
    no_scripts, server, width, tmp_path
):
    """From a study whose unit the budget does not count to the signature that approves it."""
    browser, study = no_scripts, study_of(unit="patient_id", features=None, columns=list("abcd"))
    party, ledger = site_with_key(tmp_path / "federation", "ann")
    approvals.ask_owner(party, study)
    rows = Rows(party=str(party.folder), ledger=ledger.name)
    server.visitor.console.desk = Asked(SiteDesk(rows))
    look(browser, width=width, dark=False)
    browser.delete_all_cookies()
    browser.get(server.address + "/sign-in?token=token")
    wait(browser, "nav a")
    press(browser, study.name)
    press(browser, "Set a budget that counts so")
    give_password(browser, "budget")
    press(browser, "Set the budget and sign")
    give_password(browser, "approve")
    press(browser, "Approve and sign")
    assert "It is now approved" in wait(browser, ".notice.good").text
    assert ledger.budget("default").unit == "patient_id"
    assert Decisions(party, ledger).standing(study.hash).approved
