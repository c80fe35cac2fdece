"""Options of calls and messages, as they show on the wire."""

import zlib
from collections.abc import Callable
from typing import Any

from hyperframe.frame import SettingsFrame
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from storagegate.rpc import application, dispatch
from tests.support.h2client import H2Client, H2Stream
from tests.support.selection import long
from tests.wire.rpc.optioncase import BIG, BIGS, ECHO, HOLD, WAIT, OptionCase, sized, struct

DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8

GZIP = (("grpc-accept-encoding", "identity,gzip"),)
DEFLATE = (("grpc-accept-encoding", "identity,deflate"),)
BOTH = (("grpc-accept-encoding", "identity,deflate,gzip"),)


def calling(path: str, *messages: bytes, metadata: Any = ()) -> Callable[[H2Client], H2Stream]:
    """Make a call."""
    return lambda client: client.call(path, *messages, metadata=metadata)


class LengthTests(OptionCase):
    """C{maxReceiveMessageLength} and C{maxSendMessageLength}."""

    async def test_receive(self) -> None:
        """A message of the length is taken, one byte more ends the call, and the next one works."""
        port = await self.serve({"maxReceiveMessageLength": 1000})

        def use(client: H2Client) -> list[int | None]:
            lengths = (1000, 1001, 1000)
            return [client.call(ECHO, sized(length)).status for length in lengths]

        self.assertEqual(await self.within(port, use), [0, RESOURCE_EXHAUSTED, 0])

    async def test_receiveCompressed(self) -> None:
        """What counts is the message itself, not what it was compressed to."""
        port = await self.serve({"maxReceiveMessageLength": 1000})

        def use(client: H2Client) -> list[int | None]:
            found = []
            for length in (1000, 1001):
                stream = client.begin(ECHO, [("grpc-encoding", "deflate")])
                packed = zlib.compress(sized(length))
                client.sendMessage(stream, packed, isCompressed=True, isLast=True)
                found.append(client.finish(stream).status)
            return found

        self.assertEqual(await self.within(port, use), [0, RESOURCE_EXHAUSTED])

    async def test_receiveStream(self) -> None:
        """The limit holds for each message of a stream."""
        port = await self.serve({"maxReceiveMessageLength": 1000})
        stream = await self.within(port, calling(HOLD, sized(1000), sized(900), sized(1001)))
        self.assertEqual(stream.status, RESOURCE_EXHAUSTED)

    @long("takes seconds")
    async def test_receiveDefault(self) -> None:
        """Without the option it is 4 MiB."""
        port = await self.serve({"maxSendMessageLength": -1})

        def use(client: H2Client) -> list[int | None]:
            lengths = (4 << 20, (4 << 20) + 1)
            return [client.call(ECHO, sized(length)).status for length in lengths]

        self.assertEqual(await self.within(port, use), [0, RESOURCE_EXHAUSTED])

    @long("takes seconds")
    async def test_unlimited(self) -> None:
        """With -1 any length goes, both ways."""
        port = await self.serve({"maxReceiveMessageLength": -1, "maxSendMessageLength": -1})
        message = sized(5 << 20)
        stream = await self.within(port, calling(ECHO, message))
        self.assertEqual((stream.status, stream.messages), (0, [(False, message)]))

    async def test_send(self) -> None:
        """A response of the length is sent, one byte more ends the call instead."""
        port = await self.serve({"maxSendMessageLength": 1000})

        def use(client: H2Client) -> list[tuple[int | None, int]]:
            found = []
            for length in (1000, 1001, 1000):
                stream = client.call(ECHO, sized(length))
                found.append((stream.status, len(stream.messages)))
            return found

        self.assertEqual(await self.within(port, use), [(0, 1), (RESOURCE_EXHAUSTED, 0), (0, 1)])

    async def test_sendDefault(self) -> None:
        """Without the option it is 4 MiB."""
        port = await self.serve()
        stream = await self.within(port, calling(BIG, struct(length=4 << 20)))
        self.assertEqual((stream.status, stream.messages), (RESOURCE_EXHAUSTED, []))

    async def test_sendStream(self) -> None:
        """In a stream nothing comes after the message that is too long."""
        port = await self.serve({"maxSendMessageLength": 1000})
        stream = await self.within(port, calling(BIGS, struct(lengths=[10, 900, 1001, 10])))
        self.assertEqual(stream.status, RESOURCE_EXHAUSTED)
        # What is still on its way when the library ends the call is lost.
        self.assertLessEqual(len(stream.messages), 2)


class CompressionTests(OptionCase):
    """C{compression} and C{compressionOptions}, by the flag before each message."""

    async def flags(self, metadata: Any, **grpc: Any) -> tuple[str | None, list[bool]]:
        """Give the encoding and the flags of messages that are about 100 and 2000 bytes long."""
        port = await self.serve(grpc)
        stream = await self.within(
            port, calling(BIGS, struct(lengths=[100, 2000, 100]), metadata=metadata)
        )
        self.assertEqual(stream.status, 0)
        return stream.headers.get("grpc-encoding"), [flag for flag, _ in stream.messages]

    async def test_off(self) -> None:
        """Without the option nothing is compressed, whatever a client could read."""
        self.assertEqual(await self.flags(BOTH), (None, [False] * 3))

    async def test_identity(self) -> None:
        """The same with the encoding that is none."""
        found = await self.flags(BOTH, compression="identity", compressionOptions={"threshold": 0})
        self.assertEqual(found, (None, [False] * 3))

    async def test_gzip(self) -> None:
        """Messages over the threshold are compressed, the others not, in one stream."""
        found = await self.flags(BOTH, compression="gzip")
        self.assertEqual(found, ("gzip", [False, True, False]))

    async def test_deflate(self) -> None:
        """The same with deflate."""
        found = await self.flags(BOTH, compression="deflate", compressionOptions={"threshold": 10})
        self.assertEqual(found, ("deflate", [True] * 3))

    async def test_notAccepted(self) -> None:
        """A client that has not said that it reads gzip gets messages as they are."""
        for metadata in (
            (),
            (("grpc-accept-encoding", "identity"),),
            (("accept-encoding", "gzip"),),
        ):
            found = await self.flags(metadata, compression="gzip")
            self.assertEqual(found, (None, [False] * 3))

    async def test_other(self) -> None:
        """A client that reads only the other algorithm gets that one."""
        found = await self.flags(DEFLATE, compression="gzip")
        self.assertEqual(found, ("deflate", [False, True, False]))
        found = await self.flags(GZIP, compression="deflate")
        self.assertEqual(found, ("gzip", [False, True, False]))

    async def test_threshold(self) -> None:
        """A message of the threshold's length is not compressed, one byte more is; unary too."""
        port = await self.serve(
            {"compression": "gzip", "compressionOptions": {"threshold": "2kb", "level": 9}}
        )

        def use(client: H2Client) -> list[tuple[bool, bytes]]:
            lengths = (2048, 2049)
            return [client.call(ECHO, sized(size), metadata=GZIP).messages[0] for size in lengths]

        (short, message), (long, packed) = await self.within(port, use)
        self.assertEqual((short, long), (False, True))
        self.assertEqual(message, sized(2048))
        self.assertEqual(zlib.decompress(packed, wbits=31), sized(2049))


class LimitTests(OptionCase):
    """Limits on how many calls there are and how large their metadata."""

    async def test_maxConcurrentStreams(self) -> None:
        """The server announces how many calls a connection may have, and refuses more."""
        port = await self.serve({"maxConcurrentStreams": 3})

        def use(client: H2Client) -> tuple[int, int | None, list[int | None]]:
            settings = client.waitFor(SettingsFrame).settings
            held = [client.begin(HOLD) for _ in range(3)]
            for stream in held:
                client.readUntil(lambda stream=stream: bool(stream.messages))
            refused = client.finish(client.begin(ECHO))
            for stream in held:
                client.sendData(stream, b"", isLast=True)
            ended = [client.finish(stream).status for stream in held]
            return settings[SettingsFrame.MAX_CONCURRENT_STREAMS], refused.resetCode, ended

        # 7 is REFUSED_STREAM, RFC 9113 section 5.1.2: the client may try again.
        self.assertEqual(await self.within(port, use), (3, 7, [0, 0, 0]))

    async def test_maxConcurrentStreamsDefault(self) -> None:
        """Without the option it is 100."""
        port = await self.serve()
        settings = await self.within(port, lambda client: client.waitFor(SettingsFrame).settings)
        self.assertEqual(settings[SettingsFrame.MAX_CONCURRENT_STREAMS], 100)

    async def test_maxConcurrentRpcs(self) -> None:
        """Calls over the limit are refused, on whichever connection, until others have ended."""
        port = await self.serve({"maxConcurrentRpcs": 2})
        held: list[Deferred[H2Stream]] = [
            deferToThread(self.use, port, calling(WAIT, struct())) for _ in range(2)
        ]
        while len(self.waiting) < 2:
            # Each call of another thread lets the reactor turn.
            await deferToThread(lambda: None)
        refused = await self.within(port, calling(ECHO, struct()))
        self.assertEqual(refused.status, RESOURCE_EXHAUSTED)
        self.waiting.pop().callback(None)
        self.waiting.pop().callback(None)
        self.assertEqual([stream.status for stream in await gatherResults(held)], [0, 0])
        self.assertEqual((await self.within(port, calling(ECHO, struct()))).status, 0)

    async def test_lateRequest(self) -> None:
        """A call whose request does not arrive in time is refused, and its connection goes on."""
        self.patch(application, "CHECK_SECONDS", 0.05)
        self.patch(dispatch, "REQUEST_SECONDS", 0.1)
        port = await self.serve()

        def use(client: H2Client) -> list[int | None]:
            late = client.begin(ECHO)
            client.sendData(late, b"\0\0\0\0\x09half", isLast=False)
            client.readUntil(lambda: late.isEnded)
            return [late.status, client.call(ECHO, struct()).status]

        self.assertEqual(await self.within(port, use), [DEADLINE_EXCEEDED, 0])
        self.assertEqual(self.app.activeCalls, 0)

    def use(self, port: int, use: Callable[[H2Client], H2Stream]) -> H2Stream:
        """Do something with a connection. In a thread."""
        with H2Client(port) as client:
            return use(client)

    async def test_maxMetadataSize(self) -> None:
        """Metadata below the limit is taken, more than twice as much always refused."""
        port = await self.serve({"maxMetadataSize": "4kb"})

        def use(client: H2Client) -> list[int | None]:
            return [
                client.call(ECHO, struct(), metadata=[("x-long", "v" * length)]).status
                for length in (3000, 8300, 3000)
            ]

        self.assertEqual(await self.within(port, use), [0, RESOURCE_EXHAUSTED, 0])

    async def test_maxMetadataSizeDefault(self) -> None:
        """Without the option 16 KiB are always too much, and 7 never; the server says so first."""
        port = await self.serve()

        def use(client: H2Client) -> tuple[int, list[int | None]]:
            settings = client.waitFor(SettingsFrame).settings
            return settings[SettingsFrame.MAX_HEADER_LIST_SIZE], [
                client.call(ECHO, struct(), metadata=[("x-long", "v" * length)]).status
                for length in (7000, 16 << 10)
            ]

        self.assertEqual(await self.within(port, use), (16 << 10, [0, RESOURCE_EXHAUSTED]))
