"""The names of generated messages and fields."""

import re
from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from storagegate.core.definitions import DefinitionError

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
# The places of underscores in fooBar and HTTPServer.
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def givePresence(message: DescriptorProto) -> None:
    """
    Make every singular field outside of a oneof C{optional}, which proto3 implements as a oneof
    around it.
    """
    taken = {each.name for each in message.field} | {each.name for each in message.oneof_decl}
    for each in message.field:
        if each.label != FieldDescriptorProto.LABEL_REPEATED and not each.HasField("oneof_index"):
            name = unique(f"_{each.name}", taken)
            taken.add(name)
            each.proto3_optional = True
            each.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def fieldNames(properties: Iterable[object], where: str) -> dict[str, str]:
    """
    Return the field name of each property: its own name if it is an identifier, or a similar one.

    @param where: The place of the properties, for errors.
    @raise DefinitionError: If a name is invalid, or two are the same in camelCase.
    """
    camel: dict[str, str] = {}
    names: dict[str, str] = {}
    keys = list(properties)
    for key in keys:
        if not isinstance(key, str) or not key or "\0" in key:
            raise DefinitionError(f"{where} has a property {key!r}, which is not a valid name")
        if not _IDENTIFIER.fullmatch(key):
            continue
        other = camel.setdefault(jsonName(key), key)
        if other != key:
            raise DefinitionError(
                f"{where} has {other!r} and {key!r}, which are the same name in camelCase"
            )
        names[key] = key
    for key in keys:
        if isinstance(key, str) and key not in names:
            plain = _FOREIGN.sub("_", key)
            if not _IDENTIFIER.fullmatch(plain):
                plain = f"_{plain}"
            number, name = 1, plain
            while jsonName(name) in camel:
                number += 1
                name = f"{plain}_{number}"
            camel[jsonName(name)] = key
            names[key] = name
    return names


def jsonName(name: str) -> str:
    """Return the JSON name that protobuf derives from a field name; it must be unique."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def pascalCase(name: str) -> str:
    """Return the name of a message from the name of a class or a field."""
    joined = "".join(part[:1].upper() + part[1:] for part in _FOREIGN.sub("_", name).split("_"))
    return joined if _IDENTIFIER.fullmatch(joined) else f"M{joined}"


def snakeCase(name: str) -> str:
    """Return the name of a field from a name in any case."""
    return _WORDS.sub("_", name).lower()


def unique(name: str, taken: Iterable[str]) -> str:
    """Return a name, with a number appended if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}{number}"
    return found


def checkName(name: str, what: str) -> None:
    """
    Check that a name is possible in gRPC.

    @param what: What has the name, for errors.
    @raise DefinitionError: If it is not.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise DefinitionError(
            f"{what} cannot be served: a gRPC name consists of letters, digits and underscores"
        )


def typeName(field: FieldDescriptorProto) -> str:
    """Return the name of the type of a field: of a scalar, or the full name of a message."""
    if field.type_name:
        return field.type_name.removeprefix(".")
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
