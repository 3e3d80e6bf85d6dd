"""Mixtures and topics on the command line: from files to a result, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse

from eigenveil import PrivateGaussianMixture, PrivateTopicModel
from eigenveil.planning.tensors import expect
from plan_tools import plan_of

NAMES = ["age", "weight", "bmi", "pulse"]
MEANS = np.array([[0.0, 0, 0, 0], [8, 0, 3, 0], [0, 8, 0, 4]])
SHARES = np.array([0.5, 0.3, 0.2])
WORDS = [f"word{i}" for i in range(12)]
MIXTURE = ("--task", "gaussian-mixture")
TOPICS = ("--task", "topic-model")
PARTS = {"north": slice(0, 2500), "south": slice(2500, 4000), "west": slice(4000, 6000)}


def _rows():
    rng = np.random.default_rng(3)
    labels = rng.choice(3, size=6000, p=SHARES)
    return MEANS[labels] + rng.standard_normal((6000, 4)), labels


def _documents():
    rng = np.random.default_rng(4)
    labels = rng.choice(3, size=6000, p=SHARES)
    topics = np.repeat(np.eye(3), 4, axis=1) / 4
    return rng.multinomial(12, topics[labels]), labels


ROWS, KINDS = _rows()
COUNTS, ABOUT = _documents()


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(list(ROWS.T), names=NAMES), path)
    return path


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "documents.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(COUNTS))
    return path


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


@pytest.fixture
def mixture(rows, tmp_path, run):
    folder = tmp_path / "mixture"
    assert run("fit", rows, *MIXTURE, "-k", 3, "--out", folder, "--quiet")[0] == 0
    return folder


@pytest.fixture
def topics(documents, vocabulary, tmp_path, run):
    folder = tmp_path / "topics"
    words = ("-k", 3, "--vocabulary", vocabulary, "--out", folder, "--quiet")
    assert run("fit", documents, *TOPICS, *words)[0] == 0
    return folder


# -- results


def test_fewer_above_the_noise_than_wished_are_said(rows, tmp_path, run):
    status, out, _ = run("fit", rows, *MIXTURE, "-k", 4, "--row-bound", 60, "--epsilon", 0.05,
                         "--out", tmp_path / "r")  # fmt: skip
    assert status == 0
    said = ("of the 4 components requested stand", "the fit ended early", "not usable")
    assert any(words in " ".join(out.split()) for words in said)


# -- new rows


@pytest.mark.parametrize("ending", ["npz", "npy", "mtx", "csv"])
def test_transform_takes_documents_of_any_length_and_form(ending, topics, tmp_path, run):
    counts = np.vstack([COUNTS[:40], np.eye(1, 12, 5, dtype=int), np.zeros((1, 12), int)])
    path = tmp_path / f"new.{ending}"
    match ending:
        case "npz":
            scipy.sparse.save_npz(path, scipy.sparse.csr_array(counts))
        case "npy":
            np.save(path, counts)
        case "mtx":
            scipy.io.mmwrite(path, scipy.sparse.coo_array(counts))
        case _:  # in another order
            text = ",".join(WORDS[::-1])
            np.savetxt(path, counts[:, ::-1], delimiter=",", header=text, comments="")
    status, _, _ = run("transform", topics, path, "--out", tmp_path / "p.npy", "--quiet")
    assert status == 0
    found = np.load(tmp_path / "p.npy")
    model = PrivateTopicModel.load(topics / "model.npz")
    assert found.shape == (42, 4)
    assert np.array_equal(found[:40, 3] - 1, ABOUT[:40])
    assert found[40, 3] == 2
    assert np.allclose(found[41, :3], model.weights_)


def test_transform_locates_what_is_no_count(topics, mixture, tmp_path, run):
    counts = COUNTS[:9].astype(float)
    for value, said in ((-1.0, "is negative"), (np.nan, "is not a finite number")):
        counts[6, 2] = value
        for name, save in (
            ("new.npy", lambda path: np.save(path, counts)),
            ("new.npz", lambda path: scipy.sparse.save_npz(path, scipy.sparse.csr_array(counts))),
        ):
            save(tmp_path / name)
            out = tmp_path / "p.csv"
            status, _, err = run("transform", topics, tmp_path / name, "--out", out)
            assert status == 3
            assert f"{name}: row 7, column 'word2' {said}" in err
            assert not out.exists()
    np.save(tmp_path / "wide.npy", np.ones((3, 5)))
    status, _, err = run("transform", mixture, tmp_path / "wide.npy", "--out", tmp_path / "p.csv")
    assert status == 3
    assert "5 columns, the model 4" in err


# -- what is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((7, 3, -2), "row 8, column 'word3' is counted -2 times"),
        ((7, 3, 0.5), "row 8, column 'word3' is counted 0.5 times"),
        ((7, 3, np.inf), "row 8, column 'word3' is counted inf times"),
        ((9, slice(None), 2**24), "row 10 is a document of "),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_counts_that_cannot_be_are_located(change, said, ending, vocabulary, tmp_path, run):
    counts = COUNTS[:50].astype(float)
    counts[change[0], change[1]] = change[2]
    path = tmp_path / f"bad.{ending}"
    if ending == "npy":
        np.save(path, counts)
    else:
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(counts))
    words = ("--vocabulary", vocabulary, "--out", tmp_path / "r")
    status, _, err = run("fit", path, *TOPICS, *words)
    assert status == 0
    assert f"{path}: {said}" in err


def test_a_vocabulary_that_does_not_fit(documents, tmp_path, run):
    path = tmp_path / "few.txt"
    path.write_text("one\ntwo\n")
    words = ("--vocabulary", path, "--out", tmp_path / "r")
    status, _, err = run("fit", documents, *TOPICS, *words)
    assert status == 3
    assert f"{documents} has 12 columns, and there are 2 names" in err
    status, _, err = run("fit", documents, *TOPICS, *words, "--columns", "a")
    assert status == 2
    assert "both say which columns" in err


# -- sites


# -- plans


def mixture_plan(features, components, rows):
    return plan_of(
        "gaussian-mixture",
        features=features, n_components=components, epsilon=1.0, delta=1e-6,
        mechanism="auto", adjacency="add-remove", pair="auto", noise_variance=None,
        row_bound=None, center=True, budget_split=None, sketch_size=None,
    )  # fmt: skip


def topic_plan(features, topics, rows):
    return plan_of(
        "topic-model",
        features=features, n_components=topics, epsilon=1.0, delta=1e-6,
        mechanism="auto", adjacency="add-remove", pair="auto", budget_split=None, sketch_size=None,
    )  # fmt: skip


@pytest.mark.parametrize("task", ["gaussian-mixture", "topic-model"])
def test_plan_says_what_is_released_and_what_is_seen(task, run):
    shape = ("plan", "--task", task, "--rows", 20000, "--features", 30, "--fits", 1)
    status, out, _ = run(*shape)
    assert status == 0
    for words in ("pair moment", "triple moment", "guarantee: (1, 1e-06)", "just above the noise"):
        assert words in out
    status, out, _ = run(*shape, "-k", 4, "--json")
    found = json.loads(out)
    assert found["guarantee"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert [each["weight"] for each in found["needs"]] == [0.5, 0.25, 0.2, 0.1, 0.05, 0.02]
    values = {each["name"]: each["values"] for each in found["releases"]}
    assert values["triple moment"] == 20
    assert task == "topic-model" or values["sums 4"] == 4 * (30 + 2)  # means, rows, traces
    assert run(*shape, "--delta", 0, "--quiet")[0] == 0


@pytest.mark.parametrize("kind", ["diag", "full", "tied"])
def test_plan_of_other_shapes_has_candidates_in_place_of_a_tensor(kind, run):
    shape = ("--rows", 20000, "--features", 6, "-k", 4, "--covariance-type", kind, "--json")
    status, out, _ = run("plan", *MIXTURE, *shape)
    assert status == 0
    values = {each["name"]: each["values"] for each in json.loads(out)["releases"]}
    assert "triple moment" not in values
    assert values["candidates 1"] <= 16 * 7
    squares = {"diag": 4 * 6, "full": 4 * 21, "tied": 21}[kind]
    assert values["sums 3"] == 4 * 7 + squares


def test_plan_records_what_a_fit_records(documents, tmp_path, run):
    fit = json.loads(
        run("fit", documents, *TOPICS, "-k", 3, "--no-plots", "--json", "--out", tmp_path / "r")[1]
    )
    words = (
        "--rows",
        6000,
        "--features",
        12,
        "-k",
        3,
        "--document-words",
        12,
        "--fits",
        1,
        "--topic-words",
        4,
    )
    words = (*words, "--json")
    planned = json.loads(run("plan", *TOPICS, *words)[1])["releases"]
    for plan, done in zip(planned, fit["releases"], strict=True):
        assert [plan[key] for key in ("name", "values", "noise", "mu")] == [
            done[key] for key in ("name", "values", "noise", "mu")
        ]
        assert plan["sensitivity"] == pytest.approx(done["sensitivity"], rel=0.01)


def all_found(model, count):
    return bool(model.n_components_ == count and model.usable_.all())


def test_the_planned_distance_is_about_right():
    # strengths go with the square of the distance: a quarter, and four times what is needed
    features, count, rows = 40, 4, 20000
    distance = expect(mixture_plan(features, count, rows), rows).distance(1 / count)
    rng = np.random.default_rng(5)
    corners = np.eye(count, features) - np.eye(count, features).mean(axis=0)
    corners /= np.linalg.norm(corners[0])
    labels = np.arange(rows) % count
    noise = rng.standard_normal((rows, features))
    for factor, seen in ((0.5, False), (2.0, True)):
        model = PrivateGaussianMixture(count)
        model.fit(factor * distance * corners[labels] + noise)
        assert all_found(model, count) == seen


@pytest.mark.thorough
def test_the_planned_words_are_about_right():
    features, count, rows, length = 600, 4, 2000, 15
    plan = topic_plan(features, count, rows)
    words = expect(plan, rows, document_words=length).words(1 / count, rows)
    rng = np.random.default_rng(6)
    for factor, seen in ((4.0, False), (0.4, True)):
        width = round(factor * words)
        assert width * count <= features
        own = rng.integers(width, size=(rows, length))
        places = (np.arange(rows) % count * width)[:, None] + own
        counts = scipy.sparse.csr_array(
            (np.ones(places.size), places.ravel(), np.arange(0, places.size + 1, length)),
            shape=(rows, features),
        )
        # one fit in fifty or so sees fewer: five of nine do with a chance of 4e-7
        fits = [PrivateTopicModel(count).fit(counts) for _ in range(9)]
        assert (sum(all_found(model, count) for model in fits) >= 5) == seen


def test_study_plan_counts_bytes_and_says_what_is_seen(vocabulary, tmp_path, run):
    file = tmp_path / "s.toml"
    names = [word for name in PARTS for word in ("--site", name)]
    new = ("study", "new", file, *names, *TOPICS, "--vocabulary", vocabulary, "--collusion", 1)
    assert run(*new)[0] == 0
    status, out, _ = run("study", "check", file)
    assert status == 0
    for words in ("at most 11", "triple moment", "topic-model", "against the aggregator"):
        assert words in out
    status, out, _ = run("study", "plan", file, "--rows", 6000, "--fits", 1, "--topic-words", 1)
    assert status == 0
    for words in ("cape *", "sketch", "local", "pair moment", "words at most", "against"):
        assert words in out
    assert "energy" not in out
    found = json.loads(run("study", "plan", file, "--json")[1])
    assert found["round_bytes"] == [8 * 323, 8 * 78, 8 * 323, 8 * 286]
    assert found["needs"] is None
    assert {each["protocol"] for each in found["forecasts"]} == {"cape", "sketch", "local"}
    status, _, err = run("study", "plan", file, "--spectrum", "power:1")
    assert status == 2
    assert "--spectrum" in err


def test_study_check_looks_at_files_without_names(vocabulary, documents, tmp_path, run):
    file = tmp_path / "s.toml"
    new = ("study", "new", file, "--site", "a", *TOPICS, "--vocabulary", vocabulary)
    assert run(*new, "--quiet")[0] == 0
    status, out, _ = run("study", "check", file, "--site", f"a={documents}")
    assert status == 0
    assert "by number" in out
