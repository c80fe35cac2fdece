"""Scripts that serve until they are told to stop."""

import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import quoteStringArgument, serverFromString
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.endpoints import _endpoint, certificateFiles, findAddresses, runUntilStopped
from tests.support.modules import CHECKOUT

FILES = ("privateKey", "certKey", "extraCertChain", "dhParameters")


class ScriptReactor:
    """
    A reactor that runs what it was given, and then stands still.

    @ivar events: What it was asked for.
    """

    def __init__(self, whileRunning: Callable[["ScriptReactor"], object]) -> None:
        self.events: list[str] = []
        self._calls: list[Callable[[], object]] = []
        self._whileRunning = whileRunning
        self._isRunning = False

    def callWhenRunning(self, function: Callable[[], object]) -> None:
        """Call something at once, or when it runs."""
        if self._isRunning:
            function()
        else:
            self._calls.append(function)

    def callLater(self, seconds: float, function: Callable[[], object]) -> None:
        """Time stands still."""

    def addSystemEventTrigger(self, phase: str, event: str, function: Callable[[], Any]) -> None:
        """Remember what is done before the end."""
        self.events.append(f"{phase} {event}")
        self._before = function

    def run(self) -> None:
        """Run."""
        self._isRunning = True
        self.events.append("run")
        for call in self._calls:
            call()
        self._whileRunning(self)

    def stop(self) -> None:
        """End."""
        self.events.append("stop")
        self._before()


class RunTests(SynchronousTestCase):
    """What happens to a script."""

    def assertEnds(self, reactor: ScriptReactor, opening: Deferred[Any] | None) -> str:
        """Have a script run, and stop in order; give its line."""
        stopped: list[bool] = []
        code = ""
        try:
            runUntilStopped(reactor, opening, lambda: stopped.append(True), lambda: ())
        except SystemExit as end:
            code = str(end.code)
        self.assertEqual(reactor.events, ["before shutdown", "run", "stop"])
        self.assertEqual(stopped, [True])
        return code

    def test_serves(self) -> None:
        """It serves until the process is told to stop."""
        self.assertEqual(self.assertEnds(ScriptReactor(ScriptReactor.stop), None), "")
        self.assertEqual(self.assertEnds(ScriptReactor(ScriptReactor.stop), succeed(None)), "")

    def test_fails(self) -> None:
        """What cannot be opened, be it at once or later, ends it with one line."""
        taken = ValueError("the port is taken")
        later: Deferred[Any] = Deferred()
        reactor = ScriptReactor(lambda reactor: later.errback(taken))
        self.assertEqual(self.assertEnds(reactor, later), "the port is taken")
        reactor = ScriptReactor(lambda reactor: None)
        self.assertEqual(self.assertEnds(reactor, fail(taken)), "the port is taken")


class CertificateFileTests(SynchronousTestCase):
    """The files that an endpoint names."""

    def test_kinds(self) -> None:
        """A folder, a pair, or none."""
        for description, expected in (
            ("tcp:80", {}),
            ("tls:/a\\:b:443", {"path": "/a:b"}),
            ("ssl:443", {"privateKey": "server.pem", "certKey": "server.pem"}),
            ("ssl:443:privateKey=k:interface=\\:\\:1", {"privateKey": "k", "certKey": "k"}),
        ):
            self.assertEqual(certificateFiles(description), expected)

    @given(st.fixed_dictionaries(dict.fromkeys(FILES, st.text("ab:=\\/ é"))))
    def test_quoted(self, named: dict[str, str]) -> None:
        """What Twisted has quoted is read as it was meant."""
        parts = [f"{name}={quoteStringArgument(value)}" for name, value in named.items()]
        self.assertEqual(certificateFiles(":".join(["ssl", "443", *parts])), named)


class ListenRecorder:
    """
    A reactor that records how endpoints listen on TCP.

    @ivar heard: Port, backlog and interface of each.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, str]] = []

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> None:
        """Record one."""
        self.heard.append((port, backlog, interface))


class EndpointTests(SynchronousTestCase):
    """Endpoint strings without Twisted's parser, which loads what most processes do not need."""

    def test_asTwisted(self) -> None:
        """A string means the same as to Twisted, whichever of the two parses it."""
        for text in (
            "tcp:9000",
            "tcp:0:interface=127.0.0.1",
            "tcp:65535:interface=",
            "tcp:port=9000",
            "tcp:9000:backlog=7",
            "tcp:9000:interface=\\:\\:1",
            "tcp:interface=a:port=1",
            "tcp:9000:interface=::1",
            "tcp:",
            "tcp:x",
            "tcp:9000:mode=7",
            "tcp:9000:interface",
        ):
            outcomes = []
            for parse in (_endpoint, serverFromString):
                reactor = ListenRecorder()
                try:
                    self.successResultOf(parse(reactor, text).listen(Factory()))
                except (ValueError, TypeError):
                    reactor.heard.append((0, 0, "refused"))
                outcomes.append(reactor.heard)
            self.assertEqual(outcomes[0], outcomes[1], text)


class AddressTests(SynchronousTestCase):
    """L{findAddresses}."""

    def test_addresses(self) -> None:
        """An address and a name are found; an unknown name is an C{OSError}."""
        [(family, _, _, _, address), *_] = findAddresses("127.0.0.1", 80)
        self.assertEqual((family, address), (socket.AF_INET, ("127.0.0.1", 80)))
        self.assertEqual(findAddresses("localhost", 80, socket.AI_PASSIVE)[0][4][1], 80)
        self.assertRaises(OSError, findAddresses, "256.0.0.1", 80)

    def test_codec(self) -> None:
        """A start with plain hosts does not load the codec of internationalised names."""
        program = (
            "import sys; from storagegate.net.endpoints import findAddresses;"
            "findAddresses('127.0.0.1', 80); sys.exit('encodings.idna' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(CHECKOUT)})
        self.assertEqual(done.returncode, 0)
