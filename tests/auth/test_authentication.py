"""Which provider decides about what a client sent, and what comes of it."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred, fail, succeed
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.authentication import Authentication, readAuthentication
from storagegate.auth.jwt import readJWT
from storagegate.auth.tokens import APIKeyProvider
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import CallCredentials
from storagegate.gateway.transports.registry import defaultRules
from tests.support.tokens import (
    ISSUER,
    SECRET,
    claims,
    forged,
    makeContext,
    part,
    rsaKey,
    settled,
    signed,
)

JWT = readJWT({"secret": SECRET})

DEFAULT_RULES = defaultRules()


class Recorder:
    """A provider that takes every token it is allowed to see; its user is its name."""

    def __init__(self, name: str, issuer: str | None = None) -> None:
        self.name = name
        self.issuer = issuer

    def recognises(self, context: Any, credentials: CallCredentials) -> str | None:
        """Give the token."""
        return credentials.token

    def verify(self, token: str, context: Any) -> Any:
        """Give the name."""
        return self.name


class AuthenticationCase(SynchronousTestCase):
    """What the cases of this file share."""

    def user(
        self,
        authentication: Authentication,
        credentials: CallCredentials,
        protocol: str = "http",
        methods: tuple[str, ...] = (),
        **headers: str,
    ) -> Any:
        """Authenticate, for the user."""
        context = makeContext(protocol, **headers)
        return settled(authentication.authenticate(context, credentials, methods))

    def refused(self, authentication: Authentication, *arguments: Any, **more: Any) -> None:
        """Authenticate; it is refused, and the reason is not revealed."""
        error = self.assertRaises(ServiceError, self.user, authentication, *arguments, **more)
        self.assertEqual((error.code, error.message), ("UNAUTHENTICATED", "Invalid token"))


class RuleTests(AuthenticationCase):
    """The rules of the wires."""

    def test_defaults(self) -> None:
        """Without rules a wire has the providers of the documentation, in their order."""
        self.assertEqual(
            dict(DEFAULT_RULES),
            {
                "http": ("jwt", "apikey", "oauth"),
                "websocket": ("jwt", "apikey"),
                "grpc": ("jwt", "apikey"),
                "udp": ("apikey",),
                "tcp": ("apikey",),
            },
        )
        self.assertEqual(readAuthentication({}, DEFAULT_RULES).rules, dict(DEFAULT_RULES))

    def test_order(self) -> None:
        """The first provider of the rule that recognises something decides."""
        providers = {"jwt": Recorder("jwt"), "apikey": Recorder("apikey")}
        for rule in (("jwt", "apikey"), ("apikey", "jwt")):
            authentication = Authentication(providers, {"tcp": rule})
            self.assertEqual(self.user(authentication, CallCredentials("x"), "tcp"), rule[0])

    def test_decides(self) -> None:
        """What one has recognised and refused, no other one is asked about."""
        authentication = readAuthentication(
            {
                "providers": {
                    "jwt": {"secret": SECRET},
                    "apikey": {"validate": lambda apiKey, context: "anybody"},
                }
            },
            DEFAULT_RULES,
        )
        bad = signed("another secret of thirty-two bytes or more")
        self.refused(authentication, CallCredentials(bad, "key"))
        self.assertEqual(
            self.user(authentication, CallCredentials(None, "key", hasFields=True)), "anybody"
        )

    def test_otherWire(self) -> None:
        """A provider that the rule of a transport does not name recognises no token there."""
        authentication = Authentication({"jwt": JWT}, {"tcp": ("apikey",)})
        self.assertIsNone(self.user(authentication, CallCredentials(signed()), "tcp"))
        self.assertIsNone(self.user(authentication, CallCredentials(signed()), "udp"))

    def test_methods(self) -> None:
        """A service's methods take providers away from the wire's, and add none."""
        authentication = Authentication({"jwt": JWT}, DEFAULT_RULES)
        credentials = CallCredentials(signed())
        self.assertEqual(self.user(authentication, credentials, methods=("jwt",))["sub"], "ann")
        self.assertIsNone(self.user(authentication, credentials, methods=("apikey",)))
        self.assertIsNone(self.user(authentication, credentials, "tcp", methods=("jwt",)))

    def test_nothing(self) -> None:
        """A call without credentials is anonymous, and that is no error."""
        authentication = Authentication({"jwt": JWT}, DEFAULT_RULES)
        for protocol in DEFAULT_RULES:
            self.assertIsNone(self.user(authentication, CallCredentials(), protocol))

    def test_ownKeys(self) -> None:
        """A service's own keys take the place of the API keys, for that service alone."""
        authentication = Authentication(
            {"apikey": APIKeyProvider(lambda apiKey, context: "all")}, DEFAULT_RULES
        )
        authentication.ownKeys["Storage"] = APIKeyProvider(lambda apiKey, context: "own")
        for service, user in (("Storage", "own"), ("Probe", "all")):
            context = makeContext("tcp", service)
            self.assertEqual(authentication.authenticate(context, CallCredentials("k")), user)


class IssuerTests(AuthenticationCase):
    """Two providers know JSON Web Tokens: the token's issuer says which one decides."""

    def setUp(self) -> None:
        """Make both."""
        self.providers = {"jwt": Recorder("jwt"), "oauth": Recorder("oauth", ISSUER)}
        self.own = CallCredentials(forged({"alg": "RS256"}, claims()))
        self.other = CallCredentials(forged({"alg": "RS256"}, claims(iss="me")))

    def test_both(self) -> None:
        """A token of the issuer goes to oauth, every other one to jwt, in whatever order."""
        for rule in (("jwt", "oauth"), ("oauth", "jwt")):
            authentication = Authentication(self.providers, {"http": rule})
            self.assertEqual(self.user(authentication, self.own), "oauth")
            self.assertEqual(self.user(authentication, self.other), "jwt")

    def test_alone(self) -> None:
        """Where only one may be used, it decides about all of them."""
        authentication = Authentication(self.providers, {"http": ("oauth", "jwt")})
        for name in ("jwt", "oauth"):
            for credentials in (self.own, self.other):
                user = self.user(authentication, credentials, methods=(name,))
                self.assertEqual(user, name)
        del self.providers["jwt"]
        authentication = Authentication(self.providers, {"http": ("oauth", "jwt")})
        self.assertEqual(self.user(authentication, self.other), "oauth")

    def test_unreadable(self) -> None:
        """Claims that cannot be read are of no issuer: jwt decides, which refuses them."""
        authentication = Authentication(self.providers, {"http": ("oauth", "jwt")})
        header = part({"alg": "RS256"})
        bodies = (b"[" * 4000, b"{", b"[]", b"\xff", b'{"iss": ["' + ISSUER.encode() + b'"]}')
        for body in bodies:
            token = f"{header}.{part(body)}."
            self.assertEqual(self.user(authentication, CallCredentials(token)), "jwt")


class OutcomeTests(AuthenticationCase):
    """What comes of a provider's answer."""

    def provider(self, validate: Any) -> Authentication:
        """Make authentication by a function."""
        return Authentication({"apikey": APIKeyProvider(validate)}, DEFAULT_RULES)

    def test_kinds(self) -> None:
        """A user may be there at once, or be waited for."""

        async def later(apiKey: str) -> str:
            return "ann"

        for validate in (lambda apiKey: "ann", later, lambda apiKey: succeed("ann")):
            self.assertEqual(self.user(self.provider(validate), CallCredentials("k"), "tcp"), "ann")

    def test_falsy(self) -> None:
        """A falsy user refuses the token, whether it was awaited or not."""
        for falsy in (None, False, "", {}, 0):
            for validate in (lambda apiKey, n=falsy: n, lambda apiKey, n=falsy: succeed(n)):
                self.refused(self.provider(validate), CallCredentials("k"), "tcp")

    def test_outage(self) -> None:
        """An error that is meant for callers reaches them."""

        def validate(apiKey: str) -> Any:
            raise codedError("UNAVAILABLE", "The keys are away")

        error = self.assertRaises(
            ServiceError, self.user, self.provider(validate), CallCredentials("k"), "tcp"
        )
        self.assertEqual(error.code, "UNAVAILABLE")

    def test_cancelled(self) -> None:
        """A call that is cancelled while it waits is cancelled, not refused."""
        waiting: Deferred[Any] = Deferred()
        authentication = self.provider(lambda apiKey: waiting)
        user = authentication.authenticate(makeContext("tcp"), CallCredentials("k"))
        call = ensureDeferred(user)
        call.cancel()
        self.failureResultOf(call, CancelledError)

    def test_neverLogged(self) -> None:
        """Of an exception that quotes the key, the log has the kind, loudly once."""

        def validate(apiKey: str) -> Any:
            raise KeyError(apiKey)

        authentications = (
            self.provider(validate),
            self.provider(lambda apiKey: fail(KeyError(apiKey))),
        )
        for authentication in authentications:
            with capturedLogs() as logged:
                for _ in range(3):
                    self.refused(authentication, CallCredentials("a-secret-key"), "tcp")
            levels = [event["log_level"].name for event in logged]
            self.assertEqual(levels, ["warn", "debug", "debug"])
            self.assertNotIn("a-secret-key", repr(logged))
            self.assertEqual(logged[0]["kind"], "builtins.KeyError")
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_badTokenLogged(self) -> None:
        """Why a token was refused is in the log at debug level, and nothing of the token."""
        token = signed(given=claims(exp=1000))
        authentication = Authentication({"jwt": JWT}, DEFAULT_RULES)
        with capturedLogs() as logged:
            self.refused(authentication, CallCredentials(token))
        self.assertEqual(
            [(event["log_level"].name, event["reason"]) for event in logged],
            [("debug", "ExpiredSignatureError")],
        )
        for piece in token.split("."):
            self.assertNotIn(piece, repr(logged))

    def test_tooLong(self) -> None:
        """A token of a megabyte is refused before anybody reads it."""
        seen: list[str] = []
        authentication = self.provider(seen.append)
        for token in ("k" * 8193, "eyJ" + "A" * 1_000_000 + ".e30."):
            self.refused(authentication, CallCredentials(token), "tcp")
            self.refused(authentication, CallCredentials(None, token, hasFields=True), "http")
        self.assertEqual(seen, [])
        self.refused(authentication, CallCredentials("k" * 8192), "tcp")
        self.assertEqual(len(seen), 1)

    def test_extractedTooLong(self) -> None:
        """The same holds for what the user's own function has found."""
        provider = readJWT({"secret": SECRET, "extractToken": lambda native: native})
        native = signed(given=claims(more="x" * 8192))
        authentication = Authentication({"jwt": provider}, DEFAULT_RULES)
        self.refused(authentication, CallCredentials(None, None, native))

    def test_algorithmOfOther(self) -> None:
        """A token of another kind of key is refused, not an error of the server."""
        authentication = Authentication({"jwt": JWT}, DEFAULT_RULES)
        self.refused(authentication, CallCredentials(signed(rsaKey(), "RS256")))
