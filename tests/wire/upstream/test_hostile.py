"""Instances that talk nonsense, break off, do not answer, or are not there."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from storagegate.core.errors import ServiceError
from tests.support.handtimed import HandTimed
from tests.support.ports import heldPort
from tests.support.rawupstream import Answer, RawConnection
from tests.support.selection import long
from tests.wire.upstream.upstreamcase import (
    CHUNKED,
    LIMIT,
    NDJSON,
    UpstreamCase,
    chunk,
)


class NonsenseTests(UpstreamCase):
    """What is no answer."""

    async def test_unary(self) -> None:
        """Whatever is no answer is UNAVAILABLE, and counts against the instance."""
        answers: list[Answer] = [
            lambda connection: connection.json(b"nonsense"),
            lambda connection: connection.json(b"[]"),
            lambda connection: connection.json(b"{}"),
            lambda connection: connection.json(b'{"error": 1}', 400),
            lambda connection: connection.json(b'{"data": 1}', 404),
            lambda connection: connection.json(b'{"error": "A", "message": "b"}', 200),
            lambda connection: connection.json(b'{"data": 1}', 200, b"text/html"),
            lambda connection: connection.json(b'{"data": 1}\n', 200, NDJSON),
            lambda connection: connection.json(b'{"data": "%b"}' % (b"x" * LIMIT)),
            lambda connection: connection.json(b'{"error":"A","message":"b"}', 302),
            lambda connection: connection.write(b"SSH-2.0-OpenSSH_9.2\r\n"),
            lambda connection: connection.write(b"HTTP/1.1 200 OK\r\n\r\n"),
            lambda connection: connection.close(),
            lambda connection: (
                connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"),
                connection.close(),
            ),
        ]
        upstream = self.upstream(lambda connection: answers[upstream.requests - 1](connection))
        self.serve(upstream.port, ejectAfter=100)
        for at in range(len(answers)):
            message = await self.refused(self.call("unary"))
            self.assertRegex(
                message, "^An instance of Probe (broke off|sent no valid response)", str(at)
            )
        self.assertEqual(upstream.requests, len(answers))
        self.assertEqual(self.value("attempts_total", "Probe", "failed"), len(answers))

    async def test_stream(self) -> None:
        """A stream that breaks off or goes on with nonsense ends with an error after its items."""
        item = chunk(b'{"data": 1}\n')
        end = chunk(b"")
        for answer, code in (
            (CHUNKED + item + end, None),
            (
                CHUNKED + item + chunk(b'{"error": "NOT_FOUND", "message": "a"}\n') + end,
                "NOT_FOUND",
            ),
            (CHUNKED + item, "UNAVAILABLE"),
            (CHUNKED + item + b"z", "UNAVAILABLE"),
            (CHUNKED + item + chunk(b"nonsense\n") + end, "UNAVAILABLE"),
            (CHUNKED + item + chunk(b'{"other": 1}\n') + end, "UNAVAILABLE"),
            (CHUNKED + item + chunk(b"x" * (LIMIT + 2)), "UNAVAILABLE"),
        ):
            upstream = self.upstream(
                lambda connection, answer=answer: (  # type: ignore[misc]
                    connection.write(answer),
                    connection.close(),
                )
            )
            self.serve(upstream.port)
            self.assertEqual(await self.collect("server"), ([1], code), answer)

    async def test_errors(self) -> None:
        """Errors come with code, message, details and status."""
        body = b'{"error": "SOLD_OUT", "message": "none left", "details": {"left": 0}}'
        upstream = self.upstream(lambda connection: connection.json(body, 409))
        self.serve(upstream.port)
        for method in ("unary", "server"):
            with self.assertRaises(ServiceError) as raised:
                result = await self.call(method)
                async for _ in result:
                    pass
            error = raised.exception
            found = (error.code, error.message, error.details, error.statusCode, error.grpcStatus)
            self.assertEqual(found, ("SOLD_OUT", "none left", {"left": 0}, 409, 6))
        # It has answered: nothing is wrong with it.
        self.assertEqual(self.value("attempts_total", "Probe", "error"), 2)

    async def test_ejected(self) -> None:
        """After five failures in a row the instance gets nothing."""
        bad = self.upstream(lambda connection: connection.json(b"nonsense"))
        good = self.upstream(lambda connection: connection.json(b'{"data": 1}'))
        self.serve(bad.port, good.port)
        for _ in range(30):
            await self.call("safe")
        self.assertEqual((bad.requests, good.requests), (5, 30))
        self.assertEqual(self.value("ejections_total", "Probe"), 1)
        self.assertEqual(self.value("instances", "Probe", "ejected"), 1)


class RepeatTests(UpstreamCase):
    """What is tried again, and what is not."""

    async def test_once(self) -> None:
        """A call that is not marked idempotent goes out once, whatever becomes of it."""
        upstreams = [self.upstream(RawConnection.close) for _ in range(3)]
        self.serve(*(each.port for each in upstreams))
        # The requests of a stream that were sent are not kept.
        methods = ("unary", "server", "client", "bidirectional", "safeClient")
        for count, method in enumerate(methods, 1):
            items = await self.collectAny(method)
            self.assertEqual(items, "UNAVAILABLE")
            self.assertEqual(sum(each.requests for each in upstreams), count)

    async def collectAny(self, method: str) -> Any:
        """Call a method of any kind; give the code of its error."""

        async def requests() -> AsyncIterator[Any]:
            yield {"a": 1}

        streams = method in ("client", "bidirectional", "safeClient")
        try:
            result = await self.call(method, requests() if streams else {})
            if hasattr(result, "__aiter__"):
                async for _ in result:
                    pass
        except ServiceError as error:
            return error.code
        return None

    async def test_safe(self) -> None:
        """One that is goes to each of the others, as often as was said."""
        for method in ("safe", "safeServer"):
            upstreams = [self.upstream(RawConnection.close) for _ in range(4)]
            self.serve(*(each.port for each in upstreams), retries=2)
            self.assertEqual(await self.collectAny(method), "UNAVAILABLE")
            self.assertEqual(sorted(each.requests for each in upstreams), [0, 1, 1, 1])
            self.assertEqual(self.value("retries_total", "Probe"), 2)

    async def test_afterFirstItem(self) -> None:
        """A stream is not begun again when its caller has seen an item."""
        upstream = self.upstream(
            lambda connection: (
                connection.write(CHUNKED + chunk(b'{"data": 1}\n')),
                connection.close(),
            )
        )
        self.serve(upstream.port)
        self.assertEqual(await self.collect("safeServer"), ([1], "UNAVAILABLE"))
        self.assertEqual(upstream.requests, 1)

    @long("takes a second or more")
    async def test_unreachable(self) -> None:
        """Where no server listens, nothing was sent: every call is tried at another instance."""
        good = self.upstream(lambda connection: connection.json(b'{"data": 1}'))
        self.serve(heldPort(self), good.port, heldPort(self))
        for _ in range(6):
            self.assertEqual(await self.call("unary"), 1)
        self.assertEqual(good.requests, 6)

    async def test_away(self) -> None:
        """An instance that says that it cannot serve is one that does not."""
        body = b'{"error": "UNAVAILABLE", "message": "No further calls are accepted"}'
        bad = self.upstream(lambda connection: connection.json(body, 503))
        good = self.upstream(lambda connection: connection.json(b'{"data": 1}'))
        self.serve(bad.port, good.port)
        for _ in range(4):
            self.assertEqual(await self.call("safe"), 1)
        self.assertEqual(self.value("retries_total", "Probe"), 4)
        self.assertEqual(await self.refused(self.call("unary")), "No further calls are accepted")

    async def test_closedMeanwhile(self) -> None:
        """A connection that the instance has closed while it was idle is not used for a call."""
        upstream = self.upstream(
            lambda connection: (connection.json(b'{"data": 1}'), connection.close())
        )
        self.serve(upstream.port)
        for _ in range(5):
            self.assertEqual(await self.call("unary"), 1)

    async def test_kept(self) -> None:
        """One that stays open is used again."""
        upstream = self.upstream(lambda connection: connection.json(b'{"data": 1}'))
        self.serve(upstream.port)
        for _ in range(5):
            await self.call("unary")
        self.assertEqual(len(upstream.connections), 1)


class TimeTests(UpstreamCase):
    """Instances that do not answer."""

    async def test_timeout(self) -> None:
        """After its time a call goes to another instance, and the first one learns of it."""
        slow = self.upstream(lambda connection: None)
        good = self.upstream(lambda connection: connection.json(b'{"data": 1}'))
        self.timing = timed = HandTimed(self.reactor)
        self.serve(slow.port, good.port, timeoutMs=50)
        calling = self.call("safe")
        while not slow.requests:
            await deferLater(self.reactor, 0)
        ended = slow.whenEnded()
        timed.clock.advance(0.049)
        self.assertEqual((calling.called, len(slow.connections)), (False, 1))
        timed.clock.advance(0.001)
        while not good.requests:
            # The pause before it is any time up to 25 ms.
            timed.clock.advance(0.001)
            await deferLater(self.reactor, 0)
        self.assertEqual(await calling, 1)
        await ended
        self.assertIn(b"X-Deadline-Ms: 50\r\n", good.connections[0].received)
        for outcome in ("timeout", "late"):
            self.assertEqual(self.value("attempts_total", "Probe", outcome), 1)

    async def test_late(self) -> None:
        """One that may not be repeated fails by then."""
        slow = self.upstream(lambda connection: None)
        self.serve(slow.port, timeoutMs=50)
        message = await self.refused(self.call("unary"), "DEADLINE_EXCEEDED")
        self.assertEqual(message, "An instance of Probe did not respond in time")

    async def test_cancel(self) -> None:
        """A caller that gives up closes the connection, and the instance is not blamed."""
        slow = self.upstream(lambda connection: None)
        self.serve(slow.port)
        calling = self.call("unary")
        while not slow.requests:
            await deferLater(self.reactor, 0.005)
        ended = slow.whenEnded()
        calling.cancel()
        await self.refused(calling, "CANCELLED")
        await ended
        self.assertEqual(self.value("attempts_total", "Probe", "cancelled"), 1)
        self.assertEqual(self.value("active", "Probe"), 0)

    async def test_busy(self) -> None:
        """A call that no instance has room for waits, and not for ever."""
        slow = self.upstream(lambda connection: None)
        self.serve(slow.port, maxConnections=1, timeoutMs=50)
        first = self.collectFrom(self.call("server"))
        message = await self.refused(self.call("unary"))
        self.assertEqual(message, "Every instance of Probe is busy")
        first.cancel()
        await self.refused(first, "CANCELLED")

    def collectFrom(self, calling: Deferred[Any]) -> Deferred[Any]:
        """Begin to read the stream that a call gives."""

        async def begin() -> Any:
            return await (await calling).__anext__()

        return Deferred.fromCoroutine(begin())
