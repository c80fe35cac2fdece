"""What leaves of a result has the members that its schema names."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema, messageProjection
from tests.support.resultforms import NAME, SCHEMAS, SECRET


def checked(schema: Any, value: Any) -> Any:
    """Return what leaves of a value."""
    return Schema(schema, "a schema").check(value)


class ShapeTests(SynchronousTestCase):
    """Members that C{properties} does not name stay here."""

    def test_forms(self) -> None:
        """So it is with every keyword, at every depth."""
        for name, schema, value, wanted in SCHEMAS:
            self.assertEqual(checked(schema, value), wanted, name)

    def test_allowed(self) -> None:
        """C{additionalProperties} lets them leave; so does a schema that names none."""
        value = {"name": "Ada", "more": 1}
        for further in (True, {"type": "integer"}):
            self.assertEqual(checked({**NAME, "additionalProperties": further}, value), value)
        self.assertEqual(checked({"type": "object"}, value), value)
        patterns = {"type": "object", "patternProperties": {"^x-": NAME}}
        self.assertEqual(checked(patterns, {"x-a": value, "y": 1}), {"x-a": {"name": "Ada"}})

    def test_recursive(self) -> None:
        """A schema may refer to itself."""
        schema = {"type": "object", "properties": {"n": {"$ref": "#"}, "v": {"type": "integer"}}}
        value = {"n": {"n": {"v": 1, "s": SECRET}, "s": SECRET}, "s": SECRET}
        self.assertEqual(checked(schema, value), {"n": {"n": {"v": 1}}})

    def test_items(self) -> None:
        """Items have their places, and the others follow."""
        schema = {"type": "array", "items": [NAME, {}], "additionalItems": NAME}
        value = [{"name": "a", "s": 1}, {"s": 2}, {"name": "b", "s": 3}]
        self.assertEqual(checked(schema, value), [{"name": "a"}, {"s": 2}, {"name": "b"}])

    def test_violations(self) -> None:
        """An error has the path, and nothing of the value, not even the key of a mapping."""
        error = self.assertRaises(
            ServiceError,
            checked,
            {"type": "object", "additionalProperties": NAME},
            {SECRET: {"name": 1}},
        )
        self.assertEqual(error.details, [{"path": "*.name", "message": "must be string"}])
        self.assertIsNone(error.__context__)

    def test_messages(self) -> None:
        """A message of gRPC has no field for members that are merely allowed."""
        schema = {**NAME, "additionalProperties": True}
        project = messageProjection({"type": "object", "properties": {"u": schema}})
        assert project is not None
        self.assertEqual(project({"u": {"name": "a", "more": 1}}), {"u": {"name": "a"}})
        self.assertIsNone(messageProjection({"type": "object", "properties": {"u": NAME}}))
