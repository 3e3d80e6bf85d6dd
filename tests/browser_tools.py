"""A Chromium for tests, which reaches this machine alone, and axe-core over what it shows."""

import base64
import shutil
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = Path(__file__).parent / "console" / "axe" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
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


needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None or find_spec("selenium") is None,
    reason="needs chromium, chromedriver and selenium",
)


@contextmanager
def chromium(profile):
    """A browser without a screen, with a profile in a folder; its logs say what was requested."""
    # imported here: all tests load this module, and few need a browser
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if needs_browser.args[0]:
        pytest.skip(needs_browser.kwargs["reason"])
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


def write(browser, **fields):
    """Fill in fields of a form, by their ids."""
    for name, text in fields.items():
        field = browser.find_element("id", name)
        field.clear()
        field.send_keys(text)


def wait(browser, selector, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := browser.find_elements("css selector", selector):
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


def broken_rules(browser, rules=()):
    """Rules of axe-core (WCAG 2.1 A and AA, best practice) that the page breaks, and where."""
    only = {"type": "rule", "values": list(rules)} if rules else {"type": "tag", "values": RULES}
    # in one step with its own code: a page may load itself anew between two
    return browser.execute_async_script(
        AXE.read_text(encoding="utf-8")
        + ";const [only, done] = arguments; axe.run(document, {runOnly: only, resultTypes: "
        "['violations']}).then(found => done(found.violations.map("
        "each => [each.id, each.nodes.map(node => node.html)])))",
        only,
    )


def excess(browser):
    """By how many pixels a page is wider than the screen."""
    return browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")


def cut_labels(browser):
    """Texts that are wider than what holds them, and so cut, or laid over what is beside them.

    What scrolls by itself, as wide tables do, may be wider.
    """
    return browser.execute_script(
        """
        const held = each => each.closest('.wide, .scroll, pre, .skip, textarea, meter');
        const found = [...document.querySelectorAll('body *')].filter(each => each.clientWidth
          && !held(each) && each.scrollWidth > each.clientWidth + 1);
        for (const each of document.querySelectorAll('select')) {
          const probe = document.createElement('span');
          probe.style.cssText = 'position: absolute; visibility: hidden; white-space: pre';
          probe.style.font = getComputedStyle(each).font;
          probe.textContent = each.selectedOptions[0]?.text ?? '';
          document.body.append(probe);
          if (probe.offsetWidth > each.clientWidth) found.push(each);
          probe.remove();
        }
        return found.map(each => each.outerHTML.slice(0, 200));
        """
    )


def check(browser):
    """No rule is broken, nothing is wider than the screen, and no script was refused or failed."""
    assert broken_rules(browser) == [], browser.current_url
    assert excess(browser) <= 0, browser.current_url
    # what the security policy refuses, and scripts that fail, are in this log
    log = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert [line for line in log if "status of 4" not in line] == []


def picture(browser, file):
    """The whole page, as it is laid out now, as PNG."""
    size = browser.execute_script(
        "const all = document.documentElement; return [window.innerWidth, all.scrollHeight]"
    )
    clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
    found = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    file.write_bytes(base64.b64decode(found["data"]))
