"""The attack board: frozen rules, sealed coins, and scores that hold but for a stated chance.

A bound is wrong with chance 0.001 by the rules; here coins and answers are given, and nothing is
drawn by chance but in the fits, whose noise decides no assertion.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from eigenveil.privacy.certificate import certificate_from

SCRIPT = Path(__file__).parents[1] / "examples" / "attack_board.py"
SPEC = importlib.util.spec_from_file_location("attack_board", SCRIPT)
BOARD = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(BOARD)


def drawn(count):
    """A board and its coins, in turns, without any fit."""
    coins = [[number // 2 % 2, f"{number}"] for number in range(count)]
    hidden = [BOARD.commitment(number, *coin) for number, coin in enumerate(coins)]
    return {"rules": BOARD.RULES, "rounds": [{"hidden": each} for each in hidden]}, coins


def test_the_rules_are_frozen():
    """Another hash is another version, and another board."""
    assert BOARD.RULES["version"] == 1
    assert BOARD.RULES_HASH[:16] == "5c2ef49161c56a9e"
    one, more = BOARD.tables(7)
    assert np.array_equal(more[:-1], one)
    assert np.linalg.norm(more, axis=1).max() <= 1 + 1e-12


def test_a_board_is_made_attacked_and_scored(tmp_path):
    board, sealed, guesses = (tmp_path / name for name in ("board", "sealed", "guesses"))
    BOARD.make(board, sealed, rounds=8)
    assert sealed.stat().st_mode & 0o777 == 0o600
    made = BOARD.read(board)
    for number, one in enumerate(made["rounds"]):
        options = BOARD.RULES["kinds"][BOARD.kind_of(number)]
        guarantee = certificate_from(one["certificate"]).guarantee()
        assert guarantee.epsilon <= options["epsilon"]
        assert guarantee.delta <= options["delta"]
    assert "truth" not in json.dumps(made)
    guesses.write_text(json.dumps(list(BOARD.baseline(made))))
    assert BOARD.main(["score", *map(str, (board, sealed, guesses))]) == 0


def test_certain_answers_contradict_and_guessing_does_not():
    board, coins = drawn(2000)
    right = [truth for truth, _ in coins]
    assert all(one.contradicts for one in BOARD.scores(board, coins, right))
    for guesses in ([0] * 2000, [None] * 2000, [n % 4 // 2 ^ (n % 8 // 4) for n in range(2000)]):
        found = BOARD.scores(board, coins, guesses)
        assert [one.epsilon for one in found] == [0.0, 0.0]
    # a few sure answers show less than many, and an attempt among many less than one alone
    few = [truth if number < 200 else None for number, (truth, _) in enumerate(coins)]
    some, among = BOARD.scores(board, coins, few)[0], BOARD.scores(board, coins, few, 100)[0]
    assert BOARD.scores(board, coins, right)[0].epsilon > some.epsilon > among.epsilon > 0


def test_the_bound_is_that_of_clopper_and_pearson():
    """As many right answers as randomised response of epsilon 1: the bound stays below it."""
    board, coins = drawn(2000)
    share = np.e / (1 + np.e)
    said = [
        truth if n // 4 % 100 < 100 * share else 1 - truth for n, (truth, _) in enumerate(coins)
    ]
    for one in BOARD.scores(board, coins, said):
        assert 0.4 < one.epsilon < 1.0


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("coin", "Round 3: the sealed file has another coin"),
        ("rules", "other rules"),
        ("guess", "Round 5: a guess is 0, 1 or null, not 2"),
        ("count", "8 rounds, 8 coins, 7 guesses"),
    ],
)
def test_what_does_not_belong_together_is_refused(what, said):
    board, coins = drawn(8)
    guesses = [0] * 8
    if what == "coin":
        coins[3][0] = 1 - coins[3][0]
    if what == "rules":
        board["rules"] = BOARD.RULES | {"rows": 5}
    if what == "guess":
        guesses[5] = 2
    with pytest.raises(SystemExit, match=said):
        BOARD.scores(board, coins, guesses[: 7 if what == "count" else 8])
