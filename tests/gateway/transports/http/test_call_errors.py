"""What the head of a request says, how much a body may be, and what goes wrong."""

from typing import Any

from attrs import evolve

from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.metrics import CallMetrics
from storagegate.gateway.transports.http import HTTPOptions
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.application import Application
from storagegate.http.testing import Client, TestCall
from storagegate.net.http.message import ChannelRequest
from tests.gateway.httpcase import HTTPCase, Upload
from tests.support.gateway import TOKEN, Boom

TRACE = "0af7651916cd43dd8448eb211c80319c"


class LimitTests(HTTPCase):
    """How much a request may be."""

    def test_declared(self) -> None:
        """A body that says that it is too long is not read."""
        self.serve(maxRequestBodySize=10)
        self.assertEqual(self.call("echo", body=b'{"a": 123}').status, 200)
        self.assertError(self.call("echo", body=b'{"a": 1234}'), 413, "PAYLOAD_TOO_LARGE")

    def test_chunked(self) -> None:
        """A body that does not say how long it is is read up to the limit."""
        self.serve(maxRequestBodySize=10)
        body, call = self.upload("echo")
        body.send(b'{"a": ')
        self.assertFalse(call.done)
        body.send(b"     ")
        self.assertError(call.response, 413, "PAYLOAD_TOO_LARGE")

    def test_large(self) -> None:
        """A large body is read in a thread."""
        self.serve()
        request = {"text": "x" * 200_000}
        self.assertEqual(self.call("echo", request).json(), {"data": request})


class BodyTests(HTTPCase):
    """Whose body is read."""

    def begin(self, **headers: str) -> tuple[Upload, TestCall]:
        """Begin a call of a method that needs a token, whose body comes later."""
        self.serve()
        body = Upload()
        fields = {"Content-Type": "application/json", **headers}
        return body, self.client.start("POST", "/api/Guarded/echo", body=body, headers=fields)

    def test_nobody(self) -> None:
        """A client without a valid token is refused before its body has come."""
        for headers in ({}, {"Authorization": "Bearer nonsense"}):
            body, call = self.begin(**headers)
            body.send(b"{")
            self.assertError(call.response, 401, "UNAUTHENTICATED")

    def test_known(self) -> None:
        """That of another one is read."""
        body, call = self.begin(Authorization=f"Bearer {TOKEN}")
        body.send(b"{")
        self.assertFalse(call.done)
        body.send(b"}")
        body.end()
        self.assertEqual(call.response.status, 200)

    def test_damaged(self) -> None:
        """An error of that body is one of the call."""
        body, call = self.begin(Authorization=f"Bearer {TOKEN}")
        body.send(b"{")
        body.end()
        self.assertError(call.response, 400, "INVALID_ARGUMENT")

    def test_cut(self) -> None:
        """A client that goes away in the middle of it leaves no error."""
        body, call = self.begin(Authorization=f"Bearer {TOKEN}")
        body.send(b"{")
        call.disconnect()
        self.assertEqual(self.flushLoggedErrors(), [])


class HeadTests(HTTPCase):
    """What header fields say."""

    def setUp(self) -> None:
        """Serve."""
        self.serve()

    def test_context(self) -> None:
        """A handler knows who calls, and how."""
        seen: list[Any] = []

        async def look(request: Any, context: Any) -> None:
            seen.append(context)

        client = self.serve([{"name": "Look", "methods": {"look": look}}])
        client.post("/api/Look/look", headers={"User-Agent": "me", "X-More": "yes"})
        (context,) = seen
        self.assertEqual(
            (context.protocol, context.service, context.method), ("http", "Look", "look")
        )
        self.assertEqual((context.client.address, context.client.userAgent), ("127.0.0.1", "me"))
        self.assertEqual(context.headers["x-more"], "yes")

    def test_proxy(self) -> None:
        """A trusted proxy's word on the client counts; nobody knows that one's port."""
        seen: list[Any] = []

        async def look(request: Any, context: Any) -> None:
            seen.append(context.client)

        client = self.serve([{"name": "Look", "methods": {"look": look}}])
        self.app.withOptions(trustProxy="loopback")
        # As if the connection had a port, which one in memory has not.
        self.patch(ChannelRequest, "clientPort", 4321)
        for headers in ({"X-Forwarded-For": "203.0.113.7"}, {}):
            client.post("/api/Look/look", headers=headers)
        known = [(each.id, each.address, each.port) for each in seen]
        self.assertEqual(
            known,
            [("203.0.113.7", "203.0.113.7", 0), ("127.0.0.1:4321", "127.0.0.1", 4321)],
        )

    def test_noProxy(self) -> None:
        """Nobody else's does."""
        response = self.call("whoami", headers={"X-Forwarded-For": "203.0.113.7"})
        self.assertEqual(response.json()["data"]["address"], "127.0.0.1")

    def test_token(self) -> None:
        """A bearer's token, whatever the case of the scheme, or an API key says who calls."""
        for headers in (
            {"Authorization": f"Bearer {TOKEN}"},
            {"Authorization": f"bearer  {TOKEN}"},
            {"Authorization": TOKEN},
            {"X-API-Key": TOKEN},
        ):
            response = self.call("private", headers=headers)
            self.assertEqual(response.json()["data"]["user"], {"sub": "ann"}, headers)

    def test_noToken(self) -> None:
        """Without one a call is 401, and told how to do better."""
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Basic {TOKEN}"}):
            response = self.call("private", headers=headers)
            self.assertError(response, 401, "UNAUTHENTICATED")
            self.assertEqual(response.headers["www-authenticate"], "Bearer")

    def test_apiKeyHeader(self) -> None:
        """The field of API keys may be another."""
        app = Application()
        HTTPTransport(evolve(self.host, apiKeyHeader="X-Other"), HTTPOptions()).install(app)
        client = Client(app, clock=self.clock)
        path = "/api/Probe/private"
        self.assertEqual(client.post(path, headers={"X-Other": TOKEN}).status, 200)
        self.assertEqual(client.post(path, headers={"X-API-Key": TOKEN}).status, 401)

    def test_trace(self) -> None:
        """A trace is gone on with, by either field, and told; without one there is a new one."""
        parent = f"00-{TRACE}-b7ad6b7169203331-01"
        for headers in (
            {"traceparent": parent},
            {"X-Trace-ID": TRACE},
            {"X-Trace-ID": TRACE.upper()},
            {"traceparent": parent, "X-Trace-ID": "1" * 32},
            {"traceparent": "00-no", "X-Trace-ID": TRACE},
        ):
            response = self.call("whoami", headers=headers)
            self.assertEqual(response.headers["x-trace-id"], TRACE)
            self.assertEqual(response.json()["data"]["traceId"], TRACE)
        for bad in ("x", "0" * 32, TRACE + "0", TRACE[:-1] + "g"):
            response = self.call("whoami", headers={"X-Trace-ID": bad})
            self.assertRegex(response.headers["x-trace-id"], "^[0-9a-f]{32}$")
            self.assertNotEqual(response.headers["x-trace-id"], bad)
        self.assertIn("x-trace-id", self.call("fail", {"code": "X"}).headers)

    def test_traceElsewhere(self) -> None:
        """What is no call has its trace told as well: whoever asks for it asks about errors."""
        self.serve(routes={"GET /who/:id": "Probe.whoami"})
        for method, path, status in (
            ("POST", "/api/Probe/nothing", 404),
            ("POST", "/api/Nothing/at", 404),
            ("GET", "/api", 404),
            ("GET", "/nowhere", 404),
            ("GET", "/api/Probe/echo", 405),
            ("PUT", "/who/1", 405),
            ("OPTIONS", "/api/Probe/echo", 204),
            ("GET", "/api/openapi.json", 200),
        ):
            headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
            response = self.client.request(method, path, headers=headers)
            self.assertEqual(response.status, status, path)
            self.assertEqual(response.headers.get("x-trace-id"), TRACE, path)

    def test_unreadable(self) -> None:
        """A call whose request cannot be read is counted, and fails in the counts as it does."""
        metrics = CallMetrics()
        metrics.choose()
        self.host.invoker.observers.append(metrics)
        for options in (
            {"body": b"{"},
            {"body": b"x" * 11_000_000},
            {"headers": {"X-Deadline-Ms": "soon"}},
            {"body": b"x", "headers": {"Content-Type": "text/plain"}},
        ):
            self.assertGreaterEqual(self.call("echo", **options).status, 400)
        self.call("echo")
        found = metrics.snapshot()
        self.assertEqual(found["requests_total"], {"http": 5})
        self.assertEqual(found["errors_total"], {"http": 4})
        self.assertEqual(found["active_requests"], {"http": 0})
        self.assertEqual(found["request_count"], {"http": {"Probe.echo": 5}})

    def test_deadline(self) -> None:
        """At its deadline a call ends."""
        path = "/api/Probe/slow"
        call = self.client.start("POST", path, headers={"X-Deadline-Ms": "50"})
        self.client.advance(0.04)
        self.assertFalse(call.done)
        self.client.advance(0.02)
        self.assertError(call.response, 504, "DEADLINE_EXCEEDED")
        self.assertEqual(self.probe.cancelled, ["slow"])
        response = self.call("whoami", headers={"X-Deadline-Ms": "50"})
        self.assertTrue(response.json()["data"]["hasDeadline"])

    def test_badDeadline(self) -> None:
        """A deadline is a number of milliseconds, up to a day."""
        for value in ("0", "-1", "1.5", "soon", "1e3", "86400001", "9" * 99):
            response = self.call("echo", headers={"X-Deadline-Ms": value})
            self.assertError(response, 400, "INVALID_ARGUMENT")
        self.assertEqual(self.probe.begun, [])


class ErrorTests(HTTPCase):
    """What goes wrong."""

    def setUp(self) -> None:
        """Serve."""
        self.serve()

    def test_own(self) -> None:
        """A service's error has its code, its status and its details."""
        error = {"code": "ORDER_CLOSED", "statusCode": 409, "details": {"since": 1}}
        self.assertEqual(
            self.assertError(self.call("fail", error), 409, "ORDER_CLOSED"), {"since": 1}
        )

    def test_unforeseen(self) -> None:
        """An unforeseen one says nothing of itself, and is logged."""
        response = self.call("fail", {})
        self.assertError(response, 500, "INTERNAL_ERROR")
        self.assertNotIn("secret", response.text)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_violation(self) -> None:
        """A request that does not fit its schema is 400 and says where."""
        details = self.assertError(self.call("checked", {"text": 5}), 400, "VALIDATION_ERROR")
        self.assertEqual(details[0]["path"], "text")

    def test_limited(self) -> None:
        """Too many calls are 429, and told when to come again."""
        statuses = [self.call("limited").status for _ in range(2)]
        self.assertEqual(statuses, [200, 200])
        response = self.call("limited")
        details = self.assertError(response, 429, "RATE_LIMITED")
        self.assertEqual(response.headers["retry-after"], str(-(-details["retryAfterMs"] // 1000)))

    def test_forbidden(self) -> None:
        """Who may not is 403."""
        headers = {"X-API-Key": TOKEN}
        request = {"forbidden": True}
        response = self.client.post("/api/Guarded/echo", json=request, headers=headers)
        self.assertError(response, 403, "PERMISSION_DENIED")

    def test_status(self) -> None:
        """A status that is none of an error is 500."""
        for status in (200, 99, 1000, "400"):
            self.assertEqual(self.call("fail", {"code": "X", "statusCode": status}).status, 500)

    def test_unwritable(self) -> None:
        """A result that JSON cannot carry is an error of ours, and logged."""
        methods: dict[str, Any] = {
            "set": lambda request, context: {1},
            "nan": lambda request, context: float("nan"),
            "details": self.raisesOdd,
        }
        client = self.serve([{"name": "Odd", "methods": methods}])
        for name in ("set", "nan"):
            self.assertError(client.post(f"/api/Odd/{name}"), 500, "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)
        self.assertIsNone(self.assertError(client.post("/api/Odd/details"), 404, "NOT_FOUND"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def raisesOdd(self, request: Any, context: Any) -> None:
        """Raise an error with details that JSON cannot carry."""
        raise codedError("NOT_FOUND", "no", {1, 2})

    def test_described(self) -> None:
        """transformError changes what clients see: another error, a body, or that and a status."""
        answers: list[Any] = [
            ServiceError("OTHER", "other", 418),
            {"problem": "mine"},
            {"status": 422, "body": {"problem": "mine"}},
            None,
        ]
        client = self.serve(transformError=lambda error, protocol: answers.pop(0))
        path = "/api/Probe/fail"
        request = {"code": "X", "statusCode": 410}
        got = [client.post(path, json=request) for _ in range(4)]
        self.assertEqual([each.status for each in got], [418, 410, 422, 410])
        self.assertEqual(got[0].json(), {"error": "OTHER", "message": "other"})
        self.assertEqual(got[1].json(), {"problem": "mine"})
        self.assertEqual(got[2].json(), {"problem": "mine"})
        self.assertEqual(got[3].json()["error"], "X")

    def test_gone(self) -> None:
        """A client that goes away cancels its call."""
        call = self.client.start("POST", "/api/Probe/slow")
        call.disconnect()
        self.assertEqual(self.probe.cancelled, ["slow"])
