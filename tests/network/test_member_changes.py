"""Runs through changes of the list of members: new keys, newer lists, parties that are put out."""

from unittest.mock import Mock

import pytest
from study_tools import Federation, ended, until

from eigenveil.app import federation as office
from eigenveil.errors import ProtocolError
from eigenveil.federation.members import Evidence
from eigenveil.network import lead as lead_module
from eigenveil.network.lead import LeadSession
from eigenveil.network.mailbox import CarrierError
from federation_tools import make_federation
from mailbox_tools import MemoryMailboxes
from refusal_tools import refuses


@pytest.fixture
def running(tmp_path):
    with Federation(tmp_path) as found:
        found.office = tmp_path / "parties" / "registrar"
        yield found


def brought(running, members, *names):
    """Give these parties the registrar's list by hand; others hear of it from the aggregator."""
    for name in names:
        office.take(running.parties[name].folder, members.file)


def number(running, name):
    return running.parties[name].known.mark()[0]


def finished(lead, run, study):
    found = ended(lead, run)
    assert found.state == "finished", found.error
    return lead.result(run, study)


def test_a_site_goes_on_with_new_keys_and_all_hear_of_the_list(running):
    with running.lead() as lead:
        first, _ = finished(lead, lead.submit(running.study), running.study)
        asked = office.replace_key(running.parties["west"].folder)
        members = office.admit(running.office, [asked.request], [asked.fingerprint])
        brought(running, members, "aggregator", "west")
        running.stop("west")
        running.start("west")
        second, signed = finished(lead, lead.submit(running.study), running.study)
    assert signed.sites == running.study.names
    keys = {}
    for model in (first, second):
        evidence = Evidence.model_validate(model.certificate_.signatures.members)
        keys[evidence.head.number] = evidence.key("site", "west").fingerprint
    assert keys == {2: keys[2], 3: asked.fingerprint}
    assert keys[2] != keys[3]
    for name in running.parties:
        assert number(running, name) == 3


def test_a_run_goes_on_under_a_newer_list_with_the_one_that_it_began_with(running):
    running.sites["west"].decision = "waiting"
    with running.lead() as lead:
        run = lead.submit(running.study)
        until(lambda: "approved" in lead.status(run).missing.get("west", ""))
        brought(running, office.renew(running.office), "aggregator", "north")
        running.sites["west"].decision = "approved"
        model, signed = finished(lead, run, running.study)
        assert signed.sites == running.study.names
        evidence = Evidence.model_validate(model.certificate_.signatures.members)
        assert evidence.head.number == 2
        finished(lead, lead.submit(running.study), running.study)
    until(lambda: number(running, "west") == 3)


@pytest.mark.parametrize("told", ["aggregator", "everybody"])
def test_a_run_ends_when_one_of_its_sites_is_revoked(running, told):
    running.sites["west"].decision = "waiting"
    with running.lead() as lead:
        run = lead.submit(running.study)
        until(lambda: "approved" in lead.status(run).missing.get("west", ""))
        members = office.revoke(running.office, "west", "stolen")
        names = ["aggregator"] if told == "aggregator" else list(running.parties)
        brought(running, members, *names)
        running.sites["west"].decision = "approved"
        found = ended(lead, run)
        assert found.state == "failed"
        assert found.error.code in {"revoked-party", "too-few-sites"}
        until(lambda: number(running, "lead") == 3)
        with refuses("revoked-party", kind=ProtocolError):
            lead.submit(running.study)
    assert not any(each.charges for each in running.ledgers["west"].sessions())


def test_a_key_that_was_replaced_begins_no_run(running):
    """Whoever stole it cannot have a run by the list of old, whatever the aggregator brings."""
    running.sites["north"].decision = "waiting"
    with running.lead() as lead:
        run = lead.submit(running.study)
        until(lambda: "approved" in lead.status(run).missing.get("north", ""))
        asked = office.replace_key(running.parties["west"].folder)
        members = office.admit(running.office, [asked.request], [asked.fingerprint])
        brought(running, members, *running.parties)
        until(lambda: number(running, "north") == 3)
        running.stop("west")
        running.start("west")
        running.sites["north"].decision = "approved"
        assert ended(lead, run).state == "failed"
    assert any("west has another key since" in told for told in running.sites["north"].said)
    assert not running.ledgers["north"].sessions()


def test_what_a_revoked_key_signed_is_no_result(running):
    with running.lead() as lead:
        run = lead.submit(running.study)
        finished(lead, run, running.study)
        members = office.revoke(running.office, "west", "stolen")
        brought(running, members, *running.parties)
        until(lambda: number(running, "lead") == 3)
        with refuses("revoked-party", "stolen", kind=ProtocolError):
            lead.result(run, running.study)


def test_a_lead_with_an_older_list_is_told_who_was_revoked(tmp_path, monkeypatch):
    box = MemoryMailboxes().of("lead")
    refusal = CarrierError.relayed("The mailbox refuses.", code="revoked-party")
    monkeypatch.setattr(box, "put", Mock(side_effect=refusal))
    with LeadSession(make_federation(tmp_path)["lead"], box) as lead:
        assert [each.problem for each in lead.ask(["north"], timeout=5)] == ["revoked-party"]
        monkeypatch.setattr(box, "take", Mock(side_effect=refusal))  # it is the lead itself
        monkeypatch.setattr(lead_module, "CONNECT", 0.0)
        with pytest.raises(CarrierError):
            lead.ask(["north"], timeout=5)
