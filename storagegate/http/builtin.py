"""The middleware that options install."""

from collections.abc import Callable
from typing import Any

from storagegate.http.options import Options


def builtInMiddleware(options: Options) -> list[Callable[..., Any]]:
    """
    Make the middleware that options ask for, in its order.

    The log sees everything but what development adds; CORS comes before what may refuse, so that a
    page can read the refusal.
    """
    middleware: list[Callable[..., Any]] = []
    if options.development is not None and options.development.hmr:
        from storagegate.http.development.pages import developmentPages
        from storagegate.http.development.workshop import processWorkshop

        middleware.append(developmentPages(processWorkshop().hub))
    if options.development is not None and options.development.console:
        from storagegate.http.development.console import ConsoleStream
        from storagegate.http.middleware.requestlog import requestLog

        middleware.append(requestLog("dev", stream=ConsoleStream("stdout")))
    if options.cors is not None:
        from storagegate.http.middleware.cors import cors

        middleware.append(cors(**options.cors))
    if options.rateLimit is not None:
        from storagegate.http.middleware.ratelimit import rateLimit

        middleware.append(rateLimit(**options.rateLimit))
    if options.compression is not None:
        from storagegate.http.middleware.compression import compression

        middleware.append(compression(**options.compression))
    if options.websocket is not None:
        middleware.append(options.websocket["gateway"].webSocketMiddleware())
    return middleware
