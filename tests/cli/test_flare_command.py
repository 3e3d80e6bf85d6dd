"""``eigenveil flare`` as people meet it where NVIDIA FLARE is not needed, or not installed."""

import json
import subprocess
import sys

import pytest

from eigenveil.federation.study.file import write_toml
from eigenveil.federation.study.study import make_study


@pytest.fixture
def run(run):
    return lambda *words: run("flare", *words)


@pytest.fixture
def study(tmp_path):
    def write(*names, **changes):
        path = tmp_path / "study.toml"
        fields = {"name": "trial", "features": 5, "components": 2} | changes
        sites = tuple({"name": name} for name in names or ("north", "south", "west"))
        write_toml(make_study(**fields, sites=sites), path, overwrite=True)
        return path

    return write


def refused(answer, status, *words):
    found, out, err = answer
    assert found == status, err
    assert "hint:" in err
    assert "unexpected" not in err
    for word in words:
        assert word in err, err
    assert out == ""


def test_without_flare_it_is_said_how_to_get_it(study, tmp_path, run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    answer = run("provision", study(), "--out", tmp_path / "kits")
    refused(answer, 7, "not installed", "pip install 'eigenveil[flare]'")
    assert not (tmp_path / "kits").exists()


def test_the_command_line_starts_without_loading_flare():
    code = (
        "import sys; import eigenveil.cli.app; "
        "found = [name for name in sys.modules if name.split('.')[0] in ('nvflare', 'OpenSSL')]; "
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_studies_and_names_that_cannot_be(study, tmp_path, run, monkeypatch):
    monkeypatch.setattr("eigenveil.network.flare.authority.need_flare", lambda: None)
    kits = tmp_path / "kits"

    def provision(file, *words):
        answer = run("provision", file, "--out", kits, *words)
        assert not kits.exists()
        return answer

    refused(provision(tmp_path / "none.toml"), 3, "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("name = ")
    refused(provision(bad), 3, "not TOML")
    for reserved in ("aggregator", "lead", "registrar", "helper"):
        refused(provision(study("north", reserved)), 3, repr(reserved), "another name")
    refused(provision(study("north", "a.b")), 3, "'a.b'")
    refused(provision(study("north", "North")), 3, "'North'")
    refused(provision(study(), "--host", "a b"), 3, "host = 'a b'")
    refused(provision(study(), "--host", "north"), 3, "'north'", "host")
    refused(provision(study(), "--port", 0), 3, "port = 0")
    refused(provision(study(), "--port", 70000, "--registrar-only"), 3, "port = 70000")
    kits.mkdir()
    (kits / "x").write_text("")
    refused(run("provision", study(), "--out", kits), 7, "exists", "--overwrite")
    refused(run("provision", study(), "--out", kits, "--overwrite"), 7, "more than kits")
    assert [file.name for file in kits.iterdir()] == ["x"]


def test_request_shows_what_to_tell_the_registrar(study, tmp_path, run):
    kit = tmp_path / "north"
    status, out, err = run("request", study(), "--out", kit, "--name", "north")
    assert (status, err) == (0, "")
    assert "north-request.json" in out
    assert "SHA256:" in out
    status, out, _ = run(
        "request", study(), "--out", kit, "--name", "north", "--overwrite", "--json"
    )
    assert status == 0
    assert set(json.loads(out)) == {"request", "key_fingerprint"}
    refused(run("request", study(), "--out", kit, "--name", "north"), 7, "exists")
    refused(run("show", kit), 7, "client.crt is missing", "package")
    again = ("--out", kit, "--name", "north", "--renew")
    refused(run("request", study(), *again), 7, "not packaged yet")
    assert run("request", study(), "--out", tmp_path / "l", "--role", "lead", "-q") == (0, "", "")


def test_requests_that_cannot_be(study, tmp_path, run):
    out = ("--out", tmp_path / "kit")
    refused(run("request", study(), *out, "--role", "king"), 2, "king", "helper")
    refused(run("request", study(), *out), 3, "no name", "--name")
    refused(run("request", study(), *out, "--name", "east"), 3, "'east'", "north, south, west")
    refused(run("request", study(), *out, "--role", "helper"), 3, "no noise helper")
    refused(run("request", study(), *out, "--role", "lead", "--name", "boss"), 3, "e-mail")
    assert not (tmp_path / "kit").exists()


def test_files_that_are_something_else(study, tmp_path, run):
    assert run("request", study(), "--out", tmp_path / "n", "--name", "north")[0] == 0
    request = tmp_path / "n" / "north-request.json"
    refused(run("show", tmp_path / "none"), 7, "not there")
    refused(run("show", tmp_path), 7, "no kit")
    refused(run("approve", request, "--kit", tmp_path / "n"), 3, "a site", "a registrar")
    mark = ("--fingerprint", "SHA256:00")
    refused(run("package", tmp_path / "n", request, *mark), 3, "not an approval")
    refused(run("package", tmp_path / "n", tmp_path / "none", *mark), 7, "cannot be read")
    assert run("package", tmp_path / "n", request)[0] == 2  # no fingerprint: not without one
