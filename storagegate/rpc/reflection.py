"""
What a server serves, told to clients that have no files of it: C{grpc.reflection.v1} and
C{v1alpha}.

A client asks one thing a message, and gets one answer for each. What is not found is an answer too
and does not end the call.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from storagegate.core.errors import GRPC_STATUSES
from storagegate.rpc.definitions import RPCService
from storagegate.rpc.servedfiles import ServedFiles
from storagegate.rpc.standards import reflectionService

VERSIONS = ("v1", "v1alpha")
"""The versions that are served, newer one first."""

Services = Callable[[], Mapping[str, RPCService]]
"""Gives the services by their full names, as they are at the moment."""


class Reflection:
    """The implementation of every version: they differ by their names alone."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._roots: tuple[FileDescriptor, ...] = ()
        self._files = ServedFiles(())

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

    def _current(self) -> ServedFiles:
        roots = tuple(service.file for service in self._services().values())
        if roots != self._roots:
            self._roots, self._files = roots, ServedFiles(roots)
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
