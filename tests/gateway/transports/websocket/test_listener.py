"""The WebSocket adapter in memory: its handshakes, its formats, and its ends."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.codecs import JSON
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    encodeFrame,
)
from storagegate.gateway.messages.json import MAX_ANSWER
from storagegate.gateway.transports.websocket import WebSocketOptions
from tests.gateway.wscase import WebSocketCase
from tests.support.gateway import TOKEN
from tests.support.wsclient import (
    ACCEPT,
    BINARY,
    FIELDS,
    TEXT,
    MemoryRequest,
    MemoryResponse,
    MemoryTransport,
    closeFrame,
    frame,
)


class HandshakeTests(WebSocketCase):
    """Becoming a WebSocket, or not."""

    def test_accepted(self) -> None:
        """The answer proves that the handshake was read, and tells nothing else."""
        lines = self.connect().head.split(b"\r\n")
        self.assertEqual(lines[0], b"HTTP/1.1 101 Switching Protocols")
        self.assertEqual(
            {line.lower() for line in lines[1:]},
            {
                b"upgrade: websocket",
                b"connection: upgrade",
                b"sec-websocket-accept: " + ACCEPT.lower(),
            },
        )

    def test_refused(self) -> None:
        """What becomes no WebSocket gets the gateway's shape of an error."""
        client = self.connect(upgrade=b"h2c")
        self.assertIsNone(client.wire)
        self.assertEqual(client.response.code, 426)
        self.assertEqual(client.response.fields["Upgrade"], "websocket")
        self.assertRegex(client.response.fields["X-Trace-ID"], "^[0-9a-f]{32}$")
        self.assertEqual(client.response.body["error"], "UPGRADE_REQUIRED")
        self.assertEqual(self.connect(origin=b"http://evil.com").response.code, 403)
        self.assertEqual(self.adapter.connections, 0)

    def test_badOffer(self) -> None:
        """An offer of compression that makes no sense is declined."""
        self.configure(enableCompression=True)
        client = self.connect(sec_websocket_extensions=b"permessage-deflate; nonsense")
        self.assertTrue(client.head.startswith(b"HTTP/1.1 101 "))
        self.assertNotIn(b"Extensions", client.head)

    def test_compression(self) -> None:
        """Compression is agreed on where it is wanted, in the way that was offered first."""
        offers = b"x-unknown, permessage-deflate; server_max_window_bits=10; client_max_window_bits"
        self.assertNotIn(b"deflate", self.connect(sec_websocket_extensions=offers).head)
        self.configure(enableCompression=True)
        head = self.connect(sec_websocket_extensions=offers).head
        self.assertIn(b"permessage-deflate; server_max_window_bits=10", head)
        self.assertNotIn(b"Extensions", self.connect(sec_websocket_extensions=b"bogus").head)

    def test_maxConnections(self) -> None:
        """No more are let in than the options say; one that goes makes room."""
        self.configure(maxConnections=2)
        first, _ = self.connect(), self.connect()
        refused = self.connect()
        self.assertEqual(refused.response.code, 503)
        self.assertEqual(self.adapter.connections, 2)
        first.send(closeFrame(1000))
        self.clock.advance(0)
        self.assertEqual(self.adapter.connections, 1)
        self.assertIsNotNone(self.connect().wire)

    def test_maxConnectionsPerAddress(self) -> None:
        """An address has so many, by default three quarters; others come in all the same."""
        for options in ({"maxConnections": 4}, {"maxConnectionsPerAddress": 3}):
            self.configure(**options)
            first, *_ = [self.connect() for _ in range(3)]
            refused = self.connect()
            self.assertEqual(refused.response.code, 503)
            self.assertEqual(refused.response.body["error"], "UNAVAILABLE")
            self.assertIsNotNone(self.connectFrom("192.0.2.2").wire)
            first.send(closeFrame(1000))
            self.clock.advance(0)
            self.assertIsNotNone(self.connect().wire)

    def test_maxCallsPerAddress(self) -> None:
        """An address has so many calls in flight, over however many WebSockets."""
        self.configure(maxCallsPerAddress=2)
        clients = [self.connect() for _ in range(3)]
        answers = [client.call("slow", {"seconds": 1}) for client in clients]
        self.assertEqual(answers[:2], [[], []])
        self.assertError(answers[2], "UNAVAILABLE", 1)
        self.assertEqual(
            self.data(self.connectFrom("192.0.2.2").call("echo", {"a": 1})), [{"a": 1}]
        )
        self.clock.advance(1)
        self.assertEqual(self.data(clients[2].call("echo", {"a": 1})), [{"a": 1}])

    def test_client(self) -> None:
        """Methods are told who calls, from where, and what the handshake said."""
        contexts: list[Any] = []

        async def look(request: Any, context: Any) -> Any:
            contexts.append(context)

        self.configure([{"name": "Looks", "methods": {"look": look}}])
        client = self.connect(user_agent=b"Probe/1", cookie=b"a=b")
        client.say({"service": "Looks", "method": "look"})
        (context,) = contexts
        self.assertEqual(context.protocol, "websocket")
        self.assertEqual(context.client.address, "192.168.1.1")
        self.assertEqual(context.client.port, 54321)
        self.assertEqual(context.client.userAgent, "Probe/1")
        self.assertEqual(context.headers["cookie"], "a=b")

    def test_goneAlready(self) -> None:
        """A client that is gone before its request is answered takes no room."""
        request = MemoryRequest(dict(FIELDS), MemoryTransport(self.clock), disconnected=True)
        self.adapter.answer(request, MemoryResponse())
        self.assertEqual((request.protocol, self.adapter.connections), (None, 0))

    def test_options(self) -> None:
        """An allowed origin that is none is an error of the options."""
        with self.assertRaises(ValueError):
            WebSocketOptions(allowedOrigins=["example.com"])


class FormatTests(WebSocketCase):
    """Messages as text, as bytes, and as frames."""

    def test_json(self) -> None:
        """Without a subprotocol, and with that one, messages are JSON as text."""
        for format in (None, "json"):
            client = self.connect(format)
            self.assertEqual(self.data(client.call("echo", {"a": [1, None]})), [{"a": [1, None]}])
            self.assertEqual(b"Sec-WebSocket-Protocol: json" in client.head, format == "json")

    def test_msgpack(self) -> None:
        """With msgpack, messages are bytes, and bytes are bytes."""
        client = self.connect("msgpack")
        self.assertIn(b"Sec-WebSocket-Protocol: msgpack", client.head)
        self.assertEqual(self.data(client.call("echo", {"chunk": b"\xff"})), [{"chunk": b"\xff"}])
        self.assertEqual(len(client.call("count", {"to": 2})), 3)

    def test_messageFormat(self) -> None:
        """The options say what is spoken by clients that do not say it."""
        self.configure(messageFormat="msgpack")
        client = self.connect()
        client.send(frame(TEXT, b"{}"))
        (answer,) = client.heard()
        self.assertEqual(answer.opcode, BINARY)
        self.configure(messageFormat="binary")
        (answer,) = self.connect().sayFrame(PING, 1)
        self.assertEqual(answer.type, PONG)

    def test_wrongKind(self) -> None:
        """Bytes where messages are text are an error, and text where they are bytes."""
        message = {"id": 1, "service": "Probe", "method": "echo"}
        client = self.connect()
        client.send(frame(BINARY, JSON.encode(message)))
        self.assertError(client.messages(), "INVALID_ARGUMENT")
        client = self.connect("msgpack")
        client.send(frame(TEXT, JSON.encode(message)))
        self.assertError(client.messages(), "INVALID_ARGUMENT")
        client = self.connect("binary")
        client.send(frame(TEXT, encodeFrame(REQUEST, JSON.encode(message))))
        self.assertEqual(client.sayFrame(PING, 1)[0].type, ERROR)
        self.assertEqual(self.probe.begun, [])

    def test_frames(self) -> None:
        """With binary, each message is a frame of TCP, for every kind of call."""
        client = self.connect("binary")
        call = {"service": "Probe", "method": "echo", "data": {"a": 1}}
        (answer,) = client.sayFrame(REQUEST, call)
        self.assertEqual((answer.type, JSON.decode(answer.payload)), (RESPONSE, {"a": 1}))
        (answer,) = client.sayFrame(REQUEST, {**call, "id": 5})
        self.assertEqual(JSON.decode(answer.payload), {"id": 5, "data": {"a": 1}})
        answers = client.sayFrame(REQUEST, {**call, "method": "count", "data": {"to": 2}})
        self.assertEqual([each.type for each in answers], [ITEM, ITEM, END])
        self.assertEqual(client.sayFrame(REQUEST, {"service": "Probe", "method": "chat"}), [])
        self.assertEqual(client.sayFrame(CLIENT_ITEM, {"data": {"text": "a"}})[0].type, ITEM)
        answers = client.sayFrame(CLIENT_END, {})
        self.assertEqual([each.type for each in answers], [ITEM, END])
        self.assertEqual(client.sayFrame(REQUEST, {**call, "id": 9, "method": "slow"}), [])
        self.assertEqual(client.sayFrame(CANCEL, {"id": 9}), [])
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_badFrames(self) -> None:
        """A message that is no frame gets an error frame, and the socket stays."""
        client = self.connect("binary")
        good = encodeFrame(PING, b"1")
        for wrong in (
            b"",
            b"\x01",
            good[:-1],
            good + b"x",
            good + good,
            b"\x02" + good[1:],
            b"\x01\x01\xff\xff\xff\xff",
            encodeFrame(REQUEST, b"{"),
            encodeFrame(REQUEST, b"[]"),
            encodeFrame(77, b"{}"),
        ):
            client.send(frame(BINARY, wrong))
            (answer,) = client.heard()
            self.assertEqual((answer.opcode, answer.payload[1]), (BINARY, ERROR), wrong)
            self.assertIn("message", JSON.decode(answer.payload[6:]))
        self.assertEqual(client.sayFrame(PING, 1)[0].type, PONG)


class CallTests(WebSocketCase):
    """Calls and their errors."""

    def test_kinds(self) -> None:
        """Every kind of call is answered."""
        client = self.connect()
        self.assertEqual(self.data(client.call("echo", {"a": 1})), [{"a": 1}])
        self.assertEqual(len(client.call("count", {"to": 5}, id=2)), 6)
        (answer,) = client.say(
            {"id": 3, "service": "Probe", "method": "collect"},
            {"id": 3, "type": "stream", "data": {"text": "a"}},
            {"id": 3, "type": "stream_end"},
        )
        self.assertEqual(answer["data"], {"texts": ["a"]})
        self.assertEqual(client.call("chat", {"text": "a"}, id=4)[0]["data"], {"text": "A"})

    def test_badMessages(self) -> None:
        """Whatever is wrong gets an error with the id that it had, and the socket stays."""
        client = self.connect()
        for text, id in (
            (b"", None),
            (b"{", None),
            (b"[]", None),
            (b'{"id":7}', 7),
            (b'{"id":"a","service":"Nobody","method":"m"}', "a"),
            (b'{"id":1.5,"service":"Probe","method":"echo"}', None),
            (b'{"id":2,"type":"nonsense"}', 2),
            (b"[" * 2000, None),
        ):
            client.send(frame(TEXT, text))
            (answer,) = client.messages()
            self.assertEqual((answer["type"], answer.get("id")), ("error", id), text[:20])
        self.assertEqual(len(client.call("echo")), 1)
        self.assertIsNone(client.closeCode)

    def test_tokens(self) -> None:
        """Each message says for itself who calls; what the handshake said is no token."""
        client = self.connect(authorization=f"Bearer {TOKEN}".encode(), x_api_key=TOKEN.encode())
        self.assertError(client.call("private"), "UNAUTHENTICATED", 1)
        (answer,) = client.call("private", auth={"token": TOKEN})
        self.assertEqual(answer["data"]["user"], {"sub": "ann"})
        self.assertError(client.call("private"), "UNAUTHENTICATED", 1)

    def test_transformError(self) -> None:
        """An error is what the user makes of it."""
        self.configure(transformError=lambda error, protocol: {"oops": [protocol, error.code]})
        self.assertEqual(
            self.connect().call("nothing"), [{"id": 1, "oops": ["websocket", "NOT_FOUND"]}]
        )

    def test_deadline(self) -> None:
        """A deadline ends a call, and its handler."""
        client = self.connect()
        self.assertEqual(client.call("slow", deadlineMs=1000), [])
        self.clock.advance(1)
        self.assertError(client.messages(), "DEADLINE_EXCEEDED", 1)
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_tooLarge(self) -> None:
        """A result that is too large is an error."""

        async def large(request: Any, context: Any) -> Any:
            return "*" * MAX_ANSWER

        self.configure([{"name": "Large", "methods": {"get": large}}])
        answers = self.connect().say({"id": 1, "service": "Large", "method": "get"})
        self.assertError(answers, "RESPONSE_TOO_LARGE", 1)


class EndTests(WebSocketCase):
    """How WebSockets end."""

    def closed(self, seconds: float) -> Deferred[None]:
        """Close the adapter."""
        return self.adapter.close(seconds)

    def test_lost(self) -> None:
        """What a lost client had asked for is cancelled."""
        client = self.connect()
        client.call("slow")
        client.call("count", {"hang": True}, id=2)
        client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual(sorted(self.probe.cancelled), ["count", "slow"])
        self.assertEqual(self.adapter.connections, 0)

    def test_closeByClient(self) -> None:
        """A client's close ends its calls."""
        client = self.connect()
        client.call("slow")
        client.send(closeFrame(1000))
        self.assertEqual(client.closeCode, 1000)
        self.clock.advance(0)
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_tooBig(self) -> None:
        """A message that is too large closes the socket, and its calls end."""
        self.configure(maxMessageSize=1000)
        client = self.connect()
        client.call("slow")
        client.send(frame(TEXT, b"*" * 1001))
        self.assertEqual(client.closeCode, 1009)
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_idleAtTheEnd(self) -> None:
        """Who waits for nothing is sent away at once when the adapter closes."""
        client = self.connect()
        done = self.closed(30)
        self.assertEqual(client.closeCode, 1001)
        self.assertNoResult(done)
        client.send(closeFrame(1001))
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertFalse(client.transport.isAborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lostAtTheEnd(self) -> None:
        """A client that goes without answering the close is not waited for."""
        client = self.connect()
        done = self.closed(30)
        client.transport.abortConnection()
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busyAtTheEnd(self) -> None:
        """A call in flight ends before its socket closes; new ones are refused."""
        client = self.connect()
        client.call("slow", {"seconds": 5})
        done = self.closed(30)
        self.assertError(client.call("echo", id=2), "UNAVAILABLE", 2)
        self.assertEqual(self.connect().response.code, 503)
        self.clock.advance(5)
        (answer,) = client.messages()
        self.assertEqual(answer["data"], {"seconds": 5})
        self.assertEqual(client.closeCode, 1001)
        client.send(closeFrame(1001))
        self.clock.advance(0)
        self.successResultOf(done)

    def test_goodbyeAtTheEnd(self) -> None:
        """A goodbye in the same bytes as what ends the last call is heard."""
        client = self.connect()
        client.call("slow")
        done = self.closed(30)
        given = frame(TEXT, JSON.encode({"id": 1, "type": "cancel"}))
        client.send(given + closeFrame(1001))
        self.assertEqual(client.closeCode, 1001)
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertFalse(client.transport.isAborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_endlessAtTheEnd(self) -> None:
        """What has not ended after the grace is cut."""
        client = self.connect()
        client.call("count", {"hang": True})
        done = self.closed(10)
        self.clock.advance(9.9)
        self.assertIsNone(client.closeCode)
        self.clock.advance(0.2)
        self.assertEqual(client.closeCode, 1001)
        self.assertEqual(self.probe.cancelled, ["count"])
        # Nor does this client say goodbye.
        self.clock.advance(5)
        self.assertTrue(client.transport.isAborted)
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nobodyAtTheEnd(self) -> None:
        """Without clients there is nothing to wait for."""
        self.successResultOf(self.closed(30))
