"""Who may call: tokens, public methods, and what is told of refusals."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import LogLevel

from storagegate.auth.throttle import DELAY_SECONDS, FREE_FAILURES
from storagegate.core.errors import GrpcError, ServiceError
from storagegate.core.options import OptionError
from storagegate.rpc.middleware import MAX_TOKEN, authentication
from tests.rpc.middlewarecase import MiddlewareCase, raising

USERS = {"secret": {"id": "1"}}


class TokenTests(MiddlewareCase):
    """The token and the user."""

    def test_known(self) -> None:
        """Who has a good token gets through, and handlers find the user."""
        call = self.makeCall(authorization="Bearer secret")
        self.assertEqual(self.answer(authentication(USERS.get), call), "answer")
        self.assertEqual(call.user, {"id": "1"})

    def test_missing(self) -> None:
        """Without a token a call is UNAUTHENTICATED, and the verifier is not called."""
        for metadata in ({}, {"authorization": ""}, {"authorization": "  "}, {"x": "secret"}):
            error = self.refusal(
                authentication(raising(AssertionError())), self.makeCall(**metadata)
            )
            self.assertEqual(str(error), "UNAUTHENTICATED: Missing authorization")

    def test_stripped(self) -> None:
        """Bearer is no part of the token, however it is written; a bare token is one."""
        seen: list[str] = []

        def verify(token: str) -> Any:
            seen.append(token)
            return True

        for value in ("Bearer secret", "bearer secret", "BEARER   secret", "secret"):
            self.answer(authentication(verify), self.makeCall(authorization=value))
        self.assertEqual(seen, ["secret"] * 4)
        for value in ("Bearers secret", "Basic x", "Bearer Bearer x"):
            self.answer(authentication(verify), self.makeCall(authorization=value))
        self.assertEqual(seen[4:], ["Bearers secret", "Basic x", "Bearer x"])

    def test_empty(self) -> None:
        """Bearer alone is no token."""
        for value in ("Bearer", "Bearer ", "bearer"):
            call = self.makeCall(authorization=value)
            error = self.refusal(authentication(raising(AssertionError())), call)
            self.assertEqual(error.message, "Invalid token")
        self.assertEqual(self.logged(), [])

    def test_first(self) -> None:
        """The first of several values counts."""
        call = self.makeCall()
        self.wire.metadata = (("authorization", "secret"), ("authorization", "other"))
        self.answer(authentication(USERS.get), call)
        self.assertEqual(call.user, {"id": "1"})

    def test_long(self) -> None:
        """A token that is too long is refused unread."""
        verify = authentication(lambda token: len(token))
        call = self.makeCall(authorization="Bearer " + "x" * MAX_TOKEN)
        self.answer(verify, call)
        self.assertEqual(call.user, MAX_TOKEN)
        error = self.refusal(verify, self.makeCall(authorization="x" * (MAX_TOKEN + 1)))
        self.assertEqual(str(error), "UNAUTHENTICATED: Invalid token")

    def test_guesses(self) -> None:
        """After a hundred bad tokens of an address further ones are refused late, good ones not."""

        async def later(token: str) -> Any:
            return USERS.get(token)

        for verify in (USERS.get, later, raising(GrpcError("UNAUTHENTICATED", "no"))):
            check = authentication(verify, clock=self.clock)

            def guess(port: int, address: str = "192.0.2.7", check: Any = check) -> Deferred[Any]:
                call = self.makeCall(address=f"ipv4:{address}:{port}", authorization="guess")
                return self.start(check, call)

            for port in range(FREE_FAILURES):
                self.failureResultOf(guess(port), GrpcError)
            slow = [guess(port) for port in range(2)]
            self.failureResultOf(guess(1, "192.0.2.8"), GrpcError)
            for each in slow:
                self.assertNoResult(each)
                self.clock.advance(DELAY_SECONDS)
                error = self.failureResultOf(each, GrpcError).value
                self.assertEqual(error.statusName, "UNAUTHENTICATED")
            if verify is USERS.get:
                slow = [guess(1)]
                self.answer(check, self.makeCall(authorization="secret"))
                self.clock.advance(DELAY_SECONDS)
                self.failureResultOf(slow[0], GrpcError)

    def test_outages(self) -> None:
        """A verifier that is out of order, or a call without a token, is no guess."""
        check = authentication(raising(GrpcError("UNAVAILABLE", "later")), clock=self.clock)
        for _ in range(FREE_FAILURES + 2):
            self.refusal(check, self.makeCall(authorization="secret"))
            self.refusal(check, self.makeCall())

    def test_unknown(self) -> None:
        """A verifier refuses by an empty result, plain or awaited."""
        for empty in (None, False, "", {}):
            for verify in (
                lambda token, empty=empty: empty,
                lambda token, empty=empty: succeed(empty),
            ):
                call = self.makeCall(authorization="Bearer x")
                error = self.refusal(authentication(verify), call)
                self.assertEqual(str(error), "UNAUTHENTICATED: Invalid token")
                self.assertIsNone(call.user)

    def test_call(self) -> None:
        """Who verifies may look at the call."""

        def verify(token: str, call: Any) -> Any:
            return f"{token} for {call.method}"

        call = self.makeCall(authorization="Bearer x")
        self.answer(authentication(verify), call)
        self.assertEqual(call.user, "x for GetUser")

    def test_own(self) -> None:
        """A parameter with a default is the verifier's own: the call does not switch it on."""

        def verify(token: str, takesAll: Any = False) -> Any:
            return takesAll

        for verifier in (verify, USERS.get):
            self.refusal(authentication(verifier), self.makeCall(authorization="Bearer x"))

        def verifyCall(token: str, call: Any = None) -> Any:
            return call

        call = self.makeCall(authorization="Bearer x")
        self.answer(authentication(verifyCall), call)
        self.assertIs(call.user, call)

    def test_later(self) -> None:
        """Verifying may take its time; the handler waits for it."""
        waiting: Deferred[Any] = Deferred()

        async def verify(token: str) -> Any:
            return await waiting

        call = self.makeCall(authorization="Bearer x")
        answer = self.start(authentication(verify), call)
        self.assertNoResult(answer)
        self.assertEqual(self.handled, [])
        waiting.callback("user")
        self.assertEqual(self.successResultOf(answer), "answer")
        self.assertEqual(call.user, "user")


class RaisingTests(MiddlewareCase):
    """Verifiers that raise."""

    def verifiers(self, error: Exception) -> list[Any]:
        """Give verifiers that raise now and later."""
        return [raising(error), lambda token: fail(error)]

    def test_refuses(self) -> None:
        """Whatever else a verifier raises refuses the token, and no word of it gets out."""
        for verify in self.verifiers(KeyError("the token secret")):
            error = self.refusal(
                authentication(verify), self.makeCall(authorization="Bearer secret")
            )
            self.assertEqual(str(error), "UNAUTHENTICATED: Invalid token")
            self.assertIsNone(error.details)
            self.assertIsNone(error.__cause__)

    def test_unchanged(self) -> None:
        """What a verifier means callers to see, they see."""
        for meant in (GrpcError("UNAVAILABLE", "later"), ServiceError("LOCKED", "m", 403)):
            for verify in self.verifiers(meant):
                call = self.makeCall(authorization="Bearer secret")
                answer = self.start(authentication(verify), call)
                self.assertIs(self.failureResultOf(answer).value, meant)
        self.assertEqual(self.handled, [])
        self.assertEqual(self.logged(), [])

    def test_cancelled(self) -> None:
        """A call that ends while its token is verified is cancelled, not refused."""
        waiting: Deferred[Any] = Deferred()
        call = self.makeCall(authorization="Bearer secret")
        answer = self.start(authentication(lambda token: waiting), call)
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual(self.logged(), [])

    def test_told(self) -> None:
        """A mistake in a verifier is seen in the log: once, and never with the token."""
        verify = authentication(raising(TypeError("secret is no key")))
        levels = []
        for _ in range(3):
            self.refusal(verify, self.makeCall(authorization="Bearer secret"))
        for event in self._logEvents:
            self.assertNotIn("secret", repr(event))
            levels.append(event["log_level"])
        self.assertEqual(levels, [LogLevel.warn, LogLevel.debug, LogLevel.debug])
        self.assertIn("builtins.TypeError", self.logged()[0])

    def test_handlersErrors(self) -> None:
        """What the handler raises is no failure of the token."""
        call = self.makeCall(authorization="Bearer x")
        for verify in (lambda token: True, lambda token: succeed(True)):
            answer = self.start(authentication(verify), call, raising(KeyError("mine")))
            self.failureResultOf(answer, KeyError)
        self.assertEqual(self.logged(), [])


class PublicTests(MiddlewareCase):
    """Methods for everybody."""

    def test_names(self) -> None:
        """Public methods are named by themselves, with their service, or all of a service."""
        middleware = authentication(
            USERS.get, ["GetUser", "a.B/Get", "/a.B/List", "pub.Lic/*"], publicHealth=False
        )
        for service, method, isPublic in (
            ("user.UserService", "GetUser", True),
            ("other.Service", "GetUser", True),
            ("user.UserService", "getUser", False),
            ("user.UserService", "GetUsers", False),
            ("a.B", "Get", True),
            ("a.B", "List", True),
            ("a.C", "Get", False),
            ("x.a.B", "Get", False),
            ("pub.Lic", "Any", True),
            ("pub.Lica", "Any", False),
            ("grpc.health.v1.Health", "Check", False),
        ):
            call = self.makeCall(method, service)
            expected = "OK" if isPublic else "UNAUTHENTICATED"
            self.assertEqual(self.status(middleware, call), expected, (service, method))

    def test_notVerified(self) -> None:
        """On a public method a token is not verified."""
        middleware = authentication(raising(AssertionError()), ["GetUser"])
        call = self.makeCall(authorization="Bearer x")
        self.assertEqual(self.answer(middleware, call), "answer")
        self.assertIsNone(call.user)

    def test_health(self) -> None:
        """Health is public unless it is said otherwise; reflection is not."""
        for service, method, status in (
            ("grpc.health.v1.Health", "Check", "OK"),
            ("grpc.health.v1.Health", "Watch", "OK"),
            (
                "grpc.reflection.v1.ServerReflection",
                "ServerReflectionInfo",
                "UNAUTHENTICATED",
            ),
        ):
            call = self.makeCall(method, service)
            self.assertEqual(self.status(authentication(USERS.get), call), status)

    def test_lists(self) -> None:
        """The names may come from anything that gives them."""
        middleware = authentication(USERS.get, (name for name in ("GetUser", "Other")))
        for method in ("GetUser", "Other", "GetUser"):
            self.assertEqual(self.status(middleware, self.makeCall(method)), "OK")


class SetUpTests(MiddlewareCase):
    """What is refused before there is a call."""

    def test_names(self) -> None:
        """What is no name of a method is an error that says so."""
        for name in ("", "/", "a/b/c", "a.B/", "*", "Get User", "/GetUser/", None, 1):
            error = self.assertRaises(ValueError, authentication, USERS.get, [name])
            self.assertIn(repr(name), str(error))
            self.assertIn("publicMethods", str(error))

    def test_kinds(self) -> None:
        """So is a list that is none, and a verifier that is not a function of a token."""
        for names in ("GetUser", 1, None):
            error = self.assertRaises(TypeError, authentication, USERS.get, names)
            self.assertIn("publicMethods", str(error))
        error = self.assertRaises(OptionError, authentication, USERS)
        self.assertIn("there is no option authentication.", str(error))
        for verify in (None, 7, lambda: True, lambda token, call, other: True):
            error = self.assertRaises(TypeError, authentication, verify)
            self.assertIn("verify", str(error))
