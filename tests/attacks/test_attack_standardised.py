"""One row against columns scaled by the fit itself."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from eigenveil import FederatedPCA, PrivatePCA

ROWS = 4000
FITS = 8
OPTIONS = {"epsilon": 1.0, "delta": 1e-5}


def table(extra):
    rng = np.random.default_rng(3)
    z = rng.standard_normal((ROWS, 1)) * [1.0, 1.0, 0.0, 0.0] + 0.7 * rng.standard_normal((ROWS, 4))
    rows = z * [1.0, 50.0, 1e-3, 7.0] + [0.0, 900.0, 1.0, -3.0]
    return np.concatenate([rows, extra]) if len(extra) else rows


OUTLIERS = {
    "one huge entry": [[1e9, 900.0, 1.0, -3.0]],
    "all huge": [[1e9, -1e9, 1e9, 1e9]],
    "the largest number": [[1e308, 900.0, 1.0, -3.0]],
    "not a number": [[np.inf, 900.0, 1.0, -3.0]],
}
DEVIATIONS, MIDDLE = table([]).std(axis=0), table([]).mean(axis=0)
WIDE = np.column_stack([MIDDLE - 4 * DEVIATIONS, MIDDLE + 4 * DEVIATIONS])
SCALED = {
    "private": {"scale": "private"},
    "public scales": {"scale": DEVIATIONS},
    "public ranges": {"ranges": WIDE},
    "private within ranges": {"scale": "private", "ranges": WIDE},
}


def loading(model):
    """Of the first column, which one huge entry of a scaler's takes out of the first component."""
    return abs(model.components_[0, 0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("outlier", OUTLIERS)
@pytest.mark.parametrize("scaled", SCALED)
def test_one_row_does_not_move_the_components(scaled, outlier):
    """0.71 with and without it; noise moves the loading by about 0.02, and 0.3 are allowed."""
    options = OPTIONS | SCALED[scaled]
    for extra in ([], OUTLIERS[outlier]):
        found = [
            loading(PrivatePCA(1, random_state=s, **options).fit(table(extra))) for s in range(3)
        ]
        assert min(found) > 0.4, "a row of 1e9 hides the other 4000"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nor_over_sites():
    rows = table(OUTLIERS["all huge"])
    model = FederatedPCA(1, protocol="cape", scale="private", random_state=0, **OPTIONS)
    assert loading(model.fit({"a": rows[:1500], "b": rows[1500:]})) > 0.4


def test_a_scaler_before_the_fit_is_moved_by_it():
    """So the tests above can see it: every fit is turned over, and all are certified."""
    scaler = StandardScaler()
    found = []
    for _ in range(FITS):
        model = PrivatePCA(1, **OPTIONS).fit(
            scaler.fit_transform(table(OUTLIERS["one huge entry"]))
        )
        found.append(loading(model))
    assert max(found) < 0.3


def test_the_scales_themselves_move_by_no_more_than_noise():
    """Reading quantiles of thresholded counts: one row is far below what a bin must show."""
    ratios = []
    for extra in ([], OUTLIERS["all huge"]):
        model = PrivatePCA(2, scale="private", random_state=4, **OPTIONS).fit(table(extra))
        assert not model.unscaled_.any()
        ratios.append(model.scale_)
    assert np.log(ratios[0] / ratios[1]) == pytest.approx(np.zeros(4), abs=0.1)
