"""Options of connections, as a client that counts frames sees them."""

import contextlib
import socket
from typing import Any

import grpc
from hyperframe.frame import GoAwayFrame, PingFrame, SettingsFrame
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThread

from storagegate import server
from tests.support.h2client import H2Client, H2Stream
from tests.wire.rpc.optioncase import ECHO, HOLD, OptionCase, struct

NO_ERROR = 0
ENHANCE_YOUR_CALM = 11

# Longer than any test takes.
LONG = 600_000


def pings(client: H2Client) -> list[PingFrame]:
    """Give the pings of the server, up to its good-bye, which pings once more."""
    found: list[PingFrame] = []
    for frame in client.frames:
        if isinstance(frame, GoAwayFrame):
            break
        if isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            found.append(frame)
    return found


def held(client: H2Client) -> H2Stream:
    """Open a call, and wait until it is with its handler, or is none any more."""
    stream = client.begin(HOLD)
    client.readUntil(lambda: bool(stream.messages) or stream.isEnded)
    return stream


def answered(client: H2Client, limit: int) -> int:
    """Ping, each time when the last one was answered; give how many were, of so many."""
    for number in range(limit):
        client.ping(number.to_bytes(8, "big"))
        client.readUntil(lambda number=number: _isOver(client) or _acknowledged(client) > number)
        if _isOver(client):
            break
    return _acknowledged(client)


def _acknowledged(client: H2Client) -> int:
    return sum(isinstance(frame, PingFrame) and "ACK" in frame.flags for frame in client.frames)


def _isOver(client: H2Client) -> bool:
    return any(isinstance(frame, GoAwayFrame) for frame in client.frames)


class CountTests(OptionCase):
    """C{maxConnections}."""

    async def test_maxConnections(self) -> None:
        """A connection more than these is closed, and served when another one has gone."""
        port = await self.serve({"maxConnections": 2})

        def isClosed() -> bool:
            with socket.create_connection(("127.0.0.1", port), 30) as third:
                try:
                    return third.recv(1) == b""
                except ConnectionError:
                    return True

        def use() -> tuple[bool, int | None]:
            with H2Client(port) as first:
                first.waitFor(SettingsFrame)
                with H2Client(port) as second:
                    second.waitFor(SettingsFrame)
                    found = isClosed()
                while isClosed():
                    pass
                return found, first.call(ECHO, struct()).status

        self.assertEqual(await deferToThread(use), (True, 0))


class KeepaliveTests(OptionCase):
    """The server's pings."""

    async def test_time(self) -> None:
        """A client that says nothing is pinged again and again, as long as it answers."""
        port = await self.serve({"keepaliveTimeMs": 50, "keepalivePermitWithoutCalls": True})

        def use(client: H2Client) -> bool:
            return client.readUntil(lambda: len(pings(client)) >= 5)

        self.assertTrue(await self.within(port, use))

    async def test_timeout(self) -> None:
        """A client that does not answer is left after a while."""
        port = await self.serve(
            {
                "keepaliveTimeMs": 50,
                "keepaliveTimeoutMs": 100,
                "keepalivePermitWithoutCalls": True,
            }
        )

        def use(client: H2Client) -> int:
            client.readUntil(lambda: len(pings(client)) >= 3)
            client.isSilent = True
            before = len(pings(client))
            client.readToEnd()
            return len(pings(client)) - before

        # The one that is not answered.
        self.assertLessEqual(await self.within(port, use), 1)

    async def test_withoutCalls(self) -> None:
        """Without leave a connection is pinged only while it has a call."""
        port = await self.serve({"keepaliveTimeMs": 50})

        def use(busy: H2Client) -> int:
            with H2Client(port) as idle:
                idle.waitFor(SettingsFrame)
                held(busy)
                self.assertTrue(busy.readUntil(lambda: len(pings(busy)) >= 10))
                # What the server had sent before its answer has come before it.
                idle.ping()
                self.assertTrue(idle.readUntil(lambda: _acknowledged(idle) > 0))
                return len(pings(idle))

        self.assertEqual(await self.within(port, use), 0)

    async def test_maxPingsWithoutData(self) -> None:
        """The number of pings without data bounds those of clients, not the server's."""
        port = await self.serve(
            {
                "keepaliveTimeMs": 50,
                "keepalivePermitWithoutCalls": True,
                "http2MaxPingsWithoutData": 1,
            }
        )

        def use(client: H2Client) -> bool:
            return client.readUntil(lambda: len(pings(client)) >= 5)

        self.assertTrue(await self.within(port, use))


class FloodTests(OptionCase):
    """The client's pings."""

    async def flood(self, use: Any, **grpc: Any) -> tuple[int, int | None, bytes]:
        """Give how many pings were answered, and the good-bye after them if there was one."""
        port = await self.serve(grpc)

        def run(client: H2Client) -> tuple[int, int | None, bytes]:
            use(client)
            count = answered(client, 20)
            if not _isOver(client):
                return count, None, b""
            goodbye = client.goAway()
            assert goodbye is not None
            client.readToEnd()
            return count, goodbye.error_code, goodbye.additional_data

        return await self.within(port, run)

    async def test_strikes(self) -> None:
        """After the first ping so many that come too soon are borne, and then the door is shut."""
        for strikes in (1, 4):
            count, code, reason = await self.flood(
                held, http2MaxPingStrikes=strikes, http2MinTimeBetweenPingsMs=LONG
            )
            self.assertEqual((code, reason), (ENHANCE_YOUR_CALM, b"too_many_pings"))
            # The first one is free, and so is one after each thing that the server itself sends.
            self.assertIn(count, range(strikes + 1, strikes + 4))

    async def test_noStrikes(self) -> None:
        """With 0 any number is borne."""
        found = await self.flood(held, http2MaxPingStrikes=0, http2MinTimeBetweenPingsMs=LONG)
        self.assertEqual(found, (20, None, b""))

    async def test_minTime(self) -> None:
        """With no time between them pings never come too soon, while there is a call."""
        found = await self.flood(held, http2MaxPingStrikes=1, http2MinTimeBetweenPingsMs=0)
        self.assertEqual(found, (20, None, b""))

    async def test_permitWithoutCalls(self) -> None:
        """Without a call pings come too soon, unless they are permitted."""
        times: dict[str, Any] = {"http2MaxPingStrikes": 1, "http2MinTimeBetweenPingsMs": 0}
        for isPermitted, expected in ((False, ENHANCE_YOUR_CALM), (True, None)):
            _, code, _ = await self.flood(
                lambda client: None, keepalivePermitWithoutCalls=isPermitted, **times
            )
            self.assertEqual(code, expected)


class AgeTests(OptionCase):
    """How long a connection lasts."""

    async def test_age(self) -> None:
        """An old connection is told to go, and its calls may end."""
        port = await self.serve({"maxConnectionAge": 300, "maxConnectionAgeGrace": LONG})

        def use(client: H2Client) -> tuple[int, int | None, int]:
            stream = held(client)
            goodbye = client.goAway()
            assert goodbye is not None
            client.sendMessage(stream, struct(late="yes"), isLast=True)
            client.finish(stream)
            client.readToEnd()
            return goodbye.error_code, stream.status, len(stream.messages)

        self.assertEqual(await self.within(port, use), (NO_ERROR, 0, 2))

    async def tried(self, name: str, use: Any, **more: int) -> Any:
        """
        Do something with a connection while an option is short, and longer if nothing comes of it:
        on a busy machine a connection may be closed before it has its call.
        """
        for milliseconds in (200, 1000, 5000, 20_000):
            self.port = await self.serve({name: milliseconds, **more})
            found = await self.within(self.port, use)
            if found is not None:
                return found
        raise self.failureException("the connection never had its call")

    async def test_grace(self) -> None:
        """Calls that do not end in the grace are cut."""

        def use(client: H2Client) -> tuple[int, int | None] | None:
            with contextlib.suppress(OSError):
                stream = held(client)
                goodbye = client.goAway() if stream.messages else None
                if goodbye is not None:
                    client.readToEnd()
                    return goodbye.error_code, stream.status
            return None

        code, status = await self.tried("maxConnectionAge", use, maxConnectionAgeGrace=200)
        self.assertEqual(code, NO_ERROR)
        self.assertNotEqual(status, 0)

    async def test_idle(self) -> None:
        """A connection without calls is closed, and one with calls is not."""

        def idle(client: H2Client) -> bytes:
            goodbye = client.goAway()
            assert goodbye is not None
            client.readToEnd()
            return bytes(goodbye.additional_data)

        def use(client: H2Client) -> tuple[bytes, int | None] | None:
            with contextlib.suppress(OSError):
                stream = held(client)
                if stream.messages:
                    # Another one comes later, and goes first.
                    with H2Client(self.port) as other:
                        reason = idle(other)
                    client.sendData(stream, b"", isLast=True)
                    return reason, client.finish(stream).status
            return None

        reason, status = await self.tried("maxConnectionIdle", use)
        self.assertIn(b"idle", reason)
        self.assertEqual(status, 0)


class PortTests(OptionCase):
    """Where an application listens."""

    async def test_taken(self) -> None:
        """A port that another application has is an error, also for gRPC, which would share it."""
        port = await self.serve()
        other = server.grpc().withOptions(grpc={"health": False})
        self.addCleanup(other.stop, 0)
        await self.assertFailure(other.listen(port), CannotListenError)

    async def test_reusePort(self) -> None:
        """With the option of both they share it."""
        port = await self.serve({"reusePort": True})
        other = server.grpc().withOptions(grpc={"health": False, "reusePort": True})
        self.addCleanup(other.stop, 0)
        listening = await other.listen(port)
        self.assertEqual(listening.getHost().port, port)

    async def test_again(self) -> None:
        """Options hold for the next listen."""
        port = await self.serve({"maxReceiveMessageLength": 10})
        message = struct(text="longer than this")
        stream = await self.within(port, lambda client: client.call(ECHO, message))
        self.assertEqual(stream.status, 8)


class StreamTests(OptionCase):
    """How many calls a connection may have at a time."""

    async def test_noneRefused(self) -> None:
        """A client that keeps to the limit is never refused, however fast it calls."""
        port = await self.serve({"maxConcurrentStreams": 20})

        def use() -> list[grpc.StatusCode]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                echo = channel.unary_unary(ECHO)
                # The client's own library has the limit, and lets the others wait.
                calls = [echo.future(b"") for _ in range(2000)]
                return [call.code() for call in calls]

        self.assertEqual(set(await deferToThread(use)), {grpc.StatusCode.OK})
