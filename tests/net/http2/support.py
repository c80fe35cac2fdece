"""A client of HTTP/2 without a socket, on the independent library C{h2}."""

from typing import Any

from attrs import define, field
from h2.config import H2Configuration
from h2.connection import (
    ConnectionInputs,
    H2Connection,
    H2ConnectionStateMachine,
)
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from twisted.internet.testing import StringTransport

from tests.net.support import TestSite


@define
class Answer:
    """
    The answer on a stream.

    @ivar interim: The statuses of interim responses.
    @ivar resetCode: The code of RST_STREAM.
    """

    status: int = 0
    headers: dict[str, str] = field(factory=dict)
    body: bytes = b""
    isEnded: bool = False
    interim: list[int] = field(factory=list)
    resetCode: int | None = None


class _PatientStates(H2ConnectionStateMachine):
    """States of a connection that goes on after GOAWAY, which the library takes for its end."""

    _transitions = {
        key: (function, key[0] if key[1] is ConnectionInputs.RECV_GOAWAY else state)
        for key, (function, state) in H2ConnectionStateMachine._transitions.items()
    }


class Peer:
    """
    The client's end of one connection to a site.

    @ivar wire: The library's connection.
    @ivar transport: The server's transport.
    @ivar answers: The answers by the number of their stream.
    @ivar goAways: The last stream and the code of each GOAWAY.
    @ivar isReading: Whether received DATA is granted again.
    @ivar piece: The number of bytes that arrive at once; 0 for all.
    """

    def __init__(self, site: TestSite, host: str = "192.0.2.7", piece: int = 0) -> None:
        connection = site.connect(host)
        self.site = site
        self.transport: StringTransport = connection.transport
        self.transport.protocol = self.first = connection.channel
        self.wire = H2Connection(
            H2Configuration(
                client_side=True, header_encoding="utf-8", validate_inbound_headers=True
            )
        )
        self.wire.state_machine = _PatientStates()
        self.answers: dict[int, Answer] = {}
        self.goAways: list[tuple[int, int]] = []
        self.events: list[Event] = []
        self.isReading = True
        self.piece = piece
        self.wire.initiate_connection()
        self.pump()

    @property
    def server(self) -> Any:
        """Return the server's protocol."""
        return self.transport.protocol

    def pump(self) -> None:
        """Exchange bytes until neither side has more."""
        while True:
            sent = self.wire.data_to_send()
            size = self.piece or max(len(sent), 1)
            for at in range(0, len(sent), size):
                self.server.dataReceived(sent[at : at + size])
            received = self.transport.value()
            self.transport.clear()
            if not (sent or received):
                return
            if received:
                for event in self.wire.receive_data(received):
                    self._handle(event)

    def _handle(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ConnectionTerminated):
            self.goAways.append((event.last_stream_id or 0, int(event.error_code or 0)))
            return
        number = getattr(event, "stream_id", 0)
        if not number:
            return
        answer = self.answers.setdefault(number, Answer())
        if isinstance(event, ResponseReceived):
            headers = dict(event.headers)
            answer.status = int(headers.pop(":status"))
            answer.headers = headers
        elif isinstance(event, InformationalResponseReceived):
            answer.interim.append(int(dict(event.headers)[":status"]))
        elif isinstance(event, DataReceived):
            answer.body += event.data
            if self.isReading and event.flow_controlled_length:
                self.wire.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, StreamEnded):
            answer.isEnded = True
        elif isinstance(event, StreamReset):
            answer.resetCode = int(event.error_code)

    def begin(
        self, method: str = "GET", path: str = "/", *fields: tuple[str, str], end: bool = True
    ) -> int:
        """
        Send the head of a request.

        @param fields: Header fields and further pseudo-fields.
        @param end: Whether it has no body.
        @return: The number of the stream.
        """
        number: int = self.wire.get_next_available_stream_id()
        pseudo = [
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            (":authority", "example.com"),
        ]
        pseudo += [each for each in fields if each[0][0] == ":"]
        rest = [each for each in fields if each[0][0] != ":"]
        self.answers[number] = Answer()
        self.wire.send_headers(number, pseudo + rest, end_stream=end)
        self.pump()
        return number

    def send(self, number: int, data: bytes, end: bool = False) -> None:
        """Send a part of a body, as far as the windows allow it to be one frame."""
        self.wire.send_data(number, data, end_stream=end)
        self.pump()

    def ask(
        self, method: str = "GET", path: str = "/", *fields: tuple[str, str], body: bytes = b""
    ) -> Answer:
        """Make a request, and return its answer so far."""
        number = self.begin(method, path, *fields, end=not body)
        for at in range(0, len(body), 16_384):
            self.send(number, body[at : at + 16_384], at + 16_384 >= len(body))
        return self.answers[number]
