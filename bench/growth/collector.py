"""
A stand-in for a collector of spans: takes whatever is posted, and keeps nothing.

    python -m bench.growth.collector

Prints its port, and serves until it is told to stop.
"""

from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import Site


class Taking(Resource):
    """Answers every request with success."""

    isLeaf = True

    def render_POST(self, request: Any) -> bytes:
        """Take what was posted."""
        return b""


def main() -> None:
    """Serve until the end."""
    from twisted.internet import reactor

    site = Site(Taking())
    site.log = lambda *_: None
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()


if __name__ == "__main__":
    main()
