"""What a draft says of values that may be codes for missing ones."""

import numpy as np
import pyarrow as pa
import pytest

from eigenveil.tables.draft import SeenNumbers, SeenTexts

VISITS = np.random.default_rng(3).normal(92, 17, 8000).round(1).clip(24.8, 160)
CODED = [
    (VISITS, [999] * 467, [999]),
    (VISITS, [-9] * 30 + [999] * 30 + [9999] * 9, [-9, 999, 9999]),
    (VISITS, [999] * 7, []),  # less than one of a thousand cells
    (VISITS, [900, 940, 990], []),  # far away, but none repeats
    (VISITS, [], []),
    (np.arange(1, 6).repeat(50), [-9] * 9 + [99] * 9, [-9, 99]),
    (np.arange(1, 6).repeat(50), [-999] * 9 + [999] * 9, [-999, 999]),
    (2.0 ** np.arange(6).repeat(50), [], []),
    (np.arange(2).repeat(50), [], []),
    (np.array([0, 50, 100]).repeat(50), [], []),
]


@pytest.mark.parametrize(("values", "more", "codes"), CODED)
@pytest.mark.parametrize("at_once", [97, 10_000])
def test_a_value_that_repeats_far_from_the_others_may_be_a_code(values, more, codes, at_once):
    seen = SeenNumbers("weight")
    cells = np.random.default_rng(0).permutation(np.r_[values, more])
    for start in range(0, cells.size, at_once):
        seen.add(pa.array(cells[start : start + at_once]))
    found = seen.drafted()
    assert seen.codes == codes
    assert ("(na)" in found.why) == bool(codes)
    for code in codes:
        assert f"{code} in {more.count(code)} cells" in found.why
    rest = np.r_[values, [] if codes else more]
    assert found.column.range == (rest.min(), rest.max())


def test_a_word_beside_dates_may_be_a_code():
    dates = [f"{day:02}.{month:02}.2024" for day in range(1, 29) for month in range(1, 13)]
    for cells, kind, told in (
        ([*dates, "k.A.", "k.A.", "-9"], "date", "and 'k.A.' in 2 cells, '-9' in 1 cell"),
        ([*dates, *dates, "31/12/2024"], None, "a text with more than"),
        ([*dates, *dates, "a", "b", "c", "d"], None, "a text with more than"),
        (["N", "S"] * 9, "category", "2 levels"),
    ):
        seen = SeenTexts("visit")
        seen.add(pa.array(cells))
        found = seen.drafted()
        assert (found.column.kind, told in found.why) == (kind, True), found.why
