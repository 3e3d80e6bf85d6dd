"""Somebody speaks as the aggregator, or as another site, on a network that carries anything.

A running three-site study whose network belongs to the attacker: before every genuine question it
delivers forged, replayed and reordered ones to the same site, made with no kit, another site's, the
lead's, another federation's, and an aggregator's of another host. It would have found a site that
answers, charges or ends anything for somebody who did not sign it for this site, study, session and
step; and an aggregator that takes one party's answer, or an old one, for another.

Ten of a kind in every run, a hundred in make nightly (soak_tools.py).
"""

import datetime
import random
import threading
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from eigenveil.network.flare.job import sign_job
from eigenveil.network.signed import SignedWire, party_called
from eigenveil.network.transport import FlareTransport

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.certificates import who_signed
from eigenveil.federation.protocol.envelope import Correspondent, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.federation.x509_identity import Identity, role_extension
from eigenveil.moments.source import ArrayRows
from eigenveil.network.channel import BYE, HELLO, UNSIGNED, Stop
from eigenveil.network.kit import Kit
from eigenveil.network.parties import SiteParty
from eigenveil.network.runner import carry_to_the_end
from eigenveil.noise.source import SeededSource
from soak_tools import MANY, count

SITES, HOST = ("north", "south", "west"), "aggregator.example.org"
SESSION, OLD = "a1" * 12, "b2" * 12
JOB = "0f0f0f0f-0000-4000-8000-0f0f0f0f0f0f"
LIMIT = 1 << 24
NOW, DAY = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
RNG = np.random.default_rng(3)
ROWS = {name: RNG.standard_normal((300, 6)) * np.linspace(3.0, 0.3, 6) for name in SITES}


class Registrar:
    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.root = self.certificate("registrar", self.key, "", authority=True)

    def identity(self, name, role):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return Identity(key, self.certificate(name, key, role), self.root)

    def certificate(self, name, key, role, *, authority=False):
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        usage += [ExtendedKeyUsageOID.SERVER_AUTH] if role == "aggregator" else []
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registrar")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(role_extension(role), critical=False)
            .sign(self.key, SHA256())
        )


@pytest.fixture(scope="module")
def known():
    registrar, stranger = Registrar(), Registrar()
    found = {name: registrar.identity(name, "site") for name in SITES}
    found["aggregator"] = registrar.identity(HOST, "aggregator")
    found["another host"] = registrar.identity("localhost", "aggregator")
    found["lead"] = registrar.identity("lead@example.org", "lead")
    found["site called as the host"] = registrar.identity(HOST, "site")
    found["another federation"] = stranger.identity(HOST, "aggregator")
    return found


def study_of(name="attacked", **fields):
    sites = [{"name": each} for each in SITES]
    usual = {"features": 6, "components": 2, "epsilon": 5.0, "delta": 1e-5, "protocol": "cape"}
    return make_study(**({"name": name, "sites": sites} | usual | fields))


def party(name, known, folder):
    """A site's own process, as far as FLARE is not in it."""
    kit = Kit(folder / name, "site", name, name, HOST, 8102, "project")
    for place in (kit.startup, kit.state, kit.decided, kit.waiting):
        place.mkdir(parents=True)
    private = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    kit.key.write_bytes(known[name].key.private_bytes(*private))
    kit.certificate.write_bytes(known[name].certificate.public_bytes(Encoding.PEM))
    kit.root_certificate.write_bytes(known[name].root.public_bytes(Encoding.PEM))
    ledger = Ledger(folder / f"{name}.ledger", durable=False)
    ledger.set_budget(Budget("default", "add-remove", 1000.0, 1e-2))
    made = SiteParty(
        kit,
        lambda study: ArrayRows(ROWS[name], names=None, origin=name),
        ledger,
        source=SeededSource(SITES.index(name)),
        approve="all",
        say=lambda text: None,
    )
    made.ledger = ledger
    return made


class Network:
    """Carries envelopes, and what an attacker adds: nothing, by default."""

    def __init__(self, parties):
        self.parties = parties
        self.seen = []  # site, question, reply
        self.wrong = []
        self.guards = {name: threading.RLock() for name in parties}

    def deliver(self, name, data):
        answer = self.parties[name].answer(data)
        return answer.result(60) if isinstance(answer, Future) else answer

    def carry(self, name, data, timeout, stop):
        del timeout, stop
        with self.guards[name]:
            try:
                self.before(name, data)
            except Exception as error:
                self.wrong.append(error)
            came = self.deliver(name, data)
            came_to_aggregator = self.after(name, came)
            self.seen.append((name, data, came))
            return came_to_aggregator

    def before(self, name, data):
        pass

    def after(self, name, came):
        return came


class Consortium:
    def __init__(self, folder, known, study, network=Network):
        self.known, self.study = known, study
        self.parties = {name: party(name, known, folder) for name in SITES}
        self.network = network(self.parties)

    def run(self, session=SESSION):
        order = sign_job(self.study, session, 60.0)
        for number, each in enumerate(self.parties.values()):
            each.admit(JOB[:-1] + f"{number:x}", order, lambda: None)
        wire = SignedWire(
            self.network,
            self.known["aggregator"],
            study=self.study.hash,
            session=session,
            limit=LIMIT,
        )
        transport = FlareTransport(wire, SITES, lambda: False)
        aggregator = Aggregator(
            settle(self.study), session=session, timeout=60.0, identity=self.known["aggregator"]
        )
        outcome = carry_to_the_end(aggregator.run(), transport)
        transport.bye()
        if self.network.wrong:
            raise self.network.wrong[0]
        return outcome

    def books(self, name):
        return [(e.number, e.hash) for e in self.parties[name].ledger.entries()]


def opened(known, data, name):
    return open_sealed(
        data,
        known[name],
        sender=Correspondent(AGGREGATOR, "aggregator", HOST),
        recipient=name,
        limit=LIMIT,
    )


def damaged(data, random_place):
    changed = bytearray(data)
    changed[random_place.randrange(len(data))] ^= 1 << random_place.randrange(8)
    return bytes(changed)


def test_a_study_over_a_hostile_network_is_the_same(tmp_path, known):
    quiet = Consortium(tmp_path / "quiet", known, study_of())
    old = quiet.run(OLD)
    undisturbed = Consortium(tmp_path / "wanted", known, study_of())
    wanted = undisturbed.run()
    random_place = random.Random()  # all places must do: no seed is chosen
    nobody = Registrar().identity(HOST, "aggregator")
    nobody = replace(nobody, root=known["north"].root)

    class Hostile(Network):
        """Every question is preceded by what is none."""

        tried = 0

        def before(self, name, data):
            books, admission = consortium.books(name), self.parties[name].admission
            before = self.tried
            genuine = opened(known, data, name)
            for forged in self.unsigned(name, genuine, data):
                self.tried += 1
                assert self.deliver(name, forged) == b""
            for foreign, code in self.signed(genuine):
                self.tried += 1
                assert self.said(name, self.deliver(name, foreign)) == code
            tried = {"forged": self.tried - before} | self.replay(name)
            same = consortium.books(name) == books and self.parties[name].admission == admission
            for kind, number in tried.items():
                count(kind, "a carrier, in one process", number, 0 if same else number)
            assert same
            if genuine.step not in ("join", HELLO):
                assert self.parties[name].admission is not None

        def unsigned(self, name, genuine, data):
            """Nobody who may ask has signed these for this site."""
            for which in ("north", "lead", "another host", "site called as the host"):
                yield seal(genuine, known[which])[0]
                yield seal(replace(genuine, step=BYE, payload=b""), known[which])[0]
            for identity in (known["another federation"], nobody):
                yield seal(genuine, identity)[0]
            other = next(each for each in SITES if each != name)
            yield seal(replace(genuine, recipient=other), known["aggregator"])[0]
            yield seal(replace(genuine, sender="lead"), known["aggregator"])[0]
            yield from (each for to, each, _ in self.seen[-MANY:] if to != name)
            for _ in range(MANY):
                yield damaged(data, random_place)
            yield from (data[:-1], data + b"\0", data[:100], b"", b"EVE1" + bytes(100))
            yield data + bytes(1 << 22)

        def signed(self, genuine):
            """The aggregator has signed these, of something else."""
            query = known["aggregator"]
            yield seal(replace(genuine, session=OLD), query)[0], "not-admitted"
            yield seal(replace(genuine, study="0" * 64), query)[0], "not-admitted"
            yield (
                seal(replace(genuine, session=OLD, step=BYE, payload=b""), query)[0],
                "not-admitted",
            )
            if genuine.step != "join" and genuine.payload:
                yield seal(replace(genuine, step="round 8"), query)[0], "bad-request"

        def replay(self, name):
            """What the site was asked before: one of it again and again, and all in disorder."""
            mine = [data for to, data, _ in self.seen if to == name]
            if not mine:
                return {}
            several = random_place.choices(mine, k=MANY)
            for question in [random_place.choice(mine)] * MANY + several:
                self.tried += 1
                self.check_replay(name, question, self.deliver(name, question))
            return {"replayed": MANY, "reordered": MANY}

        def check_replay(self, name, question, reply):
            """The stored answer again, or none."""
            found = self.reply(name, reply)
            first = next(came for _, asked, came in self.seen if asked == question)
            stored = self.reply(name, first)
            if found.payload == stored.payload and not found.code:
                return
            refusal = decode(found.payload, sender=name, limit=LIMIT) if found.payload else None
            assert found.code or refusal.step == "refused", found

        def reply(self, name, data):
            return open_sealed(
                data,
                known["aggregator"],
                sender=party_called(name),
                recipient=AGGREGATOR,
                limit=LIMIT,
            )

        def said(self, name, data):
            return self.reply(name, data).code

    consortium = Consortium(tmp_path / "hostile", known, study_of(), Hostile)
    outcome = consortium.run()
    assert not outcome.missing
    signed = who_signed(outcome.certificate, known["north"].root)
    assert (signed.aggregator, signed.sites) == (HOST, SITES)
    np.testing.assert_array_equal(outcome.factors.components, wanted.factors.components)
    np.testing.assert_array_equal(outcome.factors.components, old.factors.components)
    assert consortium.network.tried > 20 * MANY
    for name, each in consortium.parties.items():
        (account,) = each.ledger.sessions()
        (other,) = undisturbed.parties[name].ledger.sessions()
        assert not account.is_open
        assert account.charged() == other.charged()


def test_a_run_that_is_over_is_not_admitted_again(tmp_path, known):
    """A lead's old job, brought once more: its session is in the ledger, and in the kit."""
    consortium = Consortium(tmp_path, known, study_of())
    consortium.run()
    order = sign_job(consortium.study, SESSION, 60.0)
    for each in consortium.parties.values():
        each._work.submit(lambda: None).result(10)  # what ends is written
        with pytest.raises(ProtocolError, match="a run that is over was brought again"):
            each.admit(JOB, order, lambda: None)
        each.kit.ended_file.unlink()
        again = SiteParty(each.kit, None, each.ledger, approve="all", say=lambda text: None)
        with pytest.raises(ProtocolError, match="a run that is over was brought again"):
            again.admit(JOB, order, lambda: None)


def test_a_job_that_is_brought_ends_nothing(tmp_path, known):
    """Another run is admitted in the middle of one: only the aggregator's signature begins it."""
    consortium = Consortium(tmp_path, known, study_of())

    class Bringing(Network):
        def before(self, name, data):
            if opened(known, data, name).step != "round 2":
                return
            where, other = self.parties[name], sign_job(study_of("other"), "c3" * 12, 60.0)
            current = where.admission
            where.admit(JOB, other, lambda: None)
            with pytest.raises(ProtocolError, match="a run that is known was brought again"):
                where.admit(JOB, sign_job(consortium.study, SESSION, 60.0), lambda: None)
            where.doubt()  # FLARE says that the job was stopped
            assert where.admission is current
            assert where.doubted.is_set()

    consortium.network = Bringing(consortium.parties)
    assert not consortium.run().missing


def test_an_answer_counts_for_one_question_of_one_party(tmp_path, known):
    """Swapped, replayed, damaged and forged answers are refused, and the question asked again."""
    wanted = Consortium(tmp_path / "wanted", known, study_of()).run()
    random_place = random.Random()

    class Lying(Network):
        lied = 0

        def after(self, name, came):
            others = [reply for who, _, reply in self.seen if who != name]
            mine = [reply for who, _, reply in self.seen if who == name]
            honest = open_sealed(
                came,
                known["aggregator"],
                sender=party_called(name),
                recipient=AGGREGATOR,
                limit=LIMIT,
            )
            choices = [
                *others[-1:],
                *mine[-1:],
                damaged(came, random_place),
                seal(honest, known["north" if name != "north" else "south"])[0],
                seal(honest, known["aggregator"])[0],
                b"",
            ]
            if random_place.random() < 0.5 or honest.step in (HELLO, BYE):
                return came
            self.lied += 1
            return random_place.choice(choices)

    # enough tries that all fail with probability below 1e-9 a question
    from eigenveil.federation.protocol import requests

    query = requests.Requests.query
    try:
        requests.Requests.query = lambda self, *rest: query(self, *rest[:5], 60)
        consortium = Consortium(tmp_path / "lying", known, study_of(), Lying)
        outcome = consortium.run()
    finally:
        requests.Requests.query = query
    assert not outcome.missing
    assert consortium.network.lied
    np.testing.assert_array_equal(outcome.factors.components, wanted.factors.components)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"request_digest": "0" * 64}, {"session": OLD}, {"study": "0" * 64}, {"step": HELLO}],
    ids=str,
)
def test_an_answer_says_which_question_it_is_of(known, wrong):
    """An old sign of life, kept by the network, is none of a site that is gone."""

    class Kept:
        def carry(self, name, data, timeout, stop):
            asked = opened(known, data, name)
            fields = {"sender": name, "recipient": AGGREGATOR, "request_digest": asked.mark} | wrong
            return seal(replace(asked, **fields), known[name])[0]

    wire = SignedWire(Kept(), known["aggregator"], study="ab" * 32, session=SESSION, limit=LIMIT)
    assert wire.query("north", BYE, b"", 1.0, Stop()).code == (UNSIGNED if wrong else "")


def test_an_unsigned_answer_has_a_code_of_its_own(known):
    class Silent:
        def carry(self, name, data, timeout, stop):
            return b""

    wire = SignedWire(Silent(), known["aggregator"], study="0" * 64, session=SESSION, limit=LIMIT)
    assert wire.query("north", "join", b"", 1.0, Stop()).code == UNSIGNED
