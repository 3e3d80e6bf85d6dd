"""Data sets from OpenML, for people with a network: fetched once, when asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eigenveil.errors import DataError
from eigenveil.files import replacing

KNOWN = {"mnist": 554, "fashion-mnist": 40996, "covtype": 1596, "wine": 40691}
"""Their numbers at OpenML, which name one version each."""


def folder() -> Path:
    """Where fetched data sets are kept: beside those of scikit-learn."""
    from sklearn.datasets import get_data_home

    # only named here: asking whether there is a folder should not make it
    return Path(get_data_home()) / "eigenveil"


def fetch(name: str) -> Path:
    """Fetch a data set; the file it was written to.

    Raises
    ------
    DataError
        When it is not known there, or the network gives no answer.
    """
    if name not in KNOWN:
        raise DataError(
            f"{name} cannot be fetched.",
            hint=f"Of OpenML there are {', '.join(KNOWN)}; give its file with --data-folder.",
            code="cannot-fetch",
        )
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(data_id=KNOWN[name], as_frame=False, parser="liac-arff")
    except Exception as error:  # whatever the network, the server or its file does
        raise DataError(
            f"{name} could not be fetched from OpenML ({type(error).__name__}: {error}).",
            hint="Try again, or give its file with --data-folder.",
            code="cannot-fetch",
        ) from error
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{name.replace('-', '_')}.npz"
    X = np.asarray(found.data, dtype=np.float64)
    whole = np.array_equal(X, X.astype(np.int16))
    columns = np.array([str(column) for column in found.feature_names])
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez_compressed(
            file, X=X.astype(np.int16) if whole else X, y=found.target.astype(str), columns=columns
        )
    return path
