"""An attack board: who tells neighbouring tables apart by what a fit released?

    python examples/attack_board.py make BOARD SEALED   # rounds, and what was true, for the keeper
    python examples/attack_board.py attempt BOARD GUESSES   # the baseline's guesses
    python examples/attack_board.py score BOARD SEALED GUESSES [GUESSES ...]

A round is two neighbouring tables, made from a public seed, and what one fit of one of them
released: its values and its certificate. A fair coin chose the table. The board holds a hash of
each coin, so that the keeper cannot change it afterwards. docs/attack-board.md has the rules.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import secrets
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil import PrivateCovariance
from eigenveil.audit.bounds import chance_bounds
from eigenveil.noise.entries import from_coordinates

FloatArray = NDArray[np.float64]

# The rules, frozen: boards of other rules are others (their hash stands in every board).
RULES: dict[str, Any] = {
    "version": 1,
    "rounds": 2000,
    "rows": 30,
    "columns": 4,
    "first_seed": 20_261_128,
    "false_alarm": 1e-3,
    # By kind: PrivateCovariance's options. Rounds take the kinds in turn.
    "kinds": {
        "gaussian": {"epsilon": 2.0, "delta": 1e-5, "mechanism": "gaussian"},
        "wishart": {"epsilon": 2.0, "delta": 0.0, "mechanism": "wishart"},
    },
    "of_all_kinds": {"center": False, "row_bound": 1.0},
}
RULES_HASH = hashlib.sha256(json.dumps(RULES, sort_keys=True).encode()).hexdigest()


def tables(number: int) -> tuple[FloatArray, FloatArray]:
    """The neighbours of a round: rows of norm at most 1, and the same with a row of norm 1 more."""
    rng = np.random.default_rng(RULES["first_seed"] + number)
    rows = rng.standard_normal((RULES["rows"], RULES["columns"]))
    rows *= 0.3 / np.linalg.norm(rows, axis=1, keepdims=True)
    more = rng.standard_normal(RULES["columns"])
    return rows, np.vstack([rows, more / np.linalg.norm(more)])


def kind_of(number: int) -> str:
    """The kind of a round."""
    kinds = tuple(RULES["kinds"])
    return str(kinds[number % len(kinds)])


def commitment(number: int, truth: int, nonce: str) -> str:
    """What a board publishes of a coin."""
    return hashlib.sha256(f"{RULES_HASH}:{number}:{truth}:{nonce}".encode()).hexdigest()


def make(board: Path, sealed: Path, rounds: int | None = None) -> None:
    """Toss the coins, fit, and write what is public and what is not."""
    public, secret = [], []
    for number in range(RULES["rounds"] if rounds is None else rounds):
        truth, nonce = secrets.randbelow(2), secrets.token_hex(32)
        options = RULES["of_all_kinds"] | RULES["kinds"][kind_of(number)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # noisy results are meant
            model = PrivateCovariance(**options).fit(tables(number)[truth])
        released = {name: np.asarray(v).tolist() for name, v in model.released_.items()}
        certificate = model.certificate_.model_dump(mode="json")
        hidden = commitment(number, truth, nonce)
        public.append({"hidden": hidden, "released": released, "certificate": certificate})
        secret.append([truth, nonce])
    _write(board, {"rules": RULES, "rounds": public})
    sealed.touch(mode=0o600)
    sealed.chmod(0o600)  # whoever reads it needs no attack
    _write(sealed, secret)


# -- attempts: a JSON list with 0, 1 or null (no answer) for each round


def baseline(board: dict[str, Any]) -> Iterator[int]:
    """Along which the tables' second moments differ: which of the two is the release nearer to?"""
    for number, one in enumerate(board["rounds"]):
        without, with_row = (rows.T @ rows for rows in tables(number))
        moved = with_row - without
        entries = np.array(one["released"]["second moment"])
        seen = from_coordinates("symmetric", moved.shape, entries) - (without + with_row) / 2
        yield int(np.sum(seen * moved) > 0)


class Score(NamedTuple):
    """What an attempt shows about one kind of rounds."""

    kind: str
    answered: int
    right: int
    epsilon: float  # Lower bound at the stated delta
    stated: float

    @property
    def contradicts(self) -> bool:
        """Whether the stated epsilon is refuted, at the rules' false alarm."""
        return self.epsilon > self.stated


def scores(
    board: dict[str, Any], sealed: Sequence[Any], guesses: Sequence[int | None], attempts: int = 1
) -> list[Score]:
    """Score an attempt, one of so many; all bounds of all of them hold but for the false alarm."""
    rounds, truths = board["rounds"], [truth for truth, _ in sealed]
    if board["rules"] != RULES:
        sys.exit("The board was made by other rules than this script's.")
    if not len(rounds) == len(sealed) == len(guesses):
        sys.exit(f"{len(rounds)} rounds, {len(sealed)} coins, {len(guesses)} guesses: one each.")
    for number, (one, coin) in enumerate(zip(rounds, sealed, strict=True)):
        if one["hidden"] != commitment(number, *coin):
            sys.exit(f"Round {number}: the sealed file has another coin than the board's hash.")
        if guesses[number] not in (0, 1, None):
            sys.exit(f"Round {number}: a guess is 0, 1 or null, not {guesses[number]!r}.")
    found = []
    for kind, options in RULES["kinds"].items():
        # of each coin: how often was it tossed, and what was said then
        said = [[0, 0, 0], [0, 0, 0]]
        for number, (truth, guess) in enumerate(zip(truths, guesses, strict=True)):
            if kind_of(number) == kind:
                said[truth][2] += 1
                if guess is not None:
                    said[truth][guess] += 1
        level = RULES["false_alarm"] / (attempts * len(RULES["kinds"]) * 2)
        bound = max(_bound(said, event, options["delta"], level) for event in (0, 1))
        answered, right = sum(s[0] + s[1] for s in said), said[0][0] + said[1][1]
        found.append(Score(kind, answered, right, bound, options["epsilon"]))
    return found


def _bound(said: list[list[int]], event: int, delta: float, level: float) -> float:
    """The least epsilon of a mechanism for which "the guess is `event`" is so likely and unlikely.

    Clopper-Pearson intervals of both chances, together wrong with chance at most ``level``.
    """
    (hits, trials), (alarms, others) = ((said[c][event], said[c][2]) for c in (event, 1 - event))
    if not trials or not others:
        return 0.0
    low, _ = chance_bounds(hits, trials, false_alarm=level)
    _, high = chance_bounds(alarms, others, false_alarm=level)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def _write(path: Path, value: Any) -> None:
    path.write_bytes(gzip.compress(json.dumps(value).encode(), mtime=0))


def read(path: Path) -> Any:
    """What a file holds, packed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def main(words: Sequence[str]) -> int:
    """Do what is asked."""
    action, *paths = words or [""]
    files = [Path(path) for path in paths]
    if action == "make" and len(files) == 2:
        make(files[0], files[1])
        print(f"{RULES['rounds']} rounds in {files[0]}; keep {files[1]} until all guesses are in")
        return 0
    if action == "attempt" and len(files) == 2:
        files[1].write_text(json.dumps(list(baseline(read(files[0])))))
        return 0
    if action == "score" and len(files) >= 3:
        board, sealed, *attempts = files
        broken = False
        for path in attempts:
            for one in scores(read(board), read(sealed), read(path), len(attempts)):
                broken |= one.contradicts
                verdict = "CONTRADICTED" if one.contradicts else "not contradicted"
                print(
                    f"{path.name}, {one.kind}: {one.right} of {one.answered} right; epsilon "
                    f"is at least {one.epsilon:.3f}, stated is {one.stated:g}: {verdict}"
                )
        return 8 if broken else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
