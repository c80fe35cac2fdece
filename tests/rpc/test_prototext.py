"""The text of generated files."""

from typing import Any

from msgspec import Struct
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import readService
from storagegate.rpc.protos import loadProto
from storagegate.rpc.prototext import protoText
from storagegate.rpc.schemaprotos import GeneratedMessages
from tests.support.everytype import METHODS, SERVICE


def textOf(name: str, methods: Any) -> str:
    """Write the file of a service."""
    generated = GeneratedMessages()
    generated.add(readService({"name": name, "methods": methods}))
    package = name.rpartition(".")[0]
    return protoText(generated.files(package), generated.documents(package))


class TextTests(SynchronousTestCase):
    """The file."""

    def test_comments(self) -> None:
        """Docstrings and descriptions are comments; a generated docstring is none."""
        text = textOf(SERVICE, METHODS)
        self.assertIn("  // Return the note twice.\n  rpc Watch(NoteId)", text)
        self.assertIn("// A colour.\nenum Color {", text)
        self.assertIn("// It closes no comment: */\nmessage Note {", text)
        self.assertIn("  // A small number\n  optional int32 small", text)

    def test_package(self) -> None:
        """A service without a package has a file without one, and only the imports that it uses."""
        text = textOf("Probe", {"Tags": METHODS["Tags"]})
        self.assertTrue(text.startswith('syntax = "proto3";\n\nservice Probe {\n'), text)

    def test_hostile(self) -> None:
        """Names and texts cannot leave their place."""

        key = 'a"];\n} message Evil { //'

        class Odd(Struct):
            """Odd.\r} message Evil {}\u2028} message Evil {}"""

            one: str

        async def odd(value: Any) -> None: ...

        odd.__annotations__["value"] = Odd
        odd.__doc__ = "*/\n} message Evil {}"
        schema = {"type": "object", "properties": {key: {"type": "string"}}}
        text = textOf("Probe", {"Odd": odd, "Key": {"handler": odd, "input": schema}})
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(text)
        loaded = loadProto(path)
        self.assertEqual([*loaded.file.message_types_by_name], ["Odd", "ProbeKeyRequest"])
        [field] = loaded.ProbeKeyRequest.DESCRIPTOR.fields
        self.assertEqual(field.json_name, key)

    def test_schemas(self) -> None:
        """Messages of schemas have their nested messages."""
        schema = {
            "type": "object",
            "properties": {
                "line": {"type": "object", "properties": {"x": {"type": "integer"}}},
                "rows": {"type": "array", "items": {"type": "object"}},
            },
        }

        def echo(request: Any) -> Any:
            """Echo."""

        text = textOf("a.Probe", {"echo": {"handler": echo, "input": schema}})
        self.assertIn(
            "message ProbeEchoRequest {\n"
            "  message Line {\n"
            "    optional int64 x = 1;\n"
            "  }\n"
            "  optional ProbeEchoRequest.Line line = 1;\n"
            "  repeated google.protobuf.Struct rows = 2;\n"
            "}\n",
            text,
        )
        self.assertIn("returns (google.protobuf.Struct);", text)
