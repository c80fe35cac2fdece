"""The methods of services, made ready to be called."""

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from storagegate.core.context import RequestContext
from storagegate.core.definitions import RateLimit, ServiceDefinition, ServiceMethod
from storagegate.core.ratestores import IRateLimitStore
from storagegate.core.schemas import Schema


@frozen(eq=False)
class BoundMethod:
    """
    A method that can be called.

    @ivar service: The service.
    @ivar name: Its bare name.
    @ivar method: Its definition.
    @ivar input: Checks a request; C{None} for any.
    @ivar output: Checks a response.
    @ivar isPublic: Whether nobody has to be known.
    @ivar rates: Counts its calls; C{None} if they are not limited.
    @ivar streamsRequests: Whether a call has a stream of requests.
    @ivar streamsResponses: Whether it has a stream of responses.
    """

    service: ServiceDefinition
    name: str
    method: ServiceMethod
    input: Schema | None
    output: Schema | None
    isPublic: bool
    limit: RateLimit | None
    rates: IRateLimitStore | None
    handler: Callable[[Any, RequestContext], Any] = field(repr=False)
    streamsRequests: bool = field(init=False)
    streamsResponses: bool = field(init=False)

    @streamsRequests.default
    def _readsStream(self) -> bool:
        return self.method.streamsRequests

    @streamsResponses.default
    def _givesStream(self) -> bool:
        return self.method.streamsResponses

    @property
    def whole(self) -> str:
        """Give its name with that of its service."""
        return f"{self.service.name}.{self.name}"

    @property
    def streaming(self) -> str:
        """Tell how it streams."""
        return self.method.streaming
