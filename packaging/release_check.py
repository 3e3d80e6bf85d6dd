"""What a release must be: built, complete, and usable in a bare environment of each Python here.

    python packaging/release_check.py dist

Builds sdist and wheel, looks into both, builds them again of the sdist in another folder and
compares every byte, installs the wheel without any extra for each Python that is found, runs the
demonstration there, and writes a list of what it needs (SBOM, CycloneDX).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
IN_WHEEL = (
    "eigenveil/py.typed",
    "eigenveil/error_codes.toml",
    "eigenveil/proofs/gaussian.md",
    "eigenveil/console/static/console.css",
    "eigenveil/console/templates/base.html",
)


def main(out: Path) -> None:
    """Build, look, install, run."""
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    [wheel], [source] = list(out.glob("*.whl")), list(out.glob("*.tar.gz"))
    version = wheel.name.split("-")[1]
    agree(version)
    look_into(wheel, source, version)
    build_again(wheel, source)
    for python in PYTHONS:
        if runs(python):
            try_bare(python, wheel, version, out)
        else:
            print(f"{python}: not on this machine, not tried")
    print(f"eigenveil {version} was built and tried: {wheel}, {source}")


def agree(version: str) -> None:
    """A release, which has no more than numbers in its version, is the one that is cited."""
    if not re.fullmatch(r"[0-9.]+", version):
        print(f"{version} is no release: no tag is at this commit, or files were changed.")
        return
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text():
        sys.exit(f"CITATION.cff does not say version {version}.")
    if f"## {version}" not in (ROOT / "CHANGELOG.md").read_text():
        sys.exit(f"CHANGELOG.md has nothing of version {version}.")


def look_into(wheel: Path, source: Path, version: str) -> None:
    """Both are of this version; the wheel has what is no Python, and nothing of this machine."""
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        if missing := [name for name in IN_WHEEL if name not in names]:
            sys.exit(f"{wheel} lacks {', '.join(missing)}.")
        if strange := [name for name in names if name.startswith(("tests/", "docs/"))]:
            sys.exit(f"{wheel} has {', '.join(sorted(strange)[:3])}.")
        compiled = [name for name in names if name.startswith("eigenveil/moments/_loops.")]
        print(f"loops: {'compiled' if any(each.endswith('.so') for each in compiled) else 'numpy'}")
    with tarfile.open(source) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    if "LICENSE" not in inside:
        sys.exit(f"{source} has no licence.")
    if (ROOT / ".git").exists():
        known = run("git", "-C", ROOT, "ls-files", quiet=True).splitlines()
        if strange := inside - {*known, "PKG-INFO"}:
            sys.exit(f"{source} has what git has not: {', '.join(sorted(strange)[:3])}.")
    if any(version not in each.name for each in (wheel, source)):
        sys.exit(f"{wheel} is not of version {version}.")


def build_again(wheel: Path, source: Path) -> None:
    """Whoever has the sdist gets the same files: elsewhere, later, with other habits."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as packed:
            packed.extractall(folder, filter="data")
        [tree] = Path(folder).iterdir()
        for path in tree.rglob("*"):
            os.utime(path)
            path.chmod(path.stat().st_mode & 0o700)
        before = os.umask(0o077)
        try:
            run(sys.executable, "-m", "build", "--outdir", Path(folder, "again"), tree, quiet=True)
        finally:
            os.umask(before)
        for each in (wheel, source):
            if wrong := differing(each, Path(folder, "again", each.name)):
                sys.exit(f"{each.name} is another when it is built again: {', '.join(wrong)}.")
    print("built twice: the same bytes")


def differing(one: Path, two: Path) -> list[str]:
    """The members of two archives that are not alike, or what else is not; empty where nothing."""
    if one.read_bytes() == two.read_bytes():
        return []
    first, second = _members(one), _members(two)
    names = sorted(
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    )
    return names or ["how members are stored"]


def _members(archive: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of each member."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            return {m.filename: (packed.read(m), m.external_attr) for m in packed.infolist()}
    with tarfile.open(archive) as packed:
        kept = ((m, packed.extractfile(m)) for m in packed.getmembers())
        return {m.name: (file.read() if file else b"", m.mode) for m, file in kept}


def runs(python: str) -> bool:
    """Whether there is such a Python, and not only a name that a version manager keeps for it."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def try_bare(python: str, wheel: Path, version: str, out: Path) -> None:
    """Install the wheel alone with one Python, and use it as a newcomer would."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(python, "-m", "venv", place / "bare")
        own = place / "bare" / "bin"
        run(own / "python", "-m", "pip", "install", "--quiet", wheel.absolute())
        said = run(own / "eigenveil", "--version", quiet=True)
        if version not in said:
            sys.exit(f"{python}: eigenveil --version says {said.strip()!r}.")
        run(own / "eigenveil", "demo", place / "demo", quiet=True)
        run(own / "python", ROOT / "packaging" / "follow_page.py", ROOT / "README.md", quiet=True)
        listed = run(own / "python", "-m", "pip", "list", "--format", "json", quiet=True)
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "components": list(_components(json.loads(listed))),
        }
        (out / f"sbom-{python}.json").write_text(json.dumps(bill, indent=2) + "\n")
        print(f"{python}: installed and tried, {len(bill['components'])} packages")  # type: ignore[arg-type]


def _components(listed: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    for each in listed:
        name, version = each["name"], each["version"]
        purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        yield {"type": "library", "name": name, "version": version, "purl": purl}


def run(*words: str | Path, quiet: bool = False) -> str:
    """A command that must succeed; its standard output where it is kept quiet."""
    done = subprocess.run(
        [str(word) for word in words], check=False, text=True,
        stdout=subprocess.PIPE if quiet else None,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in words)} ended with {done.returncode}.")
    return done.stdout or ""


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
