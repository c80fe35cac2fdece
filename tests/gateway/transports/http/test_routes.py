"""Configured routes, and what becomes a request."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.gateway.transports.http import HTTPRoute, mergeRequest, readRoutes, readTexts

SCHEMA = {
    "type": "object",
    "properties": {
        "page": {"type": "integer"},
        "ratio": {"type": "number"},
        "all": {"type": "boolean"},
        "name": {"type": "string"},
        "maybe": {"type": ["integer", "null"]},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "anything": {},
        "always": True,
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


class TextTests(SynchronousTestCase):
    """readTexts."""

    def assertRead(self, name: str, text: Any, expected: Any) -> None:
        """Hold one value against what is expected, its type included."""
        value = readTexts({name: text}, SCHEMA)[name]
        self.assertEqual((value, type(value)), (expected, type(expected)))

    def test_numbers(self) -> None:
        """Numbers are those of JSON."""
        self.assertRead("page", "-12", -12)
        self.assertRead("maybe", "0", 0)
        self.assertRead("ratio", "2", 2)
        self.assertRead("ratio", "-2.5e3", -2500.0)
        for text in ("1_0", "+1", " 1", "01", "1.0", "", "\u0661", "9" * 41, "0x1"):
            self.assertRead("page", text, text)
        for text in ("NaN", "Infinity", ".5", "1.", "1e1000", "-1e999"):
            self.assertRead("ratio", text, text)

    def test_others(self) -> None:
        """Truth values are two words, a list may come as one value, text stays what it is."""
        self.assertRead("all", "false", False)
        self.assertRead("all", "yes", "yes")
        self.assertRead("ids", "5", [5])
        self.assertRead("ids", ["5", "x"], [5, "x"])
        self.assertRead("page", ["1", "2"], ["1", "2"])
        for name in ("name", "anything", "always", "unknown"):
            self.assertRead(name, "1", "1")

    @given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), st.text(max_size=20)))  # type: ignore[arg-type]
    def test_any(self, values: dict[str, str]) -> None:
        """Whatever came, all of it is there afterwards, and nothing fails."""
        self.assertEqual(readTexts(values, SCHEMA).keys(), values.keys())
        self.assertEqual(readTexts(values, None), values)
