"""Calls as messages, without input or output."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.client.formats import (
    TCP_FORMATS,
    UNKNOWN,
    WEBSOCKET_FORMATS,
    Reply,
    readError,
)
from storagegate.gateway.client.session import ClientSession, Message
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    PING,
    REQUEST,
    RESPONSE,
    encodeFrame,
)


class SessionTests(SynchronousTestCase):
    """Ids, and the assignment of replies."""

    def setUp(self) -> None:
        """Begin two calls."""
        self.session = ClientSession()
        self.first: list[Reply] = []
        self.second: list[Reply] = []
        content = {"service": "S", "method": "m"}
        self.message = self.session.begin(content, self.first.append)[1]
        self.session.begin(content, self.second.append)

    def test_messages(self) -> None:
        """A call has an id, and numbers the items of its stream."""
        self.assertEqual(self.message, Message(REQUEST, {"id": 1, "service": "S", "method": "m"}))
        items = [self.session.item(1, "a"), self.session.item(2, "b"), self.session.item(1, "c")]
        self.assertEqual(
            items,
            [
                Message(CLIENT_ITEM, {"id": 1, "seq": 0, "data": "a"}),
                Message(CLIENT_ITEM, {"id": 2, "seq": 0, "data": "b"}),
                Message(CLIENT_ITEM, {"id": 1, "seq": 1, "data": "c"}),
            ],
        )
        self.assertEqual(self.session.itemsEnd(1), Message(CLIENT_END, {"id": 1, "seq": 2}))

    def test_replies(self) -> None:
        """A reply goes to its call, until the call has ended."""
        replies = [Reply(ITEM, 2, "a"), Reply(END, 2, None), Reply(RESPONSE, 1, "b")]
        for reply in replies:
            self.assertTrue(self.session.receive(reply))
        self.assertEqual((self.first, self.second), (replies[2:], replies[:2]))
        self.assertFalse(self.session.receive(Reply(ITEM, 2, "late")))
        self.assertIsNone(self.session.item(2, "late"))
        self.assertIsNone(self.session.itemsEnd(2))
        self.assertEqual(self.session.active, 0)

    def test_cancel(self) -> None:
        """A cancelled call gets no further replies, and is cancelled once."""
        self.assertEqual(self.session.cancel(1), Message(CANCEL, {"id": 1}))
        self.assertIsNone(self.session.cancel(1))
        self.assertFalse(self.session.receive(Reply(RESPONSE, 1, "a")))
        self.assertEqual(self.first, [])

    def test_withoutId(self) -> None:
        """A reply without an id belongs to a call only if there is no other call."""
        reply = Reply(UNKNOWN, None, "text")
        self.assertFalse(self.session.receiveOnly(reply))
        self.session.cancel(2)
        self.assertTrue(self.session.receiveOnly(reply))
        self.assertEqual(self.first, [Reply(RESPONSE, 1, "text")])

    def test_lost(self) -> None:
        """All calls end with an error of their own; abandoned ones are cancelled."""
        errors = [codedError("UNAVAILABLE", "lost"), codedError("UNAVAILABLE", "lost")]
        given = iter(errors)
        messages = self.session.abandon(lambda: next(given))
        self.assertEqual([each.value for each in (*self.first, *self.second)], errors)
        self.assertEqual(messages, [Message(CANCEL, {"id": 1}), Message(CANCEL, {"id": 2})])


FORMATS = [*WEBSOCKET_FORMATS.items(), *TCP_FORMATS.items()]


class FormatTests(SynchronousTestCase):
    """Encoded messages."""

    def test_errors(self) -> None:
        """The errors of all shapes are read."""
        for shape, code, message, details in (
            ({"error": "NOT_FOUND", "message": "gone", "details": 1}, "NOT_FOUND", "gone", 1),
            ({"error": {"own": 1}}, "UNKNOWN", "", {"error": {"own": 1}}),
            ("text", "UNKNOWN", "", "text"),
            ({}, "UNKNOWN", "", None),
        ):
            error = readError(shape, "error")
            found = (error.code, error.message, error.details)
            self.assertEqual(found, (code, message, details))
        self.assertEqual(readError({"error": "NOT_FOUND"}, "error").statusCode, 404)

    def test_lines(self) -> None:
        """A message of another shape is the result of an application's hook."""
        lines = TCP_FORMATS["lines"]
        for data, value in (
            (b'{"own": 1}', {"own": 1}),
            (b"[1]", [1]),
            (b'{"type": 5}', {"type": 5}),
        ):
            reply = lines.decode(data, 100)
            self.assertEqual((reply.type, reply.id, reply.value), (UNKNOWN, None, value))
        error = lines.decode(b'{"id": 1, "type": "error", "error": {"code": "X"}}', 100)
        self.assertIsInstance(error.value, ServiceError)
        self.assertEqual((error.type, error.id, error.value.code), (ERROR, 1, "X"))

    def test_limits(self) -> None:
        """A message over the limit is malformed."""
        for _, format in FORMATS:
            data = format.encode(REQUEST, {"id": 1, "data": "x" * 100})
            self.assertRaises(ValueError, format.decode, data, 50)

    def test_pings(self) -> None:
        """A ping is answered with its payload."""
        frames, lines = TCP_FORMATS["frames"], TCP_FORMATS["lines"]
        ping = frames.decode(encodeFrame(PING, b"\xff"), 10)
        self.assertEqual(frames.encodePong(ping), encodeFrame(7, b"\xff"))
        ping = lines.decode(b'{"type": "ping", "data": 1}', 100)
        self.assertEqual(lines.encodePong(ping), b'{"id":null,"type":"pong","data":1}\n')

    @given(st.lists(st.text(max_size=20), max_size=4), st.integers(1, 7))
    def test_pieces(self, texts: list[str], size: int) -> None:
        """A stream of bytes has the same messages in pieces of any size."""
        for name, format in TCP_FORMATS.items():
            wire = b"".join(
                encodeFrame(ITEM, b'{"id":1,"data":%b}' % _json(text))
                if name == "frames"
                else b'{"id":1,"type":"stream","data":%b}\n' % _json(text)
                for text in texts
            )
            decoder: Any = format.makeDecoder(1000)
            found = []
            for start in range(0, len(wire), size):
                decoder.feed(wire[start : start + size])
                while (each := decoder.next()) is not None:
                    found.append(format.read(each))
            self.assertEqual([each.value for each in found], texts)
            self.assertTrue(all((each.type, each.id) == (ITEM, 1) for each in found))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
