"""Calls over HTTP: where methods are, mounts, and configured routes."""

from twisted.internet.task import Clock

from storagegate.core.definitions import DefinitionError
from storagegate.gateway.transports.http import HTTPOptions
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.application import Application
from storagegate.http.middleware.bodyparser import json
from storagegate.http.testing import Client
from tests.gateway.httpcase import HTTPCase
from tests.support.gateway import makeHost


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
        bodies = (b"{", b"[]", b"1", b"null", b'"{}"', b'{"a":NaN}', b'{"a":"\xff"}', b"[" * 9999)
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
        self.assertEqual(self.call("echo", body=b'{"a":1}').body, b'{"data":{"a":1}}\n')
        self.assertEqual(self.call("nothing").body[-2:], b"}\n")
        for other in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/json; charset=utf-16",
        ):
            headers = {"Content-Type": other, "Origin": "https://page.example"}
            response = self.call("echo", body=b'{"a":1}', headers=headers)
            self.assertError(response, 415, "UNSUPPORTED_MEDIA_TYPE")
        for untyped in ("text/plain", "application/x-www-form-urlencoded"):
            headers = {"Content-Type": untyped}
            response = self.call("echo", body=b'{"a":1}', headers=headers)
            self.assertEqual(response.json(), {"data": {"a": 1}}, untyped)
        coded = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        response = self.call("echo", body=b"x", headers=coded)
        self.assertError(response, 415, "UNSUPPORTED_MEDIA_TYPE")
        self.assertEqual(self.probe.begun.count("echo"), 7)

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


class MountTests(HTTPCase):
    """The adapter as middleware of an application."""

    def mounted(self, *path: str) -> Client:
        """Mount an adapter in an application that has a route of its own."""
        clock = Clock()
        self.host, self.probe = makeHost(clock)
        routes = {"GET /echo/:id": "Probe.echo"}
        options = HTTPOptions(routes=routes, enableCORS=True)
        app = Application()
        app.use(json())
        app.use(*path, HTTPTransport(self.host, options).middleware())
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
        response = self.client.head("/api/count?to=1&hang=yes")
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertEqual(self.probe.cancelled, ["count"])

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
        self.assertEqual(response.json()["message"], "to must be an integer")

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
