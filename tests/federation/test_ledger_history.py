"""Random interleavings of sessions: a ledger beside a model, its caps, and what they promise."""

import math
import os
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eigenveil.errors import BudgetExceeded
from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.privacy.accountant import Loss, compose, delta_of_product, gaussian_equivalent
from ledger_tools import DELTA, begin, budget_of, key_of, loss_of, refused, release
from soak_tools import times

# data set: adjacency, delta and the share of epsilon that is set aside for pure releases
KINDS = {
    "gaussian": ("add-remove", DELTA, 0.0),
    "mixed": ("add-remove", DELTA, 0.4),
    "replaced": ("replace-one", DELTA, 0.3),
    "pure": ("replace-one", 0.0, 0.0),
}


def in_account(record, adjacency):
    return record.model_copy(update={"adjacency": adjacency})


class History(RuleBasedStateMachine):
    """What was asked of a ledger, and what it must say."""

    studies = st.sampled_from(["a1", "b2", "c3", "d4"])
    names = st.sampled_from(["s1", "s2", "s3"])
    steps = st.sampled_from(["keys", "round 1", "round 2", "round 3"])
    data_sets = st.sampled_from(sorted(KINDS))
    kinds = st.sampled_from(["gaussian", "laplace"])
    adjacencies = st.sampled_from(["add-remove", "add-remove", "replace-one"])
    sizes = st.sampled_from([0.1, 0.2, 0.3])

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger"
        self.budgets, self.most, self.open, self.ended, self.answers = {}, {}, {}, {}, {}
        self.spent = {name: [] for name in KINDS}

    def teardown(self):
        self.compose_as_certify_does()
        self.folder.cleanup()

    @property
    def ledger(self):  # a new one each time: nothing may live in the object
        return Ledger(self.path)

    def standing(self, data_set):
        (found,) = [s for s in self.ledger.standings() if s.budget.data_set == data_set]
        return found

    @rule(data_set=data_sets, epsilon=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    def set_budget(self, data_set, epsilon):
        adjacency, delta, share = KINDS[data_set]
        budget = budget_of(epsilon, data_set=data_set, adjacency=adjacency, delta=delta)
        budget = type(budget)(**{**vars(budget), "pure_epsilon": share * epsilon})
        self.ledger.set_budget(budget)
        self.budgets[data_set] = budget
        self.most[data_set] = max(epsilon, self.most.get(data_set, 0.0))

    @rule(
        study=studies,
        name=names,
        data_set=data_sets,
        kind=kinds,
        adjacency=adjacencies,
        size=sizes,
        twice=st.booleans(),
    )
    def begin(self, study, name, data_set, kind, adjacency, size, twice):
        key = key_of(name, study)
        record = release(size, kind=kind, adjacency=adjacency)
        reserve = loss_of(*[record] * (1 + twice))
        call = lambda: begin(  # noqa: E731
            self.ledger,
            key,
            reserve,
            state=f"{size}".encode(),
            data_set=data_set,
            adjacency=adjacency,
        )
        if key in self.ended:
            refused("session-ended", call)
        elif key in self.open:
            known, at, _, _, state = self.open[key]
            if (known, at) == (data_set, adjacency):
                assert call() == state
            else:
                refused("session-differs", call)
        elif data_set not in self.budgets:
            refused("no-budget", call)
        elif adjacency == "replace-one" and KINDS[data_set][0] == "add-remove":
            refused("account-of-other-adjacency", call)
        else:
            self.begin_where_covered(call, key, data_set, record, reserve, size, 1 + twice)

    def begin_where_covered(self, call, key, data_set, record, reserve, size, times):
        """Refused only where neither way of counting fits into what is left."""
        try:
            call()
        except BudgetExceeded as error:
            if error.code != "over-budget":
                raise
            freed = [
                other
                for other, terms in self.open.items()
                if other.study == key.study and terms[0] == data_set
            ]
            if freed:
                return  # the model does not know what the sessions that were replaced would free
            left = self.standing(data_set).left
            # a session whose steps are not told apart counts twice where one row is changed
            factor = 2 if (record.adjacency, KINDS[data_set][0]) == (
                "add-remove",
                "replace-one",
            ) else 1  # fmt: skip
            if record.noise.kind == "gaussian":
                asked = reserve.mu_squared * factor**2
                fits = asked <= left.mu_squared and reserve.log_ratio <= left.log_ratio
            else:
                asked = factor * reserve.pure + 2 * reserve.log_ratio
                fits = asked <= left.pure or gaussian_equivalent(asked) ** 2 <= left.mu_squared
            assert not fits, (asked, left)
            return
        for other, terms in list(self.open.items()):
            if other.study == key.study and terms[0] == data_set:
                self._close(other)
        self.open[key] = (data_set, record.adjacency, record, times, f"{size}".encode())

    @precondition(lambda self: self.open)
    @rule(data=st.data(), step=steps, settles=st.lists(steps, max_size=2))
    def commit(self, data, step, settles):
        key = data.draw(st.sampled_from(sorted(self.open, key=str)))
        data_set, adjacency, record, times, _ = self.open[key]
        made = []

        def make():
            made.append(os.urandom(9))
            return made[-1], made[-1]

        def call():
            return self.ledger.commit(
                key,
                step,
                request=step.encode(),
                draft=lambda *_: Draft(make, charges=[record], settles=settles),
            )

        if (key, step) in self.answers:
            stored = self.answers[key, step]
            if stored is None:
                refused("already-settled", call)
            else:
                assert call() == stored
            assert not made
        elif times == 0:
            refused("beyond-reservation", call)
            assert not made
        else:
            assert call() == made[-1]
            for settled in settles:
                if (key, settled) in self.answers:
                    self.answers[key, settled] = None
            self.answers[key, step] = made[-1]
            self.spent[data_set].append(record)
            self.open[key] = (data_set, adjacency, record, times - 1, made[-1])

    @rule(study=studies, name=names)
    def end(self, study, name):
        key = key_of(name, study)
        if key in self.open:
            self.ledger.end(key, "done")
            self._close(key)
        elif key in self.ended:
            self.ledger.end(key, "done")
        elif self.path.exists():
            refused("unknown-session", self.ledger.end, key, "done")

    @precondition(lambda self: self.budgets)
    @rule(study=studies)
    def end_study(self, study):
        mine = [key for key in self.open if key.study == study]
        assert self.ledger.end_study(study) == len(mine)
        for key in mine:
            self._close(key)

    @invariant()
    def never_overspends(self):
        """All charges of an account together, under its adjacency, computed without the ledger."""
        for data_set, records in self.spent.items():
            adjacency, delta, _ = KINDS[data_set]
            own = [in_account(record, adjacency) for record in records]
            mu = math.sqrt(math.fsum(r.mu() ** 2 for r in own if r.noise.kind == "gaussian"))
            pure = math.fsum(r.epsilon() for r in own if r.noise.kind != "gaussian")
            if delta == 0:
                assert mu == 0
                assert pure <= self.most.get(data_set, 0.0)
            elif own:
                assert delta_of_product(mu, pure, self.most[data_set]) <= delta

    @invariant()
    def says_what_the_model_says(self):
        if not self.budgets:
            return
        ledger = self.ledger
        verification = ledger.verify()
        assert verification.holds, verification.explanation
        standings = {s.budget.data_set: s for s in ledger.standings()}
        assert {name: s.budget for name, s in standings.items()} == self.budgets
        for name, standing in standings.items():
            held = Loss.total([standing.spent, standing.reserved])
            if self.most[name] == self.budgets[name].epsilon:  # it was never lowered
                assert held.within(standing.caps), (held, standing.caps)
        for key, terms in self.open.items():
            assert ledger.state(key) == terms[-1]
        outcomes = {session.key: session.is_open for session in ledger.sessions()}
        assert outcomes == {key: key in self.open for key in {**self.open, **self.ended}}

    def compose_as_certify_does(self):
        """By privacy-loss distributions, which are pessimistic by a grid step or two."""
        for data_set, records in self.spent.items():
            adjacency, delta, _ = KINDS[data_set]
            own = [in_account(record, adjacency) for record in records]
            if own:
                epsilon = compose(own, delta=delta, adjacency=adjacency).epsilon
                assert epsilon <= self.most[data_set] + 3e-4

    def _close(self, key):
        self.ended[key] = self.open.pop(key)


History.TestCase.settings = settings(max_examples=times(50), stateful_step_count=30, deadline=None)
test_any_history = History.TestCase
