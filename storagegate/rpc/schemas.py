"""
A service's messages made from its schemas, for services that have no C{.proto} file.

The fields of an object are numbered in the order of its properties, and all have presence::

    {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array",
     "items": {"type": "string"}}}}

    message ProbeEchoRequest { optional string name = 1; repeated string tags = 2; }

What a message has no shape for is one of C{google.protobuf.Struct}, C{ListValue} and C{Value}: an
object without properties, an array in an array, and any other type. A whole request or response
that is a scalar is one of protobuf's wrappers, such as C{google.protobuf.StringValue}.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field
from google.protobuf import struct_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool

from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.rpc.protos import RPCService, serviceOf

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")

# Kinds of schemas that are more than a type; no type has such a name.
_BYTES, _MESSAGE, _ANY = "string as bytes", "object with properties", "anything"

# The types of JSON Schema, and bytes, each with its type in a field and by itself.
_SCALARS = {
    "string": (FieldDescriptorProto.TYPE_STRING, ".google.protobuf.StringValue"),
    "integer": (FieldDescriptorProto.TYPE_INT64, ".google.protobuf.Int64Value"),
    "number": (FieldDescriptorProto.TYPE_DOUBLE, ".google.protobuf.DoubleValue"),
    "boolean": (FieldDescriptorProto.TYPE_BOOL, ".google.protobuf.BoolValue"),
    _BYTES: (FieldDescriptorProto.TYPE_BYTES, ".google.protobuf.BytesValue"),
}

_WELL_KNOWN = (struct_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
_STRUCT, _LIST, _VALUE = (f".google.protobuf.{name}" for name in ("Struct", "ListValue", "Value"))

# Below protobuf's own limit of 100 messages in each other, which no message could pass.
_DEEPEST = 64


def serviceFromSchemas(definition: ServiceDefinition) -> RPCService:
    """
    Make a service of its definition, with messages for the schemas that its methods have.

    A method without a schema takes, or gives, a C{google.protobuf.Struct}.

    @raise DefinitionError: If a name cannot be one in gRPC, or a schema cannot be a message.
    """
    *package, name = definition.name.split(".")
    for part in (*package, name):
        _checkName(part, f"the service {definition.name!r}")
    file = FileDescriptorProto(
        # No file of a user lies there, so that reflection can offer both.
        name=f"schemas/{definition.name}.proto",
        package=".".join(package),
        syntax="proto3",
        dependency=[each.name for each in _WELL_KNOWN],
    )
    service = file.service.add(name=name)
    messages = _Messages(file)
    for key, method in definition.methods.items():
        where = f"{definition.name}.{key}"
        _checkName(key, f"the method {where!r}")
        # With the service's name before it: packages, and servers, have several services.
        stem = f"{name}{key[0].upper()}{key[1:]}"
        service.method.add(
            name=key,
            input_type=messages.top(stem + "Request", method.input, f"the input of {where}"),
            output_type=messages.top(stem + "Response", method.output, f"the output of {where}"),
            client_streaming=method.streamsRequests,
            server_streaming=method.streamsResponses,
        )
    pool = DescriptorPool()
    for each in _WELL_KNOWN:
        pool.AddSerializedFile(each.serialized_pb)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise DefinitionError(f"{definition.name} cannot be a service of gRPC: {error}") from error
    return serviceOf(pool.FindServiceByName(definition.name))


@define
class _Messages:
    """The messages of a file, as they are made."""

    file: FileDescriptorProto
    taken: set[str] = field(factory=set, init=False)

    def top(self, name: str, schema: Mapping[str, Any] | None, where: str) -> str:
        """Give the type of a whole request or response."""
        if schema is None or not ({"type", "properties"} & schema.keys()):
            return _STRUCT
        kind = _kindOf(schema)
        if kind == _MESSAGE:
            name = _unique(name, self.taken)
            self.taken.add(name)
            _fill(self.file.message_type.add(name=name), self._prefix(), schema, where, 1)
            return f"{self._prefix()}.{name}"
        if kind in _SCALARS:
            return _SCALARS[kind][1]
        return _looseType(kind)

    def _prefix(self) -> str:
        return f".{self.file.package}" if self.file.package else ""


def _kindOf(schema: Any) -> str:
    """Tell what a schema is for: a type of JSON Schema, or one of the kinds above."""
    if not isinstance(schema, Mapping):
        return _ANY
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind == "object" and schema.get("properties"):
        return _MESSAGE
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return _BYTES
    return kind if kind in ("object", "array", *_SCALARS) else _ANY


def _looseType(kind: str) -> str:
    return {"object": _STRUCT, "array": _LIST}.get(kind, _VALUE)


def _fill(
    message: DescriptorProto, outer: str, schema: Mapping[str, Any], where: str, depth: int
) -> None:
    """
    Give a message the fields of a schema's properties.

    @param outer: The full name of what the message is in.
    """
    if depth > _DEEPEST:
        raise DefinitionError(f"{where} is more than {_DEEPEST} objects deep")
    properties = schema["properties"]
    if not isinstance(properties, Mapping):
        raise DefinitionError(f"the properties of {where} are a mapping, not {properties!r}")
    full = f"{outer}.{message.name}"
    names = _fieldNames(properties, where)
    # A message in a message must not be called as one of its fields.
    taken = set(names.values())
    for number, (key, value) in enumerate(properties.items(), 1):
        made = message.field.add(
            name=names[key],
            # Handlers see the name that the schema gives, whatever it looks like.
            json_name=key,
            number=number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        inner = value
        if _kindOf(value) == "array":
            made.label = FieldDescriptorProto.LABEL_REPEATED
            inner = value.get("items")
        kind = _kindOf(inner)
        if kind == _MESSAGE:
            name = _unique(_messageName(names[key]), taken)
            taken.add(name)
            _fill(message.nested_type.add(name=name), full, inner, f"{where}.{key}", depth + 1)
            made.type_name = f"{full}.{name}"
        elif kind in _SCALARS:
            made.type = _SCALARS[kind][0]
        else:
            made.type_name = _looseType(kind)
        if made.type_name:
            made.type = FieldDescriptorProto.TYPE_MESSAGE
    _givePresence(message)


def _givePresence(message: DescriptorProto) -> None:
    """Make every single field C{optional}: for that, proto3 has a oneof around each."""
    taken = {each.name for each in message.field}
    for each in message.field:
        if each.label != FieldDescriptorProto.LABEL_REPEATED:
            name = _unique(f"_{each.name}", taken)
            taken.add(name)
            each.proto3_optional = True
            each.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _fieldNames(properties: Mapping[str, Any], where: str) -> dict[str, str]:
    """Give each property's field name: its own one if that can be one, else one like it."""
    camel: dict[str, str] = {}
    names: dict[str, str] = {}
    for key in properties:
        if not isinstance(key, str) or not key or "\0" in key:
            raise DefinitionError(f"{where} has a property {key!r}, which is no name")
        if not _IDENTIFIER.fullmatch(key):
            continue
        other = camel.setdefault(_jsonName(key), key)
        if other != key:
            raise DefinitionError(
                f"{where} has {other!r} and {key!r}, which are the same name in camelCase"
            )
        names[key] = key
    for key in properties:
        if key not in names:
            plain = _FOREIGN.sub("_", key)
            if not _IDENTIFIER.fullmatch(plain):
                plain = f"_{plain}"
            number, name = 1, plain
            while _jsonName(name) in camel:
                number += 1
                name = f"{plain}_{number}"
            camel[_jsonName(name)] = key
            names[key] = name
    return names


def _jsonName(name: str) -> str:
    """Give the name that protobuf itself makes of a field's, for which no two may be the same."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _messageName(fieldName: str) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in fieldName.split("_"))
    return name if _IDENTIFIER.fullmatch(name) else f"M{name}"


def _unique(name: str, taken: Iterable[str]) -> str:
    """Give a name, with a number after it if it is taken."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}{number}"
    return unique


def _checkName(name: str, what: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise DefinitionError(
            f"{what} cannot be served: a name in gRPC has letters, digits and underscores"
        )
