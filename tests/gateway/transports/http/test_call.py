"""Streams over HTTP, and the hooks of users."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.errors import codedError
from storagegate.gateway.messages.session import ITEMS_OF_A_TURN
from storagegate.gateway.transports.http import HTTPOptions
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.application import Application
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client
from tests.gateway.httpcase import EVENTS, NDJSON, HTTPCase, Upload
from tests.support.gateway import Boom


class ServerStreamTests(HTTPCase):
    """Responses that are streams."""

    def setUp(self) -> None:
        """Serve."""
        self.serve()

    def test_lines(self) -> None:
        """Items are lines, each an object with its data."""
        response = self.call("count", {"to": 2})
        self.assertEqual(response.status, 200)
        self.assertEqual(response.headers["content-type"], "application/x-ndjson")
        self.assertEqual(response.body, b'{"data":{"number":0}}\n{"data":{"number":1}}\n')

    def test_events(self) -> None:
        """Whoever accepts events gets them, with the bare items."""
        response = self.call("count", {"to": 2}, headers=EVENTS)
        self.assertEqual(response.headers["content-type"], "text/event-stream")
        self.assertEqual(response.body, b'data: {"number":0}\n\ndata: {"number":1}\n\n')

    def test_accepted(self) -> None:
        """Who likes lines as much, or better, gets lines."""
        for accept in ("*/*", "application/json", "text/event-stream;q=0.5, */*", ""):
            response = self.call("count", {"to": 1}, headers={"Accept": accept})
            self.assertEqual(response.headers["content-type"], "application/x-ndjson", accept)

    def test_unary(self) -> None:
        """One result is no event."""
        response = self.call("echo", {"a": 1}, headers=EVENTS)
        self.assertEqual(response.json(), {"data": {"a": 1}})

    def test_none(self) -> None:
        """A stream without items is an empty body."""
        response = self.call("count", {"to": 0})
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertEqual(response.headers["content-type"], "application/x-ndjson")

    def test_failsFirst(self) -> None:
        """A failure before the first item is a status."""
        for headers in ({}, EVENTS):
            response = self.call("countAnything", {"to": 0, "fail": True}, headers=headers)
            self.assertError(response, 404, "NOT_FOUND")

    def test_failsLater(self) -> None:
        """One after it is the last line, or an event, and the body has its proper end."""
        request = {"to": 1, "fail": True}
        error = b'{"error":"NOT_FOUND","message":"no more numbers"}'
        response = self.call("countAnything", request)
        self.assertEqual(response.status, 200)
        self.assertEqual(response.body, b'{"data":{"number":0}}\n' + error + b"\n")
        response = self.call("countAnything", request, headers=EVENTS)
        self.assertEqual(
            response.body, b'data: {"number":0}\n\nevent: error\ndata: ' + error + b"\n\n"
        )

    def test_unwritable(self) -> None:
        """An item that JSON cannot carry ends the stream with an error of ours."""

        async def odd(request: Any, context: Any) -> Any:
            try:
                yield 1
                yield {2}
            finally:
                closed.append(True)

        closed: list[bool] = []
        response = self.serve([{"name": "Odd", "methods": {"odd": odd}}]).post("/api/Odd/odd")
        self.assertEqual(response.body.split(b"\n")[0], b'{"data":1}')
        self.assertIn(b'"INTERNAL_ERROR"', response.body)
        self.assertEqual(closed, [True])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_headFails(self) -> None:
        """If not even the head goes out, the failure is a status."""

        def fail() -> None:
            raise Boom

        app = Application()
        app.use(lambda req, res, next: [res.beforeHead(fail), next()][1])
        HTTPTransport(self.host, HTTPOptions()).install(app)
        response = Client(app, clock=self.clock).post("/api/Probe/count")
        self.assertError(response, 500, "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_atOnce(self) -> None:
        """An item goes out when it is there."""
        call = self.client.start("POST", "/api/Probe/countAnything", json={"to": 1, "hang": True})
        self.assertEqual(call.received, b'{"data":{"number":0}}\n')
        self.assertFalse(call.done)
        call.disconnect()
        self.assertEqual(self.probe.cancelled, ["count"])

    def test_compressed(self) -> None:
        """It does so where the application compresses, too."""
        self.serve()
        self.app.withOptions(compression={"threshold": 0, "filter": lambda req, res: True})
        call = self.client.start(
            "POST",
            "/api/Probe/countAnything",
            json={"to": 1, "hang": True},
            headers={"Accept-Encoding": "gzip"},
        )
        self.client.flush()
        assert call.head is not None
        self.assertEqual(call.head.headers["content-encoding"], "gzip")
        self.assertGreater(len(call.received), 20)
        call.disconnect()

    def test_deadline(self) -> None:
        """The deadline of a stream that has begun is its last line."""
        call = self.client.start(
            "POST",
            "/api/Probe/countAnything",
            json={"to": 1, "hang": True},
            headers={"X-Deadline-Ms": "50"},
        )
        self.client.advance(0.1)
        self.assertIn(b'\n{"error":"DEADLINE_EXCEEDED"', call.response.body)
        self.assertEqual(self.probe.cancelled, ["count"])

    def test_stubborn(self) -> None:
        """Nothing is sent after the deadline, whatever a handler makes of it."""
        again: Deferred[None] = Deferred()

        async def stubborn(request: Any, context: Any) -> Any:
            yield 1
            try:
                await Deferred()
            except CancelledError:
                await again
            yield 2

        client = self.serve([{"name": "Odd", "methods": {"stubborn": stubborn}}])
        headers = {"X-Deadline-Ms": "50"}
        call = client.start("POST", "/api/Odd/stubborn", headers=headers)
        client.advance(0.1)
        again.callback(None)
        self.assertNotIn(b'{"data":2}', call.response.body)

    def test_slowReader(self) -> None:
        """A client that does not read stops the producer, and is given all when it reads on."""
        call = self.client.start(
            "POST", "/api/Probe/countAnything", json={"to": 20_000}, reading=False
        )
        self.client.flush()
        self.assertEqual(self.probe.cancelled, [])
        self.assertFalse(call.done)
        call.reading = True
        self.client.flush()
        self.assertEqual(call.response.body.count(b"\n"), 20_000)

    def test_slowReaderLeaves(self) -> None:
        """If it goes away instead, the producer is closed."""
        call = self.client.start(
            "POST", "/api/Probe/countAnything", json={"to": 10**9}, reading=False
        )
        self.client.flush()
        call.disconnect()
        self.client.flush()
        self.assertEqual(self.probe.cancelled, ["count"])


class ClientStreamTests(HTTPCase):
    """Requests that are streams."""

    def setUp(self) -> None:
        """Serve."""
        self.serve()

    def test_lines(self) -> None:
        """Each line is a request."""
        response = self.call("collect", **self.lines(b'{"text":"a"}', b"", b'{"text":"b"}'))
        self.assertEqual(response.json(), {"data": {"texts": ["a", "b"]}})

    def test_none(self) -> None:
        """No body is a stream without requests."""
        self.assertEqual(self.call("collect").json(), {"data": {"texts": []}})

    def test_bad(self) -> None:
        """A line that is none ends the call, and so does one that does not fit."""
        for line, code in (
            (b"{", "INVALID_ARGUMENT"),
            (b"[1]", "INVALID_ARGUMENT"),
            (b'{"text":5}', "VALIDATION_ERROR"),
        ):
            self.assertError(self.call("collect", **self.lines(b'{"text":"a"}', line)), 400, code)

    def test_limit(self) -> None:
        """A line has a limit, a stream has none."""
        self.serve(maxRequestBodySize=20)
        line = b'{"text":"123456789"}'
        response = self.call("collect", **self.lines(*[line] * 100))
        self.assertEqual(len(response.json()["data"]["texts"]), 100)
        response = self.call("collect", **self.lines(line, b" " + line[:-1] + b" }"))
        self.assertError(response, 413, "PAYLOAD_TOO_LARGE")

    def test_turns(self) -> None:
        """After so many lines of one piece, other connections are served first."""
        taken: list[Any] = []

        async def take(requests: Any, context: Any) -> Any:
            async for request in requests:
                taken.append(request)
            return len(taken)

        self.serve([{"name": "L", "methods": {"take": {"handler": take, "streaming": "client"}}}])
        count = 3 * ITEMS_OF_A_TURN
        body = Upload()
        call = self.client.start("POST", "/api/L/take", body=body, headers=NDJSON)
        body.send(b"{}\n" * count)
        self.assertLessEqual(len(taken), ITEMS_OF_A_TURN)
        body.end()
        self.client.clock.pump([0] * 8)
        self.assertEqual(call.response.json(), {"data": count})

    def test_duplex(self) -> None:
        """Answers go out while requests come in."""
        body, call = self.upload("chat")
        self.assertIsNone(call.head)
        body.send(b'{"text":"a"}\n{"te')
        self.assertEqual(call.received, b'{"data":{"text":"A"}}\n')
        body.send(b'xt":"b"}\n')
        self.assertEqual(call.received.count(b"\n"), 2)
        body.end()
        self.assertEqual(call.response.body.split(b"\n")[2], b'{"data":{"text":"goodbye"}}')
        self.assertEqual(self.probe.cancelled, [])

    def test_badLater(self) -> None:
        """A request that does not fit after the first answer is the last line."""
        body, call = self.upload("chat")
        body.send(b'{"text":"a"}\n{"text":5}\n')
        answers = call.response.body.split(b"\n")
        self.assertEqual(answers[0], b'{"data":{"text":"A"}}')
        self.assertIn(b'{"error":"VALIDATION_ERROR"', answers[1])

    def test_notAsked(self) -> None:
        """While nobody asks for requests, few are taken."""
        taken: list[int] = []

        async def pieces() -> Any:
            for number in range(1000):
                taken.append(number)
                yield b'{"text":"%s"}\n' % (b"x" * 1000)

        async def lazy(requests: Any, context: Any) -> Any:
            async for _ in requests:
                await Deferred()

        service = {"name": "Lazy", "methods": {"lazy": {"handler": lazy, "streaming": "client"}}}
        client = self.serve([service])
        call = client.start("POST", "/api/Lazy/lazy", body=pieces())
        client.flush()
        self.assertLess(len(taken), 200)
        call.disconnect()

    def test_leftBehind(self) -> None:
        """A task that still waits for requests when its call is over is cancelled."""
        ends: list[str] = []

        async def read(requests: Any) -> None:
            try:
                async for _ in requests:
                    pass
                ends.append("end")
            except CancelledError:
                ends.append("cancelled")

        async def leaves(requests: Any, context: Any) -> None:
            Deferred.fromCoroutine(read(requests))
            await started

        started: Deferred[None] = Deferred()
        method = {"handler": leaves, "streaming": "client"}
        client = self.serve([{"name": "Odd", "methods": {"leaves": method}}])
        body, call = self.upload("nothing")
        call = client.start("POST", "/api/Odd/leaves", body=body)
        body.send(b"{}\n")
        started.callback(None)
        self.assertEqual(call.response.json(), {"data": None})
        self.assertEqual(ends, ["cancelled"])

    def test_gone(self) -> None:
        """A client that goes away in the middle is no end of its stream."""
        body, call = self.upload("collect")
        body.send(b'{"text":"a"}\n')
        call.disconnect()
        self.assertEqual(self.probe.cancelled, ["collect"])
        self.assertRaises(ResponseLost, lambda: call.response)

    def test_deadline(self) -> None:
        """The deadline holds for a stream that does not end."""
        body, call = self.upload("collect", **{"X-Deadline-Ms": "50"})
        body.send(b'{"text":"a"}\n')
        self.client.advance(0.1)
        self.assertError(call.response, 504, "DEADLINE_EXCEEDED")
        self.assertEqual(self.probe.cancelled, ["collect"])


class HookTests(HTTPCase):
    """transformRequest and transformResponse."""

    def test_request(self) -> None:
        """A hook makes the request, of all that the framework knows of it."""

        def transform(req: Any, method: str) -> Any:
            return {
                "method": method,
                "body": req.body,
                "id": req.params.get("id"),
                "q": req.query.get("q"),
            }

        self.serve(transformRequest=transform, routes={"PUT /x/:id": "Probe.echo"})
        response = self.client.put("/api/x/5?q=1", json={"a": 1})
        self.assertEqual(
            response.json()["data"],
            {"method": "Probe.echo", "body": {"a": 1}, "id": "5", "q": "1"},
        )

    def test_asynchronous(self) -> None:
        """Both hooks may take their time."""

        async def request(req: Any, method: str) -> Any:
            await waiting
            return {"asked": req.body}

        async def response(result: Any, method: str, req: Any) -> Any:
            return {"given": result}

        waiting: Deferred[None] = Deferred()
        client = self.serve(transformRequest=request, transformResponse=response)
        call = client.start("POST", "/api/Probe/echo", json={"a": 1})
        self.assertFalse(call.done)
        waiting.callback(None)
        self.assertEqual(call.response.json(), {"given": {"asked": {"a": 1}}})

    def test_notThisOne(self) -> None:
        """A hook that gives nothing leaves the request as it is."""
        self.serve(transformRequest=lambda req, method: None)
        self.assertEqual(self.call("echo", {"a": 1}).json(), {"data": {"a": 1}})

    def test_response(self) -> None:
        """A hook makes what JSON carries, of each item of a stream."""

        def transform(result: Any, method: str, req: Any) -> Any:
            return {"result": result, "method": method, "path": req.path}

        self.serve(transformResponse=transform)
        shape = {"result": {"a": 1}, "method": "Probe.echo", "path": "/Probe/echo"}
        self.assertEqual(self.call("echo", {"a": 1}).json(), shape)
        lines = self.call("count", {"to": 2}).body.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn(b'{"result":{"number":1},', lines[1])
        events = self.call("count", {"to": 1}, headers=EVENTS).body
        self.assertEqual(events[:33], b'data: {"result":{"number":0},"met')

    def test_requestStream(self) -> None:
        """Of a stream of requests, a hook may make another."""

        async def twice(requests: Any) -> Any:
            async for request in requests:
                yield request
                yield request

        self.serve(transformRequest=lambda req, method: twice(req.body))
        response = self.call("collect", **self.lines(b'{"text":"a"}'))
        self.assertEqual(response.json(), {"data": {"texts": ["a", "a"]}})

    def test_fails(self) -> None:
        """A hook may refuse; one that fails is logged, and says nothing."""

        def refuse(req: Any, method: str) -> Any:
            raise codedError("PERMISSION_DENIED", "not you")

        def fail(*arguments: Any) -> Any:
            raise Boom("secret")

        self.serve(transformRequest=refuse)
        self.assertError(self.call("echo"), 403, "PERMISSION_DENIED")
        for hook in ("transformRequest", "transformResponse"):
            self.serve(**{hook: fail})
            response = self.call("echo")
            self.assertError(response, 500, "INTERNAL_ERROR")
            self.assertNotIn("secret", response.text)
            self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
