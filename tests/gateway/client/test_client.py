"""The options of a client, and its calls without a network."""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.client.client import (
    GatewayClientOptions,
    RemoteGateway,
    createGatewayClient,
    readTarget,
)
from storagegate.gateway.client.formats import Reply
from storagegate.gateway.client.transports import CallHead
from storagegate.gateway.messages.frames import END, ERROR, ITEM, RESPONSE
from storagegate.upstream.retry import BACKOFF, AttemptFailed


class TargetTests(SynchronousTestCase):
    """URLs and options."""

    def test_urls(self) -> None:
        """The scheme names the transport; ports and paths have defaults."""
        for url, wire, authority, path, isSecure in (
            ("http://a", "http", "a:80", "/api", False),
            ("https://a:1/rpc/", "http", "a:1", "/rpc", True),
            ("ws://[::1]:8080", "websocket", "[::1]:8080", "/ws", False),
            ("wss://a/x", "websocket", "a:443", "/x", True),
            ("tcp://a", "tcp", "a:9102", "", False),
            ("tls://a:5", "tcp", "a:5", "", True),
            ("udp://a:5", "udp", "a:5", "", False),
            ("grpc://a", "grpc", "a:50051", "", False),
        ):
            name, target = readTarget(url, GatewayClientOptions(), Clock())
            found = (name, target.authority, target.path, target.tls is not None)
            self.assertEqual(found, (wire, authority, path, isSecure), url)

    def test_refused(self) -> None:
        """A wrong URL or option is refused, with its name."""
        for url, options, text in (
            ("ftp://a", {}, "scheme"),
            ("a:80", {}, "scheme"),
            ("http://", {}, "URL"),
            ("http://a?b", {}, "URL"),
            ("http://u:p@a", {}, "URL"),
            ("http://a:0", {}, "URL"),
            ("http://a/b c", {}, "URL"),
            ("tcp://a/b", {}, "path"),
            ("http://a", {"tls": {}}, "tls"),
            ("https://a", {"tls": {"certFile": "/nothing"}}, "tls.certFile"),
            ("http://a", {"retries": -1}, "retries"),
            ("http://a", {"token": "a\nb"}, "token"),
            ("http://a", {"other": 1}, "other"),
            ("http://a", {"headers": {"Host": "b"}}, "Host"),
            ("tcp://a", {"format": "json"}, "json"),
            ("ws://a", {"format": "lines"}, "lines"),
        ):
            given: Any = options
            with self.assertRaises((ValueError, ServiceError)) as caught:
                createGatewayClient(url, reactor=Clock(), **given)
            self.assertIn(text, str(caught.exception), url)


class StoredCall:
    """
    A call of L{StoredTransport}.

    @ivar isClosed: Whether it was closed.
    """

    def __init__(self, head: CallHead) -> None:
        self.head = head
        self.replies: BoundedStream[Reply] = BoundedStream()
        self.sent: list[Any] = []
        self.isClosed = False

    async def send(self, data: Any) -> None:
        """Record an item."""
        self.sent.append(data)

    def sendEnd(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Record the end."""
        self.isClosed = True
        self.replies.end()


class StoredTransport:
    """
    A transport in memory.

    @ivar calls: The calls that have begun.
    @ivar refusals: The errors of the next attempts to begin a call.
    """

    def __init__(self) -> None:
        self.calls: list[StoredCall] = []
        self.refusals: list[Exception] = []

    async def begin(self, head: CallHead) -> StoredCall:
        """Begin a call."""
        if self.refusals:
            await fail(self.refusals.pop(0))
        self.calls.append(StoredCall(head))
        return self.calls[-1]

    def close(self) -> Deferred[None]:
        """Do nothing."""
        return succeed(None)


class CallTests(SynchronousTestCase):
    """Attempts, deadlines and ends of calls, by a clock."""

    def setUp(self) -> None:
        """Make a client in memory."""
        self.clock = Clock()
        self.transport = StoredTransport()
        self.client = RemoteGateway(self.transport, self.clock, GatewayClientOptions())

    def result(self, call: Any) -> Deferred[Any]:
        """Await a call."""

        async def read() -> Any:
            return await call

        return Deferred.fromCoroutine(read())

    def unavailable(self, isUnsent: bool) -> AttemptFailed:
        """Make the error of an attempt."""
        return AttemptFailed(codedError("UNAVAILABLE", "gone"), isUnsent)

    def test_unsent(self) -> None:
        """A call that no server has received is repeated after the backoff, up to the limit."""
        self.transport.refusals = [self.unavailable(True), self.unavailable(True)]
        reading = self.result(self.client.call("S", "m"))
        self.assertEqual(len(self.transport.calls), 0)
        self.clock.pump([BACKOFF.maxSeconds] * 2)
        self.transport.calls[0].replies.put(Reply(RESPONSE, None, "a"), last=True)
        self.assertEqual(self.successResultOf(reading), "a")
        self.transport.refusals = [self.unavailable(True)] * 3
        reading = self.result(self.client.call("S", "m"))
        self.clock.pump([BACKOFF.maxSeconds] * 3)
        self.assertEqual(self.failureResultOf(reading, ServiceError).value.message, "gone")
        self.assertEqual(len(self.transport.calls), 1)

    def test_idempotent(self) -> None:
        """Only an idempotent call is repeated after the server may have received it."""
        for isIdempotent, attempts in ((False, 1), (True, 2)):
            for end in (self.unavailable(False), None):
                self.transport.calls.clear()
                reading = self.result(self.client.call("S", "m", isIdempotent=isIdempotent))
                if end is None:
                    error = codedError("UNAVAILABLE", "gone")
                    self.transport.calls[0].replies.put(Reply(ERROR, None, error), last=True)
                else:
                    self.transport.calls[0].replies.end(end)
                self.clock.advance(BACKOFF.maxSeconds)
                self.assertEqual(len(self.transport.calls), attempts)
                if isIdempotent:
                    self.transport.calls[1].replies.put(Reply(RESPONSE, None, 1), last=True)
                    self.assertEqual(self.successResultOf(reading), 1)
                else:
                    self.failureResultOf(reading, ServiceError)

    def test_streamOnce(self) -> None:
        """A call whose stream of requests was read is never repeated."""
        call = self.client.call("S", "m", requests=[1, 2], isIdempotent=True)
        reading = self.result(call)
        self.assertEqual(self.transport.calls[0].sent, [1, 2])
        self.transport.calls[0].replies.end(self.unavailable(True))
        self.clock.advance(BACKOFF.maxSeconds)
        self.failureResultOf(reading, ServiceError)
        self.assertEqual(len(self.transport.calls), 1)

    def test_deadline(self) -> None:
        """Each attempt has the time that is left, and the call ends with its deadline."""
        self.transport.refusals = [self.unavailable(True)]
        call = self.client.call("S", "m", deadlineMs=1000)
        reading = self.result(call)
        self.clock.advance(0.25)
        self.assertEqual(self.transport.calls[0].head.deadlineMs, 750)
        self.clock.advance(0.74)
        self.assertNoResult(reading)
        self.clock.advance(0.01)
        error = self.failureResultOf(reading, ServiceError).value
        self.assertEqual(error.code, "DEADLINE_EXCEEDED")
        self.assertTrue(self.transport.calls[0].isClosed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ended(self) -> None:
        """A call that has ended has closed its transport, and has no timer."""
        call = self.client.call("S", "m", deadlineMs=1000)
        wire = self.transport.calls[0]
        wire.replies.put(Reply(ITEM, None, "a", 3))
        wire.replies.put(Reply(END, None, None, 9), last=True)

        async def read() -> list[Any]:
            return [each async for each in call]

        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(read())), ["a"])
        self.assertEqual(call.bytesReceived, 3)
        self.assertTrue(wire.isClosed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelledConsumer(self) -> None:
        """Cancelling the consumer of a call cancels the call."""
        for isStream in (False, True):
            call = self.client.call("S", "m")

            async def read(call: Any = call) -> Any:
                return await anext(call)

            reading = Deferred.fromCoroutine(read()) if isStream else self.result(call)
            reading.cancel()
            self.failureResultOf(reading)
            self.assertTrue(self.transport.calls[-1].isClosed)

    def test_closed(self) -> None:
        """A closed client begins no attempt, neither of a new call nor of one that is repeated."""
        self.transport.refusals = [self.unavailable(True)]
        repeated = self.result(self.client.call("S", "m"))
        self.successResultOf(self.client.close())
        self.clock.advance(BACKOFF.maxSeconds)
        for reading in (repeated, self.result(self.client.call("S", "m"))):
            self.assertEqual(self.failureResultOf(reading, ServiceError).value.code, "CANCELLED")
        self.assertEqual(self.transport.calls, [])

    def test_arguments(self) -> None:
        """A call with wrong arguments does not begin."""
        for wrong in ({"data": 1, "requests": []}, {"deadlineMs": 0}, {"token": "a\nb"}):
            given: Any = wrong
            self.assertRaises(ValueError, self.client.call, "S", "m", **given)
        self.assertEqual(self.transport.calls, [])
