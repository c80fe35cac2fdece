"""Datagrams that come again, from whoever they really are."""

from storagegate.gateway.messages.frames import REQUEST, RESPONSE
from tests.gateway.udpcase import KNOWN, SOURCE, UDPCase


class AgainTests(UDPCase):
    """How much a datagram with a known id gets."""

    def test_small(self) -> None:
        """An answer that is more than three times a datagram is not given again to that."""
        first = self.call("echo", data={"text": "x" * 500})
        self.assertEqual([type for type, _ in self.answers], [RESPONSE])
        self.send(REQUEST, {"id": "1"})
        self.assertEqual(self.answers, [])
        self.adapter.datagramReceived(first, SOURCE)
        self.assertEqual([type for type, _ in self.answers], [RESPONSE])

    def test_silence(self) -> None:
        """What was answered by silence, because no answer fits, is so every time."""
        for _ in range(3):
            self.send(REQUEST, {"id": 1})
            self.assertEqual(self.answers, [])

    def test_known(self) -> None:
        """Whoever is known gets a large answer again for the same datagram, and not for less."""
        self.make(formatResponse=lambda result, type: b"z" * 900)
        request = {"id": "1", "service": "Probe", "method": "echo", "auth": KNOWN}
        for _ in range(2):
            self.send(REQUEST, request)
        self.assertEqual(len(self.transport.sent), 2)
        self.send(REQUEST, {"id": "1"})
        self.assertEqual(len(self.transport.sent), 2)
