"""A console without a server: its parts, a desk that answers at once, and a browser's forms."""

import re
import time
from pathlib import Path

import pyotp
from starlette.testclient import TestClient

from eigenveil.console.app import make_app, make_console
from eigenveil.console.settings import Rows, Settings
from eigenveil.console.signing import new_key

PASSWORD = "four words without sense"
STUDY = "a" * 64
OPEN = []
"""Servers that a test's end closes."""


class FakeDesk:
    """Answers from a table of functions, and remembers what was asked."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def ask(self, method, **arguments):
        self.asked.append((method, arguments))
        found = self.answers[method]
        return found(**arguments) if callable(found) else found

    async def close(self):
        pass


def account(**fields):
    return {
        "data_set": "default",
        "epsilon": 2.0,
        "delta": 1e-6,
        "adjacency": "add-remove",
        "unit": "row",
        "spent": 0.5,
        "left": 1.5,
        "text": "left: epsilon 1.5",
    } | fields


def empty_ledger(**_):
    return {
        "entries": [], "page": 1, "pages": 1, "count": 0, "accounts": [account()], "names": {},
        "last": "0" * 64, "ledger": "tables.ledger",
    }  # fmt: skip


def table_desk(**more):
    options = [
        {
            "name": name, "option": f"--{name}", "label": name, "help": f"The {name}.", "unit": "",
            "choices": choices, "default": default, "first": first,
        }
        for name, choices, default, first in (
            ("epsilon", [], "1.0", True),
            ("mechanism", ["auto", "gaussian"], "auto", False),
        )
    ]  # fmt: skip
    return FakeDesk(
        **{
            "table": {"files": ["t.csv"], "columns": ["age", "bmi"]},
            "ledger": empty_ledger,
            "options": options,
            "curve": {"points": points(), "problem": ""},
        }
        | more
    )


def points():
    return [
        {"epsilon": e, "energy": 1 - 0.5 / (1 + 5 * e), "error": 0.01, "nothing": 0.0,
         "bytes": 168, "memory": 6_000_000}
        for e in (0.1, 0.3, 1.0, 3.0, 10.0)
    ]  # fmt: skip


def study(**fields):
    return {
        "requested_by": "Dr. <i>Lee</i>", "purpose": "to see what varies together",
        "name": "heart", "hash": STUDY, "title": "PCA", "task": "pca", "features": 12,
        "columns": ["age", "<b>bmi</b>"], "components": 2, "sites": [{"name": "north"}],
        "protocol": "cape", "sent": "A noisy second moment; 1 kB in all rounds.",
        "whose": "one row more or less", "federation": "heartnet", "site": "north",
        "views": [{"name": "the aggregator", "promise": "epsilon 1", "protected": True}],
        "notes": [], "epsilon": 1.0, "delta": 1e-6,
        "cost": {"epsilon": 0.7, "delta": 1e-6, "budget": 2.0, "budget_delta": 1e-6,
                 "covered": True, "after": "left: epsilon 1.2", "left": "left: epsilon 1.5"},
        "standing": standing(), "history": [], "needed": 1, "approvers": ["ann"],
    } | fields  # fmt: skip


def standing(**fields):
    return {
        "state": "waiting", "by": [], "purpose": "", "reason": "", "runs": None, "used": 0,
        "left": 0, "until": None, "every": False, "waits": True, "approved": False,
    } | fields  # fmt: skip


def health(**fields):
    return {
        "name": "north", "organisation": "Hospital", "federation": "heartnet",
        "aggregator": "localhost:8002", "running": True, "version": "0.1.0", "days": 200,
        "until": "2027-06-01", "last": None, "data_set": "default", "account": account(),
        "accounts": [account()], "ledger": "north.ledger", "open": [],
    } | fields  # fmt: skip


def site_desk(**more):
    return FakeDesk(
        **{
            "studies": {"waiting": [study()], "decided": [], "hidden": 0, "needed": 1,
                        "every": False},
            "study": lambda study: globals()["study"](hash=study),
            "health": health(),
            "ledger": empty_ledger,
            "decide": lambda **_: standing(state="approved", approved=True, waits=False),
        }
        | more
    )  # fmt: skip


def lead_desk(**more):
    def draft(out, fields, schema=None):
        Path(out).write_text("name = 'heart'\n")
        return study(**fields)

    return FakeDesk(
        **{
            "health": health(),
            "draft": draft,
            "study": lambda file: study(memory=10**6, bytes=5000, predicted=True),
            "curve": {"points": points(), "problem": ""},
        }
        | more
    )


DESKS = {"table": table_desk, "site": site_desk, "lead": lead_desk}


class Visitor:
    """A browser's cookies and forms, and a clock of its own for second factors."""

    def __init__(self, tmp_path, section="table", desk=None, provider=None, **settings):
        rows = Rows(data=("t.csv",)) if section == "table" else Rows(kit=str(tmp_path / "kit"))
        self.settings = Settings(section, tmp_path / "state", rows, **settings)
        desk = desk or DESKS[section]()
        self.desk = desk
        self.console = make_console(self.settings, desk=desk, planner=desk)
        self.app = make_app(self.console, provider=provider)
        self.client = TestClient(self.app, base_url="http://127.0.0.1:8450", follow_redirects=False)
        self.client.__enter__()  # one server for all of its browsers
        OPEN.append(self.client)

    def browser(self):
        """Another browser at the same server."""
        found = TestClient(self.app, base_url="http://127.0.0.1:8450", follow_redirects=False)
        found.portal = self.client.portal
        return found

    def add(self, name="ann", role="owner", password=PASSWORD, key=True):
        private = new_key(password)[0] if key and password else ""
        return self.console.accounts.add(name, role, password, key=private)

    def code(self, name):
        """A code that was not used before: the account's last step is put back."""
        with self.console.accounts._open() as database:
            database.execute("UPDATE accounts SET step = 0 WHERE name = ?", (name,))
        return pyotp.TOTP(self.console.accounts.secret(name)).at(time.time())

    def sign_in(self, name="ann", password=PASSWORD, client=None):
        client = client or self.client
        page = client.get("/sign-in")
        form = {"form": hidden(page.text, "form"), "name": name, "password": password}
        answer = client.post("/sign-in", data=form)
        if answer.status_code != 303:
            return answer
        page = client.get("/sign-in/second-factor")
        form = {"csrf": hidden(page.text, "csrf"), "code": self.code(name)}
        return client.post("/sign-in/second-factor", data=form)

    def logged(self):
        return [event.what for event in self.console.accounts.events()]


def hidden(text, name):
    """The value of a form's hidden field."""
    return re.search(f'name="{name}" value="([^"]*)"', text)[1]
