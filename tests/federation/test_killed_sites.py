"""Sites that are killed at any moment, many times: nothing is lost, nothing is charged twice."""

import hashlib
import itertools
import math
import random
import signal
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from process_sites import Fatal, Log, ProcessSites, Stage
from roles_tools import known_to_all

from eigenveil.errors import ProtocolError
from eigenveil.federated.running import InProcess, carry
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.protocol.messages import REFUSED, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.certificate import RequestedGuarantee, make_certificate
from eigenveil.privacy.releases import ReleaseRecord
from ledger_tools import budget_for
from soak_tools import SOAK, count, seldom, times

NAMES = ("a", "b", "c")
DATA_SET = "default"
DELTA = 1e-3
BUDGET_DELTA = 0.95  # no budget of a smaller one has room for so many studies
TRIES = 3  # of the aggregator, for one answer
ROUNDS = ("round 1", "round 2", "round 3")  # centre, second moment, variances
NOTHING = Loss()
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # how SQLite's begins once it counts

# The same at all sites, so that the result does not depend on who is lost.
_TIME = np.linspace(-1.0, 1.0, 30)
ROWS = np.column_stack([1 + 6 * _TIME, 2 + np.cos(9 * _TIME), 3 + np.sin(50 * _TIME) / 5])


@cache
def study_of(dropouts):
    return make_study(
        name="killed",
        features=3,
        components=2,
        epsilon=10.0,
        delta=DELTA,
        protocol="cape",
        mechanism="gaussian",
        row_bound=12.0,
        dropouts=dropouts,
        sites=tuple({"name": name} for name in NAMES),
    )


def steps_of(dropouts):
    """The steps of a session, in order."""
    if not dropouts:
        return ("join", "keys", *ROUNDS, "end")
    rounds = [
        step for t, r in enumerate(ROUNDS, 1) for step in (r, f"survivors {t}", f"unmask {t}")
    ]
    return ("join", "keys", "shares", *rounds, "end")


class House:
    """The ledgers of a study's sites, and its runs."""

    def __init__(self, folder, dropouts):
        self.study = study_of(dropouts)
        self.terms = settle(self.study)
        self.reserve = self.terms.reservation("a")
        folder.mkdir()
        self.ledgers = {name: Ledger(folder / f"{name}.ledger") for name in NAMES}
        self.log = Log()
        self.set_budgets(self.reserve)
        # here, not in a process: every process forked from now on finds its SQL compiled
        carry(
            Aggregator(settle(self.study)).run(),
            InProcess({name: self._site(name) for name in NAMES}),
        )

    def transport(self, fault_plan=None, *, measure=False):
        makers = {name: partial(self._site, name) for name in NAMES}
        return ProcessSites(
            makers, fault_plan, log=self.log, series_style=self._series_style, measure=measure
        )

    def _series_style(self, name):
        """What a dead site leaves beside its ledger."""
        journal = Path(f"{self.ledgers[name].name}-journal")
        if not journal.exists():
            return ""
        return "hot journal" if journal.read_bytes()[:8] == _JOURNAL else "cold journal"

    def _site(self, name):
        rows = ArrayRows(ROWS, names=None, origin=name)
        return Site(
            name=name,
            terms=settle(self.study),
            rows=rows,
            ledger=self.ledgers[name],
            identity=known_to_all(self.study).get(name),
        )

    def set_budgets(self, *losses, factor=1.0):
        """Budgets that just cover what is spent and these losses, site by site."""
        for ledger in self.ledgers.values():
            whole = Loss.total([self.spent(ledger), *losses])
            epsilon = budget_for(whole, BUDGET_DELTA) * factor
            ledger.set_budget(Budget(DATA_SET, self.study.adjacency, epsilon, BUDGET_DELTA))

    @staticmethod
    def spent(ledger):
        """What all its sessions were charged."""
        if not Path(ledger.name).exists():
            return NOTHING
        return Loss.total(account.charged() for account in ledger.sessions())

    def run(self, fault_plan=None):
        """A study with sites that die: its outcome, or how it failed."""
        aggregator = Aggregator(settle(self.study))
        with self.transport(fault_plan) as transport:
            try:
                outcome = carry(aggregator.run(), _Counted(transport))
            except ProtocolError as error:
                outcome = error
        self.check(aggregator, outcome)
        return outcome

    # -- what must hold after every study, whatever happened

    def check(self, aggregator, outcome):
        session = aggregator.session
        if isinstance(outcome, ProtocolError):
            self._check_failure(session, outcome)
        else:
            self._check_result(outcome)
        self.check_no_second_noise()
        for name, ledger in self.ledgers.items():
            verification = ledger.verify()
            assert verification.holds, verification.explanation
            self.check_charges(name, session)
            if not isinstance(outcome, ProtocolError):
                self._check_records(name, session, outcome)
        self._check_refusals(session)

    def check_the_past(self):
        """Whatever was asked once is answered to nobody now, and the ledgers stay as they are."""
        before = [ledger.verify() for ledger in self.ledgers.values()]
        sites = {name: self._site(name) for name in NAMES}
        over = {
            (name, account.key.session): account.key
            for name, ledger in self.ledgers.items()
            for account in ledger.sessions()
            if not account.is_open
        }
        for (name, session, step), request in self.log.requests.items():
            if (name, session) not in over:
                continue
            said = sites[name].handle(request)
            reply = decode(said, sender=name, limit=1 << 20)
            # the last answer is given again, also where a death kept it from leaving the site
            if step == "end" and self.ledgers[name].answered(over[name, session], step):
                assert said == self.log.replies.setdefault((name, session, step), [said])[0]
            else:
                assert (reply.step, reply.body["code"]) == (REFUSED, "session-ended")
        assert [ledger.verify() for ledger in self.ledgers.values()] == before

    def check_a_new_session(self):
        """A budget of what was charged and one more study is enough for one more study."""
        self.set_budgets(self.reserve)
        assert not isinstance(self.run(), ProtocolError)
        self.check_the_past()

    def check_no_second_noise(self):
        """All answers to one step are the same bytes, and so are those that broke off."""
        for place, replies in self.log.replies.items():
            assert len(set(replies)) == 1, f"{place}: different answers left the site"
        for place, beginning in self.log.cut:
            for reply in self.log.replies.get(place, []):
                assert reply.startswith(beginning), f"{place}: another answer began to leave"

    def check_charges(self, name, session):
        """One charge for each answered round and none else; the rest of the budget is free."""
        ledger, key = self.ledgers[name], SessionKey(self.study.hash, session)
        (standing,) = ledger.standings()
        written = [
            ReleaseRecord.model_validate(record).mu() ** 2
            for entry in ledger.entries()
            if entry.kind == "charge"
            for record in entry.body["releases"]
        ]
        assert standing.spent.mu_squared == pytest.approx(math.fsum(written), rel=1e-12)
        accounts = {account.key: account for account in ledger.sessions()}
        assert not [its for its, account in accounts.items() if account.is_open and its != key]
        left = {s: r for (n, e, s), r in self.log.replies.items() if (n, e) == (name, session)}
        if key not in accounts:
            assert not left
            assert standing.reserved == NOTHING
            return
        account = accounts[key]
        asked = [s for n, e, s in self.log.requests if (n, e) == (name, session) and s in ROUNDS]
        charged = [charge.step for _, charge in account.charges]
        assert charged == sorted(set(charged)), "a round was charged twice"
        assert charged == [step for step in asked if ledger.answered(key, step)]
        for _, charge in account.charges:
            for reply in left.get(charge.step, ()):
                assert hashlib.sha256(reply).hexdigest() == charge.reply
        for step in set(left) & set(ROUNDS):
            assert step in charged or (name, session, step) in self.log.refused()
        assert account.terms.reserve == self.reserve
        assert self.reserve.covers(account.charged())
        if account.is_open:  # it could not be told that it is over
            assert self.failed(session, "join", name) or self.failed(session, "end", name)
        else:
            assert standing.reserved == NOTHING

    def failed(self, session, step, name):
        """Whether a site died so often in a step that it was not asked again."""
        return self.log.failed[name, session, step] >= TRIES

    def lost(self, session):
        """Sites that failed in some step."""
        return {
            name
            for name, its, step in self.log.requests
            if its == session and self.failed(session, step, name)
        }

    def _check_failure(self, session, error):
        """It names who failed, and did so for a reason."""
        named = {name for name in NAMES if f"site {name}" in error.message}
        assert named, error.message
        assert named <= self.lost(session)
        assert len(self.lost(session)) > self.study.dropouts
        assert error.code == "too-few-sites"
        assert error.hint

    def _check_refusals(self, session):
        """Being killed makes no site refuse, unless it missed a step that others went on from."""
        for (name, its, step), code in self.log.refused().items():
            if its == session:
                assert code == "out-of-order", (name, step, code)
                assert self.failed(session, "shares", name)

    def _check_records(self, name, session, outcome):
        """What a site was charged is what the result says it was released with."""
        key = SessionKey(self.study.hash, session)
        charged = [
            record
            for account in self.ledgers[name].sessions()
            for _, charge in account.charges
            for record in charge.releases
            if account.key == key
        ]
        if name in self.lost(session):
            assert set(map(repr, charged)) <= set(map(repr, outcome.records))
        else:
            assert charged == list(outcome.records)

    def _check_result(self, outcome):
        """Finite, certified, and near the truth: a mask that was left would show.

        The mean has a standard error of about 0.3 (0.5 if a site is lost), the directions' noise is
        a 50th of their eigenvalues: both bounds are 15 times as large or more.
        """
        factors = outcome.factors
        for array in (factors.components, factors.mean):
            assert np.isfinite(array).all()
        assert np.linalg.norm(factors.mean - ROWS.mean(axis=0)) < 10
        assert abs(factors.components[0, 0]) > 0.8
        plan = outcome.plan
        federation = self.terms.federation(outcome.taking_part)
        certificate = make_certificate(
            software="tests",
            plan=plan.model_dump(mode="json"),
            model="00" * 32,
            secure=True,
            target=RequestedGuarantee(
                epsilon=self.study.epsilon,
                delta=DELTA,
                adjacency=self.study.adjacency,
                view=federation.requested_view,
            ),
            releases=list(outcome.records),
            federation=federation,
            study=self.study.model_dump(mode="json"),
            study_hash=self.study.hash,
        )
        verdict = check(certificate)
        assert verdict.word == "VALID", verdict.explanation


class _Counted:
    """A transport that is called no oftener than the tries of all steps."""

    def __init__(self, transport):
        self._transport, self._left = transport, TRIES * len(steps_of(1))

    def call(self, method, payloads, timeout):
        self._left -= 1
        assert self._left >= 0, "the aggregator asks without end"
        return self._transport.call(method, payloads, timeout)


def lives(house):
    """Events of each site's life in a study in which nobody dies; seconds of SQLite's commit."""
    house.set_budgets(house.reserve)
    aggregator = Aggregator(settle(house.study))
    with house.transport(measure=True) as transport:
        outcome = carry(aggregator.run(), transport)
        events, seconds = dict(transport.events), max(transport.commit_seconds.values())
    house.check(aggregator, outcome)
    assert not house.log.deaths
    return events, seconds


@pytest.fixture
def house(tmp_path, dropouts):
    return House(tmp_path / "house", dropouts)


# without dropouts the steps are some of those with: in make nightly only
@pytest.fixture(params=[0, 1] if SOAK >= 1 else [1], ids="dropouts={}".format)
def dropouts(request):
    return request.param


def tally(house):
    """Deaths by stage; printed for whoever wants to know (pytest -s)."""
    found = Counter(death.stage for death in house.log.deaths)
    count("killed", "a site over its ledger", found.total())
    print(f"{found.total()} deaths:", {stage.name: found[stage] for stage in Stage})
    return found


GOLDEN = (math.sqrt(5) - 1) / 2


def test_sites_die_between_any_two_steps(tmp_path, dropouts):
    """At events spread evenly over a whole life, several times in each study."""
    spread = (round_number * GOLDEN % 1 for round_number in itertools.count(1))
    for number in range(seldom(120) if SOAK >= 1 else 1):
        house = House(tmp_path / f"house-{number}", dropouts)
        total = min(lives(house)[0].values())
        for _ in range(3):
            fault_plan = {
                name: [
                    Fatal(round(part * total * next(spread))) for part in (1.0, 0.7, 0.5, 0.5, 0.5)
                ]
                for name in NAMES
            }
            house.set_budgets(house.reserve)
            house.run(fault_plan)
        house.check_a_new_session()
        found = tally(house)
        assert found.total() >= 20
        busy = (Stage.READING, Stage.BEGINNING, Stage.COMMITTING, Stage.ANSWERING, Stage.WRITING)
        assert any(found[stage] for stage in busy)


# Where a site dies in one step, one life after the other; it may do so twice and still answer.
_OPENING = (
    (Stage.READING, Stage.WRITING),
    (Stage.BEGINNING, Stage.DURABLE),
    (Stage.BEGUN, Stage.HALF),
    (Stage.COMMITTING, Stage.ANSWERING),
    (Stage.DURABLE, Stage.AGAIN),
    (Stage.SENT, Stage.AGAIN),
)
_MIDDLE = (
    (Stage.READING, Stage.WRITING),
    (Stage.COMMITTING, Stage.DURABLE),
    (Stage.ANSWERING, Stage.HALF),
    (Stage.DURABLE, Stage.AGAIN),
    (Stage.SENT, Stage.AGAIN),
    (Stage.HALF, Stage.SENT),
)


def _places(step):
    return _OPENING if step == "join" else _MIDDLE


def test_sites_die_at_every_stage_of_every_step(house):
    """All sites twice in every step, and the study ends well all the same."""
    steps = steps_of(house.study.dropouts)
    for half in range(2):
        fault_plan = {
            name: [
                Fatal(0, step, stage) for step in steps for stage in _places(step)[3 * half + index]
            ]
            for index, name in enumerate(NAMES)
        }
        house.set_budgets(house.reserve)
        assert not isinstance(house.run(fault_plan), ProtocolError)
    # before a request comes, and before the site is there at all
    idle = [Fatal(50), *(Fatal(0, step, Stage.WAITING) for step in steps[:-1])]
    house.set_budgets(house.reserve)
    assert not isinstance(house.run(dict.fromkeys(NAMES, idle)), ProtocolError)
    house.check_a_new_session()
    assert tally(house).total() >= 12 * len(steps)
    assert sum(len(replies) > 1 for replies in house.log.replies.values()) >= len(steps)
    assert len(house.log.cut) >= len(steps)
    found = Counter((death.step, death.stage) for death in house.log.deaths)
    for step in steps:
        for stage in {stage for pair in _places(step) for stage in pair}:
            assert found[step, stage], (step, stage)
        assert found[step, Stage.WAITING] == (0 if step == "join" else 3)
    assert found["join", Stage.STARTING] == 3


def test_sites_die_inside_the_databases_commit(tmp_path, dropouts, forced):
    """On a disk: some after a part of the time that it takes, some after a part of the pages."""
    turns = itertools.count(1)
    for number in range(times(10)):
        die_inside_the_commit(House(tmp_path / f"house-{number}", dropouts), turns)


def die_inside_the_commit(house, turns):
    dropouts, (_, seconds) = house.study.dropouts, lives(house)

    def fatal(step):
        round_number = next(turns)
        if round_number % 2:
            return Fatal(0, step, Stage.DATABASE, delay=2 * seconds * (round_number * GOLDEN % 1))
        size = Path(house.ledgers["a"].name).stat().st_size
        return Fatal(0, step, Stage.DATABASE, size=round((0.3 + 0.1 * (round_number % 8)) * size))

    for _ in range(2 - dropouts):
        fault_plan = {name: [fatal(step) for step in steps_of(dropouts)] for name in NAMES}
        house.set_budgets(house.reserve)
        assert not isinstance(house.run(fault_plan), ProtocolError)
    house.check_a_new_session()
    found = Counter((death.by, death.stage, death.left) for death in house.log.deaths)
    # a part of the pages is written: whoever opened the ledger next took them back
    assert found[signal.SIGXFSZ, Stage.DATABASE, "hot journal"] >= 3
    assert tally(house)[Stage.DATABASE] >= 10


def some(steps, first=0):
    """Steps with their numbers: all in make nightly, else every sixth, from any of six on."""
    numbered = list(enumerate(steps, first))
    return numbered if SOAK >= 1 else numbered[random.randrange(6) :: 6]


def test_a_site_that_does_not_come_back_is_named_or_done_without(house):
    """It dies of all tries of one step, the charge of a round being durable by then."""
    dropouts = house.study.dropouts
    for number, step in some(steps_of(dropouts)):
        name = NAMES[number % 3]
        places = (Stage.READING, Stage.DURABLE, Stage.AGAIN)
        house.set_budgets(house.reserve)
        outcome = house.run({name: [Fatal(0, step, place) for place in places]})
        if dropouts or step == "end":
            assert not isinstance(outcome, ProtocolError)
            without = step in ("join", "keys", "shares", *ROUNDS)
            assert outcome.taking_part == (2 if without else 3)
            assert set(outcome.missing) <= {name}
        else:
            assert f"site {name}: it was killed" in outcome.message
            assert repr(step) in outcome.message
    house.check_a_new_session()
    tally(house)


def test_an_aggregator_that_gives_up_costs_what_was_answered_and_no_more(house):
    """It is gone after any number of calls; its next session finds room, and ends the old one."""
    steps = steps_of(house.study.dropouts)
    for calls, _ in some(steps, first=1):
        house.set_budgets(house.reserve)  # what an older session has reserved must be free again
        session = give_up(house, calls)
        for name, ledger in house.ledgers.items():
            assert ledger.verify().holds
            answered = steps[: calls - (name == "c")]
            check_given_up(ledger, session, [step for step in answered if step in ROUNDS])
    # room for two whole studies beside what was charged, a hair less than for one, and for one
    house.set_budgets(house.reserve, house.reserve)
    for _ in range(2):
        assert not isinstance(house.run(), ProtocolError)
    check_no_room(house)
    house.set_budgets(house.reserve, factor=1 - 1e-8)
    check_no_room(house)
    house.check_a_new_session()


def give_up(house, calls):
    """A session that ends in its last call, of which only two sites hear; its name."""
    session = Aggregator(settle(house.study))
    run = session.run()
    call = next(run)
    step = steps_of(house.study.dropouts)[calls - 1]
    # one of them dies then, its answer being durable
    with house.transport({"b": [Fatal(0, step, Stage.DURABLE)]}) as transport:
        for _ in range(calls - 1):
            call = run.send(transport.call(call.method, call.payloads, call.timeout))
        assert call.method == step
        _, failures = transport.call(step, dict(list(call.payloads.items())[:2]), call.timeout)
    assert set(failures) == {"b"}
    run.close()
    house.check_no_second_noise()
    return session.session


def check_given_up(ledger, session, rounds):
    """The session is charged for these rounds; all before it are over."""
    (standing,) = ledger.standings()
    accounts = {account.key.session: account for account in ledger.sessions()}
    for name, account in accounts.items():
        assert name == session or not account.is_open
    if session not in accounts:  # it was never asked to join
        assert standing.reserved == NOTHING
        return
    account = accounts[session]
    assert [charge.step for _, charge in account.charges] == rounds
    if account.is_open:
        assert standing.spent == House.spent(ledger)
        assert standing.reserved.mu_squared == pytest.approx(
            account.terms.reserve.mu_squared - account.charged().mu_squared, abs=1e-9
        )
    else:
        assert standing.reserved == NOTHING


def check_no_room(house):
    before = [ledger.verify() for ledger in house.ledgers.values()]
    with house.transport() as transport, pytest.raises(ProtocolError) as caught:
        carry(Aggregator(settle(house.study)).run(), transport)
    for name in NAMES:
        assert f"site {name}: its budget does not cover this study (budget)" in caught.value.message
    assert [ledger.verify() for ledger in house.ledgers.values()] == before
