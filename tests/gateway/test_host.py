"""Several processes that have one socket for datagrams, of which one reads at a time."""

from collections.abc import Callable

from storagegate.gateway.host import GatewayResources
from storagegate.gateway.messages.frames import CLIENT_END, CLIENT_ITEM, ERROR, REQUEST, RESPONSE
from storagegate.gateway.transports.udp import UDPOptions
from storagegate.gateway.transports.udp.listener import UDPTransport
from tests.gateway.udpcase import UDPCase
from tests.support.gateway import makeHost


class FakePort:
    """
    A port.

    @ivar heard: What it was told.
    """

    def __init__(self) -> None:
        self.heard: list[str] = []

    def startReading(self) -> None:
        """Read."""
        self.heard.append("startReading")

    def stopReading(self) -> None:
        """Read no more."""
        self.heard.append("stopReading")

    def stopListening(self) -> None:
        """Close."""
        self.heard.append("stopListening")


class FakeTurn:
    """
    What tells of the other processes.

    @ivar hasLeft: Whether another one may read.
    """

    def __init__(self) -> None:
        self.isWaiting = False
        self.entered: Callable[[], object] = lambda: None
        self.hasLeft = False

    def leave(self) -> None:
        """Let another one read."""
        self.hasLeft = True


class TurnTests(UDPCase):
    """A process that comes, and one that goes."""

    def makeTurn(self, isWaiting: bool = False) -> None:
        """Make an adapter that shares its socket."""
        self.make()
        self.turn, self.port = FakeTurn(), FakePort()
        host, self.probe = makeHost(self.clock, resources=GatewayResources(turn=self.turn))
        self.turn.isWaiting = isWaiting
        self.adapter = UDPTransport(host, UDPOptions())
        self.adapter.transport = self.transport  # type: ignore[assignment]
        self.adapter._opened(self.port)

    def stream(self) -> None:
        """Begin a stream of requests, with one item."""
        self.send(REQUEST, {"id": "s", "service": "Probe", "method": "collect", "pad": "x" * 200})
        self.send(CLIENT_ITEM, {"id": "s", "seq": 0, "data": {"text": "a"}})

    def types(self) -> list[int]:
        """Give the types of the answers."""
        return [type for type, _ in self.answers]

    def test_first(self) -> None:
        """Where nobody was there before, datagrams are read at once."""
        self.makeTurn()
        self.assertEqual(self.port.heard, [])
        self.successResultOf(self.adapter.close(0))

    def test_next(self) -> None:
        """Where somebody was, they are read when that one has left."""
        self.makeTurn(isWaiting=True)
        self.assertEqual(self.port.heard, ["stopReading"])
        self.turn.entered()
        self.assertEqual(self.port.heard, ["stopReading", "startReading"])
        self.successResultOf(self.adapter.close(0))

    def test_goneAgain(self) -> None:
        """Whoever has to go before its turn has come does not begin."""
        self.makeTurn(isWaiting=True)
        self.successResultOf(self.adapter.close(30, 2))
        self.turn.entered()
        self.assertNotIn("startReading", self.port.heard)

    def test_leave(self) -> None:
        """
        Whoever goes reads nothing more and refuses nothing; what is under way is answered, and the
        socket is let go of then.
        """
        self.makeTurn()
        self.call("slow", data={"seconds": 0.5})
        closing = self.adapter.close(30, 2)
        self.assertEqual((self.port.heard, self.turn.hasLeft), (["stopReading"], True))
        self.clock.advance(0.5)
        self.assertEqual(self.types(), [RESPONSE])
        self.successResultOf(closing)
        self.assertEqual(self.port.heard, ["stopReading", "stopListening"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stream(self) -> None:
        """While a stream of requests is under way, its items and further calls are taken."""
        self.makeTurn()
        self.stream()
        closing = self.adapter.close(30, 2)
        self.clock.advance(0.9)
        self.assertEqual((self.port.heard, self.turn.hasLeft), ([], False))
        self.send(CLIENT_ITEM, {"id": "s", "seq": 1, "data": {"text": "b"}})
        self.send(CLIENT_END, {"id": "s", "seq": 2})
        self.call("echo")
        (_, collected), (type, _) = self.answers
        self.assertEqual((collected["data"], type), ({"texts": ["a", "b"]}, RESPONSE))
        self.clock.advance(1.1)
        self.assertTrue(self.turn.hasLeft)
        self.successResultOf(closing)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_longStream(self) -> None:
        """One that has not ended when the patience is over breaks off, and its client is told."""
        self.makeTurn()
        self.stream()
        closing = self.adapter.close(30, 2)
        self.clock.advance(0.9)
        self.assertEqual(self.types(), [])
        self.clock.advance(1.1)
        _, (type, error) = self.answers
        self.assertEqual((type, error["error"], error["id"]), (ERROR, "INVALID_ARGUMENT", "s"))
        self.successResultOf(closing)
        self.assertEqual(self.clock.getDelayedCalls(), [])
