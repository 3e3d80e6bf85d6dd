"""Signing in: passwords, codes, forged cookies, other sites' forms, and too many tries."""

import pytest
from console_tools import PASSWORD, Visitor, hidden

from eigenveil.console.accounts import Accounts
from eigenveil.console.limits import Limit, SignInLimits
from eigenveil.console.sessions import Sessions
from eigenveil.console.settings import Settings
from eigenveil.errors import DataError, PrivacyError

ELSEWHERE = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


def _password_given(visitor, client=None):
    """The token of the form that asks for the second factor."""
    client = client or visitor.client
    form = {"form": hidden(client.get("/sign-in").text, "form")}
    client.post("/sign-in", data=form | {"name": "ann", "password": PASSWORD})
    return hidden(client.get("/sign-in/second-factor").text, "csrf")


@pytest.fixture
def visitor(tmp_path):
    found = Visitor(tmp_path)
    found.add()
    return found


def test_a_password_and_a_code_open_the_pages(visitor):
    assert visitor.client.get("/table").headers["location"] == "/sign-in"
    assert visitor.sign_in().status_code == 200
    page = visitor.client.get("/table")
    assert page.status_code == 200
    assert "bmi" in page.text
    assert "signed in" in visitor.logged()
    cookie = visitor.client.cookies.get(visitor.console.cookie)
    assert cookie
    form = {"csrf": hidden(page.text, "csrf")}
    assert visitor.client.post("/sign-out", data=form).status_code == 303
    visitor.client.cookies.set(visitor.console.cookie, cookie)
    assert visitor.client.get("/table").status_code == 303  # the server forgot it


def test_cookies_are_for_this_site_and_no_script(visitor):
    visitor.client.get("/sign-in")
    answer = visitor.sign_in()
    text = answer.headers["set-cookie"]
    assert "HttpOnly" in text
    assert "SameSite=strict" in text
    assert visitor.console.cookie == "eigenveil-8450"  # of another port's console is another one
    assert "Secure" not in text  # it has no TLS


def test_behind_tls_cookies_are_for_tls_alone(tmp_path):
    visitor = Visitor(tmp_path, tls=("a", "b"))
    text = visitor.client.get("/sign-in").headers["set-cookie"]
    assert text.startswith("__Host-")
    assert "; Secure" in text


def test_a_password_alone_opens_nothing(visitor):
    page = visitor.client.get("/sign-in")
    form = {"form": hidden(page.text, "form"), "name": "ann", "password": PASSWORD}
    assert visitor.client.post("/sign-in", data=form).status_code == 303
    assert visitor.client.get("/table").status_code == 303
    page = visitor.client.get("/sign-in/second-factor")
    assert "<svg" in page.text  # the first time its secret is shown
    answer = visitor.client.post(
        "/sign-in/second-factor",
        data={"csrf": hidden(page.text, "csrf"), "code": visitor.wrong_code("ann")},
    )
    assert answer.status_code == 403
    assert visitor.client.get("/table").status_code == 303


def test_the_secret_is_shown_until_it_was_used_and_a_code_counts_once(visitor):
    visitor.sign_in()
    code = visitor.code("ann")
    assert visitor.console.accounts.take_code("ann", code)
    assert not visitor.console.accounts.take_code("ann", code)
    other = visitor.browser()
    page = other.get("/sign-in")
    other.post(
        "/sign-in",
        data={"form": hidden(page.text, "form"), "name": "ann", "password": PASSWORD},
    )
    assert "<svg" not in other.get("/sign-in/second-factor").text


@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("nobody", PASSWORD), ("", "")])
def test_a_wrong_name_and_a_wrong_password_are_answered_alike(visitor, name, password):
    answer = visitor.sign_in(name, password)
    assert answer.status_code == 403
    assert "The name or the password is wrong." in answer.text
    assert "refused: sign-in" in visitor.logged()


def test_forms_of_other_browsers_and_other_sites_are_refused(visitor):
    """With the right password: nothing but where the form came from can refuse."""
    page = visitor.client.get("/sign-in")
    form = {"form": hidden(page.text, "form"), "name": "ann", "password": PASSWORD}
    other = visitor.browser()
    assert other.post("/sign-in", data=form).status_code == 403
    other.get("/sign-in")  # it has a cookie and a form of its own
    assert other.post("/sign-in", data=form).status_code == 403
    for header in ELSEWHERE:
        assert visitor.client.post("/sign-in", data=form, headers=header).status_code == 403
    assert visitor.client.post("/sign-in", data=form).status_code == 303


def test_the_second_factor_is_taken_from_the_sessions_own_form(visitor):
    """With the right code."""
    csrf = _password_given(visitor)
    for form, header in [
        ({}, {}),
        ({"csrf": _password_given(visitor, visitor.browser())}, {}),
        *(({"csrf": csrf}, header) for header in ELSEWHERE),
    ]:
        form |= {"code": visitor.code("ann")}
        answer = visitor.client.post("/sign-in/second-factor", data=form, headers=header)
        assert answer.status_code == 403
        assert visitor.client.get("/table").status_code == 303
    form = {"csrf": csrf, "code": visitor.code("ann")}
    assert visitor.client.post("/sign-in/second-factor", data=form).status_code == 200


def test_no_other_page_signs_somebody_out(visitor):
    visitor.sign_in()
    cookie = visitor.client.cookies.get(visitor.console.cookie)
    visitor.client.post("/sign-out", data={"csrf": "another"})
    visitor.client.cookies.set(visitor.console.cookie, cookie)
    assert visitor.client.get("/table").status_code == 200


def test_the_phrase_of_nobodys_hash_opens_no_account(visitor):
    """An account of the hospital's own sign-in has no password here."""
    visitor.add("eve", password=None)
    answer = visitor.sign_in("eve", "no account has this password")
    assert answer.status_code == 403


def test_a_forged_cookie_is_refused_and_logged(visitor):
    visitor.client.cookies.set(visitor.console.cookie, "forged.abc.def")
    assert visitor.client.get("/table").status_code == 303
    assert visitor.logged() == ["refused: forged or old cookie"]


def test_sign_ins_are_refused_from_the_twentieth_in_a_minute_and_logged(visitor):
    limits, now = visitor.console.limits, [0.0]
    for limit in (limits.address, limits.account, limits.everybody):
        limit.clock = lambda: now[0]
    form = {"form": hidden(visitor.client.get("/sign-in").text, "form")}
    answers = [
        visitor.client.post("/sign-in", data=form | {"name": f"a{n % 3}", "password": "x"})
        for n in range(225)
    ]
    assert [each.status_code for each in answers] == [403] * 20 + [429] * 205
    assert "Too many sign-ins" in answers[20].text
    # so that nobody fills the log: the first, and each hundredth
    assert visitor.logged().count("refused: too many sign-ins") == 3
    assert visitor.sign_in().status_code == 429  # also who knows the password waits
    now[0] = 61.0
    assert visitor.sign_in().status_code == 200


def test_ten_wrong_passwords_hold_the_account(visitor):
    for _ in range(10):
        assert visitor.sign_in("ann", "wrong").status_code == 403
    assert visitor.sign_in().status_code == 429


def test_ten_wrong_codes_hold_the_account(visitor):
    form = {"csrf": _password_given(visitor), "code": visitor.wrong_code("ann")}
    for _ in range(10):
        assert visitor.client.post("/sign-in/second-factor", data=form).status_code == 403
    form["code"] = visitor.code("ann")
    assert visitor.client.post("/sign-in/second-factor", data=form).status_code == 429


def test_from_many_addresses_there_are_no_more_tries_than_for_all():
    limits = SignInLimits()
    assert not any(limits.wait(f"address {n}", f"account {n}") for n in range(120))
    assert limits.wait("another", "and another") > 0


def test_an_account_is_held_after_ten_wrong_ones():
    now = [0.0]
    limit = Limit(10, 900.0, clock=lambda: now[0])
    for _ in range(10):
        assert not limit.wait("ann")
        limit.count("ann")
    assert limit.wait("ann") == 900.0
    assert not limit.wait("bob")
    now[0] = 901.0
    assert not limit.wait("ann")


def test_sessions_end_when_idle_and_in_any_case():
    now = [0.0]
    sessions = Sessions(60.0, 100.0, clock=lambda: now[0])
    cookie, session = sessions.begin(_account(), "in")
    assert sessions.find(cookie) is session
    now[0] = 59.0
    assert sessions.find(cookie) is session
    now[0] = 101.0
    assert sessions.find(cookie) is None
    cookie, _ = sessions.begin(_account(), "in")
    now[0] = 170.0
    assert sessions.find(cookie) is None


def test_the_second_factor_is_awaited_for_five_minutes():
    now = [0.0]
    sessions = Sessions(3600.0, 36000.0, clock=lambda: now[0])
    waiting, _ = sessions.begin(_account(), "second factor")
    inside, _ = sessions.begin(_account(), "in")
    now[0] = 299.0
    assert sessions.find(waiting)
    now[0] = 301.0
    assert sessions.find(waiting) is None
    assert sessions.find(inside)


def test_a_form_is_sent_once_and_for_what_it_was_shown_for():
    _, session = Sessions(60.0, 100.0).begin(_account(), "in")
    number = session.new_form("one")
    session.take_form(number, "one")
    with pytest.raises(PrivacyError, match="sent before"):
        session.take_form(number, "one")
    with pytest.raises(PrivacyError):
        session.take_form(session.new_form("one"), "other")


def _account():
    from eigenveil.console.accounts import Account

    return Account("ann", "owner", True, True)


def test_accounts_are_their_owners_alone(tmp_path):
    accounts = Accounts(tmp_path / "state")
    assert accounts.place.stat().st_mode & 0o777 == 0o600
    assert accounts.place.parent.stat().st_mode & 0o777 == 0o700
    accounts.add("ann", "owner", PASSWORD)
    assert PASSWORD.encode() not in accounts.place.read_bytes()
    for wrong in (
        ("ann", "owner", PASSWORD),
        ("b\x00", "owner", PASSWORD),
        ("c", "king", PASSWORD),
    ):
        with pytest.raises(DataError):
            accounts.add(*wrong)
    with pytest.raises(DataError, match="12 to"):
        accounts.add("d", "owner", "short")
    accounts.remove("ann")
    assert accounts.with_password("ann", PASSWORD) is None


def test_hosts_and_headers_are_guarded(visitor):
    assert visitor.client.get("/sign-in", headers={"host": "evil.example"}).status_code == 421
    answer = visitor.client.get("/sign-in")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert visitor.client.post("/sign-in", content=b"x" * (1 << 21)).status_code == 413
    assert visitor.client.delete("/sign-in").status_code == 405
    assert visitor.client.get("/nothing").status_code == 404


def test_beyond_this_machine_it_needs_tls(tmp_path):
    with pytest.raises(DataError) as refused:
        Settings("table", tmp_path, host="0.0.0.0")
    assert refused.value.code == "tls-needed"
    assert Settings("table", tmp_path, host="::1").hosts >= {"localhost", "::1"}


def test_pages_have_no_inline_style_or_script_and_name_no_other_host(visitor):
    visitor.sign_in()
    for path in ("/table", "/plan?rows=1000", "/fit", "/runs", "/ledger", "/account"):
        text = visitor.client.get(path).text
        assert " style=" not in text, path
        assert "<style" not in text, path
        assert "http://" not in text.replace('xmlns="http://www.w3.org/2000/svg"', ""), path
        assert "https://" not in text, path
        assert text.count("<script") == 1, path
