"""Datagrams that are refused while a call is in flight that they name."""

from typing import Any

from storagegate.gateway.messages.frames import (
    ACK,
    CLIENT_END,
    CLIENT_ITEM,
    ERROR,
    RESPONSE,
    encodeFrame,
)
from tests.gateway.udpcase import KNOWN, SOURCE, UDPCase


class RefusalTests(UDPCase):
    """A refusal touches nothing that runs."""

    def outcome(self) -> list[tuple[int, Any]]:
        """Give the frames that were sent, without acknowledgements."""
        return [(type, value) for type, value in self.answers if type != ACK]

    def test_unknownType(self) -> None:
        """A frame of an unknown type does not end the call that it names."""
        self.call("slow", data={"seconds": 1}, auth=KNOWN)
        self.send(99, {"id": "1"})
        self.assertEqual([type for type, _ in self.outcome()], [ERROR])
        self.clock.advance(1)
        self.assertEqual([(type, value["id"]) for type, value in self.outcome()], [(RESPONSE, "1")])

    def test_itemWithoutNumber(self) -> None:
        """An item without its number is refused; the stream goes on, and has its result."""
        self.call("collect", data={"text": "a"})
        self.send(CLIENT_ITEM, {"id": "1", "data": {"text": "lost"}})
        self.transport.sent.clear()
        self.send(CLIENT_ITEM, {"id": "1", "seq": 0, "data": {"text": "b"}})
        self.send(CLIENT_END, {"id": "1", "seq": 1})
        expected = [(RESPONSE, {"id": "1", "data": {"texts": ["a", "b"]}})]
        self.assertEqual(self.outcome(), expected)
        self.assertEqual(self.adapter.listener.calls, 0)

    def test_unreadable(self) -> None:
        """A frame that cannot be read does not end the call without an id."""
        self.call("slow", None, data={"seconds": 1})
        self.adapter.datagramReceived(encodeFrame(1, b"x" * 300), SOURCE)
        self.call("slow", None, data={"seconds": 1})
        self.assertEqual(self.adapter.dropped["busy"], 1)
        self.transport.sent.clear()
        self.clock.advance(1)
        self.assertEqual([type for type, _ in self.outcome()], [RESPONSE])

    def test_keptReply(self) -> None:
        """A refused frame with the id of a call that has ended leaves its kept reply."""
        request = self.call("echo")
        (first,) = self.outcome()
        self.send(99, {"id": "1", "padding": "x" * 300})
        self.transport.sent.clear()
        self.adapter.datagramReceived(request, SOURCE)
        self.assertEqual(self.outcome(), [first])

    def test_forgottenByCache(self) -> None:
        """A request that comes again while it runs begins nothing, if the cache has lost it."""
        request = self.call("slow", data={"seconds": 1})
        self.adapter.replies.forget((SOURCE, "1"))  # type: ignore[attr-defined]
        self.adapter.datagramReceived(request, SOURCE)
        self.assertEqual(self.outcome(), [])
        self.clock.advance(1)
        self.assertEqual([type for type, _ in self.outcome()], [RESPONSE])

    def test_routedIdInUse(self) -> None:
        """A message that the user's hook gives the id of a call in flight is refused alone."""

        def route(message: Any) -> dict[str, Any]:
            return {"service": "Probe", "method": message["method"], "messageId": "same"}

        self.make(routeMessage=route)
        self.call("slow", None, data={"seconds": 1})
        peer = self.adapter._peers[SOURCE]
        peer._call("same")
        self.call("echo", None)
        self.assertEqual([type for type, _ in self.outcome()], [ERROR])
        self.assertEqual(list(peer._calls), ["same"])
