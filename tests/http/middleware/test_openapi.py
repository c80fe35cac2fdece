"""The description of an application's routes."""

from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.options import OptionError
from storagegate.http import Router, openapi
from storagegate.http.testing import Client
from tests.gateway.describing import references, resolved

try:
    from openapi_spec_validator import OpenAPIV31SpecValidator
except ImportError:
    OpenAPIV31SpecValidator = None


@dataclass
class Line:
    """A line of an order."""

    article: str
    count: int = 1


@dataclass
class Order:
    """What is ordered."""

    customer: str
    lines: list[Line]


@dataclass
class Paging:
    """What a query has."""

    size: int
    page: int = 1


@dataclass
class Place:
    """What a path has."""

    id: int


SCHEMA = {
    "definitions": {"word": {"type": "string"}},
    "type": "object",
    "properties": {"a": {"$ref": "#/definitions/word"}},
}


def createOrder(req: Any, res: Any) -> None:
    """
    Order something.

    It is sent
    within a week.
    """


def plain(req: Any, res: Any) -> None:
    """Do nothing."""


def makeApplication() -> Any:
    """Make an application with routes of all kinds."""
    import re

    app = server.http()
    orders = Router(mergeParams=True)
    orders.post("/", createOrder, body=Order, response=Order)
    orders.get("/", plain, query=Paging, response=list[Order])
    orders.get("/:id", plain, params=Place, response=Order)
    orders.delete("/:id", lambda req, res: res.status(204).end())
    app.use("/shop/orders", orders)
    app.put("/words/:word?", plain, body=SCHEMA)
    app.get("/v:major/files/*", plain).all("/any", plain).get(re.compile("^/x$"), plain)
    app.get(["/one", "/two"], plain)
    return app


class DescriptionTests(SynchronousTestCase):
    """C{app.openapi()}."""

    def setUp(self) -> None:
        """Describe."""
        self.document = makeApplication().openapi(title="Shop", version="2.1")
        self.paths = self.document["paths"]

    def test_valid(self) -> None:
        """It is valid, by the schema of OpenAPI 3.1, and each reference leads somewhere."""
        if OpenAPIV31SpecValidator is None:
            raise SkipTest("openapi-spec-validator is not installed")
        OpenAPIV31SpecValidator(self.document).validate()
        OpenAPIV31SpecValidator(server.http().openapi()).validate()
        found = set(references(self.document))
        self.assertIn("#/components/schemas/Order", found)
        for each in found:
            resolved(self.document, each)
        self.assertEqual(self.document["info"], {"title": "Shop", "version": "2.1"})

    def test_paths(self) -> None:
        """Paths have their parameters in braces; those without a template are left out."""
        self.assertEqual(
            {path: sorted(verbs) for path, verbs in self.paths.items()},
            {
                "/shop/orders": ["get", "post"],
                "/shop/orders/{id}": ["delete", "get"],
                "/words": ["put"],
                "/words/{word}": ["put"],
                "/one": ["get"],
                "/two": ["get"],
            },
        )

    def test_parameters(self) -> None:
        """Parameters have the schemas of their types; those of a path are required."""
        self.assertEqual(
            self.paths["/shop/orders/{id}"]["get"]["parameters"],
            [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
        )
        [word] = self.paths["/words/{word}"]["put"]["parameters"]
        self.assertEqual(word["schema"], {"type": "string"})
        self.assertEqual(self.paths["/words"]["put"]["parameters"], [])
        found = self.paths["/shop/orders"]["get"]["parameters"]
        self.assertEqual(
            [(each["name"], each["in"], each["required"]) for each in found],
            [("size", "query", True), ("page", "query", False)],
        )

    def test_schemas(self) -> None:
        """Bodies and results are components with the names of their types."""
        create = self.paths["/shop/orders"]["post"]
        order = {"$ref": "#/components/schemas/Order"}
        content = {"application/json": {"schema": order}}
        self.assertEqual(create["requestBody"], {"required": True, "content": content})
        self.assertEqual(create["responses"]["2XX"]["content"], content)
        listed = self.paths["/shop/orders"]["get"]["responses"]["2XX"]["content"]
        self.assertEqual(listed["application/json"]["schema"], {"type": "array", "items": order})
        schema = self.document["components"]["schemas"]["Order"]
        self.assertEqual(schema["required"], ["customer", "lines"])
        self.assertEqual(sorted(create["responses"]), ["2XX", "400", "415"])
        self.assertEqual(sorted(self.paths["/one"]["get"]["responses"]), ["2XX"])

    def test_names(self) -> None:
        """Two types of one name are two components."""
        app = server.http().post("/a", plain, body=Order)

        @dataclass
        class Other:
            """Another."""

            sku: str

        Other.__name__ = "Order"
        app.post("/b", plain, body=Other).post("/c", plain, body=Order)
        document = app.openapi()
        names = {"Error", "Line", "Order", "Order_2"}
        self.assertEqual(set(document["components"]["schemas"]), names)

    def test_words(self) -> None:
        """Docstrings, names of handlers and mounted routers."""
        create = self.paths["/shop/orders"]["post"]
        self.assertEqual(create["operationId"], "createOrder")
        self.assertEqual(create["summary"], "Order something.")
        self.assertEqual(create["description"], "It is sent\nwithin a week.")
        self.assertEqual(create["tags"], ["orders"])
        self.assertNotIn("tags", self.paths["/one"]["get"])
        self.assertEqual(self.document["tags"], [{"name": "orders"}])
        remove = self.paths["/shop/orders/{id}"]["delete"]
        self.assertEqual(remove["operationId"], "DELETE /shop/orders/{id}")
        self.assertNotIn("summary", remove)


@dataclass
class Node:
    """A node of a tree."""

    name: str
    below: "list[Node]"


class DeclaredTests(SynchronousTestCase):
    """What only registrations and options can say."""

    def operation(self, **said: Any) -> Any:
        """Describe one route, registered with a description."""
        app = server.http().post("/a/:id", createOrder, openapi=said)
        return app.openapi()["paths"]["/a/{id}"]["post"]

    def test_members(self) -> None:
        """Each member of a description has its place in the operation."""
        found = self.operation(
            operationId="order",
            summary="Order.",
            tags=["shop"],
            status=201,
            consumes=["application/octet-stream"],
            produces=["text/event-stream", "application/zip", "application/json"],
            security=[{"key": []}],
            extensions={"x-role": "admin"},
        )
        self.assertEqual((found["operationId"], found["tags"]), ("order", ["shop"]))
        # The rest of the docstring belongs to its own first line.
        self.assertEqual((found["summary"], found.get("description")), ("Order.", None))
        self.assertEqual(found["requestBody"]["content"], {"application/octet-stream": {}})
        self.assertEqual(found["security"], [{"key": []}])
        self.assertEqual(found["x-role"], "admin")
        self.assertEqual(list(found["responses"]), ["201"])
        text = {"schema": {"type": "string"}}
        self.assertEqual(
            found["responses"]["201"]["content"],
            {"text/event-stream": text, "application/zip": {}, "application/json": {"schema": {}}},
        )
        self.assertEqual(self.operation(description="More.")["description"], "More.")
        self.assertNotIn("security", self.operation())
        self.assertEqual(self.operation(security=[])["security"], [])

    def test_both(self) -> None:
        """Media types stand beside the JSON of a type."""
        said = {"produces": ["application/octet-stream"]}
        document = server.http().get("/a", plain, response=Line, openapi=said).openapi()
        content = document["paths"]["/a"]["get"]["responses"]["2XX"]["content"]
        self.assertEqual(list(content), ["application/json", "application/octet-stream"])

    def test_late(self) -> None:
        """A function that returns the description is called when the routes are described."""
        asked: list[int] = []
        app = server.http()
        app.get("/a", plain, openapi=lambda: asked.append(1) or {"summary": "Late."})
        self.assertTrue(app.hasRoute("GET", "/a"))
        self.assertEqual(asked, [])
        self.assertEqual(app.openapi()["paths"]["/a"]["get"]["summary"], "Late.")
        self.assertEqual(asked, [1])

    def test_refused(self) -> None:
        """Members that are unknown or invalid are refused with their names."""
        app = server.http()
        for said, name in (
            ({"sumary": "x"}, "openapi.sumary"),
            ({"status": 99}, "openapi.status"),
            ({"summary": 7}, "openapi.summary"),
            ({"security": {"key": []}}, "openapi.security"),
            ({"extensions": {"role": "admin"}}, "openapi.extensions"),
            (7, "openapi"),
        ):
            error = self.assertRaises(OptionError, app.get, "/a", plain, openapi=said)
            self.assertIn(name, str(error))

    def test_options(self) -> None:
        """Servers, credentials and errors of the whole application."""
        app = server.http().post("/a", plain, body=Line).get("/b", plain)
        keys = {"key": {"type": "apiKey", "in": "header", "name": "x-key"}}
        document = app.openapi(
            servers=["."],
            securitySchemes=keys,
            security=[{"key": []}],
            errors={"401": "Not signed in", "400": "Wrong", "default": "An error"},
            error=Line,
        )
        self.assertEqual(document["servers"], [{"url": "."}])
        self.assertEqual(document["security"], [{"key": []}])
        components = document["components"]
        self.assertEqual(components["securitySchemes"], keys)
        self.assertEqual(sorted(components["schemas"]["Error"]["properties"]), ["article", "count"])
        self.assertEqual(components["responses"]["401"]["description"], "Not signed in")
        of = lambda path, verb: list(document["paths"][path][verb]["responses"])  # noqa: E731
        self.assertEqual(of("/a", "post"), ["2XX", "401", "400", "default"])
        self.assertEqual(of("/b", "get"), ["2XX", "401", "default"])
        if OpenAPIV31SpecValidator is not None:
            OpenAPIV31SpecValidator(document).validate()

    def test_nested(self) -> None:
        """Models within models are components, also one that contains itself."""
        document = server.http().get("/a", plain, response=Node).openapi()
        reference = {"$ref": "#/components/schemas/Node"}
        content = document["paths"]["/a"]["get"]["responses"]["2XX"]["content"]
        self.assertEqual(content["application/json"]["schema"], reference)
        below = document["components"]["schemas"]["Node"]["properties"]["below"]
        self.assertEqual(below, {"type": "array", "items": reference})


class MiddlewareTests(SynchronousTestCase):
    """C{openapi()}."""

    def test_served(self) -> None:
        """The description is below the path that it is mounted at; all else goes on."""
        app = makeApplication().use(openapi(title="Shop"))
        app.use("/api", openapi({"version": "7"}))
        app.get("/late", plain)
        client = Client(app)
        document = client.get("/openapi.json").json()
        self.assertEqual(document["info"], {"title": "Shop", "version": "1.0.0"})
        self.assertIn("/late", document["paths"])
        self.assertNotIn("/openapi.json", document["paths"])
        self.assertEqual(client.get("/api/openapi.json").json()["info"]["version"], "7")
        response = client.head("/openapi.json")
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")
        self.assertEqual(client.post("/openapi.json").status, 404)
        self.assertEqual(client.get("/openapi.jsonx").status, 404)

    def test_page(self) -> None:
        """A page for people is beside it, unless it is not wanted."""
        client = Client(server.http().use(openapi()).use("/bare", openapi(docs=False)))
        response = client.get("/docs")
        self.assertIn("text/html", response.headers["content-type"])
        self.assertIn("default-src 'none'", response.headers["content-security-policy"])
        for name in ("page.js", "page.css"):
            self.assertIn(f"docs/{name}", response.text)
            self.assertEqual(client.get(f"/docs/{name}").status, 200)
        self.assertEqual(client.get("/bare/docs").status, 404)
