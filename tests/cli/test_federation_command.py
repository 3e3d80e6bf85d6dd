"""``eigenveil federation`` as its parties use it: each line in a process's own words."""

import json

import pytest

from eigenveil.federation.study.file import write_toml
from federation_tools import study_of


@pytest.fixture
def run(run):
    return lambda *words: run("federation", *words)


@pytest.fixture
def said(run):
    def call(*words):
        status, out, err = run(*words, "--json")
        assert status == 0, err
        return json.loads(out)

    return call


def refused(answer, status, *words):
    found, out, err = answer
    assert found == status, err
    assert err.startswith("error: ")
    assert "hint:" in err
    assert "unexpected" not in err
    for word in words:
        assert word in err, err
    assert out == ""


def test_a_federation_from_nothing_to_a_new_key(tmp_path, run, said):
    office, north, desk = tmp_path / "office", tmp_path / "north", tmp_path / "desk"
    made = said("new", "hearts", "--out", office)
    pinned, (later,) = made["registrar"], office.glob("next-*.pem")
    assert f"{later} can take over" in made["warning"]
    later = later.rename(tmp_path / "safe")
    assert said("members", office)["warning"] == ""
    spoken = " ".join(pinned[at : at + 4] for at in range(0, 64, 4)).upper()
    joined = said("join", north, "--name", "north", "--registrar", spoken)
    aggregator = said(
        *("join", desk, "--name", "aggregator", "--role", "aggregator", "--registrar", pinned),
        *("--address", "https://example.org:8102"),
    )
    (tmp_path / "line.txt").write_text(joined["request"] + "\n")
    lines = (tmp_path / "line.txt", aggregator["request"])
    refused(run("admit", office, *lines), 3, "nobody confirmed", "telephone")
    told = ("--fingerprint", joined["fingerprint"], "--fingerprint", aggregator["fingerprint"])
    found = said("admit", office, *lines, *told)
    assert found["number"] == 2
    assert [each["state"] for each in found["members"]] == ["in", "in"]
    host, _, pin = found["address"].partition("#sha256=")
    assert host == "https://example.org:8102"
    assert len(pin) == 64
    sent = found["file"]
    refused(run("members", north), 6, "no list of members yet")
    status, out, _ = run("members", north, "--take", sent)
    assert status == 0
    assert "a newer list was taken over" in out
    for word in ("north", "aggregator", "number 2", pinned[:4], host):
        assert word in out
    # a new key
    other = said("replace-key", north)
    assert other["fingerprint"] != joined["fingerprint"]
    said("admit", office, other["request"], "--fingerprint", other["fingerprint"])
    assert "a newer list" in run("members", north, "--take", sent)[1]
    assert "this list was here already" in run("members", north, "--take", sent)[1]
    states = [each["state"] for each in said("members", north)["members"]]
    assert states == ["replaced", "in", "in"]
    # out again
    found = said("revoke", office, "north", "--reason", "stolen")
    assert found["members"][-1]["reason"] == "stolen"
    said("members", north, "--take", sent)
    again = said("replace-key", north)  # which the revoked key does not sign
    found = said("admit", office, again["request"], "--fingerprint", again["fingerprint"])
    assert found["members"][-1]["state"] == "in"
    said("replace-key", office, "--next", later)
    found = said("members", office, "--renew", "--days", "10", "--address", "folder:/share")
    assert (found["number"], found["address"]) == (7, "folder:/share")
    assert said("members", north, "--take", sent)["registrar"] == pinned
    assert "warning: " in run("members", north)[1]


def test_everything_at_once_for_a_trial(tmp_path, run, said):
    study = tmp_path / "study.toml"
    write_toml(study_of(), study)
    made = said("new", "--out", tmp_path / "parties", "--all", study)
    assert set(made["parties"]) == {"aggregator", "lead", "north", "south", "west"}
    for folder in made["parties"].values():
        found = said("members", folder)
        assert found["registrar"] == made["fingerprint"]
        assert found["address"].startswith("https://localhost:8102#sha256=")
    refused(run("new", "--out", tmp_path / "parties", "--all", study), 7, "already")
    status, out, err = run("new", "--out", tmp_path / "others", "--all", study)
    assert status == 0, err
    assert "each party makes its own" in out


def test_what_is_wrong_is_said_in_one_sentence(tmp_path, run, said):
    office = tmp_path / "office"
    pinned = said("new", "--out", office)["registrar"]
    joined = said("join", tmp_path / "north", "--name", "north", "--registrar", pinned)
    told = ("--fingerprint", joined["fingerprint"])
    text = joined["request"]
    refused(run("join", tmp_path / "x", "--name", "x", "--registrar", "12 34"), 3, "fingerprint")
    x = ("join", tmp_path / "x", "--registrar", pinned)
    refused(run(*x, "--name", "x", "--role", "boss"), 3, "boss")
    refused(run(*x, "--name", "a b"), 3, "letters")
    refused(run("join", tmp_path / "north", "--name", "n", "--registrar", pinned), 7, "already")
    refused(
        run("join", tmp_path / "y", "--name", "y", "--registrar", pinned, "--signer", "card"),
        *(7, "card"),
    )
    refused(run("admit", office, text[:-10] + "_" + text[-9:], *told), 3, "checksum")
    refused(run("admit", office, "nonsense", *told), 3, "eigenveil-request-1")
    said("admit", office, text, *told)
    refused(run("admit", office, text, *told), 6, "a key that north has")
    refused(run("admit", tmp_path / "nowhere", text, *told), 7, "no registrar's folder")
    refused(run("revoke", office, "south"), 3, "south")
    refused(run("members", tmp_path / "nowhere"), 7, "is not there")
    refused(run("members", tmp_path), 7, "is no party's folder")
    refused(run("members", tmp_path / "north", "--take", tmp_path / "none"), 7, "cannot be read")
    refused(run("members", tmp_path / "north", "--take", __file__), 6, "list of members is refused")
    other = said("new", "--out", tmp_path / "other")["file"]
    refused(run("members", tmp_path / "north", "--take", other), 6, "another federation's")
    refused(run("members", office, "--renew", "--days", "91"), 3, "days = 91 is not from 1 to 90")
    large = tmp_path / "large"
    large.write_bytes(b"x" * (1 << 15))
    refused(run("admit", office, large, *told), 3, "whole request")
