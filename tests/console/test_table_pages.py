"""The pages of an analyst: the plan's picture, a fit that is started once, results, the ledger."""

import asyncio

import pytest
from console_tools import Visitor, hidden, point, put_run, result, table_desk

from eigenveil.console.forecasts import EPSILONS, Forecasts
from eigenveil.console.pictures import epsilon_at, quality_at, slide_at
from eigenveil.errors import DataError


@pytest.fixture
def visitor(tmp_path, monkeypatch):
    found = Visitor(tmp_path)
    found.client = found.browser("ann")
    started = found.started = []

    async def start(kind, title, words, *, who, about=""):
        started.append((kind, words, who))
        return put_run(found, title)

    monkeypatch.setattr(found.console.jobs, "start", start)
    return found


def test_the_plan_draws_what_was_simulated_and_follows_the_slider(visitor):
    page = visitor.client.get("/plan?rows=1000&slide=50&components=3&spectrum=spike:2:0.9")
    assert "at epsilon 1" in page.text
    assert "one row more or less" in page.text
    assert "/fit?kind=pca&amp;epsilon=1&amp;components=3" in page.text
    visitor.client.get("/plan?rows=1000&slide=90&components=3&spectrum=spike:2:0.9")
    asked = [each for method, each in visitor.desk.asked if method == "point"]
    assert len(asked) == len(EPSILONS)  # the slider simulates nothing
    assert asked[0]["given"] == {"components": "3", "spectrum": "spike:2:0.9"}
    assert visitor.client.get("/plan?rows=none&slide=x").status_code == 200
    assert "is not one of" in visitor.client.get("/plan?kind=none").text


def test_a_plan_that_cannot_be_forecast_says_so_and_what_it_takes(visitor):
    visitor.desk.answers["point"] = lambda **how: point(**how, quality=None, note="not for 3 words")
    page = visitor.client.get("/plan?rows=1000&kind=topic-model").text
    assert "cannot be forecast: not for 3 words." in page
    assert all(each in page for each in ("168 bytes", "6 MB", "(1, 1e-06)-differential privacy"))
    assert "<svg" not in page
    visitor.desk.answers["point"] = refuse
    page = visitor.client.get("/plan?rows=1000&kind=topic-model&alpha0=x")
    assert "No such thing." in page.text
    assert 'value="x"' in page.text


def refuse(**_):
    raise DataError("No such thing.", hint="Another.", code="bad-parameter")


def test_the_slider_goes_over_all_epsilons():
    assert (epsilon_at(0), epsilon_at(50), epsilon_at(100), epsilon_at(900)) == (0.1, 1, 10, 10)
    assert all(slide_at(epsilon_at(each)) in range(each - 1, each + 2) for each in range(101))
    points = [point(epsilon) for epsilon in (0.1, 1.0, 10.0)]
    assert quality_at(points, 1.0) == pytest.approx(points[1]["quality"])
    assert quality_at(points, 0.01) is None


def test_a_fit_is_started_once_by_one_form(visitor):
    page = visitor.client.get("/fit?epsilon=0.5")
    assert 'value="0.5"' in page.text
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    form |= {"kind": "gaussian-mixture", "epsilon": "0.5", "mechanism": "auto", "evil": "--out=/"}
    assert visitor.client.post("/fit", data=form).status_code == 303
    words = ["fit", "t.csv", "--out", "{result}", "--task=gaussian-mixture", "--epsilon=0.5"]
    assert visitor.started == [("fit", words, "ann")]
    again = visitor.client.post("/fit", data=form)
    assert again.status_code == 409
    assert "sent before" in again.text
    assert len(visitor.started) == 1
    form["csrf"] = "forged"
    assert visitor.client.post("/fit", data=form).status_code == 403
    assert visitor.logged()[0] == "refused: bad-form"


def test_a_viewer_reads_and_starts_nothing(visitor):
    other = visitor.browser("vic")
    page = other.get("/table")
    assert page.status_code == 200
    assert other.get("/fit").status_code == 403
    form = {"csrf": hidden(page.text, "csrf"), "number": "1"}
    assert other.post("/fit", data=form).status_code == 403
    assert visitor.started == []
    assert visitor.logged()[0] == "refused: page-not-for-role"


def test_a_result_is_shown_with_its_pictures_and_downloads(visitor):
    job = put_run(visitor, "PCA, epsilon 1")
    place = visitor.console.jobs.folder / job.name / "result"
    place.mkdir()
    (place / "model.npz").write_bytes(b"model")
    (visitor.console.jobs.folder / job.name / "errors.txt").write_text("moment: 3 sites answered\n")
    (place / "scree.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    visitor.desk.answers |= {"result": result(), "compare": {
        "about": "Angles.", "headings": ["component", "degrees"], "lines": [["1", "12.5"]]
    }}  # fmt: skip
    page = visitor.client.get(f"/runs/{job.name}")
    assert page.text.count('<svg class="picture') == 3
    assert "<script>" not in page.text.replace('<script src="/static/htmx.min.js" defer>', "")
    assert "<b>" not in page.text
    assert "the aggregator" in page.text
    assert '<td class="num">-0.600</td>' in page.text
    shown = f"/runs/{job.name}/files/scree.svg?show=picture"
    assert shown in page.text
    assert visitor.client.get(shown).headers["content-type"].startswith("image/svg+xml")
    assert visitor.client.get(f"/runs/{job.name}/files/model.npz").content == b"model"
    for wrong in ("../job.json", "job.json", "..%2Fjob.json", "model.npz?show=picture"):
        assert visitor.client.get(f"/runs/{job.name}/files/{wrong}").status_code == 404
    assert visitor.client.get("/runs/..%2F..").status_code == 404
    other = put_run(visitor, "other", name="20300101000001-0badcafe")
    (visitor.console.jobs.folder / other.name / "result").mkdir()
    compare = f"/runs/compare?run={job.name}&run={other.name}"
    assert "12.5" in visitor.client.get(compare).text
    visitor.desk.answers["compare"] = refuse
    compare = f"/runs/compare?run={other.name}&run={job.name}"
    assert "No such thing." in visitor.client.get(compare).text


def test_a_failed_run_says_why(visitor):
    job = put_run(visitor, "PCA", status=5)
    errors = visitor.console.jobs.folder / job.name / "errors.txt"
    errors.write_text("reading\nerror: The budget is spent.\nhint: Ask for less.\n")
    page = visitor.client.get(f"/runs/{job.name}").text
    assert "<p>The budget is spent.</p><p>Ask for less.</p>" in page


@pytest.mark.parametrize("role", ["viewer", "lead", "approver"])
@pytest.mark.parametrize("status", [0, 5])
def test_exact_numbers_of_a_fit_stay_with_the_owner_of_the_rows(visitor, role, status):
    job = put_run(visitor, "PCA", status=status)
    told = (
        "moment: 1,234 rows\nerror: 56 rows are not valid, the first is row 789.\nhint: See it.\n"
    )
    (visitor.console.jobs.folder / job.name / "errors.txt").write_text(told)
    own = visitor.client.get(f"/runs/{job.name}").text
    assert all(number in own for number in ("1,234", "56", "789", "Not private"))
    other = visitor.browser("vic")
    seen = other.get(f"/runs/{job.name}").text
    assert not any(number in seen for number in ("1,234", "56 rows", "789", "What it reported"))
    assert ("an owner sees" in seen) == (status != 0)


def test_a_run_is_a_process_with_what_it_said(tmp_path):
    found = Visitor(tmp_path, desk=table_desk())

    async def run():
        job = await found.console.jobs.start("fit", "none", ["--no-such-option"], who="ann")
        while found.console.jobs.named(job.name).state in ("running", "lost"):
            await asyncio.sleep(0.05)
        return found.console.jobs.named(job.name)

    job = asyncio.run(run())
    assert job.state == "failed"
    assert any("No such option" in line for line in found.console.jobs.lines(job))


def test_a_forecast_grows_and_says_its_problem_once():
    forecasts, asked, allowed = Forecasts(), [], asyncio.Semaphore(3)

    async def slow(epsilon):
        asked.append(epsilon)
        await allowed.acquire()
        if "wrong" in asked:
            refuse()
        return point(epsilon)

    async def run():
        curve = await forecasts.look("a", slow)
        assert len(curve.points) == 3
        assert not curve.is_whole
        for _ in range(100):
            allowed.release()
        while not (await forecasts.look("a", slow)).is_whole:
            pass
        assert [each["epsilon"] for each in curve.points] == sorted(EPSILONS)
        assert sorted(asked) == sorted(EPSILONS)  # each once, by whoever looked
        asked[:] = ["wrong"]
        curve = await forecasts.look("b", slow)
        assert curve.problem.message == "No such thing."
        await forecasts.look("b", slow)
        assert len(asked) == 3  # tried anew

    asyncio.run(run())
