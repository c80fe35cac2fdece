"""The end of WebSockets where another process serves the same place."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.codecs import CODECS
from tests.gateway.wscase import Talker, WebSocketCase
from tests.support.wsclient import CONTINUATION, TEXT, closeFrame, frame


class LeavingTests(WebSocketCase):
    """Clients that go on calling, and those that do not."""

    def leave(self) -> Deferred[None]:
        """Begin to close, with two seconds of patience."""
        return self.adapter.close(30, 2)

    def turns(self) -> None:
        """Let what has come be read."""
        self.clock.advance(0)
        self.clock.advance(0)

    def assertHeard(self, client: Talker, ids: list[int], code: int | None) -> None:
        """Check which answers have come, and whether a close."""
        self.assertEqual([each["id"] for each in client.messages()], ids)
        self.assertEqual(client.closeCode, code)

    def test_behindAnswer(self) -> None:
        """A further call is answered, and the close comes in one piece with its answer."""
        client = self.connect()
        self.leave()
        self.assertIsNone(client.closeCode)
        self.assertEqual(client.call("echo", {"text": "a"}), [])
        self.turns()
        ((answer,), code) = client.messages(), client.closeCode
        self.assertEqual((answer["data"], code), ({"text": "a"}, 1001))
        self.assertEqual(self.adapter.connections, 1)

    def test_read(self) -> None:
        """What has come before the close could go is answered, too."""
        client = self.connect()
        self.leave()
        client.call("echo", {"text": "a"})
        client.call("slow", {"seconds": 1}, id=2)
        self.turns()
        (first,) = client.messages()
        self.assertEqual((first["id"], client.closeCode), (1, None))
        self.clock.advance(1)
        self.turns()
        (second,) = client.messages()
        self.assertEqual((second["id"], client.closeCode), (2, 1001))

    def test_together(self) -> None:
        """So is what came in one piece: nothing is closed in the middle of it."""
        client = self.connect()
        self.leave()
        echo = {"service": "Probe", "method": "echo"}
        self.assertEqual(client.say(*({"id": id, **echo} for id in range(50))), [])
        self.turns()
        self.assertEqual([each["id"] for each in client.messages()], list(range(50)))
        self.assertEqual(client.closeCode, 1001)

    def test_half(self) -> None:
        """Who has sent half a message may end it."""
        call = CODECS["json"].encode({"id": 2, "service": "Probe", "method": "echo"})
        whole = frame(TEXT, call)
        for begun in (whole[:1], whole[:9], frame(TEXT, call[:9], fin=False)):
            client = self.connect()
            self.leave()
            client.call("echo")
            client.send(begun)
            self.turns()
            self.assertHeard(client, [1], None)
            isFragment = begun not in whole
            client.send(frame(CONTINUATION, call[9:]) if isFragment else whole[len(begun) :])
            self.turns()
            self.assertHeard(client, [2], 1001)

    def test_held(self) -> None:
        """So may who is not read for a while, because it reads too slowly."""
        client = self.connect()
        self.leave()
        client.call("echo")
        client.wire.pauseProducing()
        client.call("echo", id=2)
        self.turns()
        self.assertHeard(client, [1], None)
        client.wire.resumeProducing()
        self.turns()
        self.assertHeard(client, [2], 1001)

    def test_routed(self) -> None:
        """So does a message that the user's hook has not understood yet."""
        understood: list[Deferred[Any]] = []

        async def route(message: Any) -> Any:
            if message["id"] == 2:
                understood.append(Deferred())
                await understood[0]
            return {"service": "Probe", "method": "echo", "messageId": message["id"]}

        self.configure(routeMessage=route)
        client = self.connect()
        self.leave()
        client.say({"id": 1}, {"id": 2})
        self.turns()
        self.assertHeard(client, [1], None)
        understood[0].callback(None)
        self.turns()
        self.assertHeard(client, [2], 1001)

    def test_idle(self) -> None:
        """Who asks nothing is sent away when the patience is over, without a reason."""
        client = self.connect()
        self.leave()
        self.clock.advance(1.9)
        self.assertIsNone(client.closeCode)
        self.clock.advance(0.2)
        self.turns()
        self.assertEqual(client.closeCode, 1001)
        self.assertEqual(client.others[0].payload[2:], b"")

    def test_busy(self) -> None:
        """Who always has calls under way is refused further ones when the patience is over."""
        client = self.connect()
        client.call("slow", {"seconds": 3})
        self.leave()
        self.clock.advance(2)
        self.turns()
        self.assertEqual(client.call("echo", id=2), [])
        self.turns()
        self.assertError(client.messages(), "UNAVAILABLE", 2)
        self.assertIsNone(client.closeCode)
        self.clock.advance(1)
        self.turns()
        self.assertEqual([each["id"] for each in client.messages()], [1])
        self.assertEqual(client.closeCode, 1001)

    def test_cut(self) -> None:
        """A close that cuts calls says so: whoever hears that cannot know what has run."""
        client = self.connect()
        client.call("count", {"hang": True})
        self.leave()
        self.clock.advance(30)
        client.messages()
        self.assertEqual(client.closeCode, 1001)
        self.assertEqual(client.others[0].payload[2:], b"calls were cut")

    def test_new(self) -> None:
        """A WebSocket that is asked for meanwhile is one, and ends as the others do."""
        done = self.leave()
        client = self.connect()
        self.assertIsNotNone(client.wire)
        client.call("echo", {"text": "a"})
        self.turns()
        self.assertEqual([each["data"] for each in client.messages()], [{"text": "a"}])
        self.assertEqual(client.closeCode, 1001)
        client.send(closeFrame(1001))
        self.clock.advance(2)
        self.turns()
        self.successResultOf(done)
        self.assertEqual(self.connect().response.code, 503)
