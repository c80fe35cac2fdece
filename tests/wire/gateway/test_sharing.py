"""Two processes that serve UDP at one port, and what each knows of the other's calls."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.ratelimit import makeRateMemory
from storagegate.gateway.messages.frames import ERROR, REQUEST, RESPONSE, decodeFrame, encodeFrame
from storagegate.gateway.transports.udp.replycache import SharedReplyCache, makeAnswerMemory
from storagegate.net.endpoints import bindDatagrams
from tests.support.sharing import HOLDER, Sharer, attached

WORKER = """
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from storagegate import createProtocolGateway
from storagegate.core.ratelimit import sharedRateStores
from storagegate.gateway.transports.udp.replycache import SharedReplyCache
from storagegate.gateway.host import GatewayResources

def note(method):
    with open(sys.argv[4], "a") as file:
        file.write(f"{method} {os.getpid()}\\n")

async def who(request, context):
    note("who")
    return {"pid": os.getpid(), "padding": "x" * request.get("length", 0)}

async def hang(request, context):
    note("hang")
    await Deferred()

gateway = createProtocolGateway(
    protocols=["udp"],
    surroundings=GatewayResources(
        rateStore=sharedRateStores(int(sys.argv[3])),
        makeReplies=lambda: SharedReplyCache(table),
    ),
)
gateway.addService("Probe", methods={
    "who": who,
    "hang": hang,
    "limited": {"handler": who, "rateLimit": {"requests": 3, "window": 600_000}},
})
gateway.start(reactor).open("udp", f"inherited:{sys.argv[2]}").addErrback(say)
reactor.callWhenRunning(say, "ready")
reactor.run()
"""


class TwoWorkersTests(SynchronousTestCase):
    """A datagram that is repeated to the other worker."""

    timeout = 60

    def setUp(self) -> None:
        """Start two workers, each with a socket of its own at one port."""
        self.log = Path(self.mktemp())
        self.log.touch()
        answers, rates = makeAnswerMemory(64), makeRateMemory(64)
        bound = bindDatagrams("127.0.0.1:0", 2)
        self.port = bound[0].getsockname()[1]
        self.workers = [
            Sharer(self, (answers, rates, each.fileno()), WORKER, each.fileno(), rates, self.log)
            for each in bound
        ]
        self.assertEqual([worker.read() for worker in self.workers], ["ready"] * 2)
        for fd in (answers, rates):
            os.close(fd)
        for each in bound:
            # A socket that nobody reads any more would still get its datagrams.
            each.close()
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.client.close)
        self.client.settimeout(60)
        self.client.connect(("127.0.0.1", self.port))

    def send(self, method: str, id: int, **data: Any) -> None:
        """Send a request, long enough for any answer to an unknown client."""
        request = {"service": "Probe", "method": method, "id": id, "data": data}
        payload = json.dumps({**request, "padding": "x" * 500}).encode()
        self.client.send(encodeFrame(REQUEST, payload))

    def call(self, method: str, id: int, **data: Any) -> tuple[int, Any]:
        """Call; give the type of the answer and what it has."""
        self.send(method, id, **data)
        frame = decodeFrame(self.client.recv(65_536), 65_536)
        payload = json.loads(frame.payload)
        return frame.type, payload["error"] if frame.type == ERROR else payload["data"]["pid"]

    def kill(self, pid: int) -> int:
        """Kill the worker that answers us; give the other, which the kernel chooses then."""
        [worker] = [each for each in self.workers if each.process.pid == pid]
        worker.end()
        [other] = [each.process.pid for each in self.workers if each is not worker]
        return other

    def runs(self, method: str) -> list[str]:
        """Give who ran a method, each time."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [pid for name, pid in lines if name == method]

    def test_repeated(self) -> None:
        """
        The other worker gives the stored answer, and the method does not run twice: not even if
        the first one dies as soon as its answer is out.
        """
        type, first = self.call("who", 1)
        self.assertEqual(type, RESPONSE)
        other = self.kill(first)
        self.assertEqual(self.call("who", 1), (RESPONSE, first))
        self.assertEqual(self.call("who", 2), (RESPONSE, other))
        self.assertEqual(self.runs("who"), [str(first), str(other)])

    def test_underWay(self) -> None:
        """A call under way in a worker that is gone is a new one for the other."""
        _, first = self.call("who", 1)
        self.send("hang", 2)
        # What comes behind it is answered when it has begun.
        self.call("who", 3)
        self.assertEqual(self.runs("hang"), [str(first)])
        other = self.kill(first)
        self.send("hang", 2)
        self.send("hang", 2)
        self.call("who", 4)
        self.assertEqual(self.runs("hang"), [str(first), str(other)])

    def test_limits(self) -> None:
        """Both count for one limit."""
        answers = [self.call("limited", id) for id in (1, 2)]
        other = self.kill(answers[0][1])
        answers += [self.call("limited", id) for id in (3, 4)]
        self.assertEqual(answers[2:], [(RESPONSE, other), (ERROR, "RATE_LIMITED")])


class StoppedTests(SynchronousTestCase):
    """A cache while a process stands still with its place in the table."""

    timeout = 60

    def test_ownAnswers(self) -> None:
        """A worker knows by itself what came and ended meanwhile, also when the other goes on."""
        fd = makeAnswerMemory(16)
        self.addCleanup(os.close, fd)
        cache = SharedReplyCache(attached(self, fd))
        self.addCleanup(cache.close)
        self.assertIsNone(cache.begin("before", 5))
        holder = Sharer(self, (fd,), HOLDER, "SIGSTOP")
        _, status = os.waitpid(holder.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        cache.end("before", b"late")
        cache.end("unknown", b"late")
        self.assertIsNone(cache.begin("meanwhile", 7))
        known = cache.begin("meanwhile", 7)
        assert known is not None
        self.assertEqual((known.reply, known.size), (None, 7))
        cache.end("meanwhile", b"answer", True)
        holder.process.send_signal(signal.SIGCONT)
        self.assertEqual([holder.read() for _ in range(2)], ["ready", "done"])
        known = cache.begin("meanwhile", 7)
        assert known is not None
        self.assertEqual((known.reply, known.isKnown), (b"answer", True))
        known = cache.begin("before", 9)
        assert known is not None
        self.assertEqual((known.reply, known.size), (b"late", 5))
        self.assertIsNone(cache.begin("unknown"))
