"""Values of handlers over every transport: a proto or a schema declares them, once for all."""

import json
from datetime import datetime
from math import inf, nan
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import ServiceError, createProtocolGateway
from storagegate.core.definitions import DefinitionError
from storagegate.daemon.gatewayservice import configureGateway
from storagegate.gateway.testing import GatewayClient

TRANSPORTS = ("http", "websocket", "tcp", "udp", "grpc")

PROTO = """
syntax = "proto3";
package table;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 2; }
message Inner { int64 long_id = 1; bytes raw = 2; }
message Row {
  int32 int32_field = 1; sint32 sint32_field = 2; sfixed32 sfixed32_field = 3;
  uint32 uint32_field = 4; fixed32 fixed32_field = 5;
  int64 int64_field = 6; sint64 sint64_field = 7; sfixed64 sfixed64_field = 8;
  uint64 uint64_field = 9; fixed64 fixed64_field = 10;
  float float_field = 11; double double_field = 12; bool bool_field = 13;
  string string_field = 14; bytes bytes_field = 15; Color color_field = 16;
  optional int32 present = 17;
  oneof one { string text_choice = 18; Inner inner_choice = 19; }
  map<string, int64> by_text = 20; map<int32, string> by_id = 21; map<int64, Inner> by_long = 22;
  map<bool, bytes> by_flag = 23; map<uint32, double> by_unsigned = 24;
  repeated int64 longs = 25; repeated double doubles = 26; repeated bytes blobs = 27;
  repeated Color colors = 28; repeated Inner inners = 29;
  google.protobuf.Int64Value long_wrapper = 30; google.protobuf.BytesValue bytes_wrapper = 31;
  google.protobuf.BoolValue bool_wrapper = 32; google.protobuf.DoubleValue double_wrapper = 33;
  google.protobuf.StringValue text_wrapper = 34;
  google.protobuf.Timestamp moment = 35; google.protobuf.Duration length = 36;
  google.protobuf.Struct struct = 37; google.protobuf.Value value = 38;
  google.protobuf.ListValue list = 39; google.protobuf.Any any = 40;
  google.protobuf.FieldMask mask = 41; Address address = 42;
}
message Address { string address_line_1 = 1; }
service Table {
  rpc Echo (Row) returns (Row);
  rpc Each (stream Row) returns (stream Row);
}
"""

TABLE: list[tuple[Any, Any]] = [
    *(({f"{name}Field": 7}, {f"{name}Field": 7}) for name in ("int32", "uint32", "fixed32")),
    *(({f"{name}Field": -7}, {f"{name}Field": -7}) for name in ("sint32", "sfixed32")),
    *(
        ({f"{name}Field": -(2**53) - 1}, {f"{name}Field": str(-(2**53) - 1)})
        for name in ("int64", "sint64", "sfixed64")
    ),
    *(({f"{n}Field": 2**64 - 1}, {f"{n}Field": str(2**64 - 1)}) for n in ("uint64", "fixed64")),
    *(
        ({f"{name}Field": number}, {f"{name}Field": text})
        for name in ("float", "double")
        for number, text in ((0.5, 0.5), (nan, "NaN"), (inf, "Infinity"), (-inf, "-Infinity"))
    ),
    ({"boolField": True}, {"boolField": True}),
    ({"stringField": "é"}, {"stringField": "é"}),
    ({"bytesField": b"\xff\x00"}, {"bytesField": "/wA="}),
    ({"colorField": "BLUE"}, {"colorField": "BLUE"}),
    ({"colorField": 9}, {"colorField": 9}),
    ({"present": 0}, {"present": 0}),
    ({"textChoice": ""}, {"textChoice": ""}),
    ({"innerChoice": {"longId": 1}}, {"innerChoice": {"longId": "1"}}),
    ({"byText": {"a": 1}}, {"byText": {"a": "1"}}),
    ({"byId": {7: "x"}}, {"byId": {"7": "x"}}),
    ({"byLong": {-7: {"raw": b"r"}}}, {"byLong": {"-7": {"raw": "cg=="}}}),
    ({"byFlag": {True: b"r"}}, {"byFlag": {"true": "cg=="}}),
    ({"byFlag": {False: b""}}, {"byFlag": {"false": ""}}),
    ({"byUnsigned": {7: nan}}, {"byUnsigned": {"7": "NaN"}}),
    ({"longs": [1, 2**60]}, {"longs": ["1", str(2**60)]}),
    ({"doubles": [1.5, inf]}, {"doubles": [1.5, "Infinity"]}),
    ({"blobs": [b"r", b""]}, {"blobs": ["cg==", ""]}),
    ({"colors": ["RED", "BLUE", 9]}, {"colors": ["RED", "BLUE", 9]}),
    ({"inners": [{"longId": 1}, {}]}, {"inners": [{"longId": "1"}, {}]}),
    ({"longWrapper": 0}, {"longWrapper": "0"}),
    ({"bytesWrapper": b"r"}, {"bytesWrapper": "cg=="}),
    ({"boolWrapper": False}, {"boolWrapper": False}),
    ({"doubleWrapper": nan}, {"doubleWrapper": "NaN"}),
    ({"textWrapper": ""}, {"textWrapper": ""}),
    ({"moment": "2026-01-02T03:04:05.500Z"}, {"moment": "2026-01-02T03:04:05.500Z"}),
    ({"length": "-1.500s"}, {"length": "-1.500s"}),
    ({"struct": {"a": [1.5, None, {"b": 0.5}]}}, {"struct": {"a": [1.5, None, {"b": 0.5}]}}),
    ({"value": None}, {"value": None}),
    ({"value": [True]}, {"value": [True]}),
    ({"list": ["a", 1.5]}, {"list": ["a", 1.5]}),
    (
        {"any": {"@type": "type.googleapis.com/table.Inner", "longId": 1, "raw": b"r"}},
        {"any": {"@type": "type.googleapis.com/table.Inner", "longId": "1", "raw": "cg=="}},
    ),
    (
        {"any": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "2s"}},
        {"any": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "2s"}},
    ),
    (
        {
            "any": {
                "@type": "type.googleapis.com/google.protobuf.Any",
                "value": {"@type": "type.googleapis.com/table.Inner", "raw": b"r"},
            }
        },
        {
            "any": {
                "@type": "type.googleapis.com/google.protobuf.Any",
                "value": {"@type": "type.googleapis.com/table.Inner", "raw": "cg=="},
            }
        },
    ),
    (
        {"any": {"@type": "type.googleapis.com/of.none", "value": b"r"}},
        {"any": {"@type": "type.googleapis.com/of.none", "value": "cg=="}},
    ),
    ({"mask": "name,address.zipCode"}, {"mask": "name,address.zipCode"}),
    ({"mask": "addressLine1,address_line_2"}, {"mask": "addressLine1,address_line_2"}),
    ({"floatField": 0.10000000149011612}, {"floatField": 0.1}),
]
"""The value of the handler, and its JSON."""


class ValueCase(SynchronousTestCase):
    """Calls of one gateway over each transport."""

    def serve(self, methods: dict[str, Any], **grpc: Any) -> None:
        """Serve methods."""
        gateway = createProtocolGateway(tcp={}, udp={}, websocket={}).configureGRPC(grpc)
        gateway.addService("Table", {"methods": methods})
        self.client = GatewayClient(gateway)
        self.connections: dict[str, Any] = {}

    def ask(self, transport: str, method: str, request: Any) -> Any:
        """Call a method, and return its result."""
        if transport not in self.connections:
            self.connections[transport] = self.client.connect(transport)
        connection = self.connections[transport]
        if transport != "http":
            # Replies of UDP are in proportion to requests.
            padded = {"padding": "x" * 600} if transport == "udp" else {}
            return connection.call("Table", method, request, **padded)
        response = connection.post(f"/api/Table/{method}", json=request)
        if response.status != 200:
            found = response.json()
            raise ServiceError(found["error"], found["message"], response.status)
        return response.json()["data"]


class ProtoTests(ValueCase):
    """A proto declares the values of a method without schemas."""

    def setUp(self) -> None:
        """Serve methods that return their requests."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(PROTO, encoding="utf-8")
        self.seen: list[Any] = []
        self.result: Any = None

        def echo(request: Any) -> Any:
            self.seen.append(request)
            return request if self.result is None else self.result

        async def each(requests: Any) -> Any:
            async for request in requests:
                self.seen.append(request)
                yield request

        self.serve(
            {"echo": echo, "each": {"handler": each, "streaming": "bidirectional"}},
            protoFiles=[str(file.absolute())],
            services={"table.Table": "Table"},
        )

    def test_table(self) -> None:
        """Handlers see the same value over all transports, and return it."""
        for value, text in TABLE:
            for transport in TRANSPORTS:
                found = self.ask(transport, "echo", value if transport == "grpc" else text)
                case = (transport, value)
                # The representation, because NaN equals nothing, and True equals 1.
                self.assertEqual(repr(self.seen.pop()), repr(value), case)
                wanted = value if transport == "grpc" else text
                self.assertEqual(json.dumps(found, default=repr), json.dumps(wanted, default=repr))

    def test_spellings(self) -> None:
        """JSON may spell a value in each way that proto3's mapping reads."""
        for text, value in (
            ({"by_id": {"7": "x"}}, {"byId": {7: "x"}}),
            ({"int64Field": 7}, {"int64Field": 7}),
            ({"int32Field": "7"}, {"int32Field": 7}),
            ({"int32Field": 7.0}, {"int32Field": 7}),
            ({"int32Field": 0, "longs": []}, {}),
            ({"bytesField": "_w"}, {"bytesField": b"\xff"}),
            ({"doubleField": 1}, {"doubleField": 1.0}),
            ({"colorField": 2}, {"colorField": "BLUE"}),
            ({"nothing": 1, "boolField": True}, {"boolField": True}),
        ):
            for transport in TRANSPORTS[:4]:
                self.ask(transport, "echo", text)
                self.assertEqual(repr(self.seen.pop()), repr(value), (transport, text))

    def test_notChanged(self) -> None:
        """A value that would be changed or dropped is refused over all transports alike."""
        for text, path in (
            ({"struct": {"n": [1, 2**60 + 1]}}, "struct.n[1]"),
            ({"colorField": "NOPE"}, ""),
            ({"unknown": 1, "colors": ["RED", "NOPE"]}, "colors[1]"),
            ({"bytesField": "no base64!"}, "bytesField"),
        ):
            for transport in TRANSPORTS[:4]:
                error = self.assertRaises(ServiceError, self.ask, transport, "echo", text)
                self.assertEqual(error.code, "VALIDATION_ERROR", (transport, text))
                self.assertIn(path, error.message)
        self.assertEqual(self.seen, [])
        for transport in TRANSPORTS[:4]:
            self.ask(transport, "echo", {"unknown": {"a": 1}, "struct": {"n": 2**53}})

    def test_fullName(self) -> None:
        """A service with the full name of the proto's service needs no mapping."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(PROTO, encoding="utf-8")
        options = {"protoFiles": [str(file.absolute())]}
        gateway = createProtocolGateway(protocols=["grpc"], grpc=options)
        gateway.addService("table.Table", {"methods": {"echo": lambda request: request}})
        connection = GatewayClient(gateway).connect("grpc")
        # Without the proto's messages it would be a number of a Struct.
        value = {"int64Field": (1 << 60) + 1}
        self.assertEqual(connection.call("table.Table", "echo", value), value)

    def test_unanswered(self) -> None:
        """A file none of whose services is answered is an error that names what to write."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(PROTO, encoding="utf-8")
        options = {"protoFiles": [str(file.absolute())]}
        gateway = createProtocolGateway(protocols=["grpc"], grpc=options)
        gateway.addService("Table", {"methods": {"echo": lambda request: request}})
        error = self.assertRaises(DefinitionError, GatewayClient, gateway)
        self.assertIn('grpc.services = {"table.Table": "NAME"}', str(error))
        self.assertTrue(str(error).endswith("services: Table"), error)

    def test_unansweredMapping(self) -> None:
        """A mapping to a service that the gateway does not have is an error that names it."""
        gateway = createProtocolGateway(protocols=["grpc"], grpc=self.options("Tabel"))
        gateway.addService("table.Table", {"methods": {"echo": lambda request: request}})
        error = self.assertRaises(DefinitionError, GatewayClient, gateway)
        self.assertEqual(
            str(error),
            "grpc.services maps table.Table to Tabel, but the gateway has no service Tabel;"
            " its services: table.Table",
        )
        # The daemon adds its own services after the start.
        gateway.awaited = frozenset({"Tabel"})
        GatewayClient(gateway)

    def test_unansweredBeside(self) -> None:
        """So is a service beside an answered one that the gateway has without its package."""
        options = self.options("Table", more="service Other { rpc echo(Inner) returns (Inner); }")
        gateway = createProtocolGateway(protocols=["grpc"], grpc=options)
        for name in ("Table", "Elsewhere"):
            gateway.addService(name, {"methods": {"echo": lambda request: request}})
        GatewayClient(gateway)
        gateway = createProtocolGateway(protocols=["grpc"], grpc=options)
        for name in ("Table", "Other"):
            gateway.addService(name, {"methods": {"echo": lambda request: request}})
        error = self.assertRaises(DefinitionError, GatewayClient, gateway)
        self.assertIn('grpc.services = {"table.Other": "NAME"}', str(error))

    def options(self, name: str, more: str = "") -> dict[str, Any]:
        """Return options with the proto and further definitions; its service is of a name."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(PROTO + more, encoding="utf-8")
        return {"protoFiles": [str(file.absolute())], "services": {"table.Table": name}}

    def test_closedEnums(self) -> None:
        """A number that a closed enum lacks keeps its place in a list over all transports."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(
            'syntax = "proto2"; package old; enum Size { SMALL = 1; LARGE = 2; }'
            " message Row { repeated Size sizes = 1; optional Size size = 2; }"
            " service Table { rpc Echo (Row) returns (Row); }",
            encoding="utf-8",
        )
        options = {"protoFiles": [str(file.absolute())], "services": {"old.Table": "Table"}}
        self.serve({"echo": lambda request: request}, **options)
        value = {"sizes": ["SMALL", 99, "LARGE"], "size": -5}
        for transport in TRANSPORTS:
            self.assertEqual(self.ask(transport, "echo", value), value, transport)

    def test_conversion(self) -> None:
        """Options keep unknown fields over gRPC, and take a datetime without a zone as UTC."""

        def noon(request: Any) -> Any:
            self.seen.append(request)
            return {"moment": datetime(2026, 1, 2, 12)}

        request = {"stringField": "a", "@unknown": b"\xc0>\x05"}
        gateway = createProtocolGateway(protocols=["grpc", "http"])
        options = {**self.options("Table"), "keepUnknown": True, "naive": "utc"}
        configureGateway(gateway, {"grpc": options})
        gateway.addService("Table", {"methods": {"echo": noon}})
        self.client, self.connections = GatewayClient(gateway), {}
        for transport, seen in (("grpc", request), ("http", {"stringField": "a"})):
            sent = {**request, "@unknown": "wD4F"} if transport == "http" else request
            found = self.ask(transport, "echo", sent)
            self.assertEqual(found, {"moment": "2026-01-02T12:00:00Z"})
            self.assertEqual(self.seen.pop(), seen)

    def test_streams(self) -> None:
        """The items of streams are values of the same form."""
        for transport in ("websocket", "tcp", "udp", "grpc"):
            isTyped = transport == "grpc"
            padded = {"padding": "x" * 600} if transport == "udp" else {}
            call = self.client.connect(transport).start("Table", "each", None, **padded)
            call.send({"byId": {7 if isTyped else "7": "x"}, "int64Field": 1 if isTyped else "1"})
            call.end()
            self.assertEqual(self.seen.pop(), {"byId": {7: "x"}, "int64Field": 1}, transport)
            wanted: Any = {"byId": {7: "x"}, "int64Field": 1}
            if not isTyped:
                wanted = {"byId": {"7": "x"}, "int64Field": "1"}
            self.assertEqual(call.items, [wanted], transport)

    def test_unfit(self) -> None:
        """A request that is no message is refused with its reason, and runs nothing."""
        for request in (
            {"int32Field": 2**31},
            {"int32Field": "a"},
            {"innerChoice": 5},
            {"longs": 5},
            {"textChoice": "a", "innerChoice": {}},
            {"any": {"@type": "type.googleapis.com/of.none"}},
        ):
            for transport in TRANSPORTS[:4]:
                with self.assertRaises(ServiceError) as raised:
                    self.ask(transport, "echo", request)
                self.assertEqual(raised.exception.code, "VALIDATION_ERROR", (transport, request))
        self.assertEqual(self.seen, [])

    def test_unfitResult(self) -> None:
        """A result that is no message is an error of the server, and its value stays private."""
        for self.result in ({"nothing": "secret"}, {"int32Field": "secret"}, {"byId": {"s": "x"}}):
            for transport in TRANSPORTS:
                with self.assertRaises(Exception) as raised:
                    self.ask(transport, "echo", {})
                self.assertNotIn("secret", str(raised.exception))
        errors = self.flushLoggedErrors(ValueError)
        self.assertTrue(errors)
        self.assertNotIn("secret", "".join(str(each.value) for each in errors[:8]))


class SchemaTests(ValueCase):
    """A schema declares the values of a method, without a proto."""

    def setUp(self) -> None:
        """Serve a method that returns its request."""
        self.seen: list[Any] = []

        def echo(request: Any) -> Any:
            self.seen.append(request)
            return request

        number = {"type": "number"}
        schema = {
            "type": "object",
            "properties": {
                "number": {"type": "number", "minimum": -5},
                "plain": number,
                "raw": {"type": "string", "contentEncoding": "base64"},
                "list": {"type": "array", "items": number},
                "inner": {"type": "object", "properties": {"number": number}},
                "integer": {"type": "integer"},
                "by_id": {"type": "string"},
            },
        }
        only = {"type": "object", "properties": {"number": number}}
        self.serve(
            {
                "echo": {"handler": echo, "input": schema, "output": schema},
                "plain": {"handler": echo, "input": only, "output": only},
            }
        )

    def test_table(self) -> None:
        """Numbers, bytes and names are alike on all transports."""
        for value, text in (
            *(
                ({"number": number}, {"number": name})
                for number, name in ((nan, "NaN"), (inf, "Infinity"), (0.5, 0.5))
            ),
            ({"plain": -inf}, {"plain": "-Infinity"}),
            ({"raw": b"\xff"}, {"raw": "/w=="}),
            ({"list": [0.5, nan]}, {"list": [0.5, "NaN"]}),
            ({"inner": {"number": inf}}, {"inner": {"number": "Infinity"}}),
            ({"integer": 2**60}, {"integer": 2**60}),
            ({"by_id": "a"}, {"by_id": "a"}),
        ):
            for transport in TRANSPORTS:
                wanted = value if transport == "grpc" else text
                found = self.ask(transport, "echo", wanted)
                self.assertEqual(repr(self.seen.pop()), repr(value), (transport, value))
                self.assertEqual(repr(found), repr(wanted), (transport, value))

    def test_plain(self) -> None:
        """A schema of types alone has the same numbers."""
        for transport in TRANSPORTS:
            value: Any = nan if transport == "grpc" else "NaN"
            found = self.ask(transport, "plain", {"number": value})
            self.assertEqual(
                (repr(found), repr(self.seen)), (repr({"number": value}), "[{'number': nan}]")
            )
            self.seen.clear()

    def test_otherTexts(self) -> None:
        """No other text is a number."""
        for text in ("nan", "inf", "1", ""):
            with self.assertRaises(ServiceError) as raised:
                self.ask("http", "echo", {"number": text})
            self.assertEqual(raised.exception.code, "VALIDATION_ERROR")
