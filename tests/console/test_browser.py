"""The pages in a real browser: sign-in, approval, the picture, and axe-core over all of it."""

import json
import os
import shutil
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn
from console_tools import PASSWORD, STUDY, Visitor

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver"
)
AXE = Path(__file__).with_name("axe") / "axe.min.js"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


class Server:
    """A console on a port of its own, in a thread."""

    def __init__(self, tmp_path, section):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.visitor = Visitor(tmp_path, section)
        self.visitor.add()
        self.address = f"http://127.0.0.1:{port}"
        config = uvicorn.Config(
            self.visitor.app, port=port, log_level="error", lifespan="off", ws="none"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 20
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.02)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(20)


@pytest.fixture(params=["table", "site", "lead"])
def server(request, tmp_path):
    found = Server(tmp_path, request.param)
    yield found
    found.stop()


def sign_in(browser, server):
    browser.delete_all_cookies()
    browser.get(server.address + "/sign-in")
    check(browser)
    browser.find_element(By.ID, "name").send_keys("ann")
    browser.find_element(By.ID, "password").send_keys(PASSWORD)
    browser.find_element(By.CSS_SELECTOR, "main button").click()
    check(browser)
    browser.find_element(By.ID, "code").send_keys(server.visitor.code("ann"))
    browser.find_element(By.CSS_SELECTOR, "main button").click()
    wait(browser, "nav a")


def wait(browser, selector, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := browser.find_elements(By.CSS_SELECTOR, selector):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"{selector} is not on {browser.current_url}")


def look(browser, *, width, dark):
    """A screen of a width, in light or dark."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def check(browser):
    """No rule of WCAG 2.1 A and AA is broken, nothing is wider than the screen or refused."""
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', "
        "'wcag21aa', 'best-practice']}).then(found => done(found.violations.map("
        "each => [each.id, each.nodes.map(node => node.html)])))"
    )
    assert found == [], browser.current_url
    wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, browser.current_url
    # what the security policy refuses, and scripts that fail, are in this log
    log = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert [line for line in log if "status of 4" not in line] == []


def test_every_page_is_accessible_at_both_widths_and_in_the_dark(browser, server):
    look(browser, width=1280, dark=False)
    sign_in(browser, server)
    studies = server.visitor.settings.state / "studies"
    studies.mkdir(exist_ok=True)
    (studies / "heart.toml").touch()
    paths = {
        "lead": ("/drafts", "/drafts/new", "/drafts/heart?rows=1000", "/runs"),
        "table": ("/table", "/plan?rows=1000&slide=40", "/fit", "/runs", "/ledger", "/account"),
        "site": ("/studies", f"/studies/{STUDY}", "/ledger", "/health", "/log"),
    }[server.visitor.settings.section]
    for width, dark in ((1280, False), (390, True)):
        look(browser, width=width, dark=dark)
        for path in (*paths, "/no-such-page"):
            browser.get(server.address + path)
            check(browser)
    if folder := os.environ.get("EIGENVEIL_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{server.visitor.settings.section}.png")


def test_no_request_goes_to_another_host(browser, tmp_path):
    server = Server(tmp_path, "table")
    browser.get_log("performance")
    sign_in(browser, server)
    browser.get(server.address + "/plan?rows=1000&slide=50")
    before = wait(browser, "figcaption").text
    browser.execute_script(
        "const slide = document.getElementById('slide'); slide.value = 10; "
        "slide.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    until = time.monotonic() + 20
    after = before
    while after == before:
        assert time.monotonic() < until  # the picture follows the slider
        time.sleep(0.05)
        with suppress(StaleElementReferenceException):  # it is being replaced
            after = wait(browser, "figcaption").text
    asked = [
        message["params"]["request"]["url"]
        for line in browser.get_log("performance")
        if (message := json.loads(line["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    ]
    assert asked
    assert [url for url in asked if not url.startswith((server.address, "data:", "chrome:"))] == []
    server.stop()


def test_a_steward_approves_with_a_signature(browser, tmp_path):
    server = Server(tmp_path, "site")
    sign_in(browser, server)
    browser.get(server.address + "/studies")
    browser.find_element(By.LINK_TEXT, "heart").click()
    browser.find_element(By.ID, "purpose").send_keys("quality of care")
    browser.find_element(By.CSS_SELECTOR, "form.card button").click()
    assert "now approved" in wait(browser, ".notice.good").text
    (made,) = [fields for method, fields in server.visitor.desk.asked if method == "decide"]
    assert (made["by"], made["purpose"], made["runs"]) == ("ann", "quality of care", 1)
    browser.back()
    browser.find_element(By.CSS_SELECTOR, "form.card button").click()  # the same form again
    assert "sent before" in wait(browser, ".notice.bad").text
    server.stop()
