"""Applications called with standard requests, and connections that end too early."""

import gc
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from storagegate.http.fetch.handler import ResponseLost
from storagegate.net.http.interfaces import ClientLost
from tests.http.fetching import FetchCase


class LostTests(FetchCase):
    """Connections that end too early."""

    def setUp(self) -> None:
        """Add a route that never ends, and take note of what happens to it."""
        super().setUp()
        self.events: list[str] = []
        self.responses: list[Any] = []

        def forever(req: Any, res: Any) -> None:
            req.on("close", lambda: self.events.append("close"))
            self.responses.append(res)
            if req.query.get("begin"):
                res.write("one")

        self.app.get("/forever", forever)

    def test_aborted(self) -> None:
        """A response that is dropped in its middle raises in whoever reads it."""
        response = self.got(self.fetch("/forever?begin=1"))
        reading = Deferred.fromCoroutine(response.text())
        self.responses[0].raw.abort()
        self.turn()
        self.failureResultOf(reading, ResponseLost)
        self.assertEqual(self.events, ["close"])

    def test_failedInTheMiddle(self) -> None:
        """So does one whose handler fails when the head is out, at once."""

        def handle(req: Any, res: Any) -> None:
            res.write("one")
            raise KeyError("boom")

        self.app.get("/broken", handle)
        response = self.got(self.fetch("/broken"))
        self.raised(ResponseLost, response.text())
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_abortedBefore(self) -> None:
        """A connection that is dropped before there is a head raises in the caller."""
        self.app.get("/abort", lambda req, res: req.raw.abort())
        self.raised(ResponseLost, self.fetch("/abort"))

    def test_cancelledCall(self) -> None:
        """A call that is cancelled is a client that goes away."""
        answered = self.started("/forever")
        answered.cancel()
        self.failureResultOf(answered, CancelledError)
        self.assertEqual(self.events, ["close"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelledResponse(self) -> None:
        """So is a response that is cancelled; who writes to it gets to know."""
        response = self.got(self.fetch("/forever?begin=1"))
        response.cancel()
        self.assertEqual(self.events, ["close"])
        self.raised(TypeError, response.text())

        async def write() -> None:
            await self.responses[0].write("two")

        self.raised(ClientLost, write())

    def test_nothingLeft(self) -> None:
        """A response that is cancelled when it has just gone on leaves nothing that waits."""
        response = self.got(self.fetch("/forever?begin=1"))
        self.responses[0].write("two")
        response.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelledHalfway(self) -> None:
        """A body whose reader is cancelled is not lost with it, until it is let go."""
        response = self.got(self.fetch("/forever?begin=1"))
        body = aiter(response.body)
        self.got(anext(body))
        reading = Deferred.fromCoroutine(anext(body))
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.assertEqual(self.events, [])
        response.cancel()
        self.assertEqual(self.events, ["close"])

    def test_dropped(self) -> None:
        """So is a response that nobody holds any more."""
        response = self.got(self.fetch("/forever?begin=1"))
        self.assertEqual(self.events, [])
        del response
        gc.collect()
        self.turn()
        self.assertEqual(self.events, ["close"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_clones(self) -> None:
        """Of two clones, both have to be cancelled."""
        response = self.got(self.fetch("/forever?begin=1"))
        clone = response.clone()
        response.cancel()
        self.assertEqual(self.events, [])
        clone.cancel()
        self.assertEqual(self.events, ["close"])

    def test_oneReader(self) -> None:
        """Two who read one stream at one time are told so."""
        response = self.got(self.fetch("/forever?begin=1"))
        body = aiter(response.body)
        self.got(anext(body))
        Deferred.fromCoroutine(anext(body)).addErrback(lambda reason: None)
        self.raised(RuntimeError, anext(body))
