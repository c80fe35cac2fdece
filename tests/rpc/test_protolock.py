"""The lock of the numbers of generated messages."""

import enum
import json
import os
from typing import Any

from msgspec import defstruct
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError, readService
from storagegate.core.options import OptionError
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.codec import codecOf
from storagegate.rpc.protolock import LockError, ProtoLock, updatingLocks
from storagegate.rpc.protos import loadProto
from storagegate.rpc.prototext import protoText
from storagegate.rpc.schemaprotos import GeneratedMessages
from tests.support.everytype import METHODS, SERVICE

FIELDS: dict[str, Any] = {"title": str, "count": int}


def definitionOf(fields: dict[str, Any], message: str = "Note", method: str = "Take") -> Any:
    """Define a service with one method that takes a class with these fields."""
    model = defstruct(message, list(fields.items()))

    async def take(value: Any) -> None: ...

    take.__annotations__["value"] = model
    return readService({"name": "a.Probe", "methods": {method: take}})


class LockCase(SynchronousTestCase):
    """A lock and the services that it numbers."""

    def setUp(self) -> None:
        """Make a lock of the fields above."""
        self.lock = ProtoLock("probe.lock")
        self.update(FIELDS)

    def update(
        self,
        fields: dict[str, Any],
        message: str = "Note",
        method: str = "Take",
        renames: Any = None,
        removals: Any = (),
    ) -> str:
        """Update the lock, and return the file."""
        generated = GeneratedMessages()
        generated.add(definitionOf(fields, message, method))
        files = generated.files("a")
        fixed = {name for each in generated.packages.values() for name in each.fixed}
        self.lock.update(files, fixed, renames, removals)
        return protoText(files, {})

    def refusal(self, *arguments: Any, **more: Any) -> str:
        """Return the reason why an update is refused, which leaves the lock as it is."""
        before = self.lock.text
        error = self.assertRaises(LockError, self.update, *arguments, **more)
        self.assertEqual(self.lock.text, before)
        return str(error)


class UpdateTests(LockCase):
    """Changes of types."""

    def test_moved(self) -> None:
        """Fields keep their numbers in any order, and a new one gets the next number."""
        text = self.update({"count": int, "note": str, "title": str})
        for line in ("int64 count = 2;", "string note = 3;", "string title = 1;"):
            self.assertIn(f"optional {line}", text)

    def test_removed(self) -> None:
        """A removed field leaves its number and name reserved, and its number is not used again."""
        text = self.update({"title": str})
        self.assertIn('  reserved 2;\n  reserved "count";\n', text)
        text = self.update({"title": str, "sum": int})
        self.assertIn("optional int64 sum = 3;", text)
        # The name may come back, with a number of its own.
        text = self.update({"title": str, "sum": int, "count": int})
        self.assertIn("optional int64 count = 4;", text)
        self.assertIn("  reserved 2;\n", text)
        self.assertNotIn('reserved "', text)

    def test_type(self) -> None:
        """Another type is refused; the number may be given up."""
        reason = self.refusal({"title": str, "count": str})
        self.assertEqual(
            reason,
            "a.Note.count was optional int64 and is optional string, which clients would misread:"
            " restore the type, give the field a new name, or --remove a.Note.count reserves its"
            " number",
        )
        text = self.update({"title": str, "count": str}, removals={"Note.count"})
        self.assertIn("  reserved 2;\n", text)
        self.assertIn("optional string count = 3;", text)
        self.assertIn("count was", self.refusal({"title": str, "count": list[str]}))

    def test_narrower(self) -> None:
        """An integer whose bounds shrink keeps its type; one that outgrows it is refused."""
        from typing import Annotated

        from msgspec import Meta

        small = Annotated[int, Meta(ge=0, le=9)]
        self.assertIn("int64 count = 2;", self.update({"title": str, "count": small}))
        self.update({**FIELDS, "few": small})
        self.assertIn("few was optional int32", self.refusal({**FIELDS, "few": int}))

    def test_renamed(self) -> None:
        """A field that seems to be renamed is refused until that is said."""
        reason = self.refusal({"heading": str, "count": int})
        self.assertEqual(
            reason,
            "a.Note.title is gone and a.Note.heading is new, both optional string:"
            " --rename a.Note.title=heading keeps the number 1,"
            " --remove a.Note.title reserves it",
        )
        text = self.update({"heading": str, "count": int}, renames={"Note.title": "heading"})
        self.assertIn("optional string heading = 1;", text)
        text = self.update({"name": str, "count": int}, removals={"Note.heading"})
        self.assertIn("optional string name = 3;", text)
        self.assertIn(
            "Note.nothing cannot be renamed to x: the lock has none",
            self.refusal({"name": str}, renames={"Note.nothing": "x"}),
        )

    def test_message(self) -> None:
        """A message of another name is refused until it is said to be renamed."""
        self.assertIn(
            "a.Probe.Take was a.Note returns google.protobuf.Struct and is a.Memo returns",
            self.refusal(FIELDS, "Memo"),
        )
        text = self.update({"count": int, "title": str}, "Memo", renames={"Note": "Memo"})
        self.assertIn("optional int64 count = 2;", text)

    def test_method(self) -> None:
        """A method or a service that ends is refused until that is said."""
        reason = self.refusal(FIELDS, method="Give")
        self.assertIn("the method a.Probe.Take is gone", reason)
        self.update(FIELDS, method="Give", removals={"Probe.Take"})
        generated = GeneratedMessages()
        generated.add(readService({"name": "a.Other", "methods": {"Tags": METHODS["Tags"]}}))
        files = generated.files("a")
        error = self.assertRaises(LockError, self.lock.update, files, ())
        self.assertIn("the service a.Probe is gone", str(error))
        self.lock.update(files, (), removals={"a.Probe"})

    def test_enum(self) -> None:
        """Members keep their numbers as fields do, and the value of an integer is its number."""
        names = {"RED": "r", "BLUE": "b"}
        self.update({"color": enum.Enum("Color", names)}, removals={"Note.title"})
        names = {"GREEN": "g", "BLUE": "b", "RED": "r"}
        text = self.update({"color": enum.Enum("Color", names)})
        for line in ("COLOR_GREEN = 3;", "COLOR_BLUE = 2;", "COLOR_RED = 1;"):
            self.assertIn(line, text)
        other = {"color": enum.Enum("Color", {"PINK": "p", "BLUE": "b", "RED": "r"})}
        self.assertIn("--rename a.Color.COLOR_GREEN=COLOR_PINK keeps", self.refusal(other))
        text = self.update(other, renames={"Color.COLOR_GREEN": "COLOR_PINK"})
        self.assertIn("COLOR_PINK = 3;", text)
        text = self.update({"color": enum.Enum("Color", {"PINK": "p", "RED": "r"})})
        self.assertIn('  reserved 2;\n  reserved "COLOR_BLUE";', text)
        self.update({"level": enum.IntEnum("Level", {"LOW": 1})})
        level = {"level": enum.IntEnum("Level", {"LOW": 2})}
        self.assertIn("LEVEL_LOW of a.Level was 1 and is 2", self.refusal(level))

    def test_compiles(self) -> None:
        """The file with all numbers is valid, and is the file of the server."""
        generated = GeneratedMessages()
        generated.add(readService({"name": SERVICE, "methods": METHODS}))
        files = generated.files("notes.v1")
        lock = ProtoLock("every.lock")
        lock.update(files, generated.packages["notes.v1"].fixed)
        path = os.path.join(self.mktemp(), "notes.proto")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(protoText(files, generated.documents("notes.v1")))
        loaded = loadProto(path)
        own = generated.pool.FindMessageTypeByName("notes.v1.Note")
        self.assertEqual(
            [(each.name, each.number, each.type) for each in loaded.Note.DESCRIPTOR.fields],
            [(each.name, each.number, each.type) for each in own.fields],
        )


class FileTests(LockCase):
    """The file, and the server that reads it."""

    def setUp(self) -> None:
        """Write the lock."""
        super().setUp()
        self.path = self.mktemp()
        self.lock.path = self.path
        self.lock.write()

    def serverOf(self, fields: dict[str, Any]) -> GRPCServer:
        """Make a server with the lock."""
        app = GRPCServer().withOptions(grpc={"protoLock": self.path})
        return app.addService(definitionOf(fields))

    def test_served(self) -> None:
        """A server has the numbers of the lock."""
        app = self.serverOf({"count": int, "title": str})
        codec = app.services["a.Probe"].methods["Take"].request
        self.assertEqual(codecOf(codec.messageClass).encode({"title": "a"}), b"\n\x01a")
        # A removed field takes nothing from the others.
        codec = self.serverOf({"count": int}).services["a.Probe"].methods["Take"].request
        self.assertEqual(codec.encode({"count": 5}), b"\x10\x05")

    def test_outdated(self) -> None:
        """A server whose types the lock does not have is refused, and is told what to do."""
        for fields, text in (
            ({**FIELDS, "more": int}, "it lacks a.Note.more"),
            ({"title": str, "count": str}, "a.Note.count was optional int64"),
        ):
            error = self.assertRaises(DefinitionError, self.serverOf, fields)
            self.assertIn(f"the lock {self.path} is out of date: {text}", str(error))
            self.assertTrue(str(error).endswith("update it with storagegate proto"))
        with updatingLocks():
            self.serverOf({**FIELDS, "more": int})

    def test_late(self) -> None:
        """The option has no effect on services that are there already, so it is refused."""
        app = GRPCServer().addService(definitionOf(FIELDS))
        app.withOptions(grpc={"protoLock": self.path})
        error = self.assertRaises(OptionError, app.listen, 0)
        self.assertIn("set grpc.protoLock before the services", str(error))

    def test_damaged(self) -> None:
        """A file that is absent or damaged is an error that names it."""
        document = json.loads(self.lock.text)
        entry = document["messages"]["a.Note"]["fields"]["title"]
        for content, text in (
            ("{", "is not JSON"),
            ("[]", "is no lock of version 1"),
            (json.dumps({**document, "version": 2}), "is no lock of version 1"),
            (json.dumps({**document, "messages": {"a.Note": {}}}), "is damaged"),
            (json.dumps({**document, "services": []}), "is damaged"),
            (self.lock.text.replace(json.dumps(entry["type"]), "7"), "is damaged"),
        ):
            with open(self.path, "w") as file:
                file.write(content)
            error = self.assertRaises(DefinitionError, self.serverOf, FIELDS)
            self.assertIn(text, str(error))
            self.assertIn(self.path, str(error))
        os.remove(self.path)
        error = self.assertRaises(DefinitionError, self.serverOf, FIELDS)
        self.assertIn("write it with storagegate proto", str(error))

    def test_read(self) -> None:
        """What is written is read again."""
        self.assertEqual(ProtoLock.read(self.path).text, self.lock.text)
