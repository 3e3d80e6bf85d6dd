"""Fits, studies and commands do what they did when the record was written.

A change that is meant to release other numbers, or to print others, writes the record anew::

    python tests/frozen/rewrite.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from frozen_commands import COMMANDS, printed
from frozen_tools import CASES, PRINTED, RELEASED, read, recomputed, same


@pytest.mark.parametrize("name", CASES)
def test_released_numbers_and_guarantees_are_those_of_the_record(name, tmp_path):
    now, then = recomputed(name, tmp_path), read(RELEASED)[name]
    wrong = [key for key in {**now, **then} if not same(now.get(key), then.get(key))]
    assert {key: now.get(key) for key in wrong} == {key: then.get(key) for key in wrong}


def test_commands_print_what_they_printed(tmp_path):
    now, then = printed(tmp_path), read(PRINTED)
    wrong = [name for name in COMMANDS if not same(now[name], then[name])]
    assert {name: now[name] for name in wrong} == {name: then[name] for name in wrong}


def test_there_is_no_more_in_the_record():
    assert read(RELEASED).keys() == set(CASES)
    assert read(PRINTED).keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    "kernel",
    ["Prescott", *(pytest.param(k, marks=pytest.mark.thorough) for k in ("Haswell", "SkylakeX"))],
)
def test_the_record_holds_with_the_kernel_of_another_processor(kernel):
    """Signs of eigenvectors, and seeds from digests of factors, differed from one to another."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "not kernel", __file__],
        env=os.environ | {"OPENBLAS_CORETYPE": kernel, "PYTEST_ADDOPTS": ""},
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode < 0:
        pytest.skip(f"this processor cannot run the kernel {kernel}")
    assert ended.returncode == 0, ended.stdout
