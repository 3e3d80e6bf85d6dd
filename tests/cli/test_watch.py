"""``eigenveil watch``: what it tracks, says, keeps and refuses, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow.csv
import pytest

from eigenveil import StreamingPCA
from eigenveil.cli.app import main
from eigenveil.linalg.subspace import subspace_distance
from eigenveil.models.streaming.private import PrivateStreamingPCA

NAMES = [f"x{i}" for i in range(6)]
_PATIENCE = 300.0  # seconds before a process that says nothing is taken for stuck


def text_of(rows, *, names=True):
    out = io.StringIO()
    if names:
        out.write(",".join(NAMES[: rows.shape[1]]) + "\n")
    np.savetxt(out, rows, delimiter=",", fmt="%.17g")
    return out.getvalue()


def low_rank(count, *, axes=(0, 1), seed=0):
    """Rows in the span of some axes: small whole numbers, so that nothing is rounded."""
    rows = np.zeros((count, len(NAMES)))
    rows[:, axes] = np.random.default_rng(seed).integers(-9, 10, size=(count, len(axes)))
    return rows


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text_of(low_rank(200)))
    return path


def lines_of(out):
    found = [json.loads(line) for line in out.splitlines()]
    return found[:-1], found[-1]


def test_a_subspace_that_stays_has_no_drift(file, run):
    status, out, err = run("watch", file, "-b", 50, "--json")
    assert (status, err) == (0, "")
    lines, end = lines_of(out)
    assert [line["rows"] for line in lines] == [50, 100, 150, 200]
    assert lines[0]["drift"] is None
    for line in lines[1:]:
        assert line["rank"] == 2
        assert line["drift"] < 1e-12
        assert line["drift_from_start"] < 1e-12
        assert line["captured"] == pytest.approx(1.0)
    assert end["end"] == "rows"
    assert end["rows"] == 200
    assert end["guarantee"] is None


def test_missing_cells_are_refused_left_out_or_filled(tmp_path, run):
    rows = low_rank(400)
    holed = rows.copy()
    holed[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    holed[0] = np.nan
    path = tmp_path / "rows.csv"
    path.write_text(text_of(holed).replace("nan", ""))
    err = run.fails("watch", path, "-b", 50, status=3)
    assert "line 2, column 'x0' is NaN, a missing value" in err
    assert "--missing fill" in err
    out = tmp_path / "loadings.csv"
    for way, least in (("leave-out", 20), ("fill", 300)):
        status, text, err = run("watch", path, "-b", 50, "--missing", way, "--out", out, "--json")
        assert (status, err) == (0, "")
        lines, end = lines_of(text)
        assert lines[-1]["captured"] == pytest.approx(1.0)
        assert end["rows"] >= least
        found = pyarrow.csv.read_csv(out).to_pandas().to_numpy()[:, 1:].astype(float)
        assert np.abs(found[2:]).max() < 1e-9
        out.unlink()
    assert "'fill'" in run.fails("watch", path, "--missing", "pairs")
    err = run.fails("watch", path, "--missing", "fill", "--epsilon", 1, "--one-row-per-person")
    assert "'independent'" in err
    path.write_text(text_of(np.full((60, 6), np.nan)).replace("nan", ""))
    text = run.done("watch", path, "--missing", "fill", "-b", 20, "--json")
    assert lines_of(text)[1]["rank"] is None


def test_a_private_stream_counts_what_is_observed(tmp_path, run):
    rows = np.random.default_rng(2).normal(size=(600, 6)) * [9, 6, 1, 1, 1, 1]
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    path, out = tmp_path / "rows.csv", tmp_path / "result"
    path.write_text(text_of(rows).replace("nan", ""))
    options = ("--one-row-per-person", "--epsilon", 5, "--no-ledger", "-b", 100, "--quiet")
    for more in (("--missing", "pairs"), ("--missing", "independent", "--horizon", 6)):
        assert run("watch", path, *options, *more, "--out", out, "--overwrite")[0] == 0
        found = json.loads((out / "certificate.json").read_text())
        assert found["plan"]["missing"] == more[1]
        assert found["releases"][0]["name"] == "observed entries"
        assert run("certify", out)[0] == 0


def test_a_subspace_that_is_left_behind_is_seen(tmp_path, run):
    rows = np.vstack([low_rank(200), low_rank(400, axes=(2, 3), seed=1)])
    path = tmp_path / "rows.tsv"
    path.write_text(text_of(rows).replace(",", "\t"))
    lines, end = lines_of(run("watch", path, "-b", 50, "--forgetting", 0.5, "--json")[1])
    drift = [line["drift"] for line in lines]
    assert max(drift[1:4]) < 1e-12
    assert max(drift[4:]) > 0.99
    assert drift[-1] < 0.1
    assert end["drift_from_start"] > 0.99


def test_what_is_written_is_what_the_estimator_finds(file, tmp_path, run):
    rows = np.random.default_rng(1).normal(size=(170, 6))
    file.write_text(text_of(rows))
    out = tmp_path / "components.csv"
    words = ("-k", 3, "-b", 40, "--forgetting", 0.9, "--adaptive-rank", 1, 10, "--center")
    said = run.done("watch", file, *words, "--out", out, "--columns", "x4,x0,x1,x2")
    assert f"written to {out}" in " ".join(said.split())
    model = StreamingPCA(3, block_size=40, forgetting=0.9, adaptive_rank=(1, 10), center=True)
    model.fit(rows[:, [4, 0, 1, 2]])
    table = pyarrow.csv.read_csv(out)
    assert table["feature"].to_pylist() == ["x4", "x0", "x1", "x2"]
    found = np.array([table[f"PC{i + 1}"] for i in range(model.n_components_)])
    assert len(table.column_names) == 1 + model.n_components_
    assert subspace_distance(found.T, model.components_.T) < 1e-12


def test_people_get_a_line_a_block_and_a_summary(file, run):
    out = run.done("watch", file, "-b", 50, "--every", 2)
    lines = [line for line in out.splitlines() if "/s" in line]
    assert [line.split()[0] for line in lines] == ["100", "200"]
    for words in ("rank 2", "captured 100.00 %", "drift 0.0000 (from start 0.0000)"):
        assert words in lines[-1]
    for words in ("ended: there are no more rows", "PC2", "This output is not private"):
        assert words in out


def test_quiet_is_quiet_and_limit_ends(file, tmp_path, run):
    out = tmp_path / "c.npy"
    assert run("watch", file, "--quiet", "--out", out) == (0, "", "")
    assert np.load(out).shape == (6, 2)
    _, end = lines_of(run("watch", file, "-b", 50, "--limit", 60, "--json")[1])
    assert (end["end"], end["rows"]) == ("limit", 60)


def test_a_bad_row_is_located_and_what_was_before_is_kept(file, tmp_path, run):
    with file.open("a") as lines:
        lines.write("1,2,3\n")
    out = tmp_path / "c.csv"
    status, said, err = run("watch", file, "-b", 150, "--out", out)
    assert status == 3
    assert f"error: {file}: line 202: 3 columns instead of 6." in err
    assert "hint: " in err
    assert "ended: an error in the rows" in said
    assert "200" in said
    assert out.exists()
    file.write_text("a,b\nsecret,1\n")
    status, said, err = run("watch", file, "--out", tmp_path / "d.csv")
    assert (status, said) == (3, "")
    assert "column 'a' is not a number at line 2" in err
    assert not (tmp_path / "d.csv").exists()


def test_a_continual_stream_ends_with_its_horizon(file, tmp_path, run):
    out = tmp_path / "result"
    words = ("--epsilon", 5, "--horizon", 3, "-b", 50, "--out", out)
    status, said, err = run("watch", file, *words)
    assert status == 0
    assert err.startswith("ledger: ")
    assert len(err.splitlines()) == 1
    lines = [line for line in said.splitlines() if "/s" in line]
    assert [line.split("  ")[-1] for line in lines] == [f"{n} blocks left" for n in (2, 1, 0)]
    flat = " ".join(said.split())
    assert "the horizon is used up" in flat
    assert "guarantee: (5, 1e-6)-differentially private" in flat
    assert "where the number of rows is public" in flat
    assert run("certify", out)[0] == 0
    assert list(PrivateStreamingPCA.load(out / "model.npz").feature_names_in_) == NAMES


def test_a_stream_released_at_its_end_tells_no_exact_number(file, tmp_path, run):
    out = tmp_path / "model.npz"
    status, said, err = run("watch", file, "--epsilon", 5, "-b", 50, "--out", out, "--json")
    assert (status, err) == (0, "")
    found = json.loads(said)  # a single line
    model = PrivateStreamingPCA.load(out)
    assert found["rows"] == max(0, round(model.n_samples_))
    assert found["guarantee"]["certified"] is True
    assert found["guarantee"]["adjacency"] == "add-remove"
    status, said, err = run("watch", file, "--epsilon", 5, "-b", 50)
    assert status == 0
    assert "200 rows" in err  # as progress, for the owner
    assert "200 rows" not in said


def watch(words):
    """The command in a forked process, where another program would load everything again."""
    os.closerange(3, 4096)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate("rww"))
    try:
        main(["watch", *map(str, words)])
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)
    finally:
        os._exit(1)


@contextmanager
def watching(*words, stdin):
    """The command as a process of its own, ended by force if it gets stuck."""
    process = subprocess.Popen(
        ["true"], preexec_fn=partial(watch, words), stdin=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    guard = threading.Timer(_PATIENCE, process.kill)
    guard.start()
    try:
        yield process
    finally:
        guard.cancel()
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()


def test_a_growing_file_is_followed_by_tail_until_it_is_stopped(file, tmp_path):
    out = tmp_path / "c.csv"
    tail = subprocess.Popen(["tail", "-n", "+1", "-F", file], stdout=subprocess.PIPE)
    options = ("-b", 50, "--json", "--out", out)
    try:
        with watching("-", *options, stdin=tail.stdout) as process:
            rows = [json.loads(process.stdout.readline())["rows"] for _ in range(4)]
            more = text_of(low_rank(60, seed=3), names=False)
            with file.open("a") as growing:
                growing.write(more[:-5])  # its last line is not whole
            rows.append(json.loads(process.stdout.readline())["rows"])
            assert not out.exists()
            process.send_signal(signal.SIGINT)
            said, err = process.communicate()
    finally:
        tail.kill()
        tail.communicate()
    assert process.returncode == 0, err
    assert rows == [50, 100, 150, 200, 250]
    # the rows that filled no block count too, as far as they were read when it was stopped
    end = json.loads(said.splitlines()[-1])
    assert end["end"] == "stopped"
    assert 250 <= end["rows"] <= 259
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.csv", "rows.csv"]


def test_standard_input_is_read_as_it_comes_and_left_when_stopped():
    words = ("-", "-b", 10, "--json", "--epsilon", 5, "--horizon", 100, "--data-set", "piped")
    with watching(*words, stdin=subprocess.PIPE) as process:
        for rows in (10, 20):
            process.stdin.write(text_of(low_rank(10), names=rows == 10))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["rows"] == rows
        process.send_signal(signal.SIGTERM)  # while more may come
        assert process.wait() == 0, process.stderr.read()
        end = json.loads(process.stdout.read())
    assert (end["end"], end["rows"], end["blocks_left"]) == ("stopped", 20, 98)
    assert end["guarantee"]["certified"] is True


def test_standard_input_ends_with_its_writer(monkeypatch, run):
    text = text_of(low_rank(17))[:-1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    lines, end = lines_of(run("watch", "-", "-b", 10, "--json")[1])
    assert [line["rows"] for line in lines] == [10, 17]
    assert end["end"] == "rows"


def test_nobody_reading_any_more_is_an_orderly_end(file, tmp_path, run, monkeypatch):
    out = tmp_path / "c.csv"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        status, _, err = run("watch", file, "-b", 10, "--out", out)
        monkeypatch.undo()
    assert (status, err) == (0, "")
    assert out.exists()


def test_a_terminal_has_one_line_that_changes(file, run, monkeypatch):
    ours, theirs = os.openpty()
    said = []

    def reading():
        try:
            while piece := os.read(ours, 4096):
                said.append(piece)
        except OSError:  # how Linux says that a terminal has no more users
            pass

    reader = threading.Thread(target=reading)
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", terminal)
        status, _, _ = run("watch", file, "-b", 10)
        monkeypatch.undo()
    reader.join()
    os.close(ours)
    assert status == 0
    text = b"".join(said)
    assert text.count(b"PC1") == 1
    before, _, after = text.partition(b"ended: there are no more rows")
    assert b"200 rows" in before
    assert before.count(b"\n") < 10  # lines replace one another
    assert b"/s" not in after


@pytest.mark.parametrize("line", ["x,1", "1,2,3"])
@pytest.mark.parametrize("publish", [("--publish", "end"), ("--horizon", 3)])
def test_a_line_that_is_no_row_is_a_zero_row_of_a_private_stream(line, publish, tmp_path, run):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n" + "1,2\n" * 9 + line + "\n" + "3,1\n" * 10)
    words = ("watch", file, "--epsilon", 5, "-k", 1, "-b", 10, *publish)
    status, _, err = run(*words)
    assert status == 0
    assert f"1 row is not valid and was left out: {file}: line 11, column 'a' is nan" in err


def test_forgetting_privately_publishes_after_every_block_without_end(tmp_path, run):
    """With the noise of one block each; the guarantee is that of one block."""
    path, out = tmp_path / "rows.csv", tmp_path / "model"
    path.write_text(text_of(low_rank(4000)))
    words = ("--epsilon", 5, "--forgetting", 0.5, "-b", 500, "--out", out, "--json")
    printed = run.done("watch", path, *words)
    lines, end = lines_of(printed)
    assert [line["rank"] for line in lines] == [2] * 8
    assert end["rows"] == 4000
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["plan"]["publish"] == "blocks"
    assert certificate["plan"]["forgetting"] == 0.5
    assert all(release["disjoint"] for release in certificate["releases"])
    assert run("certify", out)[0] == 0


def test_a_private_stream_of_noise_has_captured_nothing(tmp_path, run):
    path = tmp_path / "few.csv"
    rows = np.random.default_rng(0).normal(size=(30, 4))
    np.savetxt(path, rows, delimiter=",", header="a,b,c,d", comments="")
    out = run.done("watch", path, "--epsilon", 0.05, "--no-ledger")
    assert "100.00 %" not in out
    assert "not usable" in out
    path.write_text("a,b\n")  # no rows at all
    assert run("watch", path, "--epsilon", 5, "-k", 1, "--publish", "end")[0] == 0
