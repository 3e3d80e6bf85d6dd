"""The door: a link, a proxy, a provider; forged cookies, other sites' forms, half a request."""

import asyncio
import base64
import hashlib
import json
import socket
import threading
import time
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import uvicorn
from console_tools import ADDRESS, PEOPLE, PROXY, Visitor, hidden
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from eigenveil.console.app import address_of, make_app, server_of
from eigenveil.console.door import SECRET_HEADER, Person, ProviderDoor, Sessions
from eigenveil.console.guards import Guards, Limits, host_name
from eigenveil.console.provider import Provider
from eigenveil.console.settings import Issuer, Link, Proxy, Settings
from eigenveil.errors import EigenveilError, PrivacyError

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
    assert browser.get("/fit").status_code == 403
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


# -- OpenID Connect

ISSUER = "https://login.example.org"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
CALLBACK = "/sign-in/provider/callback"


class FakeProvider:
    """Answers as a provider does; ``change`` changes the claims, ``key`` signs them."""

    def __init__(self):
        self.issued, self.key, self.change, self.head = {}, KEY, {}, {"alg": "RS256", "kid": "one"}
        self.configuration = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }

    def signed_in(self, address):
        """What a person who signs in there brings back."""
        query = {name: each[0] for name, each in parse_qs(urlsplit(address).query).items()}
        assert query["redirect_uri"] == ADDRESS + CALLBACK
        assert query["code_challenge_method"] == "S256"
        self.issued["code-1"] = query
        return {"state": query["state"], "code": "code-1"}

    def __call__(self, request):
        path = request.url.path
        if path.endswith("openid-configuration"):
            return self._json(**self.configuration)
        if path == "/keys":
            return self._json(keys=[KEY.as_dict(private=False)])
        form = {name: each[0] for name, each in parse_qs(request.content.decode()).items()}
        asked = self.issued.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "1",
            "aud": "console",
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            "email": "ann",
            "email_verified": True,
        } | self.change
        claims = {name: value for name, value in claims.items() if value != "absent"}
        allowed = [self.head["alg"]]
        token = jwt.encode(self.head, claims, self.key, algorithms=allowed)
        return self._json(access_token="x", token_type="Bearer", id_token=token)

    @staticmethod
    def _json(**found):
        return httpx.Response(
            200, content=json.dumps(found), headers={"content-type": "application/json"}
        )


@pytest.fixture
def fake():
    return FakeProvider()


@pytest.fixture
def provided(tmp_path, fake):
    issuer = Issuer(ISSUER, "console", "secret")
    settings = Settings("table", tmp_path / "state", issuer, PEOPLE, address=ADDRESS)
    door = ProviderDoor(settings, issuer)
    door.provider = Provider(issuer, settings, transport=httpx.MockTransport(fake))
    return Visitor(tmp_path, door=door, settings_door=issuer)


def comes_back(browser, fake):
    begun = browser.get("/sign-in/provider/")
    return browser.get(CALLBACK, params=fake.signed_in(begun.headers["location"]))


def test_whom_the_provider_knows_comes_in_and_may_what_the_console_says(provided, fake):
    browser = provided.browser()
    assert "Sign in with your organisation" in browser.get("/sign-in").text
    fake.change = {"email": "vic"}
    assert comes_back(browser, fake).status_code == 200
    assert browser.get("/table").status_code == 200
    assert browser.get("/fit").status_code == 403


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": "another", "azp": "console"},
        {"aud": ["console", "another"]},
        {"aud": ["console", "another"], "azp": "another"},
        {"azp": "another"},
        {"exp": 1},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": "absent"},
        {"exp": "soon"},
        {"exp": True},
        {"iat": 9e9},
        {"iat": float("nan")},
        {"iat": "absent"},
        {"nonce": "old"},
        {"nonce": "absent"},
        {"email_verified": False},
        {"email_verified": "absent"},
        {"email_verified": "true"},
        {"email_verified": "false"},
        {"email_verified": 1},
        {"email_verified": None},
        {"email": None},
        {"email": ["ann"]},
        {"email": "eve"},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(provided, fake, change):
    fake.change = change
    browser = provided.browser()
    assert comes_back(browser, fake).status_code == 403
    assert browser.get("/table").status_code == 303
    assert any(each.startswith("refused") for each in provided.logged())


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "http://login.example.org/authorize"},
        {"token_endpoint": "http://login.example.org/token"},
        {"jwks_uri": "http://login.example.org/keys"},
        {"jwks_uri": None},
    ],
    ids=str,
)
def test_nothing_of_a_provider_goes_over_plain_http(provided, fake, change):
    fake.configuration |= change
    assert provided.browser().get("/sign-in/provider/").status_code == 403


def test_a_token_of_another_key_is_refused(provided, fake):
    browser = provided.browser()
    public = json.dumps(KEY.as_dict(private=False)).encode()
    for key, head in (
        (OTHER, fake.head),
        (OctKey.import_key(b"secret"), {"alg": "HS256"}),
        (OctKey.import_key(public), {"alg": "HS256", "kid": "one"}),
        (KEY, {"alg": "none"}),
    ):
        fake.key, fake.head = key, head
        fake.configuration["id_token_signing_alg_values_supported"] = ["RS256", "HS256", "none"]
        assert comes_back(browser, fake).status_code == 403, head
    fake.key, fake.head = KEY, {"alg": "RS256", "kid": "one"}
    assert comes_back(browser, fake).status_code == 200


def test_a_return_that_this_browser_did_not_begin_is_refused(provided, fake):
    browser, other = provided.browser(), provided.browser()
    back = fake.signed_in(browser.get("/sign-in/provider/").headers["location"])
    other.get("/sign-in/provider/")
    assert other.get(CALLBACK, params=back).status_code == 403
    assert browser.get(CALLBACK, params=back | {"state": "other"}).status_code == 403
    assert browser.get(CALLBACK).status_code == 403
    assert browser.get(CALLBACK, params={"error": "access_denied"}).status_code == 403
    assert browser.get("/table").status_code == 303


def test_a_provider_that_is_away_is_said(provided, fake):
    def away(request):
        raise httpx.ConnectError("no")

    provider = provided.console.door.provider
    provider._client.client_kwargs["transport"] = httpx.MockTransport(away)
    answer = provided.browser().get("/sign-in/provider/")
    assert (answer.status_code, "cannot be reached" in answer.text) == (400, True)


# -- sessions, cookies, forms

ELSEWHERE = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": ADDRESS.replace("https", "http")},
    {"origin": ADDRESS + ":8443"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
)


@pytest.mark.parametrize("header", ELSEWHERE, ids=str)
def test_a_form_of_another_site_is_refused_whatever_else_is_right(visitor, header):
    browser = visitor.browser("ann")
    form = {"csrf": hidden(browser.get("/table").text, "csrf")}
    assert browser.post("/sign-out", data=form, headers=header).status_code == 403
    assert browser.get("/table").status_code == 200
    own = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
    assert browser.post("/sign-out", data=form, headers=own).status_code == 200


def test_a_form_of_another_session_is_refused(visitor):
    browser, other = visitor.browser("ann"), visitor.browser("ann")
    for form in ({}, {"csrf": ""}, {"csrf": hidden(other.get("/table").text, "csrf")}):
        assert browser.post("/sign-out", data=form).status_code == 403
        assert browser.get("/table").status_code == 200
    assert visitor.logged()[0] == "refused: bad-form"


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
        return {"type": "http.request", "body": b"x" * (1 << 18), "more_body": True}

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
    with pytest.raises(EigenveilError) as refused:
        Settings("table", tmp_path, **(usual | fields))
    assert refused.value.code == code


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
    with pytest.raises(EigenveilError) as refused:
        made()
    assert refused.value.code == code


def test_pages_have_no_inline_style_or_script_and_name_no_other_host(visitor):
    browser = visitor.browser("ann")
    for path in ("/sign-in", "/table", "/plan?rows=1000", "/fit", "/runs", "/ledger"):
        text = browser.get(path).text
        assert " style=" not in text, path
        assert "<style" not in text, path
        assert "http://" not in text.replace('xmlns="http://www.w3.org/2000/svg"', ""), path
        assert "https://" not in text, path
        assert text.count("<script") == 1, path


# -- connections


@pytest.fixture
def served(tmp_path):
    """A console on a port of its own, which waits for little."""
    visitor = Visitor(tmp_path, **ALONE)
    app = make_app(visitor.console, limits=Limits(head=0.5, body=0.5, address=8))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = server_of(app, replace(visitor.settings, port=port))
    config.lifespan = "off"
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    app.cookie, _ = visitor.console.sessions.begin(Person("owner", "owner"))
    yield port, app
    server.should_exit = True
    thread.join(20)


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
        guards = Guards(None, settings, Limits(address=1))
        guards.connections[address] = 5
        assert guards.has_room(address) == room
