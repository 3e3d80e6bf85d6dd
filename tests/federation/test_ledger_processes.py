"""Several processes at one ledger, and processes that are killed: nothing is lost or spent twice.

The laws hold in every interleaving; how the processes happen to run decides only which one is seen.
"""

import multiprocessing
import os
import signal
import time

import pytest

from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import begin, budget_of, check_race, commit, key_of, loss_of, release, room_for
from soak_tools import count, times

SMALL = release(0.01)
ROOM = Loss.total([loss_of(SMALL)] * 2000)
REPLY = 50_000
# a process that was forked while it had a ledger must be as good as a new one
FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    return request.getfixturevalue("server").url()


@pytest.fixture
def ledger(place):
    """With an open session that may charge SMALL two thousand times."""
    made = Ledger(place)
    made.set_budget(budget_of(room_for(2000, loss_of(SMALL))))
    begin(made, key_of(), ROOM, state=b"begun")
    return made


def run(target, *arguments):
    process = FORK.Process(target=target, args=arguments)
    process.start()
    return process


def joined(*processes):
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


def test_processes_that_begin_at_once_cannot_overspend(place):
    check_race(FORK, place)


def test_a_ledger_is_made_once_by_all_who_come_first(place):
    gate = FORK.Barrier(4)

    def make(number):
        gate.wait()
        Ledger(place).set_budget(budget_of(1.0, data_set=f"data {number}"))

    assert joined(*[run(make, number) for number in range(4)]) == [0] * 4
    assert len(Ledger(place).standings()) == 4
    assert Ledger(place).verify().holds


def test_one_step_asked_by_two_processes_at_once_is_made_once(ledger, place):
    gate, found = FORK.Barrier(2), FORK.Queue()

    def query():
        mine, made = [], 0

        def make():
            nonlocal made
            made += 1
            return os.urandom(20), None

        for round_number in range(10):
            gate.wait()
            step = f"round {round_number}"
            mine.append(
                Ledger(place).commit(
                    key_of(), step, request=b"", draft=lambda *_: Draft(make, charges=[SMALL])
                )
            )
        found.put((mine, made))

    processes = [run(query), run(query)]
    (one, made_one), (other, made_other) = found.get(timeout=120), found.get(timeout=120)
    assert joined(*processes) == [0, 0]
    assert one == other
    assert made_one + made_other == 10
    assert ledger.standings()[0].spent == Loss.total([loss_of(SMALL)] * 10)
    assert ledger.verify().holds


def test_a_session_is_begun_once_by_two_processes(ledger, place):
    ledger.end_study("a1")
    gate, found = FORK.Barrier(2), FORK.Queue()

    def query(number):
        states = []
        for round_number in range(10):
            gate.wait()
            state = f"{number}".encode()
            states.append(
                begin(Ledger(place), key_of(study=f"b{round_number}"), loss_of(SMALL), state=state)
            )
        found.put(states)

    processes = [run(query, number) for number in range(2)]
    one, other = found.get(timeout=120), found.get(timeout=120)
    assert joined(*processes) == [0, 0]
    assert one == other
    assert len(ledger.sessions()) == 11


# -- killed


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def while_making(ledger):
    ledger.commit(
        key_of(), "round 2", request=b"request", draft=lambda *_: Draft(kill, charges=[SMALL])
    )


def before_it_is_durable(ledger):
    ledger.store.commit = kill
    commit(ledger, key_of(), "round 2", charges=[SMALL], reply=b"2" * REPLY, state=b"two")


def after_it_is_durable(ledger):
    commit(ledger, key_of(), "round 2", charges=[SMALL], reply=b"2" * REPLY, state=b"two")
    kill()


@pytest.mark.parametrize(
    ("death", "is_there"),
    [(while_making, False), (before_it_is_durable, False), (after_it_is_durable, True)],
)
def test_a_step_is_there_wholly_or_not_at_all(ledger, death, is_there):
    commit(ledger, key_of(), "round 1", charges=[SMALL], state=b"one")
    before = list(ledger.entries())
    assert joined(run(death, ledger)) == [-signal.SIGKILL]
    assert ledger.verify().holds
    assert bool(ledger.answered(key_of(), "round 2")) is is_there
    assert ledger.state(key_of()) == (b"two" if is_there else b"one")
    assert len(list(ledger.entries())) == len(before) + is_there
    # asked again: the same answer, or a first one
    again = commit(ledger, key_of(), "round 2", charges=[SMALL], reply=b"another")
    assert again == (b"2" * REPLY if is_there else b"another")
    assert ledger.standings()[0].spent == loss_of(SMALL, SMALL)


def test_killed_at_any_moment_every_answer_that_left_is_charged(ledger):
    """What was told is there; of the step that ran, all or nothing; nobody is locked out."""
    done = 0
    for delay in (0.01, 0.02, 0.03, 0.05, 0.08, 0.13) * times(10):
        reported, notify = os.pipe()

        def work(first=done, notify=notify):
            for round_number in range(first, first + 300):
                reply = round_number.to_bytes(8, "big") * (REPLY // 8)
                commit(
                    ledger,
                    key_of(),
                    f"round {round_number}",
                    charges=[SMALL],
                    reply=reply,
                    state=reply,
                )
                os.write(notify, round_number.to_bytes(8, "big"))

        process = run(work)
        os.close(notify)
        with os.fdopen(reported, "rb") as pipe:
            left = pipe.read(8)  # it has begun to work
            time.sleep(delay)
            process.kill()
            left += pipe.read()
        joined(process)
        last = int.from_bytes(left[-8:], "big")
        assert ledger.verify().holds
        done = last + 1 + len(ledger.answered(key_of(), f"round {last + 1}"))
        assert not ledger.answered(key_of(), f"round {done}")
        state = ledger.state(key_of())
        assert state == (done - 1).to_bytes(8, "big") * (REPLY // 8)
        assert commit(ledger, key_of(), f"round {done - 1}", reply=b"never") == state
        (account,) = ledger.sessions()
        assert [charge.step for _, charge in account.charges] == [f"round {n}" for n in range(done)]
        count("killed", "a process that writes a ledger", 1)
    assert ledger.standings()[0].spent == Loss.total([loss_of(SMALL)] * done)


def test_a_process_killed_while_it_begins_reserves_all_or_nothing(ledger):
    ledger.end_study("a1")
    for death, is_there in ((True, False), (False, True)):

        def work(before=death):
            if before:
                ledger.store.commit = kill
            begin(ledger, key_of("s2"), ROOM)
            kill()

        assert joined(run(work)) == [-signal.SIGKILL]
        assert ledger.verify().holds
        assert loss_of(SMALL).within(ledger.standings()[0].left) is not is_there
    assert begin(ledger, key_of("s2"), ROOM, state=b"another") == b"state"
