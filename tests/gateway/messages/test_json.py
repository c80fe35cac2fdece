"""Messages: read, answered, and refused."""

import json
from typing import Any

from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.codecs import JSON, MSGPACK
from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError
from storagegate.gateway.messages import json as messages
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.messages.json import MessageWriter, handleEncoded, handleMessage
from storagegate.gateway.messages.session import PeerSession
from tests.support.gateway import TOKEN, makeHost
from tests.support.selection import long


class WrittenPeer(MessageWriter):
    """A peer that is written to a list."""

    client = ClientInfo("1", "127.0.0.1", 5000)

    def drained(self) -> Deferred[None] | None:
        """Wait for nothing."""
        return None

    def setReading(self, wanted: bool) -> None:
        """Read on."""


@define(eq=False)
class Set:
    """What no message carries."""


async def unwritable(request: Any, context: Any) -> Any:
    """Give what no message carries."""
    return {"text": Set()}


async def unwritableItems(request: Any, context: Any) -> Any:
    """Give an item, then what no message carries."""
    yield 1
    yield float("nan")
    yield 3


async def badDetails(request: Any, context: Any) -> Any:
    """Raise an error that no message carries."""
    raise ServiceError("ODD", "odd", 418, {1, 2})


ODD = {
    "name": "Odd",
    "methods": {
        "result": unwritable,
        "items": unwritableItems,
        "error": badDetails,
    },
}


class MessageCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a session."""
        self.connect()

    def connect(self, transformError: Any = None, codec: Any = JSON) -> None:
        """Make a session."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock, [ODD], transformError)
        self.written: list[bytes] = []
        self.codec = codec
        self.writer = WrittenPeer(host, "websocket", codec, self.written.append)
        self.session = PeerSession(ListenerState(host.invoker, self.clock), self.writer)

    def say(self, *messages: Any) -> list[Any]:
        """Take messages; give what was answered since."""
        for message in messages:
            handleEncoded(self.session, self.writer, self.codec, self.codec.encode(message))
        return self.answers()

    def answers(self) -> list[Any]:
        """Give what was written since the last time."""
        written = [self.codec.decode(each) for each in self.written]
        self.written.clear()
        return written

    def assertError(self, answers: list[Any], code: str, id: Any = None) -> None:
        """Check that there is one answer: an error."""
        self.assertEqual(len(answers), 1, answers)
        self.assertEqual(answers[0]["type"], "error")
        self.assertEqual(answers[0]["error"]["code"], code)
        self.assertEqual(answers[0].get("id"), id)
        self.assertIs(type(answers[0].get("id")), type(id))


class CallTests(MessageCase):
    """Calls of every kind."""

    def test_response(self) -> None:
        """A result has the id, the method, and the time in milliseconds."""
        (answer,) = self.say({"id": 7, "service": "Probe", "method": "echo", "data": {"a": 1}})
        timestamp = answer.pop("timestamp")
        self.assertEqual(answer, {"id": 7, "type": "response", "method": "echo", "data": {"a": 1}})
        self.assertIs(type(timestamp), int)
        self.assertGreater(timestamp, 1_600_000_000_000)

    def test_typeRequest(self) -> None:
        """A call may say that it is one, and what is not known is ignored."""
        message = {"type": "request", "id": "a", "service": "Probe", "method": "echo", "more": 1}
        (answer,) = self.say(message)
        self.assertEqual((answer["id"], answer["data"]), ("a", {}))

    def test_idKeepsItsType(self) -> None:
        """A number comes back as a number, text as text, and where there is none, none."""
        for id in (0, -1, 2**70, "", "1", "\N{SNOWMAN}"):
            (answer,) = self.say({"id": id, "service": "Probe", "method": "echo"})
            self.assertEqual(answer["id"], id)
            self.assertIs(type(answer["id"]), type(id))
        (answer,) = self.say({"service": "Probe", "method": "echo"})
        self.assertNotIn("id", answer)

    def test_serverStream(self) -> None:
        """Every item is a message, and the end is one."""
        self.assertEqual(
            self.say({"id": 1, "service": "Probe", "method": "count", "data": {"to": 2}}),
            [
                {"id": 1, "type": "stream", "data": {"number": 0}},
                {"id": 1, "type": "stream", "data": {"number": 1}},
                {"id": 1, "type": "stream_end"},
            ],
        )

    def test_clientStream(self) -> None:
        """A client's items follow the call, whose own data is the first."""
        (answer,) = self.say(
            {"id": 1, "service": "Probe", "method": "collect", "data": {"text": "a"}},
            {"id": 1, "type": "stream", "data": {"text": "b"}},
            {"id": 1, "type": "stream_end"},
        )
        self.assertEqual(answer["data"], {"texts": ["a", "b"]})

    def test_chat(self) -> None:
        """Both sides stream at the same time."""
        self.say({"id": 1, "service": "Probe", "method": "chat"})
        self.assertEqual(
            self.say({"id": 1, "type": "stream", "data": {"text": "a"}}),
            [{"id": 1, "type": "stream", "data": {"text": "A"}}],
        )
        self.assertEqual(
            self.say({"id": 1, "type": "stream_end"}),
            [
                {"id": 1, "type": "stream", "data": {"text": "goodbye"}},
                {"id": 1, "type": "stream_end"},
            ],
        )

    def test_cancel(self) -> None:
        """A call is given up, and nothing more is said of it."""
        self.say({"id": 1, "service": "Probe", "method": "slow"})
        self.assertEqual(self.say({"id": 1, "type": "cancel"}), [])
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_tokenOfTheMessage(self) -> None:
        """Who calls is told by each message for itself."""
        call = {"id": 1, "service": "Probe", "method": "private"}
        (answer,) = self.say({**call, "auth": {"token": TOKEN}})
        self.assertEqual(answer["data"]["user"], {"sub": "ann"})
        self.assertError(self.say(call), "UNAUTHENTICATED", 1)

    def test_ping(self) -> None:
        """A ping is answered with what it said."""
        self.assertEqual(self.say({"type": "ping"}), [{"type": "pong"}])
        self.assertEqual(
            self.say({"id": "p", "type": "ping", "data": [1]}),
            [{"id": "p", "type": "pong", "data": [1]}],
        )

    def test_msgpack(self) -> None:
        """The same messages go in MessagePack, with bytes that are bytes."""
        self.connect(codec=MSGPACK)
        message = {"id": 1, "service": "Probe", "method": "echo", "data": {"chunk": b"\xff"}}
        (answer,) = self.say(message)
        self.assertEqual(answer["data"], {"chunk": b"\xff"})


class ErrorTests(MessageCase):
    """What is wrong gets an error, and the session goes on."""

    def test_shape(self) -> None:
        """An error has a code, a message, and details where there are any."""
        fail = {"service": "Probe", "method": "fail"}
        details = [{"path": "a"}]
        self.assertEqual(
            self.say({"id": 1, **fail, "data": {"code": "ODD", "details": details}}),
            [
                {
                    "id": 1,
                    "type": "error",
                    "error": {"code": "ODD", "message": "as asked", "details": details},
                }
            ],
        )

    def test_noJSON(self) -> None:
        """What cannot be read gets an error without an id."""
        for data in (b"", b"{", b"\xff", b"NaN", b"[" * 500, b'{"id":1'):
            handleEncoded(self.session, self.writer, JSON, data)
            self.assertError(self.answers(), "INVALID_ARGUMENT")

    def test_noMessage(self) -> None:
        """What is no object gets an error without an id."""
        for message in (None, 1, "a", [], [{"id": 1}], True):
            self.assertError(self.say(message), "INVALID_ARGUMENT")

    def test_wrongId(self) -> None:
        """An id that is none does not come back."""
        for id in (1.5, True, [1], {}, "a" * 129):
            answers = self.say({"id": id, "service": "Probe", "method": "echo"})
            self.assertError(answers, "INVALID_ARGUMENT")
        self.assertEqual(self.probe.begun, [])

    def test_wrongCall(self) -> None:
        """The id comes back with whatever else is wrong."""
        for wrong, code in (
            ({}, "INVALID_ARGUMENT"),
            ({"service": "Probe"}, "INVALID_ARGUMENT"),
            ({"service": 1, "method": "echo"}, "INVALID_ARGUMENT"),
            ({"service": "Probe", "method": ["echo"]}, "INVALID_ARGUMENT"),
            ({"service": "Nobody", "method": "echo"}, "NOT_FOUND"),
            ({"service": "Probe", "method": "__class__"}, "NOT_FOUND"),
            ({"service": "Probe", "method": "echo", "deadlineMs": "1"}, "INVALID_ARGUMENT"),
            ({"service": "Probe", "method": "checked", "data": {}}, "VALIDATION_ERROR"),
            ({"type": "response"}, "INVALID_ARGUMENT"),
            ({"type": 1}, "INVALID_ARGUMENT"),
            ({"type": ["ping"]}, "INVALID_ARGUMENT"),
            ({"type": "", "service": "Probe", "method": "echo"}, "INVALID_ARGUMENT"),
        ):
            self.assertError(self.say({"id": "x", **wrong}), code, "x")
        self.assertEqual(self.probe.begun, [])

    def test_longPing(self) -> None:
        """A pong that would be longer than a message may be is an error."""
        self.patch(messages, "MAX_ANSWER", 1000)
        answers = self.say({"id": "p", "type": "ping", "data": "x" * 1000})
        self.assertError(answers, "RESPONSE_TOO_LARGE", "p")

    def test_unknownCall(self) -> None:
        """What belongs to no call is passed over: the call may have ended on its way."""
        for kind in ("stream", "stream_end", "cancel"):
            self.assertEqual(self.say({"id": 5, "type": kind, "data": 1}), [])
            self.assertEqual(self.say({"type": kind}), [])

    def test_transformError(self) -> None:
        """A mapping goes out as it is, with the id; another error in the usual shape."""
        self.connect(lambda error, protocol: {"oops": error.code, "wire": protocol})
        self.assertEqual(
            self.say({"id": 1}), [{"id": 1, "oops": "INVALID_ARGUMENT", "wire": "websocket"}]
        )
        self.assertEqual(self.say([]), [{"oops": "INVALID_ARGUMENT", "wire": "websocket"}])
        self.connect(lambda error, protocol: ServiceError("MINE", "mine"))
        self.assertError(self.say({"id": 1}), "MINE", 1)

    def test_unwritableResult(self) -> None:
        """A result that messages cannot carry is an internal error, and logged."""
        self.assertError(
            self.say({"id": 1, "service": "Odd", "method": "result"}), "INTERNAL_ERROR", 1
        )
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_unwritableItem(self) -> None:
        """An item that messages cannot carry ends the stream with an internal error."""
        item, *rest = self.say({"id": 1, "service": "Odd", "method": "items"})
        self.assertEqual(item["data"], 1)
        self.assertError(rest, "INTERNAL_ERROR", 1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_unwritableDetails(self) -> None:
        """An error that messages cannot carry becomes an internal one."""
        self.assertError(
            self.say({"id": 1, "service": "Odd", "method": "error"}), "INTERNAL_ERROR", 1
        )

    _parts = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    _values = _parts | st.lists(_parts, max_size=3) | st.dictionaries(st.text(), _parts, max_size=3)

    @settings(deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(["id", "type", "service", "method", "data", "auth", "deadlineMs"]),
            _values | st.sampled_from(["stream", "cancel", "ping", "Probe", "echo", "chat"]),
        )
    )
    @long("takes seconds")
    def test_anything(self, message: Any) -> None:
        """Whatever a message says, the session goes on, and nothing escapes."""
        handleMessage(self.session, self.writer, message)
        for written in self.written:
            json.loads(written)
        self.session.close()
        self.connect()
