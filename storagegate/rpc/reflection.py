"""
What a server serves, told to clients that have no files of it: C{grpc.reflection.v1} and
C{v1alpha}.

A client asks one thing a message, and gets one answer for each. What is not found is an answer too
and does not end the call.

The files that define a server's services, as reflection looks them up.

Learning from a server itself what its services are.

The reflection service gives files as C{FileDescriptorProto}: those that define a service, and those
that they import, in any number of answers. It is asked in version 1 and, where a server does not
have that, in its forerunner, which is the same but for the name.
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
from storagegate.rpc.clientcall import statusError
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.health import reflectionService
from storagegate.rpc.interfaces import IClientEngine
from storagegate.rpc.protos import RPCService, serviceOf

_log = Logger()

# Everybody imports these, each from its own release of protobuf, and they fit one another.
_WELL_KNOWN = "google/protobuf/"


class DescriptorIndex:
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


VERSIONS = ("v1", "v1alpha")
"""The versions that are served, newer one first."""

Services = Callable[[], Mapping[str, RPCService]]
"""Gives the services by their full names, as they are at the moment."""


class Reflection:
    """The implementation of every version: they differ by their names alone."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._roots: tuple[FileDescriptor, ...] = ()
        self._files = DescriptorIndex(())

    async def ServerReflectionInfo(self, call: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer each question of a stream."""
        async for request in call:
            yield {
                "validHost": request.get("host", ""),
                "originalRequest": request,
                **self._answer(request),
            }

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        files = self._current()
        match request:
            case {"listServices": _}:
                names = [{"name": name} for name in sorted(self._services())]
                return {"listServicesResponse": {"service": names}}
            case {"fileByFilename": name}:
                return _fileAnswer(files.named(name), "File not found")
            case {"fileContainingSymbol": symbol}:
                return _fileAnswer(files.containing(symbol), "Symbol not found")
            case {"fileContainingExtension": asked}:
                message, number = asked.get("containingType", ""), asked.get("extensionNumber", 0)
                return _fileAnswer(files.extending(message, number), "Extension not found")
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
        return _error("INVALID_ARGUMENT", "The request asks for nothing")

    def _current(self) -> DescriptorIndex:
        roots = tuple(service.file for service in self._services().values())
        if roots != self._roots:
            self._roots, self._files = roots, DescriptorIndex(roots)
        return self._files


def reflectionServices(services: Services) -> list[tuple[RPCService, Reflection]]:
    """
    Make the reflection of a server.

    @param services: Gives all services, these ones included.
    @return: The definition of each version with its implementation.
    """
    implementation = Reflection(services)
    return [(reflectionService(version), implementation) for version in VERSIONS]


def _fileAnswer(files: list[bytes] | None, missing: str) -> dict[str, Any]:
    if files is None:
        return _error("NOT_FOUND", missing)
    return {"fileDescriptorResponse": {"fileDescriptorProto": files}}


def _error(status: str, message: str) -> dict[str, Any]:
    # What was asked for stands in the original request beside it.
    return {"errorResponse": {"errorCode": GRPC_STATUSES[status], "errorMessage": message}}


# A large company's services have some hundred files; past this somebody means harm.
_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_MAX_SERVICES = 1000

# These are part of protobuf itself: what they mean here does not depend on a server.
_KNOWN_FILES = re.compile(
    "google/protobuf/"
    r"(any|api|descriptor|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)"
    r"\.proto"
)


class ReflectionError(Exception):
    """What a server tells of its services cannot be used."""


async def fetchServices(
    engine: IClientEngine, deadline: float, waitForReady: bool = False, name: str | None = None
) -> dict[str, RPCService]:
    """
    Ask a server for services.

    @param deadline: When to give up, in seconds since 1970.
    @param waitForReady: Whether to wait for a connection.
    @param name: The full name of one; C{None} for all but those that gRPC itself has defined.
    @return: The services by their full names.
    @raise GrpcError: If the server does not answer, or has no reflection.
    @raise ReflectionError: If it does not know the service, or its answers make no sense.
    """
    try:
        return await _learn(engine, "v1", deadline, waitForReady, name)
    except GrpcError as error:
        if error.status != GRPC_STATUSES["UNIMPLEMENTED"]:
            raise
    return await _learn(engine, "v1alpha", deadline, waitForReady, name)


async def _learn(
    engine: IClientEngine, version: str, deadline: float, waitForReady: bool, name: str | None
) -> dict[str, RPCService]:
    inquiry = _Inquiry(engine, version, deadline, waitForReady)
    try:
        names = [name] if name is not None else await inquiry.names()
        services = {each: await inquiry.service(each) for each in names}
    except BaseException:
        inquiry.giveUp()
        raise
    inquiry.end()
    return services


class _Inquiry:
    """One conversation with a server's reflection: a question, an answer, and so on."""

    def __init__(
        self, engine: IClientEngine, version: str, deadline: float, waitForReady: bool
    ) -> None:
        (self._method,) = reflectionService(version).methods.values()
        self._wire = engine.call(self._method.path, (), deadline, waitForReady)
        self._files: dict[str, FileDescriptorProto] = {}
        self._bytes = 0
        self._pool = DescriptorPool()
        self._added: set[str] = set()

    def end(self) -> None:
        """Ask nothing more: the server ends the call in order, for a log that tells of it."""
        self._wire.sendEnd()

    def giveUp(self) -> None:
        """Wait for no answer any more."""
        self._wire.cancel()

    async def names(self) -> list[str]:
        """Give the names of the services that are not gRPC's own."""
        answer = await self._ask("listServices", "*")
        services = answer.get("listServicesResponse", {}).get("service", ())
        names = [service.get("name", "") for service in services]
        if len(names) > _MAX_SERVICES:
            raise ReflectionError(f"the server has {len(names)} services, more than can be meant")
        return [name for name in names if not name.startswith("grpc.")]

    async def service(self, name: str) -> RPCService:
        """Learn one service."""
        given = await self._fetch("fileContainingSymbol", name)
        owner = next((file for file in given if _defines(self._files[file], name)), None)
        if owner is None:
            raise ReflectionError(f"the server's reflection gives no file that defines {name}")
        await self._complete(owner)
        try:
            self._add(owner)
            return serviceOf(self._pool.FindServiceByName(name))
        # This is how protobuf says that files are not as they have to be.
        except (TypeError, KeyError, ValueError) as error:
            raise ReflectionError(f"the description of {name} is wrong: {error}") from error

    async def _complete(self, owner: str) -> None:
        """Fetch what a file imports, and what that imports."""
        wanted, seen = [owner], {owner}
        while wanted:
            for name in self._files[wanted.pop()].dependency:
                if name in seen:
                    continue
                if name not in self._files and not self._takeOwn(name):
                    await self._fetch("fileByFilename", name)
                if name not in self._files:
                    raise ReflectionError(f"the server's reflection does not give {name}")
                seen.add(name)
                wanted.append(name)

    async def _fetch(self, question: str, value: str) -> list[str]:
        """Ask for files and give the names of those that came."""
        answer = await self._ask(question, value)
        given = answer.get("fileDescriptorResponse", {}).get("fileDescriptorProto", ())
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
            if not self._takeOwn(file.name):
                self._files.setdefault(file.name, file)
        return names

    def _takeOwn(self, name: str) -> bool:
        """Take a file of protobuf itself from this side, which means the same and is whole."""
        if name in self._files:
            return True
        file = _wellKnownFile(name)
        if file is None:
            return False
        self._files[name] = file
        return True

    def _add(self, owner: str) -> None:
        """Put a file into the pool, after those that it imports."""
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

    async def _ask(self, question: str, value: str) -> dict[str, Any]:
        """Send one question and wait for its answer."""
        self._wire.send(self._method.request.encode({question: value}))
        answered: Deferred[bytes | None] = Deferred()
        self._wire.read(answered.callback)
        message = await answered
        if message is None:
            status, text, trailers = await self._wire.ended()
            if status == 0:
                raise ReflectionError("the server's reflection ended before it had answered")
            raise statusError(status, text, CallMetadata(trailers))
        try:
            answer: dict[str, Any] = self._method.response.decode(message)
        except ConversionError as error:
            raise ReflectionError(f"the server's reflection cannot be read: {error}") from error
        if "errorResponse" in answer:
            reason = answer["errorResponse"].get("errorMessage", "")
            raise ReflectionError(f"the server's reflection does not know {value}: {reason:.200}")
        return answer


def _defines(file: FileDescriptorProto, name: str) -> bool:
    """Tell whether a service is of this file."""
    prefix = f"{file.package}." if file.package else ""
    return any(prefix + service.name == name for service in file.service)


def _wellKnownFile(name: str) -> FileDescriptorProto | None:
    """Give a file of protobuf itself."""
    found = _KNOWN_FILES.fullmatch(name)
    if found is None:
        return None
    try:
        # Importing it is what puts it into the pool.
        module = importlib.import_module(f"google.protobuf.{found[1]}_pb2")
    except ModuleNotFoundError:
        return None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file
