"""Studies' texts in a site's folder: those that were requested, and those that were decided about.

A study is known by its hash: one that differs in anything is another study and needs a decision of
its own. A text here allows nothing: what may run follows from the signed decisions in the ledger
(:mod:`eigenveil.federation.approvals.desk`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.approvals.roster import SiteFolder
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.files import cannot_write, replacing

# So many wait at the most, so that nobody fills a site's disk; of these, so many that were only
# asked about, so that questions leave places for studies that are started.
MOST_WAITING, MOST_ASKED = 64, 32
_HASH = re.compile(r"[0-9a-f]{64}")


def decided_study(party: SiteFolder, study_hash: str) -> Study | None:
    return _read(party.decided, study_hash)


def waiting_study(party: SiteFolder, study_hash: str) -> Study | None:
    return _read(party.waiting, study_hash)


def waiting_studies(party: SiteFolder) -> list[Study]:
    return _all(party.waiting)


def decided_studies(party: SiteFolder) -> list[Study]:
    """Studies that were decided about, by name; whether they may run, the ledger says."""
    return _all(party.decided)


def ask_owner(party: SiteFolder, study: Study, *, most: int = MOST_WAITING) -> bool:
    """Put a study where the owner finds it; whether it was not there before."""
    known = _place(party.waiting, study.hash)
    if known.exists():
        return False
    if len(list(party.waiting.glob("*.json"))) >= most:
        raise DataError("too-many-waiting", most=most)
    _write(known, study)
    return True


def keep(party: SiteFolder, study: Study) -> None:
    """Keep the text of a study, whose protocol is settled, that is decided about."""
    if study.protocol == "auto":
        raise DataError("unsettled", study=study.name)
    _write(_place(party.decided, study.hash), study)


def forget_waiting(party: SiteFolder, study_hash: str) -> None:
    _place(party.waiting, study_hash).unlink(missing_ok=True)


def _read(folder: Path, study_hash: str) -> Study | None:
    place = _place(folder, study_hash)
    try:
        study = parse_study(json.loads(place.read_text(encoding="utf-8")), origin=str(place))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        if isinstance(problem, EigenveilError):
            raise
        raise OutputError("damaged-approval", path=place) from None
    if study.hash != study_hash:
        raise DataError("approval-of-other-study", path=place)
    return study


def _all(folder: Path) -> list[Study]:
    found = (_read(folder, file.stem) for file in sorted(folder.glob("*.json")))
    return sorted((study for study in found if study is not None), key=lambda study: study.name)


def _write(place: Path, study: Study) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise cannot_write(place.parent, problem) from None
    with replacing(place) as scratch:
        scratch.write_text(study.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _place(folder: Path, study_hash: str) -> Path:
    if not _HASH.fullmatch(study_hash):
        raise DataError("bad-hash", study_hash=study_hash[:80])
    return folder / f"{study_hash}.json"
