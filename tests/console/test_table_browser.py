"""The steps of one table in a real browser: without scripts, at both widths."""

import os
from pathlib import Path

import pytest
from console_tools import serving
from test_browser import Server, no_scripts, press
from test_steps import MISREAD, RealDesk, table_of

from browser_tools import browser, check, cut_labels, look, needs_browser, picture, wait, write
from eigenveil.console.settings import Rows
from eigenveil.console.tables import ConsoleTables

pytestmark = needs_browser
__all__ = ["browser", "no_scripts"]


@pytest.fixture
def server(tmp_path):
    found = Server(tmp_path, "table")
    rows = Rows(tables=str(tmp_path / "tables"), ledger=str(tmp_path / "t.ledger"))
    console, settings = found.visitor.console, found.visitor.settings
    object.__setattr__(settings, "rows", rows)
    console.desk, console.tables = RealDesk(rows), ConsoleTables(settings)
    with serving(found.config):
        yield found


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_file_is_brought_and_planned_without_scripts(no_scripts, server, width, dark, tmp_path):
    driver, file = no_scripts, tmp_path / "visits.csv"
    file.write_bytes(table_of())
    look(driver, width=width, dark=dark)
    driver.delete_all_cookies()
    driver.get(server.address + "/sign-in?token=token")
    wait(driver, "nav a")
    driver.get(server.address + "/table")
    driver.find_element("id", "file").send_keys(str(file))
    steps = ["Bring it", "Choose", "Next: columns", "Next: privacy",
             "Next: what it shows and costs"]  # fmt: skip
    for text in steps:
        for box in driver.find_elements("css selector", "input[type=checkbox]"):
            box.click()  # levels that everybody may know
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        check(driver)
        assert cut_labels(driver) == [], driver.current_url
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        press(driver, text)
    assert "of epsilon 1 is left before this fit" in driver.find_element("tag name", "main").text
    assert "Patienten-Nr" in driver.find_element("css selector", "main > p").text


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_how_a_file_is_written_is_said_without_scripts(no_scripts, server, width, dark, tmp_path):
    driver, file = no_scripts, tmp_path / "misread.csv"
    file.write_bytes(MISREAD.encode("latin-1"))

    def checked(name):
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        check(driver)
        assert cut_labels(driver) == [], driver.current_url
        if folder := os.environ.get("EIGENVEIL_SCREENSHOTS"):
            picture(driver, Path(folder) / f"written-{name}-{width}.png")
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})

    look(driver, width=width, dark=dark)
    driver.delete_all_cookies()
    driver.get(server.address + "/sign-in?token=token")
    wait(driver, "nav a")
    driver.get(server.address + "/table")
    driver.find_element("css selector", "summary").click()
    checked("bring")
    driver.find_element("id", "file").send_keys(str(file))
    press(driver, "Bring it")
    driver.get(server.address + "/rows?table=misread.csv&kind=covariance")
    checked("rows")
    driver.find_element("link text", "Say how the file is written").click()
    wait(driver, "#separator")
    checked("guessed")
    driver.find_element("css selector", "#separator option[value=';']").click()
    write(driver, encoding="utf-8")
    press(driver, "Read it so")
    assert (
        "is not in the encoding utf-8" in driver.find_element("css selector", "[role=alert]").text
    )
    checked("refused")
    write(driver, encoding="latin-1")
    press(driver, "Read it so")
    names = [each.text for each in driver.find_elements("css selector", "ul.columns li")]
    assert names == ["id", "weight, kg", "height, cm", "sex, as said"]
    checked("said")
    link = driver.find_element("link text", "Next: what to find").get_attribute("href")
    driver.get(link.replace("/task?", "/columns?") + "&kind=covariance&whose=%3Did")
    assert "männlich, weiblich" in driver.page_source
    checked("columns")
