"""The text of generated files, C{.proto} in proto3."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from storagegate.rpc.protonames import jsonName, typeName
from storagegate.rpc.typeprotos import WELL_KNOWN_FILES

_WIDTH = 100

# Line ends and other control characters, which end a comment or confuse a terminal.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")

_IMPORTS = {
    f".{message.full_name}": file.name
    for file in WELL_KNOWN_FILES
    for message in file.message_types_by_name.values()
}


def protoText(files: Iterable[FileDescriptorProto], documents: Mapping[str, Any]) -> str:
    """
    Write the files of one package as one file.

    @param files: The files, which may import each other and the well-known types.
    @param documents: A documented object, or a text, by the full name of a service, a method, a
        message, an enum or a field.
    """
    found = [*files]
    package = found[0].package if found else ""
    writer = _Writer(package, documents)
    return "".join(f"{line}\n" for line in writer.file(found))


def documentText(documented: Any) -> str:
    """Return the text about an object: its docstring, unless Python has generated it."""
    if isinstance(documented, str):
        return documented
    text = getattr(documented, "__doc__", None) or ""
    name = getattr(documented, "__name__", "")
    isOwn = isinstance(documented, type) and "__doc__" not in vars(documented)
    # An undocumented dataclass has its signature as __doc__.
    return "" if isOwn or text.startswith(f"{name}(") else cleandoc(text)


class _Writer:
    """Writes the elements of files as lines."""

    def __init__(self, package: str, documents: Mapping[str, Any]) -> None:
        self._package = package
        self._prefix = f"{package}." if package else ""
        self._documents = documents

    def file(self, files: list[FileDescriptorProto]) -> Iterator[str]:
        """Yield the lines of the file."""
        yield 'syntax = "proto3";'
        if self._package:
            yield ""
            yield f"package {self._package};"
        used = {_IMPORTS[name] for file in files for name in _typeNames(file) if name in _IMPORTS}
        if used:
            yield ""
            yield from (f'import "{name}";' for name in sorted(used))
        for file in files:
            for service in file.service:
                yield ""
                yield from self._service(service)
        for file in files:
            for message in file.message_type:
                yield ""
                yield from self._message(message, self._prefix + message.name, "", frozenset())
        for file in files:
            for enum in file.enum_type:
                yield ""
                yield from self._enum(enum)

    def _comment(self, full: str, indent: str) -> Iterator[str]:
        text = documentText(self._documents.get(full))
        for line in text.strip().splitlines():
            yield f"{indent}// {_CONTROLS.sub(' ', line)}".rstrip()

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        full = self._prefix + service.name
        yield from self._comment(full, "")
        yield f"service {service.name} {{"
        for each in service.method:
            yield from self._comment(f"{full}.{each.name}", "  ")
            given = "stream " if each.client_streaming else ""
            answer = "stream " if each.server_streaming else ""
            taken = {other.name for other in service.method}
            yield (
                f"  rpc {each.name}({given}{self._local(each.input_type, taken)})"
                f" returns ({answer}{self._local(each.output_type, taken)});"
            )
        yield "}"

    def _message(
        self, message: DescriptorProto, full: str, indent: str, around: Collection[str]
    ) -> Iterator[str]:
        yield from self._comment(full, indent)
        yield f"{indent}message {message.name} {{"
        inner = indent + "  "
        taken = {*around, *(each.name for each in message.field)}
        taken |= {each.name for each in message.nested_type}
        taken |= {each.name for each in message.oneof_decl}
        maps = {}
        for nested in message.nested_type:
            if nested.options.map_entry:
                maps[f".{full}.{nested.name}"] = nested
            else:
                yield from self._message(nested, f"{full}.{nested.name}", inner, taken)
        yield from _reserved(
            [each.start for each in message.reserved_range], message.reserved_name, inner
        )
        written = set()
        for each in message.field:
            if each.HasField("oneof_index") and not each.proto3_optional:
                if each.oneof_index in written:
                    continue
                written.add(each.oneof_index)
                yield f"{inner}oneof {message.oneof_decl[each.oneof_index].name} {{"
                for member in message.field:
                    if member.HasField("oneof_index") and member.oneof_index == each.oneof_index:
                        yield from self._field(member, full, maps, inner + "  ", taken)
                yield f"{inner}}}"
            else:
                yield from self._field(each, full, maps, inner, taken)
        yield f"{indent}}}"

    def _field(
        self,
        field: FieldDescriptorProto,
        full: str,
        maps: Mapping[str, DescriptorProto],
        indent: str,
        taken: Collection[str],
    ) -> Iterator[str]:
        yield from self._comment(f"{full}.{field.json_name}", indent)
        entry = maps.get(field.type_name)
        label = ""
        if entry is not None:
            key, value = (self._kind(each, taken) for each in entry.field)
            kind = f"map<{key}, {value}>"
        else:
            kind = self._kind(field, taken)
            if field.label == FieldDescriptorProto.LABEL_REPEATED:
                label = "repeated "
            elif field.proto3_optional:
                label = "optional "
        options = ""
        if field.json_name != jsonName(field.name):
            options = f" [json_name = {_quoted(field.json_name)}]"
        yield f"{indent}{label}{kind} {field.name} = {field.number}{options};"

    def _kind(self, field: FieldDescriptorProto, taken: Collection[str]) -> str:
        return self._local(field.type_name, taken) if field.type_name else typeName(field)

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield from self._comment(self._prefix + enum.name, "")
        yield f"enum {enum.name} {{"
        yield from _reserved([each.start for each in enum.reserved_range], enum.reserved_name, "  ")
        for each in enum.value:
            yield f"  {each.name} = {each.number};"
        yield "}"

    def _local(self, name: str, taken: Collection[str]) -> str:
        """
        Return the name of a type as a place of the file can write it.

        @param name: The full name, with a dot before it.
        @param taken: The names of the elements around the place, which hide types of these names.
        """
        found = name[1:]
        if not found.startswith("google.protobuf."):
            found = found.removeprefix(self._prefix)
        first = found.partition(".")[0]
        isHidden = first in taken or (first == "google" and "google" in self._package.split("."))
        return name if isHidden else found


def _reserved(numbers: list[int], names: Iterable[str], indent: str) -> Iterator[str]:
    if numbers:
        yield f"{indent}reserved {', '.join(map(str, numbers))};"
    texts = [_quoted(each) for each in names]
    if texts:
        yield f"{indent}reserved {', '.join(texts)};"


def _typeNames(file: FileDescriptorProto) -> Iterator[str]:
    for service in file.service:
        for method in service.method:
            yield method.input_type
            yield method.output_type
    pending = [*file.message_type]
    while pending:
        message = pending.pop()
        pending += message.nested_type
        for each in message.field:
            yield each.type_name


def _quoted(text: str) -> str:
    """Return a string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _CONTROLS.sub(lambda found: _octal(found[0]), escaped) + '"'


def _octal(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in text.encode())
