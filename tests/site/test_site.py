"""The built site in a browser, from its folder: accessible, never too wide, and searchable.

`make docs` runs this on what it built, and sets EIGENVEIL_SITE to the folder.
"""

import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

from browser_tools import broken_rules, excess, look

SITE = Path(os.environ.get("EIGENVEIL_SITE", "nowhere")).absolute()
PAGES = [each for each in sorted(SITE.rglob("*.html")) if each.parent.name != "_static"]
pytestmark = pytest.mark.skipif(not PAGES, reason="`make docs` builds the site")


# what the width and the colours of a page can break
OTHERWISE = ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]


def test_every_page_is_accessible_in_light_and_dark_and_fits_its_screen(browser):
    found = defaultdict(list)
    for page in PAGES:
        name = str(page.relative_to(SITE))
        look(browser, width=1280, dark=False)
        browser.get(page.as_uri())
        wide = [1280] * (excess(browser) > 0)
        for rule, places in broken_rules(browser):
            found[rule, places[0]].append(name)
        look(browser, width=390, dark=True)
        time.sleep(0.4)  # the theme makes what scrolls reachable by keys a moment after a resize
        wide += [390] * (excess(browser) > 0)
        for rule, places in broken_rules(browser, OTHERWISE):
            found[f"{rule}, narrow and dark", places[0]].append(name)
        for width in wide:
            found["wider than the screen", str(width)].append(name)
    assert not found, "\n".join(f"{key}: {pages}" for key, pages in found.items())


def test_the_search_finds_a_page_without_a_server(browser):
    look(browser, width=1280, dark=False)
    browser.get((SITE / "search.html").as_uri() + "?q=epsilon")
    links = browser.execute_async_script(
        "const done = arguments[0], find = () => [...document.querySelectorAll"
        "('#search-results li a')].map(each => each.getAttribute('href')); let tries = 0;"
        "const there = () => find().some(link => link.startsWith('concepts/promise.html'));"
        "const wait = () => there() || tries++ > 200 ? done(find()) : setTimeout(wait, 50); wait();"
    )
    assert any(link.startswith("concepts/promise.html") for link in links)
    assert all((SITE / link.partition("#")[0].partition("?")[0]).is_file() for link in links)
