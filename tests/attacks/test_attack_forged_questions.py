"""Attacks on runs by members with keys of their own, and by whoever carries their mail."""

import random
import time
from types import SimpleNamespace

import pytest

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, Message, encode
from eigenveil.network import attendant
from eigenveil.network.attendant import Attendant
from eigenveil.network.channel import OVER, opening
from eigenveil.network.endpoint import Post
from eigenveil.network.envelopes import Envelope, OtherMembers, is_hello
from eigenveil.network.folder import identity_of, sealing_of
from eigenveil.network.mailbox import digest_of
from eigenveil.network.orders import new_session, read_order, sign_order
from federation_tools import SITES
from mailbox_tools import MemoryKeys
from network.contract import Lossy
from network.study_tools import Federation, Site, ended, one_release, until
from soak_tools import count, times

BOUND = 1 << 16


class Told:
    """A site, and whoever writes to it, answer by answer."""

    def __init__(self, folder):
        self.federation = Federation(folder, one_release())
        self.study, self.folders = self.federation.study, self.federation.parties
        self.ledger = self.federation.ledgers["north"]
        self.identities = {name: identity_of(each) for name, each in self.folders.items()}
        self.posts = {
            name: Post(self.identities[name], sealing_of(each), MemoryKeys())
            for name, each in self.folders.items()
        }
        self.site = Site(self.folders["north"], self.ledger)
        self.mailbox = self.federation.opens(self.folders["north"])
        self.attendant = Attendant(self.site, self.mailbox)
        for name, post in self.posts.items():
            if name != "north":
                self.attendant.at.post.learn(post.hello("north"))
                post.learn(self.attendant.at.post.hello(name))

    def ask(self, sender, step, payload, *, session, study=None):
        """What the site answers: a code, the answer's bytes, or None."""
        study = study or self.study
        question = Envelope(study.hash, session, step, sender, "north", payload)
        data, mark = self.posts[sender].seal(question, bound=BOUND)
        self.mailbox.put("north", data)
        self.attendant.turn(0.0)
        box = self.federation.opens(self.folders[sender])
        found = None
        for each in box.take(0.0):
            box.forget([digest_of(each)])
            if is_hello(each):
                continue
            try:
                answer = self.posts[sender].open(each, limit=1 << 24)
            except OtherMembers as other:
                answer = other.envelope
            assert answer.question == mark
            found = answer.code or answer.payload
        return found

    def join(self, sender, lead, *, session, study=None):
        """The first question of a run that somebody ordered."""
        study = study or self.study
        order = sign_order(self.identities[lead], study, session=session, timeout=60.0)
        return self.ask(sender, "join", self.first(order, session), session=session, study=study)

    def first(self, order, session):
        body = payloads.JoinRequest().fields()
        message = encode(Message("join", order.study.hash, session, AGGREGATOR, body))
        return opening(order.line, self.identities["north"].members.digest, message)


@pytest.fixture
def told(tmp_path):
    return Told(tmp_path)


def test_no_other_member_asks_or_ends(told):
    session = new_session()
    for sender in ("south", "lead", "west"):
        assert told.join(sender, "lead", session=session) is None
        for step in ("keys", "round 1", "survivors 1", "unmask 1", "end"):
            assert told.ask(sender, step, b"", session=session) is None
    assert not told.ledger.sessions()
    assert isinstance(told.join("aggregator", "lead", session=session), bytes)
    for sender in ("south", "lead", "west"):
        assert told.ask(sender, OVER, session.encode(), session="") is None
    (open_session,) = told.ledger.sessions()
    assert open_session.is_open


def test_an_aggregator_needs_the_word_of_a_lead_and_of_the_owner(told):
    for liar in ("aggregator", "south", "north"):
        assert told.join("aggregator", liar, session=new_session()) == "order-refused"
    other = one_release(epsilon=5.0)
    for step in ("keys", "round 1", "end", "no such step"):
        assert told.ask("aggregator", step, b"", session=new_session()) == "not-admitted"
    told.site.decision = "waiting"
    assert told.join("aggregator", "lead", session=new_session()) == "not-approved"
    told.site.decision = "approved"
    session = new_session()
    order = sign_order(told.identities["lead"], told.study, session=session, timeout=60.0)
    first = told.first(order, session)
    elsewhere = new_session()
    assert told.ask("aggregator", "join", first, session=elsewhere) == "other-session"
    assert told.ask("aggregator", "join", first, session=session, study=other) == "other-session"
    changed = first.replace(b'"timeout":60.0', b'"timeout":61.0')
    assert changed != first
    assert told.ask("aggregator", "join", changed, session=session) == "order-refused"
    assert not told.ledger.sessions()
    told.site.decision = "refused"
    assert told.ask("aggregator", "join", first, session=session) == "owner-refused"
    assert not told.ledger.sessions()


def later(look):
    time.sleep(0.5)
    return look()


def test_mail_of_a_run_that_is_brought_again_changes_no_ledger(tmp_path):
    """Whole, changed, late, in any order, to anybody; also once the run is over."""
    chance = random.Random()
    with Federation(tmp_path, one_release()) as federation:
        world = Lossy(federation.opens, chance.random(), part=0.0, most=1 << 20)
        honest, federation.opens = federation.opens, world
        for name in SITES:
            federation.stop(name)
            federation.start(name)
        federation.stop_aggregator()
        federation.start_aggregator()
        with federation.lead() as lead:
            run = lead.submit(federation.study)
            assert ended(lead, run).state == "finished"
            until(lambda: all(run in site.runs.over for site in federation.sites.values()))
            books = [federation.ledgers[name].verify() for name in SITES]
            federation.sites["west"].decision = "waiting"
            again = lead.submit(one_release(name="second"))
            others = [federation.ledgers[name] for name in SITES if name != "west"]
            until(lambda: all(len(ledger.sessions()) == 2 for ledger in others))

            def standing():
                sessions = [[*map(str, federation.ledgers[n].sessions())] for n in SITES]
                return sessions, lead.status(again).state

            until(lambda: standing() == later(standing))  # whoever has no owner has answered
            waiting, full = standing(), times(4_000)
            seen = list(world.seen)
            for turn in range(full):
                data = chance.choice(seen)
                if turn % 2:
                    data = world.damaged(data)
                to = chance.choice([*SITES, "aggregator"])
                honest(federation.parties["lead"]).put(to, data)
            boxes = [honest(federation.parties[name]) for name in (*SITES, "aggregator")]
            # but the question that waits for the owner
            until(lambda: sum(len(box.take(0.0)) for box in boxes) <= 1)
            assert standing() == waiting
            federation.sites["west"].decision = "approved"
            assert ended(lead, again).state == "finished"
        accepted = 0
        for name, before in zip(SITES, books, strict=True):
            ledger = Ledger(tmp_path / f"{name}.ledger", durable=False)
            sessions = {each.key.session for each in ledger.sessions()}
            accepted += sessions != {run, again}
            assert before.holds
            assert ledger.verify().holds
    count("replayed", "a run's mail at put and take", full, accepted)
    assert accepted == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../../keys", "LIST", "é", "/absolute", "f" * 23])
def test_last_words_about_no_run_erase_nothing(told, tmp_path, name):
    """An aggregator that says what is no run's name is over deletes none of a site's files."""
    session = new_session()
    assert isinstance(told.join("aggregator", "lead", session=session), bytes)
    precious = tmp_path / "absolute"
    precious.mkdir()
    (precious / "rows.csv").write_text("1,2,3")
    site = told.folders["north"].folder

    def files():
        places = [*site.rglob("*"), *precious.rglob("*")]
        return {place: place.read_bytes() for place in places if place.is_file()}

    before = files()
    word = str(precious) if name == "/absolute" else name
    told.ask("aggregator", OVER, word.encode(), session="")
    assert files() == before
    told.ask("aggregator", OVER, session.encode(), session="")
    assert not (site / "state" / "sessions" / session).exists()


def test_refusals_leave_no_keys_behind(told):
    """Neither a lead nor an aggregator fills a site's disk with sessions that are none."""
    sessions = told.folders["north"].state / "sessions"
    before = sorted(sessions.rglob("*"))
    for number in range(3):
        for step in ("join", "keys", "over", "survey", "no such step"):
            for sender in ("aggregator", "lead"):
                told.ask(sender, step, b"", session=f"{number}", study=None)
    assert sorted(sessions.rglob("*")) == before


def test_what_nobody_expected_stops_no_party(told, monkeypatch):
    """A message that some error comes of is dropped, and the next one is answered."""

    def fails(*_, **__):
        raise OverflowError

    with monkeypatch.context() as patched:
        patched.setattr(told.folders["north"].known, "adopt", fails)
        hello = told.posts["south"].hello("north", b"?{}")
        told.mailbox.put("north", hello)
        told.attendant.turn(0.0)
    assert not told.mailbox.take(0.0)
    assert isinstance(told.join("aggregator", "lead", session=new_session()), bytes)


def test_a_site_holds_few_questions_at_once(told, monkeypatch):
    """However many an aggregator puts while the site computes: the rest stay where they lie."""
    monkeypatch.setattr(told.attendant, "_work", SimpleNamespace(submit=lambda work: None))
    monkeypatch.setattr(attendant, "_MOST_BUSY", 5)
    for number in range(9):
        question = Envelope("", new_session(), "keys", "aggregator", "north", bytes([number]))
        told.mailbox.put("north", told.posts["aggregator"].seal(question, bound=9)[0])
    for _ in range(2):
        told.attendant.turn(0.0)
    assert len(told.attendant._held) == 5
    assert len(told.mailbox.take(0.0)) == 9


def test_an_order_has_one_text(told):
    """What is said twice in it, or written otherwise, is nobody's word."""
    lead, session = told.identities["lead"], new_session()
    line = sign_order(lead, told.study, session=session, timeout=60.0).line
    assert read_order(line, told.identities["north"]).session == session
    for old, new in [
        (b'"timeout":60.0', b'"timeout":61.0,"timeout":60.0'),
        (b'"timeout":60.0', b'"timeout":"60"'),
        (b'"study":{', b'"study":{"epsilon":5.0,'),
        (b'"study":{', b'"study": {'),
    ]:
        assert old in line
        with pytest.raises(ProtocolError):
            read_order(line.replace(old, new), told.identities["north"])


def test_no_member_pushes_anothers_session_key_out(told):
    """A key that was shown is sealed for, however many others a member shows."""
    session = new_session()
    question = Envelope(told.study.hash, session, "keys", "aggregator", "north", b"")
    told.attendant.at.post.open(told.posts["aggregator"].seal(question, bound=9)[0], limit=9)
    for number in range(100):
        shown = Envelope("", f"{number}", "keys", "south", "north", b"")
        told.attendant.at.post.open(told.posts["south"].seal(shown, bound=9)[0], limit=9)
    assert sum(map(len, told.attendant.at.post._shown.values())) == 65
    answer = Envelope(told.study.hash, session, "keys", "north", "aggregator", b"")
    sealed, _ = told.attendant.at.post.seal(answer, bound=9)
    told.posts["aggregator"].end(session)
    with pytest.raises(ProtocolError, match="key that is not here"):
        told.posts["aggregator"].open(sealed, limit=9)
