"""Whatever is typed, and whatever a file holds: an error of the package, never exit 70."""

from __future__ import annotations

import contextlib
import random
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from eigenveil import PrivateGaussianMixture, PrivatePCA, PrivateTopicModel
from eigenveil.cli import app as commands
from eigenveil.cli.app import app
from eigenveil.errors import EigenveilError
from soak_tools import SOAK


class _Drawn(Exception):
    """Noise would have been drawn: the options were fine."""


VALUES = ["1e308", "-1", "nan", "9" * 25, "moment=1e308,scale=1e308", "x" * 300, "a:1e308"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("home") / "rows.csv"
    table = np.random.default_rng(0).normal(size=(40, 4))
    pd.DataFrame(table, columns=list("abcd")).to_csv(file, index=False)
    return file


@pytest.mark.parametrize(
    "option",
    [
        max(each.opts, key=len)
        for each in commands.COMMANDS["fit"].load("fit").params
        if each.param_type_name == "option" and not each.is_flag
    ],
)
def test_no_value_of_an_option_is_a_defect(option, rows, tmp_path, monkeypatch):
    def drawn(*_):
        raise _Drawn

    for source in ("SecureSource", "SeededSource"):
        monkeypatch.setattr(f"eigenveil.noise.source.{source}.words", drawn)
    monkeypatch.chdir(tmp_path)
    # a part of all values, another one for each option
    for value in random.Random(option).sample(VALUES, 3):
        words = ["fit", str(rows), "--out", str(tmp_path / "out"), "-k", "1", f"{option}={value}"]
        reported = CliRunner().invoke(app, words, auto_envvar_prefix="EIGENVEIL")
        if reported.exception is not None:
            assert isinstance(reported.exception, (EigenveilError, SystemExit, _Drawn)), (
                value,
                repr(reported.exception),
            )
            if isinstance(reported.exception, SystemExit):
                assert reported.exit_code < 70


@pytest.mark.parametrize("option", ["--features", "--rows"])
def test_sizes_that_no_table_has(option):
    reported = CliRunner().invoke(app, ["plan", "--rows=9", "--features=4", f"{option}={'9' * 25}"])
    assert isinstance(reported.exception, EigenveilError)


# -- files of models


KINDS = {
    "pca": lambda rows: PrivatePCA(1, epsilon=50).fit(rows),
    "mixture": lambda rows: PrivateGaussianMixture(1, epsilon=50).fit(rows),
    "topics": lambda rows: PrivateTopicModel(1, epsilon=50).fit(np.round(np.abs(rows)) + 2),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "model.npz"
    rows = np.random.default_rng(0).normal(size=(400, 4)) * [9, 1, 1, 1]
    KINDS[request.param](rows).save(file)
    return file


def shown(file):
    reported = CliRunner().invoke(app, ["show", str(file.parent)])
    assert reported.exception is None or isinstance(reported.exception, EigenveilError), repr(
        reported.exception
    )
    return reported.exception


def test_cut_and_changed_models(model, tmp_path):
    whole = model.read_bytes()
    file = tmp_path / "model.npz"
    chance = random.Random(7)
    for size in [0, 1, 4, 30, *(chance.randrange(len(whole)) for _ in range(6)), len(whole) - 1]:
        file.write_bytes(whole[:size])
        assert shown(file) is not None
    for _ in range(12):
        changed = bytearray(whole)
        for _ in range(3):
            changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(bytes(changed))
        shown(file)


WRONG = {
    "a scalar": lambda array: np.array(3.0),
    "one dimension more": lambda array: array[None],
    "one dimension less": lambda array: array.ravel(),
    "one more": lambda array: np.concatenate([array, array[-1:]]),
    "one less": lambda array: array[:-1],
    "nothing": lambda array: array[:0],
    "text": lambda array: np.full(array.shape, "x"),
    "complex": lambda array: array.astype(complex),
    "objects": lambda array: array.astype(object),
    "NaN": lambda array: np.full(array.shape, np.nan),
    "infinite": lambda array: np.full(array.shape, np.inf),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_are_no_part_of_a_model(model, wrong, tmp_path):
    with np.load(model) as stored:
        arrays = dict(stored)
    which = list(WRONG).index(wrong) % 3
    for name, array in arrays.items() if SOAK >= 1 else list(arrays.items())[which::3]:
        if name == "header" or array.dtype.kind not in "fiu" or array.ndim == 0:
            continue
        file = tmp_path / "model.npz"
        with contextlib.suppress(ValueError):
            np.savez(file, allow_pickle=True, **(arrays | {name: WRONG[wrong](array)}))
            if wrong == "one dimension less" and array.ndim == 1:
                continue
            assert isinstance(shown(file), EigenveilError), name


def test_an_archive_without_a_header(tmp_path):
    file = tmp_path / "model.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.npy", b"\x93NUMPY")
    assert shown(file) is not None
    for header in ("{}", "[]", "3", "null", "{", '{"format": "eigenveil-model-1"}'):
        np.savez(file, header=np.array(header))
        assert shown(file) is not None
