"""
The bench's application on Starlette, served by uvicorn.

    python starlette_app.py PORT FILES ROUTES
"""

import sys
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles


async def hello(request: Request) -> PlainTextResponse:
    """Answer a text."""
    return PlainTextResponse("Hello, World!")


async def echo(request: Request) -> JSONResponse:
    """Answer the document that was posted."""
    return JSONResponse(await request.json())


def makeRoute(number: int) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Make the endpoint of a route."""

    async def endpoint(request: Request) -> JSONResponse:
        return JSONResponse({"route": number, "id": request.path_params["id"]})

    return endpoint


def main(port: int, files: str, routes: int) -> None:
    """Serve until the end."""
    app = Starlette(
        routes=[
            Route("/hello", hello),
            Route("/echo", echo, methods=["POST"]),
            Mount("/static", StaticFiles(directory=files)),
            *(Route(f"/r{number}/{{id}}", makeRoute(number)) for number in range(routes)),
        ]
    )
    # As --loop uvloop --http httptools --no-access-log.
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
