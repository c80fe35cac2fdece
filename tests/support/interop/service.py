"""The service of the cases on our server: handlers in the definition form."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from twisted.internet.task import deferLater

from storagegate.core.errors import GrpcError
from tests.support.interop.cases import INITIAL_NAME, TRAILING_NAME


class InteropService:
    """The methods of C{TestService}, except the one that servers do not implement."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def emptyCall(self, call: Any) -> dict[str, Any]:
        """Answer with an empty message."""
        return {}

    def unaryCall(self, call: Any) -> dict[str, Any]:
        """Answer with the requested size."""
        request = call.request
        _begin(call, request)
        call.compress = request.get("responseCompressed", True)
        return _payload(request.get("responseSize", 0))

    async def streamingInputCall(self, call: Any) -> dict[str, Any]:
        """Add up the sizes of the messages."""
        total = 0
        async for request in call:
            total += len(request.get("payload", {}).get("body", b""))
        return {"aggregatedPayloadSize": total}

    def streamingOutputCall(self, call: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer with the requested messages."""
        return self._responses(call, call.request)

    async def fullDuplexCall(self, call: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer each message."""
        isFirst = True
        async for request in call:
            if isFirst:
                _begin(call, request)
                isFirst = False
            async for response in self._responses(call, request):
                yield response

    async def _responses(
        self, call: Any, request: Mapping[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        for wanted in request.get("responseParameters", ()):
            if wanted.get("intervalUs"):
                await deferLater(self._reactor, wanted["intervalUs"] / 1e6)
            call.compress = wanted.get("compressed", True)
            yield _payload(wanted.get("size", 0))


def _begin(call: Any, request: Mapping[str, Any]) -> None:
    """Echo the metadata, and fail if requested."""
    for value in call.metadata.get(INITIAL_NAME):
        call.sendMetadata({INITIAL_NAME: value})
    for value in call.metadata.get(TRAILING_NAME):
        call.setTrailers({TRAILING_NAME: value})
    if "responseStatus" in request:
        status = request["responseStatus"]
        raise GrpcError(status["code"], status["message"])


def _payload(size: int) -> dict[str, Any]:
    return {"payload": {"body": bytes(size)}}
