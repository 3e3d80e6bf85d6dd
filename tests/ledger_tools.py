"""Releases of known loss, and a private PostgreSQL server, for the tests of the ledger."""

import itertools
import math
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from eigenveil.errors import BudgetExceeded, EigenveilError
from eigenveil.federation.approvals.record import Record
from eigenveil.federation.approvals.roster import Decider
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger, SessionKey
from eigenveil.federation.ledger.placing import Wanted
from eigenveil.federation.public_key import KeySigner
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.budget import caps_of, usual_room
from eigenveil.privacy.releases import Noise, ReleaseRecord

DELTA = 1e-6
ROWS = "rows"
ADJACENCY = "add-remove"


def release(loss, *, kind="gaussian", adjacency=ADJACENCY, name="a release"):
    """A release whose mu (gaussian) or epsilon (laplace) is ``loss``, or a rounding less."""

    def at(scale):
        grid = math.floor(math.log2(scale)) - 26
        noise = Noise(kind=kind, scale=scale, size=10, grid=grid)
        return ReleaseRecord(
            name=name, statistic="norm-histogram", adjacency=adjacency, noise=noise
        )

    unit = at(1.0).mu() if kind == "gaussian" else at(1.0).epsilon()
    return at(math.nextafter(unit / loss, math.inf))


def loss_of(*records):
    return Loss.total(Loss.of(record) for record in records)


ONE = release(0.5)
COST = loss_of(ONE)


def room_for(count, loss, delta=DELTA):
    """The smallest epsilon of a budget that covers ``count`` such losses."""
    return budget_for(Loss.total([loss] * count), delta)


def budget_for(loss, delta=DELTA):
    """The smallest epsilon of a budget whose caps cover a loss, to 1e-9."""

    def covers(epsilon):
        caps = caps_of(epsilon, delta, room=usual_room(epsilon, delta))
        return loss.within(caps)

    low, high = 0.0, 1.0
    while not covers(high):
        low, high = high, 2 * high
        assert high < 100, "no budget has such caps"
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high


def budget_of(epsilon, *, data_set=ROWS, adjacency=ADJACENCY, delta=DELTA):
    return Budget(data_set, adjacency, epsilon, delta)


def key_of(session="s1", study="a1"):
    return SessionKey(study, session)


def refused(code, call, *words, **fields):
    """The error, which has this code."""
    with pytest.raises(EigenveilError) as caught:
        call(*words, **fields)
    assert caught.value.code == code, caught.value
    return caught.value


def appointed(desk, name, role="approver"):
    """Somebody new in the list of approvers."""
    signer = KeySigner.new()
    assert desk.appoint(name, role, signer.public_key.text)
    return Decider(name, signer)


def begin(ledger, key, reserve, *, state=b"state", note="", **wanted):
    wanted = {"data_set": ROWS, "adjacency": ADJACENCY} | wanted
    return ledger.begin(key, Wanted(reserve=reserve, **wanted), state=state, note=note)


def begin_run(ledger, study, numbers=itertools.count()):  # noqa: B008
    key = SessionKey(study.hash, f"run-{next(numbers)}")
    begin(ledger, key, Loss(1e-3), data_set="default")
    return key


def commit(
    ledger, key, step="round 1", *, charges=(), reply=b"reply", state=None, settles=(), **more
):
    more = {"request": b"request", **more}
    return ledger.commit(
        key,
        step,
        draft=lambda *_: Draft(lambda: (reply, state), charges=charges, settles=settles),
        **more,
    )


def with_budget(place):
    """A ledger with a budget of four times COST."""
    made = Ledger(place)
    made.set_budget(budget_of(room_for(4, COST)))
    return made


def filled(ledger):
    """An ended session, and an open one with stored and settled answers: 8 entries."""
    begin(ledger, key_of("s1"), COST)
    commit(ledger, key_of("s1"), charges=[ONE])
    ledger.end(key_of("s1"), "done")
    begin(ledger, key_of("s2"), Loss.total([COST] * 3))
    commit(ledger, key_of("s2"), "keys", charges=[release(0.1)])
    commit(ledger, key_of("s2"), "round 1", charges=[release(0.1)], settles=["keys"])
    commit(ledger, key_of("s2"), "round 2", state=b"secret")
    return ledger


def slip_in(ledger, *bodies, make=False):
    """As whoever can write the file and computes the chain: entries that nothing looked at."""
    with ledger.store.writing(make=make) as tables:
        for body in bodies:
            tables.append(body)


def record_of(ledger):
    with ledger.store.reading() as tables:
        return Record.of(tables.books(), tables.mark())


def tamper(path, *statements):
    """As whoever can write the file: without the triggers that refuse it."""
    connection = sqlite3.connect(path)
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    for (name,) in connection.execute(triggers).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert connection.execute(statement).rowcount >= 1, statement
    connection.commit()
    connection.close()


def race(place, worker, many, results):
    """Sessions that one of several processes could begin: the body of the overspend tests.

    Every other session ends, every other one stays open; neither gives anything back.
    """
    ledger, one = Ledger(place), release(0.1)
    begun = 0
    for round_number in range(many):
        key = key_of(f"{worker}-{round_number}", study=f"{worker}-{round_number}")
        try:
            begin(ledger, key, loss_of(one))
        except BudgetExceeded:
            continue
        begun += 1
        commit(ledger, key, charges=[one])
        if round_number % 2:
            ledger.end(key, "done")
    results.put(begun)


def check_race(context, place, *, budget_for=7, workers=3, many=8):
    """Exactly as many sessions begin as the budget has room for, whoever comes first."""
    loss = loss_of(release(0.1))
    ledger = Ledger(place)
    ledger.set_budget(budget_of(room_for(budget_for, loss)))
    results = context.Queue()
    processes = [
        context.Process(target=race, args=(place, worker, many, results))
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    begun = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sum(begun) == budget_for
    (standing,) = ledger.standings()
    assert standing.spent == Loss.total([loss] * budget_for)
    assert not loss.within(standing.left)
    assert ledger.verify().holds
    return begun


_BIN = [Path(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]


def _binary(name):
    found = [str(folder / name) for folder in _BIN if (folder / name).exists()]
    return found[0] if found else shutil.which(name)


def _other_user():
    """PostgreSQL does not run as root: whom it can run as instead."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return pytest.skip("PostgreSQL does not run as root, and there is no user 'nobody'")


class PostgreSQL:
    """A server of one's own: one socket in its folder, no network, nobody else."""

    def __init__(self, folder):
        self.folder = folder
        self._schemas = itertools.count()

    def url(self, *, schema=None):
        """An SQLAlchemy URL of an empty schema of its own, or of one that exists."""
        if schema is None:
            schema = f"s{next(self._schemas)}"
            with self.connected() as connection:
                connection.execute(f"CREATE SCHEMA {schema}")
        return (
            f"postgresql+psycopg://owner@/postgres?host={self.folder}"
            f"&options=-csearch_path%3D{schema}"
        )

    def connected(self):
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True)

    def wait(self, seconds=60):
        """Until it answers."""
        import psycopg

        end = time.monotonic() + seconds
        while True:
            try:
                return psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    @property
    def dsn(self):
        return f"host={self.folder} user=owner dbname=postgres"


# The server ends when the standard input of this shell does: with the tests, however they end.
_SERVE = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server; rm -rf "$PWD"'


@contextmanager
def postgresql_server():
    """A running server; skips where PostgreSQL or its driver is absent."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres = _binary("initdb"), _binary("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    user = _other_user()
    # not in tmp_path: its parents belong to root alone, and a socket's path has at most 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="eigenveil-pg-", dir="/tmp"))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
        cluster = [initdb, "-D", folder / "data", "-U", "owner", "-A", "trust", "-N"]
        subprocess.run([*cluster, "-E", "UTF8", "--locale=C"], check=True, **quiet)
        command = [postgres, "-D", folder / "data", "-k", folder, "-c", "fsync=off"]
        command += ["-c", "lock_timeout=60s"]  # what waits for a lock that stays says so
        serving = subprocess.Popen(
            ["/bin/sh", "-c", _SERVE, "sh", *command, "-c", "listen_addresses="],
            stdin=subprocess.PIPE,
            start_new_session=True,
            **quiet,
        )
        try:
            server = PostgreSQL(folder)
            server.wait()
            yield server
        finally:
            serving.stdin.close()
            serving.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
