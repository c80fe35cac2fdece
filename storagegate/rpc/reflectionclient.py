"""
The client of L{reflection<storagegate.rpc.reflection>}, which learns the services of a server.

It uses v1 or, if the server does not have it, v1alpha, which differs only in its name.
"""

import importlib
import re
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from twisted.internet.defer import Deferred

from storagegate.core.errors import GrpcError
from storagegate.rpc.call import CallMetadata
from storagegate.rpc.clientcall import statusError
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import CallOptions, IClientEngine
from storagegate.rpc.protos import RPCService, serviceOf, standardService
from storagegate.rpc.reflection import VERSIONS

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
            raise ReflectionError(
                f"the server has {len(names)} services, more than {_MAX_SERVICES}"
            )
        return [name for name in names if not name.startswith("grpc.")]

    async def service(self, name: str) -> RPCService:
        """Fetch one service."""
        given = await self._fetch("fileContainingSymbol", name)
        owner = next((file for file in given if _defines(self._files[file], name)), None)
        if owner is None:
            raise ReflectionError(f"the server's reflection has no file that defines {name}")
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
                    raise ReflectionError(f"the server's reflection does not return {name}")
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
                raise ReflectionError("the server's reflection returns an invalid file") from None
            if len(self._files) >= _MAX_FILES or self._bytes > _MAX_BYTES:
                raise ReflectionError("the descriptions of the server's services are too long")
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
                raise ReflectionError("the server's reflection ended without a response")
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
