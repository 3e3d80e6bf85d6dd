"""A site's kit and its federation, made without FLARE: whole, but of no use to connect with."""

from __future__ import annotations

import functools
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from eigenveil.federation.study.study import make_study
from eigenveil.network.certificates import write_key
from eigenveil.network.kit import FILE, Kit, describe, open_kit, write_config, write_json
from registrar_tools import Registrar

SITES = ("north", "south", "west")


def study_of(name="trial", **fields):
    """A study of three sites whose protocol is settled."""
    usual = {"features": 4, "components": 2, "protocol": "cape", "epsilon": 1.0}
    sites = [{"name": each} for each in SITES]
    return make_study(**({"name": name, "sites": sites} | usual | fields))


@functools.cache
def registrar() -> Registrar:
    """One for all tests of a process."""
    return Registrar()


@functools.cache
def identity_of_site(name: str):
    """Keys take long to make: one a name."""
    return registrar().identity(name)


def site_kit(folder: Path, name: str = "north") -> Kit:
    """A whole kit of a site, in a folder called like it."""
    place, identity = folder / name, identity_of_site(name)
    kit = Kit(place, "site", name, name, "localhost", 1, "trial")
    kit.startup.mkdir(parents=True)
    write_key(kit.key, identity.key)
    kit.certificate.write_bytes(identity.certificate.public_bytes(Encoding.PEM))
    kit.root_certificate.write_bytes(identity.root.public_bytes(Encoding.PEM))
    write_config(kit)
    write_json(place / FILE, describe(kit))
    return open_kit(place, role="site")
