"""The compiled loops give what NumPy gives, bit for bit, whatever the rows are."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import nasty_rows, random_basis

from eigenveil.moments import compiled, loops
from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.histograms import (
    ABOVE_EDGE,
    ColumnHistogram,
    NormHistogram,
    bin_upper_edges,
    norm_bins,
    range_of,
)
from eigenveil.moments.norms import _settled, _steps, integer_rows, upper_norms
from eigenveil.moments.preparation import Preparation
from eigenveil.moments.rows import DTYPE, Block, RowRule
from soak_tools import times

needs_loops = pytest.mark.skipif(loops.COMPILED is None, reason="no compiled loops here")
PRECISIONS = st.sampled_from(["single", "double"])
# NaNs with payloads of either sign, negative zero, subnormal numbers, the largest
PAYLOADS = np.array([0x7FF8DEADBEEF0001, 0xFFF8000000000001], dtype=np.uint64).view(np.float64)
ODD = [0.0, -0.0, 5e-324, -1e-310, 1e-45, 3.4e38, 1.7e308, -1.7e308, np.inf, -np.inf, *PAYLOADS]


@st.composite
def blocks(draw):
    """Rows of any numbers, stored in any way."""
    dtype = draw(st.sampled_from(["f8", "f4", "f8", "f4", "f8", ">f8", "i4"]))
    shape = draw(st.tuples(st.integers(0, 19), st.integers(1, 70)))
    rows = nasty_rows(*shape, draw(st.integers(0, 2**32 - 1)))
    places = st.tuples(*(st.integers(0, max(0, size - 1)) for size in shape))
    for place in draw(st.lists(places, max_size=3)) if rows.size else ():
        rows[place] = draw(st.sampled_from(ODD) | st.floats(width=32))
    if dtype == "i4":
        rows = np.clip(np.nan_to_num(rows), -1e6, 1e6)
    with np.errstate(over="ignore"):
        rows = rows.astype(dtype)
    return draw(st.sampled_from(list(STORED.values())))(rows)


def _unaligned(rows):
    memory = np.zeros(rows.nbytes + 1, dtype=np.uint8)
    found = memory[1:].view(rows.dtype).reshape(rows.shape)
    found[:] = rows
    return found


def _read_only(rows):
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


STORED = {
    "as it is": lambda rows: rows,
    "by columns": np.asfortranarray,
    "backwards": lambda rows: rows[::-1, ::-1].copy()[::-1, ::-1],
    "spaced": lambda rows: np.repeat(np.repeat(rows, 2, axis=0), 3, axis=1)[::2, ::3],
    "one row again": lambda rows: np.broadcast_to(rows[:1], rows.shape),
    "unaligned": _unaligned,
    "read-only": _read_only,
}


def both(make):
    """What the compiled loops make, and what NumPy makes."""
    compiled, loops.COMPILED = make(), None
    try:
        return compiled, make()
    finally:
        loops.COMPILED = _COMPILED


_COMPILED = loops.COMPILED


def same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(found, tuple):
        for each, its in zip(found, wanted, strict=True):
            same(each, its)
    elif isinstance(found, np.ndarray):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # nothing is made of what a NaN carries, and 0 and -0 are one number
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


def preparations(features):
    some = np.linspace(-1.0, 3.0, features)
    spread = np.where(np.arange(features) % 5 == 3, 0.0, 0.25 + some**2)
    return [
        Preparation(),
        Preparation(some, spread),
        Preparation(scale=spread * 1e-300),
        Preparation(some * 1e30, None, limit=2.0),
        Preparation(some, np.where(np.arange(features) == 1, 1e-37, spread)),  # not within single
        Preparation(some, spread, limit=1.5, holes=True),
    ]


@needs_loops
@settings(max_examples=times(3000))
@given(blocks(), PRECISIONS, st.booleans())
def test_rows_less_a_centre_and_their_norms(rows, precision, centered):
    center = np.cos(np.arange(rows.shape[1])) if centered else None
    made = preparations(rows.shape[1])

    def make():
        return tuple(map(of, made))

    def of(preparation):
        block = Block(rows)
        found = block.residuals(center, precision, preparation)
        return *found, block.left_out, block.first_invalid

    same(*both(make))


@needs_loops
@settings(max_examples=times(3000))
@given(blocks(), PRECISIONS, st.sampled_from([0.0, 1e-3, 2.5, 1e9]), st.sampled_from([-4, 0, 2]))
def test_prepared_rows_and_their_squares(rows, precision, bound, extra_bits):
    rule = RowRule(bound=bound, precision=precision, extra_bits=extra_bits)
    same(*both(lambda: rule(Block(rows))))


@needs_loops
@settings(max_examples=times(3000))
@given(st.integers(1, 40), st.integers(1, 70), PRECISIONS, st.integers(0, 2**32 - 1))
def test_rows_of_several_limits(count, width, precision, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, width)).astype(DTYPE[precision])
    limits = np.floor(4.0 ** rng.integers(0, 10, count) / rng.integers(1, 5, count))
    factors = np.sqrt(limits) / upper_norms(rows) * rng.choice([0.9, 1.0, 1.1], count)

    def make():
        return integer_rows(rows, factors.copy(), limits)

    found, wanted = both(make)
    same(found, wanted)
    assert np.all(found[1] <= limits)


def sums(features, precision):
    rule = RowRule(np.sin(np.arange(features)), bound=2.0, precision=precision)
    basis = random_basis(features, min(3, features))
    middle, half = np.zeros(features), np.full(features, 3.0)
    wide = range_of(middle, half, holes=False)
    return [
        partial(ColumnHistogram, features, precision=precision),
        partial(ColumnHistogram, features, precision=precision, preparation=wide),
        partial(NormHistogram, rule.center, precision=precision),
        partial(NormHistogram, rule.center, precision=precision, basis=basis, bound=2.0),
        partial(RowSum, rule, features=features, count_weight=0.25),
        partial(SecondMoment, rule, features=features),
        partial(Sketch, rule, basis, clip=0.5),
        partial(ComponentEnergy, rule, basis.T, count_weight=0.25),
    ]


@needs_loops
@settings(max_examples=times(3000))
@given(blocks(), PRECISIONS, st.integers(0, 7))
def test_integer_sums(rows, precision, which):
    def make():
        total = sums(rows.shape[1], precision)[which]()
        total.update(Block(rows))
        return total.integers()

    same(*both(make))


@needs_loops
@pytest.mark.parametrize("precision", ["single", "double"])
def test_many_rows_of_which_some_lie_at_an_edge(precision):
    """Of so many, some round at a half, some norms are next to a number of their sequence."""
    rows = np.random.default_rng(5).standard_normal((3000, 400)).astype(DTYPE[precision])
    rule = RowRule(bound=20.0, precision=precision)
    same(*both(lambda: rule(Block(rows))))
    same(*both(lambda: rule(Block(rows.reshape(-1, 4)))))
    # not orthonormal: rows have less energy than along these
    components = np.repeat(random_basis(400, 1).T, 2, axis=0)

    def energies():
        total = ComponentEnergy(rule, components, count_weight=0.0)
        total.update(Block(rows[:, :400] + 20 * components[0].astype(rows.dtype)))
        total.update(Block(rows))
        return total.integers()

    same(*both(energies))


@needs_loops
@pytest.mark.parametrize("near", [2, 1 << 26])
def test_norms_that_the_order_of_summation_may_change_are_left_open(near):
    """Of one entry there is one order, so that both leave the same open."""
    rows = np.random.default_rng(1).standard_normal((5000, 1))
    norms = np.empty(5000)
    shift, within = int(_steps(24)[1]), (1e-3, 4.0)
    found = loops.COMPILED.norms(rows, norms, 24, shift, near, *within)
    settled = _settled(rows[:, 0] ** 2, near, 24, within)
    np.testing.assert_array_equal(np.isnan(norms), ~settled)
    assert found == np.count_nonzero(~settled) > 100


@needs_loops
def test_norms_at_the_edges_of_their_bins():
    edges = bin_upper_edges()[:-1] * ABOVE_EDGE
    norms = np.concatenate([edges, np.nextafter(edges, 0), [0.0, 5e-324, np.inf, 1e300]])
    same(*both(lambda: norm_bins(norms)))


@needs_loops
@pytest.mark.parametrize("wrong", ["short", "kind", "columns", "fortran", "one row"])
def test_arrays_that_do_not_fit_are_refused_before_anything_is_written(wrong):
    rows, out = np.ones((4, 3)), np.zeros((4, 3))
    columns, counts = np.arange(3), np.zeros((3, 245), dtype=np.int64)
    calls = {
        "short": lambda: loops.COMPILED.prepared(rows, False, None, None, np.inf, rows[0, :2], out),
        "kind": lambda: loops.COMPILED.norms(rows.astype(">f8"), out[0], 24, 0, 2, 0.0, 1.0),
        "one row": lambda: loops.COMPILED.norms(rows[0], out[0], 24, 0, 2, 0.0, 1.0),
        "columns": lambda: loops.COMPILED.column_bins(
            rows, columns + 1, counts, 0.0, 22, 9, 193, 314, 121
        ),
        "fortran": lambda: loops.COMPILED.rounded(
            np.asfortranarray(rows), np.ones(4), None, 9.0, out, np.zeros(4)
        ),
    }
    with pytest.raises((TypeError, ValueError, BufferError)):
        calls[wrong]()
    assert not out.any()
    assert not counts.any()


def started(code, **more):
    """What a new process prints and warns."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | more,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


SAY = "from eigenveil.moments.compiled import in_use; print(in_use())"


def test_numpy_can_be_asked_for():
    assert started(SAY, EIGENVEIL_LOOPS="numpy") == "numpy\n"


@pytest.mark.parametrize("beside", ["raise ImportError('it is broken')", "INTERFACE = 0"])
def test_loops_that_do_not_load_or_fit_are_told_once_and_not_used(beside):
    code = f"""
import importlib.abc, importlib.util, sys
class Found(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "eigenveil.moments._loops":
            return importlib.util.spec_from_loader(name, self)
    def exec_module(self, module):
        exec({beside!r}, module.__dict__)
sys.meta_path.insert(0, Found())
{SAY}"""
    told = started(code)
    assert "numpy\n" in told
    assert told.count("RuntimeWarning") == 1
    assert "Results are the same, fits are slower" in told


def test_without_them_nothing_is_said(monkeypatch, recwarn):
    monkeypatch.setitem(sys.modules, "eigenveil.moments._loops", None)
    assert compiled.compiled.__wrapped__() is None
    assert not recwarn
