"""Every test in full, part by part, and docs/nightly.md with what was tried: ``make nightly``.

A part is a folder of the tests, ``rest`` (what lies beside the folders, and doctests), ``margins``
(five runs at the usual counts, then the comparisons that have little room). Thorough tests run,
examples are new, counts are full (``soak_tools.py``). What a part found is kept in build/nightly: a
part that passed at this commit is not run again. The program fails where a part does.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from margin_tools import with_little_room
from soak_tools import KINDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
KEPT = ROOT / "build" / "nightly"
MARGINS = ROOT / "build" / "margins"
PAGE = ROOT / "docs" / "nightly.md"
# the documentation's site is built and tried by make docs
FOLDERS = sorted({file.parent.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")})
# carriers are tried with the newest FLARE and Flower, then with FLARE's older versions
OLDER = {f"flare-{version}": version for version in ("2.6.2", "2.7.2", "2.8.0")}
NOT_ALL = ("site", "carriers")
PARTS = [*(name for name in FOLDERS if name not in NOT_ALL), "rest", "carriers", *OLDER, "margins"]
# real processes: one network or cluster for all tests, as in make test-carriers
SPREAD = {name: ["-n", "0"] for name in ("carriers", "spark", *OLDER)}
RUNS = 5


def commit() -> str:
    """The commit, and whether anything was changed since."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    return subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def tested(name: str, *words: str, **more: str) -> dict:
    """Run pytest; outcomes and counts, ``failed`` where it ended in another way than its tests."""
    counts = KEPT / f"{name}.counts"
    counts.unlink(missing_ok=True)
    spread = SPREAD.get(name, ["-n", "auto", "--dist", "worksteal"])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", *spread, *words],
        cwd=ROOT, check=False, env=os.environ | {"EIGENVEIL_COUNTS": str(counts)} | more,
    )  # fmt: skip
    found = json.loads(counts.read_text()) if counts.exists() else {"outcomes": {}, "counts": []}
    return found | {"passed": ended.returncode == 0}


def part(name: str) -> dict:
    """What a part found."""
    begun = time.monotonic()
    if name == "margins":
        for file in MARGINS.glob("*.jsonl"):
            file.unlink()
        words = ["-p", "margin_tools", "-o", "enable_assertion_pass_hook=true"]
        place = {"EIGENVEIL_MARGINS": str(MARGINS), "PYTHONPATH": _path(TESTS)}
        place["EIGENVEIL_NOISE"] = "fresh"
        # assertions are rewritten: not beside the files that the other parts use
        place["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "cache")
        runs = [tested(name, *words, **place) for _ in range(RUNS)]
        outcomes = sum((Counter(run["outcomes"]) for run in runs), Counter())
        found = {"outcomes": outcomes, "counts": [], "passed": all(run["passed"] for run in runs)}
        found["margins"] = with_little_room(MARGINS)
    else:
        words = [str(TESTS / ("carriers" if name in OLDER else name))]
        if name == "rest":
            words = ["src/eigenveil", "papers/src", *map(str, sorted(TESTS.glob("test_*.py")))]
        more = {"EIGENVEIL_SOAK": os.environ.get("EIGENVEIL_SOAK", "1")}
        if name in OLDER:
            more |= {"EIGENVEIL_FLARE": OLDER[name], "EIGENVEIL_CARRIERS": "flare"}
        if name == "spark":  # make nightly installs it beside the environment
            more["PYTHONPATH"] = _path(ROOT / ".venv-spark")
        found = tested(name, "-m", "thorough or not thorough", *words, **more)
        found["factor"] = float(more["EIGENVEIL_SOAK"])
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return found | {"commit": commit(), "when": when, "seconds": round(time.monotonic() - begun)}


def _path(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def kept(name: str) -> dict | None:
    """What a part found when it ran last."""
    file = KEPT / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def processor() -> str:
    """This machine's processors, as it names them."""
    names = []
    if (info := Path("/proc/cpuinfo")).exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}"


def page(found: dict[str, dict]) -> str:
    """The record of what is kept."""
    lines = [
        "# What `make nightly` found",
        "",
        f"Thorough tests, new examples, full counts. Processors: {processor()}; Python "
        f"{platform.python_version()}. A part is a folder of `tests`; *rest*: what lies beside the "
        f"folders, and doctests; *margins*: {RUNS} runs of `make test`.",
        "",
        "| part | commit | when (UTC) | minutes | passed | failed | skipped | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in PARTS:
        if (one := found.get(name)) is None:
            lines.append(f"| {name} | | | | | | | **not run** |")
            continue
        number = Counter(one["outcomes"])
        factor = one.get("factor", 1.0)
        wrong = number["failed"] + number["error"]
        word = "" if factor == 1 else f"{factor:g} of the full counts"
        word = word if one["passed"] else f"**failed** {word}"
        lines.append(
            f"| {name} | {one['commit']} | {one['when']} | {one['seconds'] / 60:.1f} | "
            f"{number['passed']} | {wrong} | {number['skipped']} | {word} |"
        )
    counts: Counter = Counter()
    for one in found.values():
        for kind, what, how, number in one["counts"]:
            counts[kind, what, how] += number
    lines += [
        "",
        "*Accepted* counts messages that had an effect, kills after which something was lost, "
        "charged twice or not charged, and edits after which a certificate is valid.",
        "",
        "| tried | where | number | accepted |",
        "|---|---|---|---|",
    ]
    for kind, what in sorted({key[:2] for key in counts}, key=lambda k: (KINDS.index(k[0]), k[1])):
        number = [counts[kind, what, how] for how in ("tried", "accepted")]
        lines.append(f"| {kind} | {what} | {number[0]} | {number[1]} |")
    if margins := found.get("margins", {}).get("margins", []):
        lines += ["", "Comparisons whose room is less than six standard deviations:", ""]
        lines += [
            f"- {room:.1f} deviations in {runs} runs: `{test}`, line {place}: `{text}`"
            for room, runs, test, place, text in margins
        ]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    """Run the parts, all by default; the record after each."""
    if unknown := sorted(set(names) - set(PARTS)):
        print(f"no such part: {', '.join(unknown)}. There are {', '.join(PARTS)}.")
        return 2
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names or PARTS:
        here, found = commit(), kept(name)
        if found and found["passed"] and found["commit"] == here and not here.endswith("-dirty"):
            print(f"{name}: passed at {here} already")
            continue
        found = part(name)
        file = KEPT / f"{name}.json"
        file.write_text(json.dumps(found), encoding="utf-8")
        every = {other: one for other in PARTS if (one := kept(other)) is not None}
        PAGE.write_text(page(every), encoding="utf-8")
        if not found["passed"]:
            failed.append(name)
    print(f"FAILED: {', '.join(failed)}" if failed else f"all passed; see {PAGE.relative_to(ROOT)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
