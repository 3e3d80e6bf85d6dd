"""The command line as a new user meets it: what it writes, says, and refuses."""

import json
import re
import shlex
import shutil
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

from eigenveil import PrivatePCA
from eigenveil.app.presenters.pca import PCAPresenter
from eigenveil.cli.app import main
from eigenveil.io import open_rows
from statistics_tools import ended_early

NAMES = [f"p{i}" for i in range(16)]


def digits(folder):
    path = folder / "rows.parquet"
    data = load_digits().data[:, 16:32]
    pq.write_table(pa.table(list(data.T), names=NAMES), path)
    return path


@pytest.fixture
def rows(tmp_path):
    return digits(tmp_path)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, next_ledger):
    next_ledger()  # made before the test's own is named: that of the test before may be spent
    folder = tmp_path_factory.mktemp("fitted")
    words = ("-k", "3", "--epsilon", "2", "--no-plots", "--quiet")
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(digits(folder)), *words, "--out", str(folder / "result")])
    assert ended.value.code == 0
    return folder / "result"


@pytest.fixture
def result(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "result")


def test_certify_does_not_certify_seeded_noise(rows, tmp_path, run):
    run("fit", rows, "--out", tmp_path / "r", "--seed", 1, "--quiet", "--no-plots")
    status, out, _ = run("certify", tmp_path / "r")
    assert status == 8
    assert "seed" in out


@pytest.mark.parametrize(
    "words",
    [
        ("--mechanism", "sketch", "--sketch-size", "9", "-k", "2", "--center", "none"),
        ("--mechanism", "wishart", "--delta", "0", "--row-norm", "auto"),
        ("--task", "covariance", "--adjacency", "replace-one", "--row-bound", "99"),
        ("--task", "covariance", "--budget-split", "scale=0.2,center=0.3,moment=0.5"),
        ("--task", "gaussian-mixture", "--pair", "full", "--noise-variance", "9"),
        ("--task", "topic-model", "--no-clip-documents", "-k", "2"),
    ],
    ids=" ".join,
)
def test_a_plan_names_the_command_that_is_the_planned_fit(words, rows, tmp_path, run, monkeypatch):
    monkeypatch.delenv("EIGENVEIL_FIT_ONE_ROW_PER_PERSON")  # the command answers, too
    shape = ("--rows", "1797", "--features", "16", "--fits", "1")
    out = run.done("plan", *shape, *words)
    _, _, command = " ".join(out.split()).partition("next: eigenveil fit FILES ")
    typed = command.replace(" --out result/", "").split()
    planned = json.loads(run("plan", *shape, *words, "--json")[1])
    planned = planned[0] if isinstance(planned, list) else planned
    out = run.done("fit", rows, *typed, "--out", tmp_path / "r", "--json", "--no-plots")
    assert json.loads(out)["plan_hash"] == planned["plan_hash"]


def test_rows_that_are_not_finite_are_located(tmp_path, run):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 5 + "3,nan\n" + "1,2\n" * 5)
    words = ("fit", path, "-k", 1, "--row-bound", 9, "--epsilon", 9)
    status, out, err = run(*words, "--out", tmp_path / "r")
    assert status == 0
    assert f"warning: 1 row is not valid and was left out: {path}: line 7" in err
    assert "valid" not in out
    text = (tmp_path / "r" / "certificate.json").read_text()
    assert "not valid" not in text


def test_an_existing_folder_is_kept(rows, result, tmp_path, run):
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    run.fails("fit", rows, "--out", other, "--overwrite", status=7)
    assert (other / "mine.txt").read_text() == "keep"


def test_the_next_command_can_be_copied_from_any_screen(rows, tmp_path, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    place = tmp_path / "a result of mine"
    out = run.done("fit", rows, "--out", place, "--no-plots")
    (line,) = (line for line in out.splitlines() if line.startswith("next: "))
    words = shlex.split(line.removeprefix("next: eigenveil"))
    assert words == ["certify", str(place)]
    assert run(*words)[0] == 0


def test_debug_shows_the_traceback(run, capsys):
    assert "Traceback" in run.fails("show", "nowhere", "--debug", status=7)


def test_too_few_rows_give_a_result_that_shows_nothing_and_say_what_would_do(rows, tmp_path, run):
    places = (tmp_path / f"result{number}" for number in range(9))

    def fit():
        place = next(places)
        status, out, err = run("fit", rows, "--epsilon", 0.001, "--no-plots", "--out", place)
        assert status == 0
        return place, out, err

    for place, out, err in ended_early(fit, lambda each: "the fit ended early" in each[1]):
        assert "warning: Too few rows for the budget" in err
        assert " yes " not in out.split("releases:")[0]
        out = run.done("certify", place)
        assert "The fit ended after 1 of 10 releases" in " ".join(out.split())
    told = re.search(r"eigenveil (plan .*--find rows)\.", " ".join(err.split()))
    found = json.loads(run.done(*told[1].split(), "--fits", 2, "--json"))
    assert found["find"] == "rows"


def test_a_file_where_a_result_belongs(tmp_path, run):
    """Neither a number of the system's nor numpy's advice to unpickle strangers' files is shown."""
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,2\n")
    for place, status, said in ((rows, 7, "does not exist"), (tmp_path, 3, "no .npz file")):
        (tmp_path / "model.npz").write_text("a,b\n1,2\n")
        found, _, err = run("show", place)
        assert (found, said in err) == (status, True), err
        assert "pickle" not in err
        assert "Errno" not in err


def test_plan_says_what_it_takes_to_reach_a_quality(run):
    shape = ("plan", "--features", 8, "--components", 2, "--fits", 2)
    out = run.done(*shape, "--rows", 2000, "--quality", 0.9, "--json")
    found = json.loads(out)
    assert found["find"] == "epsilon"
    assert found["verified"]["shows_nothing"]["simulated_fits"] == 2
    assert found["plan"]["epsilon"] == found["epsilon"]
    again = ("--rows", 2000, "--mechanism", "auto", "--json", "--epsilon")
    for factor, reached in ((1.0, True), (0.9, False)):
        planned = json.loads(run(*shape, *again, factor * found["epsilon"])[1])[0]
        assert (planned["captured_energy"] >= 0.9) == reached
    status, out, err = run(*shape, "--quality", 0.9, "--find", "rows", "--epsilon", 0.5)
    assert status == 0
    assert "rows = " in out
    assert "next: eigenveil fit FILES" in out
    assert "tried rows = " in err


def test_covariates_are_named_on_the_command_line(rows, tmp_path, run):
    words = ("--components", 1, "--center", "none", "--covariates", f"{NAMES[3]},{NAMES[5]}")
    out = run.done("fit", rows, *words, "--out", tmp_path / "r", "--json", "--no-plots")
    model = PrivatePCA.load(tmp_path / "r" / "model.npz")
    assert model.plan_.covariates == (3, 5)
    assert model.covariate_effects_.shape == (16, 2)
    shape = ("plan", "--rows", 1797, "--features", 16, "--fits", 1, "--mechanism", "auto")
    planned = json.loads(run(*shape, *words[:-1], "3,5", "--json")[1])[0]
    assert planned["plan_hash"] == json.loads(out)["plan_hash"]
    # a plan has no names: as many columns cost the same
    named = json.loads(run(*shape, *words, "--json")[1])[0]
    assert named["captured_energy"] == planned["captured_energy"]
    assert f"--covariates {NAMES[3]},{NAMES[5]}" in " ".join(run(*shape, *words)[1].split())
    err = run.fails("fit", rows, "--covariates", "age", "--out", tmp_path / "s", status=3)
    assert "'age'" in err


@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_transform_of_no_rows_is_a_table_without_rows(ending, result, tmp_path, run):
    pq.write_table(pa.table([[0.0]] * 16, names=NAMES).slice(1), tmp_path / "none.parquet")
    out = run.done(
        "transform", result, tmp_path / "none.parquet", "--out", tmp_path / f"o.{ending}"
    )
    assert "0 rows x 3 scores" in out
    rows = open_rows([tmp_path / f"o.{ending}"])
    assert (rows.features, sum(len(block.values) for block in rows.blocks())) == (3, 0)


def test_transform_holds_no_more_than_some_blocks(result, rows, tmp_path, run, monkeypatch):
    """It would be all 29 of them if scores were put together before they are written."""
    monkeypatch.setattr("eigenveil.io.open.block_rows", lambda features: 64)
    monkeypatch.setattr("eigenveil.io.write._WRITTEN_ENTRIES", 128)
    alive, counts, usual = [], [], PCAPresenter.new_values

    def noted(self, model, block):
        values = usual(self, model, block)
        alive.append(weakref.ref(values))
        counts.append(sum(each() is not None for each in alive))
        return values

    monkeypatch.setattr(PCAPresenter, "new_values", noted)
    assert "1,797 rows" in run.done("transform", result, rows, "--out", tmp_path / "scores.parquet")
    assert len(counts) == 29
    assert max(counts) <= 3


def test_transform_that_fails_in_the_middle_writes_nothing(
    result, rows, tmp_path, run, monkeypatch
):
    monkeypatch.setattr("eigenveil.io.open.block_rows", lambda features: 64)
    monkeypatch.setattr("eigenveil.io.write._WRITTEN_ENTRIES", 128)
    data = load_digits().data[:, 16:32].copy()
    data[1700, 3] = np.nan
    pq.write_table(pa.table(list(data.T), names=NAMES), tmp_path / "holes.parquet")
    before = set(tmp_path.iterdir())
    err = run.fails(
        "transform", result, tmp_path / "holes.parquet", "--out", tmp_path / "o.csv", status=3
    )
    assert "row 1701, column 'p3' is not a finite number" in " ".join(err.split())
    assert set(tmp_path.iterdir()) == before
