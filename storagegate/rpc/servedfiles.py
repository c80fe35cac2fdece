"""The files that define a server's services, as reflection looks them up."""

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from twisted.logger import Logger

_log = Logger()

# Everybody imports these, each from its own release of protobuf, and they fit one another.
_WELL_KNOWN = "google/protobuf/"


class ServedFiles:
    """
    The files of some services, all that they import, and all that extends their messages.

    The services may come from several pools, and a name is unique only in one of them. Where it is
    in several, the first one wins; a file is always given with the imports of its own pool.
    """

    def __init__(self, roots: Iterable[FileDescriptor]) -> None:
        self._byName: dict[str, FileDescriptor] = {}
        self._files: set[FileDescriptor] = set()
        self._pools: list[DescriptorPool] = []
        self._wires: dict[FileDescriptor, bytes] = {}
        for root in roots:
            self._collect(root)

    def named(self, name: str) -> list[bytes] | None:
        """
        Find a file by its name.

        @return: The file, then all that it imports, each before what it imports itself: some
            clients take the first for their answer. C{None} if there is no such file.
        """
        file = self._byName.get(name)
        return None if file is None else self._withImports(file)

    def containing(self, symbol: str) -> list[bytes] | None:
        """Find the file that defines a service, a method, a message, an enum, or a part of one."""
        for pool in self._pools:
            file = _fileOf(pool, symbol)
            if file in self._files:
                return self._withImports(file)
        return None

    def extending(self, message: str, number: int) -> list[bytes] | None:
        """Find the file that defines an extension of a message."""
        for extension in self._extensions(message) or ():
            if extension.number == number:
                return self._withImports(_definingFile(extension))
        return None

    def extensionNumbers(self, message: str) -> list[int] | None:
        """Give the numbers of a message's extensions; C{None} if there is no such message."""
        extensions = self._extensions(message)
        return None if extensions is None else sorted({each.number for each in extensions})

    def _collect(self, root: FileDescriptor) -> None:
        pending = [root]
        while pending:
            file = pending.pop()
            if file in self._files:
                continue
            self._files.add(file)
            self._register(file)
            if file.pool not in self._pools:
                self._pools.append(file.pool)
            pending += file.dependencies
            for message in _messages(file.message_types_by_name.values()):
                if message.is_extendable:
                    pending += map(_definingFile, file.pool.FindAllExtensions(message))

    def _register(self, file: FileDescriptor) -> None:
        first = self._byName.setdefault(file.name, file)
        if file.name.startswith(_WELL_KNOWN):
            return
        if self._wire(first) != self._wire(file):
            _log.warn(
                "two different files are named {name}: reflection shows the first one by this name",
                name=file.name,
            )

    def _extensions(self, message: str) -> list[FieldDescriptor] | None:
        found: list[FieldDescriptor] | None = None
        for pool in self._pools:
            try:
                extended = pool.FindMessageTypeByName(message)
            except KeyError:
                continue
            if extended.file in self._files:
                found = (found or []) + list(pool.FindAllExtensions(extended))
        return found

    def _withImports(self, file: FileDescriptor) -> list[bytes]:
        ordered: dict[FileDescriptor, None] = {}

        def visit(each: FileDescriptor) -> None:
            for imported in each.dependencies:
                if imported not in ordered:
                    visit(imported)
            ordered[each] = None

        visit(file)
        return [self._wire(each) for each in reversed(ordered)]

    def _wire(self, file: FileDescriptor) -> bytes:
        # The descriptor would serialise itself anew each time.
        if file not in self._wires:
            self._wires[file] = file.serialized_pb
        return self._wires[file]


def _fileOf(pool: DescriptorPool, symbol: str) -> FileDescriptor | None:
    try:
        return pool.FindFileContainingSymbol(symbol)
    except KeyError:
        pass
    try:
        # Methods are no symbols to a pool.
        return pool.FindMethodByName(symbol).containing_service.file
    except KeyError:
        return None


def _definingFile(extension: FieldDescriptor) -> FileDescriptor:
    # The type stubs do not have it.
    file: FileDescriptor = extension.file  # type: ignore[attr-defined]
    return file


def _messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _messages(message.nested_types)
