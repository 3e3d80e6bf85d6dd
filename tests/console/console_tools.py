"""A console without a server: its parts, a desk that answers at once, and a browser's forms."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.testclient import TestClient

from eigenveil.console.app import make_app, make_console
from eigenveil.console.desk.forms import read_values
from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.results import derived_form
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.desk.ways import Kind
from eigenveil.console.runs import ABOUT, EVENTS
from eigenveil.console.settings import Proxy, Rows, Settings
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.keys import make_key
from eigenveil.federation.approvals.roster import key_file
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.models.derived.options import options_of_kind
from eigenveil.models.options import options_of
from federation_tools import make_federation

STUDY = "a" * 64
PASSWORD = "four words without sense"
VERIFIED = {"holds": True, "explanation": "It holds.", "entries": 3, "last": "0" * 64}
OPEN = []
"""Servers that a test's end closes."""


class FakeDesk:
    """Answers from a table of functions, and remembers what was asked."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def ask(self, method, *, of=None, **arguments):
        self.of = of
        self.asked.append((method, arguments))
        found = self.answers[method]
        return found(**arguments) if callable(found) else found

    async def close(self):
        pass


class Asked:
    """A desk of this process, asked as the one beside the console is."""

    def __init__(self, desk):
        self.desk = desk

    async def ask(self, method, *, of=None, **arguments):
        return getattr(self.desk, method)(**arguments)

    async def close(self):
        pass


def site_with_key(folder, name):
    """A site whose budget counts rows, and its ledger; somebody approves with PASSWORD."""
    party = make_federation(folder)["north"]
    ledger = Ledger(folder / "north.ledger", durable=False)
    desk = Decisions(party, ledger)
    desk.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    made = make_key(key_file(party, name), PASSWORD)
    desk.appoint(name, "approver", made.public_key.text)
    return party, ledger


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
        "last": "0" * 64, "ledger": "tables.ledger", "open": [
            {"study": STUDY, "name": "heart", "data_set": "default", "step": "round 1",
             "begun": "2030-01-01 10:00:00"}
        ],
    }  # fmt: skip


def table_desk(**more):
    """Forms and checks as they are declared; there are no rows."""
    real = TableDesk(Rows(data=("t.csv",)))
    return FakeDesk(
        **{
            "table": {
                "files": ["t.csv"],
                "columns": ["age", "bmi"],
                "unit": None,
                "persons": [],
                "schema": None,
                "is_text": True,
            },
            "guessed": {"separator": ",", "decimal": ".", "encoding": "utf-8"},
            "seen": seen,
            "settle": "a" * 32,
            "cost": [cost()],
            "ledger": empty_ledger,
            "budget": lambda data_set, by: budget(data_set=data_set or "default"),
            "set_budget": "",
            "verify": VERIFIED,
            "end": 1,
            "kinds": real.kinds,
            "form": real.form,
            "check": lambda kind, given: Kind(kind).summary(given),
            "point": point,
        }
        | DERIVES
        | more
    )


def cost(**fields):
    """An account before and after a fit, as a desk gives it."""
    return {"data_set": "t.csv", "epsilon": 2.0, "delta": 1e-6, "unit": "row", "before": 1.5,
            "after": 0.5, "is_new": False, "problem": ""} | fields  # fmt: skip


def seen():
    """Columns as they would be read."""
    usual = {"kind": "number", "role": "feature", "levels": "", "why": "numbers"}
    return {"unit": "Patienten-Nr", "count": 3, "reading": "", "columns": [
        usual | {"name": "Patienten-Nr", "role": "unit", "why": "its values repeat"},
        usual | {"name": "<b>age</b>"},
        usual | {"name": "sex", "kind": "category", "levels": "f, m"},
    ]}  # fmt: skip


def check_derived(folder, kind, given):
    read_values(options_of_kind(kind), given)
    return f"{kind} of {given['on']}"


DERIVES = {
    "derived_form": lambda folder, kind: derived_form(kind, ["age", "<b>bmi</b>"]),
    "check_derived": check_derived,
}
"""Of every desk with results: what follows from a covariance."""


def point(epsilon=1.0, **fields):
    """A simulated point, as a desk gives it."""
    usual = {"epsilon": epsilon, "quality": 1 - 0.5 / (1 + 5 * epsilon), "error": 0.01,
             "nothing": 0.0, "bytes": 168, "memory": 6_000_000, "delta": 1e-6, "note": "",
             "whose": "adding or removing one row", "problem": ""}  # fmt: skip
    return usual | {name: value for name, value in fields.items() if name in usual}


def result(**fields):
    """A result, as a desk gives it."""
    return {
        "title": "principal components",
        "follows": [],
        "parts": [
            {"title": "2 components", "headings": ["component", "<b>"], "right": [False, True],
             "rows": [["PC1", "-0.600"], ["<script>", "1"]]},
            {"title": "", "sentence": "noise: <i>much</i>"},
        ],
        "figures": [{"file": "scree.svg", "about": "A figure."}],
        "above": "1 of 2",
        "stopped": None,
        "releases": [
            {"name": "moment", "values": 3, "noise": "gaussian", "scale": 4.0, "mu": 0.2,
             "epsilon": None}
        ],
        "guarantee": {"epsilon": 1.0, "delta": 1e-6},
        "holds": True,
        "word": "VALID",
        "explanation": "It holds.",
        "signed": "signed by the aggregator and 2 of 2 sites (north, <i>south</i>)",
        "sentence": "(1, 1e-6)-differential privacy",
        "assumptions": ["rows are of different persons"],
        "caveats": [],
        "views": {"an outsider": {"epsilon": 1.0, "delta": 1e-6, "certified": True},
                  "the aggregator": {"epsilon": 1.1, "delta": 1e-6, "certified": True}},
        "downloads": ["model.npz"],
    } | fields  # fmt: skip


def study(**fields):
    return {
        "requested_by": "Dr. <i>Lee</i>", "purpose": "to see what varies together",
        "name": "heart", "hash": STUDY, "title": "PCA", "task": "pca", "features": 12,
        "columns": ["age", "<b>bmi</b>"], "components": 2, "sites": [{"name": "north"}],
        "protocol": "cape", "sent": "A noisy second moment; 1 kB in all rounds.",
        "whose": "adding or removing one row", "federation": "heartnet", "site": "north",
        "views": [{"name": "the aggregator", "promise": "epsilon 1", "protected": True}],
        "notes": [], "epsilon": 1.0, "delta": 1e-6,
        "cost": {"epsilon": 0.7, "delta": 1e-6, "budget": 2.0, "budget_delta": 1e-6,
                 "covered": True, "after": "left: epsilon 1.2", "left": "left: epsilon 1.5"},
        "standing": standing(), "history": [], "signs": "password", "needed": 1,
        "approvers": ["ann"], "account": None, "data_set": "default",
        "memory": 10**6, "bytes": 5000, "quality": "captured energy", "expected": [],
    } | fields  # fmt: skip


def standing(**fields):
    return {
        "state": "waiting", "label": "waits", "sentence": "waits for a decision", "by": [],
        "purpose": "", "reason": "", "runs": None, "used": 0, "left": 0, "until": None,
        "every": False, "waits": True, "approved": False,
    } | fields  # fmt: skip


def health(**fields):
    return {
        "name": "north", "organisation": "Hospital", "federation": "heartnet",
        "address": "https://localhost:8002", "approvers": [],
        "running": True, "version": "0.1.0", "days": 200,
        "until": "2027-06-01", "last": None, "data_set": "default", "account": account(),
        "accounts": [account()], "ledger": "north.ledger", "open": [], "sites": ["north"],
    } | fields  # fmt: skip


def signs(by):
    return "password" if by == "ann" else "elsewhere"


def budget(**fields):
    return {
        "data_set": "default", "account": account(), "fixed": True, "signs": "nobody",
        "waiting": [], "place": "north.ledger", "mark": "as it is",
        "usual": {"delta": 1e-6, "adjacency": "add-remove", "unit": "row"},
    } | fields  # fmt: skip


def site_desk(**more):
    return FakeDesk(
        **{
            "studies": {"waiting": [study()], "decided": [], "hidden": 0, "needed": 1,
                        "every": False},
            "study": lambda study, by: globals()["study"](hash=study, signs=signs(by)),
            "budget": lambda data_set, by: budget(data_set=data_set or "default", signs=signs(by)),
            "set_budget": "",
            "verify": VERIFIED,
            "end": 1,
            "health": health(),
            "ledger": empty_ledger,
            "decide": lambda **_: standing(state="approved", approved=True, waits=False),
        }
        | more
    )  # fmt: skip


def lead_desk(**more):
    def draft(out, kind, given, fields, schema=None):
        read_values(options_of(kind, "sites").values(), given)
        Path(out).write_text("name = 'heart'\n")
        return study(**fields)

    return FakeDesk(
        **{
            "health": health(),
            "draft": draft,
            "drafts": lambda folder: [
                {"file": file.stem, "problem": "", "title": "PCA", "features": 2,
                 "sites": ["north"], "epsilon": 1.0, "protocol": "cape"}
                for file in Path(folder).glob("*.toml")
            ],
            "kinds": LeadDesk.kinds,
            "form": LeadDesk.form,
            "study": lambda file: study(expected=LeadDesk.form("pca")["options"][:1]),
            "point": point,
        }
        | DERIVES
        | more
    )  # fmt: skip


DESKS = {"table": table_desk, "site": site_desk, "lead": lead_desk}


PEOPLE = {"ann": "owner", "bob": "approver", "vic": "viewer", "lea": "lead"}
ADDRESS = "https://console.example.org"
PROXY = Proxy("X-Remote-User", ("127.0.0.1",))


class Visitor:
    """A console's server without a socket; browsers of people whom a proxy names."""

    def __init__(
        self, tmp_path, section="table", desk=None, *, door=None, settings_door=PROXY, **settings
    ):
        rows = Rows(data=("t.csv",)) if section == "table" else Rows(party=str(tmp_path / "party"))
        usual = {"door": settings_door, "people": PEOPLE, "address": ADDRESS, "rows": rows}
        self.settings = Settings(section, tmp_path / "state", **(usual | settings))
        self.desk = desk or DESKS[section]()
        self.console = make_console(self.settings, door=door, desk=self.desk, planner=self.desk)
        self.app = make_app(self.console)
        self.address = self.settings.address or "http://127.0.0.1:8450"
        self.server = self._client("127.0.0.1")
        self.server.__enter__()  # one server for all of its browsers
        OPEN.append(self.server)

    def _client(self, address):
        return TestClient(
            self.app, base_url=self.address, follow_redirects=False, client=(address, 4321)
        )

    def browser(self, name=None, *, address="127.0.0.1", enters=True):
        """A browser, behind the proxy where somebody is named, who comes in."""
        found = self._client(address)
        found.portal = self.server.portal
        if name is not None:
            found.headers[PROXY.header] = name
            if enters:
                assert found.get("/sign-in").status_code == 200
        return found

    def logged(self):
        return [event.what for event in self.console.log.events()]


@contextmanager
def serving(config):
    """A server of uvicorn's in a thread."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(20)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def put_run(visitor, title="PCA", *, kind="fit", end="finished", told=(), about="", number=0):
    """A run that ended so, without a result."""
    runs = visitor.console.runs
    name = f"2030010100000{number}-0badcafe"
    place = runs.folder / name
    place.mkdir(exist_ok=True)
    fields = {"name": name, "kind": kind, "title": title, "who": "ann", "begun": 1.9e9,
              "rows": {"data": ["t.csv"]}, "asked": {}, "about": about}  # fmt: skip
    (place / ABOUT).write_text(json.dumps(fields))
    events = [
        *told,
        *([{"event": end, "spent": ""} if isinstance(end, str) else end] if end else []),
    ]
    text = "".join(json.dumps({"time": 1.9e9 + 2} | each) + "\n" for each in events)
    (place / EVENTS).write_text(text)
    return runs.named(name)


def put_result(visitor, number=0):
    """A run with a result: a model and a figure."""
    visitor.desk.answers |= {"result": result(), "compare": {
        "about": "Angles.", "headings": ["component", "degrees"], "lines": [["1", "12.5"]]
    }}  # fmt: skip
    run = put_run(visitor, f"PCA {number}", number=number)
    place = visitor.console.runs.folder / run.name / "result"
    place.mkdir()
    (place / "model.npz").write_bytes(b"model")
    figure = "<svg xmlns='http://www.w3.org/2000/svg' width='90' height='9' style='fill: red'/>"
    (place / "scree.svg").write_text(figure)
    return run


def recording(visitor):
    """What is started from now on, and ends at once."""
    started = []

    def start(kind, title, *, rows, asked, who, about=""):
        started.append({"kind": kind, "title": title, "asked": asked, "who": who, "about": about})
        return put_run(visitor, title, kind=kind, about=about, number=len(started) % 10)

    visitor.console.runs.start = start
    return started


def hidden(text, name):
    """The value of a form's hidden field."""
    return re.search(f'name="{name}" value="([^"]*)"', text)[1]
