"""
The lock of generated messages: the numbers that fields keep while their types change.

Without a lock, fields have the numbers of their order, so moving one changes the wire. The lock is
a file in JSON beside the source, which C{storagegate proto} writes and a server reads::

    {"version": 1,
     "messages": {"notes.v1.Note": {
        "fields": {"title": {"number": 1, "type": "optional string"}},
        "reserved": {"numbers": [2], "names": ["author"]}}},
     "enums": {"notes.v1.Color": {"values": {"COLOR_UNSPECIFIED": 0, "COLOR_RED": 1}}},
     "services": {"notes.v1.Notes": {"Get": "NoteId returns notes.v1.Note"}}}

A new field gets the next number. A removed field leaves its number and name reserved. A change
that old clients would misread is an error.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

from storagegate.core.definitions import DefinitionError
from storagegate.core.files import readSmallFile
from storagegate.rpc.protonames import typeName

_VERSION = 1

_LIMIT = 16 * 1024 * 1024
"""Bytes of a lock: more than a thousand messages with a hundred fields each."""

_LAST = 536_870_911
_OWN = range(19_000, 20_000)
"""The last number of a field, and the numbers that protobuf keeps for itself."""

_WIDER = {"int32": ("int64",), "uint32": ("int64",)}
"""The integers that hold all values of another one with the same bytes on the wire."""

_isUpdating: ContextVar[bool] = ContextVar("isUpdating", default=False)


class LockError(ValueError):
    """
    A lock that cannot be used, or changes that it refuses.

    @ivar problems: Each problem in one line.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@contextmanager
def updatingLocks() -> Iterator[None]:
    """Read no locks within the context: it imports a program whose lock may be out of date."""
    token = _isUpdating.set(True)
    try:
        yield
    finally:
        _isUpdating.reset(token)


def readLock(path: str | None) -> "ProtoLock | None":
    """
    Read the lock of a server.

    @param path: The path of the file; C{None} or empty for none.
    @raise DefinitionError: If the file is absent or invalid.
    """
    if not path or _isUpdating.get():
        return None
    try:
        return ProtoLock.read(path)
    except FileNotFoundError:
        raise DefinitionError(f"there is no lock {path}: write it with storagegate proto") from None
    except LockError as error:
        raise DefinitionError(str(error)) from None


class ProtoLock:
    """
    The numbers of the fields of a server's messages.

    @ivar path: The path of the file.
    """

    def __init__(self, path: str, document: Mapping[str, Any] | None = None) -> None:
        """
        @param document: The content; C{None} for a new lock.
        """
        self.path = path
        parts: Any = deepcopy(dict(document or {}))
        self._messages: dict[str, Any] = parts.get("messages", {})
        self._enums: dict[str, Any] = parts.get("enums", {})
        self._services: dict[str, Any] = parts.get("services", {})

    @classmethod
    def read(cls, path: str) -> "ProtoLock":
        """
        Read a lock.

        @raise FileNotFoundError: If there is none.
        @raise LockError: If it is invalid.
        """
        try:
            document = json.loads(readSmallFile(path, _LIMIT))
        except ValueError as error:
            raise LockError([f"{path} is not JSON: {error}"]) from None
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            raise LockError([f"{path} is no lock of version {_VERSION}"])
        lock = cls(path, document)
        if not lock._isValid():
            raise LockError([f"{path} is damaged: restore it from version control"])
        return lock

    def _isValid(self) -> bool:
        try:
            for message in self._messages.values():
                for each in message["fields"].values():
                    if type(each["number"]) is not int or not isinstance(each["type"], str):
                        return False
            for enum in self._enums.values():
                if not all(type(each) is int for each in enum["values"].values()):
                    return False
            for entry in (*self._messages.values(), *self._enums.values()):
                reserved = entry.get("reserved", {"numbers": [], "names": []})
                if not all(type(each) is int for each in reserved["numbers"]):
                    return False
                if not all(isinstance(each, str) for each in reserved["names"]):
                    return False
            return all(
                isinstance(each, str)
                for service in self._services.values()
                for each in service.values()
            )
        except (AttributeError, KeyError, TypeError):
            return False

    @property
    def text(self) -> str:
        """Return the content of the file."""
        document = {
            "version": _VERSION,
            "messages": self._messages,
            "enums": self._enums,
            "services": self._services,
        }
        return json.dumps(document, indent=2) + "\n"

    def write(self) -> None:
        """Write the file."""
        path = Path(self.path)
        part = path.with_name(f"{path.name}.part")
        part.write_text(self.text)
        part.replace(path)

    # Serving

    def apply(self, file: FileDescriptorProto, fixed: Collection[str]) -> None:
        """
        Set the numbers of the fields of a server's file.

        @param fixed: See L{update}.
        @raise DefinitionError: If the lock lacks something of the file, or has it differently.
        """
        changed = deepcopy(self)
        problems = changed._take([file], fixed, {}, frozenset(), isWhole=False)
        new = [] if problems else changed._additions(self)
        if problems or new:
            problems += [f"it lacks {', '.join(new[:3])}"] if new else []
            raise DefinitionError(
                f"the lock {self.path} is out of date: {problems[0]}; update it with"
                " storagegate proto"
            )

    def _additions(self, before: "ProtoLock") -> list[str]:
        """Return the names that this lock has in addition to an earlier one."""
        found = [name for name in self._messages if name not in before._messages]
        for name, message in before._messages.items():
            known = message["fields"]
            found += [f"{name}.{key}" for key in self._messages[name]["fields"] if key not in known]
        found += [name for name in self._enums if name not in before._enums]
        for name, enum in before._enums.items():
            found += [key for key in self._enums[name]["values"] if key not in enum["values"]]
        for name, methods in self._services.items():
            known = before._services.get(name, {})
            found += [f"{name}.{key}" for key in methods if key not in known]
        return found

    # Updating

    def update(
        self,
        files: Iterable[FileDescriptorProto],
        fixed: Collection[str],
        renames: Mapping[str, str] | None = None,
        removals: Collection[str] = (),
    ) -> None:
        """
        Add what is new in the files of all services, and set the numbers of their fields.

        @param fixed: The full names of enums whose numbers are given.
        @param renames: The new names of messages, fields and members of enums, by the old ones.
        @param removals: The names of fields, methods and services whose end is intended.
        @raise LockError: If clients of the old messages would misread the new ones; the lock is
            unchanged.
        """
        changed = deepcopy(self)
        problems = changed._rename(renames or {})
        if not problems:
            problems = changed._take(files, fixed, renames or {}, removals, isWhole=True)
        if problems:
            raise LockError(problems)
        self.__dict__.update(changed.__dict__)

    def _rename(self, renames: Mapping[str, str]) -> list[str]:
        """Give entries their new names; return the problems."""
        problems = []
        for old, new in renames.items():
            message = _find(self._messages, old) or _find(self._enums, old)
            if message is not None:
                package = message.rpartition(".")[0]
                self._renameType(message, new if "." in new or not package else f"{package}.{new}")
                continue
            holder, _, name = old.rpartition(".")
            new = new.rpartition(".")[2]
            message, enum = _find(self._messages, holder), _find(self._enums, holder)
            entries: dict[str, Any] = {}
            if message is not None:
                entries = self._messages[message]["fields"]
            elif enum is not None:
                entries = self._enums[enum]["values"]
            if name not in entries or new in entries:
                reason = "there is one already" if name in entries else "the lock has none"
                problems.append(f"{old} cannot be renamed to {new}: {reason}")
                continue
            changed = {new if key == name else key: value for key, value in entries.items()}
            entries.clear()
            entries.update(changed)
        return problems

    def _renameType(self, old: str, new: str) -> None:
        for entries in (self._messages, self._enums):
            for name in [*entries]:
                if name == old or name.startswith(f"{old}."):
                    entries[new + name.removeprefix(old)] = entries.pop(name)
        for message in self._messages.values():
            for each in message["fields"].values():
                words = each["type"].split(" ")
                each["type"] = " ".join(_renamed(word, old, new) for word in words)
        for methods in self._services.values():
            for name, signature in methods.items():
                words = signature.split(" ")
                methods[name] = " ".join(_renamed(word, old, new) for word in words)

    def _take(
        self,
        files: Iterable[FileDescriptorProto],
        fixed: Collection[str],
        renames: Mapping[str, str],
        removals: Collection[str],
        isWhole: bool,
    ) -> list[str]:
        """
        Add what is new, and set all numbers.

        @param isWhole: Whether the files are all of the server.
        @return: The problems.
        """
        problems: list[str] = []
        services = set()
        for file in files:
            prefix = f"{file.package}." if file.package else ""
            for full, message in _messages(prefix, file.message_type):
                problems += self._takeMessage(full, message, removals)
            for enum in file.enum_type:
                problems += self._takeEnum(prefix + enum.name, enum, fixed, removals)
            for service in file.service:
                services.add(prefix + service.name)
                methods = {each.name: _signature(each) for each in service.method}
                problems += self._takeService(prefix + service.name, methods, removals, isWhole)
        for name in [*self._services] if isWhole else ():
            if name not in services:
                if not _isNamed(name, removals):
                    problems.append(
                        f"the service {name} is gone, and its clients would fail:"
                        f" --remove {name} if that is intended"
                    )
                self._services.pop(name)
        return problems

    def _takeMessage(
        self, full: str, message: DescriptorProto, removals: Collection[str]
    ) -> list[str]:
        entry = self._messages.setdefault(full, {"fields": {}})
        known: dict[str, Any] = entry["fields"]
        maps = {each.name: each for each in message.nested_type if each.options.map_entry}
        kinds = {each.name: _kind(message, each, maps) for each in message.field}
        problems: list[str] = []
        for name in [each for each in known if each not in kinds]:
            number, kind = known[name]["number"], known[name]["type"]
            alike = [each for each in kinds if each not in known and kinds[each] == kind]
            if alike and not _isNamed(f"{full}.{name}", removals):
                problems.append(
                    f"{full}.{name} is gone and {full}.{alike[0]} is new, both {kind}:"
                    f" --rename {full}.{name}={alike[0]} keeps the number {number},"
                    f" --remove {full}.{name} reserves it"
                )
            else:
                _reserve(entry, number, name)
                del known[name]
        for name, kind in kinds.items():
            if name not in known or kind == known[name]["type"]:
                continue
            before = known[name]["type"]
            if _isWider(before, kind):
                kinds[name] = before
            elif _isNamed(f"{full}.{name}", removals):
                _reserve(entry, known[name]["number"], None)
                del known[name]
            else:
                problems.append(
                    f"{full}.{name} was {before} and is {kind}, which clients would misread:"
                    f" restore the type, give the field a new name, or --remove {full}.{name}"
                    " reserves its number"
                )
        if problems:
            return problems
        number = max((0, *_numbers(entry), *(each["number"] for each in known.values())))
        for name, kind in kinds.items():
            if name not in known:
                number = number + 1 if number + 1 not in _OWN else _OWN.stop
                known[name] = {"number": number, "type": kind}
                _unreserve(entry, name)
        if number > _LAST:
            return [f"{full} has no numbers left"]
        for each in message.field:
            each.number = known[each.name]["number"]
            if not each.type_name:
                each.type = _typeNumber(kinds[each.name])
        for number in _numbers(entry):
            message.reserved_range.add(start=number, end=number + 1)
        message.reserved_name.extend(entry.get("reserved", {}).get("names", ()))
        return []

    def _takeEnum(
        self,
        full: str,
        enum: EnumDescriptorProto,
        fixed: Collection[str],
        removals: Collection[str],
    ) -> list[str]:
        entry = self._enums.setdefault(full, {"values": {}})
        known: dict[str, int] = entry["values"]
        names = [each.name for each in enum.value]
        problems = []
        for name in [each for each in known if each not in names]:
            new = [each for each in names if each not in known]
            if new and full not in fixed and not _isNamed(f"{full}.{name}", removals):
                problems.append(
                    f"{name} of {full} is gone and {new[0]} is new: --rename"
                    f" {full}.{name}={new[0]} keeps the number {known[name]},"
                    f" --remove {full}.{name} reserves it"
                )
            else:
                _reserve(entry, known.pop(name), name)
        for each in enum.value:
            if full in fixed and known.get(each.name, each.number) != each.number:
                problems.append(
                    f"{each.name} of {full} was {known[each.name]} and is {each.number}:"
                    " restore the value, or give the member a new name"
                )
        if problems:
            return problems
        number = max((0, *_numbers(entry), *known.values()))
        for each in enum.value:
            if each.name not in known:
                isNew = full not in fixed and each.number != 0
                number += isNew
                known[each.name] = number if isNew else each.number
                _unreserve(entry, each.name)
            each.number = known[each.name]
        for number in _numbers(entry):
            if number not in known.values():
                # The range of an enum includes its end.
                enum.reserved_range.add(start=number, end=number)
        enum.reserved_name.extend(entry.get("reserved", {}).get("names", ()))
        return []

    def _takeService(
        self, full: str, methods: Mapping[str, str], removals: Collection[str], isWhole: bool
    ) -> list[str]:
        known = self._services.setdefault(full, {})
        problems = []
        for name in [*known] if isWhole else ():
            if name in methods:
                continue
            if not _isNamed(f"{full}.{name}", removals):
                problems.append(
                    f"the method {full}.{name} is gone, and its clients would fail:"
                    f" --remove {full}.{name} if that is intended"
                )
            del known[name]
        for name, signature in methods.items():
            before = known.get(name, signature)
            if before != signature and not _isNamed(f"{full}.{name}", removals):
                problems.append(
                    f"{full}.{name} was {before} and is {signature}: add a method instead, --rename"
                    f" a message that only has a new name, or --remove {full}.{name} if no client"
                    " calls it"
                )
            known[name] = signature
        return problems


def _messages(
    prefix: str, messages: Iterable[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    """Yield messages with their full names, without the entries of maps."""
    for each in messages:
        if not each.options.map_entry:
            yield prefix + each.name, each
            yield from _messages(f"{prefix}{each.name}.", each.nested_type)


def _kind(
    message: DescriptorProto, field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]
) -> str:
    """Return the type of a field in words."""
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type_name else None
    if entry is not None:
        key, value = (typeName(each) for each in entry.field)
        return f"map<{key}, {value}>"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {typeName(field)}"
    if field.HasField("oneof_index") and not field.proto3_optional:
        return f"{typeName(field)} of {message.oneof_decl[field.oneof_index].name}"
    return f"optional {typeName(field)}"


def _signature(method: MethodDescriptorProto) -> str:
    given = "stream " if method.client_streaming else ""
    answer = "stream " if method.server_streaming else ""
    request, response = (each.removeprefix(".") for each in (method.input_type, method.output_type))
    return f"{given}{request} returns {answer}{response}"


def _renamed(word: str, old: str, new: str) -> str:
    """Replace the name of a type in a word such as C{map<string,}."""
    bare = word.removeprefix("map<").strip(",>")
    if bare == old or bare.startswith(f"{old}."):
        return word.replace(bare, new + bare.removeprefix(old))
    return word


def _find(entries: Mapping[str, Any], name: str) -> str | None:
    """Find an entry by its full name, or by the end of it if only one has that end."""
    if name in entries:
        return name
    found = [each for each in entries if name and each.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def _isNamed(full: str, names: Collection[str]) -> bool:
    return any(full == each or full.endswith(f".{each}") for each in names)


def _isWider(before: str, kind: str) -> bool:
    """Return whether the type of the lock has all values of a new type, with the same bytes."""
    *labels, old = before.split(" ")[:2]
    *others, new = kind.split(" ")[:2]
    return labels == others and old in _WIDER.get(new, ())


def _typeNumber(kind: str) -> Any:
    word = kind.split(" ")[0] if " of " in kind else kind.split(" ")[-1]
    return getattr(FieldDescriptorProto, f"TYPE_{word.upper()}")


def _numbers(entry: Mapping[str, Any]) -> list[int]:
    found: list[int] = entry.get("reserved", {}).get("numbers", [])
    return found


def _reserve(entry: dict[str, Any], number: int, name: str | None) -> None:
    reserved = entry.setdefault("reserved", {"numbers": [], "names": []})
    reserved["numbers"] = sorted({*reserved["numbers"], number})
    if name is not None:
        reserved["names"] = sorted({*reserved["names"], name})


def _unreserve(entry: dict[str, Any], name: str) -> None:
    reserved = entry.get("reserved")
    if reserved is not None and name in reserved["names"]:
        reserved["names"].remove(name)
