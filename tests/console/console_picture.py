"""Write docs/images/console-study.png: a study that waits, as the console's page shows it today."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from console_tools import Asked, serving, site_with_key  # noqa: E402
from PIL import Image  # noqa: E402
from test_browser import Server  # noqa: E402

from browser_tools import chromium, look, picture, wait  # noqa: E402
from eigenveil.console.desk.site import SiteDesk  # noqa: E402
from eigenveil.console.settings import Rows  # noqa: E402
from eigenveil.federation.approvals import studies  # noqa: E402
from federation_tools import study_of  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "console-study.png"
STUDY = {
    "name": "lipids-follow-up",
    "features": None,
    "columns": ["age", "bmi", "glucose", "systolic", "hdl", "ldl"],
    "requested_by": "Dr. Lee, University Hospital South",
    "purpose": "which risk factors vary together after a year",
}


def draw(folder: Path) -> None:
    study = study_of(**STUDY)
    party, ledger = site_with_key(folder / "federation", "ann")
    studies.ask_owner(party, study)
    server = Server(folder, "site")
    server.visitor.console.desk = Asked(SiteDesk(Rows(party=str(party.folder), ledger=ledger.name)))
    with serving(server.config), chromium(folder / "profile") as browser:
        look(browser, width=1000, dark=False)
        browser.get(server.address + "/sign-in?token=token")
        wait(browser, "nav a")
        browser.get(f"{server.address}/studies/{study.hash}")
        wait(browser, "#password-approve")
        picture(browser, PICTURE)
    Image.open(PICTURE).quantize(64).save(PICTURE, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as found:
        draw(Path(found))
