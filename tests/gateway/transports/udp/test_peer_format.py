"""What C{formatResponse} is given over UDP, and when it may answer."""

import json
from typing import Any

from storagegate.core.errors import ServiceError
from storagegate.gateway.messages.frames import ACK
from storagegate.gateway.transports.udp import UDPOptions
from storagegate.gateway.transports.udp.listener import UDPTransport
from tests.gateway.udpcase import UDPCase
from tests.support.gateway import Boom, makeHost


class FormatTests(UDPCase):
    """The hook."""

    @property
    def written(self) -> list[str]:
        """Give what was sent, as text."""
        return [datagram.decode() for datagram, _ in self.transport.sent]

    def test_transformed(self) -> None:
        """It is given an error as transformError has made it."""

        def transform(error: ServiceError, protocol: str) -> Any:
            return {"custom": error.code, "wire": protocol}

        host, _ = makeHost(self.clock, transformError=transform)
        options = UDPOptions(formatResponse=lambda result, type: json.dumps(result).encode())
        self.adapter = UDPTransport(host, options)
        self.adapter.transport = self.transport  # type: ignore[assignment]
        self.call("nothing", 2)
        self.assertEqual(self.written, ['{"id": 2, "custom": "NOT_FOUND", "wire": "udp"}'])

    def test_asynchronous(self) -> None:
        """It may be asynchronous for errors and for streams, too."""

        async def form(result: Any, type: str) -> bytes:
            return type.encode()

        self.make(formatResponse=form)
        self.call("nothing", 1)
        self.call("count", 2, data={"to": 2})
        self.assertEqual(self.written, ["error", "stream", "stream", "stream_end"])

    def test_slow(self) -> None:
        """A slow call gets no acknowledgement, which is a frame that its client does not know."""
        for options, sent in (({}, [ACK]), ({"formatResponse": lambda *_: b"own"}, [])):
            self.make(**options)
            self.call("slow", 1)
            self.clock.advance(2)
            self.assertEqual([type for type, _ in self.answers], sent)

    def test_failing(self) -> None:
        """If it fails for an error, the error is a frame, and the call has ended."""

        def form(result: Any, type: str) -> bytes:
            raise Boom

        self.make(formatResponse=form)
        self.call("nothing", 1)
        self.assertEqual([payload["error"] for _, payload in self.answers], ["NOT_FOUND"])
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
