"""The door: a link, a proxy, a provider; forged cookies, other sites' forms, half a request."""

import asyncio
import socket
import time
from dataclasses import replace

import pytest
from console_tools import ADDRESS, PEOPLE, PROXY, Visitor, free_port, hidden, serving

from eigenveil.console.app import (
    ConnectionLimits,
    Guards,
    address_of,
    host_name,
    make_app,
    server_of,
)
from eigenveil.console.door import SECRET_HEADER, Person, Sessions
from eigenveil.console.settings import Issuer, Link, Proxy, Settings
from eigenveil.errors import EigenveilError, PrivacyError
from refusal_tools import refuses

TOKEN = "t" * 43
ALONE = {"settings_door": Link(TOKEN), "people": {}, "address": None}
SECRET = "a secret of the proxy"


@pytest.fixture
def visitor(tmp_path):
    return Visitor(tmp_path)


# -- a link


def test_the_link_opens_the_pages_for_whoever_has_its_token(tmp_path):
    visitor = Visitor(tmp_path, **ALONE)
    link = address_of(visitor.settings)
    assert link == f"http://127.0.0.1:8450/sign-in?token={TOKEN}"
    browser = visitor.browser()
    assert browser.get("/table").headers["location"] == "/sign-in"
    assert "Token" in browser.get("/sign-in").text
    for token in ("", "x", TOKEN[:-1], TOKEN + "t", "\N{SNOWMAN}"):
        assert browser.get("/sign-in", params={"token": token}).status_code == 403
        assert browser.get("/table").status_code == 303
    assert browser.get(f"/?token={TOKEN}").headers["location"] == "/sign-in"
    assert browser.get(link).status_code == 200
    page = browser.get("/table")
    assert "owner (owner)" in page.text
    assert visitor.logged()[0] == "came in"
    cookie = browser.cookies.get(visitor.console.cookie)
    assert browser.post("/sign-out", data={"csrf": hidden(page.text, "csrf")}).status_code == 200
    browser.cookies.set(visitor.console.cookie, cookie)
    assert browser.get("/table").status_code == 303  # the server forgot it


def test_a_link_is_for_this_machine_alone(tmp_path):
    visitor = Visitor(tmp_path, **ALONE)
    browser = visitor.browser()
    browser.get("/sign-in", params={"token": TOKEN})
    other = visitor.browser(address="10.0.0.7")  # somebody forwards the port
    assert other.get("/sign-in", params={"token": TOKEN}).status_code == 403
    other.cookies = browser.cookies
    assert other.get("/table").status_code == 303


# -- a proxy


def test_a_proxy_names_who_comes_in_and_the_console_what_they_may(visitor):
    browser = visitor.browser("vic")
    assert browser.get("/table").status_code == 200
    assert browser.get("/runs/of-nobody/derive").status_code == 403
    assert visitor.logged()[0] == "refused: page-not-for-role"
    for name in ("eve", "", "ann, eve", "Ann"):
        answer = visitor.browser(name, enters=False).get("/sign-in")
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    ("proxy", "address", "shown", "comes_in"),
    [
        (PROXY, "127.0.0.1", [], True),
        (PROXY, "10.0.0.7", [], False),
        (PROXY, "testclient", [], False),
        (replace(PROXY, networks=("10.0.0.0/24", "::1")), "10.0.0.7", [], True),
        (Proxy(PROXY.header, secret=SECRET), "10.0.0.7", [SECRET], True),
        (Proxy(PROXY.header, secret=SECRET), "127.0.0.1", [], False),
        (Proxy(PROXY.header, secret=SECRET), "127.0.0.1", [SECRET + "x"], False),
        (Proxy(PROXY.header, secret=SECRET), "127.0.0.1", ["", SECRET], False),
        (replace(PROXY, secret=SECRET), "127.0.0.1", [SECRET], True),
        (replace(PROXY, secret=SECRET), "127.0.0.1", [], False),
        (replace(PROXY, secret=SECRET), "10.0.0.7", [SECRET], False),
    ],
)
def test_a_header_is_believed_of_the_proxy_alone(tmp_path, proxy, address, shown, comes_in):
    visitor = Visitor(tmp_path, settings_door=proxy)
    browser = visitor.browser(address=address)
    headers = [(PROXY.header, "ann"), *((SECRET_HEADER, each) for each in shown)]
    answer = browser.get("/sign-in", headers=headers)
    assert answer.status_code == (200 if comes_in else 403)
    assert ("set-cookie" in answer.headers) == comes_in
    assert (browser.get("/table", headers=headers).status_code == 200) == comes_in


def test_each_request_is_of_the_person_whom_the_proxy_names_then(visitor):
    browser = visitor.browser("ann")
    form = {"csrf": hidden(browser.get("/table").text, "csrf")}
    assert browser.get("/table", headers={PROXY.header: "vic"}).status_code == 303
    assert browser.get("/table").status_code == 303  # her cookie was brought by another
    browser.get("/sign-in")
    twice = [(PROXY.header, "ann"), (PROXY.header, "ann")]
    assert visitor.browser().get("/sign-in", headers=twice).status_code == 403
    del browser.headers[PROXY.header]
    assert browser.get("/table").status_code == 403
    assert browser.post("/sign-out", data=form).status_code == 403


# -- sessions, cookies, forms


def test_cookies_are_for_tls_this_site_and_no_script(tmp_path, visitor):
    text = visitor.browser("ann", enters=False).get("/sign-in").headers["set-cookie"]
    assert text.startswith("__Host-eigenveil-8450=")
    assert all(each in text for each in ("; Secure", "; HttpOnly", "; SameSite=strict", "Path=/"))
    alone = Visitor(tmp_path, **ALONE)
    text = alone.browser().get("/sign-in", params={"token": TOKEN}).headers["set-cookie"]
    assert text.startswith("eigenveil-8450=")
    assert "Secure" not in text  # it has no TLS


def test_forged_cookies_open_nothing_and_write_no_line(visitor):
    browser = visitor.browser("ann")
    before = visitor.logged()
    for cookie in ("", "forged", browser.cookies.get(visitor.console.cookie) + "x", "a" * 5000):
        browser.cookies.clear()
        browser.cookies.set(visitor.console.cookie, cookie, domain="console.example.org")
        assert browser.get("/table").status_code == 303
    assert visitor.logged() == before


def test_refusals_do_not_push_the_rest_out_of_the_log(visitor):
    browser = visitor.browser("eve", enters=False)
    for _ in range(100):
        browser.get("/sign-in")
    assert len(visitor.logged()) <= 40  # of two minutes at the most
    assert "refused: more in this minute" in visitor.logged()


def test_sessions_end_when_idle_and_in_any_case_and_after_ten_wrong_passwords():
    now = [0.0]
    sessions = Sessions(60.0, 100.0, clock=lambda: now[0])
    ann = Person("ann", "owner")
    cookie, session = sessions.begin(ann)
    now[0] = 59.0
    assert sessions.find(cookie) is session
    now[0] = 101.0
    assert sessions.find(cookie) is None
    cookie, _ = sessions.begin(ann)
    now[0] = 170.0
    assert sessions.find(cookie) is None
    cookie, session = sessions.begin(ann)
    session.wrong = 10
    assert sessions.find(cookie) is None


def test_sessions_and_forms_do_not_grow_without_end():
    sessions = Sessions(1e9, 1e9)
    first, _ = sessions.begin(Person("ann", "owner"))
    for _ in range(1000):
        last, session = sessions.begin(Person("eve", "viewer"))
    assert sessions.find(first) is None
    assert sessions.find(last) is session
    numbers = [session.new_form("one") for _ in range(201)]
    for number, about in ((numbers[0], "one"), (numbers[-1], "other"), (numbers[-1], "one")):
        with pytest.raises(PrivacyError):
            session.take_form(number, about)
    session.take_form(numbers[-2], "one")
    with pytest.raises(PrivacyError):
        session.take_form(numbers[-2], "one")


# -- what stands before every page


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8450", "127.0.0.1"),
        ("LOCALHOST", "localhost"),
        ("[::1]:8450", "::1"),
        ("[::1]evil", ""),
        ("[::1].evil.example:80", ""),
        ("127.0.0.1@evil.example", ""),
        ("localhost:80:80", ""),
        ("localhost:x", ""),
        ("localhost/evil", ""),
        ("evil.example", "evil.example"),
        ("", ""),
    ],
)
def test_a_host_is_one_of_the_consoles_own(tmp_path, host, name):
    assert host_name(host) == name
    visitor = Visitor(tmp_path, **ALONE)
    known = name in ("127.0.0.1", "localhost", "::1")
    answer = visitor.browser().get("/alive", headers={"host": host})
    assert answer.status_code == (200 if known else 421)


def test_sizes_methods_and_headers_are_guarded(visitor):
    browser = visitor.browser("ann")
    answer = browser.get("/table")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["strict-transport-security"]
    assert browser.post("/sign-out", content=b"x" * (1 << 21)).status_code == 413
    pieces = (b"x" * (1 << 18) for _ in range(8))  # its length is not said
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert browser.post("/sign-out", content=pieces, headers=kind).status_code == 400
    assert browser.get("/alive", headers={"content-length": "many"}).status_code == 413
    assert browser.delete("/table").status_code == 405
    assert browser.get("/nothing").status_code == 404


def test_a_body_without_a_length_is_read_up_to_its_limit(tmp_path):
    got = []

    async def app(scope, receive, send):
        while not got or got[-1].get("more_body"):
            got.append(await receive())

    async def receive():
        return {"type": "http.request", "body": b"x" * (1 << 18), "more_body": len(got) < 16}

    settings = Settings("table", tmp_path, PROXY, PEOPLE, address=ADDRESS)
    headers = [(b"host", b"console.example.org")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    asyncio.run(Guards(app, settings)(scope, receive, None))
    assert sum(len(each.get("body", b"")) for each in got) <= 1 << 20
    assert got[-1] == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"host": "0.0.0.0"}, "tls-needed"),
        ({"host": "0.0.0.0", "tls": ("a", "b"), **ALONE}, "link-elsewhere"),
        (ALONE | {"address": ADDRESS}, "link-elsewhere"),
        ({"people": {}}, "no-people"),
        ({"address": None}, "no-console-address"),
        ({"address": "http://console.example.org"}, "no-console-address"),
        ({"address": "https://console.example.org/path"}, "no-console-address"),
        ({"people": {"a/b": "owner"}}, "bad-person"),
        ({"people": {"..": "owner"}}, "bad-person"),
        ({"people": {"": "owner"}}, "bad-person"),
        ({"people": {"a\x00": "owner"}}, "bad-person"),
        ({"people": {"ann": "king"}}, "bad-person-role"),
    ],
    ids=str,
)
def test_settings_that_would_let_others_in_are_refused(tmp_path, fields, code):
    fields = {("door" if n == "settings_door" else n): v for n, v in fields.items()}
    usual = {"door": PROXY, "people": PEOPLE, "address": ADDRESS}
    with refuses(code, kind=EigenveilError):
        Settings("table", tmp_path, **(usual | fields))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: Proxy("X-User"), "bad-proxy"),
        (lambda: Proxy("X-User", secret="short"), "bad-proxy"),
        (lambda: Proxy("X User", ("127.0.0.1",)), "bad-proxy"),
        (lambda: Proxy("", ("127.0.0.1",)), "bad-proxy"),
        (lambda: Proxy("X-User", ("proxy.example",)), "bad-proxy"),
        (lambda: Issuer("http://login.example.org", "a", "b"), "no-provider"),
    ],
)
def test_a_door_that_anybody_could_open_is_refused(made, code):
    with refuses(code, kind=EigenveilError):
        made()


# -- connections


@pytest.fixture
def served(tmp_path):
    """A console on a port of its own, which waits for little."""
    visitor = Visitor(tmp_path, **ALONE)
    app = make_app(visitor.console, limits=ConnectionLimits(head=0.5, body=0.5, address=8))
    port = free_port()
    config = server_of(app, replace(visitor.settings, port=port))
    config.lifespan = "off"
    app.cookie, _ = visitor.console.sessions.begin(Person("owner", "owner"))
    with serving(config):
        yield port, app


def alive(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as found:
        found.sendall(b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: found.recv(1000), b""))


HALVES = {
    "nothing": b"",
    "half a head": b"GET /alive HTTP/1.1\r\nHost: 127.",
    "half a second head": b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /al",
    "half a body": b"POST /sign-out HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Cookie: eigenveil-8450=COOKIE\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\ncs",
    "half a body that nobody reads": b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Length: 9\r\n\r\ncs",
}


@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_is_not_waited_for_and_keeps_nobody_out(served, half):
    port, app = served
    open_ = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(7)]
    for each in open_:
        each.sendall(HALVES[half].replace(b"COOKIE", app.cookie.encode()))
    assert b"200 OK" in alive(port)
    begun = time.monotonic()
    for each in open_:
        while each.recv(4096):
            pass  # until the server ends it
        each.close()
    assert time.monotonic() - begun < 15
    assert b"200 OK" in alive(port)
    assert sum(app.connections.values()) <= 1


def test_one_address_has_so_many_connections(served):
    port, app = served
    app.limits = replace(app.limits, head=600.0)
    open_ = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(30)]
    ended = 0
    for each in open_[8:]:
        try:
            ended += each.recv(10) == b""
        except ConnectionResetError:
            ended += 1
    assert ended == 22
    for each in open_:
        each.close()
    until = time.monotonic() + 20
    while sum(app.connections.values()) and time.monotonic() < until:
        time.sleep(0.02)
    assert b"200 OK" in alive(port)


def test_the_proxys_own_address_has_the_connections_of_many(tmp_path):
    for door, address, room in (
        (PROXY, "127.0.0.1", True),
        (PROXY, "10.0.0.1", False),
        (Proxy("X-User", secret=SECRET), "127.0.0.1", True),
        (Proxy("X-User", secret=SECRET), "10.0.0.1", False),
    ):
        settings = Settings("table", tmp_path, door, PEOPLE, address=ADDRESS)
        guards = Guards(None, settings, ConnectionLimits(address=1))
        guards.connections[address] = 5
        assert guards.has_room(address) == room
