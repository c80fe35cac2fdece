"""What a hostile client asks of the UserService, and the daemon stopping under it."""

import signal
import time
from pathlib import Path
from queue import SimpleQueue

import grpc
from hyperframe.frame import SettingsFrame
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.h2client import H2Client
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.selection import long
from tests.wire.rpc.optioncase import struct
from tests.wire.rpc.test_users import ADA, UsersCase

LONG = "x" * 4_190_000
"""As long as a message lets it be."""

INVALID = grpc.StatusCode.INVALID_ARGUMENT

MEMBERS = 300
MESSAGES = 30
MEMORY_LIMIT = 50 << 20
PATIENCE = 60.0


class HostileUsersTests(UsersCase):
    """Requests."""

    @long("takes seconds")
    async def test_long(self) -> None:
        """Text, ids and lists of four megabytes are refused by their field, and named shortly."""
        for name, request, field in (
            ("CreateUser", {**ADA, "name": LONG}, "name"),
            ("CreateUser", {**ADA, "email": LONG}, "email"),
            ("CreateUser", {**ADA, "email": f"{LONG[:-12]}@example.org"}, "email"),
            ("CreateUser", {**ADA, "roles": [""] * 1_000_000}, "roles"),
            ("CreateUser", {**ADA, "address": {"city": LONG}}, "address.city"),
            ("GetUser", {"id": LONG}, "id"),
            ("ListUsers", {"sortBy": LONG}, "sortBy"),
            ("SearchUsers", {"query": LONG}, "query"),
            ("SearchUsers", {"query": "x", "fields": [LONG]}, "fields"),
        ):
            error = await self.refused(name, request)
            self.assertEqual(error.code(), INVALID)
            self.assertTrue(error.details().startswith(field), error.details()[:80])
            self.assertLess(len(error.details()), 300)

    async def test_statements(self) -> None:
        """What means something to a database is a text like any other, or is refused."""
        names = ["100%", "a_b", "O'Hara", 'said "no"', "back\\slash", "; DROP TABLE users --"]
        for at, name in enumerate(names):
            await self.call("CreateUser", {"name": name, "email": f"u{at}@example.org"})
        for mark, name in zip("%_'\"\\;", names, strict=True):
            found = await self.call("SearchUsers", {"query": mark, "fields": ["name"]})
            self.assertEqual([user["name"] for user in found], [name])
        for request in ({"sortBy": "name; DROP TABLE users"}, {"sortOrder": "asc, 1"}):
            self.assertEqual((await self.refused("ListUsers", request)).code(), INVALID)
        self.assertEqual((await self.refused("GetUser", {"id": "' OR 1=1 --"})).code(), INVALID)
        self.assertEqual(len(await self.call("ListUsers", {})), len(names))

    async def test_farPages(self) -> None:
        """The last page that there can be is empty, and comes at once."""
        await self.call("CreateUser", ADA)
        far = {"page": (1 << 31) - 1, "limit": (1 << 31) - 1}
        self.assertEqual(await self.call("ListUsers", far), [])


class DaemonTests(SynchronousTestCase):
    """The daemon as a process."""

    def setUp(self) -> None:
        """Start it."""
        self.daemon = Daemon(
            Path(self.mktemp()),
            "--s3",
            "off",
            "--grpc",
            "127.0.0.1:0",
            environment={"STORAGEGATE_SHUTDOWN_GRACE_SECONDS": "2"},
            expect=("admin", "grpc"),
        )
        self.daemon.start()
        self.addCleanup(self.daemon.kill)

    @property
    def port(self) -> int:
        """Give the port of the gRPC listener."""
        return self.daemon.address("grpc")[1]

    @long("takes seconds")
    def test_stopped(self) -> None:
        """SIGTERM with streams open: none keeps it beyond its grace, and it exits with 0."""
        users = SimpleQueue[bytes | None]()
        self.addCleanup(users.put, None)
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            chat = channel.stream_stream("/user.UserService/Chat")(iter(users.get, None))
            next(chat)
            with H2Client(self.port) as client:
                client.isSilent = True
                client.begin("/user.UserService/CreateMultipleUsers")
                client.begin("/user.UserService/GetUser")
                client.call("/grpc.health.v1.Health/Check", b"")
                before = time.monotonic()
                self.daemon.signal(signal.SIGTERM)
                self.assertEqual(self.daemon.wait(), 0)
                took = time.monotonic() - before
            with self.assertRaises(grpc.RpcError) as raised:
                list(chat)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertGreater(took, 1.9)
        self.assertNotIn("Traceback", self.daemon.log)

    @long("takes seconds")
    def test_crowd(self) -> None:
        """In a chat of 300, a client that reads nothing delays no others."""
        # A window that is full after the welcome.
        settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 1000}
        clients = [H2Client(self.port, timeout=PATIENCE) for _ in range(3)]
        deafClient = H2Client(self.port, settings=settings)
        for client in (*clients, deafClient):
            self.addCleanup(client.close)
        # Three connections, for each may have a hundred calls.
        streams = [
            (client, client.begin("/user.UserService/Chat"))
            for client in clients
            for _ in range((MEMBERS - 1) // 3)
        ]
        deaf = deafClient.begin("/user.UserService/Chat")
        # Who has been welcomed is in the room.
        for client, stream in [*streams, (deafClient, deaf)]:
            client.readUntil(lambda stream=stream: bool(stream.messages))
        forgetPeak(self.daemon.pid)
        before = residentMemory(self.daemon.pid)
        said = struct(userId="ada", message="m" * 1000)
        speaker, voice = streams[-1]
        for _ in range(MESSAGES):
            speaker.sendMessage(voice, said)
        for client, stream in streams:
            client.readUntil(lambda stream=stream: len(stream.messages) > MESSAGES)
        self.assertLess(peakMemory(self.daemon.pid) - before, MEMORY_LIMIT)
