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


def test_rows_of_two_sites_are_not_of_one_file(sites, tmp_path, run):
    """They would count twice under one certificate; a link is the same file."""
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    for again in ("a.parquet", "link.parquet"):
        words = ("--site", f"east={tmp_path / again}", "--out", tmp_path / "r")
        status, _, err = run("fit", *sites, *words)
        assert (status, "site north, too" in err, "count twice" in err) == (3, True, True)
        assert not (tmp_path / "r").exists()


def test_ledgers_are_kept_and_refuse_a_second_time(sites, tmp_path, run):
    books, names = tmp_path / "ledgers", ("north", "south", "west")
    words = ("fit", *sites, "-k", 2, "--no-plots", "--ledgers", books, "--out")
    status, _, said = run(*words, tmp_path / "one")
    assert (status, "round 3: 3 sites answered" in said) == (0, True)
    status, _, said = run(*words, tmp_path / "two")
    assert (status, "site north" in said, (tmp_path / "two").exists()) == (5, True, False)
    budget = ("--data-set", "default", "--epsilon", 3, "--delta", 1e-6, "--reason", "again")
    for name in names:
        assert run("ledger", "verify", books / f"{name}.ledger")[0] == 0
        assert run("ledger", "budget", books / f"{name}.ledger", *budget)[0] == 0
    assert run(*words, tmp_path / "two")[0] == 0


def test_what_is_not_as_the_study_or_the_other_sites_have_it_is_refused(sites, tmp_path, run):
    file, out = tmp_path / "study.toml", ("--out", tmp_path / "r")
    names = [w for n in ("north", "south", "west") for w in ("--site", n)]
    words = ("--columns", ",".join(NAMES[:8]), "--components", 3, "--protocol", "sketch")
    assert run("study", "new", file, *names, *words)[0] == 0
    assert run("fit", *sites[:4], "--study", file, *out)[0] == 3  # there are no rows of west
    status, _, error = run("fit", *sites, "--study", file, "--epsilon", 2, *out)
    assert (status, "epsilon is set by the study file" in error) == (3, True)
    np.save(tmp_path / "c.npy", ROWS[:, :10])
    status, _, error = run("fit", *sites, *out)
    assert (status, "site west" in error) == (3, True)


def test_a_site_that_was_lost_before_it_answered_has_its_line(capsys):
    """It would have found: the lead's command ended with a defect after the others had paid."""
    parts = np.split(ROWS[:1500, :4], 3)
    model = FederatedPCA(2, epsilon=5.0, protocol="cape", dropouts=1).fit(parts)
    kept = ("study_", "certificate_", "choice_", "views_", "site_guarantees_")
    shown = {n: getattr(model, n) for n in kept}
    lost = {"traffic_": model.traffic_ | {"site3": Traffic()}, "missing_": {"site3": "no answer"}}
    model = SimpleNamespace(**shown, **lost)
    Screen().show(federation_parts(model))
    line = next(each for each in capsys.readouterr().out.splitlines() if "site3" in each)
    assert line.split("│")[-2].strip() == "none"
    assert federation_values(model)["traffic"]["site3"]["sent_by_step"] == {}


def test_sites_that_count_less_are_said_to_be_held_to_less(sites, tmp_path, run):
    out = tmp_path / "r"
    words = ("-k", 2, "--no-plots", "--weights", "north=1,south=0.5,west=1")
    assert "guarantee, by site" in run.done("fit", *sites, *words, "--out", out)
    assert "guarantee, by site" in run.done("certify", out)
    found = json.loads(run("certify", out, "--json")[1])
    assert found["sites"]["north"] == found["guarantee"]
    assert found["sites"]["south"]["mu"] == pytest.approx(found["guarantee"]["mu"] / 2)
    status, said, _ = run("study", "check", out / "study.toml")
    assert (status, "have a smaller epsilon" in said) == (0, True)
    assert "weight = 0.5" in (out / "study.toml").read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("north=1", "site 'south' has no weight"),
        ("north=1,south=0,west=1", "--weights"),
        ("north=1,south=x,west=1", "'south=x' is not NAME=NUMBER"),
        ("north", "'north' is not NAME=NUMBER"),
        ("north=1,south=1,east=1", "names 'east', which is no site"),
        ("north=1,south=1,west=1e9", "less than 1/1024"),
    ],
)
def test_weights_that_cannot_be_leave_nothing_behind(text, why, sites, tmp_path, run):
    words = ("fit", *sites, "--weights", text, "--out", tmp_path / "r", "--ledgers", tmp_path / "l")
    status, _, error = run(*words)
    assert (status, why in " ".join(error.split())) == (3, True), error
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "l").exists()
