"""Real sites under whatever a network and an aggregator may do to them, in any order."""

import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from roles_tools import LIMIT, Consortium, changed, exact, study_of, sums_seen

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, Message, decode, encode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.consistency import bitmap, threshold
from noise_tools import silence
from soak_tools import times


@dataclass
class Session:
    """A run, the call that it waits for, and what was heard of it so far."""

    aggregator: Aggregator
    run: object
    call: object
    heard: dict = field(default_factory=dict)
    arrived: dict = field(default_factory=lambda: defaultdict(list))
    """By round, the sites whose answers the aggregator has taken."""
    over: bool = False


class Network(RuleBasedStateMachine):
    """Delivers, drops, repeats and forges; noise is none, so that sums can be compared."""

    def __init__(self):
        super().__init__()
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="eigenveil-machine-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.enter_context(silence())
        self.rounds = self._stack.enter_context(sums_seen())
        self.sessions = []
        self.said = {}  # (site, session, step): the request that was answered, and the answer
        self.spec = []  # every request that was delivered, with its site
        self.own, self.repair = defaultdict(set), defaultdict(set)

    def teardown(self):
        self._stack.close()

    @initialize(
        sites=st.integers(3, 5),
        dropouts=st.integers(0, 1),
        kind=st.sampled_from(["modular", "modular", "pairwise"]),
        protocol=st.sampled_from(["cape", "sketch", "full"]),
    )
    def found(self, sites, dropouts, kind, protocol):
        self.study = study_of(
            sites,
            masks=kind,
            protocol=protocol,
            dropouts=dropouts if kind == "modular" else 0,
            **({"sketch_size": 2} if protocol == "sketch" else {}),
        )
        self.consortium = Consortium(self.study, self.folder, times=2.0)
        self.names = list(self.consortium.ledgers)
        self.open()

    # -- what an aggregator and a network do

    @rule()
    def open(self):
        """Another run begins; the one before is left as it is."""
        if len(self.sessions) < 4:
            aggregator = Aggregator(settle(self.study), session=f"session {len(self.sessions)}")
            run = aggregator.run()
            self.sessions.append(Session(aggregator, run, next(run)))

    @property
    def now(self):
        return self.sessions[-1]

    def running(self):
        return bool(self.sessions) and not self.now.over

    @precondition(running)
    @rule(data=st.data(), heard=st.sampled_from([True, True, True, False]))
    def deliver(self, data, heard):
        """One request of the call reaches its site; the answer may be lost."""
        call = self.now.call
        waiting = [name for name in call.payloads if name not in self.now.heard]
        if waiting:
            name = data.draw(st.sampled_from(waiting))
            answer = self.handle(name, call.payloads[name])
            if heard:
                self.now.heard[name] = answer

    @precondition(running)
    @rule()
    def deliver_all(self):
        for name, request in self.now.call.payloads.items():
            if name not in self.now.heard:
                self.now.heard[name] = self.handle(name, request)
        self.go_on()

    @precondition(running)
    @rule()
    def go_on(self):
        """The aggregator takes what it heard; the rest has failed."""
        session, call = self.now, self.now.call
        failures = {
            name: ProtocolError.relayed("lost", code="problem")
            for name in call.payloads
            if name not in session.heard
        }
        heard, session.heard = session.heard, {}
        if call.method.startswith("round "):
            session.arrived[call.method] += [
                name
                for name, answer in heard.items()
                if decode(answer, sender=name, limit=LIMIT).step == call.method
            ]
        done = len(self.rounds)
        try:
            session.call = session.run.send((heard, failures))
        except (StopIteration, ProtocolError):  # too few are left
            session.over = True
        for queries, sums in self.rounds[done:]:
            self.check_sums(session, queries, sums)

    def check_sums(self, session, queries, sums):
        """The sum of a round that ended well is that of the sites that were heard."""
        round_number = next(t for t in range(6, 0, -1) if session.arrived[f"round {t}"])
        tables = {n: self.consortium.rows[n] for n in session.arrived[f"round {round_number}"]}
        assert len(tables) >= self.study.fewest_sites
        for each, total in zip(queries, sums, strict=True):
            assert np.array_equal(total, exact(self.study, each, tables))

    @precondition(lambda self: self.spec)
    @rule(data=st.data())
    def again(self, data):
        """A request of any time reaches its site once more."""
        name, request = data.draw(st.sampled_from(self.spec))
        self.handle(name, request)

    @precondition(lambda self: self.spec)
    @rule(data=st.data())
    def astray(self, data):
        """A request of any time reaches another site, or one of another session is renamed."""
        _, request = data.draw(st.sampled_from(self.spec))
        session = data.draw(st.sampled_from(self.sessions)).aggregator.session
        name = data.draw(st.sampled_from(self.names))
        if is_message(request):
            self.handle(name, changed(request, session=session))

    @precondition(lambda self: self.spec)
    @rule(data=st.data(), cut=st.booleans())
    def malformed(self, data, cut):
        # what was cut off before may be empty
        name, request = data.draw(st.sampled_from([each for each in self.spec if each[1]]))
        place = data.draw(st.integers(0, len(request) - 1))
        broken = bytearray(request)
        if cut:
            del broken[place:]
        else:
            broken[place] ^= data.draw(st.integers(1, 255))
        self.handle(name, bytes(broken))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def other_story(self, data):
        """A holder is told of other survivors."""
        name = data.draw(st.sampled_from(self.names))
        there = data.draw(st.sets(st.sampled_from(self.names)))
        round_number = data.draw(st.integers(1, 2))
        body = {"round_number": round_number, "survivors": bitmap(self.names, there | {name})}
        session = data.draw(st.sampled_from(self.sessions)).aggregator.session
        step = f"survivors {round_number}"
        self.handle(name, encode(Message(step, self.study.hash, session, AGGREGATOR, body)))

    @rule(data=st.data())
    def restart(self, data):
        self.consortium.restart(data.draw(st.sampled_from(self.names)))

    # -- what a site may say

    def handle(self, name, request):
        answer = self.consortium.parties[name].handle(request)  # never raises
        self.spec.append((name, request))
        reported = decode(answer, sender=name, limit=LIMIT)
        if reported.step == REFUSED:
            assert not reported.arrays
            return answer
        place = (name, reported.session, reported.step)
        before, said = self.said.setdefault(place, (request, answer))
        assert said == answer, "a step was answered in two ways"
        # to the end of what never began here there is one answer
        assert before == request or reported.step == "end", "a step was answered to two questions"
        if reported.step.startswith("unmask "):
            self.note(name, reported)
        return answer

    def note(self, holder, reported):
        for kind, seen in (("own", self.own), ("repair", self.repair)):
            for name in reported.body[kind]:
                seen[reported.session, reported.step, name].add(holder)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def said_again(self, data):
        """What the last session's last step answered is answered again, in the same bytes."""
        session = self.now.aggregator.session
        mine = [
            (name, step, request, answer)
            for (name, its, step), (request, answer) in self.said.items()
            if its == session and self.is_open(name, session)
        ]
        if mine:
            name, step, request, answer = data.draw(st.sampled_from(mine))
            settled = step.startswith("round ") and any(
                (name, session, f"round {later}") in self.said
                for later in range(int(step.split()[1]) + 1, 7)
            )
            found = self.handle(name, request)
            if settled:
                assert code_of(found) == "already-settled"
            else:
                assert found == answer

    def is_open(self, name, session):
        account = self.consortium.account(name, session)
        return account is not None and account.is_open

    # -- what holds at all times

    @invariant()
    def holders_never_tell_both_secrets(self):
        for place in self.own.keys() | self.repair.keys():
            assert not self.own[place] & self.repair[place]
            needed = threshold(len(self.names) - self.study.dropouts, self.study.collusion)
            assert min(len(self.own[place]), len(self.repair[place])) < needed

    @invariant()
    def books_hold_exactly_the_rounds_that_were_answered(self):
        if not self.sessions:
            return
        for name, ledger in self.consortium.ledgers.items():
            charged = {}
            for account in ledger.sessions():
                assert account.terms.reserve.covers(account.charged())
                for _, charge in account.charges:
                    charged[account.key.session, charge.step] = charge.reply
            answered = {
                (session, step): hashlib.sha256(answer).hexdigest()
                for (site, session, step), (_, answer) in self.said.items()
                if site == name and step.startswith("round ")
            }
            assert charged == answered

    @invariant()
    def ledgers_hold(self):
        if self.sessions:
            name = self.names[len(self.spec) % len(self.names)]
            standing = self.consortium.check_books(name)
            assert standing.spent_epsilon <= standing.budget.epsilon


def code_of(answer):
    return json.loads(answer[8 : 8 + int.from_bytes(answer[4:8], "little")])["body"]["code"]


def is_message(request):
    try:
        decode(request, sender=AGGREGATOR, limit=LIMIT)
    except ProtocolError:
        return False
    return True


Network.TestCase.settings = settings(max_examples=times(50), stateful_step_count=35)
TestNetwork = Network.TestCase
