"""Cross-origin resource sharing."""

import re
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http.middleware.cors import cors
from tests.http.middleware.support import Answer, AppCase

A, B = "https://a.example", "https://b.example"


class CorsCase(AppCase):
    """An application that answers on C{/}, for other origins."""

    def share(self, **options: Any) -> None:
        """Install the middleware."""
        self.app.use(cors(**options))
        self.app.get("/", self.hello)

    def preflight(self, origin: str = A, **fields: str) -> Answer:
        """Ask, as a browser does, whether a page may ask."""
        return self.ask(
            "OPTIONS", "/", Origin=origin, Access_Control_Request_Method="PUT", **fields
        )

    def assertAllowed(self, answer: Answer, origin: str | None, vary: str | None) -> None:
        """Check which origin was let in, and what the answer depends on."""
        self.assertEqual(
            (answer.get("access-control-allow-origin"), answer.get("vary")), (origin, vary)
        )


class OriginTests(CorsCase):
    """Whom answers are for."""

    def test_everybody(self) -> None:
        """By default everybody is let in, in one way that caches may keep."""
        self.share()
        answer = self.ask(Origin=A)
        self.assertAllowed(answer, "*", None)
        self.assertEqual((answer.status, answer.body), (200, b"hello"))
        self.assertEqual(answer.all("access-control-allow-methods"), [])
        self.assertEqual(answer.all("access-control-allow-credentials"), [])

    def test_one(self) -> None:
        """A fixed origin is named to everybody, whoever asks."""
        self.share(origin=A)
        self.assertAllowed(self.ask(Origin=B), A, "Origin")
        self.assertAllowed(self.ask(), A, "Origin")

    def test_list(self) -> None:
        """An origin that is in a list, or matches a pattern in it, is reflected; no other is."""
        self.share(origin=[A, re.compile(r"\.b\.example$")])
        self.assertAllowed(self.ask(Origin=A), A, "Origin")
        self.assertAllowed(self.ask(Origin="https://x.b.example"), "https://x.b.example", "Origin")
        for other in (B, A + ".evil", "null", "https://x.b.example.evil"):
            answer = self.ask(Origin=other)
            self.assertAllowed(answer, None, "Origin")
            self.assertEqual(answer.status, 200)
        self.assertAllowed(self.ask(), None, "Origin")

    def test_pattern(self) -> None:
        """A pattern alone is searched."""
        self.share(origin=re.compile("example"))
        self.assertAllowed(self.ask(Origin=A), A, "Origin")
        self.assertAllowed(self.ask(Origin="https://other"), None, "Origin")

    def test_reflected(self) -> None:
        """Where everybody is reflected, a request without an origin gets none."""
        self.share(origin=True, credentials=True)
        answer = self.ask(Origin=A)
        self.assertAllowed(answer, A, "Origin")
        self.assertEqual(answer.get("access-control-allow-credentials"), "true")
        self.assertAllowed(self.ask(), None, "Origin")

    def test_onlyOrigins(self) -> None:
        """What is not an origin is never sent back, whatever the pattern says."""
        self.share(origin=re.compile(""))
        for value in ("a b", "https://a,https://b", "\x80", "https://a\t"):
            self.assertAllowed(self.ask(Origin=f"x{value}x"), None, "Origin")

    def test_off(self) -> None:
        """Switched off, it sets nothing and answers no preflight."""
        self.share(origin=False)
        self.assertAllowed(self.ask(Origin=A), None, None)
        self.assertEqual(self.preflight().get("allow"), "GET, HEAD")

    def test_function(self) -> None:
        """A function reflects, refuses or names an origin."""
        asked: list[Any] = []

        def decide(origin: str, req: Any) -> bool | str:
            asked.append((origin, req.path))
            return {A: True, B: False}.get(origin, "https://c.example")

        self.share(origin=decide)
        self.assertAllowed(self.ask(Origin=A), A, "Origin")
        self.assertAllowed(self.ask(Origin=B), None, "Origin")
        self.assertAllowed(self.ask(), "https://c.example", "Origin")
        self.assertEqual(asked, [(A, "/"), (B, "/"), ("", "/")])

    def test_functionOfOrigin(self) -> None:
        """A function may look at the origin alone."""
        self.share(origin=lambda origin: origin == A)
        self.assertAllowed(self.ask(Origin=A), A, "Origin")
        self.assertAllowed(self.ask(Origin=B), None, "Origin")

    def test_later(self) -> None:
        """A function may take its time; the request waits."""
        asked: Deferred[bool] = Deferred()

        async def decide(origin: str, req: Any) -> bool:
            return await asked

        self.share(origin=decide)
        client = self.connect()
        client.send("GET", "/", {"Origin": A})
        self.assertEqual(client.transport.value(), b"")
        asked.callback(True)
        self.assertAllowed(client.answer(), A, "Origin")

    def test_laterAndAround(self) -> None:
        """Who waits for the rest of a request waits for all of it, also past such a function."""
        asked: Deferred[bool] = Deferred()
        answered: Deferred[None] = Deferred()
        order: list[str] = []

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            order.append("around")

        async def decide(origin: str, req: Any) -> bool:
            return await asked

        async def answer(req: Any, res: Any) -> None:
            await answered
            order.append("answer")
            res.end()

        self.app.use(around)
        self.app.use(cors(origin=decide))
        self.app.get("/", answer)
        self.connect().send("GET", "/", {})
        asked.callback(True)
        self.assertEqual(order, [])
        answered.callback(None)
        self.assertEqual(order, ["answer", "around"])

    def test_functionFails(self) -> None:
        """What a function raises is the application's error; nobody is let in."""

        def decide(origin: str, req: Any) -> bool:
            raise KeyError(origin)

        self.share(origin=decide)
        self.assertEqual(self.ask(Origin=A).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_functionIsNoBypass(self) -> None:
        """A function cannot let everybody in with credentials by a star."""
        self.share(origin=lambda origin: "*", credentials=True)
        self.assertEqual(self.ask(Origin=A).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)


class PreflightTests(CorsCase):
    """What browsers ask before."""

    def test_default(self) -> None:
        """A preflight is 204 with a length of 0, and the methods; the route is not asked."""
        self.share()
        answer = self.preflight()
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(answer.get("content-length"), "0")
        self.assertEqual(
            answer.get("access-control-allow-methods"), "GET,HEAD,PUT,PATCH,POST,DELETE"
        )
        self.assertAllowed(answer, "*", "Access-Control-Request-Headers")
        for name in ("headers", "credentials"):
            self.assertEqual(answer.all(f"access-control-allow-{name}"), [])
        self.assertEqual(answer.all("access-control-max-age"), [])

    def test_methods(self) -> None:
        """The methods may be a list or text."""
        self.share(methods=["GET", "PUT"])
        self.assertEqual(self.preflight().get("access-control-allow-methods"), "GET,PUT")
        self.app = self.makeApp()
        self.share(methods="GET, PUT")
        self.assertEqual(self.preflight().get("access-control-allow-methods"), "GET,PUT")

    def test_reflectsHeaders(self) -> None:
        """Without a list, a page may send what it asks for, and the answer varies on that."""
        self.share(origin=A)
        answer = self.preflight(Access_Control_Request_Headers="x-a, x-b")
        self.assertEqual(answer.get("access-control-allow-headers"), "x-a, x-b")
        self.assertEqual(answer.get("vary"), "Origin, Access-Control-Request-Headers")

    def test_reflectsNamesOnly(self) -> None:
        """What cannot be names of headers is not sent back."""
        self.share()
        answer = self.preflight(Access_Control_Request_Headers="x-a;<b>")
        self.assertEqual(answer.all("access-control-allow-headers"), [])

    def test_allowedHeaders(self) -> None:
        """A list of headers is sent as it is, and nothing varies; an empty one allows none."""
        self.share(allowedHeaders=["X-A", "X-B"])
        answer = self.preflight(Access_Control_Request_Headers="x-c")
        self.assertEqual(answer.get("access-control-allow-headers"), "X-A,X-B")
        self.assertAllowed(answer, "*", None)
        self.app = self.makeApp()
        self.share(allowedHeaders=[])
        answer = self.preflight(Access_Control_Request_Headers="x-c")
        self.assertEqual(answer.all("access-control-allow-headers"), [])

    def test_maxAge(self) -> None:
        """How long it may be remembered is sent in seconds, 0 too."""
        for seconds in (600, 0):
            self.app = self.makeApp()
            self.share(maxAge=seconds)
            self.assertEqual(self.preflight().get("access-control-max-age"), str(seconds))
            self.assertEqual(self.ask(Origin=A).all("access-control-max-age"), [])

    def test_refusedOrigin(self) -> None:
        """A preflight from elsewhere is answered, and lets nobody in."""
        self.share(origin=[A])
        answer = self.preflight(origin=B)
        self.assertEqual(answer.status, 204)
        self.assertAllowed(answer, None, "Origin, Access-Control-Request-Headers")

    def test_credentials(self) -> None:
        """Preflights and answers say whether cookies may come."""
        self.share(origin=A, credentials=True)
        for answer in (self.preflight(), self.ask(Origin=A)):
            self.assertEqual(answer.get("access-control-allow-credentials"), "true")

    def test_exposedHeaders(self) -> None:
        """Answers name what pages may see of them."""
        self.share(exposedHeaders=["X-A", "X-B"])
        self.assertEqual(self.ask(Origin=A).get("access-control-expose-headers"), "X-A,X-B")

    def test_plainOptions(self) -> None:
        """OPTIONS that asks for no method is no preflight: the application answers it."""
        self.share()
        answer = self.ask("OPTIONS", "/", Origin=A)
        self.assertEqual((answer.status, answer.get("allow")), (200, "GET, HEAD"))
        self.assertAllowed(answer, "*", None)

    def test_otherMethods(self) -> None:
        """Another method that names a method is no preflight."""
        self.share()
        answer = self.ask("GET", "/", Access_Control_Request_Method="PUT")
        self.assertEqual(answer.body, b"hello")

    def test_continue(self) -> None:
        """A preflight may go on to the application, with its headers."""
        self.share(preflightContinue=True)
        answer = self.preflight()
        self.assertEqual((answer.status, answer.get("allow")), (200, "GET, HEAD"))
        self.assertIn("PUT", str(answer.get("access-control-allow-methods")))

    def test_status(self) -> None:
        """Old browsers can be told 200."""
        self.share(optionsSuccessStatus=200)
        answer = self.preflight()
        self.assertEqual((answer.status, answer.get("content-length")), (200, "0"))

    def test_errorsToo(self) -> None:
        """Pages of other origins can read errors."""
        self.share()
        answer = self.ask(path="/missing", Origin=A)
        self.assertEqual(answer.status, 404)
        self.assertAllowed(answer, "*", None)


class SetUpTests(AppCase):
    """What is refused before there is a request."""

    def test_starWithCredentials(self) -> None:
        """Everybody and credentials do not go together."""
        for origin in ("*", ["*"], [A, "*"]):
            self.assertRaises(ValueError, cors, origin=origin, credentials=True)
        self.assertRaises(ValueError, cors, credentials=True)

    def test_values(self) -> None:
        """Values that cannot be are errors."""
        for options in (
            {"origin": ""},
            {"origin": "a b"},
            {"origin": "a\r\nb"},
            {"origin": ["a\nb"]},
            {"methods": "GET;PUT"},
            {"allowedHeaders": ["a b"]},
            {"exposedHeaders": "a\r\nb"},
            {"maxAge": "1d"},
            {"maxAge": -2},
            {"maxAge": True},
            {"optionsSuccessStatus": 404},
        ):
            self.assertRaises(ValueError, cors, **options)

    def test_kinds(self) -> None:
        """So are values of another kind."""
        for options in (
            {"origin": None},
            {"origin": 5},
            {"origin": [5]},
            {"origin": re.compile(b"a")},
            {"origin": lambda: True},
            {"credentials": "yes"},
        ):
            self.assertRaises(TypeError, cors, **options)

    def test_option(self) -> None:
        """The application's option installs it."""
        self.app.withOptions(cors={"origin": [A], "methods": ["GET"], "credentials": True})
        self.app.get("/", self.hello)
        answer = self.ask(Origin=A)
        self.assertEqual(answer.get("access-control-allow-origin"), A)
