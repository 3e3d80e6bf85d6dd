"""The pages of an analyst: the plan's picture, a fit that is started once, results, the ledger."""

import asyncio
import json
import time
from dataclasses import asdict

import pytest
from console_tools import Visitor, hidden, points, table_desk

from eigenveil.console.jobs import Job
from eigenveil.console.pictures import energy_at, energy_picture, epsilon_at, slide_at


@pytest.fixture
def visitor(tmp_path, monkeypatch):
    found = Visitor(tmp_path)
    found.add()
    found.sign_in()
    started = found.started = []

    async def start(kind, title, words, *, who, about=""):
        started.append((kind, words, who))
        return put_run(found, title)

    monkeypatch.setattr(found.console.jobs, "start", start)
    return found


def put_run(visitor, title, *, status=0, name="20300101000000-0badcafe"):
    place = visitor.console.jobs.folder / name
    place.mkdir(exist_ok=True)
    job = Job(name, "fit", title, (), "ann", time.time(), time.time(), status)
    (place / "job.json").write_text(json.dumps(asdict(job)))
    return job


RESULT = {
    "task": "pca",
    "components": [[0.6, 0.8], [0.8, -0.6]],
    "features": ["age", "<script>"],
    "explained_variance": [3.0, 1.0],
    "explained_variance_ratio": [0.7, 0.2],
    "usable": [True, False],
    "noise_floor": 1.2,
    "releases": [
        {"name": "moment", "values": 3, "noise": "gaussian", "scale": 4.0, "mu": 0.2,
         "epsilon": None}
    ],
    "guarantee": {"epsilon": 1.0, "delta": 1e-6},
    "holds": True,
    "word": "HOLDS",
    "explanation": "It holds.",
    "sentence": "(1, 1e-06)-differential privacy",
    "assumptions": ["rows are of different persons"],
    "caveats": [],
    "views": {"an outsider": {"epsilon": 1.0, "delta": 1e-6, "certified": True},
              "the aggregator": {"epsilon": 1.1, "delta": 1e-6, "certified": True}},
    "downloads": ["model.npz"],
}  # fmt: skip


def test_the_plan_draws_what_was_simulated_and_follows_the_slider(visitor):
    page = visitor.client.get("/plan?rows=1000&slide=50&components=2")
    assert "at epsilon 1" in page.text
    assert "/fit?epsilon=1.0&amp;n_components=2" in page.text
    visitor.client.get("/plan?rows=1000&slide=90&components=2")
    curves = [each for each in visitor.desk.asked if each[0] == "curve"]
    assert len(curves) == 1  # the slider simulates nothing
    assert visitor.client.get("/plan?rows=none&slide=x").status_code == 200


def test_the_slider_goes_over_all_epsilons():
    assert (epsilon_at(0), epsilon_at(50), epsilon_at(100), epsilon_at(900)) == (0.1, 1, 10, 10)
    assert all(slide_at(epsilon_at(each)) in range(each - 1, each + 2) for each in range(101))
    assert energy_at(points(), 1.0) == pytest.approx(points()[2]["energy"])
    assert energy_at(points(), 0.01) is None
    assert "<svg" in energy_picture([], 1.0)


def test_a_fit_is_started_once_by_one_form(visitor):
    page = visitor.client.get("/fit?epsilon=0.5")
    assert 'value="0.5"' in page.text
    form = {name: hidden(page.text, name) for name in ("csrf", "number")}
    form |= {"epsilon": "0.5", "mechanism": "auto", "evil": "--out=/"}
    assert visitor.client.post("/fit", data=form).status_code == 303
    assert visitor.started == [
        ("fit", ["fit", "t.csv", "--out", "{result}", "--epsilon=0.5"], "ann")
    ]
    again = visitor.client.post("/fit", data=form)
    assert again.status_code == 409
    assert "sent before" in again.text
    assert len(visitor.started) == 1
    form["csrf"] = "forged"
    assert visitor.client.post("/fit", data=form).status_code == 403
    assert visitor.logged()[0] == "refused: bad-form"


def test_a_viewer_reads_and_starts_nothing(visitor):
    visitor.add("vic", "viewer", key=False)
    other = visitor.browser()
    visitor.sign_in("vic", client=other)
    page = other.get("/table")
    assert page.status_code == 200
    assert other.get("/fit").status_code == 403
    form = {"csrf": hidden(page.text, "csrf"), "number": "1"}
    assert other.post("/fit", data=form).status_code == 403
    assert visitor.started == []
    assert visitor.logged()[0] == "refused: wrong-role"


def test_a_result_is_shown_with_its_pictures_and_downloads(visitor):
    job = put_run(visitor, "PCA, epsilon 1")
    place = visitor.console.jobs.folder / job.name / "result"
    place.mkdir()
    (place / "model.npz").write_bytes(b"model")
    (visitor.console.jobs.folder / job.name / "errors.txt").write_text("moment: 3 sites answered\n")
    visitor.desk.answers["result"] = RESULT
    page = visitor.client.get(f"/runs/{job.name}")
    assert page.text.count('class="picture"') == 2
    assert "<script>" not in page.text.replace('<script src="/static/htmx.min.js" defer>', "")
    assert "the aggregator" in page.text
    assert visitor.client.get(f"/runs/{job.name}/files/model.npz").content == b"model"
    for wrong in ("../job.json", "job.json", "..%2Fjob.json"):
        assert visitor.client.get(f"/runs/{job.name}/files/{wrong}").status_code == 404
    assert visitor.client.get("/runs/..%2F..").status_code == 404
    put_run(visitor, "other", name="20300101000001-0badcafe")
    (visitor.console.jobs.folder / "20300101000001-0badcafe" / "result").mkdir()
    page = visitor.client.get(f"/runs/compare?run={job.name}&run=20300101000001-0badcafe")
    assert "Degrees" in page.text


def test_a_run_is_a_process_with_what_it_said(tmp_path):
    found = Visitor(tmp_path, desk=table_desk())

    async def run():
        job = await found.console.jobs.start("fit", "none", ["--no-such-option"], who="ann")
        while found.console.jobs.named(job.name).state == "running":
            await asyncio.sleep(0.05)
        return found.console.jobs.named(job.name)

    job = asyncio.run(run())
    assert job.state == "failed"
    assert any("No such option" in line for line in found.console.jobs.lines(job))
