"""The hooks of WebSocket: what users make of messages, results and streams."""

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from storagegate.core.codecs import JSON
from storagegate.core.errors import ServiceError
from storagegate.gateway.messages.frames import ITEM, REQUEST, RESPONSE
from tests.gateway.wscase import WebSocketCase
from tests.support.gateway import TOKEN, Boom


class RouteTests(WebSocketCase):
    """C{routeMessage}: messages of the user's own."""

    def route(self, message: Any) -> Any:
        """Understand C{{"call": "Service.method", "with": request, "no": id}}."""
        service, _, method = message["call"].partition(".")
        return {
            "service": service,
            "method": method,
            "request": message.get("with"),
            "messageId": message.get("no"),
        }

    async def routeLater(self, message: Any) -> Any:
        """Take as many seconds for it as the message says."""
        await deferLater(self.clock, message.get("takes", 0))
        return self.route(message)

    def test_route(self) -> None:
        """The hook says what is called, with what, and for which id."""
        self.configure(routeMessage=self.route)
        (answer,) = self.connect().say({"call": "Probe.echo", "with": {"a": 1}, "no": "x"})
        self.assertEqual((answer["id"], answer["data"]), ("x", {"a": 1}))

    def test_anyShape(self) -> None:
        """A message need not be an object, and its C{id} and C{type} are the user's."""
        self.configure(
            routeMessage=lambda message: {
                "service": "Probe",
                "method": "echo",
                "request": message,
                "messageId": 1,
            }
        )
        client = self.connect()
        for message in ([1, 2], "text", 7, {"id": [1], "type": "call"}):
            self.assertEqual(self.data(client.say(message)), [message])

    def test_ownId(self) -> None:
        """A hook that names no id and no request leaves the message without one."""
        self.configure(routeMessage=lambda message: {"service": "Probe", "method": "echo"})
        (answer,) = self.connect().say({"id": 7})
        self.assertNotIn("id", answer)
        self.assertEqual(answer["data"], {})

    def test_credentials(self) -> None:
        """Who calls, and until when, is where it always is."""
        self.configure(routeMessage=self.route)
        client = self.connect()
        (answer,) = client.say({"call": "Probe.private", "auth": {"token": TOKEN}})
        self.assertEqual(answer["data"]["user"], {"sub": "ann"})
        client.say({"call": "Probe.slow", "with": {}, "no": 2, "deadlineMs": 1000})
        self.clock.advance(1)
        self.assertError(client.messages(), "DEADLINE_EXCEEDED", 2)

    def test_controls(self) -> None:
        """What goes on with a call is understood as ever."""
        self.configure(routeMessage=self.route)
        client = self.connect()
        (answer,) = client.say(
            {"call": "Probe.collect", "with": {"text": "a"}, "no": 1},
            {"id": 1, "type": "stream", "data": {"text": "b"}},
            {"id": 1, "type": "stream_end"},
        )
        self.assertEqual(answer["data"], {"texts": ["a", "b"]})
        client.say({"call": "Probe.slow", "with": {}, "no": 2}, {"id": 2, "type": "cancel"})
        self.assertEqual(self.probe.cancelled, ["slow"])
        self.assertEqual(client.say({"type": "ping"}), [{"type": "pong"}])

    def test_later(self) -> None:
        """A hook may take its time; what comes meanwhile waits, and comes in its order."""
        self.configure(routeMessage=self.routeLater)
        client = self.connect()
        answers = client.say(
            {"call": "Probe.collect", "with": {"text": "a"}, "no": 1, "takes": 5},
            {"id": 1, "type": "stream", "data": {"text": "b"}},
            {"id": 1, "type": "stream_end"},
            {"call": "Probe.echo", "with": "second", "no": 2, "takes": 5},
            {"call": "Probe.echo", "with": "third", "no": 3},
        )
        self.assertEqual(answers, [])
        self.assertEqual(client.transport.producerState, "paused")
        self.clock.advance(5)
        self.assertEqual(self.data(client.messages()), [{"texts": ["a", "b"]}])
        self.clock.advance(5)
        self.clock.advance(0)
        self.assertEqual(self.data(client.messages()), ["second", "third"])
        self.assertEqual(client.transport.producerState, "producing")

    def test_lostMeanwhile(self) -> None:
        """A client that goes while the hook thinks calls nothing, and the hook is told."""
        seen: list[Any] = []

        async def route(message: Any) -> Any:
            seen.append(message)
            try:
                await deferLater(self.clock, 5)
            except CancelledError:
                seen.append("cancelled")
                raise
            return {"service": "Probe", "method": "echo"}

        self.configure(routeMessage=route)
        client = self.connect()
        client.say("first", "second")
        client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual((seen, self.probe.begun), (["first", "cancelled"], []))

    def test_fails(self) -> None:
        """A hook that raises refuses the message; what nobody foresaw is logged."""
        for isAsync in (False, True):
            for error, code in ((Boom(), "INTERNAL_ERROR"), (ServiceError("MINE"), "MINE")):

                def fail(message: Any, error: Exception = error) -> Any:
                    raise error

                async def failLater(message: Any, error: Exception = error) -> Any:
                    raise error

                self.configure(routeMessage=failLater if isAsync else fail)
                client = self.connect()
                self.assertError(client.say({"id": 1}), code)
                self.assertError(client.say({"id": 2}), code)
                self.assertEqual(
                    len(self.flushLoggedErrors(Boom)), 2 if code == "INTERNAL_ERROR" else 0
                )

    def test_nonsense(self) -> None:
        """What the hook gives has to be a call."""
        for routed in (None, 7, [], {}, {"service": "Probe"}, {"messageId": [1]}):
            self.configure(routeMessage=lambda message, routed=routed: routed)
            self.assertError(self.connect().say({"id": 1}), "INVALID_ARGUMENT")

    def test_frames(self) -> None:
        """The payloads of frames are routed, too, and keep their id."""
        self.configure(
            routeMessage=lambda message: {
                "service": "Probe",
                "method": "echo",
                "request": message["x"],
            }
        )
        (answer,) = self.connect("binary").sayFrame(REQUEST, {"id": 4, "x": 5})
        self.assertEqual(JSON.decode(answer.payload), {"id": 4, "data": 5})


class FormatTests(WebSocketCase):
    """C{formatResponse}: results in the user's own shape."""

    def format(self, result: Any, id: Any, method: str) -> Any:
        """Shape a result."""
        return {"re": id, "of": method, "is": result}

    async def formatLater(self, result: Any, id: Any, method: str) -> Any:
        """Shape a result after a second."""
        await deferLater(self.clock, 1)
        return self.format(result, id, method)

    def test_format(self) -> None:
        """The hook makes the message of a result; streams and errors are as ever."""
        self.configure(formatResponse=self.format)
        client = self.connect()
        self.assertEqual(client.call("echo", 5), [{"re": 1, "of": "echo", "is": 5}])
        self.assertEqual(client.call("count", {"to": 0}), [{"id": 1, "type": "stream_end"}])
        self.assertError(client.call("nothing"), "NOT_FOUND", 1)

    def test_later(self) -> None:
        """It may take its time."""
        self.configure(formatResponse=self.formatLater)
        client = self.connect()
        self.assertEqual(client.call("echo", 5), [])
        self.clock.advance(1)
        self.assertEqual(client.messages(), [{"re": 1, "of": "echo", "is": 5}])

    def test_fails(self) -> None:
        """A hook that raises, or gives what no message carries, is an internal error."""
        for hook in (lambda result, id, method: {}[0], lambda result, id, method: {1}):
            self.configure(formatResponse=hook)
            self.assertError(self.connect().call("echo", 5), "INTERNAL_ERROR", 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError, ValueError)), 2)

    def test_frames(self) -> None:
        """What it makes is the payload of a frame where frames are spoken."""
        self.configure(formatResponse=self.format)
        call = {"id": 1, "service": "Probe", "method": "echo", "data": 5}
        (answer,) = self.connect("binary").sayFrame(REQUEST, call)
        self.assertEqual(answer.type, RESPONSE)
        self.assertEqual(JSON.decode(answer.payload), {"re": 1, "of": "echo", "is": 5})


class StreamTests(WebSocketCase):
    """C{handleStreaming}: streams in the user's own messages."""

    async def server(self, stream: Any, send: Any, id: Any) -> None:
        """Send numbers by twos."""
        async for item in stream:
            await send({"re": id, "half": item["number"] / 2})
        await send({"re": id, "over": True})

    async def client(self, messages: Any, call: Any, id: Any) -> Any:
        """Call the method with shouted messages, and say how many there were."""
        count = 0

        async def shouted() -> Any:
            nonlocal count
            async for message in messages:
                count += 1
                yield {"text": message["text"].upper()}

        result = await call(shouted())
        return {"count": count, "result": result}

    def test_server(self) -> None:
        """The hook sends the messages of a stream, and its end."""
        self.configure(handleStreaming={"server": self.server})
        client = self.connect()
        self.assertEqual(
            client.call("count", {"to": 2}),
            [{"re": 1, "half": 0.0}, {"re": 1, "half": 0.5}, {"re": 1, "over": True}],
        )
        self.assertEqual(self.data(client.call("echo", 1)), [1])

    def test_serverError(self) -> None:
        """A stream that fails is told of as ever, unless the hook sees to it."""
        self.configure(handleStreaming={"server": self.server})
        answers = self.connect().call("count", {"to": 1, "fail": True})
        self.assertEqual(answers[0], {"re": 1, "half": 0.0})
        self.assertError(answers[1:], "NOT_FOUND", 1)

    def test_serverWaits(self) -> None:
        """Sending waits for a slow reader."""
        sent: list[int] = []

        async def server(stream: Any, send: Any, id: Any) -> None:
            for number in range(10):
                sent.append(number)
                await send(number)
                client.wire.pauseProducing()

        self.configure(handleStreaming={"server": server})
        client = self.connect()
        client.call("count")
        self.assertEqual(sent, [0, 1])
        client.wire.resumeProducing()
        self.assertEqual(sent, [0, 1, 2])

    def test_serverCancelled(self) -> None:
        """After a cancel the hook can send nothing, and the method ends."""
        sent: list[Any] = []

        async def stubborn(stream: Any, send: Any, id: Any) -> None:
            while True:
                try:
                    await deferLater(self.clock, 1)
                finally:
                    sent.append(send({"still": "here"}))

        self.configure(handleStreaming={"server": stubborn})
        client = self.connect()
        client.call("count", {"hang": True})
        self.assertEqual(client.say({"id": 1, "type": "cancel"}), [])
        self.assertEqual(sent, [])

    def test_plainServer(self) -> None:
        """The hook may be no coroutine."""

        def server(stream: Any, send: Any, id: Any) -> None:
            send({"told": id})

        self.configure(handleStreaming={"server": server})
        self.assertEqual(self.connect().call("count"), [{"told": 1}])

    def test_client(self) -> None:
        """The hook calls the method with what it makes of a client's stream."""
        self.configure(handleStreaming={"client": self.client})
        (answer,) = self.connect().say(
            {"id": 1, "service": "Probe", "method": "collect"},
            {"id": 1, "type": "stream", "data": {"text": "a"}},
            {"id": 1, "type": "stream", "data": {"text": "b"}},
            {"id": 1, "type": "stream_end"},
        )
        self.assertEqual(answer["data"], {"count": 2, "result": {"texts": ["A", "B"]}})

    def test_clientFails(self) -> None:
        """A hook that raises ends the call."""

        async def fail(messages: Any, call: Any, id: Any) -> Any:
            raise Boom

        self.configure(handleStreaming={"client": fail})
        self.assertError(self.connect().call("collect"), "INTERNAL_ERROR", 1)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_serverOfFrames(self) -> None:
        """What the hook sends are items where frames are spoken."""
        self.configure(handleStreaming={"server": self.server})
        call = {"id": 1, "service": "Probe", "method": "count", "data": {"to": 1}}
        answers = self.connect("binary").sayFrame(REQUEST, call)
        self.assertEqual([each.type for each in answers], [ITEM, ITEM])
        self.assertEqual(JSON.decode(answers[1].payload), {"re": 1, "over": True})
