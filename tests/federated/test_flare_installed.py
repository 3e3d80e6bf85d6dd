"""Versions of NVIDIA FLARE that were not tested are refused, by whatever needs it."""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest

from eigenveil.errors import OutputError
from eigenveil.network import certificates
from eigenveil.network.flare.authority import TESTED, make_root, need_flare
from eigenveil.network.kit import FILE, FORMAT, open_kit

ROOT = Path(__file__).parents[2]
KEY = certificates.new_key(2048)


@pytest.fixture
def flare(monkeypatch):
    """Installs a version, as it seems."""
    really = importlib.metadata.version

    def version(name):
        if name != "nvflare":
            return really(name)
        if seen[0] is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return seen[0]

    seen = [TESTED[0]]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(importlib.metadata, "version", version)
    return lambda version: seen.__setitem__(0, version)


@pytest.fixture
def kit(tmp_path):
    def make(role):
        folder = tmp_path / role
        who = "server" if role == "aggregator" else "client"
        form = {"aggregator": "fed_server.json", "lead": "fed_admin.json"}
        (folder / "startup").mkdir(parents=True)
        (folder / "local").mkdir()
        for name in (f"{who}.crt", f"{who}.key", "rootCA.pem", form.get(role, "fed_client.json")):
            (folder / "startup" / name).write_text("")
        fields = {"role": role, "name": "n.example.org", "org": "o", "project": "trial"}
        fields |= {"format": FORMAT, "host": "localhost", "port": 1}
        (folder / FILE).write_text(json.dumps(fields))
        return folder

    return make


@pytest.mark.parametrize("version", TESTED)
def test_versions_that_were_tested_are_good(flare, version):
    flare(version)
    need_flare()


@pytest.mark.parametrize(
    "version", ["2.8.3", "2.9.1", "2.10.0", "3.0.0", "2.9.0rc1", "2.9.0+own", "", None]
)
def test_others_are_refused_with_both_versions_named(flare, version):
    flare(version)
    with pytest.raises(OutputError) as caught:
        need_flare()
    assert caught.value.code == "other-flare"
    assert TESTED[0] in caught.value.message
    assert ("unknown version" if version is None else version) in caught.value.message
    assert "eigenveil[flare]" in caught.value.hint


def test_no_party_no_registrar_and_no_lead_starts_with_another_version(flare, kit):
    from eigenveil.network.flare.entry import run_aggregator, run_site
    from eigenveil.network.flare.session import StudySession

    flare("2.10.0")
    site, aggregator, lead = (open_kit(kit(role)) for role in ("site", "aggregator", "lead"))
    for start in (
        lambda: make_root("trial", KEY),
        lambda: run_site(site, None),
        lambda: run_aggregator(aggregator, listen="127.0.0.1"),
        lambda: StudySession(lead),
    ):
        with pytest.raises(OutputError, match=re.escape("NVIDIA FLARE 2.10.0 is installed")):
            start()


def test_the_command_line_says_so_and_writes_nothing(flare, kit, run, tmp_path):
    flare("2.10.0")
    study = tmp_path / "study.toml"
    run("study", "new", study, "--site", "a", "--site", "b", "--features", 4, "--components", 2)
    for words in (
        ("flare", "provision", study, "--out", tmp_path / "kits"),
        ("aggregator", "start", "--kit", kit("aggregator")),
        ("site", "start", "--kit", kit("helper")),
        ("study", "status", "--kit", kit("lead")),
    ):
        status, _, err = run(*words)
        assert (status, "NVIDIA FLARE 2.10.0 is installed" in err) == (7, True), (words, err)
    assert not (tmp_path / "kits").exists()


def test_the_package_asks_for_what_was_tested_and_the_pages_say_so():
    reported = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert reported["project"]["optional-dependencies"]["flare"] == [f"nvflare=={TESTED[-1]}"]
    for page in ("flare.md", "identity.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert f"FLARE {' and '.join(TESTED)}" in text
