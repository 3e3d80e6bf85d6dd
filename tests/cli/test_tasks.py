"""Every task by one contract of commands: what a fit writes, says and keeps, certified and used."""

import csv
import json
import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import eigenveil
from eigenveil.cli.app import main
from eigenveil.federation.study.file import read_study

NAMES = ["age", "weight", "bmi", "pulse"]
WORDS = [f"word{i}" for i in range(12)]
MEANS = np.array([[0.0, 0, 0, 0], [8, 0, 3, 0], [0, 8, 0, 4]])
SHARES = np.array([0.5, 0.3, 0.2])
PARTS = {"north": slice(0, 2500), "south": slice(2500, 4000), "west": slice(4000, 6000)}
_rng = np.random.default_rng(3)
LABELS = _rng.choice(3, size=6000, p=SHARES)
ROWS = MEANS[LABELS] + _rng.standard_normal((6000, 4))
COUNTS = _rng.multinomial(12, (np.repeat(np.eye(3), 4, axis=1) / 4)[LABELS])


@dataclass(frozen=True)
class Case:
    """A task's options, and what its result has."""

    estimator: str
    tables: dict[str, str]  # Files with a line a feature, and what is in them
    others: set[str]
    figures: tuple[str, ...]
    columns: list[str]  # Of new rows
    values: str  # The method that says them
    words: tuple[str, ...] = ("-k", "3")
    counts: bool = False


CASES = {
    "pca": Case(
        "PrivatePCA", {"components.csv": "components_"}, set(), ("scree", "biplot"),
        ["PC1", "PC2", "PC3"], "transform",
    ),
    "gaussian-mixture": Case(
        "PrivateGaussianMixture", {"means.csv": "means_"}, {"weights.csv"},
        ("strengths", "mixture"), ["component1", "component2", "component3", "likeliest"],
        "predict_proba",
    ),
    "topic-model": Case(
        "PrivateTopicModel", {"topics.csv": "topics_"}, {"weights.csv", "top_words.txt"},
        ("strengths", "topics"), ["topic1", "topic2", "topic3", "likeliest"], "transform",
        counts=True,
    ),
    "covariance": Case(
        "PrivateCovariance", {"covariance.csv": "covariance_"}, set(), ("correlation",),
        ["mahalanobis"], "mahalanobis", words=(),
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("task", CASES)


def words_of(task, folder):
    case = CASES[task]
    named = ("--vocabulary", str(folder / "words.txt")) if case.counts else ()
    return ("--task", task, *case.words, *named)


def file_of(task):
    return "documents.npz" if CASES[task].counts else "rows.parquet"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(list(ROWS.T), names=NAMES), folder / "rows.parquet")
    scipy.sparse.save_npz(folder / "documents.npz", scipy.sparse.csr_array(COUNTS))
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    for name, part in PARTS.items():
        pq.write_table(pa.table(list(ROWS[part].T), names=NAMES), folder / f"{name}.parquet")
        scipy.sparse.save_npz(folder / f"{name}.npz", scipy.sparse.csr_array(COUNTS[part]))
    return folder


@pytest.fixture(scope="module")
def fitted(files):
    """A result of each task, made when it is first wanted."""

    def result(task):
        out = files / task
        if not out.exists():
            rows = str(files / file_of(task))
            words = (*words_of(task, files), "--no-ledger", "--quiet", "--out", str(out))
            with pytest.raises(SystemExit) as ended:
                main(["fit", rows, *words])
            assert ended.value.code == 0
        return out

    return result


@EACH
def test_a_result_is_written_whole(task, fitted):
    case, folder = CASES[task], fitted(task)
    drawn = {f"{name}.{ending}" for name in case.figures for ending in ("png", "svg")}
    written = {"model.npz", "certificate.json", *case.tables, *case.others, *drawn}
    assert {file.name for file in folder.iterdir()} == written
    model = getattr(eigenveil, case.estimator).load(folder / "model.npz")
    assert model.guarantee_.certified
    for name, attribute in case.tables.items():
        with (folder / name).open(newline="") as file:
            _, *lines = csv.reader(file)
        assert [line[0] for line in lines] == (WORDS if case.counts else NAMES)
        held = {repr(float(value)) for value in np.ravel(getattr(model, attribute))}
        assert held <= {cell for line in lines for cell in line}


@EACH
def test_a_fit_tells_people_what_show_tells_again(task, files, tmp_path, run):
    out = tmp_path / "r"
    words = (*words_of(task, files), "--no-plots", "--out", out)
    status, said, err = run("fit", files / file_of(task), *words)
    assert status == 0
    assert "6,000 rows" in err
    assert "next: eigenveil certify" in said
    status, shown, _ = run("show", out)
    assert (status, shown in said, "guarantee:" in shown) == (0, True, True)
    found = json.loads(run("show", out, "--json")[1])
    assert (found["task"], found["guarantee"]["certified"]) == (task, True)


@EACH
def test_certify_holds_and_sees_noise_that_was_made_smaller(task, fitted, tmp_path, run):
    folder = shutil.copytree(fitted(task), tmp_path / "r")
    status, out, _ = run("certify", folder)
    assert (status, out.startswith("VALID")) == (0, True)
    path = folder / "certificate.json"
    text = json.loads(path.read_text())
    text["releases"][-1]["noise"]["scale"] /= 2
    path.write_text(json.dumps(text))
    status, out, _ = run("certify", folder)
    assert (status, "NOT VALID" in out) == (8, True)
    assert json.loads(run("certify", folder, "--json")[1])["holds"] is False


@EACH
def test_new_rows_are_read_by_name(task, fitted, tmp_path, run):
    case = CASES[task]
    names, values = (WORDS, COUNTS[:60]) if case.counts else (NAMES, ROWS[:60])
    new = np.column_stack([np.zeros(60), values[:, ::-1]])
    header = ",".join(["other", *names[::-1]])
    np.savetxt(tmp_path / "new.csv", new, delimiter=",", header=header, comments="", fmt="%.17g")
    out = tmp_path / "new.parquet"
    assert "60 rows x " in run.done("transform", fitted(task), tmp_path / "new.csv", "--out", out)
    found = pq.read_table(out)
    assert found.column_names == case.columns
    model = getattr(eigenveil, case.estimator).load(fitted(task) / "model.npz")
    frame = pd.DataFrame(values, columns=names)
    expected = np.asarray(getattr(model, case.values)(frame)).reshape(60, -1)
    for name, column in zip(case.columns, expected.T, strict=False):
        assert np.allclose(found[name], column)
    if "likeliest" in case.columns:
        assert np.array_equal(np.asarray(found["likeliest"]) - 1, expected.argmax(axis=1))


def test_a_failure_while_writing_leaves_nothing(files, tmp_path, run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eigenveil.plots.save_figure", full)
    (tmp_path / "out").mkdir()
    words = (*words_of("pca", files), "--out", tmp_path / "out" / "r")
    assert run("fit", files / file_of("pca"), *words)[0] != 0
    assert list((tmp_path / "out").iterdir()) == []


def test_an_existing_result_is_kept_or_replaced_whole(fitted, files, tmp_path, run):
    folder = shutil.copytree(fitted("gaussian-mixture"), tmp_path / "r")
    before = (folder / "certificate.json").read_bytes()
    words = (*words_of("topic-model", files), "--no-plots", "--out", folder)
    fit = ("fit", files / "documents.npz", *words)
    status, _, err = run(*fit)
    assert (status, "exists" in err) == (7, True)
    assert (folder / "certificate.json").read_bytes() == before
    assert run(*fit, "--overwrite", "--quiet")[0] == 0
    assert (folder / "topics.csv").exists()
    assert not (folder / "means.csv").exists()


@EACH
def test_sites_find_it_together_and_a_study_says_the_task(task, files, tmp_path, run):
    case, out, study = CASES[task], tmp_path / "r", tmp_path / "s.toml"
    ending = "npz" if case.counts else "parquet"
    sites = [w for name in PARTS for w in ("--site", f"{name}={files / name}.{ending}")]
    named = ("--vocabulary", files / "words.txt") if case.counts else ("--columns", ",".join(NAMES))
    words = ("--task", task, *case.words, *named)
    new = ("study", "new", study, *(w for name in PARTS for w in ("--site", name)))
    assert run(*new, *words, "--quiet")[0] == 0
    assert (read_study(study).task, len(read_study(study).columns)) == (
        task,
        12 if case.counts else 4,
    )
    fit = ("fit", *sites, "--study", study, "--no-plots", "--ledgers", tmp_path / "l", "--out", out)
    other = "pca" if task != "pca" else "covariance"
    status, _, err = run(*fit, "--task", other)
    assert (status, "task is set by the study file" in err) == (3, True)
    said = run.done(*fit)
    assert all(words in said for words in ("protocol", "north", "aggregator"))
    assert "aggregator" in run.done("certify", out)
    assert run("ledger", "verify", tmp_path / "l" / "north.ledger")[0] == 0
    assert read_study(out / "study.toml").task == task
    assert json.loads(run("show", out, "--json")[1])["task"] == task
    found = json.loads(
        run("study", "plan", out / "study.toml", "--rows", 6000, "--fits", 1, "--json")[1]
    )
    assert found["forecasts"]
