"""The client's calls, against grpcio's own server."""

import os
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import ClientClosedError
from tests.wire.rpc.clientcase import ClientCase, clientThreads, spawn


class KindTests(ClientCase):
    """The four kinds of calls."""

    async def test_unary(self) -> None:
        """A call with one request and one response is awaited."""
        sent = {"text": "ä", "count": -1, "body": b"\0\xff", "sentAt": "2026-01-02T03:04:05Z"}
        self.assertEqual(await self.client.send(sent), sent)

    async def test_fields(self) -> None:
        """A request's fields may be given by name; nothing at all is an empty request."""
        self.assertEqual(await self.client.send(text="x", count=2), {"text": "x", "count": 2})
        self.assertEqual(await self.client.send(), {})
        self.assertRaises(TypeError, self.client.send, {"text": "x"}, count=2)

    async def test_byName(self) -> None:
        """Methods are there in camelCase and by their own names."""
        self.assertEqual(await self.client["Send"]({"text": "x"}), {"text": "x"})
        self.assertEqual(await self.client.Send({"text": "x"}), {"text": "x"})

    async def test_serverStream(self) -> None:
        """A stream of responses is an asynchronous iterable."""
        received = [parcel.get("count", 0) async for parcel in self.client.split(count=100)]
        self.assertEqual(received, list(range(100)))

    async def test_clientStream(self) -> None:
        """A stream of requests is any iterable, and the response is awaited."""

        async def texts() -> AsyncIterator[Any]:
            for text in "abc":
                yield {"text": text}

        expected = {"count": 3, "seen": ["a", "b", "c"]}
        self.assertEqual(await self.client.join(texts()), expected)
        self.assertEqual(await self.client.join([{"text": text} for text in "abc"]), expected)
        self.assertEqual(await self.client.join(()), {})

    async def test_bidirectional(self) -> None:
        """Requests may depend on the responses before them."""
        answered: Deferred[Any] = Deferred()
        seen = []

        async def texts() -> AsyncIterator[Any]:
            yield {"text": "first"}
            yield {"text": f"after {(await answered)['text']}"}

        async for parcel in self.client.chat(texts()):
            seen.append(parcel["text"])
            if len(seen) == 1:
                answered.callback(parcel)
        self.assertEqual(seen, ["first", "after first"])

    async def test_large(self) -> None:
        """Messages of 3 MB pass, in all kinds, one after the other."""
        body = os.urandom(3_000_000)
        self.assertEqual((await self.client.send(body=body))["body"], body)
        received = [each["body"] async for each in self.client.chat([{"body": body}] * 3)]
        self.assertTrue(received == [body] * 3)

    async def test_many(self) -> None:
        """Calls are under way beside one another."""
        calls = [self.client.send(count=number).deferred() for number in range(1, 300)]
        results = await gatherResults(calls)
        self.assertEqual([each["count"] for each in results], list(range(1, 300)))


class MetadataTests(ClientCase):
    """What goes beside messages."""

    async def test_bothWays(self) -> None:
        """Metadata arrive both ways, several of a name, and bytes where the name says so."""
        metadata = {"X-Name": ["a", "b"], "x-raw-bin": b"\0\xfe"}
        call = self.client.send(text="x", metadata=metadata)
        for received in (await call.initialMetadata(), await call.trailers()):
            self.assertEqual(received.get("X-Name"), ["a", "b"])
            self.assertEqual(received.get("x-raw-bin"), [b"\0\xfe"])
            self.assertEqual(received.getMap()["x-name"], "a")
        self.assertEqual(await call, {"text": "x"})

    async def test_early(self) -> None:
        """The initial metadata of a stream are there before its end."""
        call = self.client.split(text="wait")
        self.assertEqual((await call.initialMetadata()).get("x-begun"), ["yes"])
        call.cancel()
        await call.trailers()

    async def test_bad(self) -> None:
        """Metadata that cannot be sent are refused at once, and named."""
        for metadata in ({"x y": "a"}, {"grpc-x": "a"}, {"x": "ä"}, {"x-bin": "text"}, {"x": 1.5}):
            error = self.assertRaises(ValueError, self.client.send, metadata=metadata)
            self.assertIn(next(iter(metadata)), str(error))


class ErrorTests(ClientCase):
    """
    Calls that fail.

    @cvar surplus: The status of a second response that is not expected.
    """

    surplus = "DEADLINE_EXCEEDED"

    async def test_status(self) -> None:
        """A status that is no success is an error with message, details and trailers."""
        call = self.client.send(text="fail", metadata={"x-own": "1"})
        error = await self.assertEnds(call, "NOT_FOUND")
        self.assertEqual(error.message, "no such thing: ä")
        self.assertEqual(error.details, {"reason": "because"})
        self.assertEqual(error.metadata.get("x-own"), ["1"])
        self.assertEqual((await call.trailers()).get("x-own"), ["1"])

    async def test_afterItems(self) -> None:
        """What came of a stream before its error is given before it."""
        seen = []

        async def take() -> None:
            async for parcel in self.client.split(count=20, text="fail"):
                seen.append(parcel.get("count", 0))

        error: Any = await self.assertFailure(spawn(take()), Exception)
        self.assertEqual((error.statusName, seen), ("NOT_FOUND", list(range(20))))

    async def test_twice(self) -> None:
        """A call that is awaited again has the same outcome."""
        good, bad = self.client.send(text="x"), self.client.send(text="fail")
        self.assertIs(await good, await good)
        first = await self.assertEnds(bad, "NOT_FOUND")
        again = await self.assertEnds(bad, "NOT_FOUND")
        self.assertEqual((again.message, again.details), (first.message, first.details))

    async def test_unfit(self) -> None:
        """A request that does not fit its message is refused at once; nothing is sent."""
        error = self.assertRaises(ConversionError, self.client.send, {"count": "x"})
        self.assertIn("count", str(error))
        self.assertRaises(ConversionError, self.client.split, {"unknown": 1})
        self.assertRaises(TypeError, self.client.join, {"text": "one"})
        self.assertRaises(TypeError, self.client.join)
        self.assertEqual(clientThreads(), [])

    async def test_unfitLater(self) -> None:
        """A request of a stream that does not fit ends the call, and is its error."""
        requests = [{"text": "a"}, {"count": "x"}, {"text": "b"}]
        await self.assertFailure(self.client.join(requests).deferred(), ConversionError)

    async def test_requestsRaise(self) -> None:
        """What a stream of requests raises ends the call, and comes out of it."""

        async def broken() -> AsyncIterator[Any]:
            yield {"text": "a"}
            raise ZeroDivisionError("mine")

        await self.assertFailure(self.client.join(broken()).deferred(), ZeroDivisionError)

        async def take() -> None:
            async for _ in self.client.chat(broken()):
                pass

        await self.assertFailure(spawn(take()), ZeroDivisionError)

    async def test_unimplemented(self) -> None:
        """A method that the server does not have is UNIMPLEMENTED."""
        client = self.connect(self.server.loaded.Other)
        self.assertEqual(await client.only(text="x"), {"text": "x"})
        silent = await self.serve(services=())
        await self.assertEnds(self.connect(port=silent.port).send(), "UNIMPLEMENTED")

    async def test_miscounted(self) -> None:
        """A server that gives no response, or several, where it has to give one is in error."""
        self.server = await self.serve(miscounts=True)
        client = self.connect()
        self.assertEqual(await client.send(count=1), {})
        self.assertEqual(await client.join([{"count": 1}]), {})
        await self.assertEnds(client.send(count=0), "UNIMPLEMENTED")
        await self.assertEnds(client.join([{"count": 0}]), "UNIMPLEMENTED")
        await self.assertEnds(client.join([{"count": 2}]), "INTERNAL")
        await self.assertEnds(client.join([{"count": 1000}]), "INTERNAL")
        # A method that gave one response: grpc core does not read the second one, but does with the
        # next call.
        deadlineMs = 200 if self.surplus == "DEADLINE_EXCEEDED" else 20_000
        await self.assertEnds(client.send(count=2, deadlineMs=deadlineMs), self.surplus)
        await self.assertEnds(client.send(count=2), "INTERNAL")

    async def test_tooLong(self) -> None:
        """A response over the limit is RESOURCE_EXHAUSTED, and so is a request."""
        small = {"maxReceiveMessageLength": 1000, "maxSendMessageLength": "2kb"}
        client = self.connect(options=small)
        await self.assertEnds(client.send(body=bytes(1500)), "RESOURCE_EXHAUSTED")
        await self.assertEnds(client.send(body=bytes(3000)), "RESOURCE_EXHAUSTED")
        self.assertEqual(await client.send(body=b"short"), {"body": b"short"})

    async def test_misused(self) -> None:
        """To await a stream, or to iterate over one response, is an error that says so."""
        stream, single = self.client.split(count=1), self.client.send()
        self.assertIn("async for", str(self.assertRaises(TypeError, stream.deferred)))
        self.assertIn("await", str(self.assertRaises(TypeError, aiter, single)))
        await single
        stream.cancel()

    async def test_unknownMethod(self) -> None:
        """A method that the service does not have is an AttributeError that names what it has."""
        error = self.assertRaises(AttributeError, getattr, self.client, "sned")
        self.assertIn("Send", str(error))
        self.assertIn("sned", str(error))
        self.assertRaises(KeyError, self.client.__getitem__, "Sned")


class ClosedTests(ClientCase):
    """Clients that are closed."""

    async def test_used(self) -> None:
        """A closed client says so when it is used; to close it again changes nothing."""
        await self.client.send()
        first, second = self.client.close(), self.client.close()
        self.assertRaises(ClientClosedError, self.client.send)
        await first
        await second
        await self.client.close()
        self.assertRaises(ClientClosedError, self.client.split)

    async def test_neverUsed(self) -> None:
        """A client that made no call closes as well."""
        await self.client.close()
        self.assertEqual(clientThreads(), [])

    async def test_underWay(self) -> None:
        """Calls that are under way end with CANCELLED."""
        single = self.client.send(text="wait").deferred()
        stream = self.client.split(text="wait")
        await stream.initialMetadata()

        async def take() -> None:
            async for _ in stream:
                pass

        taking = spawn(take())
        closed = self.client.close()
        for each in (single, taking):
            error: Any = await self.assertFailure(each, Exception)
            self.assertEqual(error.statusName, "CANCELLED")
        await closed
        self.assertEqual(clientThreads(), [])
