"""An aggregator that is killed at any moment, with its sites or alone, and goes on: real kills."""

import json
import os
import pickle
import random
import signal
import traceback
import warnings
from functools import cache

import numpy as np
import pytest

from eigenveil.errors import OutputError, ProtocolError
from eigenveil.federated.running import InProcess
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.moments.source import ArrayRows
from eigenveil.network import journal as journal_module
from eigenveil.network.journal import Journal, Journaled
from eigenveil.network.orders import sign_order
from eigenveil.network.service import carry_to_the_end
from federation_tools import identities
from ledger_tools import budget_for
from refusal_tools import refuses
from soak_tools import count, seldom

NAMES = ("a", "b", "c")
WHO = identities(NAMES)
SESSION = "5e" * 12
MOST_LIVES = 400
_TIME = np.linspace(-1.0, 1.0, 30)
ROWS = np.column_stack([1 + 6 * _TIME, 2 + np.cos(9 * _TIME), 3 + np.sin(50 * _TIME) / 5])


def study_of(**fields):
    usual = {"epsilon": 10.0, "delta": 1e-3, "protocol": "cape", "mechanism": "gaussian"}
    sites = tuple({"name": name} for name in NAMES)
    more = {"row_bound": 12.0, "features": 3, "components": 2, "sites": sites}
    return make_study(**({"name": "killed"} | usual | more | fields))


@cache
def budget_of(study):
    """Just what one run of the study costs: a second charge would not be covered."""
    return budget_for(settle(study).reservation("a"), 0.95)


class Machine:
    """All parties of a study on one machine whose power fails: a child process that is killed."""

    def __init__(self, folder, study, *, forgetful=False):
        self.folder, self.study, self.forgetful = folder, study, forgetful
        folder.mkdir()
        self.journal = folder / "journal"
        self.log = folder / "log"
        self.kills = 0
        epsilon = budget_of(study)
        for name in NAMES:
            budget = Budget("default", study.adjacency, epsilon, 0.95)
            Ledger(self.ledger(name)).set_budget(budget)

    def ledger(self, name):
        return self.folder / f"{name}.ledger"

    def live(self, events):
        """Be started, and die after so many events (0: live on); what came of it."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._life(_Life(events))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.kills += 1
            return None
        assert os.WEXITSTATUS(status) == 0, "a defect in the child: see its traceback"
        return pickle.loads((self.folder / "outcome").read_bytes())

    def _life(self, life):
        def append(journal, header, *blobs):
            life.event()
            if life.is_last():  # the disk has a part of it
                journal._file.seek(0, os.SEEK_END)
                journal._file.write(b"\1" * 60 if life.events % 2 else b"\1\0\0")
                journal._file.flush()
            life.event()
            at = appended(journal, header, *blobs)
            life.event()
            return at

        appended = journal_module.Journal._append
        journal_module.Journal._append = append
        journal = opened(self.journal, self.study)
        parties = {name: self.site(name) for name in NAMES}
        if self.study.masks == "helper":
            memory = None if self.forgetful else self.folder / "masks.json"
            parties[HELPER] = Helper(settle(self.study), memory=memory, identity=WHO["helper"])
        transport = Mortal(parties, life, self.log)
        calls = Journaled(transport, journal, lambda *rest: None)
        aggregator = self.aggregator()
        try:
            outcome = carry_to_the_end(aggregator.run(), calls)
            found = outcome.factors.components, list(outcome.records), dict(outcome.missing)
        except ProtocolError as error:
            found = error.code
        (self.folder / "events").write_text(str(life.happened))
        (self.folder / "outcome").write_bytes(pickle.dumps(found))
        life.event()
        journal.remove()

    def site(self, name):
        rows = ArrayRows(ROWS, names=None, origin=name)
        return Site(
            name=name,
            terms=settle(self.study),
            rows=rows,
            ledger=Ledger(self.ledger(name)),
            identity=WHO[name],
        )

    def aggregator(self):
        return Aggregator(settle(self.study), session=SESSION, identity=WHO["aggregator"])

    # -- what must hold

    def exchanges(self):
        found = {}
        for line in self.log.read_text().splitlines():
            name, method, request, reply = json.loads(line)
            found.setdefault((name, method), set()).add((request, reply))
        return found

    def check(self, outcome):
        """Every question was asked in one way and answered in one way; each is charged once."""
        exchanges = self.exchanges()
        for place, each in exchanges.items():
            if place[0] != HELPER:  # it seals the same masks anew
                assert len(each) == 1, f"{place}: other bytes"
        key = SessionKey(self.study.hash, SESSION)
        for name in NAMES:
            ledger = Ledger(self.ledger(name))
            verification = ledger.verify()
            assert verification.holds, verification.explanation
            (account,) = [each for each in ledger.sessions() if each.key == key]
            steps = [charge.step for _, charge in account.charges]
            assert len(set(steps)) == len(steps)
            answered = {method for who, method in exchanges if who == name}
            assert set(steps) == {step for step in answered if step.startswith("round")}
            assert not account.is_open
            (standing,) = ledger.standings()
            assert standing.reserved.mu_squared == 0
            if not isinstance(outcome, str):
                charged = [r for _, charge in account.charges for r in charge.releases]
                assert charged == outcome[1]

    def check_as_if_uninterrupted(self, outcome):
        """An aggregator that was never killed makes the same of the same answers."""
        replies = {
            place: bytes.fromhex(next(iter(each))[1]) for place, each in self.exchanges().items()
        }

        class Answers:
            def hurry(self):
                raise AssertionError

            def call(self, method, payloads, timeout):
                return {name: replies[name, method] for name in payloads}, {}

        again = carry_to_the_end(self.aggregator().run(), Answers())
        assert np.array_equal(again.factors.components, outcome[0])


class _Life:
    def __init__(self, events):
        self.events, self.left, self.happened = events, events, 0

    def event(self):
        self.left, self.happened = self.left - 1, self.happened + 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def is_last(self):
        return self.left == 1


class Mortal(InProcess):
    """Parties in one process, which may die before and after each answer."""

    def __init__(self, parties, life, log):
        super().__init__(parties)
        self.life, self.log = life, log

    def hurry(self):
        pass

    def call(self, method, payloads, timeout):
        replies = {}
        for name, request in payloads.items():
            self.life.event()
            found, _ = super().call(method, {name: request}, timeout)
            with self.log.open("a") as log:
                log.write(json.dumps([name, method, request.hex(), found[name].hex()]) + "\n")
            self.life.event()
            replies |= found
        return replies, {}


def lives(machine, seed):
    """Lives of random length until one ends."""
    draw = random.Random(seed)
    for _ in range(MOST_LIVES):
        outcome = machine.live(draw.randint(1, 40))
        if outcome is not None:
            return outcome
    raise AssertionError("it never ends")


@pytest.mark.parametrize("dropouts", [0, 1])
def test_killed_at_any_moment(tmp_path, dropouts):
    study = study_of(dropouts=dropouts)
    for seed in range(seldom(240)):
        machine = Machine(tmp_path / f"{dropouts}-{seed}", study)
        outcome = lives(machine, seed)
        assert not isinstance(outcome, str), outcome
        machine.check(outcome)
        machine.check_as_if_uninterrupted(outcome)
        assert not machine.journal.exists()
        count("killed", "an aggregator and all sites on one machine", machine.kills)


def test_a_helper_that_is_killed_as_well_gives_the_same_masks(tmp_path):
    study = study_of(masks="helper")
    for seed in range(seldom(100)):
        machine = Machine(tmp_path / f"helper-{seed}", study)
        outcome = lives(machine, seed)
        assert not isinstance(outcome, str), outcome
        machine.check(outcome)
        machine.check_as_if_uninterrupted(outcome)
        count("killed", "an aggregator, a helper and all sites on one machine", machine.kills)


def test_a_helper_that_has_forgotten_ends_the_study(tmp_path):
    """Its disk is lost as well: what was answered stays charged, the rest is free."""
    machine = Machine(tmp_path / "forgetful", study_of(masks="helper"), forgetful=True)
    events = 45  # in the first rounds
    assert machine.live(events) is None
    assert machine.live(0) in ("no-helper", "too-few-sites")
    machine.check("no-helper")


def test_killed_at_each_event(tmp_path):
    """The first life dies at every event there is, in turn; the second one ends the study."""
    study = study_of(dropouts=0)
    whole = Machine(tmp_path / "whole", study)
    assert whole.live(0)
    events = int((whole.folder / "events").read_text()) + 1
    for event in range(1, events + 1, max(1, events // seldom(events))):
        machine = Machine(tmp_path / f"event-{event}", study)
        assert machine.live(event) is None
        outcome = machine.live(0)
        machine.check(outcome)
        count("killed", "an aggregator and all sites on one machine", machine.kills)


# -- the file


def opened(path, study=None):
    study = study or study_of()
    lead = WHO["lead"]
    order = sign_order(lead, study, session=SESSION, timeout=600.0)
    return Journal.begin(path, order, lead.members.digest)


def test_another_question_ends_the_run(tmp_path):
    journal = opened(tmp_path / "j")
    journal.ask(0, "join", {"a": b"one"})
    journal.answer(0, ({"a": b"yes"}, {"b": ProtocolError.relayed("gone", code="no-answer")}), 1.5)
    journal.close()
    again = Journal.resume(tmp_path / "j")
    assert (again.starts, again.idle_starts) == (2, 1)
    assert again.order.session == SESSION
    again.ask(0, "join", {"a": b"one"})
    (replies, failures), seconds = again.answers(0)
    assert (replies, failures["b"].code, seconds) == ({"a": b"yes"}, "no-answer", 1.5)
    with refuses("cannot-resume", kind=ProtocolError):
        again.ask(0, "join", {"a": b"another"})


def test_one_process_at_a_time(tmp_path):
    journal = opened(tmp_path / "j")
    with refuses("journal-in-use", kind=OutputError):
        Journal.resume(tmp_path / "j")
    journal.remove()
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize("cut", [1, 10, 45])
def test_a_record_that_was_cut_off_is_dropped(tmp_path, cut):
    journal = opened(tmp_path / "j")
    journal.ask(0, "join", {"a": b"one"})
    journal.close()
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole[:-cut])
    again = Journal.resume(tmp_path / "j")
    assert not again._calls
    again.ask(0, "join", {"a": b"another"})


def test_damage_in_the_middle_is_noticed(tmp_path):
    journal = opened(tmp_path / "j")
    journal.ask(0, "join", {"a": b"one"})
    journal.close()
    damaged = bytearray((tmp_path / "j").read_bytes())
    damaged[100] ^= 1
    (tmp_path / "j").write_bytes(damaged)
    with refuses("journal-damaged"):
        Journal.resume(tmp_path / "j")
