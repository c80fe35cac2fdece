"""What keeps sessions."""

from collections.abc import Mapping
from typing import Any

from zope.interface import Interface

from storagegate.http.runtime import Runtime

DAY_MS = 24 * 60 * 60 * 1000
"""How long a session whose cookie has no end is kept after its last use."""


class ISessionStore(Interface):
    """
    Keeps sessions by their id.

    Every method may give its result at once, as a Deferred or as a coroutine. A session is a
    mapping that JSON can hold; its key C{cookie} holds what belongs to its cookie.

    A store for several machines, in a server like Valkey, promises as much: each method is one
    atomic step with its expiry in it, C{touch} changes nothing but cookie and expiry of a session
    that is there, and an error is that of the request.
    """

    def get(id: str) -> Any:
        """Give a session, or C{None} if there is none of this id, or not any more."""

    def set(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Keep a session, in place of what there is of this id, for so many milliseconds."""

    def destroy(id: str) -> Any:
        """Forget a session, if there is one."""

    def touch(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Keep a session for longer and take over its C{cookie}; leave the rest as it is kept."""


class IReplacingStore(ISessionStore):
    """
    A store that can tell a change from something new, in one step.

    Without it a request that ends after its session was destroyed by another could bring the
    session back in the moment between looking and writing.
    """

    def replace(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Do as C{set}, but nothing if there is no session of this id."""


class IBoundStore(ISessionStore):
    """A store that needs the time or threads of the application."""

    def bind(runtime: Runtime) -> None:
        """Use this runtime, unless there is one. Called with every first use by a middleware."""


class ISessionVisit(Interface):
    """What a session asks of the request that it belongs to."""

    def makeId() -> str:
        """Make an id."""

    def makeCookie() -> Any:
        """Make a cookie as the options say."""

    def regenerate() -> Any:
        """Give the request another session, with a new id and no content. A coroutine."""

    def destroy() -> Any:
        """Leave the request without a session, and forget what is kept. A coroutine."""

    def reload(session: Any) -> Any:
        """
        Read what is kept again. A coroutine.

        @raise SessionError: There is nothing, or the request has another session by now.
        """

    def save(session: Any) -> Any:
        """
        Keep the session now. A coroutine.

        @raise SessionError: It cannot be kept, or the request has another session by now.
        """
