"""The reactor of a process measures by the monotonic clock."""

import subprocess
import sys
import time

from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.endpoints import measureMonotonically
from tests.support.daemon import CHECKOUT, daemonEnvironment
from tests.support.selection import long

_PROGRAM = """
import sys, time
real, offset = time.time, [0.0]
time.time = lambda: real() + offset[0]
from twisted.internet.task import LoopingCall
if sys.argv[1] == "asyncio":
    from storagegate.net.endpoints import chooseReactor
    reactor = chooseReactor("asyncio")
else:
    from twisted.internet import reactor
fired = []
reactor.callLater(0.1, fired.append, "before")
looping = LoopingCall(fired.append, "loop")
looping.start(0.05, now=False)
from storagegate.net.endpoints import chooseReactor
assert chooseReactor(None) is reactor
reactor.callLater(3600, fired.append, "early")
reactor.callLater(0.1, fired.append, "after")
offset[0] = float(sys.argv[2])
import threading
timer = threading.Timer(0.4, reactor.callFromThread, (reactor.stop,))
timer.start()
reactor.run()
print(*sorted(set(fired)))
"""

_SERVER = """
import sys, threading, time
real, offset = time.time, [0.0]
time.time = lambda: real() + offset[0]
from twisted.internet import reactor
from storagegate import server
app = server.http().withOptions(keepAliveTimeout=300)
app.get("/", lambda req, res: res.send("x"))

def client(port):
    import socket
    with socket.create_connection(("127.0.0.1", port), 50) as connection:
        connection.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        connection.recv(4096)
        offset[0] = float(sys.argv[2])
        connection.settimeout(50)
        try:
            print("closed" if connection.recv(4096) == b"" else "data", end="")
        except TimeoutError:
            print("open", end="")
    reactor.callFromThread(reactor.stop)

def opened(port):
    threading.Thread(target=client, args=(port.getHost().port,)).start()

app.listen(0).addCallback(opened)
reactor.run()
"""


class MonotonicReactorTests(SynchronousTestCase):
    """What the process's reactor measures by."""

    def test_scheduledBefore(self) -> None:
        """Calls that were scheduled before keep the time that is left, and can be reset."""
        began = time.monotonic()

        def assertLeft(left: float, seconds: float) -> None:
            # A busy machine may have stopped the test since the call was scheduled.
            passed = time.monotonic() - began
            self.assertTrue(seconds - passed - 0.5 < left < seconds + 0.5, (left, passed))

        reactor = SelectReactor()
        call = reactor.callLater(50, lambda: None)
        self.assertGreater(call.getTime(), 1_000_000_000)
        measureMonotonically(reactor)
        self.assertIs(reactor.seconds, time.monotonic)
        assertLeft(call.getTime() - time.monotonic(), 50)
        call.reset(20)
        assertLeft(call.getTime() - time.monotonic(), 20)
        measureMonotonically(reactor)
        assertLeft(call.getTime() - time.monotonic(), 20)
        timeout = reactor.timeout()
        assert timeout is not None
        assertLeft(timeout, 20)

    def test_others(self) -> None:
        """A clock of tests is left as it is."""
        clock = Clock()
        measureMonotonically(clock)
        self.assertEqual(clock.seconds(), 0)

    @long("takes a second or more")
    def test_setBack(self) -> None:
        """An hour back, timers of both kinds of reactor fire in time."""
        for name in ("default", "asyncio"):
            self.assertEqual(self._outputOf(name, -3600), "after before loop", name)

    @long("takes a second or more")
    def test_setAhead(self) -> None:
        """A day ahead, no timer fires early."""
        for name in ("default", "asyncio"):
            self.assertEqual(self._outputOf(name, 86400), "after before loop", name)

    @long("takes a second or more")
    def test_idleConnection(self) -> None:
        """An hour back, the server of a script closes idle connections in time."""
        self.assertEqual(self._outputOf("default", -3600, _SERVER), "closed")

    def _outputOf(self, name: str, offset: int, program: str = _PROGRAM) -> str:
        command = [sys.executable, "-c", program, name, str(offset)]
        found = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self.assertEqual(found.returncode, 0, found.stderr)
        return found.stdout.strip()
