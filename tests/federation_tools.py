"""A federation of a test's own: folders of all parties of a study, and who they are."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from eigenveil.app.federation import new_all
from eigenveil.federation.identity import Identity
from eigenveil.federation.study.study import make_study
from eigenveil.network.folder import PartyFolder, identity_of

SITES = ("north", "south", "west")


def study_of(name="trial", **fields):
    """A study of three sites whose protocol is settled."""
    usual = {"features": 4, "components": 2, "protocol": "cape", "epsilon": 1.0}
    sites = [{"name": each} for each in SITES]
    return make_study(**({"name": name, "sites": sites} | usual | fields))


def make_federation(folder: Path, study=None, *, address: str = "") -> dict[str, PartyFolder]:
    """Folders of all parties, by name; the registrar's is ``folder / "registrar"``."""
    found = new_all(study or study_of(), Path(folder), address=address)
    return found.parties


@functools.cache
def identities(names: tuple[str, ...] = SITES) -> dict[str, Identity]:
    """Sites of these names, an aggregator, a helper and a lead: one federation a process."""
    sites = [{"name": each} for each in names]
    folder = Path(tempfile.mkdtemp(prefix="eigenveil-test-"))
    found = make_federation(folder, study_of(sites=sites, masks="helper"))
    return {name: identity_of(party) for name, party in found.items()}
