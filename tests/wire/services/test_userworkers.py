"""Users, chats and watches of the daemon with two workers: one room, one table, one news."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import ClientConnection, connect

from storagegate.rpc.protos import loadProto, protoPath
from tests.support.clients import Account
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon, daemonEnvironment
from tests.support.http import request
from tests.support.selection import long
from tests.wire.daemon.test_workers import children

T = TypeVar("T", "Socket", "Channel")

SECONDS = 120.0

ROOT = Account(ACCESS_KEY, SECRET_KEY)

EVERYTHING = ("--http", "tcp:0:interface=127.0.0.1", "--grpc", "127.0.0.1:0")

ESTABLISHED = "01"

# Many short transactions, next to others that do the same: some emails are everybody's.
WRITER = """
import sys
from storagegate.services.usertable import User
from storagegate.services.usertable import UserTable

path, name = sys.argv[1:]
table = UserTable(path, 20_000)
print("ready", flush=True)
sys.stdin.readline()
added = 0
for number in range(100):
    emails = (f"{number}@everybody.org", f"{number}@{name}.org")
    users = [
        User(f"{name}{email:>31}", name, email, "", {}, (), number, number) for email in emails
    ]
    [outcome] = table.perform([lambda table: table.add(users)], True)
    assert outcome[1], emails
    [found] = table.perform([lambda table: table.get(users[1].id)], False)
    assert found == users[1], found
    added += sum(outcome)
table.close()
print(added, flush=True)
"""


class TableTests(SynchronousTestCase):
    """Processes that write to one file."""

    timeout = 60

    def test_together(self) -> None:
        """
        Three processes that make one new file and write to it all the time: nobody is refused,
        each finds what it wrote, nothing is lost, and of one email there is one user.
        """
        path = os.path.abspath(self.mktemp())
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, path, name],
                env=daemonEnvironment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in "abc"
        ]
        for writer in writers:
            assert writer.stdout is not None
            self.addCleanup(writer.wait)
            self.addCleanup(writer.kill)
            self.addCleanup(writer.stdout.close)
            self.assertEqual(writer.stdout.readline(), "ready\n")
        with ThreadPoolExecutor(3) as pool:
            told = list(pool.map(lambda writer: writer.communicate("\n")[0], writers))
        self.assertEqual([writer.returncode for writer in writers], [0, 0, 0])
        self.assertEqual(sum(int(each) for each in told), 400)


def workersAt(port: int, pids: list[int]) -> set[int]:
    """Give the processes that serve connections at a port."""
    inodes = set()
    # gRPC's sockets are of IPv6, whatever the address.
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    for fields in (line.split() for table in tables for line in table.splitlines()[1:]):
        if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == ESTABLISHED:
            inodes.add(f"socket:[{fields[9]}]")
    return {pid for pid in pids if inodes & _descriptors(pid)}


def _descriptors(pid: int) -> set[str]:
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(each))
        except FileNotFoundError:
            pass
    return found


class Socket:
    """
    A WebSocket that a test talks over.

    @param account: Whose key is sent to the Storage service.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        daemon: Daemon,
        account: Account = ROOT,
    ) -> None:
        self._token = f"{account.accessKey}:{account.secretKey}"
        host, port = daemon.address("http")
        self._socket: ClientConnection = connect(
            f"ws://{host}:{port}/ws", compression=None, open_timeout=SECONDS, ping_interval=None
        )
        self.close = self._socket.close
        case.addCleanup(self.close)

    def begin(self, id: int, method: str, data: Any, service: str = "UserService") -> None:
        """Begin a call; C{None} is no item yet."""
        auth = {"auth": {"token": self._token}} if service == "Storage" else {}
        given = {} if data is None else {"data": data}
        self.send({"id": id, "service": service, "method": method, **given, **auth})

    def send(self, message: Any) -> None:
        """Send a message."""
        self._socket.send(json.dumps(message))

    def take(self) -> Any:
        """Read a message."""
        return json.loads(self._socket.recv(SECONDS))

    def call(self, id: int, method: str, data: Any, service: str = "UserService") -> Any:
        """Call; give what is read, to the answer."""
        self.begin(id, method, data, service)
        heard = [self.take()]
        while heard[-1]["id"] != id:
            heard.append(self.take())
        return heard

    def say(self, data: Any) -> None:
        """Say something in the chat with the id 3."""
        self.send({"id": 3, "type": "stream", "data": data})

    def hear(self) -> Any:
        """Give what is heard there next, but the welcome."""
        item = self.take()
        if item.get("data", {}).get("userId") == "system":
            item = self.take()
        return item["data"]


class Channel:
    """A chat over gRPC, by a connection of its own."""

    def __init__(self, case: SynchronousTestCase, daemon: Daemon) -> None:
        method = loadProto(protoPath() / "user.proto").UserService.methods["Chat"]
        given, taken = method.request.messageClass, method.response.messageClass

        def write(value: Any) -> bytes:
            return bytes(ParseDict(value, given()).SerializeToString())

        def read(wire: bytes) -> Any:
            return MessageToDict(taken.FromString(wire))

        host, port = daemon.address("grpc")
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = grpc.insecure_channel(f"{host}:{port}", options)
        words: SimpleQueue[Any] = SimpleQueue()
        self.say = words.put
        self._items = channel.stream_stream(method.path, write, read)(
            iter(words.get, None), timeout=SECONDS
        )
        self._words, self._channel = words, channel
        case.addCleanup(self.close)
        # The welcome.
        self.hear()

    def hear(self) -> Any:
        """Give what is heard next."""
        return next(self._items)

    def close(self) -> None:
        """Leave."""
        self._words.put(None)
        self._channel.close()


class DaemonTests(SynchronousTestCase):
    """The daemon."""

    timeout = 60

    @long("takes a second or more")
    def test_together(self) -> None:
        """Whichever worker a client is with, it hears of everything and finds everything."""
        daemon = Daemon(
            Path(self.mktemp()).absolute(),
            "--workers",
            "2",
            *EVERYTHING,
            expect=("s3", "http", "grpc"),
        )
        self.addCleanup(daemon.kill)
        with daemon:
            self.pids = children(daemon.pid)
            self.assertEqual(len(self.pids), 2)
            self.users(daemon)
            sockets = self.sockets(daemon)
            self.updates(daemon, sockets)
            self.watch(daemon, sockets)
            self.chats(daemon, sockets)
            self.assertEqual(daemon.stop(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")

    def sockets(self, daemon: Daemon) -> list[Socket]:
        """Connect until both workers serve somebody."""
        return self.spread(daemon, "http", lambda: Socket(self, daemon))

    def spread(self, daemon: Daemon, name: str, connect: Callable[[], T]) -> list[T]:
        """Connect until both workers serve somebody at a listener."""
        made: list[T] = []
        with ThreadPoolExecutor(4) as pool:
            while len(workersAt(daemon.address(name)[1], self.pids)) < 2:
                # Several at a time: one after the other they may all come to one worker.
                for surplus in made[8:] if len(made) > 50 else ():
                    # The other one has no turn now.
                    surplus.close()
                    made.remove(surplus)
                made += [each.result() for each in [pool.submit(connect) for _ in range(4)]]
        return made

    def call(self, daemon: Daemon, method: str, data: Any) -> tuple[int, Any]:
        """Call by a new connection of HTTP."""
        body = json.dumps(data).encode()
        path = f"/api/UserService/{method}"
        status, answer = request(daemon.address("http"), "POST", path, body, {})
        return status, json.loads(answer).get("data")

    def users(self, daemon: Daemon) -> None:
        """Of two who ask for one email at one time, one gets it; all are found at once."""

        def create(number: int) -> int:
            email = f"{number // 2}@example.org"
            status, user = self.call(daemon, "CreateUser", {"name": "x", "email": email})
            if status == 200:
                id = {"id": user["id"]}
                for _ in range(3):
                    self.assertEqual(self.call(daemon, "GetUser", id), (200, user))
            return status

        with ThreadPoolExecutor(8) as pool:
            statuses = Counter(pool.map(create, range(80)))
        self.assertEqual(statuses, {200: 40, 409: 40})
        socket = Socket(self, daemon)
        listed = socket.call(1, "ListUsers", {"limit": 100, "sortBy": "email"})
        while listed[-1]["type"] == "stream":
            listed.append(socket.take())
        emails = [each["data"]["email"] for each in listed[:-1]]
        self.assertEqual(sorted(emails), sorted(f"{number}@example.org" for number in range(40)))

    def updates(self, daemon: Daemon, sockets: list[Socket]) -> None:
        """Whoever watches a user hears of each change once, and of the end."""
        _, user = self.call(daemon, "CreateUser", {"name": "x", "email": "ada@example.org"})
        id = user["id"]
        for socket in sockets:
            socket.begin(1, "StreamUserUpdates", {"userId": id})
            # Who has an answer from the same store to something later is watching.
            self.assertEqual(len(socket.call(2, "GetUser", {"id": id})), 1)
        for number in range(12):
            status, _ = self.call(daemon, "UpdateUser", {"id": id, "name": f"{number}"})
            self.assertEqual(status, 200)
        for socket in sockets:
            heard = [socket.take()["data"]["newValue"] for _ in range(12)]
            self.assertEqual(sorted(heard, key=int), [f"{number}" for number in range(12)])
        self.assertEqual(self.call(daemon, "DeleteUser", {"id": id})[0], 200)
        for socket in sockets:
            self.assertEqual(socket.take(), {"id": 1, "type": "stream_end"})

    def watch(self, daemon: Daemon, sockets: list[Socket]) -> None:
        """Whoever watches a bucket hears of each object once, whoever stored it."""
        self.assertEqual(request(daemon.address(), "PUT", "/box")[0], 200)
        for socket in sockets:
            socket.begin(1, "WatchBucket", {"bucket": "box"}, "Storage")
            self.assertEqual(len(socket.call(2, "ListBuckets", {}, "Storage")), 1)
        for number in range(12):
            self.assertEqual(request(daemon.address(), "PUT", f"/box/{number}", b"x")[0], 200)
        for socket in sockets:
            heard = [socket.take()["data"] for _ in range(12)]
            self.assertEqual({each["event"] for each in heard}, {"created"})
            keys = sorted((each["object"]["key"] for each in heard), key=int)
            self.assertEqual(keys, [f"{number}" for number in range(12)])
            socket.send({"id": 1, "type": "cancel"})

    def chats(self, daemon: Daemon, sockets: list[Socket]) -> None:
        """
        Everybody in the room hears everybody, over both wires and in both chats, each in the order
        in which it was said.
        """
        for number, socket in enumerate(sockets):
            socket.begin(3, "ChatWithUsers" if number % 2 else "Chat", None)
            # Who has an answer to something later is in the room.
            heard = socket.call(4, "GetUser", {"id": "0" * 32})
            self.assertEqual([item["type"] for item in heard if item["id"] == 3][1:], [])
        channels = self.channels(daemon)
        names = [f"socket{number}" for number in range(len(sockets))]
        names += [f"channel{number}" for number in range(len(channels))]
        talkers: list[Socket | Channel] = [*sockets, *channels]
        said = [{"userId": name, "message": f"{each}"} for name in names for each in range(10)]

        def talk(name: str, talker: Socket | Channel) -> None:
            """Say ten things, hear those of all."""
            for each in said:
                if each["userId"] == name:
                    talker.say(each)
            heard = [talker.hear() for _ in said]
            order = {name: 10 * number for number, name in enumerate(names)}
            heard.sort(key=lambda item: order[item["userId"]])
            self.assertEqual([{key: item[key] for key in said[0]} for item in heard], said)

        with ThreadPoolExecutor(len(names)) as pool:
            for talked in [pool.submit(talk, *each) for each in zip(names, talkers, strict=True)]:
                talked.result(SECONDS)
        for talker in talkers:
            talker.close()

    def channels(self, daemon: Daemon) -> list["Channel"]:
        """Join by gRPC until both workers serve somebody by it."""
        return self.spread(daemon, "grpc", lambda: Channel(self, daemon))
