"""The steps of one table, from a file of the browser to a report, and what goes wrong."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from console_tools import Visitor, cost, hidden

from eigenveil.console.desk.table import TableDesk
from eigenveil.console.desk.ways import Kind
from eigenveil.console.settings import Rows
from eigenveil.console.tables import ConsoleTables
from eigenveil.console.workers import answer
from eigenveil.errors import EigenveilError
from eigenveil.federation.ledger.fits import begin_fit
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.models.driver import FitTerms
from eigenveil.models.task import TASKS
from eigenveil.tables.schema import read_schema
from refusal_tools import refuses

rng = np.random.default_rng(0)


def table_of(persons=150, visits=3):
    """Visits of persons, whose numbers would be the first component; levels, and a free text."""
    lines = ["Patienten-Nr;sex;age;pulse;note"]
    for number in range(persons * visits):
        person = 10_000 * (number % persons)
        sex, pulse = "fm"[number % 2], rng.normal(70, 9)
        lines.append(f"{person};{sex};{20 + number % 60};{pulse:.1f};text {number % 80}")
    return "\n".join(lines).encode()


class RealDesk:
    """The desk of tables, in this process."""

    def __init__(self, rows):
        self.rows = rows

    async def ask(self, method, *, of=None, **arguments):
        return json.loads(answer("table", of or self.rows, method, arguments))

    async def close(self):
        pass


@pytest.fixture
def visitor(tmp_path):
    rows = Rows(tables=str(tmp_path / "tables"), ledger=str(tmp_path / "t.ledger"))
    found = Visitor(tmp_path, desk=RealDesk(rows), rows=rows)
    found.client = found.browser("ann")
    return found


def bring(visitor, name="visits.csv", data=None):
    page = visitor.client.get("/table").text
    form = {each: hidden(page, each) for each in ("csrf", "number")}
    sent = {"file": (name, table_of() if data is None else data)}
    return visitor.client.post("/table/upload", data=form, files=sent)


def say_columns(visitor, address, **said):
    """What the owner says of columns, posted; by default as they are proposed."""
    page = visitor.client.get(address).text
    names = [name for name in ("table", "kind", "whose") if f'name="{name}" value' in page]
    form = {name: hidden(page, name) for name in ("csrf", "number", *names)}
    usual = {"role sex": "feature", "kind sex": "category", "public sex": "f, m", "sure sex": "yes"}
    return visitor.client.post("/columns", data=form | usual | said)


STEPS = "table=visits.csv&kind=pca&whose=%3DPatienten-Nr"


def test_a_steward_goes_from_a_file_to_a_report_in_the_browser(visitor):
    assert bring(visitor).headers["location"] == "/task?table=visits.csv"
    assert (
        "/rows?table=visits.csv&amp;kind=covariance"
        in visitor.client.get("/task?table=visits.csv").text
    )
    page = visitor.client.get("/rows?table=visits.csv&kind=pca").text
    assert '<option value="=Patienten-Nr" selected>Patienten-Nr (proposed)' in page
    page = visitor.client.get(f"/columns?{STEPS}").text
    assert "Says whose each row is" in page
    assert 'value="f, m"' in page
    assert "separator &#39;;&#39;" in page  # it was guessed
    fit = say_columns(visitor, f"/columns?{STEPS}").headers["location"]
    page = visitor.client.get(fit).text
    assert "All rows with the same Patienten-Nr are of one person." in page
    assert 'name="unit"' not in page
    plan = fit.replace("/fit?", "/plan?") + "&epsilon=2&scale=private"
    page = visitor.client.get(plan).text
    assert "The table has no budget yet" in page
    form = {
        name: hidden(page, name)
        for name in ("csrf", "number", "table", "kind", "whose", "schema", "scale")
    }
    run = visitor.client.post("/fit", data=form | {"epsilon": "2"}).headers["location"]
    until = time.monotonic() + 120
    while "state running" in (page := visitor.client.get(run).text):
        assert time.monotonic() < until
        time.sleep(0.3)
    assert "state finished" in page, page
    files = {name: visitor.client.get(f"{run}/files/{name}") for name in ("report.html",
             "components.csv", "certificate.json")}  # fmt: skip
    assert {answer.status_code for answer in files.values()} == {200}
    names = [line.split(",")[0] for line in files["components.csv"].text.splitlines()[1:]]
    assert names[:3] == ["sex=f", "sex=m", "age"]
    assert "Patienten-Nr" not in files["components.csv"].text
    assert "Patienten-Nr" in files["certificate.json"].text
    again = re.search(r'href="(/fit[^"]+)">Another fit', page)[1].replace("&amp;", "&")
    assert 'name="whose" value="=Patienten-Nr"' in visitor.client.get(again).text
    page = visitor.client.get(plan).text  # the budget is spent
    assert "which would be refused" in page
    (standing,) = Ledger(visitor.settings.rows.ledger).standings()
    assert standing.budget.unit == "Patienten-Nr"


def test_the_cost_is_what_a_fit_then_reserves(tmp_path):
    table, place = tmp_path / "t.csv", tmp_path / "t.ledger"
    table.write_text("a,b,c\n1,2,3\n4,5,7\n")
    desk = TableDesk(Rows(data=(str(table),), ledger=str(place)))
    (found,) = desk.cost("pca", {})
    assert (found["is_new"], found["before"]) == (True, pytest.approx(1.0, abs=1e-3))
    assert not place.exists()  # nothing is done
    ledger = Ledger(place)
    ledger.set_budget(Budget(str(table), "add-remove", 3.0, 1e-6))
    plan = TASKS["pca"].make_plan(TASKS["pca"].options("table"), features=3)
    for _ in range(2):
        (found,) = desk.cost("pca", {})
        assert (found["is_new"], found["problem"]) == (False, "")
        assert found["before"] == ledger.standings()[0].left_epsilon
        fit = begin_fit(ledger, None, [table], FitTerms.of(plan, by="test"))
        assert found["after"] == ledger.standings()[0].left_epsilon < found["before"]
    (found,) = desk.cost("pca", {"epsilon": "3"})
    assert (found["after"], found["problem"] != "") == (None, True)
    fit.end("done")
    copy = tmp_path / "copy.csv"
    copy.write_bytes(table.read_bytes())
    (of_copy,) = TableDesk(Rows(data=(str(copy),), ledger=str(place))).cost("pca", {})
    assert of_copy["data_set"] == str(table)  # its rows were charged under another name


def test_levels_are_used_where_the_owner_says_that_they_are_public(visitor):
    bring(visitor)
    address = f"/columns?{STEPS}"
    page = say_columns(visitor, address, **{"sure sex": ""})
    assert page.status_code == 400
    assert "nobody said that its levels may be known" in page.text
    page = say_columns(visitor, address, **{"public age": "90, 20"})
    assert page.status_code == 400
    assert 'value="90, 20"' in page.text  # beside what was typed
    none = dict.fromkeys((f"role {name}" for name in ("sex", "age", "pulse")), "ignore")
    assert "All columns are left out" in say_columns(visitor, address, **none).text
    fit = say_columns(visitor, address, **{"public age": "0, 120", "role note": "ignore"})
    name = fit.headers["location"].partition("schema=")[2]
    schema = read_schema(visitor.console.tables.schemas / f"{name}.toml")
    assert schema.unit == "Patienten-Nr"
    assert (schema.names, schema.column("age").range) == (("sex=f", "sex=m", "age", "pulse"),
                                                          (0, 120))  # fmt: skip
    assert schema.column("pulse").range is None  # what was seen is not public
    # two tabs: what one says of the columns does not change the other
    other = say_columns(visitor, address, **{"role age": "ignore"}).headers["location"]
    assert other != fit.headers["location"]
    assert visitor.client.get(fit.headers["location"]).status_code == 200


def test_a_number_of_patients_is_no_feature_and_asks_whose_rows_are(visitor):
    bring(visitor)
    page = visitor.client.get("/columns?table=visits.csv&kind=pca&whose=one").text
    assert "go back to &#34;Whose rows&#34;" in page or 'go back to "Whose rows"' in page
    fit = say_columns(visitor, "/columns?table=visits.csv&kind=pca&whose=one").headers["location"]
    schema = fit.partition("schema=")[2]
    made = read_schema(visitor.console.tables.schemas / f"{schema}.toml")
    assert "Patienten-Nr" not in made.names
    page = visitor.client.get("/plan?table=visits.csv&kind=pca")  # past all steps
    assert page.status_code == 400
    assert "whose each row is" in page.text
    page = visitor.client.get("/plan?table=visits.csv&kind=pca&whose=one")
    assert "Patienten-Nr" in page.text  # refused by its name
    assert page.status_code == 400
    # another answer than the one that the columns were settled with
    page = visitor.client.get(f"/plan?{STEPS}&schema={schema}")
    assert page.status_code == 400


def test_tables_that_cannot_be_are_not_kept(visitor):
    folder = Path(visitor.settings.rows.tables)
    for name, data, why in (
        ("../../evil.sh", b"rm", "not of a format"),
        ("empty.csv", b"", "empty.csv"),
        (".hidden.csv", b"a,b\n1,2\n", "is no name"),
        ("values.csv", b"1,2\n3,4\n", "values.csv"),
    ):
        page = bring(visitor, name, data)
        assert (page.status_code, why in page.text) == (200, True), page.text
    assert not folder.exists() or list(folder.iterdir()) == []
    assert not list(folder.parent.glob("**/evil.sh"))
    assert bring(visitor).status_code == 303
    assert "is not replaced" in bring(visitor).text
    page = visitor.client.get("/table").text
    form = {each: hidden(page, each) for each in ("csrf", "number")}
    sent = form | {"table": "visits.csv"}
    assert visitor.client.post("/table/delete", data=sent).status_code == 303
    for address in (f"/columns?{STEPS}", f"/plan?{STEPS}", "/task?table=visits.csv"):
        page = visitor.client.get(address)  # in another tab
        assert (page.status_code, "deleted or renamed" in page.text) == (404, True)
    assert visitor.client.get("/task").headers["location"] == "/table"


def test_places_outside_of_the_folder_are_no_tables(tmp_path, visitor):
    bring(visitor)
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    tables = ConsoleTables(visitor.settings)
    for name in ("../secret.csv", str(tmp_path / "secret.csv"), "..", "secret.csv"):
        with refuses("no-such-table"):
            tables.rows(name)
    for schema in ("../../x", "a" * 32, "A" * 32):
        with refuses("no-such-columns"):
            tables.rows("visits.csv", schema)


def test_a_wide_table_is_read_as_it_is_drafted(visitor):
    names = [f"g{number}" for number in range(300)]
    lines = [",".join(["patient_id", *names, "word"])]
    lines += [f"{n % 9},{','.join(map(str, rng.integers(9, size=300)))},w" for n in range(30)]
    bring(visitor, "wide.csv", "\n".join(lines).encode())
    address = "/columns?table=wide.csv&kind=covariance&whose=%3Dpatient_id"
    page = visitor.client.get(address).text
    assert "302 columns are too many to ask for each" in page
    fit = say_columns(visitor, address).headers["location"]
    schema = read_schema(visitor.console.tables.schemas / f"{fit.partition('schema=')[2]}.toml")
    assert (schema.names, schema.unit) == (tuple(names), "patient_id")
    page = visitor.client.get(fit.replace("/fit?", "/plan?"))
    assert page.status_code == 200
    assert "Mean and covariance" in page.text


def test_what_is_left_is_said_before_and_after(tmp_path):
    visitor = Visitor(tmp_path)
    page = visitor.browser("ann").get("/plan?whose=one").text
    assert "1.5 <span>of epsilon 2 is left before this fit,</span> 0.5 <span>after it" in page
    visitor.desk.answers["cost"] = [cost(after=None, problem="The budget is used up.")]
    page = visitor.browser("ann").get("/plan?whose=one").text
    assert "would be refused: The budget is used up." in page
    assert "charge the ledger" not in page  # nothing to press that must fail
    assert "/ledger/budget?data_set=t.csv&amp;unit=row" in page
    assert "charge the ledger" not in visitor.browser("vic").get("/plan?whose=one").text


def test_whose_rows_is_chosen_of_the_columns(tmp_path):
    visitor = Visitor(tmp_path)
    page = visitor.browser("ann").get("/rows").text
    assert all(f'value="={name}"' in page for name in ("age", "bmi"))
    assert "<b>" not in visitor.browser("ann").get("/columns?whose=one").text
    bob = visitor.browser("bob")  # may fit, and sees nothing that was read from rows
    assert "its values repeat" not in bob.get("/columns?whose=one").text
    asked = [method for method, _ in visitor.desk.asked]
    visitor.desk.asked.clear()
    bob.get("/rows")
    bob.get("/columns?whose=one")
    assert "seen" in asked
    assert "seen" not in [method for method, _ in visitor.desk.asked]
    stream = visitor.browser("ann").get("/rows?kind=pca:stream").text
    assert 'value="=age"' not in stream


def test_an_epsilon_stays_as_it_was_typed(tmp_path):
    visitor = Visitor(tmp_path)
    page = visitor.browser("ann").get("/plan?whose=one&epsilon=0.123").text
    assert 'name="epsilon" value="0.123"' in page
    slide = hidden(page.replace('type="range" name="slide" min="0" max="100"', 'name="slide"'),
                   "slide")  # fmt: skip
    again = visitor.browser("ann").get(f"/plan?whose=one&epsilon=0.123&slide={slide}").text
    assert 'form="run" name="epsilon" value="0.123"' in again
    moved = visitor.browser("ann").get("/plan?whose=one&epsilon=0.123&slide=100").text
    assert 'form="run" name="epsilon" value="10"' in moved


def test_notes_and_refusals_name_no_command(visitor):
    """A steward has no terminal: what a command would do is left out, and what was done stays."""
    filters = visitor.console.pages.filters
    for text, kept in (
        ("t: opened an account; to set another: eigenveil ledger budget t --epsilon E.",
         "t: opened an account."),
        ("t: read with ','. To state it: [reading] in a schema; --separator; dialect= in Python.",
         "t: read with ','."),
        ("Use more rows. How many would do: eigenveil plan --task ica.", "Use more rows."),
        ("missing='zero' takes it; all else stays.", "missing='zero' takes it; all else stays."),
    ):  # fmt: skip
        assert filters["words"](text) == kept
    assert filters["path"]("/a<b/t.csv") == "/<wbr>a&lt;b/<wbr>t.csv"
    page = bring(visitor, "values.csv", b"1,2\n3,4\n").text
    assert "Give the file a first line" in page
    assert "Python" not in page
    bring(visitor)
    page = visitor.client.get(f"/plan?{STEPS}&epsilon=1,5")
    assert page.status_code == 400
    assert "a point before the decimals: 1.5" in page.text


def test_a_form_has_no_field_twice():
    for name in ("pca", "covariance", "pca:stream"):
        form = Kind(name).form()
        shown = [each["name"] for part in ("options", "own", "expected") for each in form[part]]
        assert len(shown) == len(set(shown))
        assert not {"unit", "one_row_per_person"} & set(shown)
        with pytest.raises(EigenveilError):
            Kind(name).values({"epsilon": "x"})


@pytest.mark.parametrize(
    "name", [name for name, task in TASKS.items() if task.has("scale", "table")]
)
def test_a_fit_with_scales_found_privately_is_forecast(name, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    desk = TableDesk(Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger")))
    found = desk.point(name, {"n_components": "2", "scale": "private"}, 400, 10.0)
    assert (found["problem"], 0 <= found["quality"] <= 1) == ("", True)
