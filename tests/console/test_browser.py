"""The pages in a real browser: sign-in, approval, the picture, and axe-core over all of it."""

import json
import os
import time
from contextlib import suppress

import pytest
import uvicorn
from console_tools import STUDY, Visitor, free_port, put_result, serving

pytest.importorskip("selenium")
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

import soak_tools
from browser_tools import check, look, needs_browser, wait
from eigenveil.console.settings import Link
from eigenveil.models.task import TASKS

pytestmark = needs_browser


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
            compare,
            "/ledger",
        ),
        "site": ("/studies", f"/studies/{STUDY}", "/ledger", "/health", "/log"),
    }[server.visitor.settings.section]
    for width, dark in ((1280, False), (390, True)):
        look(browser, width=width, dark=dark)
        for path in (*paths, "/no-such-page"):
            browser.get(server.address + path)
            for folded in browser.find_elements(By.CSS_SELECTOR, "summary"):
                folded.click()  # all of its fields
            check(browser)
    if folder := os.environ.get("EIGENVEIL_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{server.visitor.settings.section}.png")


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
