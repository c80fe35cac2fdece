"""Schemas of requests and responses."""

import math
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema, normalised

TEXT = {"type": "string"}
BYTES = {"type": "string", "contentEncoding": "base64"}


def objectOf(**properties: Any) -> dict[str, Any]:
    """Make a schema of an object."""
    return {"type": "object", "properties": properties}


class CheckTests(SynchronousTestCase):
    """What fits, and what is said of the rest."""

    def violation(self, schema: dict[str, Any], value: Any) -> tuple[str, str]:
        """Give the path and the message of what does not fit."""
        error = self.assertRaises(ServiceError, Schema(schema, "it").check, value)
        self.assertEqual(
            (error.code, error.statusCode, error.grpcStatus), ("VALIDATION_ERROR", 400, 3)
        )
        [detail] = error.details
        return detail["path"], detail["message"]

    def test_fits(self) -> None:
        """Values that fit are left as they are; what is not named is allowed."""
        schema = objectOf(id={**TEXT, "required": True}, n={"type": "integer"})
        for value in ({"id": "a"}, {"id": "a", "n": 1}, {"id": "a", "more": []}):
            self.assertIs(Schema(schema, "it").read(value), value)

    def test_required(self) -> None:
        """A property says itself that it is required, at any depth; so does JSON Schema's list."""
        schema = objectOf(
            id={**TEXT, "required": True}, inner=objectOf(z={**TEXT, "required": True})
        )
        self.assertEqual(self.violation(schema, {}), ("id", "is required"))
        self.assertEqual(
            self.violation(schema, {"id": "", "inner": {}}), ("inner.z", "is required")
        )
        listed = {**objectOf(a={**TEXT, "required": True}, b=TEXT), "required": ["b"]}
        self.assertEqual(normalised(listed)["required"], ["b", "a"])
        self.assertNotIn("required", normalised(listed)["properties"]["a"])

    def test_paths(self) -> None:
        """The path names the place."""
        schema = objectOf(list={"type": "array", "items": {"type": "integer"}})
        path, message = self.violation(schema, {"list": [1, "x"]})
        self.assertEqual((path, message), ("list[1]", "must be integer"))
        self.assertEqual(self.violation(schema, 5), ("", "must be object"))
        self.assertEqual(self.violation(objectOf(a=TEXT), {"a": None})[0], "a")

    def test_emails(self) -> None:
        """Email addresses have one @, and a dot in their domain; long texts take linear time."""
        both = {"format": "email", "type": "string"}, {"format": "idn-email", "type": "string"}
        for schema in both:
            for text in ("a@b.c", "\u00fc.x@b.c.d", "a b@c.d", "a@..b", "a@b.c\n"):
                self.assertEqual(Schema(schema, "it").read(text), text)
            for text in ("", "a", "a@", "@b.c", "a@b", "a@b.", "a@.b", "a@b@c.d", "a@b.c@"):
                self.assertEqual(self.violation(schema, text)[1], f"must be {schema['format']}")
            for part in (".", "..", ".a", "@", "@."):
                for text in (f"a@{part * 200_000}@", part * 200_000, f"a{part * 200_000}@b.c"):
                    # In quadratic time, it would take minutes.
                    if text.count("@") != 1:
                        self.violation(schema, text)
        for text in (".a@b.c", "a.@b.c", "a..b@c.d"):
            self.assertEqual(self.violation(both[0], text)[1], "must be email")
            self.assertEqual(Schema(both[1], "it").read(text), text)

    def test_numbers(self) -> None:
        """A number that cannot be divided is invalid, not a failure of the server."""
        mistake = ("", "has a number that is out of range")
        for step, number in ((0.1, math.nan), (3, math.inf), (3, -math.inf)):
            schema = objectOf(n={"type": "number", "multipleOf": step})
            self.assertEqual(self.violation(schema, {"n": number}), mistake)
        schema, value = objectOf(n={"type": "number", "multipleOf": 0.1}), {"n": 10**400}
        try:
            # Older releases of the library divide decimals, and find that it is a multiple.
            self.assertEqual(Schema(schema, "it").check(value), value)
        except ServiceError:
            self.assertEqual(self.violation(schema, value), mistake)

    def test_bytes(self) -> None:
        """Bytes come as base64 or as they are, also in lists; handlers get bytes."""
        schema = Schema(objectOf(b=BYTES, many={"type": "array", "items": BYTES}), "it")
        read = schema.read({"b": "AAE=", "many": ["AA==", b"x"], "c": 1})
        self.assertEqual(read, {"b": b"\0\1", "many": [b"\0", b"x"], "c": 1})
        error = self.assertRaises(ServiceError, schema.read, {"b": "?"})
        self.assertEqual(error.details, [{"path": "b", "message": "must be base64"}])
        error = self.assertRaises(ServiceError, schema.read, {"many": ["AA==", 5]})
        self.assertEqual(error.details[0]["path"], "many[1]")

    def test_longMessage(self) -> None:
        """The message about members that are not allowed does not name all of a million."""
        schema = {"type": "object", "additionalProperties": False}
        request = {f"name{at}": 1 for at in range(10_000)}
        error = self.assertRaises(ServiceError, Schema(schema, "it").read, request)
        self.assertLess(len(error.message), 2000)
        error = self.assertRaises(ServiceError, Schema(schema, "it").read, {"name1": 1})
        self.assertIn("name1", error.message)

    def test_bytesAnywhere(self) -> None:
        """Bytes are checked wherever a schema has them, and decoded in maps and optional fields."""
        null, refused = {"type": "null"}, {"type": "object", "properties": {}}
        part = {"$ref": "#/definitions/b", "definitions": {"b": BYTES}}
        for schema, given, read in (
            ({**refused, "additionalProperties": BYTES}, {"a": "AA=="}, {"a": b"\0"}),
            (
                {
                    **objectOf(n=TEXT, b=BYTES),
                    "patternProperties": {"^x": TEXT},
                    "additionalProperties": {"type": "array", "items": BYTES},
                },
                {"n": "AA==", "b": "AA==", "x1": "AA==", "y": ["AA==", b"a"]},
                {"n": "AA==", "b": b"\0", "x1": "AA==", "y": [b"\0", b"a"]},
            ),
            (objectOf(a={"anyOf": [BYTES, null]}), {"a": "AA=="}, {"a": b"\0"}),
            (objectOf(a={"oneOf": [null, BYTES]}), {"a": b"\0"}, {"a": b"\0"}),
            (objectOf(a={"oneOf": [null, BYTES]}), {"a": None}, {"a": None}),
            (objectOf(a={"anyOf": [null, objectOf(b=BYTES)]}), {"a": {"b": ""}}, {"a": {"b": b""}}),
            (part, "AA==", "AA=="),
        ):
            self.assertEqual(Schema(schema, "it").read(given), read)
        for schema, given, path in (
            ({**refused, "additionalProperties": BYTES}, {"a": 5}, "a"),
            ({**refused, "additionalProperties": BYTES}, {"a": "?"}, "a"),
            (objectOf(a={"anyOf": [BYTES, null]}), {"a": "?"}, "a"),
            (objectOf(a={"anyOf": [BYTES, null]}), {"a": 5}, "a"),
            (objectOf(a={"oneOf": [null, BYTES]}), {"a": [1]}, "a"),
            ({"type": "object", "patternProperties": {"^x": BYTES}}, {"x": 5}, "x"),
            (part, 5, ""),
        ):
            error = self.assertRaises(ServiceError, Schema(schema, "it").read, given)
            self.assertEqual(error.details[0]["path"], path)

    def test_lengthOfBytes(self) -> None:
        """The limits of the length of text apply to base64, on each transport."""
        schema = Schema(objectOf(b={**BYTES, "minLength": 4, "maxLength": 8}), "it")
        for given in ("AA==", "AAAAAAAA", b"\0", b"\0" * 6):
            self.assertIsInstance(schema.read({"b": given})["b"], bytes)
        for given in ("", "AAAAAAAAAA==", b"", b"\0" * 7):
            error = self.assertRaises(ServiceError, schema.read, {"b": given})
            self.assertIn("characters", error.details[0]["message"])

    def test_later(self) -> None:
        """A schema that is known to be good is compiled with the first value, and does the same."""
        schema = Schema(objectOf(id={**TEXT, "required": True}), "it", isKnown=True)
        for _ in range(2):
            self.assertRaises(ServiceError, schema.check, {})
            schema.check({"id": "a"})

    def test_refused(self) -> None:
        """What is no schema is an error that names what it is of; nothing is fetched."""
        deep: dict[str, Any] = {}
        for _ in range(100):
            deep = objectOf(a=deep)
        for wrong in (
            {"type": "wat"},
            {"properties": {"a": 5}},
            {"properties": 5},
            {"$ref": "http://127.0.0.1:1/schema"},
            {"$ref": "file:///etc/passwd"},
            deep,
        ):
            error = self.assertRaises(DefinitionError, Schema, wrong, "the input of A.b")
            self.assertIn("the input of A.b", str(error))


class KeywordTests(SynchronousTestCase):
    """Keywords that constrain nothing."""

    def test_misspelt(self) -> None:
        """One that is none is refused with its place and the keyword that is like it."""
        name = {"type": "string", "minLenght": 1}
        for schema, expected in (
            ({"type": "object", "properties": {"name": name}}, "properties.name.minLenght is no"),
            ({"type": "array", "items": name}, "items.minLenght"),
            ({"anyOf": [{"type": "null"}, name]}, "anyOf[1].minLenght"),
            ({"propertys": {}}, "is it properties?"),
            ({"type": "array", "prefixItems": [{"type": "string"}]}, "prefixItems is no keyword"),
            ({"type": "string", "nullable": True}, "nullable is no keyword"),
        ):
            error = self.assertRaises(DefinitionError, Schema, schema, "A.b")
            self.assertIn(expected, str(error))
            self.assertIn("A.b", str(error))

    def test_others(self) -> None:
        """Notes, extensions, and names of properties and definitions are none."""
        Schema(
            {
                "$comment": "a",
                "x-order": 1,
                "properties": {"minLenght": {"type": "string", "example": "b", "deprecated": True}},
                "definitions": {"minLenght": True},
                "default": {"minLenght": 1},
                "enum": [{"minLenght": 1}],
            },
            "A.b",
        )
        Schema({"minLenght": 1}, "of a remote service", isKnown=True)
