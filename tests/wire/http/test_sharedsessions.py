"""One session in two processes."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.sharing import Sharer

# Does what it is told, one line at a time, each time with a store that others use as well.
WORKER = """
import sys
from twisted.internet import reactor, stdio
from twisted.internet.defer import Deferred
from twisted.protocols.basic import LineReceiver
from storagegate.http.options import reactorRuntime
from storagegate.http.sessions import stores
from storagegate.http.sessions.stores import SQLiteSessionStore

# The other one may be kept from its work for longer than an application would wait.
stores._BUSY_MS = 100_000

store = SQLiteSessionStore(sys.argv[1], reactorRuntime(reactor))

async def make():
    await store.set("id", {"cookie": {}, "count": 0})

async def add(times="1"):
    # As requests do, one after the other: read, change, write back.
    for _ in range(int(times)):
        session = await store.get("id")
        session["count"] += 1
        await store.replace("id", session)
    return session["count"]

async def touch(times="1"):
    # As requests do that change nothing: only the cookie is theirs.
    for number in range(int(times)):
        await store.touch("id", {"cookie": {"number": number}, "count": -1})

async def destroy():
    await store.destroy("id")

async def read():
    session = await store.get("id")
    return session and (session["count"], session["cookie"])

async def replace():
    await store.replace("id", {"cookie": {}, "count": 100})

class Told(LineReceiver):
    delimiter = b"\\n"

    def connectionMade(self):
        self.sendLine(b"ready")

    def lineReceived(self, line):
        name, *more = line.decode().split()
        done = Deferred.fromCoroutine(globals()[name](*more))
        done.addBoth(lambda result: self.sendLine(str(result).encode()))

stdio.StandardIO(Told())
reactor.run()
"""


class TwoProcessesTests(SynchronousTestCase):
    """What each process sees of the other's changes."""

    timeout = 60

    def setUp(self) -> None:
        """Start two processes with one file."""
        path = self.mktemp()
        self.one, self.other = (Sharer(self, (), WORKER, path) for _ in range(2))
        self.assertEqual([self.one.read(), self.other.read()], ["ready"] * 2)
        self.one.ask("make")

    def both(self, *commands: str) -> list[Any]:
        """Have both do something at the same time."""
        for worker, command in zip((self.one, self.other), commands, strict=True):
            worker.tell(command)
        return [self.one.read(), self.other.read()]

    def test_turns(self) -> None:
        """Requests that follow each other lose nothing, whichever process they come to."""
        for number in range(1, 51):
            self.assertEqual((self.one, self.other)[number % 2].ask("add"), str(number))

    def test_touched(self) -> None:
        """Who only keeps a session for longer takes back nothing of what another writes."""
        self.assertEqual(self.both("add 100", "touch 100"), ["100", "None"])
        self.assertIn("(100, ", self.other.ask("read"))

    def test_overlapping(self) -> None:
        """
        Of changes that overlap the later one wins, whole, as in one process: nothing else is there
        afterwards, nothing fails, and nobody waits for long.
        """
        lasts = [str((int(count), {})) for count in self.both("add 100", "add 100")]
        found = self.one.ask("read")
        self.assertEqual(found, self.other.ask("read"))
        self.assertIn(found, lasts)

    def test_destroyed(self) -> None:
        """A session that one process has destroyed stays destroyed, whatever another still does."""
        self.one.ask("add")
        self.other.ask("destroy")
        for command in ("replace", "touch"):
            self.assertEqual(self.one.ask(command), "None")
        self.assertEqual([self.one.ask("read"), self.other.ask("read")], ["None"] * 2)
