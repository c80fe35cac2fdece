"""The root resource of the admin listener: health, metrics, and the console, made on demand."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import NativeResource

_CONSOLE = b"/console"

_UNAVAILABLE = b'{"error":"UNAVAILABLE","message":"The store is not open yet"}'


class AdminResource(NativeResource):
    """The root resource."""

    def __init__(
        self, plain: NativeResource, makeConsole: Callable[[], Any] | None, consoleUrl: str
    ) -> None:
        """
        @param plain: Serves all paths outside of the console.
        @param makeConsole: Makes the C{Application} of the console; it returns C{None} while the
            console is not available yet. C{None} disables the console.
        @param consoleUrl: The URL of the console for browsers; empty if they use this listener
            directly.
        """
        self._plain = plain
        self._makeConsole = makeConsole
        self._console: Any = None
        path = urlsplit(consoleUrl).path.rstrip("/").encode("ascii", "replace")
        # A proxy forwards the prefix or strips it.
        self._mounts = tuple({_CONSOLE, path} if path else {_CONSOLE})

    def answer(self, request: ChannelRequest) -> None:
        """Respond to a request, now or later, exactly once."""
        if self._makeConsole is None:
            self._plain.answer(request)
        elif any(
            request.path == each or request.path.startswith(each + b"/") for each in self._mounts
        ):
            self._answerConsole(request)
        elif request.path == b"/" and request.method in (b"GET", b"HEAD"):
            request.respond(302, [(b"Location", b"console/")], b"")
        else:
            self._plain.answer(request)

    def _answerConsole(self, request: ChannelRequest) -> None:
        if self._console is None and self._makeConsole is not None:
            console = self._makeConsole()
            if console is None:
                fields = [(b"Content-Type", b"application/json"), (b"Retry-After", b"1")]
                request.respond(503, fields, _UNAVAILABLE)
                return
            self._console = _mounted(console, self._mounts)
        self._console.answer(request)


def _mounted(console: Any, mounts: tuple[bytes, ...]) -> Any:
    """Make the resource of an application mounted at some paths."""
    from storagegate.http.application import Application

    root = Application()
    root.trust = console.trust
    for mount in mounts:
        path = mount.decode()

        def redirect(req: Any, res: Any, next: Any, path: str = path) -> Any:
            # The relative URLs of the console's pages need the slash.
            if req.raw.path == path.encode():
                return res.redirect(302, path.rpartition("/")[2] + "/")
            return next()

        root.use(path, redirect, console)
    return root.resource
