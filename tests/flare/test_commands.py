"""The README's commands between organisations, each party a process of its own, on loopback."""

import json
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_tools import PATIENCE, Place, free_port, until

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from eigenveil.tables.schema import read_schema

SITES = ("north", "south", "west")
NAMES = [f"column {number}" for number in range(6)]


def told(site):
    """What a site's owner declares of the table."""
    own = {"north": "stage", "south": "weight"}[site]
    columns = [*NAMES, own]
    top = {"north": 40, "south": 50}[site]
    text = ['format = "eigenveil-schema-1"']
    for name in columns:
        text += ["[[columns]]", f'name = "{name}"']
        if name == "stage":
            text += ['kind = "category"', 'levels = ["I", "II"]']
        else:
            text += ['kind = "number"', f"range = [-50, {top}]"]
    return "\n".join(text) + "\n"


def study(place, name, *words):
    """A study file of the three sites; every name is another study."""
    sites = [word for site in SITES for word in ("--site", site)]
    targets = ("--components", 2, "--protocol", "cape", *words)
    if "--schema" not in words:
        targets = ("--columns", ",".join(NAMES), *targets)
    place.ok("study", "new", f"{name}.toml", *sites, *targets)
    return f"{name}.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A federation of three sites, whose owners approve every study by hand."""
    place = Place(tmp_path_factory.mktemp("between"))
    random = np.random.default_rng(7)
    for site in SITES:
        rows = random.normal(size=(400, 6)) * (9, 5, 1, 1, 1, 1)
        columns = NAMES if site != "west" else NAMES[::-1]  # matched by name
        values = rows if site != "west" else rows[:, ::-1]
        table = pa.table(list(values.T), names=columns)
        for name, cells in (("who", np.arange(400)), ("stage", random.choice(["I", "II"], 400))):
            table = table.append_column(name, pa.array(cells.astype(str)))  # no features of most
        pq.write_table(table, place.folder / f"{site}.parquet")
    file = study(place, "first")
    place.ok("flare", "provision", file, "--out", "kits", "--port", free_port())
    try:
        place.party("aggregator", "aggregator", "start", "--kit", "kits/aggregator")
        for site in SITES:
            rows = ("--data", f"{site}.parquet", "--ledger", f"{site}.ledger")
            words = ("site", "start", "--kit", f"kits/{site}", *rows, "--budget-epsilon", 4)
            if site != "west":  # its owner keeps both to themselves
                (place.folder / f"{site}.toml").write_text(told(site))
                words += ("--tell-schema", f"{site}.toml")
            else:
                words += ("--keep-decisions",)
            place.party(site, *words)
        for site in SITES:
            place.heard(site, "connected")
        yield place
    finally:
        place.stop()


@contextmanager
def asked(place, name, file, *words):
    """A study run in the background, once every site's owner is asked: its process and job."""
    process = place.start(
        name, "study", "run", file, "--kit", "kits/lead", "--out", f"{name}-result", *words
    )
    try:
        job = until(lambda: re.search(r"job ([0-9a-f-]{36})", place.said(name)), what="job")
        yield process, job[1]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def waiting(place, site="north"):
    found = json.loads(place.ok("site", "approve", "--kit", f"kits/{site}", "--list", "--json"))
    return {each["name"]: each for each in found["waiting"]}


def test_a_study_waits_for_every_owner_and_then_runs(place):
    file = "first.toml"
    with asked(place, "first", file) as (process, job):
        until(lambda: "first" in waiting(place), what="asked of north")
        place.heard("north", "waits for approval: eigenveil site approve --kit")
        one = waiting(place)["first"]
        assert one["cost"]["covered"] is True
        listed = place.ok("site", "approve", "--kit", "kits/north", "--list")
        assert "pca, 2 components of 6 columns" in listed
        assert "(add-remove), covers it; " in " ".join(listed.split())
        status = place.ok("study", "status", "--kit", "kits/lead")
        assert job in status
        assert "waiting" in status
        place.ok("site", "approve", "--kit", "kits/north", one["hash"][:12])
        place.heard("first", "south")  # what is waited for
        assert process.poll() is None
        for site in ("south", "west"):
            until(lambda site=site: "first" in waiting(place, site), what=f"asked of {site}")
            place.ok("site", "approve", "--kit", f"kits/{site}", one["hash"])
        assert process.wait(PATIENCE) == 0, place.said("first")
    said = place.said("first")
    for words in ("2 components of 6 features", "protocol cape, masks modular", "north"):
        assert words in said, words
    result = place.folder / "first-result"
    found = {each.name for each in result.iterdir()}
    assert {"model.npz", "certificate.json", "components.csv", "scree.png", "study.toml"} <= found
    everybody = "signed by the aggregator (localhost) and 3 of 3 sites (north, south, west)"
    assert everybody in said
    checked = place.ok("certify", "first-result", "--root", "kits/lead")
    assert checked.startswith("VALID")
    assert f"signatures: {everybody}, all under the root certificate SHA256:" in checked
    assert "not checked against an authority" in place.ok("certify", "first-result")
    place.ok("flare", "provision", file, "--out", "strangers")
    status, out, _ = place.run("certify", "first-result", "--root", "strangers/lead")
    assert (status, out.startswith("NOT VALID")) == (8, True)
    place.ok("study", "fetch", job, "--kit", "kits/lead", "--out", "fetched", "--no-plots")
    assert place.ok("certify", "fetched", "--root", "kits/lead") == checked
    assert "first" in place.ok("study", "check", "first-result/study.toml")
    sessions = json.loads(place.ok("ledger", "show", "north.ledger", "--json"))["sessions"]
    assert [each["outcome"] for each in sessions] == ["finished"]
    assert "finished" in place.said("north")
    assert json.loads(place.ok("study", "status", job, "--kit", "kits/lead", "--json"))


def test_what_was_approved_runs_again_and_is_charged_again(place):
    for site in SITES:  # one run was approved, and it is used up
        place.ok("site", "approve", "--kit", f"kits/{site}", "first.toml", "--runs", "2")
    before = json.loads(place.ok("ledger", "show", "north.ledger", "--json"))["standings"][0]
    words = ("--kit", "kits/lead", "--out", "again", "--json", "--no-plots")
    found = json.loads(place.ok("study", "run", "first.toml", *words))
    assert len(found["components"]) == 2
    assert set(found["traffic"]) == set(SITES)
    assert found["guarantee"]["certified"] is True
    after = json.loads(place.ok("ledger", "show", "north.ledger", "--json"))["standings"][0]
    assert after["spent_epsilon"] > before["spent_epsilon"]


SCHEMA = """format = "eigenveil-schema-1"

[[columns]]
name = "column 0"
kind = "number"

[[columns]]
name = "stage"
kind = "category"
levels = ["I", "II", "III"]

[[columns]]
name = "who"
role = "identifier"
"""


def test_every_site_reads_its_files_by_the_studys_schema(place):
    (place.folder / "schema.toml").write_text(SCHEMA)
    file = study(place, "by-schema", "--schema", "schema.toml")
    for site in SITES:
        place.ok("site", "approve", "--kit", f"kits/{site}", file)
    words = ("--kit", "kits/lead", "--out", "by-schema-result", "--json", "--no-plots")
    found = json.loads(place.ok("study", "run", file, *words))
    assert len(found["components"][0]) == 4
    result = place.folder / "by-schema-result"
    assert read_schema(result / "schema.toml") == read_schema(place.folder / "schema.toml")
    words = ("transform", "by-schema-result", "west.parquet", "--out", "scores.parquet")
    assert "after who" in " ".join(place.ok(*words).split())
    scores = pq.read_table(place.folder / "scores.parquet")
    assert scores.column_names == ["who", "PC1", "PC2"]
    checked = place.ok("study", "check", file)
    assert "column 0 (number), stage (3 levels)" in " ".join(checked.split())


def test_sites_are_asked_before_a_study_runs(place):
    sites = [word for site in SITES for word in ("--site", site)]
    words = ("--from-sites", "--kit", "kits/lead", "--components", 2, "--protocol", "cape")
    status, _, said = place.run("study", "new", "shared.toml", *sites, *words)
    assert status == 0, said
    assert "column 'stage', column: north: there; south: not there. Common: left out." in said
    assert "range: north: [-50, 40]; south: [-50, 50]. Common: [-50, 50]." in said
    assert "schema not known of west: does not tell it" in said
    found = place.ok("study", "ask", "shared.toml", "--kit", "kits/lead")
    assert found.count("not seen before; waits for its owner now") == 2
    assert "does not say" in found  # west's owner; it is put before them all the same
    assert "not agreed: north, south, west" in found
    for site in SITES:
        place.ok("site", "approve", "--kit", f"kits/{site}", "shared.toml", "--runs", 2)
    found = json.loads(place.ok("study", "ask", "shared.toml", "--kit", "kits/lead", "--json"))
    assert [each["agreed"] for each in found["sites"]] == [True, True, False]
    assert found["sites"][0]["runs"] == 2
    assert [each["name"] for each in found["common_schema"]["columns"]] == NAMES
    words = ("--kit", "kits/lead", "--out", "shared-result", "--no-plots", "--wait-for-sites", 60)
    place.ok("study", "run", "shared.toml", *words)


def test_sites_that_do_not_approve_are_named(place):
    file = study(place, "ignored")
    words = ("--kit", "kits/lead", "--out", "never", "--wait-for-sites", 8)
    status, _, err = place.run("study", "run", file, *words)
    assert status == 6
    assert "not approved" in err
    for site in SITES:
        assert site in err
    assert not (place.folder / "never").exists()


def test_ctrl_c_aborts(place):
    file = study(place, "stopped")
    with asked(place, "stopped", file) as (process, job):
        until(lambda: "stopped" in waiting(place), what="asked of north")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert "aborted" in place.said("stopped")
    assert not (place.folder / "stopped-result").exists()
    states = json.loads(place.ok("study", "status", job, "--kit", "kits/lead", "--json"))
    assert states[job]["state"] == "aborted"


def test_abort_from_elsewhere(place):
    file = study(place, "ended")
    with asked(place, "ended", file) as (process, job):
        until(lambda: "ended" in waiting(place), what="asked of north")
        place.ok("study", "abort", job, "--kit", "kits/lead")
        assert process.wait(30) == 6
    assert "The study was stopped" in place.said("ended")


def test_a_budget_that_does_not_suffice(place):
    file = study(place, "dear", "--epsilon", 20)
    for site in SITES:
        place.ok("site", "approve", "--kit", f"kits/{site}", file)
    status, _, err = place.run("study", "run", file, "--kit", "kits/lead", "--out", "dear")
    assert status == 6
    assert "budget" in err
    place.heard("north", "epsilon = 20 of data set 'default'")
    assert "of data set" not in err  # what is left of a budget is the owner's to know
    assert not (place.folder / "dear").exists()


def test_an_aggregator_that_is_not_there(place):
    kit = place.folder / "moved"
    fields = json.loads((place.folder / "kits/lead/eigenveil-kit.json").read_text())
    subprocess.run(["cp", "-r", place.folder / "kits/lead", kit], check=True)
    (kit / "eigenveil-kit.json").write_text(json.dumps({**fields, "port": 1}))
    admin = kit / "startup/fed_admin.json"
    admin.write_text(admin.read_text().replace(str(fields["port"]), "1"))
    begun = time.monotonic()
    status, _, err = place.run("study", "status", "--kit", kit)
    assert time.monotonic() - begun < 25
    assert status != 0
    assert "localhost:1" in err
    assert "hint:" in err


def test_sites_and_aggregator_stop_when_asked(place):
    begun = time.monotonic()
    for process in place.parties:
        process.terminate()
    assert {process.wait(20) for process in place.parties} == {0}
    assert time.monotonic() - begun < 20
