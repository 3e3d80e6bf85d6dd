"""Sign-in by OpenID Connect, against a small provider on no network at all."""

import base64
import hashlib
import json
import time
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from console_tools import Visitor
from joserfc import jwt
from joserfc.jwk import RSAKey

from eigenveil.console.oidc import Provider
from eigenveil.console.settings import Issuer

ISSUER = "https://login.example.org"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})


class FakeProvider:
    """Answers as a provider does; ``change`` changes the claims, ``key`` signs them."""

    def __init__(self):
        self.issued, self.key, self.change = {}, KEY, {}

    def signed_in(self, address):
        """What a person who signs in there brings back."""
        query = {name: each[0] for name, each in parse_qs(urlsplit(address).query).items()}
        self.issued["code-1"] = query
        return {"state": query["state"], "code": "code-1"}

    def __call__(self, request):
        path = request.url.path
        if path.endswith("openid-configuration"):
            return self._json(
                issuer=ISSUER,
                authorization_endpoint=f"{ISSUER}/authorize",
                token_endpoint=f"{ISSUER}/token",
                jwks_uri=f"{ISSUER}/keys",
            )
        if path == "/keys":
            return self._json(keys=[KEY.as_dict(private=False)])
        form = {name: each[0] for name, each in parse_qs(request.content.decode()).items()}
        asked = self.issued.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": "console",
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            "email": "ann@example.org",
            "email_verified": True,
        } | self.change
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)
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
def visitor(tmp_path, fake):
    issuer = Issuer(ISSUER, "console", "secret", "http://127.0.0.1:8450")
    provider = Provider(issuer, transport=httpx.MockTransport(fake))
    found = Visitor(tmp_path, provider=provider, issuer=issuer)
    found.console.accounts.add("ann@example.org", "viewer", None)
    return found


def begin(visitor, fake):
    answer = visitor.client.get("/sign-in/provider")
    assert answer.headers["location"].startswith(f"{ISSUER}/authorize?")
    assert "code_challenge_method=S256" in answer.headers["location"]
    return fake.signed_in(answer.headers["location"])


def test_whom_the_provider_knows_signs_in_and_has_the_role_of_here(visitor, fake):
    assert "Sign in with your organisation" in visitor.client.get("/sign-in").text
    answer = visitor.client.get("/sign-in/callback", params=begin(visitor, fake))
    assert answer.status_code == 200
    assert visitor.client.get("/table").status_code == 200
    assert visitor.client.get("/fit").status_code == 403  # a viewer


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["console", "another"]},
        {"exp": 1},
        {"iat": 9e9},
        {"nonce": "old"},
        {"email_verified": False},
        {"email": None},
        {"email": "eve@example.org"},
    ],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(visitor, fake, change):
    fake.change = change
    answer = visitor.client.get("/sign-in/callback", params=begin(visitor, fake))
    assert answer.status_code == 400
    assert visitor.client.get("/table").status_code == 303
    assert any(each.startswith("refused") for each in visitor.logged())


def test_a_token_of_another_key_and_a_return_that_was_not_begun_are_refused(visitor, fake):
    fake.key = OTHER
    assert visitor.client.get("/sign-in/callback", params=begin(visitor, fake)).status_code == 400
    fake.key = KEY
    back = begin(visitor, fake)
    other = visitor.browser()
    assert other.get("/sign-in/callback", params=back).status_code == 400
    wrong = back | {"state": "other"}
    assert visitor.client.get("/sign-in/callback", params=wrong).status_code == 400


def test_an_account_with_a_password_is_not_opened_by_a_provider(visitor, fake):
    visitor.add("bob@example.org", "owner")
    fake.change = {"email": "bob@example.org"}
    answer = visitor.client.get("/sign-in/callback", params=begin(visitor, fake))
    assert answer.status_code == 400
    assert "no account" in answer.text
