"""Mixtures and topics on the command line: new rows, plans, and what studies of them say."""

import json

import numpy as np
import pytest
import scipy.sparse

from eigenveil import PrivateGaussianMixture, PrivateTopicModel
from eigenveil.cli.app import main
from eigenveil.planning.tensors import expect
from plan_tools import plan_of

WORDS = [f"word{i}" for i in range(12)]
TOPICS = ("--task", "topic-model")
USUAL = {"epsilon": 1.0, "delta": 1e-6}
_rng = np.random.default_rng(4)
ABOUT = _rng.choice(3, size=3000, p=[0.5, 0.3, 0.2])
COUNTS = _rng.multinomial(12, (np.repeat(np.eye(3), 4, axis=1) / 4)[ABOUT])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Documents, their words, and topics of them."""
    folder = tmp_path_factory.mktemp("topics")
    scipy.sparse.save_npz(folder / "documents.npz", scipy.sparse.csr_array(COUNTS))
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    words = ("-k", "3", "--vocabulary", f"{folder}/words.txt", "--out", f"{folder}/topics")
    with pytest.raises(SystemExit) as ended:
        main(["fit", f"{folder}/documents.npz", *TOPICS, *words, "--no-plots", "--quiet"])
    assert ended.value.code == 0
    return folder


def test_documents_of_any_length_have_topics(files, tmp_path, run):
    """Of none at all those of all documents."""
    counts = np.vstack([COUNTS[:40], np.eye(1, 12, 5, dtype=int), np.zeros((1, 12), int)])
    np.save(tmp_path / "new.npy", counts)
    words = ("transform", files / "topics", tmp_path / "new.npy", "--quiet")
    assert run(*words, "--out", tmp_path / "p.npy")[0] == 0
    found = np.load(tmp_path / "p.npy")
    assert np.array_equal(found[:40, 3] - 1, ABOUT[:40])
    assert found[40, 3] == 2
    weights = PrivateTopicModel.load(files / "topics" / "model.npz").weights_
    assert np.allclose(found[41, :3], weights)


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize(
    ("value", "said"), [(-1.0, "is negative"), (np.nan, "is not a finite number")]
)
def test_transform_locates_what_is_no_count(value, said, ending, files, tmp_path, run):
    counts = COUNTS[:9].astype(float)
    counts[6, 2] = value
    new, out = tmp_path / f"new.{ending}", tmp_path / "p.csv"
    if ending == "npy":
        np.save(new, counts)
    else:
        scipy.sparse.save_npz(new, scipy.sparse.csr_array(counts))
    status, _, err = run("transform", files / "topics", new, "--out", out)
    assert (status, out.exists()) == (3, False)
    assert f"new.{ending}: row 7, column 'word2' {said}" in err


def test_what_cannot_be_read_by_a_vocabulary_or_a_model_is_refused(files, tmp_path, run):
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    words = ("--vocabulary", tmp_path / "few.txt", "--out", tmp_path / "r")
    documents = files / "documents.npz"
    status, _, err = run("fit", documents, *TOPICS, *words)
    assert (status, f"{documents} has 12 columns, and there are 2 names" in err) == (3, True)
    status, _, err = run("fit", documents, *TOPICS, *words, "--columns", "a")
    assert (status, "both say which columns" in err) == (2, True)
    np.save(tmp_path / "wide.npy", np.ones((3, 5)))
    words = ("transform", files / "topics", tmp_path / "wide.npy", "--out", tmp_path / "p.csv")
    status, _, err = run(*words)
    assert (status, "5 columns, the model 12" in err) == (3, True)


# -- plans


@pytest.mark.parametrize("task", ["gaussian-mixture", "topic-model"])
def test_plan_says_what_is_released_and_what_is_seen(task, run):
    shape = ("plan", "--task", task, "--rows", 20000, "--features", 30, "--fits", 1, "-k", 4)
    out = run.done(*shape)
    for words in ("pair moment", "triple moment", "guarantee: (1, 1e-6)", "just above the noise"):
        assert words in out
    found = json.loads(run(*shape, "--json")[1])
    assert found["guarantee"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert [each["weight"] for each in found["needs"]] == [0.5, 0.25, 0.2, 0.1, 0.05, 0.02]
    values = {each["name"]: each["values"] for each in found["releases"]}
    assert values["triple moment"] == 20
    assert task == "topic-model" or values["sums 4"] == 4 * (30 + 2)  # means, rows, traces


def all_found(model, count):
    return bool(model.n_components_ == count and model.usable_.all())


def test_the_planned_distance_is_about_right():
    # strengths go with the square of the distance: a quarter, and four times what is needed
    features, count, rows = 40, 4, 20000
    plan = plan_of("gaussian-mixture", features=features, n_components=count, **USUAL)
    distance = expect(plan, rows).distance(1 / count)
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
    plan = plan_of("topic-model", features=features, n_components=count, **USUAL)
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


def test_a_study_of_topics_is_checked_and_planned(files, tmp_path, run):
    file = tmp_path / "s.toml"
    names = [word for name in ("north", "south", "west") for word in ("--site", name)]
    vocabulary = ("--vocabulary", files / "words.txt", "--collusion", 1)
    assert run("study", "new", file, *names, *TOPICS, *vocabulary)[0] == 0
    documents = ("--site", f"north={files / 'documents.npz'}")
    out = run.done("study", "check", file, *documents)
    for words in ("at most 11", "triple moment", "topic-model", "against the agg", "by number"):
        assert words in out
    out = run.done("study", "plan", file, "--rows", 6000, "--fits", 1, "--topic-words", 1)
    for words in ("cape *", "sketch", "local", "pair moment", "words at most", "against"):
        assert words in out
    assert "energy" not in out
    found = json.loads(run("study", "plan", file, "--fits", 1, "--json")[1])
    assert found["round_bytes"] == [8 * 323, 8 * 78, 8 * 323, 8 * 286]
    assert found["needs"] is None
    assert {each["protocol"] for each in found["forecasts"]} == {"cape", "sketch", "local"}
    status, _, err = run("study", "plan", file, "--spectrum", "power:1")
    assert (status, "--spectrum" in err) == (2, True)
