"""
Services of gRPC from the schemas of a service definition.

A service without a C{.proto} file gets messages generated from its schemas. The fields of an
object are numbered in the order of its properties, and all have presence::

    {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array",
     "items": {"type": "string"}}}}

    message ProbeEchoRequest { optional string name = 1; repeated string tags = 2; }

Types that no message can express become C{google.protobuf.Struct} (an object without properties),
C{ListValue} (an array in an array) or C{Value} (any other type). A scalar request or response
becomes one of protobuf's wrappers, such as C{google.protobuf.StringValue}.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

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

# Kinds of schemas in addition to the types of JSON Schema, under names that no type has.
_BYTES, _MESSAGE, _ANY = "string as bytes", "object with properties", "anything"

# The types of JSON Schema, and bytes, each with its field type and its top-level type.
_SCALARS = {
    "string": (FieldDescriptorProto.TYPE_STRING, ".google.protobuf.StringValue"),
    "integer": (FieldDescriptorProto.TYPE_INT64, ".google.protobuf.Int64Value"),
    "number": (FieldDescriptorProto.TYPE_DOUBLE, ".google.protobuf.DoubleValue"),
    "boolean": (FieldDescriptorProto.TYPE_BOOL, ".google.protobuf.BoolValue"),
    _BYTES: (FieldDescriptorProto.TYPE_BYTES, ".google.protobuf.BytesValue"),
}

_WELL_KNOWN = (struct_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
_STRUCT, _LIST, _VALUE = (f".google.protobuf.{name}" for name in ("Struct", "ListValue", "Value"))

# Below protobuf's own limit of 100 nested messages.
_DEEPEST = 64


def serviceFromSchemas(definition: ServiceDefinition) -> RPCService:
    """
    Make a service from its definition, with messages for the schemas of its methods.

    A method without a schema uses C{google.protobuf.Struct}.

    @raise DefinitionError: If a name is invalid in gRPC, or a schema cannot become a message.
    """
    *package, name = definition.name.split(".")
    for part in (*package, name):
        _checkName(part, f"the service {definition.name!r}")
    file = FileDescriptorProto(
        # A folder that users' files do not use, so that reflection can serve both.
        name=f"schemas/{definition.name}.proto",
        package=".".join(package),
        syntax="proto3",
        dependency=[each.name for each in _WELL_KNOWN],
    )
    service = file.service.add(name=name)
    for key, method in definition.methods.items():
        where = f"{definition.name}.{key}"
        _checkName(key, f"the method {where!r}")
        # Prefixed with the service's name: a package or server may have several services.
        stem = f"{name}{key[0].upper()}{key[1:]}"
        service.method.add(
            name=key,
            input_type=_topType(file, stem + "Request", method.input, f"the input of {where}"),
            output_type=_topType(file, stem + "Response", method.output, f"the output of {where}"),
            client_streaming=method.streamsRequests,
            server_streaming=method.streamsResponses,
        )
    pool = DescriptorPool()
    for each in _WELL_KNOWN:
        pool.AddSerializedFile(each.serialized_pb)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise DefinitionError(f"{definition.name} cannot be a gRPC service: {error}") from error
    return serviceOf(pool.FindServiceByName(definition.name))


def _topType(
    file: FileDescriptorProto, name: str, schema: Mapping[str, Any] | None, where: str
) -> str:
    """Return the type of a whole request or response; add its message to the file."""
    if schema is None or not ({"type", "properties"} & schema.keys()):
        return _STRUCT
    kind = _kindOf(schema)
    if kind == _MESSAGE:
        name = _unique(name, [each.name for each in file.message_type])
        prefix = f".{file.package}" if file.package else ""
        _fill(file.message_type.add(name=name), prefix, schema, where, 1)
        return f"{prefix}.{name}"
    return _SCALARS[kind][1] if kind in _SCALARS else _looseType(kind)


def _kindOf(schema: Any) -> str:
    """Return the kind of a schema: a type of JSON Schema, or one of the kinds above."""
    if not isinstance(schema, Mapping):
        return _ANY
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind == "object" and schema.get("properties"):
        return _MESSAGE
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return _BYTES
    return kind if kind in ("object", "array", *_SCALARS) else _ANY


def _withoutNull(schema: Any) -> Any:
    """Return a schema without its null alternative: an unset field is null."""
    parts = schema.get("anyOf") if isinstance(schema, Mapping) else None
    if not isinstance(parts, list) or {"type": "null"} not in parts:
        return schema
    rest = [part for part in parts if part != {"type": "null"}]
    return rest[0] if len(rest) == 1 and _kindOf(rest[0]) != "array" else schema


def _looseType(kind: str) -> str:
    return {"object": _STRUCT, "array": _LIST}.get(kind, _VALUE)


def _fill(
    message: DescriptorProto, outer: str, schema: Mapping[str, Any], where: str, depth: int
) -> None:
    """
    Add the fields of a schema's properties to a message.

    @param outer: The full name of the enclosing message or package.
    """
    if depth > _DEEPEST:
        raise DefinitionError(f"{where} is more than {_DEEPEST} objects deep")
    properties = schema["properties"]
    if not isinstance(properties, Mapping):
        raise DefinitionError(f"the properties of {where} are a mapping, not {properties!r}")
    full = f"{outer}.{message.name}"
    names = _fieldNames(properties, where)
    # A nested message must not have the name of a field.
    taken = set(names.values())
    for number, (key, value) in enumerate(properties.items(), 1):
        value = _withoutNull(value)
        made = message.field.add(
            name=names[key],
            # Handlers see the name in the schema, even if it is not an identifier.
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
    """Make every singular field C{optional}, which proto3 implements as a oneof around it."""
    taken = {each.name for each in message.field}
    for each in message.field:
        if each.label != FieldDescriptorProto.LABEL_REPEATED:
            name = _unique(f"_{each.name}", taken)
            taken.add(name)
            each.proto3_optional = True
            each.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _fieldNames(properties: Mapping[str, Any], where: str) -> dict[str, str]:
    """
    Return the field name of each property: its own name if it is an identifier, or a similar one.
    """
    camel: dict[str, str] = {}
    names: dict[str, str] = {}
    for key in properties:
        if not isinstance(key, str) or not key or "\0" in key:
            raise DefinitionError(f"{where} has a property {key!r}, which is not a valid name")
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
    """Return the JSON name that protobuf derives from a field name; it must be unique."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _messageName(fieldName: str) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in fieldName.split("_"))
    return name if _IDENTIFIER.fullmatch(name) else f"M{name}"


def _unique(name: str, taken: Iterable[str]) -> str:
    """Return a name, with a number appended if it is taken."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}{number}"
    return unique


def _checkName(name: str, what: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise DefinitionError(
            f"{what} cannot be served: a gRPC name consists of letters, digits and underscores"
        )
