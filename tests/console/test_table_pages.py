"""The pages of an analyst: the plan, a fit that is started once, results, the ledger."""

import asyncio

import pytest
from console_tools import Visitor, hidden, point, put_result, put_run, recording

from eigenveil.console.forecasts import EPSILONS, Forecasts, epsilon_at, quality_at, slide_at
from eigenveil.errors import DataError


@pytest.fixture
def visitor(tmp_path):
    found = Visitor(tmp_path)
    found.client = found.browser("ann")
    found.started = recording(found)
    return found


def test_the_plan_shows_what_was_simulated_and_follows_the_slider(visitor):
    page = visitor.client.get("/plan?rows=1000&slide=50&n_components=3&spectrum=spike:2:0.9")
    assert "of 1 at epsilon 1." in page.text
    assert page.text.count('aria-label="At epsilon') == len(EPSILONS)
    assert "adding or removing one row" in page.text
    assert 'form="run" name="epsilon" value="1"' in page.text
    assert hidden(page.text, "n_components") == "3"
    visitor.client.get("/plan?rows=1000&slide=90&n_components=3&spectrum=spike:2:0.9")
    asked = [each for method, each in visitor.desk.asked if method == "point"]
    assert len(asked) == len(EPSILONS)  # the slider simulates nothing
    given = {name: text for name, text in asked[0]["given"].items() if text}
    assert given == {"n_components": "3", "spectrum": "spike:2:0.9"}
    assert visitor.client.get("/plan?rows=none&slide=x").status_code == 200
    assert "is not one of" in visitor.client.get("/plan?kind=none").text


def test_a_plan_that_cannot_be_forecast_says_so_and_what_it_takes(visitor):
    visitor.desk.answers["point"] = lambda **how: point(**how, quality=None, note="not for 3 words")
    page = visitor.client.get("/plan?rows=1000&kind=topic-model").text
    assert "cannot be forecast: not for 3 words." in page
    assert all(each in page for each in ("168 bytes", "6 MB", "(1, 1e-6)-differential privacy"))
    assert 'aria-label="At epsilon' not in page
    visitor.desk.answers["point"] = refuse
    page = visitor.client.get("/plan?rows=1000&kind=topic-model&alpha0=1")
    assert "No such thing." in page.text
    page = visitor.client.get("/plan?rows=1000&kind=topic-model&alpha0=x")
    assert "alpha0 = &#39;x&#39;" in page.text
    assert 'value="x"' in page.text  # beside the form of its step


def refuse(**_):
    raise DataError.relayed("No such thing.", hint="Another.", code="bad-parameter")


def test_the_slider_goes_over_all_epsilons():
    assert (epsilon_at(0), epsilon_at(50), epsilon_at(100), epsilon_at(900)) == (0.1, 1, 10, 10)
    assert all(slide_at(epsilon_at(each)) in range(each - 1, each + 2) for each in range(101))
    points = [point(epsilon) for epsilon in (0.1, 1.0, 10.0)]
    assert quality_at(points, 1.0) == pytest.approx(points[1]["quality"])
    assert quality_at(points, 0.01) is None


def test_a_fit_is_started_once_by_one_form(visitor):
    assert 'value="0.5"' in visitor.client.get("/fit?epsilon=0.5").text
    page = visitor.client.get("/plan?kind=gaussian-mixture&epsilon=0.5&mechanism=auto")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind", "mechanism")}
    form |= {"epsilon": "0.5", "evil": "--out=/"}
    assert visitor.client.post("/fit", data=form).status_code == 303
    (started,) = visitor.started
    assert (started["kind"], started["who"]) == ("fit", "ann")
    assert started["title"].endswith(", epsilon 0.5")
    assert started["asked"]["kind"] == "gaussian-mixture"
    given = started["asked"]["given"]
    assert (given["epsilon"], "evil" in given) == ("0.5", False)
    again = visitor.client.post("/fit", data=form)
    assert again.status_code == 409
    assert "sent before" in again.text
    assert len(visitor.started) == 1
    assert visitor.logged()[0] == "refused: form-used"


def test_a_refusal_is_beside_the_form_with_what_was_typed(visitor):
    page = visitor.client.get("/plan?kind=gaussian-mixture")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"epsilon": "much", "n_components": "3", "noise_variance": "0.5"}
    page = visitor.client.post("/fit", data=form)
    assert page.status_code == 400
    assert "epsilon = &#39;much&#39; must be a float" in page.text
    assert all(f'value="{text}"' in page.text for text in ("much", "3", "0.5"))
    assert "<details open>" in page.text  # what was typed is not folded away
    assert visitor.started == []
    page = visitor.client.get("/plan", params=form | {"epsilon": "0.5"})
    form |= {"number": hidden(page.text, "number"), "epsilon": "0.5"}
    assert visitor.client.post("/fit", data=form).status_code == 303  # corrected


def test_a_result_is_shown_with_its_figures_and_downloads(visitor):
    run = put_result(visitor)
    page = visitor.client.get(f"/runs/{run.name}")
    assert "<script>" not in page.text.replace('<script src="/static/htmx.min.js" defer>', "")
    assert not any(each in page.text for each in ("<b>", "<i>"))
    assert "the aggregator" in page.text
    assert '<td class="num">-0.600</td>' in page.text
    shown = f"/runs/{run.name}/files/scree.svg?show=picture"
    assert shown in page.text
    answer = visitor.client.get(shown)
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert visitor.client.get(f"/runs/{run.name}/files/model.npz").content == b"model"
    for wrong in ("../run.json", "run.json", "..%2Frun.json", "model.npz?show=picture"):
        assert visitor.client.get(f"/runs/{run.name}/files/{wrong}").status_code == 404
    assert visitor.client.get("/runs/..%2F..").status_code == 404
    other = put_result(visitor, 1)
    assert "Compare two results" in visitor.client.get("/runs").text
    compare = f"/runs/compare?run={run.name}&run={other.name}"
    assert "12.5" in visitor.client.get(compare).text
    visitor.desk.answers["compare"] = refuse
    compare = f"/runs/compare?run={other.name}&run={run.name}"
    assert "No such thing." in visitor.client.get(compare).text


def test_what_follows_from_a_covariance_is_derived_once_by_one_form(visitor):
    run = put_result(visitor)
    here = f"/runs/{run.name}"
    assert "/derive?kind=" not in visitor.client.get(here).text
    visitor.desk.answers["result"] |= {"follows": [{"name": "pca", "title": "Components"}]}
    assert f"{here}/derive?kind=pca" in visitor.client.get(here).text
    assert f"{here}/derive" not in visitor.browser("vic").get(here).text
    page = visitor.client.get(f"{here}/derive?kind=regression")
    assert all(f'name="{name}"' in page.text for name in ("target", "on", "ridge"))
    assert "<b>" not in page.text
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"target": "age", "on": "bmi", "ridge": "-1", "evil": "x"}
    page = visitor.client.post(f"{here}/derive", data=form)
    assert page.status_code == 400
    assert "ridge = &#39;-1&#39; must be" in page.text or "ridge = -1" in page.text
    assert 'value="bmi"' in page.text
    assert visitor.started == []
    form |= {"number": hidden(page.text, "number"), "ridge": "0"}
    assert visitor.client.post(f"{here}/derive", data=form).status_code == 303
    (started,) = visitor.started
    assert (started["kind"], started["about"]) == ("derive", run.name)
    assert started["asked"]["given"] == {"target": "age", "on": "bmi", "ridge": "0"}
    assert visitor.client.post(f"{here}/derive", data=form).status_code == 409
    assert visitor.browser("vic").post(f"{here}/derive", data=form).status_code == 403
    assert "is not one of" in visitor.client.get(f"{here}/derive?kind=lasso").text
    nothing = put_run(visitor, number=9)
    assert visitor.client.get(f"/runs/{nothing.name}/derive").status_code == 404
    derived = put_run(visitor, kind="derive", about=run.name, number=8)
    assert f'href="{here}"' in visitor.client.get(f"/runs/{derived.name}").text


FAILED = {"event": "failed", "code": "bad-rows", "spent": "",
          "message": "56,565 rows are invalid, the first: 78,978.", "hint": "See it."}  # fmt: skip


@pytest.mark.parametrize("end", ["finished", "stopped", FAILED], ids=str)
def test_exact_numbers_of_a_fit_stay_with_the_owner_of_the_rows(visitor, end):
    told = [
        {"event": "advanced", "what": "moment", "count": 1234, "sites": None},
        {"event": "told", "kind": "warning", "text": "9,876 rows were left out."},
    ]
    run = put_run(visitor, told=told, end=end)
    own = visitor.client.get(f"/runs/{run.name}").text
    numbers = ("1,234", "9,876", *(("56,565", "78,978") if end is FAILED else ()))
    assert all(number in own for number in (*numbers, "Not private"))
    for name in ("vic", "lea", "bob"):
        seen = visitor.browser(name).get(f"/runs/{run.name}").text
        hidden_ = (*numbers, "What it reported")
        assert not any(number in seen for number in hidden_)
        assert ("an owner sees" in seen) == (end != "finished")


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
