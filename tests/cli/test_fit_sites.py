"""``eigenveil fit --site``: a study from files to a result, and what is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

from eigenveil import FederatedPCA
from eigenveil.app.fit import federation_parts, federation_values
from eigenveil.cli.presenters.screen import Screen
from eigenveil.federated.running import Traffic

NAMES = [f"p{i}" for i in range(16)]
ROWS = load_digits().data[:, 16:32]


@pytest.fixture
def sites(tmp_path):
    """Three sites, three formats, columns in another order."""
    pq.write_table(pa.table(list(ROWS[:700].T), names=NAMES), tmp_path / "a.parquet")
    south = ROWS[700:1200, ::-1]
    np.savetxt(tmp_path / "b.csv", south, delimiter=",", header=",".join(NAMES[::-1]), comments="")
    np.save(tmp_path / "c.npy", ROWS[1200:])
    given = {"north": "a.parquet", "south": "b.csv", "west": "c.npy"}
    return [w for name, file in given.items() for w in ("--site", f"{name}={tmp_path / file}")]


def test_the_whole_protocol_writes_a_certified_result(sites, tmp_path, run):
    out = tmp_path / "result"
    words = ("--protocol", "cape", "-k", 3, "--epsilon", 2, "--out", out)
    status, said, progress = run("fit", *sites, *words)
    assert status == 0
    for text in ("protocol cape", "north", "aggregator", "guarantee:", "next: eigenveil certify"):
        assert text in said
    assert "round 3: 3 sites answered" in progress
    assert {path.name for path in out.iterdir()} == {
        "model.npz",
        "certificate.json",
        "components.csv",
        "biplot.png",
        "biplot.svg",
        "scree.png",
        "scree.svg",
        "study.toml",
    }
    status, said, _ = run("certify", out)
    assert status == 0
    assert "VALID" in said
    assert "aggregator" in said
    assert run("study", "check", out / "study.toml")[0] == 0
    assert run("show", out)[0] == 0
    assert run("transform", out, sites[1].partition("=")[2], "--out", tmp_path / "s.csv")[0] == 0
    assert FederatedPCA.load(out / "model.npz").guarantee_.certified


def test_rows_of_two_sites_are_not_of_one_file(sites, tmp_path, run):
    """They would count twice under one certificate; a link is the same file."""
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    for again in ("a.parquet", "link.parquet"):
        words = ("--site", f"east={tmp_path / again}", "--out", tmp_path / "r")
        status, _, err = run("fit", *sites, *words)
        assert (status, "site north, too" in err, "count twice" in err) == (3, True, True)
        assert not (tmp_path / "r").exists()


def test_json_has_views_and_traffic(sites, tmp_path, run):
    status, said, _ = run("fit", *sites, "-k", 2, "--json", "--out", tmp_path / "r")
    found = json.loads(said)
    assert status == 0
    assert list(found["views"]) == ["outsider", "site", "aggregator"]
    assert found["traffic"]["north"]["messages"] == 10
    assert found["protocol"] == "cape"


def test_ledgers_are_kept_and_refuse_a_second_time(sites, tmp_path, run):
    books = tmp_path / "ledgers"
    words = ("-k", 2, "--ledgers", books)
    assert run("fit", *sites, *words, "--out", tmp_path / "one")[0] == 0
    status, _, said = run("fit", *sites, *words, "--out", tmp_path / "two")
    assert status == 5
    assert "site north" in said
    assert not (tmp_path / "two").exists()
    for name in ("north", "south", "west"):
        assert run("ledger", "verify", books / f"{name}.ledger")[0] == 0
    budget = ("--data-set", "default", "--epsilon", 3, "--delta", 1e-6, "--reason", "again")
    for name in ("north", "south", "west"):
        assert run("ledger", "budget", books / f"{name}.ledger", *budget)[0] == 0
    assert run("fit", *sites, *words, "--out", tmp_path / "two")[0] == 0


def test_a_study_file_says_what_is_done(sites, tmp_path, run):
    file = tmp_path / "study.toml"
    names = [w for n in ("north", "south", "west") for w in ("--site", n)]
    words = ("--columns", ",".join(NAMES[:8]), "--components", 3, "--protocol", "sketch")
    assert run("study", "new", file, *names, *words)[0] == 0
    status, said, _ = run("fit", *sites[:4], "--study", file, "--out", tmp_path / "r")
    assert status == 3  # there are no rows of west
    words = ("--study", file, "--epsilon", 2, "--out", tmp_path / "r")
    status, _, error = run("fit", *sites, *words)
    assert status == 3
    assert "epsilon is set by the study file" in error
    pq.write_table(pa.table(list(ROWS[1200:].T), names=NAMES), tmp_path / "c.parquet")
    parquet = ["--site", f"west={tmp_path / 'c.parquet'}"]
    status, said, _ = run("fit", *sites[:4], *parquet, "--study", file, "--out", tmp_path / "r")
    assert status == 0
    assert "protocol sketch" in said


def test_a_site_with_other_columns_is_named(sites, tmp_path, run):
    np.save(tmp_path / "c.npy", ROWS[:, :10])
    status, _, error = run("fit", *sites, "--out", tmp_path / "r")
    assert status == 3
    assert "site west" in error


def test_a_site_that_was_lost_before_it_answered_has_its_line(capsys):
    """It would have found: the lead's command ended with a defect after the others had paid."""
    parts = np.split(ROWS[:1500, :4], 3)
    model = FederatedPCA(2, epsilon=5.0, protocol="cape", dropouts=1).fit(parts)
    shown = {n: getattr(model, n) for n in ("study_", "certificate_", "choice_", "views_")}
    lost = {"traffic_": model.traffic_ | {"site3": Traffic()}, "missing_": {"site3": "no answer"}}
    model = SimpleNamespace(**shown, **lost)
    Screen().show(federation_parts(model))
    line = next(each for each in capsys.readouterr().out.splitlines() if "site3" in each)
    assert line.split("│")[-2].strip() == "none"
    assert federation_values(model)["traffic"]["site3"]["sent_by_step"] == {}
