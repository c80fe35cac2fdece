"""The configuration of authentication: what is wrong in it, or not safe, is said at once."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.authentication import readAuthentication
from storagegate.auth.jwt import JWTProvider
from storagegate.core.options import OptionError
from storagegate.gateway.transports.registry import defaultRules
from tests.support.tokens import SECRET, ecKey, edKey, publicPEM, rsaKey

RULES = defaultRules()

SECP256K1 = """-----BEGIN PUBLIC KEY-----
MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEB5fU79/rkQMpghc37UL35MxXnmMbMrlx
XhbFnl46lUeJznZdxoT5ubSMEoeQylA3GQyFZzFpje3dFSllTXTO4Q==
-----END PUBLIC KEY-----
"""


class ReadingTests(SynchronousTestCase):
    """What is read."""

    def refused(self, config: Any, words: str) -> None:
        """Read what is none; the error has the words."""
        error = self.assertRaises(OptionError, readAuthentication, config, RULES)
        self.assertIn(words, str(error))

    def test_unknown(self) -> None:
        """An option that there is not is named."""
        for config, name in (
            ({"provider": {}}, "authentication.provider;"),
            ({"providers": {"saml": {}}}, "authentication.providers.saml;"),
            ({"providers": {"oauth": {}}}, "authentication.providers.oauth.issuer is missing"),
            ({"providers": {"jwt": {"sekret": ""}}}, "authentication.providers.jwt.sekret;"),
            ({"providers": {"apikey": {"heder": ""}}}, "authentication.providers.apikey.heder;"),
            ({"rules": {"ftp": []}}, "authentication.rules.ftp"),
            ({"rules": {"http": ["basic"]}}, "'basic'"),
        ):
            self.refused(config, name)

    def test_kinds(self) -> None:
        """What is of the wrong kind is named."""
        for config, name in (
            ([], "authentication is"),
            ({"providers": []}, "authentication.providers is"),
            ({"providers": {"jwt": SECRET}}, "authentication.providers.jwt is"),
            ({"providers": {"apikey": print}}, "authentication.providers.apikey is"),
            ({"rules": []}, "authentication.rules is"),
            ({"rules": {"http": "jwt"}}, "authentication.rules.http is"),
        ):
            self.refused(config, name)

    def test_ruleWithoutProvider(self) -> None:
        """A rule that names a provider which is not configured is a mistake that is told."""
        self.refused({"rules": {"http": ["jwt"]}}, "no authentication.providers.jwt")
        self.refused({"rules": {"grpc": ["oauth"]}}, "no authentication.providers.oauth")
        # Services may have keys of their own.
        readAuthentication({"rules": {"http": ["apikey"]}}, RULES)

    def test_rules(self) -> None:
        """A transport that is not named keeps its rule; one with an empty list has no providers."""
        rules = readAuthentication({"rules": {"http": [], "tcp": ["apikey"]}}, RULES).rules
        self.assertEqual(rules["http"], ())
        self.assertEqual(rules["udp"], ("apikey",))

    def test_apikey(self) -> None:
        """API keys need a function that finds their users."""
        for given, name in (
            ({}, "apikey.validate is missing"),
            ({"validate": "find"}, "apikey.validate is a function"),
            ({"validate": lambda: None}, "apikey.validate is a function"),
            ({"validate": print, "header": "X Key"}, "apikey.header is"),
            ({"validate": print, "header": ""}, "apikey.header is"),
            ({"validate": print, "extractToken": "x"}, "apikey.extractToken is"),
        ):
            self.refused({"providers": {"apikey": given}}, name)


class JWTReadingTests(SynchronousTestCase):
    """The options of C{jwt}."""

    def read(self, **given: Any) -> JWTProvider:
        """Read them."""
        provider = readAuthentication({"providers": {"jwt": given}}, RULES).providers["jwt"]
        assert isinstance(provider, JWTProvider)
        return provider

    def refused(self, words: str, **given: Any) -> None:
        """Read what is none; the error has the words, and nothing of the secret."""
        error = self.assertRaises(OptionError, self.read, **given)
        self.assertIn(words, str(error))
        self.assertNotIn("hunter", str(error))

    def test_defaults(self) -> None:
        """Without algorithms there is one, that of the key."""
        self.assertEqual(self.read(secret=SECRET).algorithms, ("HS256",))
        for key, algorithm in (
            (rsaKey(), "RS256"),
            (ecKey(), "ES256"),
            (ecKey("384", "P-384"), "ES384"),
            (ecKey("521", "P-521"), "ES512"),
            (edKey(), "EdDSA"),
        ):
            self.assertEqual(self.read(publicKey=publicPEM(key)).algorithms, (algorithm,))

    def test_oneKey(self) -> None:
        """There is a secret or a public key, neither both nor none."""
        self.refused("either a secret or a publicKey")
        self.refused("either", secret=SECRET, publicKey=publicPEM(rsaKey()))

    def test_mixed(self) -> None:
        """Algorithms of secrets and of public keys do not go together."""
        for algorithms in (["HS256", "RS256"], ["ES256", "HS512"], ["HS384", "EdDSA"]):
            self.refused("jwt.algorithms mixes", secret=SECRET, algorithms=algorithms)
            key = publicPEM(rsaKey())
            self.refused("jwt.algorithms mixes", publicKey=key, algorithms=algorithms)

    def test_unfit(self) -> None:
        """Algorithms that the key is not for are refused: of secrets for public keys above all."""
        for key, algorithm in (
            (rsaKey(), "HS256"),
            (rsaKey(), "ES256"),
            (ecKey(), "RS256"),
            (ecKey(), "ES384"),
            (edKey(), "ES256"),
        ):
            given = {"publicKey": publicPEM(key), "algorithms": [algorithm]}
            self.refused(f"jwt.algorithms has {algorithm}", **given)
        self.refused("jwt.algorithms has RS256", secret=SECRET, algorithms=["RS256"])

    def test_unknownAlgorithms(self) -> None:
        """There is no algorithm none, however it is written."""
        for algorithm in ("none", "None", "nOnE", "", "hs256", "ES256K", 5, None, []):
            self.refused("jwt.algorithms has", secret=SECRET, algorithms=[algorithm])
        for algorithms in ([], "HS256", {}):
            self.refused("jwt.algorithms is", secret=SECRET, algorithms=algorithms)

    def test_weakSecret(self) -> None:
        """A secret is at least as long as its hash."""
        for algorithm, length in (("HS256", 32), ("HS384", 48), ("HS512", 64)):
            short = ("hunter2" * 10)[: length - 1]
            self.refused("jwt.secret is too short", secret=short, algorithms=[algorithm])
            self.read(secret="x" * length, algorithms=[algorithm])
        self.refused("jwt.secret is too short", secret="")
        # Characters do not count, bytes do.
        self.read(secret="\u20ac" * 11)

    def test_keyAsSecret(self) -> None:
        """A key in PEM or of SSH, which everybody may know, is no secret."""
        for key in (publicPEM(rsaKey()), publicPEM(ecKey()), "ssh-rsa " + "A" * 40):
            self.refused("a key in PEM is a publicKey", secret=key)

    def test_weakKey(self) -> None:
        """An RSA key has 2048 bits, and a curve is one that tokens are signed with."""
        self.refused("1024 bits", publicKey=publicPEM(rsaKey("weak", 1024)))
        self.refused("P-256", publicKey=SECP256K1)

    def test_badKey(self) -> None:
        """What is no public key is refused; so is a private one, which does not belong here."""
        private = bytes(rsaKey().as_pem(private=True)).decode()
        self.refused("its public half", publicKey=private)
        for key in ("", "hunter2", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
            self.refused("in PEM", publicKey=key)
        self.refused("in PEM", publicKey=5)

    def test_leeway(self) -> None:
        """Clocks may differ by up to five minutes, without a word by five seconds."""
        self.assertEqual(self.read(secret=SECRET).leeway, 5)
        self.assertEqual(self.read(secret=SECRET, leeway=300).leeway, 300)
        for leeway in (-1, 301, True, "5", float("nan"), float("inf")):
            self.refused("jwt.leeway is", secret=SECRET, leeway=leeway)

    def test_names(self) -> None:
        """Audience and issuer are text; an audience may be a list of it."""
        provider = self.read(secret=SECRET, audience=["a", "b"], issuer="me")
        self.assertEqual((provider.audience, provider.issuer), (("a", "b"), "me"))
        for audience in ("", [], [5], 5, {}):
            self.refused("jwt.audience is", secret=SECRET, audience=audience)
        for issuer in ("", 5, ["me"]):
            self.refused("jwt.issuer is", secret=SECRET, issuer=issuer)

    def test_extract(self) -> None:
        """Who finds the token is a plain function, or one for each wire."""

        async def later(native: Any) -> str:
            return ""

        for extract in ("field", later, {"ftp": print}, {"http": "x"}, {"http": later}):
            self.refused("jwt.extractToken is", secret=SECRET, extractToken=extract)

    def test_neverShown(self) -> None:
        """A provider that is written to a log does not tell its secret."""
        self.assertNotIn(SECRET, repr(self.read(secret=SECRET)))
