"""Mailboxes over https: who may ask, what each may take, and what is said when nothing comes."""

import contextlib
import gc
import hashlib
import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.members import Identity
from eigenveil.federation.public_key import KeySigner
from eigenveil.network.carriers.connections import MailLimits
from eigenveil.network.carriers.https import HttpsMailbox, make_tls, parse, what_is_signed
from eigenveil.network.carriers.serving import MailboxServer

NAMES = ("aggregator", "north", "south")


def signer(name):
    """A key that follows from its name."""
    secret = hashlib.sha256(name.encode()).digest()
    return KeySigner(Ed25519PrivateKey.from_private_bytes(secret))


class Members:
    """Those of a federation."""

    digest = "cd" * 32

    def __init__(self, federation="ab" * 32, names=NAMES):
        self.federation, self.names = federation, set(names)

    def role(self, name):
        if name not in self.names:
            raise ProtocolError.relayed(f"{name} is no member.", code="not-a-member")
        return "aggregator" if name == "aggregator" else "site"

    def key(self, *, role, name):
        assert role == self.role(name)
        return signer(name).public_key


def identity(name, members=None, key=None):
    role = "aggregator" if name == "aggregator" else "site"
    return Identity(name, role, signer(key or name), members or Members())


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


class Place:
    """A server's folder, and mailboxes at it."""

    def __init__(self, folder, *, made=False):
        self.folder, self.members = folder, Members()
        self.pin = "" if made else make_tls(folder, "localhost")

    def serve(self, *, port=0, **limits):
        return MailboxServer(
            identity("aggregator", self.members),
            self.folder / "mail",
            self.folder / "tls.crt",
            host="127.0.0.1",
            port=port,
            limits=MailLimits(**limits),
        )

    def address(self, server):
        return f"https://localhost:{server.port}#{self.pin}"

    def of(self, name, server, **rest):
        return HttpsMailbox(identity(name, **rest), self.address(server))


def digest(data):
    return hashlib.sha256(data).hexdigest()


def refusal(call, *rest):
    """The code of an error, whose message is one clear line."""
    with pytest.raises(EigenveilError) as caught:
        call(*rest)
    assert len(str(caught.value).splitlines()) == 1
    assert len(caught.value.message) > 20
    assert caught.value.hint
    return caught.value.code


# -- Mail.


def test_a_take_that_waits_ends_when_the_server_does(place):
    server = place.serve()
    north = place.of("north", server)
    north.take(0)
    threading.Timer(0.2, server.close).start()
    begun = time.monotonic()
    assert server.mailbox.take(20) == []
    assert refusal(north.take, 20) == "no-mailbox"
    assert time.monotonic() - begun < 10


def test_mail_and_its_shares_outlive_the_server_and_members_go_on(place):
    with place.serve(mails=3) as server:
        north = place.of("north", server)
        for number in range(3):
            north.put("aggregator", b"%d" % number)
    (part,) = (
        each for each in (place.folder / "mail").glob("*/*.eve") if digest(b"1") in str(each)
    )
    part.write_bytes(b"")  # as a power cut leaves it: its sender puts it again
    with place.serve(port=server.port, mails=3) as server:
        assert server.mailbox.take(0) == [b"0", b"2"]
        north.put("aggregator", b"1")
        assert refusal(north.put, "aggregator", b"3") == "mailbox-full"
        server.mailbox.forget([digest(b"0")])
        north.put("aggregator", b"3")
        assert server.mailbox.take(0) == [b"2", b"1", b"3"]


_SERVER = """
import sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from test_https_carrier import Place
with Place(Path(sys.argv[2]), made=True).serve() as server:
    print(server.port, flush=True)
    time.sleep(600)
"""


def test_a_killed_server_loses_nothing_that_it_took_in(place):
    sent, words = [], (str(Path(__file__).parent), str(place.folder))
    started = subprocess.Popen([sys.executable, "-c", _SERVER, *words], stdout=subprocess.PIPE)
    try:
        port = int(started.stdout.readline())
        south = HttpsMailbox(identity("south"), f"https://localhost:{port}#{place.pin}")

        def send():
            with contextlib.suppress(ProtocolError):
                while True:
                    data = os.urandom(40_000)
                    south.put("north", data)
                    sent.append(data)

        sending = threading.Thread(target=send)
        sending.start()
        while len(sent) < 20:
            time.sleep(0.01)
    finally:
        started.kill()
        started.communicate()
    sending.join()
    with place.serve() as server:
        there = place.of("north", server).take(0)
        assert there[: len(sent)] == sent
        assert len(there) <= len(sent) + 1  # one may lie there that was not acknowledged
        assert not list((place.folder / "mail/.tmp").iterdir())


# -- Who asks.


def test_only_members_whose_key_the_list_has_get_a_session(place):
    stranger = Members(names=("aggregator", "east"))
    other = Members(federation="00" * 32)
    with place.serve() as server:
        assert refusal(place.of("east", server, members=stranger).take, 0) == "not-a-member"
        assert refusal(place.of("north", server, members=other).take, 0) == "wrong-federation"
        assert refusal(place.of("north", server, key="south").take, 0) == "bad-identity"
        north, south = place.of("north", server), place.of("south", server)
        south.put("north", b"for north")
        assert north.take(0) == [b"for north"]
        assert refusal(north.put, "east", b"nobody") == "not-a-member"
        place.members.names.discard("north")
        assert refusal(north.take, 0) == "not-a-member"
        assert south.take(0) == []


def test_challenges_and_sessions_are_the_servers_own_and_end(place, monkeypatch):
    with place.serve() as server:
        north = place.of("north", server)
        token, seen = north._session(), []

        def asks(method, path, content=b"", token=""):
            return lambda: north._answer(method, path, content, token=token)

        def session(challenge, name="north", by="north"):
            text = what_is_signed("ab" * 32, name, challenge)
            words = ("ab" * 32, name.encode().hex(), challenge, signer(by).sign(text).hex())
            return asks("POST", "/session", "\n".join(words).encode())

        good = asks("GET", "/challenge")().decode()
        session(good)()
        assert refusal(session(good, name="south")) == "bad-identity"
        for place_ in (0, len(good) // 2, len(good) - 1):
            changed = good[:place_] + ("1" if good[place_] != "1" else "2") + good[place_ + 1 :]
            assert refusal(session(changed)) == "no-session"
        assert refusal(session(token)) == "no-session"  # one is not the other
        assert refusal(asks("POST", "/take", b"", good)) == "no-session"
        for shown in ("x", token[:-1], token.replace("6e6f727468", "736f757468")):
            assert refusal(asks("POST", "/take", b"", shown)) == "no-session"
        for words in (b"", b"a\nb\nc", b"\xff" * 100):
            assert refusal(asks("POST", "/session", words)) == "malformed"
        assert refusal(asks("POST", "/session", b"x" * 2000)) in ("too-large", "no-mailbox")
        for wait in ("nan", "inf", "-1", "1e999", "x"):
            threading.Timer(0.2, server.mailbox.put, ("north", wait.encode())).start()
            call = asks("POST", f"/take?wait={wait}", b"\n" + " ".join(seen).encode(), token)
            if wait == "x":
                assert refusal(call) == "malformed"
            else:
                assert call()[8:] == wait.encode()
                seen.append(digest(wait.encode()))
        time.sleep(0.3)
        assert north.take(0) != []
        later = time.monotonic() + 40
        monkeypatch.setattr("eigenveil.network.carriers.serving.time.monotonic", lambda: later)
        assert refusal(session(good)) == "no-session"
        later += 4000
        assert refusal(asks("POST", "/take", b"\n", token)) == "no-session"
        assert len(north.take(0)) == 5  # it shows itself anew


def test_a_member_takes_no_more_than_its_share(place):
    with place.serve(bytes=3000, envelope=2000, connections=2) as server:
        north, south = place.of("north", server), place.of("south", server)
        assert refusal(north.put, "aggregator", b"x" * 2001) == "too-large"
        north._largest = 1 << 20  # a member that does not look first
        assert refusal(north.put, "aggregator", b"x" * 2001) == "too-large"
        north.put("aggregator", b"x" * 2000)
        assert refusal(north.put, "south", b"y" * 2000) == "mailbox-full"
        north.put("south", b"z" * 900)
        south.put("aggregator", b"y" * 2000)
        others = [place.of("north", server) for _ in range(2)]
        assert others[0].take(0) == []
        assert refusal(others[1].take, 0) == "mailbox-full"
        assert south.take(0) == [b"z" * 900]
        server.mailbox.forget([digest(b"x" * 2000)])
        assert not list((place.folder / "mail/.tmp").iterdir())


# -- Strangers.


def tls(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), 10))
    found.settimeout(10)
    return found


def is_closed(found):
    try:
        while found.recv(1000):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    "words",
    [
        None,  # no handshake
        b"",
        b"POST /take HTTP/1.1\r\nhost: x\r\n",
        b"POST /session HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\nabc",
        b"GET /challenge HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_what_strangers_half_send_is_cut_off_and_members_are_served(place, words):
    with place.serve(head=0.5, address=20) as server:
        held = []
        for _ in range(40):  # twice as many as one address may have
            with contextlib.suppress(OSError):
                if words is None:
                    held.append(socket.create_connection(("127.0.0.1", server.port), 10))
                    held[-1].settimeout(10)
                else:
                    held.append(tls(server))
                    held[-1].sendall(words)
        begun = time.monotonic()
        assert all(map(is_closed, held))
        assert time.monotonic() - begun < 5
        while server._guests._all:
            assert time.monotonic() - begun < 8
            time.sleep(0.05)
        assert place.of("north", server).take(0) == []
        assert not server._guests._strangers
        assert not server._guests._addresses


def test_members_are_served_while_strangers_take_all_places(place):
    with place.serve(head=1.0, strangers=10) as server:
        north = place.of("north", server)
        north.take(0)
        held = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(200)]
        assert north.take(0) == []
        south = place.of("south", server)  # the oldest stranger gives way
        assert south.take(0) == []
        assert len(server._guests._strangers) <= 11
        for each in held:
            each.close()


def test_garbage_is_refused_and_leaves_nothing(place):
    requests = (
        os.urandom(3000),
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 4000,
        b"POST /session HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n" + b"x" * 9000,
        b"PUT /mail/north HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"fff\r\n" + b"x" * 4095,
        b"PUT /mail/..%2f..%2fetc HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        b"GET /challenge HTTP/1.1\r\nhost: x\r\n\r\n" * 20,
        b"POST /take?wait=nan HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a:b:c\r\n\r\n",
    )  # fmt: skip
    with place.serve(head=0.5) as server:

        def garbage(number):
            with contextlib.suppress(OSError), tls(server) as found:
                found.sendall(requests[number % len(requests)])
                while found.recv(65536):
                    pass

        begun, sizes = time.monotonic(), []
        for _ in range(3):
            with ThreadPoolExecutor(14) as pool:
                list(pool.map(garbage, range(70)))
            gc.collect()
            sizes.append(len(gc.get_objects()))
        assert sizes[2] - sizes[1] < 200  # .96 MB for ever a request, once
        while server._guests._all:
            assert time.monotonic() - begun < 60
            time.sleep(0.05)
        assert not list((place.folder / "mail").glob("*/*"))
        assert place.of("north", server).take(0) == []


# -- What is in between.


class Page(http.server.BaseHTTPRequestHandler):
    """A proxy or another server: a page of HTML, or a refusal to connect."""

    def do_GET(self):
        self.send_response(self.server.status)
        self.send_header("content-type", "text/html")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"<html>Please sign in</html>" * 1000)

    do_POST = do_PUT = do_GET  # noqa: N815

    def do_CONNECT(self):
        self.server.asked.append(self.path)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        host, _, port = self.path.rpartition(":")
        self.send_response(200)
        self.end_headers()
        with socket.create_connection((host, int(port))) as there:
            back = threading.Thread(target=self.carry, args=(there, self.connection), daemon=True)
            back.start()
            self.carry(self.connection, there)
        self.close_connection = True

    @staticmethod
    def carry(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def page(status, context=None):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.status, server.asked, server.daemon_threads = status, [], True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_proxy_that_is_set_is_used_and_its_refusals_are_said(place, monkeypatch):
    with place.serve() as server:
        with page(200) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_port}")
            north = place.of("north", server)
            server.mailbox.put("north", b"through")
            assert north.take(0) == [b"through"]
            north.close()
            assert proxy.asked == [f"localhost:{server.port}"]
            for status in (407, 502):
                proxy.status = status
                assert refusal(place.of("north", server).take, 0) == "proxy-refused"
        assert refusal(place.of("north", server).take, 0) == "no-mailbox"
        for proxy in ("ftp://127.0.0.1:1", "http://[::1"):
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            assert refusal(place.of, "north", server) == "proxy-refused"


@pytest.mark.parametrize(
    ("host", "years", "code"),
    [("localhost", 0, ""), ("example.org", 0, "bad-tls"), ("localhost", -20, "bad-tls")],
)
def test_an_organisations_certificate_is_checked_by_the_file_of_authorities(
    place, monkeypatch, host, years, code
):
    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time() + 31_536_000 * years, tz)

    with monkeypatch.context() as patched:
        patched.setattr("datetime.datetime", Then)
        make_tls(place.folder, host)
    ca = str(place.folder / "tls.crt")
    with place.serve() as server:
        where = f"https://localhost:{server.port}"
        boxes = [HttpsMailbox(identity("north"), where, ca=ca)]
        with monkeypatch.context() as patched:
            patched.setenv("SSL_CERT_FILE", ca)
            boxes.append(HttpsMailbox(identity("north"), where))
        for box in boxes:
            if code:
                assert refusal(box.take, 0) == code
            else:
                assert box.take(0) == []
        assert refusal(HttpsMailbox(identity("north"), where).take, 0) == "bad-tls"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_other_thing_that_answers_has_its_line(place, tmp_path):
    with place.serve() as server:
        pin = place.pin
        where = place.address(server)
        place.pin = make_tls(tmp_path / "other", "localhost")
        assert refusal(place.of("north", server).take, 0) == "other-pin"
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port)) as found:
            old.wrap_socket(found)
        with pytest.raises(EigenveilError) as caught:
            place.serve(port=server.port)
        assert caught.value.code == "cannot-listen"
    place.pin = pin
    down = HttpsMailbox(identity("north"), where)
    assert refusal(down.take, 0) == "no-mailbox"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.folder / "tls.crt", place.folder / "tls.key")
    for status in (200, 302, 404, 502):
        with page(status, context) as web:
            box = HttpsMailbox(identity("north"), f"https://localhost:{web.server_port}#{pin}")
            assert refusal(box.take, 0) == "not-a-mailbox"
    with page(200) as web:  # no TLS there
        box = HttpsMailbox(identity("north"), f"https://localhost:{web.server_port}#{pin}")
        assert refusal(box.take, 0) == "not-a-mailbox"
    for address in (
        "http://localhost:1",
        "https://",
        "https://host:99999",
        "https://host#sha256=00",
        "https://host#ab",
        "https://user:word@host",
    ):
        assert refusal(parse, address) == "bad-mailbox-address"
