"""
Reflection, C{grpc.reflection.v1} and C{v1alpha}: the service and its client.

A client sends requests one message at a time, and gets one response to each; a "not found" response
does not end the call. Responses hold files as C{FileDescriptorProto}: the files that define a
service, and their imports, in any number of responses. The client uses v1 or, if the server does
not have it, v1alpha, which differs only in its name.
"""

import importlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.rpc.call import CallMetadata
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import CallOptions, IClientEngine
from storagegate.rpc.protos import RPCService, serviceOf, standardService

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


_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_MAX_SERVICES = 1000
"""Limits against hostile servers; large servers have a few hundred files."""

# Files of protobuf itself, which are never taken from a server.
_KNOWN_FILES = re.compile(
    "google/protobuf/"
    r"(any|api|descriptor|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)"
    r"\.proto"
)


class ReflectionError(Exception):
    """The reflection of a server cannot be used."""


async def fetchServices(
    engine: IClientEngine, deadline: float, waitForReady: bool = False, name: str | None = None
) -> dict[str, RPCService]:
    """
    Fetch the services of a server by reflection.

    @param engine: Carries the call.
    @param deadline: When to give up, in seconds since 1970.
    @param waitForReady: Whether to wait for a connection.
    @param name: The full name of one service; C{None} for all except gRPC's own.
    @return: The services by their full names.
    @raise GrpcError: If the server is unavailable, or has no reflection.
    @raise ReflectionError: If the server does not know the service, or its responses are invalid.
    """
    for version in VERSIONS:
        session = _ReflectionSession(engine, version, deadline, waitForReady)
        try:
            names = [name] if name is not None else await session.names()
            services = {each: await session.service(each) for each in names}
        except BaseException as error:
            session.call.cancel()
            isAbsent = isinstance(error, GrpcError) and error.statusName == "UNIMPLEMENTED"
            if not isAbsent or version == VERSIONS[-1]:
                raise
        else:
            # The server then ends the call with OK.
            session.call.sendEnd()
            break
    return services


class _ReflectionSession:
    """One call to a server's reflection service, with one request at a time."""

    def __init__(
        self, engine: IClientEngine, version: str, deadline: float, waitForReady: bool
    ) -> None:
        (self._method,) = standardService("reflection", version).methods.values()
        self.call = engine.call(self._method.path, CallOptions((), deadline, waitForReady))
        self._files: dict[str, FileDescriptorProto] = {}
        self._bytes = 0
        self._pool = DescriptorPool()
        self._added: set[str] = set()

    async def names(self) -> list[str]:
        """Fetch the names of the services that are not gRPC's own."""
        response = await self._request("listServices", "*")
        services = response.get("listServicesResponse", {}).get("service", ())
        names = [service.get("name", "") for service in services]
        if len(names) > _MAX_SERVICES:
            raise ReflectionError(f"the server has {len(names)} services, more than can be meant")
        return [name for name in names if not name.startswith("grpc.")]

    async def service(self, name: str) -> RPCService:
        """Fetch one service."""
        given = await self._fetch("fileContainingSymbol", name)
        owner = next((file for file in given if _defines(self._files[file], name)), None)
        if owner is None:
            raise ReflectionError(f"the server's reflection gives no file that defines {name}")
        await self._fetchImports(owner)
        try:
            self._add(owner)
            return serviceOf(self._pool.FindServiceByName(name))
        # protobuf raises these for invalid files.
        except (TypeError, KeyError, ValueError) as error:
            raise ReflectionError(f"the description of {name} is wrong: {error}") from error

    async def _fetchImports(self, owner: str) -> None:
        """Fetch the imports of a file, recursively."""
        wanted, seen = [owner], {owner}
        while wanted:
            for name in self._files[wanted.pop()].dependency:
                if name in seen:
                    continue
                if name not in self._files and not self._addWellKnown(name):
                    await self._fetch("fileByFilename", name)
                if name not in self._files:
                    raise ReflectionError(f"the server's reflection does not give {name}")
                seen.add(name)
                wanted.append(name)

    async def _fetch(self, question: str, value: str) -> list[str]:
        """Request files, and return the names of the received files."""
        response = await self._request(question, value)
        given = response.get("fileDescriptorResponse", {}).get("fileDescriptorProto", ())
        names = []
        for wire in given:
            self._bytes += len(wire)
            try:
                file = FileDescriptorProto.FromString(wire)
            except DecodeError:
                raise ReflectionError("the server's reflection gives what is no file") from None
            if len(self._files) >= _MAX_FILES or self._bytes > _MAX_BYTES:
                raise ReflectionError("the server's services are described at too great a length")
            names.append(file.name)
            if not self._addWellKnown(file.name):
                self._files.setdefault(file.name, file)
        return names

    def _addWellKnown(self, name: str) -> bool:
        """Add a file of protobuf itself from this process; return whether the file is known."""
        if name in self._files:
            return True
        found = _KNOWN_FILES.fullmatch(name)
        if found is None:
            return False
        try:
            # The import puts it into the pool.
            module = importlib.import_module(f"google.protobuf.{found[1]}_pb2")
        except ModuleNotFoundError:
            return False
        file = self._files[name] = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        return True

    def _add(self, owner: str) -> None:
        """Put a file into the pool, after its imports."""
        waiting: list[tuple[str, bool]] = [(owner, False)]
        opened: set[str] = set()
        while waiting:
            name, isReady = waiting.pop()
            if isReady:
                self._pool.Add(self._files[name])
                self._added.add(name)
            elif name in opened and name not in self._added:
                raise ReflectionError(f"the file {name} imports itself")
            elif name not in self._added:
                opened.add(name)
                waiting.append((name, True))
                waiting += [(each, False) for each in self._files[name].dependency]

    async def _request(self, question: str, value: str) -> dict[str, Any]:
        """Send one request and wait for its response."""
        self.call.send(self._method.request.encode({question: value}))
        received: Deferred[bytes | None] = Deferred()
        self.call.read(received.callback)
        message = await received
        if message is None:
            status, text, trailers = await self.call.ended()
            if status == 0:
                raise ReflectionError("the server's reflection ended before it had received")
            # Imported late: servers do not need the client's call.
            from storagegate.rpc.clientcall import statusError

            raise statusError(status, text, CallMetadata(trailers))
        try:
            response: dict[str, Any] = self._method.response.decode(message)
        except ConversionError as error:
            raise ReflectionError(f"the server's reflection cannot be read: {error}") from error
        if "errorResponse" in response:
            reason = response["errorResponse"].get("errorMessage", "")
            raise ReflectionError(f"the server's reflection does not know {value}: {reason:.200}")
        return response


def _defines(file: FileDescriptorProto, name: str) -> bool:
    """Return whether a file defines a service."""
    prefix = f"{file.package}." if file.package else ""
    return any(prefix + service.name == name for service in file.service)
