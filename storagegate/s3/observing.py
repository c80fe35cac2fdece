"""What those who count, trace or log are told of an S3 request."""

from typing import Protocol

from attrs import define

from storagegate.core.context import Tracing
from storagegate.net.request import Request

UNKNOWN = "Unknown"
"""The operation of a request that was refused before it was known what it asks for."""

LOST_STATUS = 499
"""The status of a request whose client went away before the whole answer was out."""


@define(eq=False)
class Exchange:
    """
    One request and its answer.

    Only C{request}, C{began}, C{requestId} and C{tracing} are known when it begins.

    @ivar operation: Amazon's name, C{GetObject}; see L{UNKNOWN}.
    @ivar began: When, by C{time.perf_counter}.
    @ivar status: The code of the answer; see L{LOST_STATUS}.
    @ivar errorCode: Of an error, Amazon's name.
    @ivar bytesIn: How many bytes of the request's body were read.
    @ivar bytesOut: How many bytes of the answer's body went out.
    @ivar accessKey: Who asks, once that was proved.
    """

    request: Request
    operation: str
    began: float
    requestId: str
    tracing: Tracing | None = None
    status: int = 0
    errorCode: str | None = None
    bytesIn: int = 0
    bytesOut: int = 0
    accessKey: str | None = None


class S3Observer(Protocol):
    """Who is told of S3 requests. What it raises is logged and harms nobody."""

    def began(self, exchange: Exchange) -> None:
        """Take note of a request whose head has come."""

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Take note that its answer has gone out, or that its client has."""
