"""Signatures of a study's certificate: forged, moved, made by another party, or got by a lie.

A study among three sites whose aggregator, or whoever holds the file afterwards, lies. It would
have found a certificate that was changed after it was signed, a signature that serves for another
session, study, role, party or authority, a site that signs what did not happen there, and a site
that answers one more round after it signed a certificate without it.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from identity_tools import DAY, NOW, Known, Registrar
from roles_tools import Consortium, Wire, at, carry, changed, query, request_of, run_study, study_of

from eigenveil.federated.running import finished_study
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.certificates import check, own_signature, text_of, who_signed
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode
from eigenveil.federation.protocol.payloads import SignRequest
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.protocol.terms import settle
from eigenveil.models.plan import NO_BOUND
from eigenveil.network.kit import FILE, FORMAT
from eigenveil.network.results import write_result_files
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.certificate import CLOSED_QUOTES, Signatures, plan_hash

SITES = ("s0", "s1", "s2")
HOST = "aggregator.example.org"
LIMIT = 1 << 24


@pytest.fixture(scope="module")
def registrar():
    return Registrar()


@pytest.fixture(scope="module")
def identities(registrar):
    found = {name: registrar.identity(name) for name in SITES}
    return found | {AGGREGATOR: registrar.identity(HOST, role="aggregator")}


@pytest.fixture(scope="module")
def played(identities, tmp_path_factory):
    """Plays a study; ``fate`` decides what becomes of each message."""

    def call(study=None, fate=None, **options):
        consortium = Known(study or study_of(3), tmp_path_factory.mktemp("study"), identities)
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
    session = session or certificate.signatures.session
    return certificate.model_copy(update={"signatures": Signatures(session=session, by=by)})


def with_one(certificate, name, one):
    """The same with another signature in the place of this party's."""
    others = [one if each.name == name else each for each in certificate.signatures.by]
    return with_signatures(certificate, *others)


def refused(certificate, root, words):
    verdict = check(certificate, root=root)
    assert verdict.word == "NOT VALID", verdict
    assert words in verdict.explanation, verdict.explanation
    assert verdict.signed is None


# -- nobody lies


def test_all_have_signed(signed, registrar):
    verdict = check(signed, root=registrar.root)
    assert verdict.holds
    said = f"signed by the aggregator ({HOST}) and 3 of 3 sites (s0, s1, s2)"
    assert str(verdict.signed).startswith(said)
    assert verdict.signed.session == "a1"
    assert verdict.signed.authority in str(verdict.signed)
    alone = check(signed)
    assert alone.holds
    assert "not checked against an authority" in str(alone.signed)


def test_a_study_without_certificates_of_parties_has_none(tmp_path, registrar):
    certificate = run_study(Consortium(study_of(3), tmp_path)).outcome.certificate
    assert check(certificate).signed is None
    assert check(certificate).holds
    refused(certificate, registrar.root, "Nobody has signed it")


def test_what_they_signed_is_read_for_longer_than_their_certificates_last(signed, registrar):
    identity = registrar.identity("s1", start=NOW - 3 * DAY, end=NOW - DAY)
    late = own_signature(identity, signed, "a1", aggregator=False)
    assert check(with_one(signed, "s1", late), root=registrar.root).holds


# -- whoever holds the file


def edits(certificate):
    """Changes, each of which leaves a certificate that holds as far as its own words go."""
    plan = certificate.plan | {"noise_source": "seeded"}
    seeded = [r.model_copy(update={"noise_source": "seeded"}) for r in certificate.releases]
    return {
        "model": {"model": "0" * 64},
        "software": {"software": "another"},
        "dependent": {"dependent": True},
        "seeded": {
            "plan": plan,
            "plan_hash": plan_hash(plan),
            "noise_source": "seeded",
            "releases": tuple(seeded),
        },
    }


@pytest.mark.parametrize("edit", ["model", "software", "dependent", "seeded"])
@pytest.mark.parametrize("authority", [False, True])
def test_a_certificate_that_was_changed(edit, authority, signed, registrar):
    forged = signed.model_copy(update=edits(signed)[edit])
    assert check(forged.model_copy(update={"signatures": None})).word != "NOT VALID"
    refused(forged, registrar.root if authority else None, "the signature does not hold")


def test_signatures_of_another_session(signed, played, registrar):
    other = played(session="b2")[0].outcome.certificate
    assert other.study_hash == signed.study_hash
    for name in (HOST, *SITES):
        refused(with_one(signed, name, by(other, name)), registrar.root, "does not hold")
    refused(with_signatures(signed, *other.signatures.by), registrar.root, "does not hold")
    renamed = with_signatures(signed, *signed.signatures.by, session="b2")
    refused(renamed, registrar.root, "does not hold")


def test_signatures_of_another_study(signed, played, registrar):
    other = played(study_of(3, epsilon=10.0), session="a1")[0].outcome.certificate
    for name in (HOST, *SITES):
        refused(with_one(signed, name, by(other, name)), registrar.root, "does not hold")


def test_what_is_signed_elsewhere_is_no_signature(signed, identities, registrar):
    """Of the very words, without their purpose; an envelope's begin otherwise, too."""
    text = text_of(signed, "a1", "site", "s1")
    for said in (text.replace(b"certificate 1", b"keys 1"), b"eigenveil envelope 1\n" + text):
        signature = identities["s1"].sign(said).hex()
        one = by(signed, "s1").model_copy(update={"signature": signature})
        refused(with_one(signed, "s1", one), registrar.root, "does not hold")


def test_a_sites_signature_by_the_aggregator(signed, identities, registrar):
    """With its own certificate, with the site's, and with one for a host called like the site."""
    own = identities[AGGREGATOR]
    for pem in (own.pem, identities["s1"].pem):
        mine = own_signature(replace(own), signed, "a1", aggregator=False)
        mine = mine.model_copy(update={"name": "s1", "certificate": pem})
        refused(with_one(signed, "s1", mine), registrar.root, "The signature of site s1")
    host = registrar.identity("s1", role="aggregator")
    mine = own_signature(host, signed, "a1", aggregator=False)
    refused(with_one(signed, "s1", mine), registrar.root, "not of a site")


def test_a_sites_signature_by_another_site(signed, identities, registrar):
    """Of the text that s1 would have signed."""
    signature = identities["s2"].sign(text_of(signed, "a1", "site", "s1")).hex()
    said = {"certificate": identities["s2"].pem, "signature": signature}
    forged = by(signed, "s1").model_copy(update=said)
    refused(with_one(signed, "s1", forged), registrar.root, "another party's")


def test_roles_swapped(signed, identities, registrar):
    site = own_signature(identities["s1"], signed, "a1", aggregator=True)
    forged = [each for each in signed.signatures.by if each.name not in (HOST, "s1")]
    refused(with_signatures(signed, site, *forged), registrar.root, "not of an aggregator")
    moved = by(signed, "s1").model_copy(update={"role": "aggregator"})
    refused(with_signatures(signed, moved, *forged), registrar.root, "not of an aggregator")


def test_a_signer_that_is_none_of_the_study(signed, registrar):
    stranger = own_signature(registrar.identity("s9"), signed, "a1", aggregator=False)
    refused(
        with_one(signed, "s1", stranger), registrar.root, "s9, which is not a site of its study"
    )


def test_another_authority(signed, registrar):
    """All of it is made up: only the root certificate tells."""
    other = Registrar()
    made = [own_signature(other.identity(HOST, role="aggregator"), signed, "a1", aggregator=True)]
    made += [own_signature(other.identity(n), signed, "a1", aggregator=False) for n in SITES]
    forged = with_signatures(signed, *made)
    refused(forged, registrar.root, "not the registrar's")
    assert "not checked against an authority" in str(check(forged).signed)
    refused(with_one(signed, "s1", made[2]), registrar.root, "The signature of site s1")


def test_signatures_that_are_taken_away_or_repeated(signed, registrar):
    """Of a site it is seen that it is missing; without the aggregator's nothing counts."""
    first, *sites = signed.signatures.by
    verdict = check(with_signatures(signed, first, *sites[1:]), root=registrar.root)
    assert verdict.holds
    assert verdict.signed.unsigned == ("s0",)
    assert "2 of 3 sites (s1, s2), not by s0" in str(verdict.signed)
    refused(with_signatures(signed, *sites), registrar.root, "The aggregator has not signed it")
    refused(with_signatures(signed, first, first, *sites), registrar.root, "twice")
    refused(with_signatures(signed, first, *sites, sites[0]), registrar.root, "twice")
    refused(signed.model_copy(update={"signatures": None}), registrar.root, "Nobody has signed")


def test_texts_that_are_no_certificates(signed, registrar):
    for pem in ("", "nonsense", "\ud800", by(signed, "s1").certificate[:400]):
        one = by(signed, "s1").model_copy(update={"certificate": pem})
        for root in (None, registrar.root):
            refused(with_one(signed, "s1", one), root, "The signature of site s1")


def test_the_command_says_who_signed(signed, registrar, run, tmp_path):
    root, file = tmp_path / "rootCA.pem", tmp_path / "certificate.json"
    root.write_bytes(registrar.root.public_bytes(Encoding.PEM))
    signed.write(file)
    status, out, _ = run("certify", file, "--root", root)
    assert status == 0
    assert f"signed by the aggregator ({HOST}) and 3 of 3 sites" in out
    assert "that the model was made of their sums is the aggregator's word" in " ".join(out.split())
    status, out, _ = run("certify", file)
    assert status == 0
    assert "not checked against an authority" in out
    root.write_bytes(Registrar().root.public_bytes(Encoding.PEM))
    status, out, _ = run("certify", file, "--root", root)
    assert status == 8
    assert "NOT VALID" in out


# -- an aggregator that lies to sites


def shown(study_certificate_to, *, names=("s1",)):
    """A fate that shows these sites another certificate, made of the one they would be shown."""

    def fate(name, step, request, party):
        if step != "sign" or name not in names:
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        true = message.read(SignRequest).certificate
        return party.handle(changed(request, body=lying(true)))

    def lying(true):
        return SignRequest(certificate=study_certificate_to(true)).fields()

    return fate


def test_a_site_that_was_shown_another_certificate_has_not_signed_this_one(played, registrar):
    """A site cannot check the model: it signs another, which is of no use for the published one."""
    fate = shown(lambda true: true.model_copy(update={"model": "0" * 64}))
    found, _ = played(fate=fate)
    published = found.outcome.certificate
    assert "s1" in found.wire.answers("sign")
    assert ("s1", "sign") not in found.wire.refusals()  # it signed
    verdict = check(published, root=registrar.root)
    assert verdict.signed.unsigned == ("s1",)
    assert "did not sign the certificate" in found.outcome.missing["s1"]
    theirs = found.wire.answers("sign")["s1"].body["proof"]
    one = by(published, "s2").model_copy(update={"name": "s1", **theirs})
    forged = with_signatures(published, *published.signatures.by, one)
    refused(forged, registrar.root, "The signature of site s1")


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
    assert found.wire.refusals()["s1", "sign"][0] == "other-certificate"
    assert consortium.parties["s1"].last_error.code == "other-certificate"
    assert check(found.outcome.certificate, root=registrar.root).signed.unsigned == ("s1",)
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
    assert found.wire.refusals()["s1", "sign"][0] == "other-certificate"


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
    assert found.wire.refusals()["s1", "sign"][0] == "other-certificate"
    assert who_signed(found.outcome.certificate, None).unsigned == ("s1", "s2")


@pytest.mark.parametrize("of", ["noise", "processor"])
def test_a_site_says_no_where_its_own_caveat_is_left_out(of, played, monkeypatch):
    """The aggregator has read in the site's first message that nothing can be certified."""
    study = study_of(3)

    def fate(name, step, request, party):
        if name == "s1" and step == "sign":
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
    assert found.wire.refusals()["s1", "sign"][0] == "other-certificate"


def test_a_site_signs_one_certificate_a_session(played):
    codes = []

    def fate(name, step, request, party):
        if step == "sign" and name == "s1":
            first = party.handle(request)
            assert party.handle(request) == first
            true = decode(request, sender=AGGREGATOR, limit=LIMIT).read(SignRequest).certificate
            other = SignRequest(certificate=true.model_copy(update={"model": "0" * 64})).fields()
            codes.append(query(party, "s1", changed(request, body=other)).body["code"])
            return first
        return ...

    found, _ = played(fate=fate)
    assert codes == ["step-differs"]
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
        body = SignRequest(certificate=so_far)
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        early = request_of(study, message.session, "sign", body)
        assert query(party, "s1", early).step == "sign"
        answer = party.handle(request)
        reported = decode(answer, sender="s1", limit=LIMIT)
        assert (reported.step, reported.body.get("code")) == (REFUSED, "out-of-order")
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
        if step != "sign" or name != "s1":
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
    verdict = check(found.outcome.certificate, root=registrar.root)
    assert verdict.holds
    assert verdict.signed.sites == ("s0", "s2")
    assert set(found.outcome.missing) == {"s1"}


def test_asking_for_signatures_has_a_time(identities, tmp_path):
    consortium = Known(study_of(3), tmp_path, identities)
    aggregator = Aggregator(settle(consortium.study), timeout=7.0, identity=identities[AGGREGATOR])
    calls = []

    class Timed(Wire):
        def call(self, method, payloads, timeout):
            calls.append((method, timeout))
            return super().call(method, payloads, timeout)

    carry(aggregator.run(), Timed(consortium.parties))
    assert ("sign", 7.0) in calls
    assert at(consortium, "finish").method == "finish"  # without an identity nobody is asked


# -- the lead


def lead_kit(folder, root):
    """Whole enough to be opened, with an authority."""
    (folder / "startup").mkdir(parents=True)
    for file in ("client.crt", "client.key", "rootCA.pem", "fed_admin.json"):
        (folder / "startup" / file).write_text("")
    (folder / "startup" / "rootCA.pem").write_bytes(root.public_bytes(Encoding.PEM))
    fields = {"role": "lead", "name": "lead@example.org", "org": "o", "project": "registrar"}
    fields |= {"format": FORMAT, "host": HOST, "port": 1}
    (folder / FILE).write_text(json.dumps(fields))
    return folder


def test_a_lead_fetches_only_what_is_signed(played, registrar, run, tmp_path, monkeypatch):
    """The aggregator sends a result whose certificate nobody, or another federation, signed."""
    found, consortium = played()
    outcome = found.outcome

    class Session:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def fetch(self, job, folder):
            made = finished_study(
                consortium.study, replace(outcome, certificate=sent[0]), traffic={}
            )
            write_result_files(made, folder, session="s", seconds=1.0, seconds_by_step={})

    monkeypatch.setattr("eigenveil.cli.commands.study_run.open_session", lambda kit: Session())
    words = ("study", "fetch", "a-job", "--kit", lead_kit(tmp_path / "lead", registrar.root))
    true = outcome.certificate
    sent = [true]
    status, _, err = run(*words, "--out", tmp_path / "good", "--no-plots")
    assert (status, f"signed by the aggregator ({HOST}) and 3 of 3 sites" in err) == (0, True)
    assert run("certify", tmp_path / "good", "--root", tmp_path / "lead")[0] == 0
    other = Registrar().identity(HOST, role="aggregator")
    forged = own_signature(other, true, true.signatures.session, aggregator=True)
    for lie, said in (
        (true.model_copy(update={"signatures": None}), "Nobody has signed it"),
        (with_one(true, HOST, forged), "not the registrar's"),
    ):
        sent[0] = lie
        status, _, err = run(*words, "--out", tmp_path / "bad", "--no-plots")
        assert status != 0
        assert said in err
        assert not (tmp_path / "bad").exists()
