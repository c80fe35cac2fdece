"""
Learning from a server itself what its services are.

The reflection service gives files as C{FileDescriptorProto}: those that define a service, and those
that they import, in any number of answers. It is asked in version 1 and, where a server does not
have that, in its forerunner, which is the same but for the name.
"""

import importlib
import re
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from twisted.internet.defer import Deferred

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.rpc.call import CallMetadata
from storagegate.rpc.clientcall import statusError
from storagegate.rpc.conversion import ConversionError
from storagegate.rpc.definitions import RPCService, serviceOf
from storagegate.rpc.standards import reflectionService
from storagegate.rpc.wire import IClientEngine

# A large company's services have some hundred files; past this somebody means harm.
_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_MAX_SERVICES = 1000

# These are part of protobuf itself: what they mean here does not depend on a server.
_WELL_KNOWN = re.compile(
    "google/protobuf/"
    r"(any|api|descriptor|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)"
    r"\.proto"
)


class ReflectionError(Exception):
    """What a server tells of its services cannot be used."""


async def learnServices(
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
    found = _WELL_KNOWN.fullmatch(name)
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
