"""Signatures of a study's certificate: forged, moved, made by another party, or got by a lie."""

import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import Consortium, Wire, carry, changed, query, request_of, run_study, study_of

from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.certificates import (
    check,
    own_signature,
    signatures_of,
    text_of,
    who_signed,
)
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, REFUSED, decode
from eigenveil.federation.protocol.payloads import EndRequest
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.protocol.terms import settle
from eigenveil.models.schedule import NO_BOUND
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.certificate import CLOSED_QUOTES, plan_hash
from federation_tools import identities as members_of

SITES = ("s0", "s1", "s2")
LIMIT = 1 << 24


@pytest.fixture(scope="module")
def identities():
    return members_of(SITES)


@pytest.fixture(scope="module")
def strangers():
    """Another federation, whose parties are called the same."""
    return members_of((*SITES, "s9"))


@pytest.fixture(scope="module")
def registrar(identities):
    """Its fingerprint."""
    return identities["s0"].members.federation


@pytest.fixture(scope="module")
def played(identities, tmp_path_factory):
    """Plays a study; ``fate`` decides what becomes of each message."""

    def call(study=None, fate=None, **options):
        consortium = Consortium(
            study or study_of(3), tmp_path_factory.mktemp("study"), identities=identities
        )
        found = run_study(consortium, fate=fate, identity=identities[AGGREGATOR], **options)
        return found, consortium

    return call


@pytest.fixture(scope="module")
def signed(played):
    """The certificate of an honest study."""
    return played(session="a1")[0].outcome.certificate


def by(certificate, name):
    (found,) = (each for each in certificate.signatures.by if each.name == name)
    return found


def with_signatures(certificate, *by, session=None):
    changed = {"by": by} | ({"session": session} if session else {})
    signatures = certificate.signatures.model_copy(update=changed)
    return certificate.model_copy(update={"signatures": signatures})


def with_one(certificate, name, one):
    """The same with another signature in the place of this party's."""
    others = [one if each.name == name else each for each in certificate.signatures.by]
    return with_signatures(certificate, *others)


def refused(certificate, registrar, words):
    verdict = check(certificate, registrar=registrar)
    assert verdict.word == "NOT VALID", verdict
    assert words in verdict.explanation, verdict.explanation
    assert verdict.signed is None


# -- nobody lies


def test_all_have_signed(signed, registrar):
    verdict = check(signed, registrar=registrar)
    assert verdict.holds
    said = f"signed by the aggregator ({AGGREGATOR}) and 3 of 3 sites (s0, s1, s2)"
    assert str(verdict.signed).startswith(said)
    assert verdict.signed.session == "a1"
    assert verdict.signed.registrar in str(verdict.signed)
    alone = check(signed)
    assert alone.holds
    assert "not checked against a registrar" in str(alone.signed)


def test_a_study_without_certificates_of_parties_has_none(tmp_path, registrar):
    certificate = run_study(Consortium(study_of(3), tmp_path)).outcome.certificate
    assert check(certificate).signed is None
    assert check(certificate).holds
    refused(certificate, registrar, "Nobody has signed it")


def test_what_they_signed_is_read_for_longer_than_the_list_is_good(signed, registrar, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=3650)

    monkeypatch.setattr("eigenveil.federation.members.datetime", Later)
    assert check(signed, registrar=registrar).holds


# -- whoever holds the file


def edits(certificate):
    """Changes, each of which leaves a certificate that holds as far as its own words go."""
    plan = certificate.plan | {"noise_source": "seeded"}
    seeded = [r.model_copy(update={"noise_source": "seeded"}) for r in certificate.releases]
    noise = {"noise_source": "seeded", "releases": tuple(seeded)}
    yield {"model": "0" * 64}
    yield {"software": "another"}
    yield {"dependent": True}
    yield {"plan": plan, "plan_hash": plan_hash(plan), **noise}


def test_a_certificate_that_was_changed(signed, registrar):
    for edit in edits(signed):
        forged = signed.model_copy(update=edit)
        assert check(forged.model_copy(update={"signatures": None})).word != "NOT VALID"
        for told in (registrar, None):
            refused(forged, told, "does not hold")


@pytest.mark.parametrize(
    ("fields", "session"), [({}, "b2"), ({"epsilon": 10.0}, "a1")], ids=["session", "study"]
)
def test_signatures_of_another(fields, session, signed, played, registrar):
    other = played(study_of(3, **fields), session=session)[0].outcome.certificate
    assert (other.study_hash == signed.study_hash) == (not fields)
    for name in (AGGREGATOR, *SITES):
        refused(with_one(signed, name, by(other, name)), registrar, "does not hold")
    refused(with_signatures(signed, *other.signatures.by), registrar, "does not hold")
    renamed = with_signatures(signed, *signed.signatures.by, session="b2")
    refused(renamed, registrar, "does not hold")


def test_a_sites_signature_by_any_other_party_or_of_other_words(
    signed, identities, strangers, registrar
):
    """Of the text that s1 would have signed; by the same name in another federation, too."""
    text = text_of(signed, "a1", "site", "s1")
    forged = [identities[name].sign(text) for name in ("s2", AGGREGATOR, HELPER, "lead")]
    forged.append(strangers["s1"].sign(text))
    # the very words, without their purpose; an envelope's begin otherwise, too
    for said in (text.replace(b"certificate 2", b"keys 3"), b"eigenveil envelope 1\n" + text):
        forged.append(identities["s1"].sign(said))
    for signature in forged:
        one = by(signed, "s1").model_copy(update={"signature": signature.hex()})
        refused(with_one(signed, "s1", one), registrar, "The signature of site s1 does not hold")


def test_roles_swapped_and_a_signer_that_is_none_of_the_study(
    signed, identities, strangers, registrar
):
    site = own_signature(identities["s1"], signed, "a1", aggregator=True)
    forged = [each for each in signed.signatures.by if each.name not in (AGGREGATOR, "s1")]
    refused(with_signatures(signed, site, *forged), registrar, "s1 is no aggregator")
    moved = by(signed, "s1").model_copy(update={"role": "aggregator"})
    refused(with_signatures(signed, moved, *forged), registrar, "s1 is no aggregator")
    stranger = own_signature(strangers["s9"], signed, "a1", aggregator=False)
    refused(with_one(signed, "s1", stranger), registrar, "s9, which is not a site of its study")


def test_another_federation(signed, strangers, registrar):
    """All of it is made up: only the registrar's fingerprint tells."""
    made = [own_signature(strangers[AGGREGATOR], signed, "a1", aggregator=True)]
    made += [own_signature(strangers[n], signed, "a1", aggregator=False) for n in SITES]
    signatures = signatures_of(strangers["s0"], "a1", tuple(made))
    forged = signed.model_copy(update={"signatures": signatures})
    refused(forged, registrar, "another federation's")
    assert "not checked against a registrar" in str(check(forged).signed)
    # with the true list: nobody of it signed
    refused(with_signatures(signed, *made), registrar, "does not hold")


def test_what_shows_whose_keys_these_are_is_the_registrars(signed, strangers, registrar):
    """Every value of it: another key, another name, none at all."""
    key = strangers["s1"].signer.public_key.text
    members = signed.signatures.members
    entries = [each | {"key": key} if each["name"] == "s1" else each for each in members["entries"]]
    text = text_of(signed, "a1", "site", "s1")
    mine = by(signed, "s1").model_copy(update={"signature": strangers["s1"].sign(text).hex()})
    for shown_members in (
        {},
        {"heads": []},
        members | {"entries": entries},
        members | {"entries": members["entries"][1:]},
        members | {"digests": members["digests"][1:]},
    ):
        forged = with_one(signed, "s1", mine)
        signatures = forged.signatures.model_copy(update={"members": shown_members})
        forged = forged.model_copy(update={"signatures": signatures})
        for told in (registrar, None):
            refused(forged, told, "")


def test_signatures_that_are_taken_away_or_repeated(signed, registrar):
    """Of a site it is seen that it is missing; without the aggregator's nothing counts."""
    first, *sites = signed.signatures.by
    less = with_signatures(signed, first, *sites[1:])
    for told in (None, registrar):
        refused(less, told, "2 of its sites have signed it, not 3: s0 did not")
    verdict = check(less, registrar=registrar, signatures=2)
    assert verdict.holds
    assert verdict.signed.unsigned == ("s0",)
    assert "2 of 3 sites (s1, s2), not by s0" in str(verdict.signed)
    refused(with_signatures(signed, *sites), registrar, "The aggregator has not signed it")
    refused(with_signatures(signed, first, first, *sites), registrar, "twice")
    refused(with_signatures(signed, first, *sites, sites[0]), registrar, "twice")
    refused(signed.model_copy(update={"signatures": None}), registrar, "Nobody has signed")


def test_the_command_says_who_signed(signed, registrar, run, tmp_path):
    file = tmp_path / "certificate.json"
    signed.write(file)
    out = run.done("certify", file, "--registrar", registrar.upper())
    assert f"signed by the aggregator ({AGGREGATOR}) and 3 of 3 sites" in out
    assert "that the model was made of their sums is the aggregator's word" in " ".join(out.split())
    assert "not checked against a registrar" in run.done("certify", file)
    status, out, _ = run("certify", file, "--registrar", "0" * 64)
    assert status == 8
    assert "NOT VALID" in out
    with_signatures(signed, *signed.signatures.by[:-1]).write(file)
    assert run("certify", file)[0] == 8
    assert run("certify", file, "--signatures", "2")[0] == 0
    signed.model_copy(update={"signatures": None}).write(file)
    assert run("certify", file, "--signatures", "1")[0] == 8


# -- an aggregator that lies to sites


def shown(study_certificate_to, *, names=("s1",)):
    """A fate that shows these sites another certificate, made of the one they would be shown."""

    def fate(name, step, request, party):
        if step != "end" or name not in names:
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        true = message.read(EndRequest).certificate
        return party.handle(changed(request, body=lying(true)))

    def lying(true):
        return EndRequest(outcome="finished", certificate=study_certificate_to(true)).fields()

    return fate


def test_a_site_that_was_shown_another_certificate_has_not_signed_this_one(played, registrar):
    """A site cannot check the model: it signs another, which is of no use for the published one."""
    fate = shown(lambda true: true.model_copy(update={"model": "0" * 64}))
    found, _ = played(fate=fate)
    published = found.outcome.certificate
    assert "s1" in found.wire.answers("end")
    assert ("s1", "end") not in found.wire.refusals()  # it signed
    assert who_signed(published, registrar).unsigned == ("s1",)
    assert "did not sign the certificate" in found.outcome.missing["s1"]
    theirs = found.wire.answers("end")["s1"].body["signature"]
    one = by(published, "s2").model_copy(update={"name": "s1", "signature": theirs})
    forged = with_signatures(published, *published.signatures.by, one)
    refused(forged, registrar, "s1 is no site of this federation")


def lies(true):
    """What did not happen at the site, by what is said."""
    record = true.releases[-1]
    less = record.noise.model_copy(update={"scale": record.noise.scale * 2.0})
    first, last = true.releases[:-1], record.model_copy(update={"noise": less})
    other = study_of(3, name="another")  # of the same plan
    plan = true.plan | {"rows": 5}
    return {
        "fewer releases": {"releases": true.releases[:1], "stopped": "it was enough"},
        "more noise": {"releases": (*first, last)},
        "another study": {"study": other.model_dump(mode="json"), "study_hash": other.hash},
        "another hash": {"study_hash": other.hash},
        "another plan": {"plan": plan, "plan_hash": plan_hash(plan)},
        "another plan's hash": {"plan_hash": "0" * 64},
        "a lower claim": {"target": true.target.model_copy(update={"epsilon": 1.0})},
        "fewer proofs": {"proofs": ()},
    }


LIES = (
    *("fewer releases", "more noise", "another study", "another hash", "another plan"),
    *("another plan's hash", "a lower claim", "fewer proofs"),
)


@pytest.mark.parametrize("lie", LIES)
def test_a_site_does_not_sign_what_did_not_happen(lie, played, registrar):
    fate = shown(lambda true: true.model_copy(update=lies(true)[lie]))
    found, consortium = played(fate=fate)
    assert found.wire.refusals()["s1", "end"][0] == "other-certificate"
    assert consortium.parties["s1"].last_error.code == "other-certificate"
    assert who_signed(found.outcome.certificate, registrar).unsigned == ("s1",)
    assert consortium.account("s1", found.session).outcome == "finished"


def test_a_site_states_that_quotes_of_its_files_must_be_closed(played):
    """It says so where it joins, and signs no certificate that does not."""
    hidden = shown(lambda true: true.model_copy(update={"newlines_in_cells": False}))

    def fate(name, step, request, party):
        if name == "s1":
            party.rows.newlines_in_cells = True
        return hidden(name, step, request, party)

    found, _ = played(fate=fate)
    assert CLOSED_QUOTES in found.outcome.certificate.assumptions
    assert found.wire.refusals()["s1", "end"][0] == "other-certificate"


OPEN = {"protocol": "full", "center": False, "budget_split": {"moment": 1.0}}  # no masked round


@pytest.mark.parametrize(("lost", "fields"), [("keys", OPEN), ("keys", {}), ("round 2", {})])
def test_a_site_does_not_sign_for_a_site_that_was_lost(lost, fields, played):
    """More sites than there were: each adversary would face more of the noise."""
    gone = set()

    def fate(name, step, request, party):
        gone.update({step} & {lost})
        if name == "s2" and gone:
            return None
        lying = shown(lambda true: true.model_copy(update={"federation": all_of(true)}))
        return lying(name, step, request, party)

    def all_of(true):
        assert true.federation.taking_part == 2
        return true.federation.model_copy(update={"taking_part": 3})

    found, _ = played(study_of(3, dropouts=1, **fields), fate)
    assert found.wire.refusals()["s1", "end"][0] == "other-certificate"
    assert who_signed(found.outcome.certificate, None).unsigned == ("s1", "s2")


@pytest.mark.parametrize("of", ["noise", "processor"])
def test_a_site_says_no_where_its_own_caveat_is_left_out(of, played, monkeypatch):
    """The aggregator has read in the site's first message that nothing can be certified."""
    study = study_of(3)

    def fate(name, step, request, party):
        if name == "s1" and step == "end":
            if of == "noise":
                party._source = SeededSource(1)
            else:
                monkeypatch.setattr("eigenveil.federation.protocol.site.dependence", lambda: True)
            try:
                return party.handle(request)
            finally:
                monkeypatch.undo()
        return ...

    found, _ = played(study, fate)
    assert found.wire.refusals()["s1", "end"][0] == "other-certificate"


def test_a_site_signs_one_certificate_a_session(played):
    codes = []

    def fate(name, step, request, party):
        if step == "end" and name == "s1":
            first = party.handle(request)
            assert party.handle(request) == first
            true = decode(request, sender=AGGREGATOR, limit=LIMIT).read(EndRequest).certificate
            other = EndRequest(
                outcome="finished", certificate=true.model_copy(update={"model": "0" * 64})
            ).fields()
            codes.append(query(party, "s1", changed(request, body=other)).body["code"])
            return first
        return ...

    found, _ = played(fate=fate)
    assert codes == ["session-ended"]
    assert not found.outcome.missing


def test_no_round_follows_what_was_signed(played):
    """A site is asked to sign what it has answered so far, and then for the rest."""
    study = study_of(3, dropouts=1, row_bound=None)
    whole = played(study)[0].outcome.certificate

    def fate(name, step, request, party):
        if name != "s1" or step != "round 2":
            return ...
        so_far = whole.model_copy(
            update={
                "releases": whole.releases[:1],
                "stopped": NO_BOUND,
                "signatures": None,
            }
        )
        body = EndRequest(outcome="finished", certificate=so_far)
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        early = request_of(study, message.session, "end", body)
        assert query(party, "s1", early).step == "end"
        answer = party.handle(request)
        reported = decode(answer, sender="s1", limit=LIMIT)
        assert (reported.step, reported.body.get("code")) == (REFUSED, "session-ended")
        return None

    found, consortium = played(study, fate)
    assert len(consortium.charged("s1", found.session)) == 1
    assert found.outcome.taking_part == 2


# -- sites that do not sign


@pytest.mark.parametrize("how", ["gone", "refuses", "malformed", "unsigned"])
def test_a_site_that_does_not_sign_is_named(how, played, registrar):
    """It is asked as often as for any other answer, and the study ends well without it."""
    asked = []

    def fate(name, step, request, party):
        if step != "end" or name != "s1":
            return ...
        asked.append(name)
        if how == "gone":
            return None
        if how == "refuses":
            party._identity = None
            return party.handle(request)
        answer = party.handle(request)
        if how == "malformed":
            return answer[:-1]
        return answer.replace(b'"signature":"', b'"signature":"00', 1)

    found, _ = played(fate=fate)
    assert asked == ["s1"] * (1 if how == "refuses" else TRIES)
    refused(found.outcome.certificate, registrar, "s1 did not")
    verdict = check(found.outcome.certificate, registrar=registrar, signatures=2)
    assert verdict.holds
    assert verdict.signed.sites == ("s0", "s2")
    assert set(found.outcome.missing) == {"s1"}


def test_asking_for_signatures_has_a_time(identities, tmp_path):
    consortium = Consortium(study_of(3), tmp_path, identities=identities)
    aggregator = Aggregator(settle(consortium.study), timeout=7.0, identity=identities[AGGREGATOR])
    calls = []

    class Timed(Wire):
        def call(self, method, payloads, timeout):
            calls.append((method, timeout))
            return super().call(method, payloads, timeout)

    carry(aggregator.run(), Timed(consortium.parties))
    assert ("end", 7.0) in calls
