"""Kits for all parties of a study at once: for one machine, or one registrar whom all trust.

Every kit is made as :mod:`eigenveil.runtime.flare.enrolment` does it, only all in one place: who
runs this could have copied every key. Between organisations each party makes its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from eigenveil.federation.study import Study
from eigenveil.runtime.flare import certificates
from eigenveil.runtime.flare.enrolment import REQUEST, begin
from eigenveil.runtime.flare.enrolment import package as complete
from eigenveil.runtime.flare.folders import new_folder
from eigenveil.runtime.flare.kit import open_kit, prepare
from eigenveil.runtime.flare.registrar import approve, fill_registrar, parties

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 8102


def provision(
    study: Study,
    out: str | Path,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    registrar: bool = True,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Kits of every party, in a folder each.

    Parameters
    ----------
    study : Study
        Its active sites get kits, and its helper if it has one.
    out : path
        A new folder.
    host : str
        The name by which the parties reach the aggregator; its certificate is made out to it.
    port : int
        The one port on which it listens.
    registrar : bool
        Whether the root key is kept, in the registrar's kit and nowhere else; otherwise it is
        thrown away, and nobody can ever join or renew.
    overwrite : bool
        Whether kits that are there are replaced; their keys are lost.

    Returns
    -------
    dict of str to Path
        The kits' folders: of the sites by their names, 'helper', 'aggregator', 'lead',
        'registrar'.

    Raises
    ------
    DataError, OutputError
        Nothing is then written.
    """
    target = Path(out)
    known = parties(study, host)
    with new_folder(target, overwrite=overwrite) as scratch:
        authority = scratch / "registrar"
        authority.mkdir(mode=0o700)
        fill_registrar(study, authority, host=host, port=port)
        root = certificates.read_certificate(open_kit(authority).certificate)
        mark = certificates.fingerprint(root)
        for folder, (role, name) in known.items():
            place = scratch / folder
            place.mkdir(mode=0o700)
            begin(study.name, place, role=role, name=name)
            approval = approve(place / REQUEST, authority, scratch / "approval.json")
            complete(place, approval, fingerprint=mark)
            approval.unlink()
        if not registrar:
            shutil.rmtree(authority)
    made = {folder: target / folder for folder in known}
    if registrar:
        made["registrar"] = target / "registrar"
    for made_here in made.values():
        prepare(open_kit(made_here))  # places in it are named anew: it was made elsewhere
    return made
