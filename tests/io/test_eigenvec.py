"""Scores of genotypes as plink2 writes them, and beside what plink2 itself finds.

Epsilon is 40, beyond which noise gets no smaller. The standard deviation of what is compared is a
tenth of the room that the bounds leave, or less: the false-alarm rate is far below 1e-8.
"""

from __future__ import annotations

import io
import shutil
import subprocess

import numpy as np
import pytest
from genotype_tools import counts_of, samples_of, variants_of, write_bed, write_manifest

from eigenveil import DataError
from eigenveil.io.write import eigenval_beside, write_columns, write_eigenvec

FST, POPULATIONS = 0.1, 3


def populations(samples, variants, *, seed=1):
    """Counts of three populations (Balding and Nichols), one of which is twice as large."""
    rng = np.random.default_rng(seed)
    p, odds = rng.uniform(0.1, 0.9, variants), (1 - FST) / FST
    drifted = rng.beta(p * odds, (1 - p) * odds, size=(POPULATIONS, variants))
    whose = np.arange(samples) % (POPULATIONS + 1) % POPULATIONS
    counts = rng.binomial(2, drifted[whose]).astype(np.float32)
    counts[rng.random(counts.shape) < 0.02] = np.nan
    return counts


def scores_of(path):
    """The header, the samples and the scores of an .eigenvec."""
    head, *lines = (line.split("\t") for line in path.read_text().splitlines())
    at = head.index("PC1")
    numbers = np.array([[float(cell) for cell in line[at:]] for line in lines])
    return head, [tuple(line[:at]) for line in lines], numbers


def fitted(run, tmp_path, counts, frequencies):
    """A .bed, and the .eigenvec that a fit with little noise makes of it."""
    bed = write_bed(tmp_path / "a.bed", counts)
    manifest = write_manifest(tmp_path / "m.tsv", variants_of(counts.shape[1]), frequencies)
    result, scores = tmp_path / "result", tmp_path / "ours.eigenvec"
    options = ["--components", "2", "--epsilon", "40", "--mechanism", "gaussian"]
    options += ["--center", "none", "--no-ledger", "--quiet", "--no-plots"]
    bound = 1.2 * np.sqrt(counts.shape[1])
    assert run("fit", bed, "--variants", manifest, *options, "--row-norm", f"{bound:g}", "--out",
               result)[0] == 0  # fmt: skip
    out = run.done("transform", result, bed, "--variants", manifest, "--out", scores)
    return bed, scores, out


def test_scores_stand_after_family_and_individual(tmp_path, run):
    counts = populations(4000, 200)
    frequencies = np.nanmean(counts, axis=0) / 2
    bed, scores, out = fitted(run, tmp_path, counts, frequencies)
    assert "after FID, IID" in " ".join(out.split())
    head, samples, numbers = scores_of(scores)
    assert head == ["#FID", "IID", "PC1", "PC2"]
    assert samples == samples_of(4000)
    X = np.nan_to_num((counts - 2 * frequencies) / np.sqrt(2 * frequencies * (1 - frequencies)))
    # eigenvectors of the samples' relationship matrix, and the roots of its eigenvalues
    vectors, roots, _ = np.linalg.svd(X / np.sqrt(200), full_matrices=False)
    found = np.linalg.svd(vectors[:, :2].T @ np.linalg.qr(numbers)[0])[1]
    assert found.min() > 0.99
    eigenvalues = np.loadtxt(tmp_path / "ours.eigenval")
    np.testing.assert_allclose(eigenvalues, roots[:2] ** 2, rtol=0.1)
    # a place that is taken is kept, whichever of the two it is
    scores.unlink()
    before = (tmp_path / "ours.eigenval").read_text()
    assert run("transform", tmp_path / "result", bed, "--variants", tmp_path / "m.tsv", "--out",
               scores)[0] != 0  # fmt: skip
    assert not scores.exists()
    assert (tmp_path / "ours.eigenval").read_text() == before
    # without the manifest columns are others, and nothing is computed
    err = run.fails(
        "transform", tmp_path / "result", bed, "--out", tmp_path / "b.eigenvec", status=3
    )
    assert "no column" in err
    assert not (tmp_path / "b.eigenvec").exists()


def test_families_are_left_out_where_samples_have_none():
    file = io.BytesIO()
    samples, scores = np.array(["a", "b"]), np.array([0.5, -1234.5678])
    write_eigenvec(
        file, [[("IID", samples[k : k + 1]), ("PC1", scores[k : k + 1])] for k in (0, 1)]
    )
    assert file.getvalue() == b"#IID\tPC1\na\t0.5\nb\t-1234.57\n"


def test_rows_without_names_of_samples_are_refused_and_nothing_is_written(tmp_path):
    class Model:
        explained_variance_ = np.ones(2)
        n_samples_ = n_features_in_ = 3

    place = tmp_path / "a.eigenvec"
    with pytest.raises(DataError) as refused, eigenval_beside(place, Model()):
        write_columns(place, [("PC1", np.zeros(3))])
    assert refused.value.code == "no-samples"
    assert list(tmp_path.iterdir()) == []


def test_plink2_finds_the_same_without_privacy(tmp_path, run):
    """Same frequencies, a public row bound, D x D, little noise: subspaces agree to 0.999."""
    if shutil.which("plink2") is None:
        pytest.skip("plink2 is not installed (apt-get install plink2)")
    counts = populations(1500, 2000)
    bed, scores, _ = fitted(run, tmp_path, counts, np.nanmean(counts, axis=0) / 2)
    command = ["plink2", "--bfile", bed.with_suffix(""), "--pca", "2", "--nonfounders"]
    command += ["--threads", "1", "--out", tmp_path / "theirs"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    head, samples, ours = scores_of(scores)
    their_head, their_samples, theirs = scores_of(tmp_path / "theirs.eigenvec")
    assert head == their_head
    assert samples == their_samples
    assert np.linalg.svd(np.linalg.qr(ours)[0].T @ np.linalg.qr(theirs)[0])[1].min() > 0.999
    found = [np.loadtxt(tmp_path / f"{name}.eigenval") for name in ("ours", "theirs")]
    # of a pair of samples plink2 counts the variants that both have: 0.98**2 of all here
    np.testing.assert_allclose(found[0], 0.98**2 * found[1], rtol=0.1)


def test_plink2_counts_what_is_read(tmp_path):
    if shutil.which("plink2") is None:
        pytest.skip("plink2 is not installed (apt-get install plink2)")
    from eigenveil.io import open_rows

    counts = counts_of(9, 5)
    bed = write_bed(tmp_path / "a.bed", counts)
    words = ["plink2", "--bfile", bed.with_suffix(""), "--make-pgen", "--out", tmp_path / "b"]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    rows = open_rows([bed, tmp_path / "b.pgen"])
    found = np.concatenate([block.values for block in rows.blocks()])
    np.testing.assert_array_equal(found, np.concatenate([counts, counts]))
