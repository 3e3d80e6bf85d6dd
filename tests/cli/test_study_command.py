"""``eigenveil study`` as a consortium meets it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eigenveil.app.presenters.study import adversaries
from eigenveil.federation.study.file import read_study
from eigenveil.federation.study.study import make_study

NAMES = ["age", "weight", "bmi", "pulse"]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "north.parquet"
    values = np.arange(40.0).reshape(4, 10)
    pq.write_table(pa.table(list(values), names=NAMES), path)
    return path


@pytest.fixture
def file(tmp_path, rows, run):
    path = tmp_path / "trial.toml"
    sites = [word for name in ("north", "south", "east", "west") for word in ("--site", name)]
    run.done("study", "new", path, *sites, "--from", rows, "--quiet")
    return path


def test_new_writes_a_study_that_names_its_protocol(tmp_path, rows, run):
    path = tmp_path / "my trial.toml"
    out = run.done(
        *("study", "new", path, "--site", "north", "--site", "south", "--from", rows),
        *("-k", 3, "--epsilon", 2, "--collusion", 1, "--row-norm", 5),
        *("--site-epsilon", "south=0.5", "--weights", "north=3, south=2"),
    )
    made = read_study(path)
    assert made.name == "my-trial"
    assert made.columns == tuple(NAMES)
    assert (made.components, made.epsilon, made.row_norm) == (3, 2.0, 5.0)
    assert [site.epsilon for site in made.sites] == [None, 0.5]
    assert [site.weight for site in made.sites] == [3.0, 2.0]
    assert made.protocol == "cape"
    assert made.hash in out
    assert "next: eigenveil study check" in out
    assert "# " in path.read_text()


def test_new_takes_columns_features_or_a_file(tmp_path, run):
    np.save(tmp_path / "rows.npy", np.ones((3, 6)))
    cases = (("--columns", "a,b, c"), 3), (("--features", 5), 5), (("--from", "rows.npy"), 6)
    for index, (words, width) in enumerate(cases):
        words = [tmp_path / word if word == "rows.npy" else word for word in words]
        path = tmp_path / f"s{index}.toml"
        out = run.done("study", "new", path, "--site", "a", *words, "--json")
        assert json.loads(out)["features"] == read_study(path).width == width


def test_new_keeps_an_existing_file(file, run):
    before = file.read_text()
    words = ("study", "new", file, "--site", "a", "--features", 3)
    assert "exists" in run.fails(*words, status=7)
    assert file.read_text() == before
    run.done(*words, "--overwrite", "--quiet")
    assert read_study(file).width == 3


def test_check_says_what_the_study_means(file, run):
    status, out, err = run("study", "check", file)
    assert (status, err) == (0, "")
    made = read_study(file)
    for words in ("age, weight, bmi, pulse", "cape", "north", "4 sites", made.hash, "against"):
        assert words in out
    status, out, _ = run("study", "check", file, "--json")
    found = json.loads(out)
    assert found["hash"] == made.hash
    assert found["honest_sites"] == 4
    assert [site["weight"] for site in found["sites"]] == [1.0] * 4
    assert found["adversaries"][0]["protected"] is True
    status, out, _ = run("study", "check", file, "--quiet")
    assert (status, out) == (0, "")


def test_check_explains_dropouts_wishes_and_automatic_choices(file, run):
    text = file.read_text().replace('protocol = "cape"', 'protocol = "auto"')
    text = text.replace("dropouts = 0", "dropouts = 1").replace("delta = 1e-06", "delta = 0.0")
    text = text.replace('name = "west"', 'name = "west"\nepsilon = 0.25')
    file.write_text(text)
    out = run.done("study", "check", file)
    for words in ("delta = 0 is proved", "3 of 4 sites", "3 are needed", "Wishart", "0.249"):
        assert words in out


def test_check_looks_at_sites_files(file, rows, tmp_path, run):
    assert "all 4 columns are there" in run.done("study", "check", file, "--site", f"north={rows}")
    bad = tmp_path / "south.csv"
    bad.write_text("age,weight,bmi\n1,2,3\n")
    text = tmp_path / "east.csv"
    text.write_text("age,weight,bmi,pulse\n1,2,3,fast\n")
    status, out, err = run(
        *("study", "check", file, "--site", f"north={rows}", "--site", f"south={bad}"),
        *("--site", f"east={text}", "--site", f"west={tmp_path / 'none.csv'}"),
    )
    assert status == 3
    assert out == ""
    assert "site 'south'" in err
    assert "no column 'pulse'" in err
    assert "site 'east'" in err
    assert "column 'pulse' is of texts, as most of its first lines show" in err
    assert "site 'west'" in err
    assert "does not exist" in err
    assert "site 'north'" not in err


def test_check_counts_columns_without_names(tmp_path, run):
    path = tmp_path / "s.toml"
    run("study", "new", path, "--site", "a", "--features", 4, "--quiet")
    for width, expected in ((4, 0), (5, 3)):
        np.save(tmp_path / "a.npy", np.ones((3, width)))
        status, _, err = run("study", "check", path, "--site", f"a={tmp_path / 'a.npy'}")
        assert status == expected
    assert "site 'a'" in err
    assert "5 columns, and the study or the other sites 4" in err


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (("components = 2", "componets = 2"), 3, "Did you mean 'components'?"),
        (("components = 2", "components = two"), 3, "line "),
        (("collusion = 0", "collusion = 4"), 4, "1 too few"),
        (('name = "south"', 'name = "north"'), 3, "'north' is there twice"),
        (("epsilon = 1.0", "epsilon = 'much'"), 4, "epsilon = 'much'"),
    ],
)
def test_a_wrong_file_is_located(change, status, said, file, run):
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change))
    for command in ("check", "plan"):
        code, out, err = run("study", command, file)
        assert code == status
        assert out == ""
        assert "trial.toml" in err
        assert said in err
        assert "Traceback" not in err


def test_plan_compares_all_protocols_and_says_which_cannot_be(file, run):
    words = ("study", "plan", file, "--fits", 2)
    out = run.done(*words, "--rows", 2000)
    for said in ("pooled", "cape *", "sketch", "dpdispca", "full", "local", "against the aggreg"):
        assert said in out
    found = json.loads(run(*words, "--rows", 2000, "--json")[1])
    by_name = {each["protocol"]: each for each in found["forecasts"]}
    assert set(by_name) == {"pooled", "cape", "sketch", "dpdispca", "full", "local"}
    assert [name for name, each in by_name.items() if each["chosen"]] == ["cape"]
    assert by_name["cape"]["message_bytes"] == 80
    assert 0 < by_name["cape"]["captured_energy"] <= 1
    assert "give --rows" in run(*words)[1]  # the study expects none
    text = file.read_text().replace("# expected_rows = 100000", "expected_rows = 1000")
    file.write_text(text.replace("delta = 1e-06", "delta = 0.0"))
    out = run(*words)[1]
    assert ("1,000 rows" in out, "give --rows" in out) == (True, False)
    found = json.loads(run(*words, "--json")[1])
    sketch = next(each for each in found["forecasts"] if each["protocol"] == "sketch")
    assert (sketch["message_bytes"], "delta = 0" in sketch["note"]) == (None, True)


def test_schema_is_printed_and_written(tmp_path, run):
    out = run.done("study", "schema")
    assert json.loads(out)["properties"]["epsilon"]["exclusiveMinimum"] == 0
    path = tmp_path / "schema.json"
    run.done("study", "schema", "--out", path)
    assert json.loads(path.read_text()) == json.loads(out)
    assert "exists" in run.fails("study", "schema", "--out", path, status=7)


def test_adversaries_are_counted():
    def found(**changes):
        usual = {"name": "t", "features": 4, "components": 1}
        sites = [{"name": f"s{i}"} for i in range(9)]
        made = make_study(**(usual | {"sites": sites} | changes))
        return {each.name: (each.honest, each.protected) for each in adversaries(made)}

    assert found(collusion=2, dropouts=2) == {
        "anyone who sees the result": (7, True),
        "another site of the study": (6, True),
        "the aggregator": (7, True),
        "the aggregator together with up to 2 other sites": (5, True),
        "the aggregator together with 3 or more sites": (4, False),
    }
    assert found()["another site of the study"] == (8, False)
    helped = found(masks="helper")
    assert helped["the helper together with the aggregator"] == (1, False)
    assert helped["the helper, with the result"] == (9, True)
    assert found(protocol="local") == {
        "anyone who sees the result": (1, True),
        "the aggregator": (1, True),
    }
    assert "the aggregator together with 9 or more sites" not in found(collusion=8)


def test_a_study_says_which_epsilon_reaches_a_quality(tmp_path, run):
    file = tmp_path / "study.toml"
    sites = ("--site", "a", "--site", "b", "--site-epsilon", "b=0.3")
    run("study", "new", file, *sites, "--features", 8, "--components", 2)
    words = ("study", "plan", file, "--fits", 2, "--quality", 0.9)
    out = run.done(*words, "--rows", 5000, "--json")
    found = json.loads(out)
    assert found["reached"]
    assert found["predicted"]["quality"] >= 0.9
    # the study of that epsilon is predicted so, and one of less is not
    for factor, reached in ((1.0, True), (0.9, False)):
        text = file.read_text().replace("epsilon = 1.0", f"epsilon = {factor * found['epsilon']}")
        text = text.replace("epsilon = 0.3", f"epsilon = {min(0.3, factor * found['epsilon'])}")
        changed = tmp_path / f"{factor}.toml"
        changed.write_text(text)
        words = ("study", "plan", changed, "--rows", 5000, "--fits", 2, "--json")
        forecasts = json.loads(run(*words)[1])["forecasts"]
        chosen = next(each for each in forecasts if each["chosen"])
        assert (chosen["captured_energy"] >= 0.9) == reached
        assert chosen["shows_nothing"]["simulated_fits"] == 2


@pytest.mark.parametrize("task", ["pca", "covariance"])
def test_a_study_within_sites_is_planned_with_what_the_means_cost(task, tmp_path, run):
    qualities, files = [], {"plain": (), "within": ("--within-sites",)}
    for name, words in files.items():
        file = tmp_path / f"{name}.toml"
        sites = ("--site", "a", "--site", "b", "--features", 8, "--task", task)
        assert run("study", "new", file, *sites, *words)[0] == 0
        out = run.done("study", "plan", file, "--rows", 2000, "--fits", 4, "--json")
        chosen = next(each for each in json.loads(out)["forecasts"] if each["chosen"])
        qualities.append(chosen["captured_energy"])
    assert task == "covariance" or qualities[1] < qualities[0]
    out = run("study", "check", file)[1]
    assert "Each site's mean and number of rows, with noise, are part of the result" in out
