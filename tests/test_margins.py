"""The margins of ``make nightly``: a comparison with little room is found, no other."""

import json
import subprocess
import sys

import numpy as np
import pytest

from margin_tools import Notes, margins_of, with_little_room

TESTS = """
import numpy as np
rng = np.random.default_rng()
def test_scalar(): assert abs(rng.normal()) / 2 < 20.0
def test_array(): np.testing.assert_allclose(rng.normal(size=9), 0.0, atol=40.0)
def test_text(): assert "a" < "b"
"""


@pytest.mark.parametrize(
    ("shown", "margins"),
    [
        ("0.25 < 1.0", [0.75]),
        ("np.float64(0.5) > (np.float64(1.0) / np.float64(4.0))\n  + where", [0.25]),
        ("(0.5 * 2.0) <= 1.5 < 2.5", [0.5, 1.0]),
        ("'a' < 'b'", []),
        ("array([1.0]) < 2", []),
        ("__import__('os') < 2", []),
        ("1 == 1", []),
    ],
)
def test_a_comparison_is_read_as_pytest_shows_it(shown, margins):
    assert margins_of(shown) == margins


def test_what_has_little_room_is_found(tmp_path):
    """Three deviations and nine, of 200 runs: they are told apart but once in 1e30."""
    notes, rng = Notes(tmp_path), np.random.default_rng()
    for _ in range(200):
        notes.begin("tests/test_it.py::test_it[1]")
        notes.add(3, "x < 3", [3.0 - rng.normal()])
        notes.add(4, "x < 9", [9.0 - rng.normal()])
        notes.add(5, "1 < 2", [1.0])
    notes.close()
    ((room, runs, test, place, text),) = with_little_room(tmp_path)
    assert 2.0 < room < 4.5
    assert (runs, test, place, text) == (200, "tests/test_it.py::test_it[1]", 3, "x < 3")


def test_a_run_notes_what_it_compares(tmp_path, pytestconfig):
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-q", "-p", "margin_tools", "-p", "no:cacheprovider", "-c", "/dev/null", tmp_path]
    words += ["-o", "enable_assertion_pass_hook=true", "--rootdir", tmp_path]
    place = {"PYTHONPATH": str(pytestconfig.rootpath / "tests")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words)],
        env=place | {"EIGENVEIL_MARGINS": str(tmp_path / "notes")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    (file,) = (tmp_path / "notes").glob("*.jsonl")
    found = {line[0].rpartition("::")[2]: line[4] for line in map(json.loads, file.open())}
    assert found.keys() == {"test_scalar", "test_array"}
    assert 10.0 < found["test_scalar"][0] < 20.0
    assert 0.5 < found["test_array"][0] < 1.0
