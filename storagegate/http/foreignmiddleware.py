"""Stock Twisted resources as middleware."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.web.resource import IResource
from zope.interface import implementer

from storagegate.net.interfaces import IForeignReply


def resourceMiddleware(resource: IResource) -> Callable[[Any, Any, Any], None]:
    """
    Make middleware that lets a Twisted resource answer everything at or below its path.

    The resource sees the path that it is mounted at in C{prepath}, as if it hung in a tree there.
    Its response goes out by the response of the application, so that what middleware has set or
    registered holds for it too. A resource that takes over the connection, such as Autobahn's
    WebSocket, takes it from under the application.
    """

    def render(req: Any, res: Any, next: Any) -> None:
        prefix = req.baseUrl.count("/")
        req.lean.channel.owner.serveMounted(req.lean, resource, prefix, _ForeignReply(res))

    return render


@implementer(IForeignReply)
class _ForeignReply:
    """Takes what a stock resource sends, and gives it to the response of an application."""

    def __init__(self, res: Any) -> None:
        self._res = res

    def begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]],
        length: int | None,
        phrase: bytes = b"",
    ) -> None:
        """Begin the response. There is no room for a phrase."""
        res = self._res
        res.statusCode = code
        fields: dict[str, list[str]] = {}
        for field, value in headers:
            fields.setdefault(field.decode("ascii"), []).append(value.decode("latin-1"))
        for name, values in fields.items():
            if name.lower() == "content-length":
                length = int(values[0])
            elif name.lower() == "vary":
                res.vary(*(part.strip() for part in ",".join(values).split(",")))
            elif name.lower() == "set-cookie":
                res.append(name, values)
            else:
                res.header(name, values if len(values) > 1 else values[0])
        res.startBody(length)

    def send(self, chunk: bytes) -> None:
        """Send a part of the body."""
        self._res.write(chunk)

    def finish(self) -> None:
        """End the response."""
        self._res.end()

    def respond(self, code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a whole response."""
        self.begin(code, headers, len(body))
        self.send(body)
        self.finish()
