"""
The reflection service, C{grpc.reflection.v1} and C{v1alpha}.

A client sends requests one message at a time, and gets one response to each; a "not found" response
does not end the call. Responses hold files as C{FileDescriptorProto}: the files that define a
service, and their imports, in any number of responses. L{storagegate.rpc.reflectionclient} is the
client.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from twisted.logger import Logger

from storagegate.core.errors import GRPC_STATUSES
from storagegate.rpc.protos import RPCService, standardService

_log = Logger()

# Most files import these, each from its own release of protobuf; the releases are compatible.
_WELL_KNOWN = "google/protobuf/"


class DescriptorIndex:
    """
    The files of a set of services, their imports, and the files that extend their messages.

    The services may come from several pools, and a name is unique only within its pool. If several
    pools have a name, the first is used; a file is returned with the imports of its own pool.
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

        @param name: The path, such as C{google/rpc/status.proto}.
        @return: The file, followed by its imports, each before its own imports: some clients use
            only the first file. C{None} if the file is unknown.
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
        """Return the numbers of a message's extensions; C{None} if the message is unknown."""
        extensions = self._extensions(message)
        return None if extensions is None else sorted({each.number for each in extensions})

    def _collect(self, root: FileDescriptor) -> None:
        pending = [root]
        while pending:
            file = pending.pop()
            if file in self._files:
                continue
            self._files.add(file)
            first = self._byName.setdefault(file.name, file)
            isWellKnown = file.name.startswith(_WELL_KNOWN)
            if not isWellKnown and self._wire(first) != self._wire(file):
                _log.warn(
                    "two different files are named {name}: reflection shows the first one by this "
                    "name",
                    name=file.name,
                )
            if file.pool not in self._pools:
                self._pools.append(file.pool)
            pending += file.dependencies
            for message in _messages(file.message_types_by_name.values()):
                if message.is_extendable:
                    pending += map(_definingFile, file.pool.FindAllExtensions(message))

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
        _order(file, ordered)
        return [self._wire(each) for each in reversed(ordered)]

    def _wire(self, file: FileDescriptor) -> bytes:
        # The descriptor serialises itself on each access.
        if file not in self._wires:
            self._wires[file] = file.serialized_pb
        return self._wires[file]


def _order(file: FileDescriptor, ordered: dict[FileDescriptor, None]) -> None:
    """Append a file after its imports."""
    for imported in file.dependencies:
        if imported not in ordered:
            _order(imported, ordered)
    ordered[file] = None


def _fileOf(pool: DescriptorPool, symbol: str) -> FileDescriptor | None:
    try:
        return pool.FindFileContainingSymbol(symbol)
    except KeyError:
        pass
    try:
        # A pool does not treat methods as symbols.
        return pool.FindMethodByName(symbol).containing_service.file
    except KeyError:
        return None


def _definingFile(extension: FieldDescriptor) -> FileDescriptor:
    # The type stubs lack this attribute.
    file: FileDescriptor = extension.file  # type: ignore[attr-defined]
    return file


def _messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _messages(message.nested_types)


VERSIONS = ("v1", "v1alpha")
"""The served versions, newest first."""

Services = Callable[[], Mapping[str, RPCService]]
"""Returns the current services by their full names."""


class Reflection:
    """The implementation of both versions, which differ only in their names."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._roots: tuple[FileDescriptor, ...] = ()
        self._files = DescriptorIndex(())

    async def ServerReflectionInfo(self, call: Any) -> AsyncIterator[dict[str, Any]]:
        """Respond to each request of a stream."""
        async for request in call:
            yield {
                "validHost": request.get("host", ""),
                "originalRequest": request,
                **self._response(request),
            }

    def _response(self, request: Mapping[str, Any]) -> dict[str, Any]:
        roots = tuple(service.file for service in self._services().values())
        if roots != self._roots:
            self._roots, self._files = roots, DescriptorIndex(roots)
        files = self._files
        match request:
            case {"listServices": _}:
                names = [{"name": name} for name in sorted(self._services())]
                return {"listServicesResponse": {"service": names}}
            case {"fileByFilename": name}:
                return _fileResponse(files.named(name), "File not found")
            case {"fileContainingSymbol": symbol}:
                return _fileResponse(files.containing(symbol), "Symbol not found")
            case {"fileContainingExtension": wanted}:
                message, number = wanted.get("containingType", ""), wanted.get("extensionNumber", 0)
                return _fileResponse(files.extending(message, number), "Extension not found")
            case {"allExtensionNumbersOfType": name}:
                numbers = files.extensionNumbers(name)
                if numbers is None:
                    return _error("NOT_FOUND", "Message not found")
                return {
                    "allExtensionNumbersResponse": {
                        "baseTypeName": name,
                        "extensionNumber": numbers,
                    }
                }
        return _error("INVALID_ARGUMENT", "The request is empty")


def reflectionServices(services: Services) -> list[tuple[RPCService, Reflection]]:
    """
    Make the reflection of a server.

    @param services: Returns all services, including reflection.
    @return: The definition of each version with its implementation.
    """
    implementation = Reflection(services)
    return [(standardService("reflection", version), implementation) for version in VERSIONS]


def _fileResponse(files: list[bytes] | None, missing: str) -> dict[str, Any]:
    if files is None:
        return _error("NOT_FOUND", missing)
    return {"fileDescriptorResponse": {"fileDescriptorProto": files}}


def _error(status: str, message: str) -> dict[str, Any]:
    # The response also carries the original request.
    return {"errorResponse": {"errorCode": GRPC_STATUSES[status], "errorMessage": message}}
