"""``eigenveil study ask`` and ``study new --from-sites``, with answers that no site gave."""

import json
from datetime import UTC, datetime

import pytest

from eigenveil.app import study_draft
from eigenveil.federation.study.file import read_study, write_toml
from eigenveil.network.survey import PartyAnswer, PartyReport
from federation_tools import SITES, study_of


def told(*names, **fields):
    columns = [{"name": name, "kind": "number"} | fields for name in names]
    return {"format": "eigenveil-schema-1", "columns": columns}


@pytest.fixture
def sites(monkeypatch):
    """What each site answers; what was asked."""

    class Session:
        answers, asked = {}, []

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, names, study=None):
            self.asked.append((tuple(names), study))
            return [
                PartyReport(name, problem=found)
                if isinstance(found, str)
                else PartyReport(name, found)
                for name in names
                for found in [self.answers.get(name, "not-connected")]
            ]

    session = Session()
    monkeypatch.setattr(study_draft, "open_lead", lambda party: session)
    return session


def test_who_agreed_and_who_did_not_is_said_by_name(sites, run, tmp_path):
    write_toml(study_of(protocol="auto", delta=1e-6), tmp_path / "study.toml")
    until = datetime(2027, 6, 30, tzinfo=UTC)
    sites.answers = {
        "north": PartyAnswer(state="approved", runs=2, until=until, version="9.9"),
        "south": PartyAnswer(state="refused", reason="no legal basis", version="9.9"),
    }
    line = ("study", "ask", tmp_path / "study.toml", "--party", tmp_path)
    status, out, _ = run(*line)
    out = " ".join(out.replace("│", " ").split())
    assert status == 0
    for words in ("approved: 2 more runs until 2027-06-30 00:00 UTC yes 9.9", "no legal basis",
                  "not connected no", "not agreed: south, west"):  # fmt: skip
        assert words in out, out
    ((names, asked),) = sites.asked
    assert (names, asked.protocol) == (SITES, "cape")  # what a start would run
    status, out, _ = run(*line, "--json")
    found = json.loads(out)
    assert [each["agreed"] for each in found["sites"]] == [True, False, False]
    assert (found["agreed"], found["study_hash"]) == (False, asked.hash)
    sites.answers = dict.fromkeys(SITES, PartyAnswer(state="approved"))
    assert "begins at once" in run(*line)[1]


def test_a_study_takes_what_schemas_share(sites, run, tmp_path):
    named = [word for name in SITES for word in ("--site", name)]
    file, how = tmp_path / "s.toml", ("--from-sites", "--components", 1)
    status, _, err = run("study", "new", file, *named, *how)
    assert (status, file.exists()) == (3, False)
    assert "north: not connected; south: not connected" in err
    sites.answers = {
        "north": PartyAnswer(state="not-asked", table_schema=told("age", "bmi", range=[0, 9])),
        "south": PartyAnswer(state="not-asked", table_schema=told("age", "bmi", "sex")),
        "west": PartyAnswer(state="not-asked"),
    }
    status, _, err = run("study", "new", file, *named, *how)
    assert status == 0, err
    assert "column 'sex', column: north: not there; south: there. Common: left out." in err
    assert "schema not known of west: does not tell it" in err
    made = read_study(file)
    assert made.columns == ("age", "bmi")
    assert made.table_schema.column("age").range is None
    err = run.fails("study", "new", file, *named, *how, "--columns", "a,b", status=3)
    assert "2 of --columns" in err
    sites.answers["south"] = PartyAnswer(state="not-asked", table_schema=told("other"))
    assert run("study", "new", tmp_path / "t.toml", *named, *how)[0] == 3
    assert not (tmp_path / "t.toml").exists()
