"""A study in a browser, from its draft to its result: the consoles of a lead and of a site."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyotp
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "console"))
pytest.importorskip("starlette")
from command_tools import command, free_port, until
from selenium.webdriver.common.by import By

from browser_tools import check, chromium, look, needs_browser, picture, press, wait, write
from eigenveil.federation.ledger.ledger import Ledger
from federation_tools import SITES, Federation

pytestmark = needs_browser
PASSWORD = "four words without sense"
SECONDS = 300
WIDTHS = (390, 1280)


class Console:
    """A console's process; the accounts are made by its command."""

    def __init__(self, folder, *words):
        folder.mkdir()
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.state = ("--state", folder / "state")
        self.environment = os.environ | {
            "EIGENVEIL_CONSOLE_PASSWORD": PASSWORD,
            "HOME": str(folder),
        }
        self.words = words
        self.process = None

    def add(self, *words):
        """Begin to make an account; the console is started once it is there."""
        self.process = subprocess.Popen(
            command("console", "user", "add", *words, *self.state), env=self.environment
        )

    def start(self):
        assert self.process.wait(SECONDS) == 0
        self.process = subprocess.Popen(
            command("console", *self.words, *self.state, "--port", self.port),
            env=self.environment,
        )

    def answers(self):
        try:
            return urllib.request.urlopen(f"{self.address}/alive", timeout=10).status == 200
        except (TimeoutError, urllib.error.URLError):
            return False

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)


class Person:
    """Somebody at the browser; every page on the way is checked, and its picture kept."""

    def __init__(self, browser, console, pictures):
        self.browser, self.console, self.pictures = browser, console, pictures

    def opens(self, path):
        self.browser.get(self.console.address + path)

    def sees(self, what, *texts):
        """The page of this name, at both widths; axe-core has nothing to say about it."""
        number = len(list(self.pictures.glob("*-1280.png")))
        for width in WIDTHS:
            look(self.browser, width=width, dark=False)
            check(self.browser)
            picture(self.browser, self.pictures / f"{number:02}-{what}-{width}.png")
        page = self.text()
        for text in texts:
            assert text in page, page

    def text(self):
        return self.browser.find_element(By.TAG_NAME, "main").text

    def presses(self, selector="main button"):
        press(self.browser, selector)

    def signs_in(self, name):
        """For the first time: the page shows the secret of the second factor."""
        self.opens("/sign-in")
        self.sees(f"{name}-sign-in")
        write(self.browser, name=name, password=PASSWORD)
        self.presses()
        secret = wait(self.browser, ".secret").text
        self.sees(f"{name}-second-factor")
        write(self.browser, code=pyotp.TOTP(secret).now())
        self.presses()
        wait(self.browser, "nav a", 60)


@pytest.fixture
def place(tmp_path):
    """A federation and two consoles, all running, and a browser."""
    with Federation(tmp_path, approve="manual") as federation:
        kits, ledger = federation.kits, federation.ledger("north")
        of_north = ("--kit", kits["north"], "--ledger", ledger)
        lead = Console(tmp_path / "lead", "--kit", kits["lead"])
        north = Console(tmp_path / "north", *of_north)
        try:
            lead.add("lea", "--role", "lead")
            north.add("ann", "--role", "owner", *of_north)
            federation.start("aggregator", *SITES, "helper")
            lead.start()
            north.start()
            pages = Path(os.environ.get("EIGENVEIL_SCREENSHOTS", tmp_path / "pages"))
            pages.mkdir(exist_ok=True)
            with chromium(tmp_path / "profile") as browser:
                federation.wait_connected(*SITES, "helper", timeout=SECONDS)
                until(lambda: lead.answers() and north.answers())
                yield federation, Person(browser, lead, pages), Person(browser, north, pages)
        finally:
            lead.stop()
            north.stop()


def test_a_study_from_its_draft_to_the_picture_of_its_result(place):
    federation, lea, ann = place
    rng = np.random.default_rng(0)
    for name in SITES:
        values = rng.standard_normal((400, 6)) * [9, 6, 1, 1, 1, 1]
        np.save(federation.rows / name / "heart.npy", values)

    lea.signs_in("lea")
    lea.sees("lead-studies", "No study was drafted yet.")
    lea.opens("/drafts/new")
    columns = ",".join(f"c{number}" for number in range(6))
    write(lea.browser, name="heart", requested_by="Dr. Lee", purpose="to see what varies together",
          epsilon="5", delta="1e-5", sites="\n".join(SITES), columns=columns)  # fmt: skip
    lea.sees("lead-new-study")
    lea.presses()
    wait(lea.browser, "form[action$='/start']", 60)
    lea.sees("lead-draft", "epsilon 5 at delta 1e-05")
    study = lea.text().split("Hash: ")[1][:64]
    lea.presses("form[action$='/start'] button")
    wait(lea.browser, "#run", 60)
    run = lea.browser.current_url.removeprefix(lea.console.address)
    lea.sees("lead-waiting", "running")

    ann.signs_in("ann")
    until(lambda: ann.opens("/studies") or study in ann.browser.page_source)
    ann.sees("site-studies", "heart", "the budget covers it")
    ann.presses(f"a[href='/studies/{study}']")
    wait(ann.browser, "#purpose", 60)
    asked = ("Dr. Lee", "to see what varies together", "the aggregator", study)
    ann.sees("site-study", *asked)
    write(ann.browser, purpose="quality of care")
    ann.presses("form.card button")
    wait(ann.browser, ".notice.good", 60)
    ann.sees("site-approved", "It is now approved", "by ann, for ONE run", "quality of care")
    for name in ("south", "west"):
        decisions = federation.decisions(name)
        until(lambda each=decisions: (each.kit.waiting / f"{study}.json").exists())
        decisions.approve(study)

    lea.opens(run)  # the page follows by itself; the lead is signed in still
    until(lambda: "Progress" in lea.text())
    lea.sees("lead-progress", "Parties that answered")
    wait(lea.browser, ".picture", SECONDS)
    lea.sees("lead-result", "finished", "Scree", "Biplot", "Certificate", "the aggregator")
    assert len(lea.browser.find_elements(By.CSS_SELECTOR, ".picture")) == 2

    ann.opens("/ledger?only=charge")
    ann.sees("site-ledger", "heart")
    ann.opens(f"/studies/{study}")
    ann.sees("site-used", "its one run has begun")
    ann.opens("/health")
    ann.sees("site-health", "running")
    ann.opens("/account")
    ann.sees("site-account", "your key is unlocked")
    assert federation.decisions("north").standing(study).state == "used"
    assert Ledger(federation.ledger("north")).verify().holds
