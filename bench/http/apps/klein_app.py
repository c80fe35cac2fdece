"""
The bench's application on klein.

    python klein_app.py PORT FILES ROUTES
"""

import json
import sys
from collections.abc import Callable

from klein import Klein
from quietsite import serve
from twisted.web.server import Request
from twisted.web.static import File


def makeRoute(number: int) -> Callable[[Request, str], str]:
    """Make the handler of a route."""

    def handle(request: Request, id: str) -> str:
        request.setHeader("Content-Type", "application/json")
        return json.dumps({"route": number, "id": id})

    return handle


def main(port: int, files: str, routes: int) -> None:
    """Serve until the end."""
    app = Klein()

    @app.route("/hello", methods=["GET"])
    def hello(request: Request) -> str:
        request.setHeader("Content-Type", "text/plain")
        return "Hello, World!"

    @app.route("/echo", methods=["POST"])
    def echo(request: Request) -> str:
        request.setHeader("Content-Type", "application/json")
        return json.dumps(json.load(request.content))

    @app.route("/static/", branch=True)
    def static(request: Request) -> File:
        return File(files)

    for number in range(routes):
        route = app.route(f"/r{number}/<id>", methods=["GET"], endpoint=f"r{number}")
        route(makeRoute(number))
    serve(app.resource(), port)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
