"""The schema on the command line: drafted, checked, and used by fit, transform and study."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from eigenveil import PrivatePCA
from eigenveil.app.decisions import can_be_shown
from eigenveil.console.desk.table import columns_of
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError
from eigenveil.federation.study.file import read_study
from eigenveil.federation.study.study import make_study
from eigenveil.io import Dialect, read_frame
from eigenveil.tables.schema import FORMAT, parse_schema, read_schema, write_schema

ROWS = 120


def frame(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "patient_id": [f"p{n // 3}" for n in range(rows)],
            "visit": np.arange(rows) + 1000,
            "age": rng.integers(18, 90, rows),
            "pressure": rng.normal(120, 15, rows).round(1),
            "stage": rng.choice(["I", "II", "III"], rows),
            "smokes": rng.random(rows) < 0.3,
            "seen": pd.date_range("2020-01-01", periods=rows).date,
            "flat": 7.0,
            "nothing": [None] * rows,
            "note": [f"free text {n % 70}" for n in range(rows)],
        }
    )
    found.loc[3, "pressure"] = None
    return found


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture
def draft(table, tmp_path, run):
    status, _, err = run("schema", "new", table, "--out", tmp_path / "s.toml", "--yes", "--quiet")
    assert (status, err) == (0, "")
    return tmp_path / "s.toml"


@pytest.fixture
def schema(draft):
    """The draft with its unit named, its seen values confirmed and its flat column left."""
    text = draft.read_text().replace(
        '"patient_id"\nrole = "identifier"', '"patient_id"\nrole = "unit"'
    )
    draft.write_text(re.sub(r"confirmed = false.*\n", "", text))
    return draft


def test_a_draft_has_kinds_roles_and_what_was_seen(table, tmp_path, run):
    out = run.done("schema", "new", table, "--out", tmp_path / "s.toml")  # no terminal
    assert "read from rows" in out
    found = read_schema(tmp_path / "s.toml")
    kinds = {column.name: (column.role, column.kind) for column in found.columns}
    assert kinds == {
        "patient_id": ("unit", None),
        "visit": ("identifier", None),
        "age": ("feature", "number"),
        "pressure": ("feature", "number"),
        "stage": ("feature", "category"),
        "smokes": ("feature", "boolean"),
        "seen": ("feature", "date"),
        "flat": ("feature", "number"),
        "nothing": ("ignore", None),
        "note": ("ignore", None),
    }
    assert found.column("stage").levels == ("I", "II", "III")
    low, high = found.column("age").range
    assert (low, high) == (frame()["age"].min(), frame()["age"].max())
    assert str(found.column("seen").range[0]) == "2020-01-01"
    seen = {column.name for column in found.columns if not column.confirmed}
    assert seen == {"age", "pressure", "stage", "seen"}
    # what was seen and nobody confirmed is as private as the rows
    assert (tmp_path / "s.toml").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_draft_of_a_table_in_another_language(encoding, tmp_path, run):
    dates = pd.date_range("2022-01-01", periods=ROWS)
    pd.DataFrame(
        {
            "Patienten-Nr": np.arange(ROWS) // 3,
            "Arzt": [f"Dr. {n % 70}" for n in range(ROWS)],
            "Besuch": [f"{day:%d.%m.%Y}" if day.day > 1 else None for day in dates],
            "Raucher": np.where(np.arange(ROWS) % 3, "Nein", "ja"),
            "Halbkugel": np.where(np.arange(ROWS) % 3, "N", "S"),
            "Befund": np.where(np.arange(ROWS) % 3, "unauffällig", "Schwindel"),
        }
    ).to_csv(tmp_path / "t.csv", sep=";", index=False, encoding=encoding)
    out = run.done("schema", "new", tmp_path / "t.csv", "--out", tmp_path / "s.toml", "--yes")
    out = re.sub(r"[\s│]+", " ", out)
    assert ("--encoding" in out) == (encoding == "latin-1")
    assert out.count("its values repeat: does it say whose each row is?") == 2
    found = {each.name: each for each in read_schema(tmp_path / "s.toml").columns}
    assert (found["Patienten-Nr"].role, found["Arzt"].role) == ("unit", "ignore")
    assert (found["Besuch"].kind, found["Raucher"].kind) == ("date", "boolean")
    assert [str(day) for day in found["Besuch"].range] == ["2022-01-02", "2022-04-30"]
    assert found["Befund"].kind == "category"


def test_a_draft_asks_on_a_terminal(table, tmp_path, run, monkeypatch):
    answers = iter(
        [
            *("unit", "identifier", "feature", "90, 18", "18, 90", "feature", ""),
            *("feature", "y", "nonsense", "feature", "feature", "2020-01-01, 2030-01-01"),
            *("feature", "ignore", "ignore"),
        ]
    )
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    status, _, err = run("schema", "new", table, "--out", tmp_path / "s.toml")
    assert status == 0
    assert next(answers, None) is None
    assert "range = [90, 18] is reversed" in err
    assert "Choose one of feature, unit" in err
    found = read_schema(tmp_path / "s.toml")
    assert found.unit == "patient_id"
    assert found.column("age").range == (18, 90)
    assert found.column("stage").confirmed
    assert [c.name for c in found.columns if not c.confirmed] == ["pressure"]


def test_what_was_seen_must_be_confirmed_before_a_fit(draft, table, tmp_path, run):
    err = run.fails("fit", table, "--schema", draft, "--out", tmp_path / "r", status=3)
    assert "'age'" in err
    assert "is not confirmed" in err
    assert not (tmp_path / "r").exists()
    new = ("study", "new", tmp_path / "study.toml", "--site", "a", "--schema", draft)
    assert "is not confirmed" in run.fails(*new, status=3)


def test_check_tells_the_owner_what_is_to_be_mended(schema, table, tmp_path, run):
    status, out, _ = run("schema", "check", table, "--schema", schema)
    assert status == 1
    assert "constant" in out
    assert "40 units with 3 to 3 rows each (median 3)" in out
    assert "read from rows" in out
    other = frame(1)
    other.loc[0, "stage"] = "IV"
    other.loc[1, "pressure"] = 900.0
    other.loc[2, "patient_id"] = None
    other["nothing"] = 1.0
    other["more"] = 2
    other["age"] = np.arange(len(other)) + 1
    other["flat"] = np.nan
    other.to_csv(tmp_path / "other.csv", index=False)
    status, out, _ = run("schema", "check", tmp_path / "other.csv", "--schema", schema, "--json")
    assert status == 1
    found = json.loads(out)
    assert found["clean"] is False
    assert found["unread"] == ["more"]
    assert found["unit"]["rows_without"] == 1
    told = {name: each["findings"] for name, each in found["columns"].items()}
    assert told["stage"] == ["1 rows with levels that the schema does not have: 'IV'"]
    assert found["columns"]["pressure"]["outside"] >= 1
    assert found["columns"]["pressure"]["holes"] == 1
    assert any("identifier" in each for each in told["age"])
    assert told["flat"] == ["no value"]
    assert told["smokes"] == []


def test_check_of_a_clean_table_and_of_one_without_a_column(schema, table, tmp_path, run):
    text = schema.read_text()
    schema.write_text(
        text.replace('name = "flat"\nkind = "number"', 'name = "flat"\nrole = "ignore"')
    )
    assert "Nothing is to be mended" in run.done("schema", "check", table, "--schema", schema)
    frame().drop(columns="age").to_csv(tmp_path / "less.csv", index=False)
    err = run.fails("schema", "check", tmp_path / "less.csv", "--schema", schema, status=3)
    assert "has no column 'age', which the schema has" in err


def test_how_a_file_is_written_is_said_once(tmp_path, run):
    """Of a file in Latin-1 with a code: drafted, then checked, fitted, and read by the console."""
    found = frame().drop(columns=["flat", "nothing", "note", "seen"])
    found["größe"] = found.pop("stage").replace({"I": "müde"})
    found.to_csv(tmp_path / "plain.csv", index=False)
    found["smokes"] = found["smokes"].map({True: "ja", False: "nein"})
    text = found.fillna(999).to_csv(index=False, sep=";", decimal=",")
    messy = tmp_path / "messy.csv"
    messy.write_bytes(text.encode("latin-1"))
    place = tmp_path / "s.toml"
    out = run.done("schema", "new", messy, "--na", "999", "--out", place, "--yes")
    assert 'separator = ";", encoding = "iso8859-1", na = ["999"]' in " ".join(out.split())
    schema = read_schema(place).confirmed()
    assert schema.column("größe").levels == ("II", "III", "müde")
    assert schema.column("pressure").range[1] < 999
    write_schema(schema, place)
    assert "'999' in 1 cells" in run.done("schema", "check", messy, "--schema", place)
    fit = ("fit", messy, "--schema", place, "-k", 1, "--no-plots", "--missing", "zero")
    run.done(*fit, "--no-ledger", "--out", tmp_path / "r")
    run.done("transform", tmp_path / "r", messy, "--out", tmp_path / "scores.csv")
    usual = ("--separator", ",", "--encoding", "utf-8")  # stand above what the schema says
    plain = ("transform", tmp_path / "r", tmp_path / "plain.csv", *usual)
    run.done(*plain, "--out", tmp_path / "again.csv")
    assert (tmp_path / "scores.csv").read_text() == (tmp_path / "again.csv").read_text()
    found["smokes"] = found["smokes"] == "ja"
    wanted = read_frame(found, schema.agreed()).blocks()
    in_console = columns_of(Rows(data=(str(messy),), schema=str(place))).open([messy]).blocks()
    for one, other in zip(wanted, in_console, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_draft_of_parquet_has_the_codes_that_were_said(tmp_path, run):
    frame().to_parquet(tmp_path / "rows.parquet")
    words = ("schema", "new", tmp_path / "rows.parquet", "--na", "7", "--yes")
    run.done(*words, "--out", tmp_path / "s.toml")
    found = read_schema(tmp_path / "s.toml")
    assert found.reading == Dialect(na=["7"])
    assert found.column("flat").role == "ignore"  # all of its values are 7


@pytest.mark.parametrize(
    ("cells", "role", "date_format"),
    [
        (["12/31/2024", "1/2/2023"], "feature", "%m/%d/%Y"),
        (["31/12/2024", "1/2/2023"], "feature", "%d/%m/%Y"),
        (["11/12/2024", "1/2/2023"], "ignore", None),  # nobody can tell which
        (["31.12.2024", "2023-02-01"], "feature", None),
    ],
)
def test_the_format_of_dates_is_drafted_where_cells_tell_it(
    cells, role, date_format, tmp_path, run
):
    path = tmp_path / "rows.csv"
    path.write_text("x,t\n" + "".join(f"{n % 7},{cells[n % 2]}\n" for n in range(30)))
    out = run.done("schema", "new", path, "--out", tmp_path / "s.toml", "--yes")
    column = read_schema(tmp_path / "s.toml").column("t")
    assert (column.kind, column.role, column.date_format) == ("date", role, date_format)
    assert ("date_format says which" in " ".join(out.split())) == (role == "ignore")


# -- fit and transform


@pytest.fixture
def result(schema, table, tmp_path, run):
    words = ("fit", table, "--schema", schema, "-k", 2, "--epsilon", 4, "--no-plots")
    run.done(*words, "--out", tmp_path / "r")
    return tmp_path / "r"


ENCODED = ["age", "pressure", "stage=I", "stage=II", "stage=III", "smokes", "seen", "flat"]


def test_a_fit_by_a_schema_protects_its_unit_and_keeps_the_schema(result, schema):
    model = PrivatePCA.load(result / "model.npz")
    assert list(model.feature_names_in_) == ENCODED
    assert model.certificate_.target.unit == "patient_id"
    assert read_schema(result / "schema.toml") == read_schema(schema)
    assert (result / "schema.toml").stat().st_mode & 0o044


def test_transform_reads_by_the_schema_and_carries_identifiers(result, table, tmp_path, run):
    clean = frame().dropna(subset=["pressure"])
    clean.loc[5, "stage"] = "unknown"  # becomes zeros
    clean.to_parquet(tmp_path / "new.parquet")
    out = run.done("transform", result, tmp_path / "new.parquet", "--out", tmp_path / "o.parquet")
    assert "after patient_id, visit" in " ".join(out.split())
    scores = pq.read_table(tmp_path / "o.parquet").to_pandas()
    assert list(scores.columns) == ["patient_id", "visit", "PC1", "PC2"]
    assert scores["patient_id"].tolist() == clean["patient_id"].tolist()
    assert scores["visit"].tolist() == clean["visit"].astype(str).tolist()
    # without identifiers, and of another choice of them
    clean.drop(columns=["patient_id", "visit"]).to_csv(tmp_path / "bare.csv", index=False)
    for words, columns in (
        ((tmp_path / "bare.csv",), ["PC1", "PC2"]),
        ((tmp_path / "new.parquet", "--id", "visit"), ["visit", "PC1", "PC2"]),
    ):
        run.done("transform", result, *words, "--out", tmp_path / "p.csv", "--overwrite")
        again = pd.read_csv(tmp_path / "p.csv")
        assert list(again.columns) == columns
        np.testing.assert_allclose(again[["PC1", "PC2"]], scores[["PC1", "PC2"]])
    run.done("transform", result, tmp_path / "new.parquet", "--out", tmp_path / "o.npy")
    assert np.load(tmp_path / "o.npy").shape == (ROWS - 1, 2)
    for words, wanted, said in (
        (("--id", "who", "--out", tmp_path / "q.csv"), 3, "'who'"),
        (("--id", "visit", "--out", tmp_path / "q.npy"), 2, "holds numbers only"),
    ):
        status, _, err = run("transform", result, table, *words)
        assert (status, said in err) == (wanted, True)


def test_rows_with_holes_are_transformed_where_the_fit_had_some(schema, table, tmp_path, run):
    fit = ("fit", table, "--schema", schema, "-k", 2, "--epsilon", 20, "--no-plots", "--quiet")
    for missing, more, status_of_holes in (
        ("leave-out", (), 3),
        ("zero", ("--scale", "private"), 0),
    ):
        out, scores = tmp_path / missing, tmp_path / f"{missing}.parquet"
        run.done(*fit, "--missing", missing, *more, "--out", out)
        status, _, err = run("transform", out, table, "--out", scores)
        assert status == status_of_holes
        assert ("column 'pressure' is not a finite number" in err) == (status == 3)
        assert ("fitted with missing='independent'" in err) == (status == 3)
    found = pq.read_table(scores).to_pandas()[["PC1", "PC2"]]
    assert np.isfinite(found.to_numpy()).all()
    model = PrivatePCA.load(tmp_path / "zero" / "model.npz")
    assert not np.all(model.scale_ == 1.0)
    wanted = model.transform(read_frame(frame(), read_schema(schema)).encoded())
    np.testing.assert_allclose(found, wanted)


def test_a_study_of_private_scales_has_the_schemas_ranges(schema, tmp_path, run):
    text = schema.read_text()
    flat = 'name = "flat"\nkind = "number"\n'
    assert flat in text
    for added, ranges in (("", None), ("range = [0, 9]\n", (0.0, 9.0))):
        schema.write_text(text.replace(flat, flat + added))
        words = ("--site", "a", "--components", 1, "--schema", schema, "--scale", "private")
        run.done("study", "new", tmp_path / "s.toml", *words, "--overwrite")
        found = read_study(tmp_path / "s.toml").ranges
        last = None if found is None else found[-1]
        assert last == ranges


def test_a_fit_with_a_unit_and_no_schema(tmp_path, run):
    numbers = frame()[["patient_id", "age", "pressure", "flat"]].dropna()
    numbers.to_csv(tmp_path / "n.csv", index=False)
    words = ("fit", tmp_path / "n.csv", "-k", 1, "--unit", "patient_id", "--out", tmp_path / "r")
    run.done(*words)
    model = PrivatePCA.load(tmp_path / "r" / "model.npz")
    assert list(model.feature_names_in_) == ["age", "pressure", "flat"]
    assert model.certificate_.target.unit == "patient_id"
    run.done("transform", tmp_path / "r", tmp_path / "n.csv", "--out", tmp_path / "o.csv")
    assert next(iter(pd.read_csv(tmp_path / "o.csv").columns)) == "patient_id"


def test_a_schema_stands_alone(schema, table, tmp_path, run):
    for words in (("--columns", "age"), ("--exclude", "age"), ("--unit", "visit")):
        status, _, err = run("fit", table, "--schema", schema, *words, "--out", tmp_path / "x")
        assert status == 2, words
        assert "schema" in err


# -- studies


@pytest.fixture
def sites(tmp_path):
    for number, name in enumerate(("north", "south")):
        frame(number).to_csv(tmp_path / f"{name}.csv", index=False)
    return [f"{name}={tmp_path / name}.csv" for name in ("north", "south")]


@pytest.fixture
def study(schema, tmp_path, run):
    path = tmp_path / "study.toml"
    words = ("--site", "north", "--site", "south", "--components", 1, "--epsilon", 4)
    run.done("study", "new", path, *words, "--schema", schema)
    return path


def test_a_study_holds_the_schema_and_its_unit(study, schema):
    found = read_study(study)
    assert found.table_schema == read_schema(schema)
    assert list(found.columns) == ENCODED
    assert found.unit == "patient_id"


def test_sites_read_by_the_studys_schema(study, sites, schema, tmp_path, run):
    words = ("fit", "--study", study, "--site", sites[0], "--site", sites[1])
    run.done(*words, "--schema", schema, "--out", tmp_path / "r")
    assert read_schema(tmp_path / "r" / "schema.toml") == read_schema(schema)
    assert read_study(tmp_path / "r" / "study.toml").table_schema == read_schema(schema)
    out = run.done("study", "check", study, "--site", sites[0])
    assert "all 8 columns are there" in " ".join(out.split())


def test_a_site_whose_own_schema_differs_is_refused_before_anything_is_charged(
    study, sites, schema, tmp_path, run
):
    text = schema.read_text().replace('levels = ["I", "II", "III"]', 'levels = ["I", "II"]')
    own = tmp_path / "own.toml"
    own.write_text(text)
    words = ("fit", "--study", study, "--site", sites[0], "--site", sites[1], "--schema", own)
    err = run.fails(*words, "--ledgers", tmp_path / "books", "--out", tmp_path / "r", status=3)
    assert "column 'stage': levels is" in err
    assert not (tmp_path / "books").exists()


def test_a_study_whose_unit_is_not_its_schemas_is_refused(study, run):
    text = study.read_text()
    assert 'unit = "patient_id"' in text
    study.write_text(text.replace('unit = "patient_id"', 'unit = "visit"'))
    assert "role 'unit' to 'patient_id'" in run.fails("study", "check", study, status=3)


def test_a_study_without_a_schema_takes_a_unit_and_no_identifiers(tmp_path, run):
    frame()[["patient_id", "age"]].to_csv(tmp_path / "f.csv", index=False)
    words = ("study", "new", tmp_path / "s.toml", "--site", "a", "--from", tmp_path / "f.csv")
    status, _, err = run(*words)
    assert (status, "'patient_id' looks like an identifier" in err) == (3, True)
    run.done(*words, "--unit", "patient_id", "--components", 1)
    made = read_study(tmp_path / "s.toml")
    assert (made.columns, made.unit) == (("age",), "patient_id")


# -- sites between organisations open their files by the study's schema


def opened(files, study, *, schema=None):
    from eigenveil.app.rows import WantedColumns
    from eigenveil.cli.commands.site import _Rows

    rows = _Rows([str(file) for file in files], WantedColumns(schema=schema))
    assert rows.paths is not None  # the files can be read
    return rows(read_study(study))


def test_a_site_of_an_organisation_reads_by_the_studys_schema(study, schema, table, tmp_path):
    rows = opened([table], study)
    assert list(rows.names) == ENCODED
    assert rows.unit == "patient_id"
    assert next(rows.blocks()).units[:4].tolist() == ["p0", "p0", "p0", "p1"]
    assert list(opened([table], study, schema=read_schema(schema)).names) == ENCODED
    text = schema.read_text().replace('kind = "boolean"', 'kind = "number"')
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(DataError, match="column 'smokes': kind is boolean and number") as caught:
        opened([table], study, schema=read_schema(tmp_path / "own.toml"))
    assert caught.value.code == "other-schema"
    frame().drop(columns="patient_id").to_csv(tmp_path / "nobody.csv", index=False)
    with pytest.raises(DataError, match=r"nobody\.csv has no column 'patient_id'"):
        opened([tmp_path / "nobody.csv"], study)


def test_a_site_of_an_organisation_reads_the_unit_of_a_study_without_a_schema(table, tmp_path, run):
    words = ("--site", "a", "--columns", "age,flat", "--unit", "patient_id", "--components", 1)
    run.done("study", "new", tmp_path / "s.toml", *words)
    rows = opened([table], tmp_path / "s.toml")  # whose other columns are text
    assert rows.names == ("age", "flat")
    assert rows.unit == "patient_id"
    with pytest.raises(DataError, match="--schema is given, and the study has no schema"):
        opened([table], tmp_path / "s.toml", schema=SMALL)


SMALL = parse_schema({"format": FORMAT, "columns": [{"name": "age", "kind": "number"}]})


@pytest.mark.parametrize("cells", [[None] * ROWS, [7.0] * ROWS], ids=["missing", "constant"])
def test_rows_decide_nothing_about_whether_there_is_a_result(cells, tmp_path, run):
    found = frame()[["age", "smokes"]].assign(odd=cells)
    found.to_parquet(tmp_path / "t.parquet")
    columns = [{"name": name, "kind": "number"} for name in ("age", "smokes", "odd")]
    write_schema(parse_schema({"format": FORMAT, "columns": columns}), tmp_path / "s.toml")
    words = ("fit", tmp_path / "t.parquet", "--schema", tmp_path / "s.toml", "-k", 1)
    run.done(*words, "--epsilon", 4, "--out", tmp_path / "r", "--json")


HIDING = "\x1b[2J\u202e"


@pytest.mark.parametrize(
    "column",
    [
        {"name": "b", "kind": "category", "levels": ["x", f"y{HIDING}"]},
        {"name": "b", "kind": "number", "label": HIDING},
        {"name": "b", "kind": "number", "unit_of_measure": HIDING},
        {"name": HIDING, "role": "ignore"},
    ],
)
def test_a_study_whose_schema_could_hide_something_is_not_shown_for_approval(column):
    made = {"name": "s", "sites": [{"name": "north"}], "components": 1}
    for added, shown in (([], True), ([column], False)):
        columns = [{"name": "a", "kind": "number"}, *added]
        schema = parse_schema({"format": FORMAT, "columns": columns})
        study = make_study(**made, columns=list(schema.names), table_schema=schema)
        assert can_be_shown(study) is shown
