"""What a site tells a lead before a study runs, and what the lead believes of it: no network."""

from dataclasses import replace

import pytest

from eigenveil.errors import DataError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.envelope import Envelope, open_sealed, seal
from eigenveil.federation.x509_identity import Identity, key_digest
from eigenveil.network import approvals
from eigenveil.network.channel import MOST_SURVEYED, SURVEY, UNSIGNED
from eigenveil.network.parties import SiteParty
from eigenveil.network.signed import lead_called, party_called
from eigenveil.network.survey import PartyAnswer, Telling, ask_parties
from eigenveil.network.x509_members import (
    KnownMembers,
    Member,
    MemberList,
    SigningKey,
    federation_of,
    sign_members,
)
from eigenveil.tables.schema import parse_schema
from kit_tools import identity_of_site, registrar, site_kit, study_of

STUDY, OTHER = study_of("heart"), study_of("lung")
SCHEMA = {"format": "eigenveil-schema-1", "columns": [{"name": "age", "kind": "number"}]}


@pytest.fixture(scope="module")
def lead():
    return registrar().identity("lea", role="lead")


@pytest.fixture
def make(tmp_path):
    """North, with what its owner has told."""

    def party(**telling):
        kit = site_kit(tmp_path)
        ledger = Ledger(tmp_path / "north.ledger")
        return SiteParty(kit, None, ledger, say=lambda text: None, telling=Telling(**telling))

    return party


def asked(lead, party, study=STUDY):
    """What the lead believes of north."""
    (report,) = ask_parties(["north"], study, lead, lambda name, data: party.respond(data))
    return report


def test_an_answer_is_what_was_decided_about_exactly_this_study(lead, make):
    north = make()
    decisions = north._decisions
    assert asked(lead, north).answer.state == "new"
    assert approvals.waiting_study(north.kit, STUDY.hash) == STUDY  # the owner sees it
    assert asked(lead, north).answer.state == "waiting"
    decisions.approve(STUDY, runs=3)
    found = asked(lead, north)
    assert (found.agreed, found.answer.runs, found.answer.until) == (True, 3, None)
    assert asked(lead, north, OTHER).answer.state == "new"  # another hash, another decision
    assert not approvals.waiting_study(north.kit, STUDY.hash)
    decisions.revoke(STUDY.hash, reason="ended")
    assert asked(lead, north).answer == PartyAnswer(state="revoked")
    for tell, reason in ((False, ""), (True, "no legal basis")):
        decisions.refuse(OTHER.hash, reason="no legal basis", tell_lead=tell)
        assert asked(lead, north, OTHER).answer == PartyAnswer(state="refused", reason=reason)
    assert approvals.waiting_study(north.kit, OTHER.hash) is None  # refused: not put there again
    elsewhere = study_of(sites=[{"name": "south"}, {"name": "west"}])
    assert asked(lead, north, elsewhere).answer.state == "no-part"
    assert approvals.waiting_studies(north.kit) == []
    assert not north._ledger.sessions()  # nothing was reserved or charged


def test_an_owner_chooses_what_is_told(lead, make):
    schema = parse_schema(SCHEMA)
    silent = make(decisions=False, schema=schema)
    silent._decisions.approve(STUDY)
    answer = asked(lead, silent).answer
    assert (answer.state, answer.runs, answer.schema_told) == ("not-told", None, schema)
    nothing_waits = asked(lead, silent, None).answer
    assert (nothing_waits.state, nothing_waits.schema_told) == ("not-asked", schema)
    assert approvals.waiting_studies(silent.kit) == []
    seen = {**SCHEMA["columns"][0], "range": [17, 93], "confirmed": False}
    with pytest.raises(DataError) as error:  # 17 and 93 were read from rows
        Telling(schema=parse_schema(SCHEMA | {"columns": [seen]}))
    assert error.value.code == "unconfirmed-schema"


def test_only_a_lead_of_the_federation_is_answered(lead, make, tmp_path):
    north = make()
    payload = STUDY.model_dump_json().encode()
    question = Envelope(STUDY.hash, "ab" * 12, SURVEY, "lead", "north", payload)
    stranger = registrar().identity("lea", role="site")
    wrong = {
        "a site's certificate": seal(question, stranger)[0],
        "another party's question": seal(replace(question, recipient="south"), lead)[0],
        "another hash": seal(replace(question, study=OTHER.hash), lead)[0],
        "no study": seal(replace(question, payload=b"[" * 100_000), lead)[0],
        "another step": seal(replace(question, step="hello"), lead)[0],
        "a changed byte": seal(question, lead)[0][:-1] + b"!",
        "too large": seal(replace(question, payload=b" " * (MOST_SURVEYED + 40_000)), lead)[0],
        "nothing": b"",
    }
    for why, data in wrong.items():
        assert north.respond(data) == b"", why
    assert approvals.waiting_studies(north.kit) == []
    # who was put out of the federation
    listed = MemberList(
        project="trial", federation=federation_of(lead.root), number=1,
        time="2026-01-01T00:00:00+00:00",
        parties=(Member(role="site", name="north"),), removed=(Member(role="lead", name="lea"),),
    )  # fmt: skip
    north.kit.members.write_bytes(sign_members(listed, registrar().key).line())
    assert north.respond(seal(question, lead)[0]) == b""


def test_a_lead_believes_only_what_the_site_signed_for_this_question(lead, make):
    north = make()
    north._decisions.approve(OTHER)
    kept = []

    def tapped(name, data):
        kept.append(north.respond(data))
        return kept[-1]

    assert ask_parties(["north"], OTHER, lead, tapped)[0].agreed
    yes = kept[0]  # about another study, and a question that was answered already
    opened = open_sealed(
        yes, lead, sender=party_called("north"), recipient="lead", limit=MOST_SURVEYED
    )
    forger = registrar().identity("south", role="site")

    def forged(name, data):
        mark = open_sealed(
            data, identity_of_site("north"), sender=lead_called("lea"), recipient="north",
            limit=MOST_SURVEYED,
        )  # fmt: skip
        reply = replace(
            mark, sender="north", recipient="lead", payload=opened.payload, request_digest=mark.mark
        )
        return seal(reply, forger)[0]

    for carry in (
        lambda name, data: yes,  # replayed
        forged,  # by another site
        lambda name, data: north.respond(data)[:-1] + b"!",  # damaged
        lambda name, data: b"",
    ):
        (found,) = ask_parties(["north"], STUDY, lead, carry)
        assert (found.answer, found.problem) == (None, "unsigned")
    (found,) = ask_parties(["north"], STUDY, lead, lambda name, data: "not-connected")
    assert found.problem == "not-connected"


def test_a_site_outside_the_list_is_named_and_not_asked(lead, tmp_path):
    listed = MemberList(
        project="trial", federation=federation_of(lead.root), number=1,
        time="2026-01-01T00:00:00+00:00",
        parties=tuple(Member(role="site", name=name) for name in ("north", "south")),
        removed=(Member(role="site", name="south"),),
    )  # fmt: skip
    file = tmp_path / "members.json"
    file.write_bytes(sign_members(listed, registrar().key).line())
    known = Identity(lead.key, lead.certificate, lead.root, KnownMembers(file, lead.root))
    reached = []
    found = ask_parties(
        ["north", "south", "west"], STUDY, known, lambda n, data: reached.append(n) or "no-answer"
    )
    assert [each.problem for each in found] == ["no-answer", "not-a-member", "not-a-member"]
    assert reached == ["north"]


def test_a_lead_with_a_new_key_brings_the_list_that_has_it(lead, make, tmp_path):
    def listed(identity):
        return SigningKey(role="lead", name="lea", key=key_digest(identity.key.public_key()))

    north, renewed = make(), registrar().identity("lea", role="lead")
    first = MemberList(
        project="trial", federation=federation_of(lead.root), number=1,
        time="2026-01-01T00:00:00+00:00",
        parties=(Member(role="site", name="north"), Member(role="lead", name="lea")),
        keys=(listed(lead),),
    )  # fmt: skip
    north.kit.members.write_bytes(sign_members(first, registrar().key).line())
    file = tmp_path / "members.json"
    now = Identity(renewed.key, renewed.certificate, lead.root, KnownMembers(file, lead.root))
    assert asked(now, north).problem == UNSIGNED
    assert asked(lead, north).answer.state == "new"
    # a list that does not follow from the one before changes nothing
    other = first.model_copy(update={"keys": (listed(renewed),), "project": "another"})
    file.write_bytes(sign_members(other.next(), registrar().key).line())
    assert asked(now, north).problem == UNSIGNED
    file.write_bytes(sign_members(first.next(keys=(listed(renewed),)), registrar().key).line())
    assert asked(now, north).answer.state == "waiting"
    assert asked(lead, north).problem == UNSIGNED  # the old key counts no more


def test_questions_fill_neither_disk_nor_list(lead, make, monkeypatch):
    north = make()
    wide = study_of("wide", features=None, columns=[f"column {n:0>200}" for n in range(6000)])
    with pytest.raises(DataError) as error:
        ask_parties(["north"], wide, lead, lambda name, data: north.respond(data))
    assert error.value.code == "study-too-large"
    monkeypatch.setattr("eigenveil.network.survey.MOST_ASKED", 2)
    states = [asked(lead, north, study_of(f"s{n}")).answer.state for n in range(3)]
    assert states == ["new", "new", "full"]
    assert len(approvals.waiting_studies(north.kit)) == 2
    assert approvals.ask_owner(north.kit, study_of("started"))  # a start has its place still
