"""TypeScript's types of schemas, and the clients in which they are."""

import re
from dataclasses import dataclass, field
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.typescript.routes import routesClient
from storagegate.cli.typescript.services import servicesClient
from storagegate.cli.typescript.types import (
    TypeScriptTypes,
    comment,
    identifier,
    key,
    literal,
    methodKey,
)
from storagegate.core.definitions import readService
from storagegate.core.typeschemas import DEFINITIONS, describeType
from tests.cli.test_generated import SOURCE, GeneratedCase


@dataclass
class Item:
    """An item."""

    name: str
    tags: list[str] = field(default_factory=list)


def typeOf(schema: Any) -> str:
    """Return the type of a schema in one line."""
    types = TypeScriptTypes()
    found = types.add(schema, {}, DEFINITIONS, "Thing")
    return " ".join((types.declarations.get(found) or found).split())


class TypeTests(SynchronousTestCase):
    """Types."""

    def test_types(self) -> None:
        """Each kind of schema is a type of TypeScript."""
        text = {"type": "string"}
        for schema, expected in (
            (text, "string"),
            ({"type": "integer"}, "number"),
            ({"type": "boolean"}, "boolean"),
            ({}, "unknown"),
            (True, "unknown"),
            (False, "never"),
            ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
            ({"const": "a"}, '"a"'),
            ({"type": ["string", "null"]}, "string | null"),
            ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
            ({"type": "array"}, "unknown[]"),
            ({"type": "array", "prefixItems": [text, {}], "items": False}, "[string, unknown]"),
            ({"type": "object"}, "Record<string, unknown>"),
            ({"type": "object", "additionalProperties": text}, "Record<string, string>"),
            ({"anyOf": [text, {"type": "null"}]}, "string | null"),
            ({"allOf": [{"type": "object"}, {}]}, "Record<string, unknown> & unknown"),
            (
                {"properties": {"a": text, "b-c": text}, "required": ["a"]},
                'export interface Thing { a: string; "b-c"?: string; }',
            ),
        ):
            self.assertEqual(typeOf(schema), expected)

    def test_names(self) -> None:
        """A result has the name of its class; a request that differs has another."""
        types = TypeScriptTypes(["Taken"])
        result = types.add(*describeType(Item, isResult=True), DEFINITIONS, "x", isResult=True)
        request = types.add(*describeType(Item), DEFINITIONS, "x")
        self.assertEqual((result, request), ("Item", "ItemInput"))
        self.assertIn("tags: string[];", types.declarations["Item"])
        self.assertIn("tags?: string[];", types.declarations["ItemInput"])
        self.assertEqual(types.add(*describeType(Item), DEFINITIONS, "x"), "ItemInput")
        other = {"properties": {"b": {}}}
        self.assertEqual(types.add(other, {}, DEFINITIONS, "item"), "Item2")
        self.assertEqual(types.add(other, {}, DEFINITIONS, "taken"), "TakenInput")

    def test_quoting(self) -> None:
        """A name or text stays what it is."""
        self.assertEqual(key("a$1"), "a$1")
        self.assertEqual(key('a"b\u2028'), '"a\\"b\\u2028"')
        self.assertEqual(literal("</script>"), '"<\\/script>"')
        self.assertEqual(methodKey("constructor"), '["constructor"]')
        self.assertEqual(methodKey("class"), "class")
        for name, expected in (
            ("notes.v1.note", "NotesV1Note"),
            ("2nd", "_2nd"),
            ("größe", "GrE"),
            ("", "Type"),
            ("client", "Client_"),
            ("*/", "Type"),
        ):
            self.assertEqual(identifier(name), expected)

    def test_comments(self) -> None:
        """No text ends its comment."""
        self.assertEqual([*comment("")], [])
        self.assertEqual([*comment("One.")], ["/** One. */"])
        lines = [*comment("a */ b\r\u2028\x1b[1m*/\n\nlast", "  ")]
        self.assertEqual(lines[0], "  /**")
        self.assertEqual("\n".join(lines).count("*/"), 1)
        self.assertNotRegex("".join(lines), "[\x00-\x1f\u2028]")

    def test_bodies(self) -> None:
        """Nothing of a definition is outside of comments and strings."""
        evil = "*/ } evil(); /*`${evil()}\"'\u2028\\\n"
        schema = {
            "type": "object",
            "description": evil,
            "properties": {evil: {"description": evil, "enum": [evil]}},
        }

        def handler(request: Any) -> Any:
            return request

        handler.__doc__ = evil
        name = evil.replace(" ", "").replace("/", "").replace("\u2028", "").replace("\n", "")
        service = readService(
            {"name": name, "methods": {"evil()": {"handler": handler, "input": schema}}}
        )
        document = {
            "paths": {
                f"/{evil}/{{{evil}}}": {
                    "get": {
                        "operationId": evil,
                        "summary": evil,
                        "parameters": [
                            {"name": evil, "in": place, "schema": schema, "required": True}
                            for place in ("path", "query", "header")
                        ],
                        "responses": {"200": {"content": {"application/json": {"schema": schema}}}},
                    }
                }
            }
        }
        for text in (servicesClient([service]), routesClient(document)):
            bare = re.sub(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/', "", text, flags=re.DOTALL)
            self.assertNotIn("evil()", bare)


class CommandTests(GeneratedCase):
    """C{storagegate client}."""

    def test_prints(self) -> None:
        """A gateway and a service give the same client; C{--check} compares the file."""
        code, text, errors = self.execute("client", self.module, "--typescript")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("export interface Note {\n    title: string;\n    count: number;\n}", text)
        self.assertIn('"a.Notes",', text)
        words = ("client", f"{self.module}:Notes", "--typescript", "--out", "notes.ts")
        self.assertEqual(self.execute(*words), (0, "", ""))
        self.assertEqual((self.folder / "notes.ts").read_text(), text)
        self.assertEqual(self.execute(*words, "--check"), (0, "", ""))
        (self.folder / "notes.ts").write_text("")
        code, _, errors = self.execute(*words, "--check")
        self.assertEqual((code, errors), (1, "storagegate: notes.ts is out of date\n"))

    def test_application(self) -> None:
        """An HTTP application gives a client of its routes, a gRPC application none."""
        begin = SOURCE.index("gateway = ")
        source = SOURCE[:begin] + "app = server.http()\n@app.get('/notes/:id')\n"
        self.write(source + "def find(req, res):\n    pass\n")
        code, text, errors = self.execute("client", self.module, "--typescript")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn('"/notes/" + encodeURIComponent(String(path["id"])),', text)
        self.write(SOURCE[:begin] + "app = server.grpc()\n")
        code, _, errors = self.execute("client", self.module, "--typescript")
        self.assertEqual(code, 2)
        self.assertIn("serves only gRPC: see storagegate proto", errors)
