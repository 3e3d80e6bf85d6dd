"""Rows whose rounding depends on their place in memory: one row more moves all others."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_process import at_offset, released, sums

from eigenveil.models.pca.estimator import PrivatePCA
from eigenveil.moments import independence
from eigenveil.moments import norms as norms_module
from eigenveil.moments import rows as rows_module
from eigenveil.moments.documents.documents import DocumentBlock
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.norms import upper_norms
from eigenveil.moments.rows import DTYPE, RowRule
from eigenveil.privacy.certificate import DEPENDENT
from soak_tools import times

PROCESS = Path(__file__).with_name("kernels_process.py")
THOROUGH = pytest.mark.thorough
# Names of kernels, and what OpenBLAS may call them.
KERNELS = {
    "": None,
    "Prescott": {"Prescott", "Katmai"},
    "Nehalem": {"Nehalem"},
    "Sandybridge": {"Sandybridge"},
    "Haswell": {"Haswell"},
    "SkylakeX": {"SkylakeX"},
}


@cache
def under(kernel):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    if kernel:
        environment["OPENBLAS_CORETYPE"] = kernel
    done = subprocess.run(
        [sys.executable, str(PROCESS)], env=environment, capture_output=True, timeout=300
    )
    if kernel and done.returncode < 0:
        pytest.skip(f"this processor cannot run the kernel {kernel}")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    if kernel and KERNELS[kernel].isdisjoint(found["kernels"]):
        pytest.skip(f"this library has no kernel {kernel}")
    return found


@pytest.mark.parametrize(
    "kernel",
    [each if each in ("", "Prescott") else pytest.param(each, marks=THOROUGH) for each in KERNELS],
)
def test_a_zero_row_moves_no_other_row(kernel):
    found = under(kernel)
    assert found["doubts"] is False
    for name, each in found["found"].items():
        assert each["now"] == 0, name
        assert each["different"] == [], name
        assert each["digest"] == under("")["found"][name]["digest"], "the same under any kernel"


def test_norms_as_they_were_moved_rows_and_are_noticed():
    """The mutant: one call of the BLAS a row."""
    found = under("Prescott")
    assert found["found"]["double 17"]["before"] == 400
    assert found["before"] is True


# -- what needs no other kernel


def by_alignment(rows):
    """Norms one unit in the last place larger where a row starts at an odd multiple of 8 bytes."""
    norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1))
    starts = rows.ctypes.data + np.arange(rows.shape[0]) * rows.strides[0]
    return np.where(starts // 8 % 2, np.nextafter(norms, np.inf), norms)


def by_place(rows):
    """Norms whose last place depends on where in the block a row stands."""
    norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1))
    return np.where(np.arange(rows.shape[0]) % 4 == 3, np.nextafter(norms, np.inf), norms)


@pytest.mark.parametrize("wrong", [by_alignment, by_place])
def test_a_processor_that_rounds_rows_by_their_place_is_not_certified(wrong, monkeypatch):
    assert not independence.dependence()
    rows = np.random.default_rng().standard_normal((4000, 6))
    fitted = PrivatePCA(2, epsilon=5.0, delta=1e-6).fit(rows)
    assert fitted.certificate_.guarantee().certified
    monkeypatch.setattr(rows_module, "row_norms", wrong)
    independence.dependence.cache_clear()
    try:
        assert independence.dependence()
        again = PrivatePCA(2, epsilon=5.0, delta=1e-6).fit(rows)
        assert DEPENDENT in again.certificate_.reasons_not_certified
        assert not again.certificate_.guarantee().certified
        assert again.components_.shape == (2, 6)
    finally:
        independence.dependence.cache_clear()


@pytest.mark.parametrize("precision", ["single", "double"])
@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), width=st.sampled_from([1, 2, 3, 17, 64, 300, 1100]))
def test_norms_depend_on_no_order_of_summation(precision, seed, width):
    """Columns in any order, sums in halves or one by one, in single, double or more digits."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((8, width)) * 10.0 ** rng.integers(-30, 30, (8, 1))
    rows = rows.astype(DTYPE[precision])
    wanted = upper_norms(rows)
    long = np.sqrt(np.sum(rows.astype(np.longdouble) ** 2, axis=1))
    above = 2.0**-9 if precision == "single" else 2.0**-25
    assert np.all(wanted >= long * (1 - 2.0**-53))
    assert np.all(wanted <= long * (1 + above))
    for order in (rng.permutation(width), slice(None, None, -1)):
        assert np.array_equal(upper_norms(rows[:, order]), wanted)
    assert np.array_equal(upper_norms(rows.astype(np.float64)), wanted) or precision == "single"

    def one_by_one(part):
        total = np.zeros(part.shape[0], part.dtype)
        for column in part.T:
            total += column * column
        return total

    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):
        for sums in (one_by_one, lambda part: np.cumsum((part * part)[:, ::-1], axis=1)[:, -1]):
            patch.setattr(norms_module, "squared_norms", sums)
            assert np.array_equal(upper_norms(rows), wanted)


def laid_out(rows, way, rng):
    """The same rows elsewhere in memory, in another layout."""
    match way:
        case "offset":
            return at_offset(rows, int(rng.integers(16)))
        case "fortran":
            return np.asfortranarray(rows)
        case "strided":
            wide = np.zeros((2 * rows.shape[0], 3 * rows.shape[1]), rows.dtype)
            wide[::2, 1::3] = rows
            return wide[::2, 1::3]
        case "backwards":
            return np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1]
        case "read-only":
            rows = rows.copy()
            rows.setflags(write=False)
            return rows
        case "odd byte":
            memory = np.zeros(rows.nbytes + 1, dtype=np.uint8)
            memory[1:] = np.frombuffer(rows.tobytes(), np.uint8)
            return memory[1:].view(rows.dtype).reshape(rows.shape)


WAYS = ["offset", "fortran", "strided", "backwards", "read-only", "odd byte"]


@pytest.mark.parametrize("precision", ["single", "double"])
@settings(deadline=None, max_examples=times(75))
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from([3, 7, 17, 64]),
    way=st.sampled_from(WAYS),
    step=st.sampled_from([1, 2, 5, 40]),
)
def test_no_sum_depends_on_order_layout_or_blocks(precision, seed, width, way, step):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, width)) * 10.0 ** rng.integers(-3, 4, (40, 1))
    rows[rng.integers(40)] = 0.0
    rows = rows.astype(DTYPE[precision])
    other = laid_out(rows[rng.permutation(40)], way, rng)
    center = rng.standard_normal(width) if seed % 2 else None
    rule = RowRule(center=center, bound=float(seed % 3), precision=precision)
    for each in sums(rule, width):
        assert np.array_equal(released(each, rows, 40), released(each, other, step)), each.statistic


@settings(deadline=None, max_examples=times(75))
@given(seed=st.integers(0, 2**32 - 1), step=st.sampled_from([1, 3, 30]))
def test_no_sum_over_documents_depends_on_order_or_blocks(seed, step):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(10.0 ** rng.integers(-1, 5, (30, 1)), (30, 7)).astype(np.int64)
    counts[:, 0] += 3
    order = rng.permutation(30)
    basis = np.linalg.qr(rng.standard_normal((7, 3)))[0]
    for clip in (1.0, 0.03):
        made = [
            DocumentPairs(7, clip=clip),
            DocumentPairs(7, clip=clip, nuclear=True),
            WordShares(7, clip=clip),
            DocumentSketch(7, 4, clip=clip),
            DocumentTriples(basis, clip=clip),
        ]
        for each in [*made, *(DocumentNorms(of) for of in made)]:
            one, two = each.empty(), each.empty()
            one.update(DocumentBlock(counts))
            for start in range(0, 30, step):
                two.update(DocumentBlock(scipy.sparse.csc_array(counts[order[start:][:step]])))
                two.flush()
            assert np.array_equal(one.integers(), two.integers())


@pytest.mark.parametrize("precision", ["single", "double"])
def test_norms_at_a_threshold_are_settled_exactly(precision):
    """Rows whose squared norm is within a rounding of a number that norms are rounded up to."""
    bits = norms_module._STEP_BITS[np.dtype(DTYPE[precision])]
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((40, 9)).astype(DTYPE[precision])
    for row in rows:
        square = sum(float(entry) ** 2 for entry in row)
        target = norms_module._next_number(square, bits)
        row[0] = np.sqrt(target - (square - float(row[0]) ** 2))
    near = rows.repeat(5, axis=0)
    near[:, 0] += np.tile(np.arange(-2, 3), 40) * np.spacing(near[:, 0])
    wanted = [norms_module._exactly(row.tolist(), bits) for row in near]
    assert np.unique(wanted).size > 40, "both sides of the numbers"
    assert np.array_equal(upper_norms(near), wanted)
    backwards = np.asfortranarray(near[:, ::-1])
    assert np.array_equal(upper_norms(backwards), wanted)
