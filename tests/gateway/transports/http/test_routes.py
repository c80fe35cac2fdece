"""Configured routes, and what becomes a request."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.gateway.transports.http import HTTPRoute, mergeRequest, readRoutes

SCHEMA = {
    "type": "object",
    "properties": {
        "page": {"type": "integer"},
        "ratio": {"type": "number"},
        "all": {"type": "boolean"},
    },
}


class RouteTests(SynchronousTestCase):
    """readRoutes."""

    def test_read(self) -> None:
        """A route says its method, its path, its service and its method there."""
        self.assertEqual(
            readRoutes({"GET /users/:id": "UserService.GetUser", " put  /u ": "a.b.c"}),
            (
                HTTPRoute("GET", "/users/:id", "UserService", "GetUser"),
                HTTPRoute("PUT", "/u", "a.b", "c"),
            ),
        )

    def test_body(self) -> None:
        """GET and DELETE have no body."""
        verbs = ("GET", "POST", "PUT", "PATCH", "DELETE")
        routes = readRoutes({f"{verb} /": "A.b" for verb in verbs})
        self.assertEqual(
            [route.verb for route in routes if route.takesBody], ["POST", "PUT", "PATCH"]
        )

    def test_refused(self) -> None:
        """What is no route is refused, by the options too, and named."""
        for key in ("/users", "GET", "GET users", "HEAD /", "FETCH /", "GET /a b", ""):
            error = self.assertRaises(ValueError, readRoutes, {key: "A.b"})
            self.assertIn(repr(key), str(error))
        for target in ("UserService", "A.", ".b", "A/b.c", "A. b"):
            error = self.assertRaises(ValueError, readRoutes, {"GET /": target})
            self.assertIn(repr(target), str(error))
        changes = {"http": {"routes": {"/users": "A.b"}}}
        refused = self.assertRaises(OptionError, readOptions, GatewayOptions(), changes)
        self.assertIn("http.routes have keys", str(refused))


class MergeTests(SynchronousTestCase):
    """mergeRequest."""

    def test_order(self) -> None:
        """The body wins over the query, the path over both."""
        merged = mergeRequest(
            {"a": "query", "b": "query", "c": "query"},
            {"b": "body", "c": "body"},
            {"c": "path", "d": None, 0: "capture"},
        )
        self.assertEqual(merged, {"a": "query", "b": "body", "c": "path"})

    def test_schema(self) -> None:
        """Texts of the query and the path are read by the schema, values of the body are not."""
        merged = mergeRequest({"page": "1"}, {"ratio": "1"}, {"all": "true"}, SCHEMA)
        self.assertEqual(merged, {"page": 1, "ratio": "1", "all": True})
