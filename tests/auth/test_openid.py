"""The authorization code flow: what is sent to an issuer, and which of its answers are refused."""

import json
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.oauth import DocumentURL, readURL
from storagegate.auth.openid import IssuerUnavailable, OpenIDClient, SignInAttempt, SignInError
from storagegate.net.http.clientconnection import HTTPClientError
from tests.support.tokens import ISSUER, claims, forged, jwks, rsaKey, signed

CLIENT = "console"

ATTEMPT = SignInAttempt("state", "nonce", "verifier" * 8, "https://s3.example.com/console/")

METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}authorize",
    "token_endpoint": f"{ISSUER}token",
    "jwks_uri": f"{ISSUER}jwks",
}


class FakeIssuer:
    """
    The requests to an issuer.

    @ivar answer: The status and the document of the token endpoint.
    @ivar isAway: Whether it cannot be reached.
    @ivar sent: The header fields and the form of the last request for a token.
    """

    def __init__(self, **metadata: Any) -> None:
        self.metadata = {**METADATA, **metadata}
        self.answer: tuple[int, Any] = (200, {})
        self.userinfo: Any = {}
        self.isAway = False
        self.sent: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    async def fetch(self, url: DocumentURL) -> bytes:
        """Return the metadata or the keys."""
        if self.isAway:
            raise HTTPClientError("refused the connection")
        if url.text.endswith("/jwks"):
            return jwks(rsaKey())
        return json.dumps(self.metadata).encode()

    async def send(
        self, url: DocumentURL, fields: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Answer a request of the client."""
        if self.isAway:
            raise HTTPClientError("refused the connection")
        if form is None:
            return 200, json.dumps(self.userinfo).encode()
        self.sent = fields, form
        status, document = self.answer
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return status, body


class OpenIDClientTests(SynchronousTestCase):
    """A client of an issuer."""

    def setUp(self) -> None:
        """Have an issuer, and a client with a secret."""
        self.use(FakeIssuer())

    def use(self, issuer: FakeIssuer, secret: str = "a:b c") -> None:
        """Use another issuer."""
        self.issuer = issuer
        self.client = OpenIDClient(
            readURL(ISSUER), CLIENT, secret, ("openid", "email"), issuer, time.monotonic
        )

    def token(self, **more: Any) -> str:
        """Sign an ID token that is valid but for these claims."""
        given = claims(**{"aud": CLIENT, "nonce": ATTEMPT.nonce, **more})
        return signed(rsaKey(), "RS256", given, kid="rsa")

    def redeem(self, token: Any = None, iss: str = "", **more: Any) -> dict[str, Any]:
        """Redeem a code for an ID token."""
        if token is not None:
            self.issuer.answer = (200, {"id_token": token, **more})
        coroutine = self.client.redeem(ATTEMPT, "code", iss)
        found: dict[str, Any] = self.successResultOf(Deferred.fromCoroutine(coroutine))
        return found

    def refusal(self, token: Any = None, iss: str = "", **more: Any) -> str:
        """Return the reason of a refusal."""
        if token is not None:
            self.issuer.answer = (200, {"id_token": token, **more})
        coroutine = self.client.redeem(ATTEMPT, "code", iss)
        failure = self.failureResultOf(Deferred.fromCoroutine(coroutine), SignInError)
        return str(failure.value)

    def authorization(self) -> str:
        """Return the URL of the issuer."""
        coroutine = self.client.authorizationURL(ATTEMPT)
        found: str = self.successResultOf(Deferred.fromCoroutine(coroutine))
        return found

    def test_authorizationURL(self) -> None:
        """The URL has the challenge of the verifier, but not the verifier."""
        url = self.authorization()
        challenge = urlsafe_b64encode(sha256(ATTEMPT.verifier.encode()).digest()).decode()
        self.assertEqual(
            parse_qs(urlsplit(url).query),
            {
                "response_type": ["code"],
                "client_id": [CLIENT],
                "redirect_uri": [ATTEMPT.redirectURL],
                "scope": ["openid email"],
                "state": ["state"],
                "nonce": ["nonce"],
                "code_challenge": [challenge.rstrip("=")],
                "code_challenge_method": ["S256"],
            },
        )
        self.assertNotIn(ATTEMPT.verifier, url)

    def test_redeem(self) -> None:
        """The code is sent with the verifier and the credentials of the client."""
        self.assertEqual(self.redeem(self.token())["sub"], "ann")
        fields, form = self.issuer.sent
        self.assertEqual((form["code"], form["code_verifier"]), ("code", ATTEMPT.verifier))
        self.assertEqual(form["redirect_uri"], ATTEMPT.redirectURL)
        self.assertNotIn("client_secret", form)
        kind, _, pair = fields["Authorization"].partition(" ")
        self.assertEqual((kind, b64decode(pair)), ("Basic", b"console:a%3Ab+c"))

    def test_secretInForm(self) -> None:
        """The secret is in the form if the issuer knows nothing else; a public client has none."""
        methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        self.use(FakeIssuer(**methods))
        self.redeem(self.token())
        fields, form = self.issuer.sent
        self.assertEqual((form["client_secret"], "Authorization" in fields), ("a:b c", False))
        self.use(FakeIssuer(**methods), "")
        self.redeem(self.token())
        self.assertNotIn("client_secret", self.issuer.sent[1])

    def test_invalidTokens(self) -> None:
        """An ID token of another sign-in, issuer, client or time, or without a key, is refused."""
        other = signed(rsaKey("other"), "RS256", claims(aud=CLIENT, nonce=ATTEMPT.nonce), kid="rsa")
        for token, reason in (
            (self.token(nonce="another"), "nonce"),
            (self.token(nonce=None), "nonce"),
            (self.token(iss="https://evil.example/"), "another issuer"),
            (self.token(aud="other"), "InvalidAudience"),
            (self.token(aud=[CLIENT, "other"]), "azp"),
            (self.token(azp="other"), "azp"),
            (self.token(exp=int(time.time()) - 60), "Expired"),
            (self.token(exp=None), "Missing"),
            (self.token(sub=None), "sub"),
            (self.token(sub="a" * 256), "sub"),
            (self.token(sub="ann\n"), "sub"),
            (other, "InvalidSignature"),
            (forged({"alg": "none"}, claims(aud=CLIENT, nonce=ATTEMPT.nonce)), "no algorithm"),
            ("x.y.z", ""),
        ):
            text = self.refusal(token)
            self.assertTrue(text.startswith("The ID token of the issuer is invalid: "), text)
            self.assertIn(reason, text)
        self.assertEqual(self.redeem(self.token(aud=[CLIENT, "x"], azp=CLIENT))["sub"], "ann")

    def test_refusedCode(self) -> None:
        """The error of the issuer is one line of limited length; other answers are refused."""
        self.issuer.answer = (
            400,
            {"error": "invalid_grant", "error_description": "used\r\nbefore" + "x" * 1000},
        )
        text = self.refusal()
        self.assertTrue(text.startswith("The issuer refused the code: invalid_grant: used  bef"))
        self.assertLess(len(text), 400)
        self.issuer.answer = (200, {"access_token": "x"})
        self.assertIn("no ID token", self.refusal())
        for body in (b"<html>", b"[" * 100_000, b"[]"):
            self.issuer.answer = (502, body)
            self.assertIn("answered 502 without a JSON document", self.refusal())

    def test_mixUp(self) -> None:
        """A response that names another issuer, or none though it should, is refused (RFC 9207)."""
        self.assertEqual(self.redeem(self.token(), ISSUER)["sub"], "ann")
        self.assertIn("another issuer", self.refusal(self.token(), "https://evil.example/"))
        self.use(FakeIssuer(authorization_response_iss_parameter_supported=True))
        self.assertIn("another issuer", self.refusal(self.token()))
        self.assertEqual(self.redeem(self.token(), ISSUER)["sub"], "ann")

    def test_userinfo(self) -> None:
        """Claims of the userinfo endpoint are added, but not those of another person."""
        self.use(FakeIssuer(userinfo_endpoint=f"{ISSUER}userinfo"))
        self.issuer.userinfo = {"sub": "ann", "groups": ["a"], "email": "x@example.com"}
        found = self.redeem(self.token(email="ann@example.com"), access_token="t")
        self.assertEqual((found["groups"], found["email"]), (["a"], "ann@example.com"))
        self.issuer.userinfo = {"sub": "bob", "groups": ["a"]}
        self.assertNotIn("groups", self.redeem(self.token(), access_token="t"))

    def test_away(self) -> None:
        """An issuer that cannot be reached is tried again with the next sign-in."""
        self.issuer.isAway = True
        coroutine = self.client.authorizationURL(ATTEMPT)
        failure = self.failureResultOf(Deferred.fromCoroutine(coroutine), IssuerUnavailable)
        self.assertIn("The issuer cannot be reached", str(failure.value))
        self.issuer.isAway = False
        self.authorization()
        self.issuer.isAway = True
        self.assertIn("cannot be reached", self.refusal(self.token()))

    def test_slow(self) -> None:
        """Sign-ins that wait for an issuer share its failure, and the next one tries again."""
        fetches: list[Deferred[bytes]] = []

        def fetch(url: DocumentURL) -> Deferred[bytes]:
            fetches.append(Deferred())
            return fetches[-1]

        self.patch(self.issuer, "fetch", fetch)
        made = [Deferred.fromCoroutine(self.client.authorizationURL(ATTEMPT)) for _ in range(5)]
        fetches[0].errback(HTTPClientError("no answer in 10 seconds"))
        for each in made:
            self.failureResultOf(each, IssuerUnavailable)
        self.assertEqual(len(fetches), 1)
        again = Deferred.fromCoroutine(self.client.authorizationURL(ATTEMPT))
        fetches[1].callback(json.dumps(METADATA).encode())
        self.assertIn("code_challenge", self.successResultOf(again))

    def test_metadata(self) -> None:
        """The metadata must be the issuer's, and its endpoints must have TLS."""
        for wrong in (
            {"issuer": "https://evil.example/"},
            {"authorization_endpoint": "javascript:alert(1)"},
            {"token_endpoint": "http://127.0.0.1/token"},
            {"token_endpoint": None},
        ):
            self.use(FakeIssuer(**wrong))
            coroutine = self.client.authorizationURL(ATTEMPT)
            self.failureResultOf(Deferred.fromCoroutine(coroutine), IssuerUnavailable)
