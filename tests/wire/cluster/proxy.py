"""
The L{FaultyProxy} as a process, for tests that block: C{python -m tests.wire.cluster.proxy TARGET}.

It says its port; then each line is what to do, and its answer an empty line.
"""

import json
import subprocess
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver

from tests.support.daemon import CHECKOUT, daemonEnvironment
from tests.support.faultyproxy import FaultyProxy


class Proxy:
    """
    The process, from a test's side. All methods block.

    @ivar port: Where it listens.
    """

    def __init__(self, target: int, delaySeconds: float = 0.0) -> None:
        """
        Start it.

        @param target: The server's port.
        @param delaySeconds: After so long what is sent is passed on, each way.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.cluster.proxy", str(target), str(delaySeconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=daemonEnvironment(),
            cwd=CHECKOUT,
        )
        self.port = int(self._read())

    def cut(self) -> None:
        """Pass nothing on, either way, and say so to nobody: a network that is cut."""
        self._do("hold", True)

    def refuse(self) -> None:
        """End all connections, and refuse new ones."""
        self._do("refuse", None)

    def mend(self) -> None:
        """Pass everything on, also what was sent meanwhile."""
        self._do("mend", None)

    def setDelay(self, seconds: float) -> None:
        """Pass on what is sent after so long."""
        self._do("delay", seconds)

    def setTarget(self, port: int) -> None:
        """Connect to another server from now on."""
        self._do("target", port)

    def cutAnswers(self, count: int) -> None:
        """End a connection after so many bytes of answers, once."""
        self._do("cutAfter", count)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _do(self, what: str, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, value]).encode() + b"\n")
        self._process.stdin.flush()
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the proxy has ended"
        return line.decode().strip()


class _Commands(LineReceiver):
    delimiter = b"\n"

    def __init__(self, proxy: FaultyProxy) -> None:
        self._proxy = proxy

    def connectionMade(self) -> None:
        """Say the port."""
        self.sendLine(b"%d" % self._proxy.port)

    def lineReceived(self, line: bytes) -> None:
        """Carry a line out."""
        Deferred.fromCoroutine(self._do(*json.loads(line)))

    async def _do(self, what: str, value: Any) -> None:
        proxy = self._proxy
        if what == "hold":
            proxy.holdsRequests = proxy.holdsAnswers = True
        elif what == "refuse":
            await proxy.refuse()
        elif what == "mend":
            proxy.release()
            proxy.acceptAgain()
        elif what == "delay":
            proxy.delaySeconds = value
        else:
            setattr(proxy, what, value)
        self.sendLine(b"")

    def connectionLost(self, reason: Any = None) -> None:
        """End: the test is over."""
        from twisted.internet import reactor

        reactor.stop()  # type: ignore[attr-defined]


def main(target: str, delay: str) -> None:
    """Serve until the input ends."""
    from twisted.internet import reactor

    proxy = FaultyProxy(int(target))
    proxy.delaySeconds = float(delay)
    StandardIO(_Commands(proxy))
    reactor.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
