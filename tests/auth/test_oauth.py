"""The provider C{oauth}: its options, and the tokens of an issuer."""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.authentication import readAuthentication
from storagegate.auth.jwt import ASYMMETRIC
from storagegate.auth.oauth import (
    COOLDOWN_SECONDS,
    DocumentURL,
    OAuthProvider,
    readOAuth,
)
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError
from storagegate.gateway.transports.registry import defaultRules
from tests.support.tokens import (
    AUDIENCE,
    ISSUER,
    SECRET,
    claims,
    ecKey,
    edKey,
    forged,
    jwks,
    makeContext,
    part,
    publicPEM,
    rsaKey,
    settled,
    signed,
)

OPTIONS = {"issuer": ISSUER, "audience": AUDIENCE}


class OptionTests(SynchronousTestCase):
    """What is read."""

    def read(self, **given: Any) -> Any:
        """Read the options, these ones changed."""
        return readAuthentication(
            {"providers": {"oauth": {**OPTIONS, **given}}}, defaultRules()
        ).providers["oauth"]

    def test_read(self) -> None:
        """Issuer and audience are enough."""
        provider = self.read()
        self.assertIsInstance(provider, OAuthProvider)
        self.assertEqual(provider.issuer, ISSUER)

    def test_required(self) -> None:
        """Without an audience, tokens for any other service would be good: it has to be said."""
        for missing in ("issuer", "audience"):
            given = {name: value for name, value in OPTIONS.items() if name != missing}
            error = self.assertRaises(OptionError, readOAuth, given)
            self.assertEqual(
                str(error), f"the option authentication.providers.oauth.{missing} is missing"
            )
        self.assertRaises(OptionError, readOAuth, ISSUER)

    def test_bad(self) -> None:
        """What is none, or is not safe, is named."""
        for name, values in {
            "issuer": (
                "login.example.com",
                "http://login.example.com",
                "ftp://x/",
                "",
                5,
                None,
                ISSUER + "?a=b",
                ISSUER + "#a",
                "https://user@login.example.com/",
            ),
            "audience": ("", [], None, 5),
            "algorithms": (["HS256"], ["none"], [], "RS256", ["RS256", "HS256"]),
            "leeway": (-1, 301),
            "jwksUri": ("http://login.example.com/keys", "file:///keys", 5),
            "extractToken": ("x", {"ftp": print}),
            "jwksUrl": ("",),
        }.items():
            for value in values:
                error = self.assertRaises(OptionError, self.read, **{name: value})
                self.assertIn(f"authentication.providers.oauth.{name}", str(error))

    def test_thisMachine(self) -> None:
        """An issuer on this machine may do without TLS."""
        for host in ("localhost:8080", "127.0.0.1", "[::1]:9000", "127.9.9.9"):
            self.assertEqual(self.read(issuer=f"http://{host}/").issuer, f"http://{host}/")


class TokenTests(SynchronousTestCase):
    """The tokens of an issuer."""

    def setUp(self) -> None:
        """Make an issuer, and who knows its tokens."""
        self.clock = Clock()
        self.fetched: list[str] = []
        self.published = jwks(rsaKey(), ecKey(), edKey())
        self.authentication = self.make()

    def make(self, **more: Any) -> Any:
        """Make authentication by the issuer's tokens, and by others."""

        def oauth(given: Any) -> OAuthProvider:
            return readOAuth(given, self.fetch, self.clock.seconds)

        jwt = {"secret": SECRET, "issuer": "me"}
        config = {"providers": {"oauth": {**OPTIONS, **more}, "jwt": jwt}}
        return readAuthentication(config, defaultRules(), oauth)

    async def fetch(self, url: DocumentURL) -> bytes:
        """Give a document of the issuer."""
        self.fetched.append(url.text)
        if not self.published:
            raise OSError("away")
        if url.text.endswith("keys"):
            return self.published
        return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}keys"}).encode()

    def user(self, token: str) -> Any:
        """Find out whose a token is."""
        return settled(self.authentication.authenticate(makeContext(), CallCredentials(token)))

    def refused(self, token: str) -> None:
        """A token is refused."""
        error = self.assertRaises(ServiceError, self.user, token)
        self.assertEqual((error.code, error.message), ("UNAUTHENTICATED", "Invalid token"))

    def test_good(self) -> None:
        """What the issuer has signed is good, with each kind of key; the user is the claims."""
        for key, algorithms in (
            (rsaKey(), ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
            (ecKey(), ("ES256",)),
            (edKey(), ("EdDSA",)),
        ):
            for algorithm in algorithms:
                given = claims(scope=algorithm)
                self.assertEqual(self.user(signed(key, algorithm, given, kid=key.kid)), given)
        self.assertEqual(len(self.fetched), 2)

    def test_atOnce(self) -> None:
        """When the keys are in the cache, no call waits."""
        token = signed(rsaKey(), "RS256", kid="rsa")
        self.user(token)
        user = self.authentication.authenticate(makeContext(), CallCredentials(token))
        self.assertEqual(user["sub"], "ann")

    def test_beside(self) -> None:
        """Tokens with a configured key are known beside it."""
        self.assertEqual(self.user(signed(given=claims(iss="me", sub="bob")))["sub"], "bob")
        self.assertEqual(self.fetched, [])

    def test_secretOfOther(self) -> None:
        """Who knows the configured secret cannot speak for the issuer, nor the other way round."""
        self.refused(signed(given=claims()))
        self.refused(signed(rsaKey(), "RS256", claims(iss="me"), kid="rsa"))

    def test_claims(self) -> None:
        """Issuer, audience and end are always checked."""
        for wrong in (
            {"aud": None},
            {"aud": "other"},
            {"exp": None},
            {"exp": 1000},
            {"nbf": 1 << 40},
            {"iss": None},
            {"iss": ISSUER[:-1]},
            {"iss": ISSUER + "x"},
        ):
            self.refused(signed(rsaKey(), "RS256", claims(**wrong), kid="rsa"))

    def test_claimsAlone(self) -> None:
        """They are checked as well where there is no other provider to leave a token to."""
        oauth = self.authentication.providers["oauth"]
        for issuer in ("me", ISSUER[:-1], None):
            token = signed(rsaKey(), "RS256", claims(iss=issuer), kid="rsa")
            self.assertRaises(ValueError, oauth.verify, token, makeContext())
        self.assertEqual(self.fetched, [])

    def test_forged(self) -> None:
        """A token of another key is refused, whatever its header says of keys."""
        evil = rsaKey("evil")
        public = evil.as_dict(private=False)
        for header in (
            {"kid": "rsa"},
            {"kid": "rsa", "jwk": public},
            {"kid": "rsa", "jku": "https://evil.example/jwks.json"},
            {"kid": "rsa", "x5u": "https://evil.example/cert.pem"},
            {"jwk": public},
            {"kid": "evil", "jwk": public},
        ):
            self.refused(signed(evil, "RS256", None, **header))
        self.assertEqual({url for url in self.fetched if not url.startswith(ISSUER)}, set())

    def test_confusion(self) -> None:
        """A published key is no secret, and no signature is none."""
        pem = publicPEM(rsaKey())
        for algorithm in ("HS256", "none", "None", "nOnE", None, 5, ["RS256"], {}):
            self.refused(forged({"alg": algorithm, "kid": "rsa"}, None, pem.encode()))
            self.refused(forged({"alg": algorithm, "kid": "rsa"}))
        self.assertEqual(self.fetched, [])

    def test_otherKind(self) -> None:
        """A key is asked about its own algorithms only."""
        token = signed(ecKey(), "ES256", None, kid="rsa")
        self.refused(token)

    def test_algorithms(self) -> None:
        """What the issuer has signed with an algorithm that is not configured is refused."""
        self.authentication = self.make(algorithms=["ES256"])
        self.user(signed(ecKey(), "ES256", kid="ec"))
        self.refused(signed(rsaKey(), "RS256", kid="rsa"))
        self.assertIn("RS256", ASYMMETRIC)

    def test_names(self) -> None:
        """Names of keys that are none are refused; a thousand are fetched for once."""
        self.user(signed(rsaKey(), "RS256", kid="rsa"))
        self.clock.advance(COOLDOWN_SECONDS)
        for number in range(1000):
            token = forged({"alg": "RS256", "kid": f"'; DROP {number}"}, None, b"x" * 256)
            self.refused(token)
        self.assertEqual(len(self.fetched), 4)
        for kid in (5, [], {"rsa": 1}, True):
            self.refused(forged({"alg": "RS256", "kid": kid}, None, b"x" * 256))

    def test_unnamed(self) -> None:
        """A token that names no key is checked with the only one that it can mean."""
        self.assertEqual(self.user(signed(rsaKey(), "RS256"))["sub"], "ann")

    def test_withdrawn(self) -> None:
        """A token that was good is bad when its key has gone."""
        token = signed(rsaKey(), "RS256", kid="rsa")
        self.user(token)
        self.published = jwks(ecKey())
        self.clock.advance(600)
        self.refused(token)

    def test_away(self) -> None:
        """While the issuer cannot be reached, a token is neither valid nor invalid."""
        self.published = b""
        token = signed(rsaKey(), "RS256", kid="rsa")
        error = self.assertRaises(ServiceError, self.user, token)
        self.assertEqual(error.code, "UNAVAILABLE")

    def test_unreadable(self) -> None:
        """Headers that cannot be read are refused."""
        for header in (b"[" * 3000, b"{", b"[]", b"\xff"):
            head = part(b'{"a":' + header)
            self.refused(f"{head}.{part(claims())}.{part(b'x')}")

    def test_extract(self) -> None:
        """The user's own function finds the token."""
        self.authentication = self.make(extractToken=lambda native: native["cookie"])
        token = signed(rsaKey(), "RS256", kid="rsa")
        credentials = CallCredentials(None, None, {"cookie": token})
        user = settled(self.authentication.authenticate(makeContext(), credentials))
        self.assertEqual(user["sub"], "ann")
