"""One's own account: another password and second factor, whole or not at all, for its owner."""

import random
import signal
import subprocess
import sys
import time

import pyotp
import pytest
from console_tools import PASSWORD, Visitor, hidden, wrong_code

from eigenveil.console.accounts import Accounts, Kept
from eigenveil.console.signing import new_key, renewed, unlocked
from eigenveil.errors import DataError
from soak_tools import times

NEW = "four other words entirely"


@pytest.fixture
def visitor(tmp_path):
    found = Visitor(tmp_path)
    found.add()
    found.sign_in()
    return found


WRONG = "a wrong code"


def sent(visitor, where="password", **fields):
    """The account's form, filled in."""
    page = visitor.client.get("/account").text
    form = page.split(f'action="/account/{where}"')[1]
    usual = {"password": PASSWORD, "code": visitor.code("ann"), "new": NEW, "again": NEW}
    if fields.get("code") == WRONG:
        fields = fields | {"code": visitor.wrong_code("ann")}
    numbers = {name: hidden(form, name) for name in ("csrf", "number")}
    return visitor.client.post(f"/account/{where}", data=numbers | usual | fields)


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"password": "not the password"}, 403, "The password is wrong."),
        ({"code": WRONG}, 403, "The code is wrong"),
        ({"new": "short", "again": "short"}, 400, "12 to 1024"),
        ({"again": "something else"}, 400, "typed in two ways"),
    ],
)
def test_a_password_is_changed_with_the_old_one_and_a_code(visitor, fields, status, why):
    answer = sent(visitor, **fields)
    assert (answer.status_code, why in answer.text) == (status, True)
    assert visitor.console.accounts.with_password("ann", PASSWORD)
    assert unlocked(visitor.console.accounts, "ann", PASSWORD)


def test_the_key_goes_along_and_other_sessions_end(visitor):
    other, accounts = visitor.browser(), visitor.console.accounts
    visitor.sign_in(client=other)
    assert other.get("/table").status_code == 200
    key = unlocked(accounts, "ann", PASSWORD)
    assert sent(visitor).headers["location"] == "/account?done=password"
    assert "your key is unlocked" in visitor.client.get("/account?done=password").text
    assert other.get("/table").headers["location"] == "/sign-in"
    assert accounts.with_password("ann", PASSWORD) is None
    assert unlocked(accounts, "ann", PASSWORD) is None
    assert unlocked(accounts, "ann", NEW) == key
    assert visitor.sign_in(password=PASSWORD, client=other).status_code == 403
    assert visitor.sign_in(password=NEW, client=other).status_code == 200
    assert visitor.logged().count("changed the password") == 1
    Accounts(visitor.settings.state).forget_factor("ann")  # by a command, in another process
    for client in (visitor.client, other):
        assert client.get("/table").headers["location"] == "/sign-in"


def test_guessing_passwords_there_is_limited_as_at_sign_in(visitor):
    codes = [sent(visitor, password=f"guess number {n}").status_code for n in range(11)]
    assert codes == [403] * 10 + [429]
    assert sent(visitor).status_code == 429  # also who knows it waits
    assert visitor.sign_in(client=visitor.browser()).status_code == 429
    assert "refused: wrong-password" in visitor.logged()


def test_a_new_second_factor_counts_once_a_code_of_it_was_given(visitor):
    accounts, other = visitor.console.accounts, visitor.browser()
    visitor.sign_in(client=other)
    old = accounts.secret("ann")
    assert visitor.client.get("/account/new-second-factor").headers["location"] == "/account"
    assert sent(visitor, "second-factor", code=WRONG).status_code == 403
    assert sent(visitor, "second-factor").headers["location"] == "/account/new-second-factor"
    for right in (False, True):
        page = visitor.client.get("/account/new-second-factor").text
        secret = page.split('class="secret">')[1].split("<")[0]
        code = pyotp.TOTP(secret).at(time.time()) if right else wrong_code(secret)
        assert secret not in (old, accounts.secret("ann"))
        form = {name: hidden(page, name) for name in ("csrf", "number")} | {"code": code}
        answer = visitor.client.post("/account/new-second-factor", data=form)
    assert answer.status_code == 303
    assert accounts.secret("ann") == secret
    assert not accounts.take_code("ann", code)  # it counted
    assert other.get("/table").status_code == 303
    assert visitor.client.get("/account").status_code == 200


def test_two_changes_at_once_are_one(tmp_path):
    accounts = Accounts(tmp_path)
    accounts.add("ann", "owner", PASSWORD, key=new_key(PASSWORD)[0])
    before = accounts.kept("ann")
    accounts.keep("ann", before, renewed(before, PASSWORD, NEW))
    with pytest.raises(DataError) as refused:
        accounts.keep("ann", before, Kept("other"))
    assert refused.value.code == "account-changed"
    assert accounts.with_password("ann", NEW)


CHANGES = """
import sys
from pathlib import Path
import argon2
from eigenveil.console import passwords
from eigenveil.console.accounts import Accounts
from eigenveil.console.signing import renewed
passwords._HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
accounts, words = Accounts(Path(sys.argv[1])), sys.argv[2:]
while True:
    print("changing", flush=True)
    before = accounts.kept("ann")
    accounts.keep("ann", before, renewed(before, *words))
    words.reverse()
"""


def test_who_is_killed_while_changing_has_one_password_that_works(tmp_path):
    accounts = Accounts(tmp_path)
    private, _ = new_key(PASSWORD)
    accounts.add("ann", "owner", PASSWORD, key=private)
    key = unlocked(accounts, "ann", PASSWORD)
    now, pause = PASSWORD, random.Random(5)
    for _ in range(times(20)):
        child = subprocess.Popen(
            [sys.executable, "-c", CHANGES, tmp_path, now, NEW if now == PASSWORD else PASSWORD],
            stdout=subprocess.PIPE,
        )
        child.stdout.readline()
        time.sleep(pause.uniform(0.0, 0.2))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        found = [each for each in (PASSWORD, NEW) if accounts.with_password("ann", each)]
        assert len(found) == 1
        (now,) = found
        assert unlocked(accounts, "ann", now) == key
