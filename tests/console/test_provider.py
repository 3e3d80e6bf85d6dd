"""Sign-in by OpenID Connect, against a small provider on no network at all."""

import base64
import hashlib
import json
import time
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from console_tools import ADDRESS, PEOPLE, Visitor
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from eigenveil.console.door import ProviderDoor
from eigenveil.console.provider import Provider
from eigenveil.console.settings import Issuer, Settings

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
    tied = browser.get("/sign-in/provider/").headers["set-cookie"].lower()
    # lax: the provider's redirect must bring it back
    assert all(each in tied for each in ("httponly", "samesite=lax", "secure", "max-age=600"))
    fake.change = {"email": "vic"}
    assert comes_back(browser, fake).status_code == 200
    assert browser.get("/table").status_code == 200
    assert browser.get("/runs/of-nobody/derive").status_code == 403


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
