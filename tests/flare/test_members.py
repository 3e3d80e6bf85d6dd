"""A hospital joins a running federation, a stolen key is revoked, a lead is put out.

Nobody else is stopped, and no other kit is touched but the aggregator's list of members.
"""

import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

import federation_tools
from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.network import registrar
from eigenveil.network.certificates import fingerprint, read_certificate
from eigenveil.network.enrolment import package, request
from eigenveil.network.signed import identity_of, known_members, members_of
from federation_tools import SITES, Federation, pca_study

RNG = np.random.default_rng(4)
ALL = (*SITES, "east")
ROWS = {name: RNG.standard_normal((500, 20)) * np.linspace(3.0, 0.3, 20) for name in ALL}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("members"), approve="all") as found:
        found.start_all()
        yield found


def installed(federation, signed):
    """The aggregator's operator takes the new list over, while it runs."""
    aggregator = members_of(identity_of(federation.kit("aggregator")))
    assert aggregator.adopt(signed.line())


def study_of(name, sites):
    return pca_study(name, sites=[{"name": each} for each in sites])


def run(federation, study, timeout=20.0):
    federation.give_rows(study, {name: ROWS[name] for name in study.names})
    with federation.session() as session:
        job = session.submit(study, timeout=timeout)
        return federation.wait(session, job)


def refused(call, *words):
    with pytest.raises(ProtocolError) as caught:
        call(*words)
    assert caught.value.code == "no-aggregator"


def test_a_hospital_joins_and_another_is_put_out(federation, monkeypatch):
    office = federation.kits["registrar"]
    numbers = lambda name: federation.said(name).count("newer list")  # noqa: E731

    # east makes its own key, and the registrar lets it in
    installed(federation, registrar.add_party(office, role="site", name="east"))
    founding = study_of("founding", ALL)
    place = federation.folder / "kits" / "east"
    asked = request(founding, place, role="site", name="east")
    approval = registrar.approve(asked, office, federation.folder / "east.approval.json")
    mark = fingerprint(read_certificate(federation.kit("north").root_certificate))
    package(place, approval, fingerprint=mark)
    federation.kits["east"] = place
    federation.sites = ALL
    (federation.rows / "east").mkdir()
    Ledger(federation.ledger("east")).set_budget(Budget("default", "add-remove", 3000.0, 0.5))
    monkeypatch.setitem(federation_tools.SEEDS, "east", 14)
    federation.start("east")
    federation.wait_connected("east")
    found = run(federation, study_of("four", ALL))
    assert found.state == "finished", found
    assert numbers("north") in (1, 2)  # east brings the one that has its own key
    newest = known_members(federation.kit("registrar")).current()
    assert known_members(federation.kit("north")).current() == newest

    # west's key was stolen: whoever has it answers nothing any more
    installed(federation, registrar.revoke(office, "west"))
    with federation.session() as session:
        asked = {each.name: each.problem for each in session.ask((*ALL, "nobody"))}
        # its connection is closed; an answer that was on its way counts for nothing
        assert asked.pop("west") in ("no-answer", "unreachable", "not-connected", "revoked-party")
        assert asked == {"north": "", "south": "", "east": "", "nobody": "not-a-member"}
        job = session.submit(study_of("with-west", ALL))
        until = time.monotonic() + 90.0
        while session.status(job).missing != {"west": "not connected"}:
            assert time.monotonic() < until
            time.sleep(0.5)
        session.abort(job)
    assert run(federation, study_of("without-west", ("north", "south", "east"))).state == "finished"

    # the lead is put out: nothing is answered any more, in a session that is open nor in a new one,
    # about studies of its own that are over nor about new ones
    with federation.session() as session:
        job = next(iter(session.studies()))
        assert session.status(job).state == "finished"
        installed(federation, registrar.remove_party(office, federation.kit("lead").name))
        refused(session.status, job)
    refused(federation.session)
    for name in ALL:
        books = Ledger(federation.ledger(name))
        assert books.verify().holds
        assert not any(session.is_open for session in books.sessions())
        assert {each.key.study for each in books.sessions()} <= {
            study_of("four", ALL).hash,
            study_of("without-west", ("north", "south", "east")).hash,
        }
