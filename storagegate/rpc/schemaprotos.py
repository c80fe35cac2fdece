"""
Services of gRPC from the schemas of a service definition.

A service without a C{.proto} file gets messages generated from its schemas. The fields of an
object are numbered in the order of its properties, and all have presence::

    {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array",
     "items": {"type": "string"}}}}

    message ProbeEchoRequest { optional string name = 1; repeated string tags = 2; }

A type of Python has messages of its own instead, see L{storagegate.rpc.typeprotos}.

Types that no message can express become C{google.protobuf.Struct} (an object without properties),
C{ListValue} (an array in an array) or C{Value} (any other type). A scalar request or response
becomes one of protobuf's wrappers, such as C{google.protobuf.StringValue}.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from msgspec.structs import replace

from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.core.typeschemas import isDescribed
from storagegate.rpc.protolock import ProtoLock
from storagegate.rpc.protonames import (
    checkName,
    fieldNames,
    givePresence,
    pascalCase,
    unique,
)
from storagegate.rpc.protos import RPCMethod, RPCService, serviceOf
from storagegate.rpc.typeforms import PLAIN, TypeCodec
from storagegate.rpc.typeprotos import WELL_KNOWN_FILES, Kind, PackageTypes, TypeBuilder

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

_STRUCT, _LIST, _VALUE = (f".google.protobuf.{name}" for name in ("Struct", "ListValue", "Value"))

# Below protobuf's own limit of 100 nested messages.
_DEEPEST = 64


def serviceFromSchemas(definition: ServiceDefinition) -> RPCService:
    """
    Make a service from its definition, with messages of its own, see L{GeneratedMessages.add}.

    @raise DefinitionError: If a name is invalid in gRPC, or a schema cannot become a message.
    """
    return GeneratedMessages().add(definition)


class GeneratedMessages:
    """
    The messages of the services of a server: a class is one message in all services of a package.

    @ivar definitions: The services by their names.
    @ivar packages: The types of each package.
    @ivar pool: The descriptors of all services.
    """

    def __init__(self, lock: ProtoLock | None = None) -> None:
        """
        @param lock: The numbers of fields; C{None} to number them in their order.
        """
        self.definitions: dict[str, ServiceDefinition] = {}
        self.packages: dict[str, PackageTypes] = {}
        self.pool = DescriptorPool()
        for each in WELL_KNOWN_FILES:
            self.pool.AddSerializedFile(each.serialized_pb)
        self._lock = lock

    def add(self, definition: ServiceDefinition) -> RPCService:
        """
        Make a service from its definition, with messages for the types and schemas of its methods.

        A method without a type and a schema uses C{google.protobuf.Struct}.

        @raise DefinitionError: If a name is invalid in gRPC, a schema cannot become a message, two
            classes have one name, or the lock has no numbers for it.
        """
        *packageParts, name = definition.name.split(".")
        for part in (*packageParts, name):
            checkName(part, f"the service {definition.name!r}")
        if definition.name in self.definitions:
            raise DefinitionError(f"the service {definition.name} is already defined")
        package = self.packages.setdefault(
            ".".join(packageParts), PackageTypes(".".join(packageParts))
        )
        file = FileDescriptorProto(
            # A folder that users' files do not use, so that reflection can serve both.
            name=f"schemas/{definition.name}.proto",
            package=package.name,
            syntax="proto3",
            dependency=[each.name for each in WELL_KNOWN_FILES[:2]],
        )
        builder = TypeBuilder(package, file)
        builder.reserve(name)
        kinds: dict[str, tuple[Kind | None, Kind | None]] = {}
        service = file.service.add(name=name)
        for key, method in definition.methods.items():
            where = f"{definition.name}.{key}"
            checkName(key, f"the method {where!r}")
            # Prefixed with the service's name: a package or server may have several services.
            stem = f"{name}{key[0].upper()}{key[1:]}"
            inputs = _typed(builder, method.inputType, f"the input of {where}")
            outputs = _typed(builder, method.outputType, f"the output of {where}")
            kinds[key] = inputs, outputs
            service.method.add(
                name=key,
                input_type=inputs.typeName
                if inputs is not None
                else _topType(
                    file, builder, stem + "Request", method.input, f"the input of {where}"
                ),
                output_type=outputs.typeName
                if outputs is not None
                else _topType(
                    file, builder, stem + "Response", method.output, f"the output of {where}"
                ),
                client_streaming=method.streamsRequests,
                server_streaming=method.streamsResponses,
            )
        if self._lock is not None:
            self._lock.apply(file, package.fixed)
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise DefinitionError(f"{definition.name} cannot be a gRPC service: {error}") from error
        builder.finish()
        self.definitions[definition.name] = definition
        made = serviceOf(self.pool.FindServiceByName(definition.name))
        methods = {key: _converting(each, *kinds[key]) for key, each in made.methods.items()}
        return RPCService(made.name, methods, made.file)

    def files(self, package: str) -> list[FileDescriptorProto]:
        """Return copies of the files of a package, in the order of the services."""
        found = []
        for name in self.definitions:
            if name.rpartition(".")[0] == package:
                file = FileDescriptorProto()
                self.pool.FindServiceByName(name).file.CopyToProto(file)
                found.append(file)
        return found

    def documents(self, package: str) -> dict[str, Any]:
        """Return the documented objects and texts of a package, by the full names of elements."""
        found = dict(self.packages[package].documents)
        for name, definition in self.definitions.items():
            if name.rpartition(".")[0] == package:
                for key, method in definition.methods.items():
                    found[f"{name}.{key}"] = method.handler
        return found


def _typed(builder: TypeBuilder, model: Any, where: str) -> Kind | None:
    """Return the message of a type; C{None} if only its schema describes it."""
    return builder.top(model, where) if model is not None and isDescribed(model) else None


def _converting(method: RPCMethod, inputs: Kind | None, outputs: Kind | None) -> RPCMethod:
    """Return a method whose codecs convert the values of its types."""
    changed = {}
    for name, kind in (("request", inputs), ("response", outputs)):
        node = PLAIN if kind is None else kind.node
        if node.function(True) is not None or node.function(False) is not None:
            codec = getattr(method, name)
            changed[name] = TypeCodec(codec.messageClass, node=node)
    return replace(method, **changed) if changed else method


def _topType(
    file: FileDescriptorProto,
    builder: TypeBuilder,
    name: str,
    schema: Mapping[str, Any] | None,
    where: str,
) -> str:
    """Return the type of a whole request or response; add its message to the file."""
    if schema is None or not ({"type", "properties"} & schema.keys()):
        return _STRUCT
    kind = _kindOf(schema)
    if kind == _MESSAGE:
        name = unique(name, builder.names())
        builder.reserve(name)
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
    names = fieldNames(properties, where)
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
            name = unique(pascalCase(names[key]), taken)
            taken.add(name)
            _fill(message.nested_type.add(name=name), full, inner, f"{where}.{key}", depth + 1)
            made.type_name = f"{full}.{name}"
        elif kind in _SCALARS:
            made.type = _SCALARS[kind][0]
        else:
            made.type_name = _looseType(kind)
        if made.type_name:
            made.type = FieldDescriptorProto.TYPE_MESSAGE
    givePresence(message)
