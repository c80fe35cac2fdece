"""Handlers, hooks and encoders of careless authors: the client gets one clear answer or none."""

import asyncio
import gc
import sys
from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from storagegate import server
from storagegate.http import HTTPError
from storagegate.http.encoding import IBodyEncoder
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client

_PLAIN = (500, {"error": "Internal Server Error"})

# Enough to be encoded in a thread.
_LARGE = b"x" * 200_000


class Boom(Exception):
    """Something that goes wrong."""


def boom(*arguments: Any) -> Any:
    """Go wrong."""
    raise Boom("a secret")


@implementer(IBodyEncoder)
class BrokenEncoder:
    """Breaks in one of its methods."""

    flushes = False

    def __init__(self, broken: str) -> None:
        setattr(self, broken, boom)

    def feed(self, chunk: bytes) -> bytes:
        """Leave it as it is."""
        return chunk

    def flush(self) -> bytes:
        """Keep nothing back."""
        return b""

    def finish(self) -> bytes:
        """End with nothing."""
        return b""


class Odd:
    """Waits for what is no Deferred."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield 5


class CarelessCase(SynchronousTestCase):
    """An application and its client."""

    def setUp(self) -> None:
        """Make them."""
        self.app = server.http()
        self.client = Client(self.app)

    def answer(self, handler: Callable[..., Any]) -> tuple[int, Any]:
        """Give status and body of what a handler answers, when the clock has gone on."""
        self.app.get("/", handler)
        call = self.client.start("GET", "/")
        self.client.advance(3)
        return call.response.status, call.response.json()

    def assertDropped(self, handler: Callable[..., Any]) -> None:
        """Check that a response that had begun is dropped, so that nobody takes it as whole."""
        self.app.get("/", handler)
        call = self.client.start("GET", "/")
        with self.assertRaises(ResponseLost):
            self.client.advance(3)
            call.response  # noqa: B018

    def assertLogged(self, *kinds: type[BaseException]) -> None:
        """Check what was logged."""
        logged = self.flushLoggedErrors()
        self.assertEqual([failure.type for failure in logged], list(kinds))


class ExitTests(CarelessCase):
    """What ends programs, and what other loops wait by, is an error like any other."""

    def test_exit(self) -> None:
        """C{sys.exit()} in a handler, plain or not, is a 500."""

        def plain(req: Any, res: Any) -> None:
            sys.exit(3)

        async def waiting(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 0.5, lambda: None)
            sys.exit(3)

        for handler in (plain, waiting):
            self.setUp()
            self.assertEqual(self.answer(handler), _PLAIN)
            self.assertLogged(SystemExit)

    def test_asyncioCancelled(self) -> None:
        """So is a cancellation of asyncio, which is no C{Exception} either."""

        async def waiting(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 0.5, lambda: None)
            raise asyncio.CancelledError

        self.assertEqual(self.answer(waiting), _PLAIN)
        self.assertLogged(asyncio.CancelledError)

    def test_awaitsOtherThings(self) -> None:
        """Awaiting what is no Deferred raises where it is awaited; what ends a C{try} may wait."""
        ended: list[bool] = []

        async def handler(req: Any, res: Any) -> None:
            try:
                await Odd()
            finally:
                await deferLater(self.client.clock, 0.5, ended.append, True)

        self.assertEqual(self.answer(handler), _PLAIN)
        self.assertEqual(ended, [True])
        self.assertLogged(TypeError)

    def test_awaitsOtherThingsAndGoesOn(self) -> None:
        """A handler may catch that and answer."""

        async def handler(req: Any, res: Any) -> None:
            try:
                await Odd()
            except TypeError:
                res.json("else")

        self.assertEqual(self.answer(handler), (200, "else"))


class LastResortTests(CarelessCase):
    """Errors that cannot be answered as they want."""

    def test_status(self) -> None:
        """A C{status} that is no error's does not make the message one for the client."""

        class Foreign(Exception):
            status = 200

        def handler(req: Any, res: Any) -> None:
            raise Foreign("a secret")

        self.assertEqual(self.answer(handler), _PLAIN)
        self.assertLogged(Foreign)

    def test_unanswerable(self) -> None:
        """Fields, messages and texts that cannot be sent become a plain 500."""

        class Wordless(Exception):
            statusCode = 400

            def __str__(self) -> str:
                raise Boom

        for error, logged in (
            (HTTPError(429, "later", headers={"Retry-After": 1.5}), ValueError),
            (HTTPError(429, "later", headers={"X": "a\r\nSet-Cookie: b"}), ValueError),
            (HTTPError(400, "\ud800"), UnicodeEncodeError),
            (Wordless(), Boom),
        ):
            self.setUp()

            def handler(req: Any, res: Any, error: Exception = error) -> None:
                raise error

            self.assertEqual(self.answer(handler), _PLAIN)
            self.assertLogged(logged)

    def test_hooks(self) -> None:
        """Hooks that fail one after the other, also for a 404, leave a plain 500."""

        def handler(req: Any, res: Any, next: Any) -> None:
            res.beforeHead(boom)
            res.beforeHead(boom)
            next()

        self.assertEqual(self.answer(handler), _PLAIN)
        self.assertLogged(Boom)

    def test_hooksAndHandler(self) -> None:
        """So they do if the first fails in the handler that answers."""

        def handler(req: Any, res: Any) -> None:
            res.beforeHead(boom)
            res.beforeHead(boom)
            res.send("x")

        self.assertEqual(self.answer(handler), _PLAIN)
        self.assertLogged(Boom, Boom)


class HoldTests(CarelessCase):
    """What the end of a response waits for, and fails."""

    def test_others(self) -> None:
        """One that fails, at once or later, takes nothing from the others."""
        for failing in (boom, lambda: deferLater(self.client.clock, 0.1, boom)):
            self.setUp()
            kept: list[str] = []

            async def keep(kept: list[str] = kept) -> None:
                kept.append("the session")

            def handler(req: Any, res: Any, failing: Any = failing, keep: Any = keep) -> None:
                res.holdEnd(keep)
                res.holdEnd(failing)
                res.holdEnd(keep)
                res.send("x")

            self.assertEqual(self.answer(handler), _PLAIN)
            self.assertEqual(kept, ["the session"] * 2)
            self.assertLogged(Boom)

    def test_swallowed(self) -> None:
        """A handler of errors that does nothing about one leaves no half response open."""

        async def handler(req: Any, res: Any) -> None:
            res.holdEnd(lambda: deferLater(self.client.clock, 0.1, boom))
            await res.write(b"half")
            res.end()

        seen: list[Any] = []
        self.app.get("/", handler)
        self.app.use(lambda error, req, res, next: seen.append(error))
        call = self.client.start("GET", "/")
        with self.assertRaises(ResponseLost):
            self.client.advance(3)
            call.response  # noqa: B018
        self.assertEqual([type(error) for error in seen], [Boom])

    def test_lost(self) -> None:
        """A client that goes away meanwhile was not sent the response: C{close}, no C{finish}."""
        events: list[str] = []
        held: Deferred[None] = Deferred()

        def handler(req: Any, res: Any) -> None:
            res.on("finish", lambda: events.append("finish"))
            res.on("close", lambda: events.append("close"))
            res.holdEnd(lambda: held)
            res.send("x")

        self.app.get("/", handler)
        call = self.client.start("GET", "/")
        call.disconnect()
        held.callback(None)
        self.client.advance(3)
        self.assertEqual(events, ["close"])


class EncoderTests(CarelessCase):
    """Encoders that break."""

    def test_whole(self) -> None:
        """A whole response, small or large, is a 500 without a trace of the coding."""
        for broken in ("feed", "finish"):
            for body in (b"x", _LARGE):
                self.setUp()

                def choose(res: Any, broken: str = broken) -> Any:
                    res.header("Content-Encoding", "odd")
                    return BrokenEncoder(broken)

                def handler(req: Any, res: Any, body: bytes = body, choose: Any = choose) -> None:
                    res.encodeBody(lambda length: choose(res))
                    res.send(body)

                self.assertEqual(self.answer(handler), _PLAIN)
                self.assertLogged(Boom)

    def test_stream(self) -> None:
        """A stream is dropped, also if its handler waits for nothing and ends it later."""
        for broken in ("feed", "finish"):
            for body in (b"x", _LARGE):
                self.setUp()

                async def handler(
                    req: Any, res: Any, body: bytes = body, broken: str = broken
                ) -> None:
                    res.encodeBody(lambda length: BrokenEncoder(broken))
                    res.write(body)
                    await deferLater(self.client.clock, 0.1, lambda: None)
                    res.end()

                self.assertDropped(handler)
                # The piece that nobody waited for is reported when its Deferred goes.
                gc.collect()
                self.assertTrue(self.flushLoggedErrors(Boom))


class ListenerTests(CarelessCase):
    """Functions that are called at the end."""

    def test_close(self) -> None:
        """One that fails when the client goes away takes nothing from the others."""
        seen: list[str] = []

        async def handler(req: Any, res: Any) -> None:
            req.on("close", boom)
            req.on("close", lambda: seen.append("close"))
            await Deferred()

        self.app.get("/", handler)
        self.client.start("GET", "/").disconnect()
        self.client.advance(3)
        self.assertEqual(seen, ["close"])
        self.assertLogged(Boom)

    def test_finish(self) -> None:
        """One that fails after the response leaves it and the others alone."""
        seen: list[str] = []

        def handler(req: Any, res: Any) -> None:
            res.on("finish", boom)
            res.on("finish", lambda: seen.append("finish"))
            res.json("x")

        self.assertEqual(self.answer(handler), (200, "x"))
        self.assertEqual(seen, ["finish"])
        self.assertLogged(Boom)


class NextTests(CarelessCase):
    """C{next} called too often, too late, or before an error."""

    def test_raisesAfter(self) -> None:
        """An error after C{next()} is a 500 where nothing was sent, and logged where it was."""

        def before(req: Any, res: Any, next: Any) -> None:
            next()
            raise Boom

        async def slow(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 0.5, lambda: None)
            if not res.finished:
                res.json("late")

        self.app.get("/now", before, lambda req, res: res.json("now"))
        self.app.get("/slow", before, slow)
        self.assertEqual(self.client.get("/now").json(), "now")
        self.assertLogged(Boom)
        self.assertEqual(self.client.get("/slow").status, 500)
        self.assertLogged(Boom)
        self.client.advance(3)

    def test_afterTheResponse(self) -> None:
        """C{next()} after a response changes nothing; each call can be awaited, also twice."""
        seen: list[str] = []

        async def handler(req: Any, res: Any, next: Any) -> None:
            res.json("first")
            going = next()
            await going
            await going
            await next()
            seen.append("done")

        self.assertEqual(self.answer(handler), (200, "first"))
        self.assertEqual(seen, ["done"])

    def test_errorHandlerFails(self) -> None:
        """Handlers of errors that fail, at once or later, leave a 500 and not a silence."""

        async def later(error: Any, req: Any, res: Any, next: Any) -> None:
            await deferLater(self.client.clock, 0.1, lambda: None)
            raise Boom

        def now(error: Any, req: Any, res: Any, next: Any) -> None:
            raise Boom

        self.app.get("/", boom)
        self.app.use(later, now, later)
        call = self.client.start("GET", "/")
        self.client.advance(3)
        self.assertEqual((call.response.status, call.response.json()), _PLAIN)
        self.assertLogged(Boom)
