"""The schemas of a description."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.components import SchemaCollection
from storagegate.core.typeschemas import DEFINITIONS


def to(name: str) -> dict[str, str]:
    """Refer to a definition."""
    return {"$ref": DEFINITIONS + name}


def component(name: str) -> dict[str, str]:
    """Refer to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


class TypeTests(SynchronousTestCase):
    """C{addType}."""

    def setUp(self) -> None:
        """Make a collection."""
        self.collection = SchemaCollection(modern=True)

    def test_references(self) -> None:
        """References point to the components, also those of a discriminator."""
        mapping = {"a": DEFINITIONS + "A", "b": "#/$defs/none"}
        union = {"anyOf": [to("A")], "discriminator": {"mapping": mapping}}
        found = self.collection.addType(union, {"A": {"properties": {"a": to("A")}}})
        self.assertEqual(found["anyOf"], [component("A")])
        self.assertEqual(
            found["discriminator"]["mapping"], {"a": component("A")["$ref"], "b": "#/$defs/none"}
        )
        self.assertEqual(self.collection.schemas, {"A": {"properties": {"a": component("A")}}})

    def test_sameNames(self) -> None:
        """Another type of a known name gets a number, and what refers to it has that name."""
        first: dict[str, Any] = {"A": {"items": to("B")}, "B": {"type": "string"}}
        second: dict[str, Any] = {"A": {"items": to("B")}, "B": {"type": "number"}}
        for _ in range(2):
            self.assertEqual(self.collection.addType(to("A"), first), component("A"))
            self.assertEqual(self.collection.addType(to("A"), second), component("A_2"))
        self.assertEqual(
            self.collection.schemas,
            {
                "A": {"items": component("B")},
                "B": {"type": "string"},
                "A_2": {"items": component("B_2")},
                "B_2": {"type": "number"},
            },
        )

    def test_numbers(self) -> None:
        """A number is not taken by two types, whatever their own names are."""
        self.collection.addType(to("A"), {"A": {"type": "string"}})
        definitions = {"A": {"type": "number"}, "A_2": {"type": "object"}}
        found = self.collection.addType({"prefixItems": [to("A"), to("A_2")]}, definitions)
        placed = [
            self.collection.schemas[each["$ref"].rpartition("/")[2]]
            for each in found["prefixItems"]
        ]
        self.assertEqual(placed, [{"type": "number"}, {"type": "object"}])
