"""Calls over HTTP: where methods are, what requests say, what answers are."""

from typing import Any

from twisted.internet.task import Clock

from storagegate.core.definitions import DefinitionError
from storagegate.gateway.httpadapter import HTTPAdapter
from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.http.application import Application
from storagegate.http.middleware.json import json
from storagegate.http.testing import Client
from tests.gateway.httpcase import HTTPCase
from tests.support.gateway import TOKEN, Boom, makeHost

TRACE = "0af7651916cd43dd8448eb211c80319c"


class PlaceTests(HTTPCase):
    """The place that every method has."""

    def setUp(self) -> None:
        """Serve."""
        self.serve()

    def test_call(self) -> None:
        """A POST with a JSON body is answered by an object that holds the result."""
        response = self.call("echo", {"n": 2**70, "text": "\u00e9"})
        self.assertEqual(response.status, 200)
        self.assertEqual(response.json(), {"data": {"n": 2**70, "text": "\u00e9"}})
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")
        self.assertNotIn("etag", response.headers)

    def test_again(self) -> None:
        """The same path answers as often as it is asked, however it is written."""
        for path in ("/api/Probe/echo", "/api/Probe/echo/", "/api/Pr%6fbe/echo") * 2:
            self.assertEqual(self.client.post(path, json={"a": 1}).json(), {"data": {"a": 1}})

    def test_empty(self) -> None:
        """An empty body is an empty object, whatever its type."""
        self.assertEqual(self.call("echo").json(), {"data": {}})
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        self.assertEqual(self.call("echo", headers=form).json(), {"data": {}})

    def test_notJSON(self) -> None:
        """A body that is no JSON, or no object, is 400."""
        bodies = (b"{", b"[]", b"1", b"null", b'"x"', b'{"a":NaN}', b'{"a":"\xff"}', b"[" * 9999)
        for body in bodies:
            response = self.call("echo", body=body, headers={"Content-Type": "application/json"})
            self.assertError(response, 400, "INVALID_ARGUMENT")

    def test_types(self) -> None:
        """JSON may be named in several ways, or not at all; nothing else is taken."""
        for known in (
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/problem+json",
            "application/x-ndjson",
        ):
            response = self.call("echo", body=b'{"a":1}', headers={"Content-Type": known})
            self.assertEqual(response.json(), {"data": {"a": 1}}, known)
        self.assertEqual(self.call("echo", body=b'{"a":1}').json(), {"data": {"a": 1}})
        for other in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/json; charset=utf-16",
        ):
            response = self.call("echo", body=b'{"a":1}', headers={"Content-Type": other})
            self.assertError(response, 415, "UNSUPPORTED_MEDIA_TYPE")
        coded = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        response = self.call("echo", body=b"x", headers=coded)
        self.assertError(response, 415, "UNSUPPORTED_MEDIA_TYPE")
        self.assertEqual(self.probe.begun.count("echo"), 5)

    def test_unknown(self) -> None:
        """What is not below the base path is an error of the gateway, elsewhere the framework's."""
        for path in ("Probe/nothing", "Nobody/echo", "Probe", "", "Probe/echo/more", "a%2fb/c"):
            response = self.client.post(f"/api/{path}")
            self.assertError(response, 404, "NOT_FOUND")
        response = self.client.post("/other")
        self.assertEqual(response.status, 404)
        self.assertEqual(response.json()["path"], "/other")

    def test_method(self) -> None:
        """Another method is 405 and tells which it takes."""
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            response = self.client.request(method, "/api/Probe/echo")
            self.assertError(response, 405, "METHOD_NOT_ALLOWED")
            self.assertEqual(response.headers["allow"], "POST")
        self.assertEqual(self.client.options("/api/Probe/echo").headers["allow"], "POST")
        self.assertEqual(self.probe.begun, [])

    def test_basePath(self) -> None:
        """The base path may be another, or none."""
        client = self.serve(basePath="/api/v2/")
        self.assertEqual(client.post("/api/v2/Probe/echo").status, 200)
        self.assertEqual(client.post("/api/Probe/echo").status, 404)
        client = self.serve(basePath="/")
        self.assertEqual(client.post("/Probe/echo").status, 200)
        self.assertError(client.post("/Probe/nothing"), 404, "NOT_FOUND")


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
        """A trusted proxy's word on the client counts."""
        self.app.withOptions(trustProxy="loopback")
        response = self.call("whoami", headers={"X-Forwarded-For": "203.0.113.7"})
        self.assertEqual(response.json()["data"]["address"], "203.0.113.7")

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
        HTTPAdapter(self.host, GatewayOptions(), apiKeyHeader="X-Other").install(app)
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
        from storagegate.core.errors import codedError

        raise codedError("NOT_FOUND", "no", {1, 2})

    def test_described(self) -> None:
        """transformError changes what clients see: another error, a body, or that and a status."""
        from storagegate.core.errors import ServiceError

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


class MountTests(HTTPCase):
    """The adapter as middleware of an application."""

    def mounted(self, *path: str) -> Client:
        """Mount an adapter in an application that has a route of its own."""
        clock = Clock()
        self.host, self.probe = makeHost(clock)
        routes = {"GET /echo/:id": "Probe.echo"}
        options = readOptions(GatewayOptions(), {"http": {"routes": routes, "enableCORS": True}})
        app = Application()
        app.use(json())
        app.use(*path, HTTPAdapter(self.host, options).middleware())
        app.get("/own", lambda req, res: res.json({"own": True}))
        return Client(app, clock=clock)

    def test_mounted(self) -> None:
        """The mount takes the place of the base path, for routes too."""
        client = self.mounted("/rpc")
        self.assertEqual(client.post("/rpc/Probe/echo", json={"a": 1}).json(), {"data": {"a": 1}})
        self.assertEqual(client.get("/rpc/echo/5").json(), {"data": {"id": "5"}})
        self.assertError(client.post("/rpc/own"), 404, "NOT_FOUND")
        self.assertError(client.post("/rpc/echo/5"), 405, "METHOD_NOT_ALLOWED")
        self.assertEqual(client.get("/own").json(), {"own": True})
        self.assertEqual(client.get("/echo/5").status, 404)

    def test_root(self) -> None:
        """At the root it leaves what it does not know to the application."""
        client = self.mounted()
        self.assertEqual(client.post("/Probe/echo", json={"a": 1}).json(), {"data": {"a": 1}})
        self.assertEqual(client.get("/own").json(), {"own": True})
        self.assertEqual(client.post("/own").status, 405)
        self.assertEqual(client.get("/nothing").json()["path"], "/nothing")

    def test_parsed(self) -> None:
        """What a body parser of the application has read is the request."""
        client = self.mounted("/rpc")
        response = client.post("/rpc/Probe/echo", json={"a": 1})
        self.assertEqual(response.json(), {"data": {"a": 1}})
        self.assertError(client.post("/rpc/Probe/echo", json=[1]), 400, "INVALID_ARGUMENT")
        collected = client.post("/rpc/Probe/collect", json={"text": "a"})
        self.assertEqual(collected.json(), {"data": {"texts": ["a"]}})

    def test_cors(self) -> None:
        """enableCORS lets pages of other origins call, and read traces and errors."""
        client = self.mounted("/rpc")
        origin = {"Origin": "https://example.org"}
        asking = {"Access-Control-Request-Method": "POST", **origin}
        preflight = client.options("/rpc/Probe/echo", headers=asking)
        self.assertEqual(preflight.status, 204)
        self.assertIn("POST", preflight.headers["access-control-allow-methods"])
        for path in ("/rpc/Probe/echo", "/rpc/Probe/nothing"):
            response = client.post(path, headers=origin)
            self.assertEqual(response.headers["access-control-allow-origin"], "*")
            self.assertIn("X-Trace-ID", response.headers["access-control-expose-headers"])

    def test_noCORS(self) -> None:
        """Without it they cannot."""
        response = self.serve().post("/api/Probe/echo", headers={"Origin": "https://example.org"})
        self.assertNotIn("access-control-allow-origin", response.headers)

    def test_enabledCORS(self) -> None:
        """It works in the gateway's own application, too."""
        client = self.serve(enableCORS=True)
        response = client.post("/api/Probe/echo", headers={"Origin": "https://example.org"})
        self.assertEqual(response.headers["access-control-allow-origin"], "*")


class RouteTests(HTTPCase):
    """Configured routes."""

    def setUp(self) -> None:
        """Serve some."""
        self.serve(
            routes={
                "GET /items/:id": "Probe.echo",
                "PUT /items/:id": "Probe.echo",
                "POST /items": "Probe.echo",
                "DELETE /items/:id": "Probe.echo",
                "GET /count": "Probe.count",
                "POST /join/:room": "Probe.collect",
                "POST /Probe/checked": "Probe.echo",
            }
        )

    def test_request(self) -> None:
        """The request is the query, then the body, then the parameters."""
        put = self.client.put("/api/items/5?id=1&a=query&b=query", json={"id": 2, "b": "body"})
        self.assertEqual(put.json(), {"data": {"id": "5", "a": "query", "b": "body"}})
        self.assertEqual(self.client.post("/api/items", json={"a": 1}).json(), {"data": {"a": 1}})
        self.assertEqual(
            self.client.get("/api/items/a%2Fb?x=1&x=2").json(),
            {"data": {"x": ["1", "2"], "id": "a/b"}},
        )

    def test_noBody(self) -> None:
        """GET and DELETE have no body, whatever was sent."""
        for method in ("GET", "DELETE"):
            response = self.client.request(method, "/api/items/5", body=b"no JSON")
            self.assertEqual(response.json(), {"data": {"id": "5"}})

    def test_asWritten(self) -> None:
        """A route also answers at its path as it is written."""
        self.assertEqual(self.client.get("/items/5").json(), {"data": {"id": "5"}})
        response = self.client.post("/items/5")
        self.assertError(response, 405, "METHOD_NOT_ALLOWED")
        self.assertEqual(response.headers["allow"], "GET, PUT, DELETE, HEAD")
        self.assertEqual(self.client.get("/other").json()["path"], "/other")

    def test_method(self) -> None:
        """Another method is 405 with all that the path takes."""
        response = self.client.patch("/api/items/5")
        self.assertError(response, 405, "METHOD_NOT_ALLOWED")
        self.assertEqual(response.headers["allow"], "GET, PUT, DELETE, HEAD")
        self.assertEqual(
            self.client.options("/api/items/5").headers["allow"], "GET, PUT, DELETE, HEAD"
        )

    def test_first(self) -> None:
        """A route goes before the place that a method has."""
        self.assertEqual(self.call("checked", {"text": 5}).json(), {"data": {"text": 5}})

    def test_head(self) -> None:
        """HEAD is GET without the body, and asks a stream for no more than its beginning."""
        response = self.client.head("/api/items/5")
        self.assertEqual((response.status, response.body), (200, b""))
        response = self.client.head("/api/count?to=100000")
        self.assertEqual((response.status, response.body), (200, b""))

    def test_fresh(self) -> None:
        """What a GET gives can be asked for again, if it has changed."""
        etag = self.client.get("/api/items/5").headers["etag"]
        again = self.client.get("/api/items/5", headers={"If-None-Match": etag})
        self.assertEqual(again.status, 304)

    def test_schema(self) -> None:
        """Texts are read by the schema; what is none of its values is refused by it."""
        self.assertEqual(self.client.get("/api/count?to=1").body, b'{"data":{"number":0}}\n')
        response = self.client.get("/api/count?to=many")
        self.assertError(response, 400, "VALIDATION_ERROR")

    def test_stream(self) -> None:
        """A stream of requests is the body alone."""
        response = self.client.post("/api/join/1", **self.lines(b'{"text":"a"}'))
        self.assertEqual(response.json(), {"data": {"texts": ["a"]}})

    def test_nowhere(self) -> None:
        """A route to a method that is not there is noticed before, and answered if it is not."""
        client = self.serve(routes={"GET /x": "Probe.nothing"})
        error = self.assertRaises(DefinitionError, self.adapter.checkRoutes)
        self.assertIn("GET /x is for Probe.nothing", str(error))
        self.assertError(client.get("/api/x"), 404, "NOT_FOUND")
        self.serve(routes={"GET /x": "Probe.echo"})
        self.adapter.checkRoutes()
