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


# As many commas as semicolons between names, and letters beyond ASCII in rows only.
MISREAD = "id;weight, kg;height, cm;sex, as said\n" + "".join(
    f"{n % 30};{60 + n % 9},5;{160 + n % 7};{('männlich', 'weiblich')[n % 2]}\n" for n in range(90)
)
SAID = "&separator=%3B&encoding=latin-1"
OF_LETTERS = {"role sex, as said": "feature", "kind sex, as said": "category",
              "public sex, as said": "männlich, weiblich", "sure sex, as said": "yes"}  # fmt: skip


def told_so(page):
    """The page's form, as it would be sent."""
    names = ("csrf", "number", "table", "kind", "whose", "separator", "decimal", "encoding")
    return {name: hidden(page, name) for name in names if f'name="{name}" value' in page}


def test_a_guess_that_is_wrong_is_corrected_at_the_step_of_the_table(visitor):
    bring(visitor, "misread.csv", MISREAD.encode("latin-1"))
    page = visitor.client.get("/rows?table=misread.csv&kind=covariance").text
    assert 'value="=id;weight"' in page
    assert 'href="/table?table=misread.csv"' in page
    page = visitor.client.get("/table?table=misread.csv").text
    assert "As it looks: comma" in page
    assert "<li>id;weight</li>" in page
    here = f"/table?table=misread.csv{SAID}"
    page = visitor.client.get(here).text
    assert 'value=";" selected' in page
    assert all(f"<li>{name}</li>" in page for name in ("id", "weight, kg", "sex, as said"))
    assert "/task?table=misread.csv&amp;separator=%3B&amp;encoding=latin-1" in page
    steps = f"table=misread.csv&kind=covariance&whose=%3Did{SAID}"
    assert 'value="=id" selected' in visitor.client.get(f"/rows?{steps}").text
    page = visitor.client.get(f"/columns?{steps}").text
    assert 'value="männlich, weiblich"' in page  # drafted anew
    fit = visitor.client.post("/columns", data=told_so(page) | OF_LETTERS).headers["location"]
    name = re.search("schema=([0-9a-f]+)", fit)[1]
    schema = read_schema(visitor.console.tables.schemas / f"{name}.toml")
    assert schema.reading.said() == {"separator": ";", "encoding": "iso8859-1"}
    assert schema.names[-2:] == ("sex, as said=männlich", "sex, as said=weiblich")
    assert visitor.client.get(fit.replace("/fit?", "/plan?")).status_code == 200
    # a step back, and the same columns of a file that is written otherwise: another file
    page = visitor.client.get(fit.replace("/fit?", "/columns?") + "&decimal=,").text
    again = visitor.client.post("/columns", data=told_so(page) | OF_LETTERS).headers["location"]
    other = re.findall("schema=([0-9a-f]+)", again)[-1]
    assert other != name
    assert read_schema(visitor.console.tables.schemas / f"{other}.toml").reading.decimal == ","
    assert read_schema(visitor.console.tables.schemas / f"{name}.toml") == schema


def test_a_stream_is_read_as_its_owner_says(visitor):
    lines = ["a, kg;b, kg;c, kg", *(f"{n % 7},5;{n % 5};{n % 3},25" for n in range(400))]
    bring(visitor, "s.csv", "\n".join(lines).encode())
    plan = "/plan?table=s.csv&kind=pca:stream&whose=one&separator=%3B&epsilon=2"
    page = visitor.client.get(plan).text
    form = told_so(page) | {"epsilon": "2", "n_components": "1", "horizon": "4"}
    run = visitor.client.post("/fit", data=form).headers["location"]
    until = time.monotonic() + 120
    while "state running" in (page := visitor.client.get(run).text):
        assert time.monotonic() < until
        time.sleep(0.3)
    assert "state finished" in page, page
    names = visitor.client.get(f"{run}/files/components.csv").text
    assert '"a, kg"' in names
    again = re.search(r'href="(/fit[^"]+)">Another fit', page)[1]
    assert "separator=%3B" in again


def test_what_is_as_usual_is_kept_where_the_file_looks_otherwise(visitor):
    bring(visitor, "t.csv", b"m;low;high,n;least;most\n1,5\n2,5\n4,9\n")  # by ; five columns
    page = visitor.client.get("/columns?table=t.csv&whose=one&kind=covariance&separator=,").text
    form = told_so(page) | {"role m;low;high": "feature", "role n;least;most": "feature"}
    fit = visitor.client.post("/columns", data=form).headers["location"]
    plan = visitor.client.get(fit.replace("/fit?", "/plan?").replace("separator=", "not="))
    assert plan.status_code == 200, plan.text


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("separator=;;", "is not one character"),
        ("separator=%3B%3B&decimal=,", "is not one character"),
        ("separator=,&decimal=,", "decimal and separator are both"),
        ("decimal=x", "is not &#39;.&#39; or &#39;,&#39;"),
        ("separator=%3B&encoding=utf-8", "is not in the encoding utf-8"),
        ("separator=%3B&encoding=ascii", "is not in the encoding ascii"),
        ("separator=%3B&encoding=utf-16", "is not in the encoding utf-16"),
        ("separator=%3B&encoding=base64", "is not known"),
        ("encoding=%3Cb%3E", "encoding = &#39;&lt;b&gt;&#39; is not known"),
    ],
)
def test_what_a_file_cannot_be_written_in_is_a_sentence_and_nothing_is_left(visitor, said, why):
    bring(visitor, "misread.csv", MISREAD.encode("latin-1"))
    page = visitor.client.get(f"/table?table=misread.csv&{said}")
    assert (page.status_code, why in page.text) == (400, True), page.text
    assert "Next: what to find" not in page.text
    assert "Read it so" in page.text  # beside what was chosen
    steps = f"table=misread.csv&kind=covariance&whose=one&{said}"
    stream = steps.replace("covariance", "pca:stream")
    for page in (f"rows?{steps}", f"columns?{steps}", f"plan?{steps}", f"plan?{stream}"):
        assert visitor.client.get(f"/{page}").status_code == 400, page
    form = told_so(visitor.client.get(f"/columns?table=misread.csv&whose=one{SAID}").text)
    sent = form | dict(each.split("=") for each in said.replace("%3B", ";").split("&"))
    assert visitor.client.post("/columns", data=sent | OF_LETTERS).status_code == 400
    assert not visitor.console.tables.schemas.exists()
    assert not Path(visitor.settings.rows.ledger).exists()


def test_a_file_of_two_bytes_a_letter_is_in_no_encoding_of_one(visitor):
    bring(visitor, "wide.csv", "a;b\n1;2\n3;4\n".encode("utf-16"))
    page = visitor.client.get("/table?table=wide.csv").text
    assert "as it looks: utf-16" in page
    for encoding, status in (("latin-1", 400), ("utf-8", 400), ("utf-16", 200)):
        page = visitor.client.get(f"/table?table=wide.csv&encoding={encoding}")
        assert page.status_code == status


def test_a_file_that_its_guess_makes_no_table_is_brought_with_what_is_so(visitor):
    data = b"x, kg;y, kg;y, cm\n1;2;3\n4;5;6\n"
    assert "Nothing was done" in bring(visitor, "other.csv", data).text  # ' kg;y' is there twice
    page = visitor.client.get("/table").text
    form = {each: hidden(page, each) for each in ("csrf", "number")}
    sent = visitor.client.post("/table/upload", data=form | {"separator": ";"},
                               files={"file": ("other.csv", data)})  # fmt: skip
    assert sent.headers["location"] == "/task?separator=%3B&table=other.csv"


def test_how_a_file_is_written_only_its_owner_says(visitor):
    bring(visitor, "misread.csv", MISREAD.encode("latin-1"))
    for name in ("bob", "vic"):
        told = [visitor.browser(name).get(f"/table?table=misread.csv&encoding={encoding}")
                for encoding in ("ascii", "latin-1")]  # fmt: skip
        assert {page.status_code for page in told} == {200}  # rows have other letters: not told
        assert all("<li>id;weight</li>" in page.text for page in told)
        assert "Read it so" not in told[0].text


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
