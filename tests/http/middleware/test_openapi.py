"""The description of an application's routes."""

from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
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
        self.assertEqual(set(document["components"]["schemas"]), {"Error", "Order", "Order_2"})

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
