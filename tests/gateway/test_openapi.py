"""The description of services over HTTP."""

from typing import Any

from storagegate.core.schemas import Schema
from tests.gateway.describing import ORDERS, ROUTES, references, resolved
from tests.gateway.httpcase import HTTPCase
from tests.support.selection import long

try:
    from openapi_spec_validator import OpenAPIV31SpecValidator
except ImportError:
    OpenAPIV31SpecValidator = None


class OpenAPITests(HTTPCase):
    """GET {basePath}/openapi.json."""

    def setUp(self) -> None:
        """Serve, and read the description."""
        self.serve([ORDERS], routes=ROUTES)
        self.document = self.client.get("/api/openapi.json").json()

    def operation(self, path: str, verb: str = "post") -> Any:
        """Give an operation."""
        return self.document["paths"][path][verb]

    def parameters(self, operation: Any, place: str) -> dict[str, bool]:
        """Give the names of an operation's parameters, and whether each is required."""
        found = [each for each in operation["parameters"] if each.get("in") == place]
        return {each["name"]: each["required"] for each in found}

    @long("takes seconds")
    def test_valid(self) -> None:
        """It is valid, by the schema of OpenAPI 3.1."""
        if OpenAPIV31SpecValidator is None:
            self.skipTest("openapi-spec-validator is not installed")
        OpenAPIV31SpecValidator(self.document).validate()
        self.operation("/Orders/get")["parameters"] = {}
        self.assertFalse(OpenAPIV31SpecValidator(self.document).is_valid())

    def test_references(self) -> None:
        """Every reference leads somewhere, those of users' schemas too."""
        found = set(references(self.document))
        place = "#/components/schemas/Orders.put.request"
        self.assertTrue(found >= {place, f"{place}/definitions/line"})
        for reference in found:
            resolved(self.document, reference)

    def test_all(self) -> None:
        """Every method of every service has its place, on the server's path."""
        self.assertEqual(self.document["servers"], [{"url": "/api"}])
        posts = {path for path, verbs in self.document["paths"].items() if "post" in verbs}
        expected = {
            f"/{service.name}/{method}"
            for service in self.host.invoker.services.values()
            for method in service.methods
            if method.isascii()
        }
        self.assertEqual(posts - expected, {"/Orders/t~%C3%A4lk"})
        self.assertEqual(expected - posts, set())

    def test_operationIds(self) -> None:
        """No two operations have one name."""
        names = [
            operation["operationId"]
            for verbs in self.document["paths"].values()
            for operation in verbs.values()
        ]
        self.assertEqual(len(names), len(set(names)))

    def test_unary(self) -> None:
        """A call takes the request and gives an object with the result."""
        operation = self.operation("/Orders/get")
        body = operation["requestBody"]
        self.assertTrue(body["required"])
        request = {"$ref": "#/components/schemas/Orders.get.request"}
        self.assertEqual(body["content"], {"application/json": {"schema": request}})
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        response = {"$ref": "#/components/schemas/Orders.get.response"}
        self.assertEqual(schema["properties"], {"data": response})

    def test_transformed(self) -> None:
        """What a hook makes of results is not known."""
        self.serve([ORDERS], transformResponse=lambda result, method, req: result)
        document = self.client.get("/api/openapi.json").json()
        ok = document["paths"]["/Orders/get"]["post"]["responses"]["200"]
        self.assertEqual(ok["content"], {"application/json": {"schema": {}}})

    def test_streams(self) -> None:
        """Streams are lines, and those of responses events for whoever wants them."""
        for name, request, response in (
            ("watch", "application/json", ["application/x-ndjson", "text/event-stream"]),
            ("load", "application/x-ndjson", ["application/json"]),
            ("t~%C3%A4lk", "application/x-ndjson", ["application/x-ndjson", "text/event-stream"]),
        ):
            operation = self.operation(f"/Orders/{name}")
            self.assertEqual([*operation["requestBody"]["content"]], [request])
            self.assertEqual([*operation["responses"]["200"]["content"]], response)

    def test_security(self) -> None:
        """Credentials are those that the service takes; public methods need none."""
        self.assertEqual(self.operation("/Orders/get")["security"], [{"apiKey": []}])
        self.assertEqual(
            self.operation("/Guarded/echo")["security"], [{"token": []}, {"apiKey": []}]
        )
        self.assertEqual(self.operation("/Probe/echo")["security"][0], {})

    def test_errors(self) -> None:
        """Errors are those that can be, in the shape that they have."""
        self.assertTrue(
            {"400", "401", "403", "429"} <= {*self.operation("/Orders/get")["responses"]}
        )
        known = {*self.operation("/Probe/echo")["responses"]}
        self.assertEqual(known & {"401", "403", "429"}, set())
        described = self.document["components"]["schemas"]["Error"]
        Schema(described, "Error").check(self.client.post("/api/Nobody/echo").json())

    def test_routes(self) -> None:
        """A route's parameters are in its path, the rest of a GET's request in the query."""
        operation = self.operation("/orders/{id}", "get")
        self.assertEqual(self.parameters(operation, "path"), {"id": True})
        self.assertEqual(self.parameters(operation, "query"), {"customer": False, "all": True})
        self.assertNotIn("requestBody", operation)

    def test_routeBody(self) -> None:
        """The body of a route has what its path has not."""
        operation = self.operation("/orders/{id}", "put")
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        self.assertNotIn("id", schema["properties"])
        self.assertEqual(schema["required"], [])

    def test_oddRoutes(self) -> None:
        """An optional parameter makes two paths; wildcards and second names of a path are none."""
        paths = self.document["paths"]
        self.assertIn("/find", paths)
        self.assertIn("/find/{customer}", paths)
        self.assertNotIn("/orders/{name}", paths)
        self.assertEqual([path for path in paths if "files" in path], [])

    def test_modern(self) -> None:
        """Schemas are in the words of JSON Schema 2020-12."""
        order = self.document["components"]["schemas"]["Orders.put.request"]
        place = order["properties"]["place"]
        self.assertEqual((place["prefixItems"], place["items"]), ([{"type": "number"}], False))
        self.assertEqual(order["required"], ["id"])

    def test_later(self) -> None:
        """Services that come later are described, too, and mounts by their own path."""
        from storagegate.core.definitions import readService

        later = {"name": "Later", "methods": ORDERS["methods"]}
        self.host.invoker.add(readService(later))
        self.app.use("/rpc", self.adapter.middleware())
        self.assertIn("/Later/get", self.client.get("/api/openapi.json").json()["paths"])
        self.assertEqual(self.client.get("/rpc/openapi.json").json()["servers"], [{"url": "/rpc"}])

    def test_method(self) -> None:
        """It is there to be read, and for nothing else."""
        self.assertEqual(self.client.head("/api/openapi.json").status, 200)
        response = self.client.post("/api/openapi.json")
        self.assertError(response, 405, "METHOD_NOT_ALLOWED")
        self.assertEqual(response.headers["allow"], "GET, HEAD")
