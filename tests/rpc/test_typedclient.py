"""The service that a class declares, and the codecs of its instances."""

from typing import Any, Protocol

from msgspec import Struct
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError
from storagegate.rpc.client import createGrpcClient
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.protolock import ProtoLock
from storagegate.rpc.protos import loadProto, protoPath
from storagegate.rpc.schemaprotos import GeneratedMessages
from storagegate.rpc.typedclient import declaredService, typedService
from tests.support.everytype import NOTE, SERVICE, NoteId, Notes, Tag, makeServer


class Plain(Struct):
    """A request without types."""

    id: int


class Loose(Protocol):
    """A service with methods of every form."""

    async def clear(self) -> None: ...

    async def echo(self, request: dict[str, Any]) -> dict[str, Any]: ...

    async def take(self, request: Plain) -> None: ...


class DeclaredTests(SynchronousTestCase):
    """Classes."""

    def test_kinds(self) -> None:
        """The annotations are those of the server, and so are the messages."""
        made = typedService(Notes, SERVICE)
        own = makeServer().services[SERVICE]
        self.assertEqual({*made.methods}, {*own.methods})
        for name, method in made.methods.items():
            self.assertEqual(method.streaming, own.methods[name].streaming, name)
            self.assertEqual(method.path, own.methods[name].path)
            for kind in ("request", "response"):
                mine, theirs = (getattr(each, kind) for each in (method, own.methods[name]))
                self.assertEqual(mine.fullName, theirs.fullName, name)

    def test_instances(self) -> None:
        """Values are instances on both sides."""
        codec = typedService(Notes, SERVICE).methods["Echo"].request
        self.assertEqual(codec.decode(codec.encode(NOTE)), NOTE)
        message = codec.messageClass.FromString(codec.encode(NOTE))
        self.assertEqual(codec.decode(codec.encode(message)), NOTE)
        codec = typedService(Notes, SERVICE).methods["Find"].response
        for value in (Tag("a"), None):
            self.assertEqual(codec.decode(codec.encode(value)), value)

    def test_misfits(self) -> None:
        """A value that does not fit names its field, in both directions."""
        codec = typedService(Notes, SERVICE).methods["Get"].request
        wrong: Any = "x"
        error = self.assertRaises(ConversionError, codec.encode, NoteId(wrong))
        self.assertEqual(str(error), "id: expected int, got str")
        error = self.assertRaises(ConversionError, codec.decode, b"")
        self.assertEqual(str(error), "id: is required")

    def test_loose(self) -> None:
        """Methods without types have dictionaries, and without a result C{None}."""
        made = typedService(Loose, None)
        self.assertEqual(made.name, "Loose")
        echo = made.methods["echo"].request
        self.assertEqual(echo.decode(echo.encode({"a": 1})), {"a": 1})
        self.assertIsNone(made.methods["take"].response.decode(b""))
        self.assertEqual(made.methods["clear"].request.encode({}), b"")

    def test_refused(self) -> None:
        """What declares no service is an error."""

        class Empty:
            """Nothing."""

        class Two:
            """Two requests."""

            async def both(self, a: Plain, b: Plain) -> None: ...

        for types, text in (
            (Empty, "declares no methods"),
            (Two, "takes one request, not 2"),
            ("Notes", "types is the class of a service, not 'Notes'"),
        ):
            error = self.assertRaises(DefinitionError, declaredService, types, None)
            self.assertIn(text, str(error))
        error = self.assertRaises(
            ValueError, createGrpcClient, "x:1", credentials="insecure", protoLock="x"
        )
        self.assertIn("protoLock is the lock of the messages of types", str(error))

    def test_lock(self) -> None:
        """The numbers are those of the lock of the server."""
        definition, _ = declaredService(Notes, SERVICE)
        generated = GeneratedMessages()
        generated.add(definition)
        lock = ProtoLock(self.mktemp())
        files = generated.files("notes.v1")
        [tag] = [each for each in files[0].message_type if each.name == "Tag"]
        tag.field[0].name = "label"
        lock.update(files, generated.packages["notes.v1"].fixed)
        lock.update(generated.files("notes.v1"), (), removals={"Tag.label"})
        lock.write()
        codec = typedService(Notes, SERVICE, lock.path).methods["Find"].response
        self.assertEqual(codec.encode(Tag("a")), b"\n\x03\x12\x01a")

    def test_loaded(self) -> None:
        """A loaded service gives its own messages, and must have the methods."""
        loaded = loadProto(protoPath() / "user.proto").UserService

        class Users(Protocol):
            async def deleteUser(self, wanted: Any) -> Any: ...

        made = typedService(Users, loaded)
        self.assertEqual(made.methods["deleteUser"].path, "/user.UserService/DeleteUser")
        error = self.assertRaises(DefinitionError, typedService, Notes, loaded)
        self.assertIn("user.UserService has no", str(error))
