"""What is written of gRPC, held against its code."""

import ast
import datetime
import decimal
import os
import re
import typing
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import fields
from google.protobuf.duration_pb2 import Duration
from google.rpc.status_pb2 import Status
from msgspec import Meta, defstruct
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from storagegate import rpc, server
from storagegate.core.context import REQUEST_SECONDS
from storagegate.core.definitions import ServiceMethod, readService
from storagegate.core.errors import GrpcError, ServiceError, asGrpcError
from storagegate.core.options import OptionError, changeOptions
from storagegate.net.tls import ServerTLSOptions
from storagegate.rpc import client, status
from storagegate.rpc.call import READ_AHEAD, Call, CallMetadata
from storagegate.rpc.clientcall import ClientCall
from storagegate.rpc.codec import codecOf
from storagegate.rpc.converters import DEPTH_LIMIT
from storagegate.rpc.engine import base
from storagegate.rpc.middleware import MAX_TOKEN
from storagegate.rpc.options import CompressionOptions, GRPCServerOptions, RPCOptions
from storagegate.rpc.protos import loadProto, protoPath
from storagegate.rpc.prototext import protoText
from storagegate.rpc.schemaprotos import GeneratedMessages
from storagegate.rpc.typedclient import TypedGrpcClient
from storagegate.services.users import makeUserService
from tests.support import everytype
from tests.support.documents import DOCS, codeBlocks, literal, runBlocks, table
from tests.support.signatures import attributeDefaults, defaults, firstWords, publicNames

PAGE = DOCS / "grpc.rst"

# What each kind of value may be, twice, and something near it that it may not.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "algorithm": ("gzip", "deflate", "br"),
    "flag": (True, False, 1),
    "engine": ("native", "grpcio", "aio"),
    "level": (9, 1, 10),
    "milliseconds": (1500, 1600, "1500"),
    "number": (8080, 8081, "8080"),
    "path": ("a.lock", "b.lock", 5),
    "size": ("2kb", "3kb", "1 stone"),
}

# What the wire and other parts call, and no user's business.
SERVERS_PARTS = {"hostPort", "middleware", "ports"}
CALLS_PARTS = {"abandon", "begin", "fail", "takeNext"}
CLIENTS_PARTS = {"findMethod", "invoke"}
GATEWAYS_PARTS = {"authentication", "rateLimit", "describe"}

# What is made of annotations.
MODELS = {"inputType", "outputType"}

PROTO = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color {{ NONE = 0; RED = 1; BLUE = 2; }}
message Point {{ int32 x = 1; int32 y = 2; }}
message Holder {{ {type} field = 1; }}
"""


TYPES = {1: "double", 3: "int64", 8: "bool", 9: "string", 12: "bytes"}
"""Types of fields by their numbers in a descriptor."""


class ValidationError(Exception):
    """Of some library that checks things."""


class DatabaseError(Exception):
    """Of some database."""


def evaluate(cell: str, **names: Any) -> Any:
    """Give the value that a cell of Python shows."""
    return eval(literal(cell), names)


def named(details: Any) -> Any:
    """Give a detail with its type's name in place of the whole URL."""
    if isinstance(details, dict) and "@type" in details:
        return {**details, "@type": details["@type"].rpartition("/")[2]}
    return details


class OptionTests(SynchronousTestCase):
    """The options of everything that has some."""

    def check(self, title: str, expected: list[list[str]]) -> None:
        """Hold names and defaults against the code."""
        rows = [[literal(row[0]), row[1]] for row in table(PAGE, title)]
        self.assertEqual(rows, expected, title)

    def test_application(self) -> None:
        """The table has exactly the options of an application, in their order, with defaults."""
        rows = table(PAGE, "Application options")
        found = [[literal(row[0]), row[2]] for row in rows]
        expected = [
            [name, "" if name == "grpc" else default]
            for name, default in attributeDefaults(RPCOptions)
        ]
        self.assertEqual(found, expected)

    def test_grpc(self) -> None:
        """That of gRPC has those, with defaults and with what the library calls them."""
        expected = dict(attributeDefaults(GRPCServerOptions))
        del expected["compressionOptions"]
        for name, default in attributeDefaults(CompressionOptions):
            expected[f"compressionOptions.{name}"] = default
        rows = table(PAGE, "gRPC options")
        self.assertEqual({literal(row[0]): row[2] for row in rows}, expected)
        for name, kind, _, keys, _ in rows:
            told = [self.argumentsWith(literal(name), value) for value in KINDS[kind][:2]]
            changed = {key for key, _ in told[0] ^ told[1]}
            self.assertEqual(changed, set(literal(keys).split()), name)

    def argumentsWith(self, name: str, value: Any) -> set[tuple[str, int]]:
        """Give what the library is told if an option has a value."""
        changed = changeOptions(RPCOptions(), {"grpc": self.nested(name, value)})
        return set(changed.grpc.channelArguments())

    def nested(self, name: str, value: Any) -> dict[str, Any]:
        """Give the mapping that says an option, whose name may have a dot."""
        name, _, part = name.partition(".")
        return {name: {part: value} if part else value}

    def test_values(self) -> None:
        """Each takes the values that the table says, and refuses others by its name."""
        for cell, kind, *_ in table(PAGE, "gRPC options"):
            options = self.nested(literal(cell), KINDS[kind][2])
            error = self.assertRaises(OptionError, server.grpc().withOptions, grpc=options)
            self.assertIn(literal(cell), str(error))

    def test_tls(self) -> None:
        """The table has the options of TLS."""
        expected = [
            [a.name, "required" if a.name in ("cert", "key") else f"``{a.default!r}``"]
            for a in fields(ServerTLSOptions)
        ]
        self.check("TLS options", expected)

    def test_client(self) -> None:
        """The tables have what a client, its connection and its calls take."""
        self.check("Options of createGrpcClient", defaults(client.createGrpcClient))
        ours = dict(attributeDefaults(GRPCServerOptions))
        self.check("Client options", [[name, ours[name]] for name in client._OPTIONS])
        taken = [row for row in defaults(client.MethodCaller.__call__) if row[0] != "request"]
        self.check("Options of a call", [row for row in taken if row[0] != "fields"])

    def test_middleware(self) -> None:
        """Every middleware has a table of exactly its options, in their order, with defaults."""
        clocks = {"``<built-in function time>``": "``time.time``"}
        clocks["``<built-in function monotonic>``"] = "``time.monotonic``"
        for name in ("authentication", "rateLimit", "requestLog", "errorHandler"):
            expected = [
                [option, clocks.get(default, default)]
                for option, default in defaults(getattr(rpc, name))
            ]
            self.check(f"Options of {name}", expected)


class MemberTests(SynchronousTestCase):
    """The tables of members: none is missing, and none is promised that is not there."""

    def check(self, title: str, expected: Iterable[str]) -> None:
        """Hold a table of members against the code."""
        self.assertEqual(sorted(firstWords(table(PAGE, title))), sorted(expected), title)

    def test_application(self) -> None:
        """Every member of an application."""
        self.check("Application", publicNames(server.grpc()) - SERVERS_PARTS)

    def test_call(self) -> None:
        """Every member of a call and of metadata, and every key of a method."""
        wire: Any = type("Wire", (), {"deadline": None})()
        self.check("Call", publicNames(Call(wire, "Probe", "echo")))
        self.check("Metadata", {name for name in dir(CallMetadata) if name[0] != "_"})
        methods = {attribute.name for attribute in fields(ServiceMethod)}
        self.check("Method", methods - GATEWAYS_PARTS - MODELS)

    def test_client(self) -> None:
        """Every member of a client and of its calls."""
        members = {name for name in dir(client.GrpcClient) if name[0] != "_"}
        self.check("Client", members - CLIENTS_PARTS)
        members = {name for name in dir(TypedGrpcClient) if name[0] != "_"}
        self.check("A typed client", members | {"calls"})
        members = {name for name in dir(ClientCall) if name[0] != "_"}
        self.check("A call of the client", members - CALLS_PARTS)


class ValueTests(SynchronousTestCase):
    """The tables of what becomes of values."""

    def test_types(self) -> None:
        """Each type is seen as the table says, and takes what it says besides."""
        path = os.path.join(self.mktemp(), "types.proto")
        os.mkdir(os.path.dirname(path))
        for kind, seen, given in table(PAGE, "Types"):
            with open(path, "w") as file:
                file.write(PROTO.format(type=literal(kind)))
            loaded = loadProto(path)
            names = {
                "Point": loaded.Point,
                "UTC": datetime.UTC,
                "datetime": datetime.datetime,
                "timedelta": datetime.timedelta,
            }
            codec = codecOf(loaded.Holder)
            value = evaluate(seen)
            wire = codec.encode({"field": value})
            self.assertEqual(codec.decode(wire), {"field": value}, kind)
            self.assertIs(type(codec.decode(wire)["field"]), type(value), kind)
            if given:
                self.assertEqual(codec.encode({"field": evaluate(given, **names)}), wire, kind)

    def test_schemas(self) -> None:
        """Each schema makes a field of the type that the table says."""
        for cell, expected in table(PAGE, "Schemas"):
            schema = {"type": "object", "properties": {"a": ast.literal_eval(literal(cell))}}
            app = server.grpc()
            app.addService("Probe", {"echo": {"handler": lambda request: {}, "input": schema}})
            method = app.services["Probe"].methods["echo"]
            field: Any = method.request.messageClass.DESCRIPTOR.fields_by_name["a"]
            label = "repeated" if field.is_repeated else "optional"
            self.assertTrue(field.is_repeated or field.has_presence)
            if field.message_type is None:
                name = f"{label} {TYPES[field.type]}"
            else:
                name = f"{label} {field.message_type.full_name}"
            if expected == "a message of its own":
                expected = "``optional ProbeEchoRequest.A``"
            self.assertEqual(name, literal(expected), cell)

    def test_fields(self) -> None:
        """Each type is the field that the table says."""
        names = {**vars(typing), **vars(everytype), "Meta": Meta}
        names |= {"time": datetime.time, "date": datetime.date, "datetime": datetime.datetime}
        names |= {"timedelta": datetime.timedelta, "UUID": uuid.UUID, "Decimal": decimal.Decimal}
        for cell, expected, _ in table(PAGE, "Types of fields"):
            model = defstruct("Holder", [("field", evaluate(cell, **names))])
            generated = GeneratedMessages()
            method = {"handler": lambda request: None, "input": model}
            generated.add(readService({"name": "Probe", "methods": {"take": method}}))
            text = protoText(generated.files(""), {})
            begin = text.index("message Holder {\n") + len("message Holder {\n")
            found = " ".join(text[begin : text.index("\n}", begin)].split())
            found = re.sub(r" = \d+;", ",", found).replace(", }", " }").rstrip(",")
            line = literal(expected)
            self.assertEqual(found, line if "{" in line else f"{line} field", cell)

    def test_raised(self) -> None:
        """Whatever is raised ends a call with the status and the message that the table says."""
        names = {
            "GrpcError": GrpcError,
            "ServiceError": ServiceError,
            "ValidationError": ValidationError,
            "DatabaseError": DatabaseError,
            "CancelledError": lambda: CancelledError(),
        }
        for raised, name, message in table(PAGE, "Raised"):
            error = asGrpcError(evaluate(raised, **names))
            self.assertEqual((error.statusName, error.message), (literal(name), literal(message)))

    def test_details(self) -> None:
        """Details become the messages that the table says, and come back as they were."""
        for cell, kinds in table(PAGE, "Details"):
            given = evaluate(cell, Duration=Duration)
            wire = status.encodeDetails(GrpcError("ABORTED", "", given))
            assert wire is not None
            packed = [each.type_url.rpartition("/")[2] for each in Status.FromString(wire).details]
            self.assertEqual([f"``{kind}``" for kind in packed], kinds.split(", "), cell)
            if isinstance(given, str | list | dict) and len(packed) == 1:
                self.assertEqual(named(status.decodeDetails(wire)), given)


class LimitTests(SynchronousTestCase):
    """The numbers."""

    def test_waiting(self) -> None:
        """What may be waiting in a call is what the code has."""
        rows = [[literal(cell) for cell in row[1:]] for row in table(PAGE, "Waiting")]
        outgoing = [base.OUTGOING_MESSAGES, base.OUTGOING_BYTES]
        expected = [outgoing, [READ_AHEAD, ""], [READ_AHEAD, ""], ["", base.QUEUE_BYTES]]
        self.assertEqual(rows, [[str(each) for each in row] for row in expected])

    def test_limits(self) -> None:
        """The limits that have no option are those of the code."""
        text = {row[0]: row[1] for row in table(PAGE, "Limits")}
        self.assertEqual(text["how deep messages nest"], f"{DEPTH_LIMIT}")
        self.assertEqual(text["the message of a status"], f"{status.MESSAGE_LENGTH} bytes")
        seconds = f"{REQUEST_SECONDS:.0f} seconds"
        self.assertEqual(text["how long a request may take to arrive"], seconds)
        self.assertEqual(text["the details of an error"], f"{status.MAX_DETAILS} bytes")
        self.assertEqual(text["a token for ``authentication``"], f"{MAX_TOKEN} characters")
        self.assertEqual(
            text["calls at a time"].split()[-1], f"{GRPCServerOptions().maxConcurrentRpcs}"
        )


class DaemonTests(SynchronousTestCase):
    """What the daemon serves."""

    def test_users(self) -> None:
        """The table has the methods of the users' service, in their order, with their kinds."""
        store: Any = None
        definition = makeUserService(store)
        expected = [[name, method.streaming] for name, method in definition.methods.items()]
        rows = [[literal(name), literal(kind)] for name, kind, _ in table(PAGE, "UserService")]
        self.assertEqual(rows, expected)
        proto = loadProto(protoPath() / "user.proto").UserService
        self.assertEqual([name for name, _ in rows], list(proto.methods))


class MigrationTests(SynchronousTestCase):
    """The page for those who know grpc.aio."""

    def test_blocks(self) -> None:
        """Its programs serve the file that it shows, and its sessions print what it says."""
        page = DOCS / "grpcaio.rst"
        [proto] = codeBlocks(page, "proto")
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "shop.proto").write_text(proto.code)
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(folder)
        names = runBlocks(page)
        self.assertEqual(names["app"].settings.grpc.keepaliveTimeMs, 30_000)
