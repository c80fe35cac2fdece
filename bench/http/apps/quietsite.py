"""twisted.web's server, without a log of requests."""

from twisted.web.resource import IResource
from twisted.web.server import Request, Site

BACKLOG = 1024
"""Connections that wait to be accepted; Twisted's own 50 are fewer than come at once."""


class QuietSite(Site):
    """A site that does not write each request down."""

    def log(self, request: Request) -> None:
        """Write nothing."""


def serve(root: IResource, port: int) -> None:
    """Serve until the end."""
    from twisted.internet import reactor

    reactor.listenTCP(port, QuietSite(root), BACKLOG, "127.0.0.1")
    reactor.run()
