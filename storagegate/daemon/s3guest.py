"""
The gateway on the S3 listener, told apart by the path.

S3 has the paths C{/BUCKET/KEY}, so the gateway's must begin with a segment that no bucket can have
as its name, such as C{/_api}. The calls of gRPC are told apart before, by their content type, which
an object may have, too: see L{besideObjects}.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.registry import HTTP, WEBSOCKET
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import NativeResource
from storagegate.objects.errors import InvalidBucketName
from storagegate.objects.names import checkBucketName

if TYPE_CHECKING:
    # Imported with the first connection of HTTP/2.
    from storagegate.net.http2.hpack import ReceivedFields

# Characters that stand for themselves in the patterns of the framework, and in requests.
_PLAIN = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")


def _paths(settings: GatewayOptions) -> Mapping[str, str]:
    """Return the paths of the gateway by the names of their options."""
    return {
        "gateway.http.basePath": settings.of(HTTP.name).basePath,
        "gateway.websocket.path": settings.of(WEBSOCKET.name).path,
    }


def guestErrors(settings: GatewayOptions) -> list[str]:
    """Return the mistakes in the paths of a gateway that the S3 listener serves."""
    return [
        f"{name}: with gatewayOnS3 it must begin with a segment that no bucket has as its name,"
        f" such as /_api, not {path or '/'}"
        for name, path in _paths(settings).items()
        if not _isFree(path)
    ]


def _isFree(path: str) -> bool:
    """Return whether a path and everything below it cannot be S3's."""
    if not _PLAIN.fullmatch(path):
        return False
    try:
        checkBucketName(path[1:].partition("/")[0])
    except InvalidBucketName:
        return True
    return False


OpenCall = Callable[[Any, int, "ReceivedFields"], Any]
"""See L{IChannelOwner.openCall<storagegate.net.http.interfaces.IChannelOwner>}."""


def besideObjects(openCall: OpenCall) -> OpenCall:
    """
    Leave requests for objects with the content type of gRPC to S3: a call is a POST request without
    a query, which S3 has only for forms.
    """

    def open(connection: Any, number: int, fields: "ReceivedFields") -> Any:
        return openCall(connection, number, fields) if _mayBeCall(fields) else None

    return open


def _mayBeCall(fields: "ReceivedFields") -> bool:
    for name, value in fields.pairs:
        if name[:1] != b":":
            break
        if (name == b":method" and value != b"POST") or (name == b":path" and b"?" in value):
            return False
    return True


class S3Guest:
    """The gateway, as the S3 listener serves it."""

    def __init__(self, resource: NativeResource, settings: GatewayOptions) -> None:
        """
        @param resource: Responds to the requests of the gateway.
        @param settings: Its options; see L{guestErrors}.
        """
        self._resource = resource
        own = b"|".join([re.escape(path.encode()) for path in _paths(settings).values()])
        self._own = re.compile(b"(?:" + own + rb")(?:/|\Z)")

    def beside(self, s3: NativeResource, isBucketHost: Callable[[bytes], bool]) -> NativeResource:
        """
        Make the root of the listener.

        @param s3: Responds to all other requests.
        @param isBucketHost: Whether all paths of a host, given as a C{Host} field, are S3's.
        """
        return _SharedRoot(s3, self._resource, self._own, isBucketHost)


class _SharedRoot(NativeResource):
    """Passes each request to S3 or to the gateway."""

    def __init__(
        self,
        s3: NativeResource,
        guest: NativeResource,
        own: re.Pattern[bytes],
        isBucketHost: Callable[[bytes], bool],
    ) -> None:
        self._s3 = s3
        self._guest = guest
        self._own = own
        self._isBucketHost = isBucketHost

    def answer(self, request: ChannelRequest) -> None:
        """Let one of them respond."""
        isGuest = self._own.match(request.path) is not None and not self._isBucketHost(
            request.headers.get(b"host", b"")
        )
        (self._guest if isGuest else self._s3).answer(request)
