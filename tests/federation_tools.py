"""A federation of a test's own: folders of all parties of a study, and who they are."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import pytest

from eigenveil.app.federation import new_all
from eigenveil.errors import EigenveilError
from eigenveil.federation.members import Identity
from eigenveil.federation.study.study import make_study
from eigenveil.network.folder import MEMBERS_FILE, PartyFolder, PartyKeys, identity_of
from eigenveil.network.members import KnownMembers
from eigenveil.network.registrar import Registrar, new_request, read_request, request_line

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


def code_of(call, *given, **named):
    """The code of the error that a call ends with."""
    with pytest.raises(EigenveilError) as found:
        call(*given, **named)
    return found.value.code


class World:
    """A registrar, and parties' keys in memory."""

    def __init__(self, folder):
        self.folder = folder
        self.registrar = Registrar.new(folder / "registrar", "trial")
        self.origin = self.registrar.current().head.origin
        self.keys = {}

    def request(self, name, role="site", *, keys=None, old=None, **more):
        keys = keys or PartyKeys.new()
        self.keys[name] = keys
        replaces = old.signer.public_key.text if old else ""
        asked = new_request(self.origin, role, name, "", keys, replaces=replaces, **more)
        return read_request(request_line(asked, keys.signer, *([old.signer] if old else [])))

    def admit(self, *names):
        return self.registrar.admit([self.request(name) for name in names])

    def data(self):
        return self.registrar.file.read_bytes()

    def party(self, name="somebody"):
        return KnownMembers(self.folder / name / MEMBERS_FILE, self.origin)

    def fork(self):
        """The registrar's folder as it is now, for another history."""
        shutil.copytree(self.registrar.folder, self.folder / "fork")
        return Registrar(self.folder / "fork")
