"""
The bench's application on twisted.web alone.

    python twisted_app.py PORT FILES ROUTES
"""

import json
import sys
from collections.abc import Callable

from quietsite import serve
from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.static import File


class Leaf(Resource):
    """A resource that answers for all that is below it."""

    isLeaf = True

    def __init__(self, contentType: bytes, answer: Callable[[Request], bytes]) -> None:
        super().__init__()
        self.contentType = contentType
        self.answer = answer

    def render(self, request: Request) -> bytes:
        """Answer."""
        request.setHeader(b"content-type", self.contentType)
        return self.answer(request)


def hello(request: Request) -> bytes:
    """Answer a text."""
    return b"Hello, World!"


def echo(request: Request) -> bytes:
    """Answer the document that was posted."""
    return json.dumps(json.loads(request.content.read())).encode()


def makeRoute(number: int) -> Callable[[Request], bytes]:
    """Make the answer of a route."""

    def answer(request: Request) -> bytes:
        return json.dumps({"route": number, "id": request.postpath[0].decode()}).encode()

    return answer


def main(port: int, files: str, routes: int) -> None:
    """Serve until the end."""
    root = Resource()
    root.putChild(b"hello", Leaf(b"text/plain", hello))
    root.putChild(b"echo", Leaf(b"application/json", echo))
    root.putChild(b"static", File(files))
    for number in range(routes):
        root.putChild(b"r%d" % number, Leaf(b"application/json", makeRoute(number)))
    serve(root, port)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
