"""
The bench's application on storagegate.

    python storagegate_app.py PORT FILES ROUTES
"""

import sys
from collections.abc import Callable
from typing import Any

from storagegate import server
from storagegate.http import json, staticFiles


def hello(req: Any, res: Any) -> None:
    """Answer a text."""
    res.type("text/plain").send("Hello, World!")


def echo(req: Any, res: Any) -> None:
    """Answer the document that was posted."""
    res.json(req.body)


def makeRoute(number: int) -> Callable[[Any, Any], None]:
    """Make the handler of a route."""

    def handle(req: Any, res: Any) -> None:
        res.json({"route": number, "id": req.params["id"]})

    return handle


def main(port: int, files: str, routes: int) -> None:
    """Serve until the end."""
    app = server.http()
    app.get("/hello", hello)
    app.post("/echo", json(), echo)
    app.use("/static", staticFiles(files))
    for number in range(routes):
        app.get(f"/r{number}/:id", makeRoute(number))
    app.run(port)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
