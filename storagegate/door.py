"""The root of a listener that is bound before its room stands, and keeps its place in a reload."""

from collections.abc import Coroutine
from typing import Any, Protocol

from storagegate.net.resource import CoroutineResource, Shape
from storagegate.net.site import Request


class Room(Protocol):
    """Answers the requests of a listener."""

    def serve(self, request: Request) -> Coroutine[Any, Any, None]:
        """Answer one request."""

    def describeError(self, request: Request, error: Exception) -> Shape:
        """Give an exception its shape."""


class Door(CoroutineResource):
    """
    A leaf that leads to whatever room stands behind it now.

    A request stays in the room that it has entered. Until there is a room, the reactor does not
    run, so no request comes.
    """

    room: Room

    def __init__(self) -> None:
        super().__init__(self._enter, self._describe)

    def _enter(self, request: Request) -> Coroutine[Any, Any, None]:
        return self.room.serve(request)

    def _describe(self, request: Request, error: Exception) -> Shape:
        return self.room.describeError(request, error)
